"""Which key goes to which endpoint, and how keys are kept out of everything that is shown, recorded or logged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from weaklink.collector.errors import UsageError

REMOVED = "[key removed]"
OPENAI_KEY = "OPENAI_API_KEY"
OWN_KEY = "WEAKLINK_API_KEY"

# Shorter values are placeholders of local servers ("none", "ollama"): to strike those out would garble every answer.
SHORTEST_SECRET = 8
# A variable that is only called like a secret may hold an ordinary word; what looks drawn at random is struck out.
SHORTEST_GUESSED_SECRET = 16

_NAMED_SECRETS = (OPENAI_KEY, OWN_KEY, "OPENAI_ADMIN_KEY", "OPENAI_WEBHOOK_SECRET")
_SECRET_NAME = re.compile(r"(?i)(?:key|token|secret|passw(?:or)?d|credentials?)(?:_\d+)?$")
_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9])(?:
    (?P<scheme>[Bb]earer\s+)(?=[A-Za-z_~+/=.-]*\d)[A-Za-z0-9._~+/=-]{12,}
    | sk-(?=[A-Za-z_-]*[\d*])[A-Za-z0-9_*-]{8,}   # with the asterisks of servers that show a part of it
    )""",
    re.VERBOSE,
)
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@\"'<>]{1,300}@")
_QUERY_KEY = re.compile(r"(?i)(?<=[?&])((?:api[_-]?)?key|access_token|token|secret)=[^\s&\"'<>]{1,300}")


@dataclass(frozen=True)
class Credentials:
    """What is sent to prove who asks. Nothing of it is ever shown: `repr` leaves the values out.

    `variable` is where the key was read from, None where none is sent; `why_none` says why, for a refusal's hint.
    """

    key: str | None = field(default=None, repr=False)
    organization: str | None = field(default=None, repr=False)
    project: str | None = field(default=None, repr=False)
    variable: str | None = None
    why_none: str | None = None


def credentials_for(
    environment: Mapping[str, str], said_variable: str | None, *, official: bool, loopback: bool, from_file: bool
) -> Credentials:
    """The key that an endpoint gets, and no other.

    Args:
        environment: The process's environment.
        said_variable: The variable that the command line names.
        official: The endpoint is OpenAI's own; it alone gets OPENAI_API_KEY, organization and project.
        loopback: The endpoint is on this machine.
        from_file: A file of the project named the endpoint: a cloned repository must not be able to send a key away.

    Raises:
        UsageError: The named variable is not set, a key is no key, or OpenAI's endpoint is asked without one.
    """
    if said_variable is not None:
        key = _key(environment, said_variable)
        if key is None:
            raise UsageError(
                "The variable that should hold the key is not set.",
                about=f"--api-key-env {said_variable}",
                hint="give the variable's name, not the key: `export NAME=...`, then `--api-key-env NAME`.",
            )
        return Credentials(key=key, variable=said_variable)
    if official:
        key = _key(environment, OPENAI_KEY)
        if key is None:
            raise UsageError(
                "OpenAI's endpoint needs a key.",
                about=OPENAI_KEY,
                hint=f"`export {OPENAI_KEY}=...`, or name another endpoint with --base-url.",
            )
        organization, project = _key(environment, "OPENAI_ORG_ID"), _key(environment, "OPENAI_PROJECT_ID")
        return Credentials(key=key, organization=organization, project=project, variable=OPENAI_KEY)
    if from_file and not loopback:
        return Credentials(
            why_none="none was sent, because a file names the endpoint: say which with --api-key-env NAME"
        )
    key = _key(environment, OWN_KEY)
    if key is None:
        return Credentials(why_none=f"none was sent: `export {OWN_KEY}=...`, or name a variable with --api-key-env")
    return Credentials(key=key, variable=OWN_KEY)


def _key(environment: Mapping[str, str], variable: str) -> str | None:
    value = environment.get(variable, "").strip()
    if not value:
        return None
    if not all("!" <= char <= "~" for char in value):
        raise UsageError(
            "The variable holds something that cannot be sent in a header: a blank, a line break or a character beyond "
            "ASCII.",
            about=variable,
            hint="set it to the key alone, as the provider shows it.",
        )
    return value


class Redaction:
    """Strikes out every known secret, and whatever looks like one.

    Args:
        secrets: Values that must never be seen. They are not shown by `repr`.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # The longest first: one key can be the beginning of another.
        self._secrets = tuple(sorted({each for each in secrets if len(each) >= SHORTEST_SECRET}, key=len, reverse=True))

    def clean(self, text: str) -> str:
        """The text without keys."""
        for secret in self._secrets:
            text = text.replace(secret, REMOVED)
        text = _SHAPES.sub(lambda found: (found["scheme"] or "") + REMOVED, text)
        text = _CREDENTIALS.sub(f"{REMOVED}@", text)
        return _QUERY_KEY.sub(rf"\1={REMOVED}", text)


def known_secrets(environment: Mapping[str, str], credentials: Credentials) -> tuple[str, ...]:
    """Values of the environment that are secrets by their variable's name, and what is sent."""
    found = [environment.get(name, "").strip() for name in _NAMED_SECRETS]
    found += [each for each in (credentials.key, credentials.organization, credentials.project) if each]
    for line in environment.get("OPENAI_CUSTOM_HEADERS", "").split("\n"):
        found.append(line.partition(":")[2].strip())
    for name, value in environment.items():
        if _SECRET_NAME.search(name) and _looks_drawn(value.strip()):
            found.append(value.strip())
    return tuple(each for each in found if each)


def _looks_drawn(value: str) -> bool:
    long = len(value) >= SHORTEST_GUESSED_SECRET
    return long and not value.startswith(("/", "~", "./")) and any(char.isdigit() for char in value)
