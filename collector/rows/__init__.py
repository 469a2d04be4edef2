"""The rows of the learning chain, one file a boundary. Each is read from an `Observation`; none touches the run."""

from __future__ import annotations

from dataclasses import replace

from weaklink.collector.evidence import Row, mark_downstream
from weaklink.collector.rows import (
    aligned,
    beginning,
    capability,
    changes,
    cleared,
    clipping,
    close_up,
    data,
    declared,
    declared_classes,
    declared_movement,
    dependency,
    direction,
    evaluated_model,
    evaluation_data,
    exchange,
    files,
    gradient,
    isolation,
    later,
    leak,
    metric,
    objective,
    ownership,
    pairing,
    pending,
    prior,
    raised,
    restoring,
    returned,
    schedule,
    sequence_axis,
    several_processes,
    shared,
    stop_gradient,
    supervision,
    target_values,
    task,
    update,
)
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.beginning import BeginningRecord
from weaklink.collector.watching.forwards import ForwardsRecord

_BOUNDARIES = (
    aligned,  # before the pairing of rows, of which it names one cause with its line
    task,
    target_values,
    data,
    pairing,
    leak,
    files,
    several_processes,
    objective,
    exchange,
    sequence_axis,
    supervision,
    prior,
    declared_classes,
    declared,
    dependency,
    stop_gradient,
    gradient,
    cleared,
    ownership,
    shared,
    isolation,
    pending,  # where it fails it stands for the exception
    update,
    direction,
    beginning,
    changes,
    declared_movement,
    clipping,
    returned,
    schedule,
    close_up,
    capability,
    later,
    restoring,
    evaluated_model,
    evaluation_data,
    metric,
    raised,
)

# What is written down only where looks are allowed: it is what they are taken with.
_OF_LOOKS = {ForwardsRecord, BeginningRecord}


def build_rows(run: Observation, problems: list[str]) -> list[Row]:
    """All rows in chain order, downstream failures marked. A boundary whose reading fails is reported in `problems`."""
    found = _read_all(run, problems)
    if any(look.values is not None for look in run.tape.looks.values()) or _OF_LOOKS & run.tape.records.keys():
        _mark_looked(found, run)
    return mark_downstream(found)


def _read_all(run: Observation, problems: list[str]) -> list[Row]:
    found: list[Row] = []
    for boundary in _BOUNDARIES:
        try:
            found += boundary.rows(run)
        except Exception as error:
            name = boundary.__name__.rpartition(".")[2]
            problems.append(f"rows of {name}: {type(error).__name__}: {error}")
    return found


def _mark_looked(found: list[Row], run: Observation) -> None:
    """Mark the rows that took a look: those which the same run, read without its looks, does not have so."""
    records = {kind: record for kind, record in run.tape.records.items() if kind not in _OF_LOOKS}
    blind = replace(run, tape=replace(run.tape, looks={}, records=records))
    watched = {row.id: row for row in _read_all(blind, [])}
    for row in found:
        if row.status != "not_measured" and watched.get(row.id) != row:
            row.means = ["look"]
