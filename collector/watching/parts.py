"""All parts of a watcher, and who of them listens to what."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weaklink.collector.close_up.part import CloseUp
from weaklink.collector.watching.aligned import AlignmentPart
from weaklink.collector.watching.beginning import BeginningPart
from weaklink.collector.watching.changes import ChangesPart
from weaklink.collector.watching.compared import ComparedPart
from weaklink.collector.watching.data import DataPart
from weaklink.collector.watching.dead_gradients import DeadGradients
from weaklink.collector.watching.direction import DirectionPart
from weaklink.collector.watching.files import FileReader
from weaklink.collector.watching.forwards import Forwards
from weaklink.collector.watching.intent import IntentPart
from weaklink.collector.watching.isolation import IsolationPart
from weaklink.collector.watching.loss_calls import LossCalls
from weaklink.collector.watching.loss_graph import LossGraph
from weaklink.collector.watching.modes import ModesPart
from weaklink.collector.watching.order import OrderPart
from weaklink.collector.watching.part import Part
from weaklink.collector.watching.pending import PendingPart
from weaklink.collector.watching.precision import PrecisionPart
from weaklink.collector.watching.ranks import Ranks
from weaklink.collector.watching.repeated_modules import RepeatReader
from weaklink.collector.watching.restoring import RestoringPart
from weaklink.collector.watching.returns import ReturnsPart
from weaklink.collector.watching.schedule import SchedulePart
from weaklink.collector.watching.sequence_axis import SequenceAxisPart
from weaklink.collector.watching.stacks import OperationStacks
from weaklink.collector.watching.stages import Stages
from weaklink.collector.watching.target_values import TargetValuesPart
from weaklink.collector.watching.zeros_written import ZeroWrites

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

EVENTS = (
    "root_called",
    "criterion_called",
    "backward_begins",
    "backward_ended",
    "backward_raised",
    "step_begins",
    "step_ended",
    "finish",
)


def make_parts(watcher: Watcher) -> list[Part]:
    """One of each kind, in the order in which they are told."""
    kinds: tuple[type[Part], ...] = (
        Stages,
        DataPart,
        FileReader,
        LossCalls,
        ComparedPart,
        AlignmentPart,
        OperationStacks,
        ZeroWrites,
        LossGraph,
        DeadGradients,
        RepeatReader,
        Ranks,
        OrderPart,
        PendingPart,
        SchedulePart,
        PrecisionPart,
        ReturnsPart,
        IntentPart,
        IsolationPart,
        Forwards,
        BeginningPart,
        TargetValuesPart,
        SequenceAxisPart,
        RestoringPart,
        ModesPart,
        ChangesPart,
        DirectionPart,
    )
    if watcher.settings.close_up_at:
        # A rerun that exists for the close-up: the other parts have seen the run itself, and now only take the looks.
        kinds = (CloseUp,) if watcher.settings.looks == "off" else (*kinds, CloseUp)
    return [kind(watcher) for kind in kinds]


def listeners(parts: list[Part], event: str) -> list[Callable[..., None]]:
    """The parts' own methods of that name: what none overrides costs nothing."""
    return [getattr(part, event) for part in parts if getattr(type(part), event) is not getattr(Part, event)]
