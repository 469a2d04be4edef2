"""Whether to ask once more, and how long to wait before."""

from __future__ import annotations

from weaklink.agent.endpoint.faults import Refusal, WireFault, seconds_to_wait

MOST = 2
FIRST_PAUSE = 0.5  # seconds; doubled at each further one
LOADING_PAUSE = 1.0
_PASSING = (429, 500, 502, 503, 504)


class Retries:
    """Counts what was tried again for one reply."""

    def __init__(self) -> None:
        self._taken = 0

    def pause_after(self, trouble: Refusal | WireFault, left: float) -> float | None:
        """Seconds to wait before asking again; None where that would not help, or not in time.

        Args:
            trouble: What happened.
            left: Seconds left for the reply.
        """
        pause = self._pause(trouble)
        if pause is None or pause >= left:
            return None
        return pause

    def _pause(self, trouble: Refusal | WireFault) -> float | None:
        if isinstance(trouble, Refusal):
            if trouble.status not in _PASSING or "insufficient_quota" in trouble.code:
                return None
            if is_loading(trouble):
                return LOADING_PAUSE  # it will be ready: as often as the deadline allows
        elif not trouble.again:
            return None
        if self._taken >= MOST:
            return None
        self._taken += 1
        own = FIRST_PAUSE * 2 ** (self._taken - 1)
        asked = seconds_to_wait(trouble.retry_after) if isinstance(trouble, Refusal) else None
        return own if asked is None else max(asked, 0.05)


def is_loading(trouble: Refusal | WireFault) -> bool:
    """A local server that listens already and still reads its model."""
    return isinstance(trouble, Refusal) and trouble.status == 503 and "loading" in trouble.said.lower()
