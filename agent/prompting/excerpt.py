"""One stretch of a file as the brief shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Excerpt:
    """Lines of one file, from `first` on, secrets masked.

    With `first` None they are a summary of a file that has no lines, such as an array. `note` is ours, never the
    file's.
    """

    file: str
    first: int | None
    lines: tuple[str, ...]
    note: str = ""

    @property
    def numbered(self) -> list[tuple[int, str]]:
        """Each line with its number."""
        return list(enumerate(self.lines, start=self.first or 1))
