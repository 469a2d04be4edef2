"""One way to end: standard input ends. A signal ends it too, so that what is in flight is stopped in the same way.

The thread that reads standard input cannot be woken by an exception, and the interpreter waits for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@contextlib.contextmanager
def ending_at_signals() -> Iterator[None]:
    """Put a pipe in front of standard input that a signal closes.

    Raises:
        KeyboardInterrupt: At the end, where a signal ended it.
    """
    source = os.dup(0)
    inner, outer = os.pipe()
    os.dup2(inner, 0)
    os.close(inner)
    feed = _Feed(source, outer)
    for name in _SIGNALS:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), feed.interrupt)
    threading.Thread(target=feed.copy, daemon=True).start()
    yield
    if feed.interrupted:
        raise KeyboardInterrupt


class _Feed:
    """Copies one descriptor to another until it ends, or a signal comes."""

    def __init__(self, source: int, to: int) -> None:
        self._source, self._to = source, to
        self._open = threading.Lock()
        self.interrupted = False

    def copy(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._source, 1 << 16):
                while data:
                    data = data[os.write(self._to, data) :]
        self._close()

    def interrupt(self, number: int, frame: object) -> None:
        self.interrupted = True
        self._close()

    def _close(self) -> None:
        # Taken once and never given back: whoever comes second has nothing left to close.
        if self._open.acquire(blocking=False):
            os.close(self._to)
