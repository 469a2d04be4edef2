"""The templates of `prompts/`, ours and fixed, and the one filter through which anything else enters them."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from weaklink.agent.contract.values import quoted
from weaklink.collector.evidence import Value
from weaklink.collector.table.text import printable

if TYPE_CHECKING:
    import jinja2

MAX_TEXT = 2000  # characters of one quoted text where there is room
LONGEST_LINE = 400  # characters of one line of a file
LONGEST_SENTENCE = 4000  # characters of one objection, which may list every measurement there is


@cache  # compiling the templates takes longer than filling them in
def environment(limit: int = MAX_TEXT) -> jinja2.Environment:
    """Jinja with its filters: `q` quotes a value as JSON of about `limit` characters, `line` and `sentence` keep it in
    one line."""
    import jinja2  # lazily: most commands need no template

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("weaklink.prompts", package_path=""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # plain text; the filters quote what is not ours
    )
    made.filters["q"] = partial(short_quoted, limit=limit)
    made.filters["line"] = inert_line
    made.filters["sentence"] = partial(printable, limit=LONGEST_SENTENCE)
    return made


def short_quoted(value: Value, limit: int = MAX_TEXT) -> str:
    """`quoted`, cut once more where escapes made it long: a name of control characters is six times its length."""
    text = quoted(value, limit)
    if isinstance(value, str) and len(text) > 2 * limit:
        return quoted(value[: limit * limit // len(text)] + "...", limit)
    return text


def inert_line(text: str) -> str:
    """One line of a file that can neither end nor colour nor reorder the line it is printed in."""
    return printable(text.rstrip(), LONGEST_LINE)
