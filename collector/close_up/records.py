"""What the close-up wrote down, for the rows: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from weaklink.collector.evidence import Site


@dataclass
class Term:
    """An addend of a loss that has no history, although it was computed from parameters by lines that had one.

    Attributes:
        backward: The line that called backward on the loss.
        site: The line at which the history ended; `kind` is *copy*, *detach*, *no_grad* or *checkpoint*.
        parameters: Serial numbers of what it was computed from.
        value: What it contributed; None where that was gone.
        elsewhere: Whether what was cut off, or a single number that it was computed from, reaches some loss with its
            history after all. Known at the end only.
    """

    step: int
    backward: Site | None
    site: Site
    kind: str
    parameters: set[int]
    value: float | None
    elsewhere: bool = False


@dataclass
class Compared:
    """A call of a loss function whose input and target are one tensor, a function of it, or both without a history.

    `backward` counts backward calls. *same*: the same entries on both sides. *of_one*: both are functions of one
    tensor, and neither has a history.
    """

    step: int
    backward: int
    name: str
    kind: str
    site: Site
    input_site: Site | None


@dataclass
class Broadcast:
    """Outputs and targets of unlike rank that became a square, in code the user wrote, on the way to a loss."""

    step: int
    site: Site
    name: str
    output: tuple[int, ...]
    target: tuple[int, ...]
    digest: str
    made_at: Site | None = None


@dataclass
class Origin:
    """The operation that made the first value that is not finite: going forward, or in a backward."""

    step: int
    direction: str
    name: str
    site: Site | None


@dataclass
class CloseUpRecord:
    """All of one close-up."""

    steps: list[int] = field(default_factory=list)
    backwards: int = 0
    # The steps of the losses that were taken apart, by the line that called backward.
    losses: dict[str, list[int]] = field(default_factory=dict)
    terms: list[Term] = field(default_factory=list)
    compared: list[Compared] = field(default_factory=list)
    compared_calls: int = 0
    broadcasts: list[Broadcast] = field(default_factory=list)
    meetings: int = 0
    origins: list[Origin] = field(default_factory=list)
    # Bit n is set where some loss was computed from the parameter of serial number n, with a history or not.
    influences: int = 0
    # Why nothing, or not everything, was seen.
    problem: str | None = None
