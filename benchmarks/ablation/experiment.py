"""The fourth arm: `weaklink diagnose` as a user runs it with a model, and what the record says the model was worth."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ablation.answer import SmallAnswer
from ablation.kept import Kept, Tokens
from ablation.observed import NEUTRAL, Observed, ended, words
from ablation.subjects import Subject
from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.contract.families import NONE
from weaklink.agent.record.bodies import Answered, Exchanged
from weaklink.agent.record.incident import Incident
from weaklink.collector.errors import WeaklinkError


class NoReplyError(Exception):
    """No reply came from the endpoint, or there was nothing to ask about; says why."""


@dataclass(frozen=True)
class Diagnosed:
    """What a diagnosis with a model came to.

    Attributes:
        boundary: What the model's accepted answer names; empty where none met the contract.
        file: The first line of source that it cites; where it cites none, the first place of its row.
        line: The line there.
        family: Its first mechanism.
        verdict: What the rerun said of that mechanism; None where nothing was rerun for the model's answer.
        attempts: Answers it needed or had.
        violations: Objections of the contract to all of them.
        first_refused: Whether the first answer broke the contract.
    """

    boundary: str
    file: str | None
    line: int | None
    family: str | None
    verdict: str | None
    attempts: int
    violations: int
    first_refused: bool

    @property
    def answer(self) -> SmallAnswer | None:
        """In the shape of the other arms; None where no answer met the contract."""
        return SmallAnswer(self.boundary, self.file, self.line, self.family) if self.boundary else None


def diagnose(
    weaklink: str, subject: Subject, observed: Observed, model: Sequence[str], key: str, timeout: float
) -> Kept:
    """Diagnose a subject with a model, reruns included, in a folder that is thrown away.

    Args:
        weaklink: The command.
        subject: What is diagnosed.
        observed: Its files.
        model: Options that name the model (`--model`, `--base-url`, `--context`).
        key: What the answer is kept under.
        timeout: Seconds for all of it.

    Raises:
        NoReplyError: The model did not reply, or the command did not come to an end.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, incidents = Path(name) / NEUTRAL, Path(name) / "incidents"
        shutil.copytree(observed.folder, folder)
        script, *rest = words(subject)
        options = [*model, "--json", "--no-capture", "--incidents", str(incidents)]
        printed, said = _run([weaklink, "diagnose", script, *options, *rest], folder, timeout)
        found = list(incidents.glob("*/events.jsonl"))
        if len(found) != 1:
            raise NoReplyError(_message(printed) or said.strip()[-300:] or "no incident was recorded")
        try:
            incident = Incident.read(found[0].parent)
        except WeaklinkError as error:
            raise NoReplyError(str(error)) from None
        return _kept(incident, printed, key)


def read_diagnosed(kept: Kept) -> Diagnosed | None:
    """What was kept of a diagnosis; None where the file holds something else."""
    try:
        return Diagnosed(**(kept.diagnosis or {}))
    except TypeError:
        return None


def diagnosed(incident: Incident, printed: dict[str, Any]) -> Diagnosed:
    """What the record and the printed object say the model was worth; what the playbook says is not the model's."""
    own = [answer for answer in incident.answered if answer.advisor != Playbook.name]
    accepted = next((answer for answer in reversed(own) if not answer.violations and answer.proposal), None)
    refusals = sum(len(answer.violations) for answer in own)
    boundary, file, line, family = _named(accepted, printed)
    return Diagnosed(
        boundary=boundary,
        file=file,
        line=line,
        family=family,
        verdict=_verdict(accepted, printed),
        attempts=len(own),
        violations=refusals,
        first_refused=bool(own) and bool(own[0].violations),
    )


def _kept(incident: Incident, printed: str, key: str) -> Kept:
    if not incident.exchanged:
        failed = incident.failed
        problem = "the model was not asked" if failed is None else f"{failed.problem} [{failed.about or ''}]"
        raise NoReplyError(_message(printed) or problem)
    if incident.failed is not None and incident.failed.kind == "endpoint":
        raise NoReplyError(incident.failed.problem)
    last = incident.exchanged[-1].reply
    return Kept(
        prompt_sha256=key,
        text=last.text,
        model=last.model,
        endpoint=last.endpoint,
        tokens=_tokens(incident.exchanged),
        cost=_sum([each.reply.usage.cost for each in incident.exchanged]),
        seconds=sum(each.reply.seconds for each in incident.exchanged),
        when=datetime.now().astimezone().isoformat(timespec="seconds"),
        diagnosis=asdict(diagnosed(incident, _json(printed))),
    )


def _named(accepted: Answered | None, printed: dict[str, Any]) -> tuple[str, str | None, int | None, str | None]:
    if accepted is None or accepted.proposal is None:
        return "", None, None, None
    proposal = accepted.proposal
    if proposal.outcome == "nothing_to_repair" or proposal.first_boundary == NONE:
        return NONE, None, None, "none"
    family = proposal.mechanisms[0].id if proposal.mechanisms else None
    if proposal.sources:
        return proposal.first_boundary, proposal.sources[0].file, proposal.sources[0].line, family
    where = printed.get("where") or [{}]
    return proposal.first_boundary, where[0].get("file"), where[0].get("line"), family


def _verdict(accepted: Answered | None, printed: dict[str, Any]) -> str | None:
    """The printed verdict, where it is about the model's own first mechanism."""
    mechanism = printed.get("mechanism") or {}
    if accepted is None or accepted.proposal is None or not accepted.proposal.mechanisms:
        return None
    return mechanism.get("status") if mechanism.get("id") == accepted.proposal.mechanisms[0].id else None


def _tokens(exchanged: Sequence[Exchanged]) -> Tokens:
    usages = [each.reply.usage for each in exchanged]
    return Tokens(
        prompt=_sum([usage.prompt_tokens for usage in usages]), answer=_sum([usage.answer_tokens for usage in usages])
    )


def _sum(known: Sequence[Any]) -> Any:
    """The sum; None where one of them is not known."""
    return None if any(value is None for value in known) else sum(known)


def _run(command: list[str], folder: Path, timeout: float) -> tuple[str, str]:
    try:
        done = ended(command, folder, timeout)
    except subprocess.TimeoutExpired:
        raise NoReplyError(f"no diagnosis after {timeout:g} s") from None
    return done.stdout, done.stderr


def _message(printed: str) -> str:
    return str(_json(printed).get("message") or "")


def _json(printed: str) -> dict[str, Any]:
    try:
        found = json.loads(printed)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
