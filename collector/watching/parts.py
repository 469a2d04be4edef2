"""All parts of a watcher, and who of them listens to what."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weaklink.collector.watching.part import Part

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

EVENTS = ("root_called", "backward_begins", "backward_ended", "step_begins", "step_ended", "finish")


def make_parts(watcher: Watcher) -> list[Part]:
    """One of each kind, in the order in which they are told."""
    kinds: tuple[type[Part], ...] = ()
    return [kind(watcher) for kind in kinds]


def listeners(parts: list[Part], event: str) -> list[Callable[..., None]]:
    """The parts' own methods of that name: what none overrides costs nothing."""
    return [getattr(part, event) for part in parts if getattr(type(part), event) is not getattr(Part, event)]
