"""What is said to a language model besides the brief, each text from one template of `prompts/`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weaklink.agent.contract.families import FAMILIES
from weaklink.agent.conversation.looks import Looked
from weaklink.agent.prompting.budget import estimated_tokens
from weaklink.agent.prompting.templates import LONGEST_LINE, environment, inert_line

MOST_LINES = 400  # of one look; the library and the instruments keep to less


def system_prompt(reads: int, instruments: Sequence[str], runs: int) -> str:
    """The system message: the chain, what is data, what code refuses, the outcomes, what may be looked at.

    Args:
        reads: Requests to files it may make; 0 where nothing may be read.
        instruments: Names of the instruments that can be run here.
        runs: How many it may run.
    """
    runs = runs if instruments else 0
    names = list(instruments) or [""]
    return environment().get_template("system.md.j2").render(reads=reads, runs=runs, names=names)


def objections_prompt(violations: Sequence[str], attempts_left: int) -> str:
    """The contract's sentences, word for word, and how often the advisor may still answer."""
    return environment().get_template("objections.md.j2").render(violations=violations, attempts_left=attempts_left)


def looked_prompt(looked: Looked, looks_left: int, room: int | None = None) -> str:
    """What a look showed, every line behind a `|`, so that none can pass for ours.

    Args:
        looked: The request and its answer.
        looks_left: How many more there may be.
        room: Tokens for its lines, by our estimate (`budget.look_room`); None: as many as there are.
    """
    lines = [f"| {inert_line(line)}" for line in looked.text.split("\n")[:MOST_LINES]]
    shown = list(_within(lines, room))
    left_out = looked.text.count("\n") + 1 - len(shown)
    if left_out:
        shown.append(f"({left_out} more lines are left out here: ask for fewer at once.)")
    template = environment(LONGEST_LINE).get_template("looked.md.j2")
    return template.render(looked=looked, lines=shown, looks_left=looks_left)


def _within(lines: Sequence[str], room: int | None) -> Iterator[str]:
    """The first lines, as far as the tokens go; one at least."""
    left = room
    for number, line in enumerate(lines):
        if left is not None:
            left -= estimated_tokens(line) + 1
            if left < 0 and number:
                return
        yield line


def fact_prompt(question: str, fact: str) -> str:
    """The operator's answer to the model's question, both quoted."""
    return environment().get_template("fact.md.j2").render(question=question, fact=fact)


def paste_prompt(system: str, brief: str, objections: Sequence[str] = ()) -> str:
    """One text for a chat window, with how to answer at its end; `objections` are those to the last answer."""
    template = environment().get_template("paste.md.j2")
    return template.render(system=system.strip(), brief=brief.strip(), objections=list(objections))


def blank_prompt() -> str:
    """The form for people who cannot install anything: a table to fill in, and a collector to paste into a script."""
    from importlib.resources import files

    snippet = (files("weaklink.prompts") / "snippet.py.j2").read_text(encoding="utf-8")
    return environment().get_template("blank.md.j2").render(snippet=snippet.strip(), families=FAMILIES)
