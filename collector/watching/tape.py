"""What the watcher writes down while the script runs: plain data, nothing that keeps a tensor of the user's alive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from weaklink.collector.evidence import GradientState, Series, Site
from weaklink.collector.looks import Look
from weaklink.collector.losses import ByHand

Record = TypeVar("Record")

# Every backward call's loss is kept up to here; then every second, every fourth, ...
SERIES_LIMIT = 4096


@dataclass
class TensorSummary:
    """Statistics of one tensor, taken when it was seen. Non-floating tensors have no moments."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    finite: bool = True
    mean: float | None = None
    std: float | None = None
    max_abs: float | None = None
    constant_columns: int | None = None
    columns: int | None = None


@dataclass
class ForwardSample:
    """One call of a root module with gradients enabled."""

    root: int
    site: Site | None
    training: bool
    live_modes: list[str]
    inputs: list[TensorSummary]
    output: TensorSummary | None


@dataclass
class LossSample:
    """A loss torch ships, read off the graph: targets, and the loss computed again by hand in float64.

    `hand` is None where there was too much to compute with.
    """

    kind: str
    reduction: str
    output_shape: tuple[int, ...]
    target: TensorSummary
    target_digest: str | None
    class_counts: dict[int, int] | None = None
    ignored: int = 0
    hand: ByHand | None = None
    # Where the user's code called it, where that was noted.
    site: Site | None = None

    @property
    def indexed(self) -> bool:
        """Whether its targets are class indices."""
        kinds = ("cross entropy", "negative log-likelihood")
        return self.kind in kinds and not self.target.dtype.startswith(("float", "bfloat"))

    @property
    def broadcast(self) -> tuple[int, ...] | None:
        """Joint shape, where outputs and targets differ in shape and were broadcast."""
        return self.hand.broadcast if self.hand is not None else None

    @property
    def floor(self) -> float | None:
        """Least value the reduced loss can take for its targets."""
        return self.hand.floor if self.hand is not None else None


@dataclass
class LossCall:
    """One call of a loss whose function is known: what it comes to by hand, and what it reported.

    `by_hand` is None for a function that is none of torch's own, `reported` where its result was no scalar.
    """

    step: int
    by_hand: ByHand | None
    reported: float | None
    site: Site | None


@dataclass
class GraphSample:
    """One loss's graph, walked before backward ran."""

    leaves: set[int]
    nodes: int
    truncated: bool
    softmax_into_log_softmax: bool
    losses: list[LossSample]
    saved_tensors_unread: str | None = None
    log_softmax_into_log_softmax: bool = False
    sigmoid_into_logits: bool = False
    # Whether a logarithm stands close to the loss: without one, nothing there is a log-probability by construction.
    near_logarithm: bool = False
    # A softmax along another dimension feeds a log-softmax: a matching normalised both ways, or a dimension mistaken.
    softmax_across: bool = False
    # Nothing but layers stands before a negative log-likelihood: it takes no logarithms.
    raw_scores_into_likelihood: bool = False
    # Where the user's code called the softmax that feeds the loss.
    softmax_site: Site | None = None


@dataclass
class BackwardSample:
    """One backward call of a sampled step."""

    index: int
    site: Site | None
    loss: float | None
    requires_grad: bool
    graph: GraphSample | None
    # Norms of gradients that were there before, by parameter serial number.
    left_over: dict[int, float]
    gradients: dict[int, tuple[GradientState, float | None]] = field(default_factory=dict)


@dataclass
class StepSample:
    """One executed optimizer step of a sampled window. Keys of the dictionaries are parameter serial numbers."""

    step: int
    optimizer: int
    site: Site | None
    lr: list[float]
    consumed: list[int]
    gradient_norm: float | None
    before: dict[int, float]
    delta: dict[int, float]
    moved: dict[int, bool]
    # Norms of the gradients right after the step: equal norms at the next backward mean that nobody cleared them.
    left: dict[int, float]
    # Of the entries that the optimizer held and that had a gradient: how many did not move in any bit, and of how many.
    still_entries: tuple[int, int] | None = None


