"""Which lines of which files a model was shown: only these can be cited."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Shown:
    """Lines by file and number, as they were shown, secrets masked.

    `read` are the files that the model itself asked for.
    """

    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    def add(self, file: str, first: int, lines: list[str], asked: bool = False) -> None:
        """Lines of a file from `first` on were shown; with `asked`, because the model wanted to read it."""
        known = self.lines.setdefault(file, {})
        known.update(enumerate(lines, start=first))
        if asked:
            self.read.add(file)
