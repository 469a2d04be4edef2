"""A file that is summarised: seekable, with a bound on what is read of it and on the time that takes."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

CHUNK = 1 << 16
MOST_READ = 64 * 2**20  # bytes, over one summary
SECONDS = 4.0


class Readable(Protocol):
    """Whatever bytes are read from."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, fewer at the end."""
        ...


class BoundError(ValueError):
    """The bound on bytes, on operations or on time was reached."""


@dataclass
class Source(io.RawIOBase):
    """A file's bytes for one summary. Reading beyond the bound raises `BoundError`.

    Attributes:
        name: Of the file, as it is shown.
        file: The open file.
        size: Its bytes.
    """

    name: str
    file: BinaryIO
    size: int
    left: int = MOST_READ
    deadline: float = field(default_factory=lambda: time.monotonic() + SECONDS)

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, fewer at the end of the file.

        Raises:
            BoundError: More bytes than the bound leaves, or too late.
        """
        self.check_time()
        wanted = self.left + 1 if size < 0 else size
        data = self.file.read(min(wanted, self.left + 1))
        self.left -= len(data)
        if self.left < 0:
            raise BoundError("more bytes than a summary may take would have to be read")
        return data

    def readinto(self, buffer: Any, /) -> int:
        """The same, into a buffer: what a buffered reader asks for."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readable(self) -> bool:
        """A file is readable."""
        return True

    def seekable(self) -> bool:
        """A regular file is seekable."""
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Moves within the file."""
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        """Where it stands."""
        return self.file.tell()

    def check_time(self) -> None:
        """Raises `BoundError` once the time is over."""
        if time.monotonic() > self.deadline:
            raise BoundError(f"more than {SECONDS:.0f} seconds would be needed")

    def head(self, size: int) -> bytes:
        """The first bytes; the file stands at its beginning afterwards."""
        self.seek(0)
        data = self.read(size)
        self.seek(0)
        return data


def chunks(file: Readable, size: int, most: int, entry: int = 1) -> Iterator[bytes]:
    """Pieces of a stream, whole entries each, until `size` or `most` bytes or its end.

    Args:
        file: Where to read.
        size: Bytes that are wanted.
        most: Bytes that are read at most.
        entry: Bytes of one entry.
    """
    left = min(size, most) // entry * entry
    step = max(CHUNK // entry, 1) * entry
    held = b""
    while left > 0:
        data = file.read(min(step, left))
        if not data:
            return
        left -= len(data)
        held += data
        whole = len(held) // entry * entry
        yield held[:whole]
        held = held[whole:]
