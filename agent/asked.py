"""Asking a language model about one incident: what it is told, what it may look at, and what the record keeps of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from weaklink.agent.advisors.asking import Asking, Telling
from weaklink.agent.brief import render_brief
from weaklink.agent.conversation.dialogue import Dialogue
from weaklink.agent.conversation.limits import LOOKS_FROM_CONTEXT
from weaklink.agent.conversation.looks import Looked
from weaklink.agent.conversation.messages import Message
from weaklink.agent.conversation.shown import Shown
from weaklink.agent.desk import ProjectDesk
from weaklink.agent.inputs import files_read
from weaklink.agent.instruments import run_instrument
from weaklink.agent.progress import Progress
from weaklink.agent.prompting.budget import estimated_tokens
from weaklink.agent.prompting.excerpts import excerpts
from weaklink.agent.prompting.prompts import system_prompt
from weaklink.agent.proposal import Proposal
from weaklink.agent.reading.library import Library
from weaklink.agent.record.bodies import Asked
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.runner import Runner
from weaklink.collector.asked import INSTRUMENTS
from weaklink.collector.evidence import Evidence
from weaklink.collector.table.text import printable


@dataclass(frozen=True)
class Told:
    """What leaves the machine at first: the system message and the brief; and what may be looked at besides.

    `library` is what excerpts are taken from, `reads` how often the model may ask for more of it.
    """

    system: str
    brief: str
    library: Library | None
    instruments: tuple[str, ...]
    reads: int

    @property
    def shown(self) -> Shown:
        """The lines of files that it holds."""
        return Shown() if self.library is None else self.library.shown


def told(
    evidence: Evidence,
    facts: tuple[str, ...],
    telling: Telling,
    folder: Path,
    incidents: Path,
    *,
    measured_here: bool,
    can_rerun: bool,
    looks: bool = True,
) -> Told:
    """The opening of a conversation.

    Args:
        evidence: The observed run.
        facts: What the operator said.
        telling: What may be told.
        folder: The working folder.
        incidents: Folder of all incidents, of which nothing is read.
        measured_here: Whether the run was made in that folder. Where it was not, files are shown only from a folder
            that was named, or where the run's own sources lie as they were.
        can_rerun: Whether instruments can run.
        looks: Whether the model may ask to see more; a chat window has no way to.
    """
    library = _library(evidence, telling, folder, incidents, measured_here)
    looks = looks and telling.context >= LOOKS_FROM_CONTEXT
    instruments = tuple(INSTRUMENTS) if can_rerun and looks else ()
    limits = telling.limits
    reads = limits.reads if library is not None and looks else 0
    system = system_prompt(reads, instruments, limits.instruments if instruments else 0)
    parts = [] if library is None else excerpts(evidence, library, telling.context)
    brief = render_brief(evidence, facts, excerpts=parts, context=telling.context)
    return Told(system, brief, library, instruments, reads)


def ask(
    asking: Asking,
    evidence: Evidence,
    opening: Told,
    runner: Runner | None,
    writer: RecordWriter,
    progress: Progress,
    operator: Callable[[str], str | None],
) -> Proposal | None:
    """The model's answer; None where none of its attempts met the contract.

    Raises:
        AdvisorError: It gave no reply. What was said until then is recorded.
    """
    asked = Asked(
        advisor=asking.name,
        attempt=1,
        brief=opening.brief,
        model=asking.speaker.model,
        endpoint=asking.endpoint,
        spoken=asking.spoken,
    )
    writer.append("advisor.asked", asked)
    progress.say(_announced(asking, opening))
    run: Callable[[str, int | None], Looked] | None = None
    if runner is not None and opening.instruments:
        run = partial(run_instrument, runner, evidence)
    readable = opening.library if opening.reads else None
    dialogue = Dialogue(
        advisor=asking.name,
        speaker=asking.speaker,
        evidence=evidence,
        opening=[Message(role="system", content=opening.system), Message(role="user", content=opening.brief)],
        desk=ProjectDesk(readable, run) if readable is not None or run is not None else None,
        shown=opening.shown,
        instruments=opening.instruments if run is not None else (),
        limits=replace(asking.telling.limits, reads=opening.reads),
        context=asking.telling.context,
        writer=writer,
        ask_operator=operator,
    )
    return dialogue.hold()


def _announced(asking: Asking, opening: Told) -> str:
    """What is about to leave the machine, and to whom; of a recording nothing leaves."""
    model, endpoint = printable(asking.speaker.model, 80), printable(asking.endpoint, 80)
    if asking.spoken is not None:
        return f"a recording answers: {model} at {endpoint}, as it spoke on {printable(asking.spoken, 40)}"
    files = "files of the project shown" if opening.library is not None else "no file shown"
    tokens = estimated_tokens(opening.system) + estimated_tokens(opening.brief)
    return f"asking {model} at {endpoint}: about {tokens} tokens, {files} (`weaklink prompt` prints them)"


def _library(
    evidence: Evidence, telling: Telling, folder: Path, incidents: Path, measured_here: bool
) -> Library | None:
    if not telling.source:
        return None
    if telling.root is None and not measured_here and not _is_project(evidence, folder):
        return None
    if telling.root is None and _is_everything(folder):
        return None
    # An evidence from elsewhere can name any file of this machine.
    opened = files_read(evidence) if measured_here else ()
    return Library(telling.root or folder, opened, folder=folder, leave_out=(incidents,))


def _is_everything(folder: Path) -> bool:
    """Whether the working folder is no project's: the home folder, or one above it."""
    home, here = Path.home().resolve(), folder.resolve()
    return here == home or here in home.parents


def _is_project(evidence: Evidence, folder: Path) -> bool:
    """Whether a source of the run lies in the folder as the run had it."""
    for source in evidence.sources:
        try:
            if hashlib.sha256((folder / source.path).read_bytes()).hexdigest() == source.sha256:
                return True
        except OSError:
            continue
    return False
