"""OBJECTIVE/prior: class weights and class priors against the classes' own counts."""

from __future__ import annotations

from weaklink.collector.evidence import Row, Status, Value
from weaklink.collector.rows.naming import lines_with
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.files import FilesRecord
from weaklink.collector.watching.prior import PriorRecord

# Counts in the order of their size, where the order of the classes was wanted.
_BY_SIZE = r"\.most_common\(|\.value_counts\("
_COUNTED = r"\bclass_?(counts|freq\w*|prior\w*)\b|\bbincount\(|\bCounter\(|return_counts\s*=\s*True"


def rows(run: Observation) -> list[Row]:
    """One row, where a loss has such a vector."""
    record = run.record(PriorRecord)
    if record.vector is None:
        return []
    name = "the vector added to the scores" if record.added else "the loss's class weights"
    fit = record.fit
    if fit is None:
        reason = "it is constant, there are fewer than four classes, or not all were among the targets that were copied"
        return [Row(id="OBJECTIVE/prior", status="not_measured", text=f"{name} against class counts", reason=reason)]
    text = f"{name} as a power of the counts of {fit.classes} classes in {fit.rows} targets"
    values: dict[str, Value] = {"classes": fit.classes, "targets": fit.rows}
    values |= {"chance": fit.as_it_stands, "sorted": fit.when_sorted}
    files = run.record(FilesRecord)
    lines = lines_with(files, _BY_SIZE, "counted in the order of size")
    lines = lines or lines_with(files, _COUNTED, "classes counted")
    if not fit.misplaced or not lines:
        # Weights may be anybody's choice, costs of a mistake: where nothing is counted they do not come from counts.
        status: Status = "pass" if fit.fits else "evidence"
        return [Row(id="OBJECTIVE/prior", status=status, text=text, values=values)]
    values["order"] = list(fit.order)
    where = [*lines[:2], *([record.site] if record.site is not None else [])]
    text = f"{text} fits only when both are sorted: it stands in another order than the classes"
    return [Row(id="OBJECTIVE/prior", status="suspected", text=text, values=values, where=where, step=1)]
