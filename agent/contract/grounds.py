"""Whether the first mechanism can be what the experiment decides: by what it changes, and by what was measured.

A row may flip under one change for several reasons: a parameter that is given to the optimizer moves, whether it
replaced an older one or was never handed over. Where exact evidence already tells such families apart, the wrong one
cannot stand first, so no rerun can support it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weaklink.agent.contract.families import ANY_BOUNDARY
from weaklink.agent.contract.values import quoted
from weaklink.agent.proposal import Proposal
from weaklink.collector.catalogue import CATALOGUE
from weaklink.collector.evidence import Evidence


def decides(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """The experiment's change is one that the first mechanism's family has a part in."""
    entry = CATALOGUE.get(proposal.experiment.name) if proposal.experiment else None
    if entry is None or not proposal.mechanisms:
        return
    family = proposal.mechanisms[0].id
    if family in entry.decides or (family in ANY_BOUNDARY and family != "none"):
        return
    able = sorted(name for name, other in CATALOGUE.items() if family in other.decides)
    said = f"; it can be decided by: {', '.join(able)}" if able else "; no experiment does: ask the operator"
    yield f"{entry.name} cannot support {family}, it decides: {', '.join(sorted(entry.decides))}{said}."


def grounds(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """No exact evidence excludes the first mechanism's family."""
    if proposal.outcome != "experiment" or not proposal.mechanisms:
        return
    family = proposal.mechanisms[0].id
    check = _GROUNDS.get(family)
    missing = check(evidence) if check is not None else None
    if missing is not None:
        yield f"The first mechanism, {family}, is excluded by what was measured: {missing}."


def _old_objects(evidence: Evidence) -> str | None:
    held = any(record.owned and not record.in_model for record in evidence.parameters)
    return None if held else "every object that an optimizer holds is one of the model's"


def _never_given(evidence: Evidence) -> str | None:
    missing = [r.name for r in evidence.parameters if r.in_model and r.requires_grad and not r.owned]
    replaced = {record.name for record in evidence.parameters if record.owned and not record.in_model}
    if not missing:
        return "every trainable parameter of the model is in an optimizer"
    stale = evidence.row("OWNERSHIP/stale")
    # An earlier model, with an optimizer of its own, may have had the same names: that replaced nothing.
    if replaced and replaced.issuperset(missing) and (stale is None or stale.values.get("replaced") != 0):
        return f"the optimizer holds older objects of the same names, such as {quoted(min(missing))}"
    return None


def _by_row(*rows: str) -> Callable[[Evidence], str | None]:
    """Excluded where none of these rows diverges, which show no other family. Unmeasured they exclude nothing."""

    def check(evidence: Evidence) -> str | None:
        found = [row for row in map(evidence.row, rows) if row is not None]
        measured = [row for row in found if row.status != "not_measured"]
        if any(row.diverges for row in measured) or (found and not measured):
            return None
        if not found:
            return f"the chain has no {' and no '.join(map(quoted, rows))}"
        return f"{', '.join(quoted(row.id) for row in measured)} shows nothing of it"

    return check


_GROUNDS: dict[str, Callable[[Evidence], str | None]] = {
    "optimizer_holds_old_objects": _old_objects,
    "not_in_optimizer": _never_given,
    "not_registered": _by_row("OWNERSHIP/unregistered"),
    "shared_by_mistake": _by_row("OWNERSHIP/shared"),
    "gradient_cleared_early": _by_row("GRADIENT/cleared"),
    "stale_gradient": _by_row("GRADIENT/pre_existing", "OWNERSHIP/isolation"),
    "zero_gradient": _by_row("GRADIENT/nonzero"),
    "nonfinite": _by_row("GRADIENT/finite"),
    "step_missing_or_skipped": _by_row("UPDATE/steps"),
    "update_lost": _by_row(
        "UPDATE/moved", "UPDATE/resolution", "UPDATE/returned", "UPDATE/restored", "UPDATE/declared"
    ),
    "clipping_misordered": _by_row("UPDATE/clipping"),
    "optimizer_state_wrong": _by_row("UPDATE/state"),
    "supervision_missing": _by_row("TASK/supervised", "OBJECTIVE/supervised"),
}
