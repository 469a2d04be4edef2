"""The prompts of the arms. Source and evidence are the same texts in every arm that has them, as far as room allows."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Literal, get_args

from ablation.answer import small_form
from ablation.files import ShownFile, shown_files
from ablation.observed import Observed
from ablation.rows import first_divergence, shown_rows
from ablation.subjects import Subject
from weaklink.agent.contract.families import FAMILIES
from weaklink.agent.conversation.messages import Message
from weaklink.agent.prompting.budget import answer_room, estimated_tokens
from weaklink.collector.table.text import printable

Arm = Literal["source", "evidence", "both", "experiment"]
ARMS: tuple[Arm, ...] = get_args(Arm)
ASKED: tuple[Arm, ...] = ("source", "evidence", "both")  # the others hold a conversation of their own
OUTPUT_LINES = 30
OUTPUT_SHARE = 0.15  # of the room
EVIDENCE_SHARE = 0.5  # of the room, where there is source too; what it leaves goes to the files
NAMES = 200  # tokens for the names of files that are left out
NAMED, NAME_WIDTH = 12, 60  # so many of them by name, with so many characters


def prompt(subject: Subject, observed: Observed, arm: Arm, context: int) -> list[Message]:
    """System and user message of an arm that is asked for the small answer.

    Args:
        subject: What is asked about. Neither its name nor its key is shown.
        observed: What is known of it.
        arm: `source`, `evidence` or `both`.
        context: Tokens that the model reads at once, its answer included.
    """
    system = _render("system.md.j2")
    shown: dict[str, object] = {"command": printable(shlex.join(subject.case.arguments)), "families": FAMILIES}
    headings = {"evidence": ["-"], "first": "-", "rows_left_out": 1, "files": [ShownFile("-", [])], "output": ["-"]}
    fixed = estimated_tokens(system + _render("question.md.j2", **shown, **headings, files_left_out="-"))
    # A server that knows no schemas writes the form into the prompt.
    form = estimated_tokens(json.dumps(small_form().schema, indent=4))
    room = max(0, context - answer_room(context) - fixed - form - NAMES)
    parts: dict[str, object] = {"evidence": [], "first": "", "rows_left_out": 0, "files": [], "output": []}
    parts["files_left_out"] = ""
    if arm != "evidence":
        parts["output"] = _last_lines(observed.output, int(room * OUTPUT_SHARE))
        room -= estimated_tokens("\n".join(map(str, parts["output"])))  # type: ignore[call-overload]
    if arm != "source":
        rows, left_out = shown_rows(observed.evidence, room if arm == "evidence" else int(room * EVIDENCE_SHARE))
        parts |= {"evidence": rows, "rows_left_out": left_out, "first": first_divergence(observed.evidence)}
        room -= estimated_tokens("\n".join(rows))
    if arm != "evidence":
        files, unseen = shown_files(observed.folder, subject.case.arguments, room)
        parts |= {"files": files, "files_left_out": _named(unseen)}
    question = _render("question.md.j2", **shown, **parts)
    return [Message(role="system", content=system), Message(role="user", content=question)]


def as_one_text(messages: list[Message]) -> str:
    """The prompt for a chat window."""
    return "\n".join(message.content for message in messages)


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(printable(name, NAME_WIDTH) for name in names[:NAMED]) + more


def _last_lines(output: str, budget: int) -> list[str]:
    # A progress bar writes over its own line: what was there last counts.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in output.split("\n") if line.strip()]
    kept: list[str] = []
    for line in reversed([printable(line.expandtabs(4), 300) for line in lines[-OUTPUT_LINES:]]):
        budget -= estimated_tokens(line) + 3
        if budget < 0:
            break
        kept.insert(0, line)
    return kept


def _render(template: str, **shown: object) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "prompts"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # plain text; what is not ours is escaped where it is made
    )
    return environment.get_template(template).render(**shown)
