"""Which endpoint is asked: the command line first, then the environment, then weaklink.toml, then OpenAI's own."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from weaklink.agent.cli.said import SaidAdvisor
from weaklink.agent.conversation.limits import DEFAULT_CONTEXT
from weaklink.agent.endpoint.keys import Credentials, credentials_for, known_secrets
from weaklink.agent.settings import ModelSettings
from weaklink.collector.errors import UsageError

OPENAI_URL = "https://api.openai.com/v1"
DEFAULT_DEADLINE = 300.0  # seconds for one reply, all tries together
_PATH_OF_REQUESTS = "/chat/completions"


@dataclass(frozen=True)
class Endpoint:
    """Where a model is asked, and with what.

    Attributes:
        model: Its name there.
        base_url: The address without `/chat/completions`, without credentials.
        host: Host and port, all that is ever shown of the address.
        loopback: Whether it is on this machine.
        credentials: The key that goes there; never shown.
        deadline: Seconds for one reply, all tries together.
        context: Tokens that the model reads at once, its answer included.
        price_input: US dollars a million tokens sent; None: not known.
        price_output: US dollars a million tokens answered; None: not known.
        secrets: Values that no error, reply or record may show.
    """

    model: str
    base_url: str
    host: str
    loopback: bool
    credentials: Credentials = field(default_factory=Credentials)
    deadline: float = DEFAULT_DEADLINE
    context: int = DEFAULT_CONTEXT
    price_input: float | None = None
    price_output: float | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)


def resolve_endpoint(said: SaidAdvisor, environment: Mapping[str, str], file: ModelSettings) -> Endpoint:
    """The endpoint that was asked for. Nothing is sent, nothing is read but the arguments.

    Args:
        said: The command line's `--model`, `--base-url`, `--api-key-env` and `--context`.
        environment: The process's environment.
        file: The table `[model]` of weaklink.toml.

    Raises:
        UsageError: No model is named, the address or a number cannot be used, or a key is missing.
    """
    model = (said.model or environment.get("WEAKLINK_MODEL") or file.name or "").strip()
    if not model:
        raise UsageError(
            "No model is named.",
            about="--model",
            hint="name one: `--model NAME`, WEAKLINK_MODEL, or `name` in the table [model] of weaklink.toml.",
        )
    url, source = _address(said, environment, file)
    parts = _checked(url, source)
    loopback = _is_loopback(parts.hostname or "")
    official = (parts.scheme, parts.netloc.lower()) in (("https", "api.openai.com"), ("https", "api.openai.com:443"))
    credentials = credentials_for(
        environment, said.api_key_env, official=official, loopback=loopback, from_file=source == _FILE
    )
    return Endpoint(
        model=model,
        base_url=f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix(_PATH_OF_REQUESTS)}",
        host=parts.netloc,
        loopback=loopback,
        credentials=credentials,
        deadline=_number(file.deadline, "deadline", above_zero=True) or DEFAULT_DEADLINE,
        context=said.context or file.context or DEFAULT_CONTEXT,
        price_input=_number(file.price_input, "price_input"),
        price_output=_number(file.price_output, "price_output"),
        secrets=known_secrets(environment, credentials),
    )


_FILE = "base_url in the table [model] of weaklink.toml"


def _address(said: SaidAdvisor, environment: Mapping[str, str], file: ModelSettings) -> tuple[str, str]:
    """The base URL and who said it."""
    for url, source in (
        (said.base_url, "--base-url"),
        (environment.get("WEAKLINK_BASE_URL"), "WEAKLINK_BASE_URL"),
        (file.base_url, _FILE),
        (environment.get("OPENAI_BASE_URL"), "OPENAI_BASE_URL"),
    ):
        # An empty variable is one that nobody set; an empty option was typed.
        if url is not None and (url.strip() or source == "--base-url"):
            return url.strip(), source
    return OPENAI_URL, "OpenAI's own"


def _checked(url: str, source: str) -> SplitResult:
    """The URL's parts. Its text is not shown where it may hold a key."""
    form = "write it as http://127.0.0.1:8080/v1 or https://HOST/v1."
    if any(char.isspace() or not char.isprintable() for char in url):
        raise UsageError("The base URL holds a blank or a control character.", about=source, hint=form)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError("The base URL is none.", about=source, hint=form) from error
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise UsageError(
            "The base URL needs http:// or https://, a host, and a port that exists.", about=source, hint=form
        )
    if "@" in parts.netloc:
        raise UsageError(
            "The base URL holds a name or password; it would end up in records.",
            about=source,
            hint="leave it out, and put the key into WEAKLINK_API_KEY or a variable named by --api-key-env.",
        )
    if "?" in url or "#" in url:
        raise UsageError(
            "The base URL goes on after a question mark or a hash; what stands there may be a key.",
            about=source,
            hint="leave it out, and put the key into WEAKLINK_API_KEY or a variable named by --api-key-env.",
        )
    return parts


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _number(value: float | None, name: str, above_zero: bool = False) -> float | None:
    if value is None:
        return None
    if not math.isfinite(value) or value < 0 or (above_zero and value == 0):
        wanted = "above zero" if above_zero else "zero or above"
        raise UsageError(f"`{name}` must be a number {wanted}.", about=f"{name} in the table [model] of weaklink.toml")
    return value