@dataclass
class CutSample:
    """A place in the user's code where a history ends, and the leaves of that history.

    *detach*: called on a tensor that had one. *no_grad*: a module was called there without gradients, while the model
    around it was called with them. *checkpoint*: the same, inside a re-entrant checkpoint. *copy*: rebuilt from its
    values, without its history. *exact*: seen by the operation on the way to a loss, in a close-up.
    """

    site: Site
    leaves: set[int]
    kind: Literal["detach", "no_grad", "checkpoint", "copy"] = "detach"
    exact: bool = False


@dataclass
class RuleSample:
    """The declared rule against the targets of one loss: how many rows agree, and how many would by chance.

    `by_chance` is the largest number that agreed when the targets were permuted at random (100 permutations).
    """

    rows: int
    agreeing: int
    by_chance: int
    mismatched: list[int] = field(default_factory=list)


@dataclass
class Window:
    """Everything between two optimizer steps, for a sampled step."""

    step: int
    forwards: list[ForwardSample] = field(default_factory=list)
    backwards: list[BackwardSample] = field(default_factory=list)
    steps: list[StepSample] = field(default_factory=list)
    cuts: list[CutSample] = field(default_factory=list)
    live: set[int] = field(default_factory=set)


class LossSeries:
    """Losses by backward call, thinned by doubling its stride when full, so that memory stays bounded."""

    def __init__(self) -> None:
        self.stride = 1
        self.index: list[int] = []
        self.value: list[float] = []

    def add(self, index: int, value: float) -> None:
        """Keep the loss of the `index`-th backward call (from 1) if it falls on the stride."""
        if (index - 1) % self.stride:
            return
        self.index.append(index)
        self.value.append(value)
        if len(self.index) > SERIES_LIMIT:
            self.stride *= 2
            self.index, self.value = self.index[::2], self.value[::2]

    def series(self) -> Series:
        return Series(index=list(self.index), value=list(self.value))


@dataclass
class Tape:
    """The whole run as the watcher saw it."""

    losses: LossSeries = field(default_factory=LossSeries)
    # What the script was inside of last: start | forward | evaluation | backward | step | between
    phase: str = "start"
    windows: list[Window] = field(default_factory=list)
    forwards: int = 0
    backwards: int = 0
    gradient_calls: int = 0
    steps_asked: int = 0
    steps: int = 0
    scaler_asked: int = 0
    scaler_skipped: int = 0
    scheduler_steps: int = 0
    scheduler_site: Site | None = None
    without_graph: bool = False
    backward_without_graph: Site | None = None
    # What the loss was where it was no scalar.
    no_scalar: str | None = None
    first_nonfinite_loss: int | None = None
    first_nonfinite_step: int | None = None
    last_backward_site: Site | None = None
    last_step_site: Site | None = None
    rates: list[tuple[int, list[float]]] = field(default_factory=list)
    highest_rate: float = 0.0
    inputs_digest: str | None = None
    targets_digest: str | None = None
    outputs_digest: str | None = None
    rules: list[RuleSample] = field(default_factory=list)
    loss_calls: list[LossCall] = field(default_factory=list)
    # What took a forward, a read or a fit of our own, in a copy that was thrown away, by the name of the look.
    looks: dict[str, Look] = field(default_factory=dict)
    records: dict[type, Any] = field(default_factory=dict)
    # The first failure of a hook of the watcher's own: what it counts and holds may lack something since.
    broken: str | None = None
    problems: list[str] = field(default_factory=list)

    def record(self, kind: type[Record]) -> Record:
        """What one part wrote down; made empty at the first call."""
        if kind not in self.records:
            self.records[kind] = kind()
        found: Record = self.records[kind]
        return found
