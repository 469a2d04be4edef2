"""Whether a value is a secret by the name that it is given, and whether a text looks drawn at random."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

MASK = "[masked]"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ALWAYS = frozenset(
    {
        "password", "passwd", "passphrase", "passcode", "passwort", "secret", "apikey", "apitoken",
        "authtoken", "accesstoken", "credential", "credentials",
    }
)  # fmt: skip
_PAIRS = frozenset(
    {
        "api key", "secret key", "access key", "private key", "auth key", "account key", "encryption key",
        "signing key", "master key", "shared key", "license key", "ssh key", "deploy key", "webhook secret",
        "auth token", "access token", "api token", "refresh token", "session token", "bearer token",
        "hub token", "personal token", "db pass", "db pwd", "database pass", "user pass", "user pwd",
        "smtp pass", "mail pass", "mysql pwd", "mysql pass", "postgres pass", "redis pass", "admin pass",
        "root pass", "proxy pass",
    }
)  # fmt: skip
_SOMETIMES = frozenset(
    {
        "token", "tokens", "key", "keys", "auth", "authorization", "cookie", "salt", "pass", "pwd", "webhook",
        "signature", "secrets",
    }
)  # fmt: skip
_NEVER = frozenset(
    {
        "sha", "sha1", "sha256", "md5", "hash", "checksum", "digest", "commit", "revision", "pad", "bos",
        "eos", "unk", "cls", "sep", "mask", "special",
    }
)  # fmt: skip
_NOTHING = frozenset(
    {
        "none", "null", "nil", "true", "false", "yes", "no", "on", "off", "~", "undefined", "str", "string",
        "int", "float", "bool", "bytes", "optional", "any", "required", "|", ">", "|-", ">-", "|+", ">+",
    }
)  # fmt: skip
_REFERENCE = re.compile(
    r"^(?:(?:\{[^{}]{1,100}\}|[:/@. -])+$|\.\w[\w.]*$|"
    r"\$|%|\{\{|\{[\w.\[\]()\"']*\}$|<[\w ./-]*>$|os\.|env\.|secrets\.|vault:|\*+$|x{3,}$|\.{3}$)",
    re.IGNORECASE,
)
_FIRST_WORD = re.compile(r"([\w~|>+-]+)(?:[),;\]\s].*)?$")
_RANDOM = re.compile(r"[A-Za-z0-9+/=_.~-]{16,4000}")
_WORDLIKE = re.compile(r"[A-Za-z]?[a-z]*\d{0,4}|[A-Z]+\d{0,4}|(?:[A-Z][a-z]+\d{0,5}){2,}")


def is_secret(name: str, value: str) -> bool:
    """Whether a value is to be masked for the name that it is given."""
    value = value.strip().strip(",;")
    first = _FIRST_WORD.match(value)
    if not value or (first and first[1].casefold() in _NOTHING) or value == MASK or _REFERENCE.match(value):
        return False
    if value.isdecimal() and len(value) < 4:
        return False
    if _is_always(_words(name)):
        return True
    return is_telling(name) and looks_random(value)


def names_secrets(name: str) -> bool:
    """Whether values of this name are masked whatever they are: a column, a key."""
    return _is_always(_words(name))


def looks_random(value: str) -> bool:
    """Whether a text looks drawn at random: 16 characters at least, letters and digits mixed, made of no words."""
    if not _RANDOM.fullmatch(value) or sum(map(str.isdigit, value)) < 2 or not any(map(str.isalpha, value)):
        return False
    if all(_WORDLIKE.fullmatch(piece) for piece in re.split(r"[^A-Za-z0-9]+", value)):
        return False
    counts = Counter(value)
    entropy = -sum(count / len(value) * math.log2(count / len(value)) for count in counts.values())
    return entropy >= 3


def is_telling(name: str) -> bool:
    """Whether values of this name are secret always, or now and then."""
    words = _words(name)
    if not words or _NEVER.intersection(words):
        return False
    return words[-1] in _SOMETIMES or _is_always(words)


def _is_always(words: Sequence[str]) -> bool:
    if not words or words[-1] in _NEVER:
        return False
    return words[-1] in _ALWAYS or " ".join(words[-2:]) in _PAIRS


def _words(name: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(name)]
    while words and words[-1].isdigit():
        words.pop()
    return words
