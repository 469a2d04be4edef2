"""One request through the openai SDK: what leaves the machine, and the bytes that come back, before a deadline.

The SDK reads keys, an organization, a project and any further headers from the environment. What it would send is cut
down to a list here, right before it goes out: whatever a later SDK may read, only these headers leave.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Generator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from weaklink.agent.endpoint.faults import DeadlinePassedError, Refusal
from weaklink.agent.endpoint.settings import Endpoint

if TYPE_CHECKING:
    from openai import OpenAI

TICK = 0.1  # seconds between two looks at the clock
CONNECT_SECONDS = 15.0
LONGEST_REFUSAL = 64 * 1024  # bytes of an error's body
_KEPT_HEADERS = {"host", "accept", "content-type", "content-length", "transfer-encoding", "connection"}
_NO_KEY = "none"  # the SDK wants one; the header that would carry it is taken off


class Clock:
    """The time for one reply, on a clock that nobody sets."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._begin = time.monotonic()
        self._end = self._begin + seconds

    @property
    def passed(self) -> float:
        """Seconds since the reply was asked for."""
        return time.monotonic() - self._begin

    @property
    def left(self) -> float:
        """Seconds that are left; never below zero."""
        return max(0.0, self._end - time.monotonic())

    def at_most(self, seconds: float) -> None:
        """No more than so many seconds from now."""
        self._end = min(self._end, time.monotonic() + seconds)


class Connection:
    """One request. Its reading happens in a thread of its own: a server that says nothing can't hold up the clock."""

    def __init__(self, endpoint: Endpoint, body: dict[str, Any], clock: Clock) -> None:
        self._endpoint, self._body, self._clock = endpoint, body, clock
        self._handed: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=64)
        self._stop = threading.Event()
        self._socket: socket.socket | None = None

    def pieces(self, tick: Callable[[], None]) -> Generator[bytes, None, None]:
        """The answer's bytes as they come.

        Args:
            tick: Called at least every tenth of a second.

        Raises:
            DeadlinePassedError: The time is over.
            Refusal: The status is not 200.
            BaseException: Whatever the SDK or the layers below raised.
        """
        import_module("openai")  # half a second: here, not in the thread, where Ctrl-C would leave it half done
        threading.Thread(target=self._pump, name="weaklink-endpoint", daemon=True).start()
        try:
            while True:
                tick()
                if not self._clock.left:
                    raise DeadlinePassedError(self._clock.seconds, 0)
                try:
                    item = self._handed.get(timeout=min(TICK, self._clock.left or TICK))
                except queue.Empty:
                    continue
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self._end()

    def _end(self) -> None:
        """Wake the thread, wherever it waits."""
        self._stop.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    # -- the thread --------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        try:
            self._request()
            self._hand(None)
        except Exception as error:
            self._hand(error)

    def _request(self) -> None:
        from openai import DefaultHttpxClient, OpenAI, Timeout

        seconds = self._clock.left + 0.5  # the clock's own end comes first
        limit = Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))
        hooks: dict[str, list[Any]] = {"request": [self._strip], "response": [self._judge]}
        # A redirect could carry the key to another host. A proxy has no business between two ends of one machine.
        plain = DefaultHttpxClient(
            follow_redirects=False, trust_env=not self._endpoint.loopback, timeout=limit, event_hooks=hooks
        )
        with (
            plain,
            OpenAI(
                api_key=self._endpoint.credentials.key or _NO_KEY,
                organization="",
                project="",
                base_url=self._endpoint.base_url,
                max_retries=0,
                timeout=limit,
                http_client=plain,
            ) as client,
        ):
            self._read(client)

    def _read(self, client: OpenAI) -> None:
        create: Any = client.chat.completions.create
        with create(**self._body) as stream:
            # The SDK's own reading of the events takes a web page for an empty answer, and a cut one for a whole.
            for piece in stream.response.iter_bytes():
                if not self._hand(piece):
                    return

    def _strip(self, request: Any) -> None:
        held = self._endpoint.credentials
        for name in list(request.headers):
            if name.lower() not in _KEPT_HEADERS:
                del request.headers[name]
        request.headers["User-Agent"] = "weaklink"
        request.headers["Accept-Encoding"] = "identity"  # what comes is as long as it looks
        if held.key is not None:
            request.headers["Authorization"] = f"Bearer {held.key}"
        if held.organization is not None:
            request.headers["OpenAI-Organization"] = held.organization
        if held.project is not None:
            request.headers["OpenAI-Project"] = held.project

    def _judge(self, response: Any) -> None:
        stream = response.extensions.get("network_stream")
        found = stream.get_extra_info("socket") if stream is not None else None
        self._socket = found if isinstance(found, socket.socket) else None
        if response.status_code == 200:
            return
        read = b""
        for piece in response.iter_bytes():
            read += piece
            if len(read) > LONGEST_REFUSAL or self._stop.is_set():
                break
        raise Refusal(
            status=response.status_code,
            body=read[:LONGEST_REFUSAL].decode("utf-8", "replace"),
            retry_after=response.headers.get("retry-after"),
            location=response.headers.get("location"),
        )

    def _hand(self, item: bytes | BaseException | None) -> bool:
        """Give it to whoever waits; False once nobody does."""
        while not self._stop.is_set():
            with contextlib.suppress(queue.Full):
                self._handed.put(item, timeout=TICK)
                return True
        return False
