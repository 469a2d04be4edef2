"""How many tokens a text costs, estimated without a tokenizer, and how a model's context is divided.

The estimate is meant to err upwards: a prompt that does not fit is refused by a server, or cut without a word. It
counts by classes of characters, as byte-pair vocabularies cut them: the letters of a word in pieces, digits and
punctuation one by one. `docs/prompts.md` has it beside eight real vocabularies.
"""

from __future__ import annotations

import re

_LETTERS_A_TOKEN = 4.5
_SPACES_A_TOKEN = 4
_PARTS = re.compile(
    r"(?P<word>[A-Za-z]+)"
    r"|(?P<single>[ \t](?=[0-9])|[\x00-\x08\x0a-\x1f\x21-\x7f])"
    r"|(?P<blank>[ \t]+)"
    r"|(?P<other>[^\x00-\x7f])"
)


def estimated_tokens(text: str) -> int:
    """The tokens of a text, rather too many than too few.

    A word costs one for every 4.5 letters and one at least; a digit, a mark of punctuation, a line break and a space
    before a digit one each; any other single space nothing (it belongs to the word after it), longer blanks one for
    every four; and what is not ASCII one less than it has bytes in UTF-8.
    """
    tokens = 0.0
    for part in _PARTS.finditer(text):
        found = part.group()
        if part.lastgroup == "word":
            tokens += max(1.0, len(found) / _LETTERS_A_TOKEN)
        elif part.lastgroup == "blank":
            tokens += 0 if len(found) == 1 else max(1.0, len(found) / _SPACES_A_TOKEN)
        elif part.lastgroup == "single":
            tokens += 1
        else:
            tokens += max(1, len(found.encode("utf-8", "surrogatepass")) - 1)
    return int(tokens) + 1


def answer_room(context: int) -> int:
    """Tokens kept free for the answer: an eighth of the context, a thousand at least, 8192 at most."""
    return min(8192, max(1000, context // 8))


def prompt_room(context: int) -> int:
    """Tokens for the system message and the brief together; the rest is for the answer, looks and objections."""
    return context * 635 // 1000


def look_room(context: int) -> int:
    """Tokens for what one look shows, where the answer is still to fit behind it."""
    return context - prompt_room(context) - answer_room(context)
