"""Secrets in a text, replaced before anybody else sees it: keys by their shape, values by the name they are given.

A mask that hides ordinary code makes a reader blind, so a name alone masks only what is written as a value: a quoted
text in code, the rest of the line in a configuration. A name that is secret only now and then (`token`, `key`) masks
what looks drawn at random.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

MASK = "[masked]"

_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9])(?:
    sk-(?=[\w-]{0,200}\d)(?=[\w-]{0,200}[A-Z])[\w-]{20,300}           # OpenAI, Anthropic, OpenRouter
    | gh[opusr]_[A-Za-z0-9]{20,255} | github_pat_\w{20,255} | glpat-[\w-]{16,255}
    | hf_[A-Za-z0-9]{20,100} | r8_[A-Za-z0-9]{30,100}
    | (?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9])       # AWS
    | AIza[\w-]{35} | ya29\.[\w.-]{20,500}                            # Google
    | xox[abeoprs]-[\w-]{10,255} | xapp-[\w-]{20,255}                 # Slack
    | (?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,255}                  # Stripe
    | npm_[A-Za-z0-9]{30,100} | pypi-[\w-]{40,300} | dop_v1_[0-9a-f]{60,70} | SG\.[\w-]{16,40}\.[\w-]{16,80}
    | eyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}(?:\.[\w-]{0,2000})?        # a JSON web token
    )""",
    re.VERBOSE,
)
_HOOK = re.compile(r"(?i)\b(hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/)[\w/-]{8,300}")
_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,20}://)([^\s/@\"'<>]{1,300})@")
_CURL = re.compile(r"(\bcurl\s[^|]{0,500}?(?:\s-u|--user)[ =]\s{0,4}[\"']?[^\s:\"']{1,100}:)([^\s\"']{1,500})")
_SCHEME = re.compile(r"(?i)\b(bearer|basic|token)(\s+)([A-Za-z0-9._~+/-]{12,4000}={0,2})")
_BLOCK_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_BLOCK_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_OF_A_BLOCK = re.compile(
    r"\s*[\"'+]?\s*(?:[A-Za-z0-9+/=]*(?:\\n)?|(?:Proc-Type|DEK-Info|Comment|Version|Charset):.*)[\"',\\\s]*$"
    r"|.*-----END "
)
_OF_A_KEY = re.compile(r"[A-Za-z0-9+/=]{16,}")
_LONGEST_BLOCK = 400  # lines

