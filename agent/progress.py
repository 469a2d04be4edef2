"""What a person sees on stderr while something takes longer than two seconds. Nothing of it reaches stdout."""

from __future__ import annotations

import sys
import time
from typing import TextIO

FIRST_SECONDS = 2.0
EVERY_SECONDS = 10.0


class Progress:
    """Lines on stderr; on a terminal the running one is rewritten in place.

    Args:
        stream: Where to write, stderr by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._label = ""
        self._told = 0.0
        self._open = False

    def say(self, text: str) -> None:
        """One line, as it is. The caller has made untrusted text printable."""
        self._clear()
        self._write(text + "\n")

    def begin(self, label: str) -> None:
        """Name what is running from now on; nothing is shown before two seconds have passed."""
        self._label, self._told = label, 0.0

    def running(self, seconds: float, last_line: str) -> None:
        """Called often while it runs, with the seconds so far and the script's last line."""
        if seconds < FIRST_SECONDS:
            return
        now = time.monotonic()
        if now - self._told < (0.5 if self._live else EVERY_SECONDS):
            return
        self._told = now
        from weaklink.collector.table.text import printable

        text = f"{self._label}: {seconds:.0f} s" + (f"  | {printable(last_line, 80)}" if last_line else "")
        if self._live:
            self._write("\r\x1b[K" + text)
            self._open = True
        else:
            self._write(text + "\n")

    def _clear(self) -> None:
        if self._open:
            self._write("\r\x1b[K")
            self._open = False

    def done(self) -> None:
        """Take the running line away."""
        self._clear()

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError, UnicodeError):
            pass  # a closed stderr must not end a diagnosis
