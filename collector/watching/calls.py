"""The order of calls around a step, as it is written down: clearing, clipping, scaling, and what a step consumed."""

from __future__ import annotations

from dataclasses import dataclass, field

from weaklink.collector.evidence import Site

# Of each kind no more than this is kept: a run that never steps is one endless window.
KEPT = 256


@dataclass
class Clear:
    """Gradients were cleared by `zero_grad`. `backward` counts the backward calls before it."""

    step: int
    backward: int
    site: Site | None


@dataclass
class Clip:
    """One call of torch's clipping functions in a sampled step.

    Attributes:
        step: The optimizer step it stands before.
        backward: Backward calls before it.
        serials: The parameters whose gradients it was given.
        limit: Largest norm or entry that was allowed.
        norm: Norm before clipping; None where entries were clipped.
        by_value: Whether entries were clipped, and not the norm.
    """

    step: int
    backward: int
    site: Site | None
    serials: frozenset[int]
    limit: float
    norm: float | None
    by_value: bool = False

    @property
    def acted(self) -> bool:
        """Whether it can have changed a gradient."""
        return self.norm is None or self.norm > self.limit


@dataclass
class ScaledClip:
    """A clip whose gradients the scaler unscaled only afterwards, inside its step."""

    clip: Clip
    scale: float
    optimizer: int


@dataclass
class LateClip:
    """A clip after a step and before the next backward. `wasted`: what it had clipped was cleared before that."""

    clip: Clip
    wasted: bool


@dataclass
class BackwardPlace:
    """A sampled backward: the way through the user's code that led to it, and how the parameters stood.

    Attributes:
        index: Counts backward calls from 1.
        path: Digest of the user's frames, from the outermost to the innermost.
        asked: Steps that had been asked for by then, of an optimizer or of a scaler.
        parameters: Sums of a few parameters: equal as long as nobody moves them.
        in_step: Whether an optimizer called it (a closure).
    """

    index: int
    path: int
    asked: int
    parameters: tuple[float, ...]
    in_step: bool


@dataclass
class AtStep:
    """The gradients as an optimizer found them. `norms`: by serial, those that are not exactly zero.

    `zeroed`: held parameters whose gradient is there and exactly zero, though it was not after the last backward.
    """

    step: int
    optimizer: int
    norms: dict[int, float]
    zeroed: frozenset[int]


@dataclass
class CallsRecord:
    """What one run called around its steps, in the order of the calls.

    Attributes:
        scales_read: How often the script itself asked the scaler for its scale.
        moved_unstepped: Whether a parameter had moved by backward call `moved_until`, without a step; None: not looked.
        edits: Where the script writes into gradients between backward and step, once something was zeroed there.
    """

    clears: list[Clear] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    scaled_clips: list[ScaledClip] = field(default_factory=list)
    late_clips: list[LateClip] = field(default_factory=list)
    backwards: dict[int, BackwardPlace] = field(default_factory=dict)
    at_step: list[AtStep] = field(default_factory=list)
    scales_read: int = 0
    moved_unstepped: bool | None = None
    moved_until: int = 0
    edits: list[Site] = field(default_factory=list)
