"""The parts of the watcher in a run that exists for one instrument."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weaklink.collector.asked import RESULT
from weaklink.collector.close_up.part import CloseUp
from weaklink.collector.job import Job
from weaklink.collector.measuring.fits import LearningRatesPart, TinyBatchPart
from weaklink.collector.measuring.layers import LayersPart
from weaklink.collector.measuring.slices import SlicesPart
from weaklink.collector.measuring.trace import TracePart
from weaklink.collector.watching.part import Part

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

_OF_ONE_STEP: dict[str, type[LayersPart | LearningRatesPart | TinyBatchPart]] = {
    "activation_statistics": LayersPart,
    "learning_rates": LearningRatesPart,
    "tiny_batch": TinyBatchPart,
}


def parts_of(job: Job, watcher: Watcher) -> list[Part]:
    """What measures the job's instrument; its result is written beside the evidence.

    Raises:
        KeyError: There is no such instrument.
    """
    name, step, path = str(job.instrument), max(1, job.instrument_step or 1), job.evidence.with_name(RESULT)
    if name == "nonfinite_trace":
        close_up = CloseUp(watcher)
        return [close_up, TracePart(watcher, name, step, path, close_up)]
    if name == "slices":
        return [SlicesPart(watcher, name, step, path, job.intent.slices, job.intent.metric, job.folder)]
    return [_OF_ONE_STEP[name](watcher, name, step, path)]
