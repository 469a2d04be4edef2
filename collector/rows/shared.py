"""OWNERSHIP/shared: modules that stand several times in one container, and so share their parameters."""

from __future__ import annotations

from weaklink.collector.evidence import Row, Value
from weaklink.collector.rows.naming import lines_with
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.files import FilesRecord
from weaklink.collector.watching.repeated_modules import LOOK, Repeated, RepeatedModules

# A module that is made inside a list that is then multiplied has no name: nobody can have meant to share it by name.
_MULTIPLIED = r"\)\s*\]\s*\*"


def rows(run: Observation) -> list[Row]:
    """The row, where a container repeats a module, or holds several that are alike."""
    record = run.record(RepeatedModules)
    found = record.found
    if not found and not record.separate:
        return []
    if not found:
        text = f"{record.separate} containers of alike modules hold one of its own in each place"
        values: dict[str, Value] = {"times": 1, "containers": record.separate}
        return [Row(id="OWNERSHIP/shared", status="pass", text=text, values=values)]
    again = {one.parameter: _again(run, one) for one in found}
    worst = max(found, key=lambda one: again[one.parameter])
    entry = run.by_serial(worst.parameter)
    text = f"{worst.container or 'the model'} ({worst.kind}) holds one and the same module {worst.times} times"
    # Every place was asked the same question, and gave the same answer: no weight can come to differ.
    repeats = again[worst.parameter] >= worst.times - 1
    text += ": each place is given the same input, and answers the same" if repeats else ""
    sites = [site for site in (entry.created, entry.created_by) if site]
    multiplied = {site.place for site in lines_with(run.record(FilesRecord), _MULTIPLIED, "a list multiplied")}
    nameless = any(site.place in multiplied for site in sites)
    return [
        Row(
            id="OWNERSHIP/shared",
            # Layers of one stack may share their weights on purpose, an activation with a weight is often used twice.
            status="fail" if repeats else "suspected" if nameless else "evidence",
            basis="exact" if repeats else None,
            text=text,
            values={"container": worst.container, "times": worst.times, "same_input": again[worst.parameter]},
            where=sites if repeats or nameless else [],
            step=1 if repeats or nameless else None,
        )
    ]


def _again(run: Observation, one: Repeated) -> int:
    values = (run.look(LOOK).values or {}).get(str(one.parameter))
    return int(values["again"]) if values else 0
