"""What can go wrong between here and a model, in words a user can act on."""

from __future__ import annotations

import email.utils
import json
import math
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from weaklink.agent.endpoint.settings import Endpoint
from weaklink.agent.errors import AdvisorError


class EndpointError(AdvisorError):
    """The endpoint gave no answer that can be used."""


class WireFault(Exception):
    """A fault before it is put into the user's words: not cleaned of keys yet, without the endpoint's name.

    Attributes:
        said: Somebody else's words on it, as they came; they are cleaned of keys before they are cut.
        again: Asking once more may help: nothing of an answer had come.
    """

    def __init__(self, message: str, hint: str, said: str = "", again: bool = False) -> None:
        super().__init__(message)
        self.message, self.hint, self.said, self.again = message, hint, said, again


class DeadlinePassedError(WireFault):
    """The time for a reply is over."""

    def __init__(self, seconds: float, characters: int) -> None:
        so_far = f"{characters} characters of an answer had come" if characters else "nothing of an answer had come"
        super().__init__(
            f"The time for a reply, {seconds:g} s, is over; {so_far}.",
            "give it more with `deadline` in the table [model] of weaklink.toml, or ask a faster model.",
        )


@dataclass(eq=False)
class Refusal(Exception):
    """The server answered, with something else than an answer.

    `status` is the HTTP status, or the code in an error that came with status 200; `body` is cut.
    """

    status: int
    body: str
    retry_after: str | None = None
    location: str | None = None

    def __post_init__(self) -> None:
        super().__init__(self.status)
        self._error = _error_in(self.body)

    @property
    def said(self) -> str:
        """The server's own words, without markup; empty where it had none."""
        message = self._error.get("message")
        if isinstance(message, str) and message.strip():
            return message.strip()
        if self.body.lstrip()[:1] in ("<", "{", "["):
            return ""
        return self.body.strip()

    @property
    def code(self) -> str:
        """The error's own code or type, where it has one."""
        return f"{self._error.get('code') or ''} {self._error.get('type') or ''}".strip().lower()

    @property
    def names(self) -> str:
        """All that may name a parameter, in lower case: never what the server echoes of the request."""
        return " ".join(str(self._error.get(key) or "") for key in ("param", "message", "code")).lower() or (
            self.said.lower()
        )


def _error_in(body: str) -> dict[str, Any]:
    """Message, param, code and type of an error's body, in the forms that servers write it in."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(found, list) and found:
        found = found[0]
    if not isinstance(found, dict):
        return {}
    error = found.get("error", found)
    if isinstance(error, str):
        return {"message": error}
    if not isinstance(error, dict):
        return {}
    detail = error.get("detail")
    if isinstance(detail, list):  # FastAPI: where in the request, what about it, and an echo that is left aside
        each = [f"{_dotted(one.get('loc'))} {one.get('msg')}" for one in detail if isinstance(one, dict)]
        return {"message": "; ".join(each)}
    if isinstance(detail, str) and "message" not in error:
        return {"message": detail}
    return error


def _dotted(location: object) -> str:
    return ".".join(str(part) for part in location) if isinstance(location, list) else ""


def fault_of_refusal(refusal: Refusal, endpoint: Endpoint) -> WireFault:
    """What a status means and what to do about it."""
    status = refusal.status
    what, hint = _meaning(refusal, endpoint)
    code = f" (status {status})" if status != 200 else ""
    return WireFault(f"{what}{code}.", hint, said=refusal.location or refusal.said)


def _meaning(refusal: Refusal, endpoint: Endpoint) -> tuple[str, str]:
    status, names = refusal.status, refusal.names
    held = endpoint.credentials
    if 300 <= status < 400:
        hint = "give the address where it really is with --base-url; a key must not follow a redirect."
        return "The endpoint sends requests elsewhere, which is not followed", hint
    if status == 401:
        key = f"the key in {held.variable}" if held.variable else f"the key: {held.why_none}"
        return "The endpoint does not accept the key", f"check {key}."
    if status == 402 or "insufficient_quota" in refusal.code:
        return "The account has no credit left", "see the provider's billing page, or ask another model."
    if status == 403:
        return "The key may not use this model or endpoint", "see the provider's page for what the key may do."
    if status in (404, 405):
        hint = "does the base URL end in /v1, and is the model's name one that the endpoint knows (GET /v1/models)?"
        return "The endpoint knows no such model or path", hint
    if status == 413 or ("context" in names and status in (200, 400, 422, 500)):
        hint = "say how many tokens the model reads at once with --context; the brief is cut to it."
        return "What is sent is longer than the model's context", hint
    if status == 429:
        seconds = seconds_to_wait(refusal.retry_after)
        later = f", and asks to wait {seconds:.0f} s" if seconds is not None else ""
        return f"The endpoint takes no more requests for now{later}", "wait, or ask another model."
    if status == 503:
        return "The endpoint is not ready", "wait until its model is loaded, or raise `deadline` in weaklink.toml."
    if status >= 500:
        return "The endpoint failed", "look into the server's own log, or ask again later."
    return "The endpoint refuses the request", "see its own words, and docs/model.md for what is asked of it."


def fault_of_exception(error: BaseException, endpoint: Endpoint, began: bool) -> BaseException:
    """A Refusal or WireFault for whatever the SDK and the layers below raised.

    Args:
        error: What was raised.
        endpoint: Who was asked.
        began: Whether something of an answer had come.
    """
    chain = list(_chain(error))
    for kind in (Refusal, WireFault):
        for each in chain:
            if isinstance(each, kind):
                return each
    if began:
        return WireFault(
            "The stream was cut before the answer's end.",
            "ask again; if it happens each time, look into the server's log and at proxies in between.",
        )
    if any(isinstance(each, socket.gaierror) for each in chain):
        return WireFault("The host's name cannot be resolved.", "check the base URL's host, and the network.")
    if any(isinstance(each, ConnectionRefusedError) for each in chain):
        proxy = "" if endpoint.loopback else ", and of the proxy if HTTP_PROXY or HTTPS_PROXY names one"
        return WireFault("Nobody listens there.", f"start the server, or check host and port of the base URL{proxy}.")
    if any(isinstance(each, ssl.SSLError) for each in chain):
        return WireFault(
            "No secure connection.", "a server without TLS wants http:// in the base URL.", said=str(chain[-1])
        )
    names = " ".join(type(each).__name__ for each in chain)
    if "ConnectTimeout" in names:
        return WireFault("The host does not answer.", "check host and port of the base URL, and the network.")
    if "Proxy" in names:
        hint = "see HTTPS_PROXY and NO_PROXY in the environment."
        return WireFault("The proxy refuses.", hint, said=str(chain[-1]))
    if (
        any(isinstance(each, ConnectionError) for each in chain)
        or "RemoteProtocolError" in names
        or "ReadError" in names
    ):
        return WireFault(
            "The connection was closed before an answer came.",
            "look into the server's log; is it an HTTP server at all?",
            again=True,
        )
    hint = "check the base URL, and the proxy's variables in the environment."
    return WireFault(f"The request failed: {type(chain[-1]).__name__}.", hint, said=str(chain[-1]))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    for _ in range(20):  # a cause can be its own
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or seen.__context__


def seconds_to_wait(retry_after: str | None) -> float | None:
    """Seconds that a `Retry-After` asks for, given as a number or as a date; None where it asks for none."""
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
