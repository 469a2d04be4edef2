"""DEPENDENCY: does the loss reach the parameters meant to be trained?"""

from __future__ import annotations

from weaklink.collector.close_up.records import CloseUpRecord
from weaklink.collector.evidence import Row
from weaklink.collector.rows.changes import thawed
from weaklink.collector.rows.observation import Observation, names
from weaklink.collector.watching.parameters import ParameterEntry
from weaklink.collector.watching.tape import CutSample


def rows(run: Observation) -> list[Row]:
    """Rows read off the autograd graph, walked before backward consumed it."""
    return [_graph(run), _reached(run)]


def _graph(run: Observation) -> Row:
    if run.tape.without_graph:
        return Row(
            id="DEPENDENCY/graph",
            status="fail",
            basis="exact",
            text="backward was called on a loss that depends on no trainable tensor",
            values={"requires_grad": False},
            where=[run.tape.backward_without_graph] if run.tape.backward_without_graph else [],
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
    # What it was given after that (a part that thaws late) may not have been looked at yet.
    consumed = {serial for sample in run.steps for serial in sample.consumed}
    # What moves without a gradient follows something else by design: a teacher, a code book, averages of them.
    still = [e for e in missed if not run.moved(e)]
    owned = [e for e in still if e.serial in consumed or (e.owners and not consumed)]
    cuts = _cuts(run, missed)
    # Without gradients for now: a part may be thawed later, by a counter or a flag. A detach stands where it stands.
    detached = [cut for cut in _cuts(run, owned) if cut.kind == "detach"]
    resting = all(_has_a_twin(e, expected) for e in owned)
    cut_off = bool(detached) and not resting
    unused = _unused(run, owned)
    text = f"{reached}/{len(expected)} expected parameters"
    if missed:
        text += f"; never reached: {names(missed)}"
    if cuts:
        text += f"; the path ends at {', '.join(cut.site.place for cut in cuts[:3])}"
    if unused:
        text += f"; in no number that a loss is made of: {names(unused)}"
    late = thawed(run, still)
    if late is not None:
        text += f"; made trainable after step {late.step}"
    # A system was handed over to be trained, and a call that stands in it keeps the loss from what it was given.
    proven = run.given and cut_off
    # In a script the optimizer of a later stage may not have stepped where it was looked at.
    seen = missed if run.given or run.in_process else [e for e in still if e in owned or not e.owners]
    declared = bool(seen and run.declared.expected)
    # Owned, called, and never reached in any sampled step: a cut path. An output that nobody uses is none, and beside
    # a reached part of the same layout it may be a fixed target (random network distillation).
    asked = "suspected" if len(unused) < len(owned) and not resting else "evidence"
    status = "pass" if not missed else "fail" if proven or declared else asked
    return Row(
        id="DEPENDENCY/reached",
        status=status,  # type: ignore[arg-type]
        basis=None if status != "fail" else "declared" if declared else "exact",
        text=text,
        values={
            "reached": reached,
            "expected": len(expected),
            "missed": [e.name or "" for e in missed[:20]],
            "owned": [e.name or "" for e in owned[:200]],
            "unused": [e.name or "" for e in unused[:200]],
            "cut": [cut.site.place for cut in cuts if cut.kind == "detach"],
            "ends": [f"{cut.kind} {cut.site.place}" for cut in cuts],
        },
        where=[*(cut.site for cut in cuts), *(e.created for e in owned[:3] if e.created)] if status != "pass" else [],
        step=1 if missed else None,
    )


def _unused(run: Observation, owned: list[ParameterEntry]) -> list[ParameterEntry]:
    """Those whose values are in no loss that the close-up took apart: a pooler whose output nobody takes.

    A path that was cut carries the values on, only the history ends. Nothing is known where there was no close-up.
    """
    if CloseUpRecord not in run.tape.records:
        return []
    record = run.record(CloseUpRecord)
    known = record.problem is None and record.losses
    return [e for e in owned if not record.influences >> e.serial & 1] if known else []


def _has_a_twin(entry: ParameterEntry, expected: list[ParameterEntry]) -> bool:
    """Whether a part of the same model with the same tensors is reached: `teacher.0.weight` beside `student.0.weight`.

    A teacher that the script's own loop averages rests by design, also where an optimizer happens to hold it. Numbered
    parts are layers of one stack, not such a pair. An encoder and a decoder of one layout look alike: suspected then.
    """
    part, inside = _split(entry)
    twins = [e for e in expected if e.reached and e.root == entry.root and e.shape == entry.shape]
    return not part.isdigit() and any(_split(e)[1] == inside and not _split(e)[0].isdigit() for e in twins)


def _split(entry: ParameterEntry) -> tuple[str, str]:
    """The part of the model that a parameter belongs to, and its path in there."""
    path = min((path for path, _ in entry.places), default=entry.name or "")
    part, _, inside = path.partition(".")
    return part, inside


def _cuts(run: Observation, missed: list[ParameterEntry]) -> list[CutSample]:
    """Where the history of something missed was cut off, in the sampled steps; each place once."""
    serials = {e.serial for e in missed}
    found: dict[str, CutSample] = {}
    for window in run.tape.windows:
        for cut in window.cuts:
            if cut.leaves & serials:
                found.setdefault(cut.site.place, cut)
    exact = [cut for cut in found.values() if cut.exact]
    return exact or list(found.values())
