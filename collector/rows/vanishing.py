"""GRADIENT/nonzero: whole modules whose gradient is exactly zero, since when, and the operation that makes it so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.beginning import too_large
from weaklink.collector.rows.observation import Observation, names
from weaklink.collector.watching.dead_gradients import LOOK, arrivals, matrices, trailing_zeros, whole_modules
from weaklink.collector.watching.parameters import ParameterEntry
from weaklink.collector.watching.zeros_written import ZerosWritten

# Sampled steps in a row, up to the end, of which "always" is said.
WINDOWS_FOR_ALWAYS = 5


@dataclass(frozen=True)
class Dead:
    """Whole modules without a gradient at the end of the run.

    Attributes:
        entries: Their parameters.
        since: Step of the first sample without one; None where there never was one.
        stops: Where the gradient ends, as the look found it; empty where none was taken.
        zero: Those that are zero in every entry themselves.
        everything: Whether the loss gives nothing that it reaches a gradient.
    """

    entries: list[ParameterEntry]
    since: int | None
    stops: list[dict[str, Any]]
    zero: list[ParameterEntry]
    everything: bool

    def kinds(self) -> set[str]:
        return {stop["kind"] for stop in self.stops}


def dead(run: Observation, learning: list[ParameterEntry]) -> Dead | None:
    """The modules that received exactly zero in each of the last samples; None where there are none."""
    record = arrivals(run.tape.windows)
    seen = [e for e in learning if e.serial in record]
    zero = {e.serial for e in seen if trailing_zeros(record[e.serial]) >= WINDOWS_FOR_ALWAYS}
    whole, looked = whole_modules(seen, zero), run.look(LOOK).values or {}
    # Factors that keep each other at zero do so beside a bias that learns, too.
    still = list({e.serial: e for e in [*whole, *matrices(seen, zero)]}.values())
    itself = [e for e in still if e.serial in looked.get("zero", [])]
    stops = looked.get("stops", [])
    found = whole or (itself if _kept_at_zero(itself, stops) else [])
    if not found:
        return None
    since = None
    if all(trailing_zeros(record[e.serial]) < len(record[e.serial]) for e in found):
        since = min(record[e.serial][-trailing_zeros(record[e.serial])].step for e in found)
    serials = {e.serial for e in [*found, *itself]}
    ends = [stop for stop in stops if serials & set(stop["below"])]
    everything = len(found) == len(seen) and all(trailing_zeros(record[e.serial]) for e in seen)
    return Dead(found, since, ends, itself, everything)


def nonzero(run: Observation, learning: list[ParameterEntry]) -> Row:
    """The row: parameters whose gradient is not always exactly zero."""
    zero = [e for e in learning if e.states and all(state == "zero" for state in e.states)]
    windows = sum(bool(window.backwards) for window in run.tape.windows)
    text = f"{len(learning) - len(zero)}/{len(learning)} in {windows} sampled steps"
    if zero:
        text += f"; always exactly zero: {names(zero)}"
    found = dead(run, learning)
    status, basis, where = "evidence" if zero else "pass", None, []
    if found is not None:
        if found.since is not None:
            text += f"; exactly zero from step {found.since} on: {names(found.entries)}"
        status, basis, why = _judged(found)
        if status == "suspected" and too_large(run) is not None:
            # A control shows what came first: UPDATE/scale says it.
            status, why = "evidence", "at a smaller rate the units stay alive"
        text += f"; {why}" if why else ""
        where = _sites(run, found) if status != "evidence" else []
    return Row.model_validate(
        {
            "id": "GRADIENT/nonzero",
            "status": status,
            "basis": basis,
            "text": text,
            "values": {
                "nonzero": len(learning) - len(zero),
                "expected": len(learning),
                "zero": [e.name or "" for e in zero[:20]],
                "since": found.since if found is not None else None,
                "ends_at": sorted(found.kinds()) if found is not None else [],
                "operation": _operation(found) if found is not None else None,
                "waiting": [e.name or "" for e in _waiting(found)] if found is not None else [],
            },
            "where": where,
            "step": (found.since or 1) if found is not None and status != "evidence" else None,
        }
    )


def _judged(found: Dead) -> tuple[str, str | None, str]:
    """Status, basis and the reason in words."""
    if waits_for_itself(found):
        return "fail", "exact", f"each is multiplied by another that is exactly zero too: {names(found.zero)}"
    kinds = found.kinds()
    if kinds and kinds <= {"other"}:
        # Rows that nothing picked, experts that nothing was sent to: the next batch may.
        return "evidence", None, "nothing of the batch was sent through them"
    if kinds and kinds <= {"factor", "other"}:
        # A weight of zero is a way to leave a term out; where it leaves out everything, OBJECTIVE/terms says so.
        return "evidence", None, "a constant factor of exactly zero stands before them"
    if "cancelled" in kinds:
        if all(len(e.shape) < 2 for e in found.entries):
            # What is added to both sides of a difference never matters to it.
            return "evidence", None, "what reaches them along several ways adds up to exactly zero"
        return (
            "suspected",
            None,
            "what reaches them along two ways cancels exactly: the same value, once with each sign",
        )
    if "limit" in kinds:
        ends = ", ".join(sorted({stop["operation"].lower() for stop in found.stops if stop["kind"] == "limit"}))
        return (
            "suspected",
            None,
            f"every value lies beyond the limit of {ends}, where the derivative is zero",
        )
    return "suspected", None, ""


def waits_for_itself(found: Dead) -> bool:
    """Whether parameters that are exactly zero keep each other's gradient at zero: no data can change that.

    Every way from the loss to each of them ends at a product whose other operand is made of another one of them.
    """
    return _kept_at_zero(found.zero, found.stops)


def _kept_at_zero(entries: list[ParameterEntry], stops: list[dict[str, Any]]) -> bool:
    zero = {e.serial for e in entries}
    if len(zero) < 2:
        return False
    for serial in zero:
        above = [stop for stop in stops if serial in stop["below"]]
        if not above or not all(stop["kind"] == "product" and zero & set(stop["other"]) - {serial} for stop in above):
            return False
    return True


def _waiting(found: Dead) -> list[ParameterEntry]:
    """Of parameters that keep each other at zero, all but the last of each such set.

    With other values in these, the last one would get a gradient; what they compute would stay as it is.
    """
    if not waits_for_itself(found):
        return []
    zero = {e.serial for e in found.zero}
    waits_for: dict[int, set[int]] = {serial: set() for serial in zero}
    for stop in found.stops:
        for serial in zero & set(stop["below"]):
            waits_for[serial] |= zero & set(stop["other"])
    sets: list[set[int]] = []
    for one in zero:
        # An operand is made of all that stands in front of it, too: that does not wait for this one in turn.
        together = {one} | {other for other in waits_for[one] if one in waits_for[other]}
        joined = [each for each in sets if each & together]
        sets = [each for each in sets if not each & together] + [together.union(*joined)]
    last = {max(each) for each in sets}
    return [e for e in sorted(found.zero, key=lambda e: e.serial) if e.serial not in last]


def _operation(found: Dead) -> str | None:
    """The operation behind which most of them lie, by the name that torch's graph has for it.

    A product with zeros comes after whatever made them zero.
    """
    stops = sorted(found.stops, key=lambda stop: (stop["kind"] == "product", -len(stop["below"])))
    return str(stops[0]["operation"]).partition("Backward")[0].lower() if stops else None


def _sites(run: Observation, found: Dead) -> list[Site]:
    """The operation's line; for parameters that keep each other at zero, the lines that wrote the zeros."""
    sites: list[Site | None] = []
    if waits_for_itself(found):
        written = run.record(ZerosWritten).sites
        sites += [written.get(e.serial) for e in found.zero]
        sites += [e.created for e in found.zero]
    else:
        for stop in sorted(found.stops, key=lambda stop: -len(stop["below"])):
            for frame in [*stop["partner"][:1], *stop["frames"][:1]]:
                what = f"the gradient ends at {stop['operation']}" if stop["kind"] != "cancelled" else "two ways cancel"
                sites.append(Site(file=frame["file"], line=frame["line"], what=what))
        sites += [e.created for e in found.entries[:2]]
    unique = {site.place: site for site in reversed([site for site in sites if site is not None])}
    return list(reversed(unique.values()))[:3]
