"""TASK/views and TASK/mirrored: whether augmentation left inputs and targets on each other."""

from __future__ import annotations

from weaklink.collector.evaluating.scoring import CHANCE
from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.naming import lines_with
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.aligned import AlignmentRecord
from weaklink.collector.watching.files import FilesRecord


def rows(run: Observation) -> list[Row]:
    """Only what there is: rows of batches with several views, and of images with a target at every place."""
    record = run.record(AlignmentRecord)
    return [*_views(run, record), *_mirrored(run, record)]


def _views(run: Observation, record: AlignmentRecord) -> list[Row]:
    found = record.views
    if found is None:
        return []
    broken = found.chance < CHANCE
    labels, inputs = ("a b a b", "a a b b") if found.tiled else ("a a b b", "a b a b")
    lines = lines_with(run.record(FilesRecord), r"\.repeat(_interleave)?\(|\btile\(", "rows repeated")
    return [
        Row(
            id="TASK/views",
            status="fail" if broken else "evidence",
            basis="controlled" if broken else None,
            text=f"labels repeat as {labels} in every batch; the nearest neighbour of {found.nearest} of {found.rows} "
            f"rows is the one of {inputs}, of {found.as_labelled} the one of {labels}",
            values={"nearest": found.nearest, "as_labelled": found.as_labelled, "rows": found.rows},
            where=[*lines, *_site(record)][:3] if broken else [],
            step=1 if broken else None,
        )
    ]


def _mirrored(run: Observation, record: AlignmentRecord) -> list[Row]:
    found = record.mirror
    if found is None:
        return []
    broken = found.chance < CHANCE
    files, turns = run.record(FilesRecord), r"(flip|mirror|transpose)"
    # A line that says what is turned says more than one that asks whether.
    lines = lines_with(files, rf"{turns}.*\b(image|mask|label|target|x|y)s?\b", "what is turned here")
    lines = lines or lines_with(files, turns, "rows may be turned here")
    return [
        Row(
            id="TASK/mirrored",
            # Some rows turned and others not: a task of turning images turns them all, and is no fault.
            status="fail" if broken else "evidence",
            basis="controlled" if broken else None,
            text=f"{found.turned} of {found.rows} targets lie on their image's edges only when turned {found.turn}; "
            f"the next best turn would do so for {found.otherwise}; "
            f"{found.standing} lie best as they stand",
            values={
                "turned": found.turned,
                "otherwise": found.otherwise,
                "standing": found.standing,
                "rows": found.rows,
            },
            where=[*lines, *_site(record)][:3] if broken else [],
            step=1 if broken else None,
        )
    ]


def _site(record: AlignmentRecord) -> list[Site]:
    return [record.site] if record.site is not None else []
