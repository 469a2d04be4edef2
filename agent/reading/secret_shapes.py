"""What secrets look like in a text: keys by their shape, and the many ways in which a value is given a name.

Every repetition is bounded or begins at the border of a word: a hostile line of 8192 characters takes milliseconds.
"""

from __future__ import annotations

import re

SHAPES = re.compile(
    r"""(?<![A-Za-z0-9])(?:
    sk-(?=[\w-]{0,200}\d)(?=[\w-]{0,200}[A-Z])[\w-]{20,300}           # OpenAI, Anthropic
    | sk-(?:or-v1-)?[0-9a-f]{32,80}                                   # DeepSeek, OpenRouter
    | (?:gsk_|xai-|pplx-|nvapi-)[A-Za-z0-9_-]{20,200}                 # Groq, xAI, Perplexity, NVIDIA
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
HOOK = re.compile(r"(?i)\b(hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/)[\w/-]{8,300}")
URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,20}://)([^\s/@\"'<>]{1,300})@")
CURL = re.compile(r"(\bcurl\s[^|]{0,500}?(?:\s-u|--user)[ =]\s{0,4}[\"']?[^\s:\"']{1,100}:)([^\s\"']{1,500})")
SCHEME = re.compile(r"(?i)\b(bearer|basic|token)(\s+)([A-Za-z0-9._~+/-]{12,4000}={0,2})")
BLOCK_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
BLOCK_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
OF_A_BLOCK = re.compile(
    r"\s*[\"'+]?\s*(?:[A-Za-z0-9+/=]*(?:\\n)?|(?:Proc-Type|DEK-Info|Comment|Version|Charset):.*)[\"',\\\s]*$"
    r"|.*-----END "
)
OF_A_KEY = re.compile(r"[A-Za-z0-9+/=]{16,}")

# What no secret is without, in lower case: most lines hold none of it and are left after one look.
HINTS = (
    "pass", "pwd", "secret", "key", "token", "auth", "cred", "cookie", "salt", "webhook", "signature", "bearer", "curl",
    "basic", "://", "sk-", "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat", "glpat-", "hf_", "r8_", "akia",
    "asia", "aroa", "aida", "abia", "acca", "aiza", "ya29", "xox", "xapp-", "_live_", "_test_", "npm_", "pypi-",
    "dop_v1_", "sg.", "eyj", "hooks.slack", "discord", "gsk_", "xai-", "pplx-", "nvapi-",
)  # fmt: skip
_NAME = r"(?<![\w-])(?P<name>[A-Za-z_][\w-]{0,79})(?![\w-])"
_BARE_NAME = _NAME.removeprefix(r"(?<![\w-])")  # after dashes
_QUOTED = (
    r"(?P<prefix>[rbfuRBFU]{0,2})(?P<quote>\\?(?:\"\"\"|'''|[\"']))(?P<value>(?:\\.|[^\\])*?)(?P<end>(?P=quote)|\\?$)"
)
# name = "value", "name": 'value', settings["name"] = "value", name: str = "value"
GIVEN = re.compile(
    _NAME
    + r"(?P<between>\\?[\"']?\s{0,20}\]?\s{0,20}"
    + r"(?::\s{0,4}[\w\[\]., |]{1,40}(?==))?\s{0,20}(?:=>|:=|[=!]=|[=:])\s{0,20}\(?\s{0,4})"
    + _QUOTED
)
# environ.setdefault("NAME", "value"), add_argument("--name", default="value"), ["--name", "value"]
PASSED = re.compile(
    r"(?P<before>(?:setdefault|putenv|setenv|getenv|get|pop)\(\s{0,4}[\"']|[\"']--)"
    + _BARE_NAME
    + r"(?P<between>[\"']\s{0,4},\s{0,4}(?:[^\"'\n]{0,80}?\bdefault\s{0,4}=\s{0,4})?)"
    + _QUOTED
)
OPTION = re.compile(
    r"(?P<before>(?<![\w-])--)" + _BARE_NAME + r"(?P<between>[= ]\s{0,4})(?P<value>[^\s\"'\\,)\]]{1,500})"
)
QUERY = re.compile(r"(?P<before>[?&;\"'])" + _NAME + r"(?P<between>=)(?P<value>[^\s&;\"'<>]{1,2000})")
ELEMENT = re.compile(r"(?P<before><)" + _NAME + r"(?P<between>>)(?P<value>[^<]{1,2000})")
# A configuration's line, or an entry of a YAML flow: the value has no quotes around it.
LINE = re.compile(
    r"^(?P<before>\s{0,80}(?:[-*+>$#|]\s{1,4}){0,2}(?:export\s{1,4}|set\s{1,4}|setx\s{1,4}|ENV\s{1,4}|ARG\s{1,4}|declare\s{1,4}(?:-x\s{1,4})?)?[\"']?)"
    + r"(?P<name>[A-Za-z_][\w .-]{0,79}?)"
    + r"(?P<between>[\"']?\s{0,20}(?:=>|[=:])\s{0,20})(?P<value>[^\s\"'].*)$"
)
FLOW = re.compile(
    r"(?P<before>[{,]\s{0,4}[\"']?)"
    + _NAME
    + r"(?P<between>[\"']?\s{0,4}[:=]\s{0,4})(?P<value>[^\s\"',}{\[\]][^,}]{0,500})"
)
# Header-like text anywhere: `x-api-key: abc`.
HEADER = re.compile(r"(?P<before>)" + _NAME + r"(?P<between>:\s{0,4})(?P<value>[\w+/=.~-]{8,4000})")
NETRC = re.compile(
    r"(?P<before>\bmachine\s+\S{1,200}\s+(?:login\s+\S{1,200}\s+)?)(?P<name>password)(?P<between>\s+)(?P<value>\S{1,500})"
)
OPENS_SCALAR = re.compile(
    r"^(?P<indent>\s{0,80})(?:-\s{1,4})?[\"']?" + _NAME + r"[\"']?\s{0,4}:\s{0,4}(?:[|>][+-]?\d?)?\s{0,20}$"
)
OPENS_PIECES = re.compile(
    _NAME + r"(?:[\"']?\]?(?:\s{0,4}:\s{0,4}\w{1,20})?\s{0,4}=\s{0,4}[(\\]?|[\"']\s{0,4}:)\s{0,20}$"
)
PIECE = re.compile(r"^\s{0,80}[rbfuRBFU]{0,2}[\"']")
QUOTED_PIECE = re.compile(r"([\"'])(.*?)(\1|$)")
BETWEEN_TEXTS = re.compile(r"\s*[,)]|\s*[+%]\s|\.format\(")
TEMPLATE = re.compile(r"^(?:\{.*\}|\$.*|%s|%\(.*|<.*|\*+)$")
