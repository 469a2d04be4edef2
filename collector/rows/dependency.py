"""DEPENDENCY: does the loss reach the parameters meant to be trained?"""

from __future__ import annotations

from weaklink.collector.evidence import Row
from weaklink.collector.rows.observation import Observation, names


def rows(run: Observation) -> list[Row]:
    """Rows read off the autograd graph, walked before backward consumed it."""
    return [_graph(run), _reached(run)]


def _graph(run: Observation) -> Row:
    if run.tape.backward_without_graph is not None:
        return Row(
            id="DEPENDENCY/graph",
            status="fail",
            basis="exact",
            text="backward was called on a loss that depends on no trainable tensor",
            values={"requires_grad": False},
            where=[run.tape.backward_without_graph],
        )
    walked = [b for b in run.backwards if b.graph is not None and b.graph.nodes]
    if not walked or walked[0].graph is None:
        return Row(
            id="DEPENDENCY/graph",
            status="not_measured",
            text="graph of the loss",
            reason="backward was never called" if run.tape.backwards == 0 else "no graph was walked",
        )
    graph = walked[0].graph
    cut = " (walk cut short)" if graph.truncated else ""
    return Row(
        id="DEPENDENCY/graph",
        status="pass",
        text=f"{graph.nodes} operations, {len(graph.leaves)} leaves{cut}",
        values={"operations": graph.nodes, "leaves": len(graph.leaves)},
    )


def _reached(run: Observation) -> Row:
    expected = run.expected()
    if not expected or not any(b.graph is not None for b in run.backwards):
        return Row(
            id="DEPENDENCY/reached",
            status="not_measured",
            text="parameters the loss reaches",
            reason="no trainable parameter was called before a backward" if not expected else "no graph was walked",
        )
    # Re-entrant checkpoints hide their inner leaves from the graph: a received gradient counts as reached.
    missed = [e for e in expected if not e.reached and all(state == "missing" for state in e.states)]
    reached = len(expected) - len(missed)
    # Only where its optimizer stepped in a sampled window: with several optimizers one may be sampled by chance alone.
    stepped = {sample.optimizer for sample in run.steps}
    owned = [e for e in missed if stepped & set(e.owners) or (e.owners and not stepped)]
    text = f"{reached}/{len(expected)} expected parameters"
    if missed:
        text += f"; never reached: {names(missed)}"
    return Row(
        id="DEPENDENCY/reached",
        # Owned, called, and never reached in any sampled step: a cut path, or an output nobody uses.
        status="pass" if not missed else "suspected" if owned else "evidence",
        text=text,
        values={"reached": reached, "expected": len(expected), "missed": [e.name or "" for e in missed[:20]]},
        where=[e.created for e in owned[:3] if e.created],
        step=1 if missed else None,
    )