# What no secret is without, in lower case: most lines hold none of it and are left after one look.
_HINTS = (
    "pass", "pwd", "secret", "key", "token", "auth", "cred", "cookie", "salt", "webhook", "signature", "bearer",
    "basic", "://", "sk-", "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat", "glpat-", "hf_", "r8_", "akia",
    "asia", "aroa", "aida", "abia", "acca", "aiza", "ya29", "xox", "xapp-", "_live_", "_test_", "npm_", "pypi-",
    "dop_v1_", "sg.", "eyj", "hooks.slack", "discord",
)  # fmt: skip
_LOOKED_AT_ONCE = 256  # lines
_NAME = r"(?<![\w-])(?P<name>[A-Za-z_][\w-]{0,79})(?![\w-])"
_BARE_NAME = _NAME.removeprefix(r"(?<![\w-])")  # after dashes
_QUOTED = (
    r"(?P<prefix>[rbfuRBFU]{0,2})(?P<quote>\\?(?:\"\"\"|'''|[\"']))(?P<value>(?:\\.|[^\\])*?)(?P<end>(?P=quote)|\\?$)"
)
# name = "value", "name": 'value', settings["name"] = "value", name: str = "value", <name>value</name> is below.
_GIVEN = re.compile(
    _NAME
    + r"(?P<between>\\?[\"']?\s{0,20}\]?\s{0,20}"
    + r"(?::\s{0,4}[\w\[\]., |]{1,40}(?==))?\s{0,20}(?:=>|:=|[=!]=|[=:])\s{0,20}\(?\s{0,4})"
    + _QUOTED
)
# environ.setdefault("NAME", "value"), add_argument("--name", default="value"), ["--name", "value"]
_PASSED = re.compile(
    r"(?P<before>(?:setdefault|putenv|setenv|getenv|get|pop)\(\s{0,4}[\"']|[\"']--)"
    + _BARE_NAME
    + r"(?P<between>[\"']\s{0,4},\s{0,4}(?:[^\"'\n]{0,80}?\bdefault\s{0,4}=\s{0,4})?)"
    + _QUOTED
)
_OPTION = re.compile(
    r"(?P<before>(?<![\w-])--)" + _BARE_NAME + r"(?P<between>[= ]\s{0,4})(?P<value>[^\s\"'\\,)\]]{1,500})"
)
_QUERY = re.compile(r"(?P<before>[?&;\"'])" + _NAME + r"(?P<between>=)(?P<value>[^\s&;\"'<>]{1,2000})")
_ELEMENT = re.compile(r"(?P<before><)" + _NAME + r"(?P<between>>)(?P<value>[^<]{1,2000})")
# A configuration's line, or an entry of a YAML flow: the value has no quotes around it.
_LINE = re.compile(
    r"^(?P<before>\s{0,80}(?:[-*+>$#|]\s{1,4}){0,2}(?:export\s{1,4}|set\s{1,4}|setx\s{1,4}|ENV\s{1,4}|ARG\s{1,4}|declare\s{1,4}(?:-x\s{1,4})?)?[\"']?)"
    + r"(?P<name>[A-Za-z_][\w .-]{0,79}?)"
    + r"(?P<between>[\"']?\s{0,20}(?:=>|[=:])\s{0,20})(?P<value>[^\s\"'].*)$"
)
_FLOW = re.compile(
    r"(?P<before>[{,]\s{0,4}[\"']?)"
    + _NAME
    + r"(?P<between>[\"']?\s{0,4}[:=]\s{0,4})(?P<value>[^\s\"',}{\[\]][^,}]{0,500})"
)
# Header-like text anywhere: `x-api-key: abc`.
_HEADER = re.compile(r"(?P<before>)" + _NAME + r"(?P<between>:\s{0,4})(?P<value>[\w+/=.~-]{8,4000})")
_NETRC = re.compile(
    r"(?P<before>\bmachine\s+\S{1,200}\s+(?:login\s+\S{1,200}\s+)?)(?P<name>password)(?P<between>\s+)(?P<value>\S{1,500})"
)
_OPENS_SCALAR = re.compile(
    r"^(?P<indent>\s{0,80})(?:-\s{1,4})?[\"']?" + _NAME + r"[\"']?\s{0,4}:\s{0,4}(?:[|>][+-]?\d?)?\s{0,20}$"
)
_OPENS_PIECES = re.compile(
    _NAME + r"(?:[\"']?\]?(?:\s{0,4}:\s{0,4}\w{1,20})?\s{0,4}=\s{0,4}[(\\]?|[\"']\s{0,4}:)\s{0,20}$"
)
_PIECE = re.compile(r"^\s{0,80}[rbfuRBFU]{0,2}[\"']")
_QUOTED_PIECE = re.compile(r"([\"'])(.*?)(\1|$)")

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
    r"^(?:(?:\{[^{}]{1,100}\}|[:/@. -])+$|\.\w[\w.]*$|\$|%|\{\{|\{[\w.\[\]()\"']*\}$|<[\w ./-]*>$|os\.|env\.|secrets\.|vault:|\*+$|x{3,}$|\.{3}$)",
    re.IGNORECASE,
)
_FIRST_WORD = re.compile(r"([\w~|>+-]+)(?:[),;\]\s].*)?$")
_TEMPLATE = re.compile(r"^(?:\{.*\}|\$.*|%s|%\(.*|<.*|\*+)$")
_BETWEEN_TEXTS = re.compile(r"\s*[,)]|\s*[+%]\s|\.format\(")
_RANDOM = re.compile(r"[A-Za-z0-9+/=_.~-]{16,4000}")
_WORDLIKE = re.compile(r"[A-Za-z]?[a-z]*\d{0,4}|[A-Z]+\d{0,4}|(?:[A-Z][a-z]+\d{0,5}){2,}")


def masked_lines(lines: Sequence[str], code: bool) -> list[str]:
    """The same lines with secrets replaced by `MASK`; blocks that go over several lines included.

    Args:
        lines: All lines of a text from its first on, each bounded in length by the caller.
        code: Whether it is program text, where only what is quoted is a value.
    """
    masked: list[str] = []
    block = 0  # lines that a private key may still have
    scalar: int | None = None  # indentation of the name whose value stands on the lines below
    pieces = ""  # the name whose value's string literals follow
    closing = ""  # the quotes that end a text over several lines
    for line, hinted in zip(lines, _hinted(lines), strict=True):
        if not hinted and not (block or closing or pieces or scalar is not None):
            masked.append(line)
            continue
        if block and _OF_A_BLOCK.match(line):
            ends = _BLOCK_END.search(line)
            block = 0 if ends else block - 1
            masked.append(MASK + line[ends.end() :] if ends else MASK)
            continue
        block = 0
        if closing:
            _, found, after = line.partition(closing)
            masked.append(f"{MASK}{found}{after}" if found else MASK)
            closing = "" if found else closing
            continue
        if scalar is not None:
            if line.strip() and _indent(line) > scalar:
                masked.append(line[: _indent(line)] + MASK)
                continue
            scalar = scalar if not line.strip() else None
        if pieces:
            pieces = pieces if _PIECE.match(line) else ""
            if pieces:
                masked.append(_pieces_masked(line, pieces))
                continue
        masked.append(masked_text(line, code))
        begun = list(_BLOCK_BEGIN.finditer(line))
        if begun and not _BLOCK_END.search(line, begun[-1].end()):
            block = _LONGEST_BLOCK
        scalar = scalar if code else _opened_scalar(line, scalar)
        opens = _OPENS_PIECES.search(line)
        pieces = opens["name"] if opens is not None and _is_telling(opens["name"]) else ""
        closing = _left_open(line)
    return masked


