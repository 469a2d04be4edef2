"""Rows that only a close-up has: what a loss is made of, where shapes meet, who made the first NaN.

An observed run has none of them; the close-up's are put beside its own (`collector/merging.py`).
"""

from __future__ import annotations

from itertools import groupby

from weaklink.collector.close_up.records import Broadcast, CloseUpRecord, Compared, Origin, Term
from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.observation import Observation, names

# Values that differ: a constant that stands in the code has no history, and needs none.
_VARYING = 2


def rows(run: Observation) -> list[Row]:
    """Rows of the close-up; none where the run was none."""
    if CloseUpRecord not in run.tape.records:
        return []
    record = run.record(CloseUpRecord)
    return [_broadcast(record), _compared(record), _terms(run, record), _origin(record)]


def _unmeasured(row_id: str, text: str, record: CloseUpRecord) -> Row | None:
    if record.problem is None and record.backwards:
        return None
    reason = record.problem or "the close-up saw no backward"
    return Row(id=row_id, status="not_measured", text=text, reason=reason)


def _terms(run: Observation, record: CloseUpRecord) -> Row:
    """Addends of a loss that no update can feel, although they were computed from what is trained."""
    missing = _unmeasured("DEPENDENCY/terms", "terms of the loss", record)
    if missing is not None:
        return missing
    losses = sum(map(len, record.losses.values()))
    trained = {e.serial for e in run.parameters if e.owners and e.requires_grad}
    for terms in _by_place(record.terms):
        if _counts(record, terms, trained):
            return _cut_term(run, record, terms, trained)
    return Row(
        id="DEPENDENCY/terms",
        status="pass",
        text=f"no term of {losses} losses was cut off from what it was computed from",
        values={"losses": losses},
    )


def _by_place(terms: list[Term]) -> list[list[Term]]:
    def place(term: Term) -> tuple[str, str, str]:
        return (term.backward.place if term.backward else "", term.site.place, term.kind)

    return [list(group) for _, group in groupby(sorted(terms, key=place), key=place)]


def _counts(record: CloseUpRecord, terms: list[Term], trained: set[int]) -> bool:
    """Whether it is there at every later backward of its line, varies, and nothing of it comes to a loss otherwise."""
    backward = terms[0].backward
    since = [step for step in record.losses.get(backward.place if backward else "", []) if step >= terms[0].step]
    always = len(terms) >= len(since) > 0
    values = {term.value for term in terms if term.value is not None}
    reached = any(term.elsewhere for term in terms)
    return always and len(values) >= _VARYING and not reached and all(term.parameters & trained for term in terms)


def _cut_term(run: Observation, record: CloseUpRecord, terms: list[Term], trained: set[int]) -> Row:
    first = terms[0]
    of = [run.by_serial(serial) for serial in sorted(first.parameters & trained)]
    # A tensor rebuilt from numbers is a history lost; a detach or a block without gradients is also what somebody
    # writes who wants to see a value in the printed loss and no more.
    exact = first.kind == "copy"
    how = {"copy": "rebuilt from numbers", "detach": "detached", "no_grad": "computed without gradients"}.get(
        first.kind, "computed in a re-entrant checkpoint"
    )
    return Row(
        id="DEPENDENCY/terms",
        status="fail" if exact else "suspected",
        basis="exact" if exact else None,
        text=f"a term of the loss was {how} at {first.site.place} and trains nothing, in all {len(terms)} losses; it "
        f"was computed from {len(of)} parameters: {names(of, 3)}",
        values={"cut": len(terms), "parameters": len(of), "kind": first.kind},
        where=[site for site in (first.site, first.backward) if site],
        step=first.step,
    )


def _compared(record: CloseUpRecord) -> Row:
    missing = _unmeasured("OBJECTIVE/terms", "what the loss compares", record)
    if missing is not None:
        return missing
    if not record.compared_calls:
        reason = "no loss function of torch was called"
        return Row(id="OBJECTIVE/terms", status="not_measured", text="what the loss compares", reason=reason)
    found = _lasting(record.compared)
    if found is None:
        return Row(
            id="OBJECTIVE/terms",
            status="pass",
            text=f"input and target differ in {record.compared_calls} calls",
            values={"calls": record.compared_calls},
        )
    words = {
        "same": "is given one tensor as input and as target",
        "of_one": "compares two functions of one tensor, neither with a history: the term trains nothing",
    }
    return Row(
        id="OBJECTIVE/terms",
        status="fail",
        basis="exact",
        text=f"{found.name} {words[found.kind]}",
        values={"function": found.name, "kind": found.kind},
        where=_distinct(found.input_site, found.site),
        step=found.step,
    )


def _lasting(compared: list[Compared]) -> Compared | None:
    """One that is so in two backward calls."""
    for found in compared:
        calls = {c.backward for c in compared if c.site.place == found.site.place and c.kind == found.kind}
        if len(calls) >= _VARYING:
            return found
    return None


def _broadcast(record: CloseUpRecord) -> Row:
    missing = _unmeasured("OBJECTIVE/broadcast", "shapes that meet on the way to the loss", record)
    if missing is not None:
        return missing
    for found in record.broadcasts:
        alike = [b for b in record.broadcasts if b.site.place == found.site.place]
        # The same values in every step are centres of bins or positions, and their number equals the rows' by chance.
        if len({b.digest for b in alike}) >= _VARYING:
            return _square(found)
    return Row(
        id="OBJECTIVE/broadcast",
        status="pass",
        text="outputs and targets meet row by row",
        values={"steps": len(record.steps)},
    )


def _square(found: Broadcast) -> Row:
    rows_ = max(found.output)
    output, target = list(found.output), list(found.target)
    return Row(
        id="OBJECTIVE/broadcast",
        status="fail",
        basis="exact",
        text=f"{found.name} of outputs {output} and targets {target} gives [{rows_}, {rows_}]: each output meets "
        "every target",
        values={"outputs": output, "targets": target},
        where=_distinct(found.made_at, found.site),
        step=found.step,
    )


def _origin(record: CloseUpRecord) -> Row:
    missing = _unmeasured("GRADIENT/origin", "the first value that is not finite", record)
    if missing is not None:
        return missing
    if not record.origins:
        return Row(
            id="GRADIENT/origin",
            status="pass",
            text=f"no operation of {len(record.steps)} steps makes a value that is not finite and reaches the loss",
        )
    first = lasting_origin(record)
    place = first.site.place if first.site is not None else "a place that was not seen"
    name = first.name.partition("Backward")[0].lower() if first.direction == "backward" else first.name
    what = name if first.direction == "forward" else f"the derivative of {name}"
    return Row(
        id="GRADIENT/origin",
        status="evidence",
        text=f"{what} at {place} is the first value that is not finite, in step {first.step}",
        values={"direction": first.direction, "operation": name},
        where=[first.site.model_copy(update={"what": f"{what}: the first value not finite"})] if first.site else [],
        step=first.step,
    )


def lasting_origin(record: CloseUpRecord) -> Origin:
    """The first one after which no step was finite again; an overflow that a scaler steps over is none such."""
    broken = {origin.step for origin in record.origins}
    for origin in record.origins:
        if all(step in broken for step in record.steps if step >= origin.step):
            return origin
    return record.origins[0]


def _distinct(*sites: Site | None) -> list[Site]:
    found: dict[str, Site] = {}
    for site in sites:
        if site is not None:
            found.setdefault(site.place, site)
    return list(found.values())
