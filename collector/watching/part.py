"""One thing that is watched besides gradients and movement: what to hook, and what to write down.

The watcher knows the order of calls and tells its parts; each part keeps a record of its own on the tape, and the rows
read that. A part that raises ends up on the tape's list of problems, never in the user's run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.parameters import RootEntry
from weaklink.collector.watching.tape import BackwardSample, StepSample, Tape

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


@dataclass
class RootCall:
    """One finished call of a root module, as long as its tensors are alive: keep nothing of it.

    Attributes:
        number: Counts root calls from 1.
        with_gradients: Whether gradients were enabled: without, it is an evaluation or a rollout.
        sampled: Whether the step under way is sampled.
    """

    number: int
    root: RootEntry
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    with_gradients: bool
    sampled: bool


class Part:
    """Base of all parts: override what is needed. A method left alone is never called, and costs nothing."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher

    @property
    def tape(self) -> Tape:
        """Where the part's record is kept: `self.tape.record(MyRecord)`."""
        return self.watcher.tape

    def install(self) -> None:
        """Wrap what has to be wrapped, with `self.watcher.wrap`."""

    def root_called(self, call: RootCall) -> None:
        """A root module has answered, in training or in evaluation; not called where it raised or is traced."""

    def criterion_called(self, args: tuple[Any, ...]) -> None:
        """A module without parameters was called by the script itself in a sampled step: a loss, most likely."""

    def backward_begins(self, losses: list[Tensor], sample: BackwardSample | None) -> None:
        """Backward is about to run. `sample` is there in a sampled step, its graph walked."""

    def backward_ended(self, sample: BackwardSample | None) -> None:
        """Backward has run; in a sampled step the gradients are on the sample."""

    def backward_raised(self, losses: list[Tensor], error: Exception) -> None:
        """Backward has raised; what the graph still keeps can be read."""

    def step_begins(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """An optimizer is about to step."""

    def step_ended(self, optimizer: Optimizer, entry: OptimizerEntry, sample: StepSample | None) -> None:
        """It has stepped. `sample` is there in a sampled step. The next window is not open yet."""

    def finish(self) -> None:
        """The script is over, or was stopped: the last chance to look at what is alive."""