def masked_text(line: str, code: bool) -> str:
    """One line with its secrets replaced by `MASK`."""
    if not _may_hold(line):
        return line
    line = _block_masked(line)
    line = _SHAPES.sub(MASK, line)
    line = _HOOK.sub(rf"\1{MASK}", line)
    line = _URL.sub(_in_url, line)
    line = _CURL.sub(rf"\1{MASK}", line)
    line = _SCHEME.sub(_after_scheme, line)
    for pattern in (_GIVEN, _PASSED):
        line = pattern.sub(_in_quotes, line)
    for pattern in (_OPTION, _QUERY, _ELEMENT, _NETRC):
        line = pattern.sub(_bare, line)
    line = _HEADER.sub(_bare_if_random, line)
    if code and not line.lstrip().startswith(("#", "//")):
        return line
    line = _LINE.sub(_bare, line)
    return _FLOW.sub(_bare, line)


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
    return _is_telling(name) and looks_random(value)


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


def _hinted(lines: Sequence[str]) -> Iterator[bool]:
    """For each line whether it may hold a secret."""
    for start in range(0, len(lines), _LOOKED_AT_ONCE):
        part = lines[start : start + _LOOKED_AT_ONCE]
        some = _may_hold("\n".join(part))
        yield from (some and _may_hold(line) for line in part)


def _may_hold(text: str) -> bool:
    lowered = text.lower()
    return any(hint in lowered for hint in _HINTS)


def _words(name: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(name)]
    while words and words[-1].isdigit():
        words.pop()
    return words


def _is_always(words: Sequence[str]) -> bool:
    if not words or words[-1] in _NEVER:
        return False
    return words[-1] in _ALWAYS or " ".join(words[-2:]) in _PAIRS


def _is_telling(name: str) -> bool:
    words = _words(name)
    if not words or _NEVER.intersection(words):
        return False
    return words[-1] in _SOMETIMES or _is_always(words)


def _in_quotes(found: re.Match[str]) -> str:
    before = found.groupdict().get("before") or ""
    head = f"{before}{found['name']}{found['between']}{found['prefix']}{found['quote']}"
    if found["value"].startswith("-") and before.endswith("--"):
        return found[0]  # add_argument("--password", "-p")
    if _BETWEEN_TEXTS.match(found["value"]):
        return found[0]  # print("the password: ", end="")
    return f"{head}{MASK}{found['end']}" if is_secret(found["name"], found["value"]) else found[0]


def _block_masked(line: str) -> str:
    begun = _BLOCK_BEGIN.search(line)
    if begun is None:
        return line
    ends = _BLOCK_END.search(line, begun.end())
    rest = line[ends.end() :] if ends else line[begun.end() :]
    return line[: begun.start()] + MASK + ("" if ends is None and _OF_A_KEY.search(rest) else rest)


def _pieces_masked(line: str, name: str) -> str:
    return _QUOTED_PIECE.sub(
        lambda found: f"{found[1]}{MASK}{found[3]}" if is_secret(name, found[2]) else found[0], line
    )


def _in_url(found: re.Match[str]) -> str:
    scheme, who = found.groups()
    user, colon, password = who.partition(":")
    if not (password or looks_random(user)) or _TEMPLATE.search(password or user):
        return found[0]
    return f"{scheme}{MASK}@" if not colon else f"{scheme}{user}:{MASK}@"


def _bare(found: re.Match[str]) -> str:
    if MASK in found["value"] or not is_secret(found["name"], found["value"]):
        return found[0]
    return f"{found['before']}{found['name']}{found['between']}{MASK}"


def _bare_if_random(found: re.Match[str]) -> str:
    return _bare(found) if looks_random(found["value"]) else found[0]


def _after_scheme(found: re.Match[str]) -> str:
    scheme, space, value = found.groups()
    if scheme.lower() == "bearer" or looks_random(value.rstrip("=")) or value.endswith("="):
        digits = any(map(str.isdigit, value))
        return f"{scheme}{space}{MASK}" if digits or value.endswith("=") else found[0]
    return found[0]


def _opened_scalar(line: str, scalar: int | None) -> int | None:
    opened = _OPENS_SCALAR.match(line)
    if opened is None:
        return scalar
    return len(opened["indent"]) if _is_always(_words(opened["name"])) else None


def _left_open(line: str) -> str:
    """The triple quotes that a masked value opened on this line and did not close."""
    for found in _GIVEN.finditer(line):
        if len(found["quote"]) == 3 and not found["end"] and is_secret(found["name"], found["value"] or "x"):
            return found["quote"]
    return ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
