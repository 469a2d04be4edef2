"""The close-up's evidence put into that of the observed run: one chain, no torch.

What the observed run measured over all of its steps stands. A row of the close-up is added where only a close-up has
it, and lends its lines where it saw the same fault more exactly.
"""

from __future__ import annotations

import math

from weaklink.collector.evidence import Evidence, Row, Site, mark_downstream
from weaklink.collector.job import CANNOT_COPY

# Rows that only a close-up has.
OWN_ROWS = ("OBJECTIVE/broadcast", "OBJECTIVE/terms", "DEPENDENCY/terms", "GRADIENT/origin")
# A loss that is not finite follows from the step before it.
_STEPS_BEFORE = 2


def merged(observed: Evidence, close: Evidence | None, looked: Evidence | None = None) -> Evidence:
    """The observed run's evidence with what its close-up adds.

    Args:
        observed: The run itself; left as it is.
        close: The close-up; None where there was none.
        looked: A rerun whose looks were taken in its own process, because the observed run's could not be copied.
    """
    result = observed.model_copy(deep=True)
    if looked is not None:
        _take_looks(result, looked)
    if close is not None:
        own = {row.id: row.model_copy(deep=True) for row in close.rows if row.id in OWN_ROWS}
        _lend_square(result, own)
        _lend_origin(result, own)
        _lend_cut(result, close)
        for row in own.values():
            row.means = ["close_up"]
        result.rows += [row for row in own.values() if result.row(row.id) is None]
        result.problems += [f"close-up: {problem}" for problem in close.problems]
    result.rows = mark_downstream(result.rows)
    return result


def _take_looks(result: Evidence, looked: Evidence) -> None:
    for position, row in enumerate(result.rows):
        better = looked.row(row.id)
        wanting = row.reason is not None and CANNOT_COPY in row.reason
        if wanting and better is not None and better.status != "not_measured":
            result.rows[position] = better.model_copy(deep=True)


def needs_looks_in_place(observed: Evidence) -> bool:
    """Whether a row was not measured because the observed run's process could not be copied."""
    return any(row.reason is not None and CANNOT_COPY in row.reason for row in observed.rows)


def _lend_square(result: Evidence, own: dict[str, Row]) -> None:
    """A loss of torch's own that broadcasts is one finding: the close-up knows the line of its call."""
    shapes, square = result.row("OBJECTIVE/shapes"), own.get("OBJECTIVE/broadcast")
    if shapes is not None and square is not None and shapes.diverges and square.status == "fail":
        shapes.where = _joined(square.where, shapes.where)
        del own["OBJECTIVE/broadcast"]


def _lend_origin(result: Evidence, own: dict[str, Row]) -> None:
    origin = own.get("GRADIENT/origin")
    if origin is None or not origin.where or origin.step is None:
        return
    for row_id in ("GRADIENT/finite", "OBJECTIVE/loss"):
        row = result.row(row_id)
        if row is None or not row.diverges or not _same_time(row, origin, result):
            continue
        row.step = min(row.step or origin.step, origin.step)
        row.where = _joined(origin.where, row.where)
        row.text += f"; {origin.text}"
        backward = origin.values.get("direction") == "backward"
        ends = result.losses.value[-1] if result.losses.value else 0.0
        if row.status == "suspected" and backward and not math.isfinite(ends):
            # The loss was finite, and so was every gradient that the operation took; the run never came back.
            row.status, row.basis = "fail", "exact"


def _same_time(row: Row, origin: Row, result: Evidence) -> bool:
    """Whether the origin lies right before what the row saw, or long before it and no loss was finite in between."""
    step = row.step or 1
    assert origin.step is not None
    if not origin.step <= step:
        return False
    a_step = -(-result.outcome.backwards // max(1, result.outcome.steps))
    losses = zip(result.losses.index, result.losses.value, strict=True)
    later = [value for index, value in losses if index > (origin.step + 1) * a_step]
    return step - origin.step <= _STEPS_BEFORE or (bool(later) and not any(map(math.isfinite, later)))


def _lend_cut(result: Evidence, close: Evidence) -> None:
    mine, theirs = result.row("DEPENDENCY/reached"), close.row("DEPENDENCY/reached")
    if mine is None or theirs is None or not mine.diverges:
        return
    if mine.status == "suspected" and set() < _names(mine, "owned") <= _names(theirs, "unused"):
        mine.status, mine.where, mine.text = "evidence", theirs.where, theirs.text
    same = mine.values.get("missed") == theirs.values.get("missed")
    if same and mine.diverges and theirs.diverges:
        # The places an experiment may mend stay those that were seen over the whole run.
        mine.where, mine.text = theirs.where, theirs.text
        mine.values |= {"ends": theirs.values.get("ends", [])}


def _names(row: Row, value: str) -> set[object]:
    found = row.values.get(value)
    return set(found) if isinstance(found, list) else set()


def _joined(first: list[Site], second: list[Site]) -> list[Site]:
    found: dict[str, Site] = {}
    for site in (*first, *second):
        found.setdefault(site.place, site)
    return list(found.values())
