"""TASK/values: whether the targets are numbers that their loss has a meaning for."""

from __future__ import annotations

from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.data import DataRecord
from weaklink.collector.watching.files import FilesRecord
from weaklink.collector.watching.target_values import TargetValuesRecord

ID = "TASK/values"
# A batch may be of one kind by chance.
BATCHES = 3


def rows(run: Observation) -> list[Row]:
    """One row, where a loss that only takes some numbers was given others."""
    return [row for row in (_beyond(run), _signed(run)) if row is not None][:1]


def _beyond(run: Observation) -> Row | None:
    """A binary cross entropy of a target outside of [0, 1] falls without end as the score rises (or sinks)."""
    found = run.record(TargetValuesRecord).beyond
    if not found:
        return None
    first = found[0]
    files = run.record(FilesRecord).data()
    return Row(
        id=ID,
        status="fail",
        basis="exact",
        text=f"{first.outside} of {first.targets} targets of a binary cross entropy lie outside of 0 to 1 (from "
        f"{first.low:g} to {first.high:g}): for them the loss has no least value",
        values={"outside": first.outside, "targets": first.targets, "low": first.low, "high": first.high},
        where=_sites(run, first.site, [*[site for site in files if _holds_targets(site.file)], *files]),
        step=first.step,
    )


def _holds_targets(name: str) -> bool:
    base = name.rpartition("/")[2].lower()
    return any(word in base for word in ("mask", "label", "target", "annotation", "_y"))


def _signed(run: Observation) -> Row | None:
    """Targets 0 and 1, never -1: what is marked by 0 contributes a constant, and nothing is ever told apart."""
    calls = run.record(TargetValuesRecord).signed
    by_name = {call.name: [other for other in calls if other.name == call.name] for call in calls}
    for name, same in by_name.items():
        zeros, ones = sum(call.zeros for call in same), sum(call.ones for call in same)
        if not zeros or not ones or any(call.negative or call.others for call in same) or len(same) < BATCHES:
            continue
        exact = name == "cosine_embedding_loss" and all(call.both for call in same) and not _has_other_loss(run)
        said = "both sides are trained, and the same output for everything is its optimum" if exact else ""
        return Row(
            id=ID,
            status="fail" if exact else "suspected",
            basis="exact" if exact else None,
            text=f"{name} takes targets of 1 and -1, and {zeros} of {zeros + ones} are 0, none -1: pairs marked by 0 "
            f"train nothing{'; ' + said if said else ''}",
            values={"zeros": zeros, "ones": ones, "batches": len(same)},
            where=_sites(run, same[0].site, []),
            step=same[0].step,
        )
    return None


def _has_other_loss(run: Observation) -> bool:
    """Whether some backward of a sampled step was for another loss than one such call a time."""
    steps = {call.step for call in run.record(TargetValuesRecord).signed}
    windows = [window for window in run.tape.windows if window.step in steps]
    return any(sample.graph is not None and sample.graph.losses for window in windows for sample in window.backwards)


def _sites(run: Observation, called: Site | None, before: list[Site]) -> list[Site]:
    """Where the targets come from, then the loss: items are read at one line, and put together at another."""
    loaders = [loader for loader in run.record(DataRecord).loaders if loader.trains]
    read = [site for loader in loaders for site in (loader.targets_read, loader.collated) if site is not None]
    return [*before[:2], *read[:1], *([called] if called is not None else [])][:3]
