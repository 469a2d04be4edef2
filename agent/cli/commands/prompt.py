"""`weaklink prompt`: exactly what a language model would be shown, as one text for a chat window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weaklink.agent.advisors.choosing import telling
from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.asked import told
from weaklink.agent.cli.output import print_json, write
from weaklink.agent.cli.said import Said, SaidAdvisor
from weaklink.agent.prompting.budget import estimated_tokens
from weaklink.agent.prompting.prompts import blank_prompt, paste_prompt
from weaklink.agent.record.incident import Incident
from weaklink.agent.reporters.sent import render_sent, sent_json
from weaklink.agent.settings import ModelSettings, read_settings
from weaklink.collector.errors import StorageError, UsageError

SCHEMA = "weaklink.prompt/1"


def run(
    incident: str | None,
    context: int | None,
    source: bool,
    read: str | None,
    inside: str | None,
    out: str | None,
    sent: bool,
    blank: bool,
    json: bool,
) -> None:
    """Print the prompt, or with `sent` what a model was sent and said, or with `blank` the form without an incident.

    Raises:
        UsageError: No incident was named, nothing was measured in it, or options contradict each other.
        StorageError: The file cannot be written.
        WeaklinkError: There is no record, or it is damaged.
    """
    if blank:
        _refuse_beside("--blank", {"INCIDENT": incident, "--sent": sent})
        _hand_out(_plain(blank_prompt(), None), out, json)
        return
    if incident is None:
        hint = "name one, as in `weaklink prompt incidents/ID`; `--blank` needs none."
        raise UsageError("No incident was named.", hint=hint)
    recorded = Incident.read(Path(incident))
    if sent:
        _refuse_beside("--sent", {"--context": context, "--read": read, "--in": inside})
        _hand_out({"text": render_sent(recorded), **sent_json(recorded)}, out, json)
        return
    _hand_out(_prompt(recorded, SaidAdvisor(context=context, source=source, read=read), inside), out, json)


def _prompt(incident: Incident, said: SaidAdvisor, inside: str | None) -> dict[str, Any]:
    if incident.evidence is None:
        about = str(incident.folder)
        raise UsageError("Nothing was measured in this incident.", about=about, hint="diagnose the script again.")
    if inside is not None and not Path(inside).is_dir():
        raise UsageError("There is no such folder.", about=f"--in {inside}", hint="name the script's folder.")
    folder = Path(inside or incident.opened.folder)
    settings = read_settings(Said(), folder).model if folder.is_dir() else ModelSettings()
    opening = told(
        incident.evidence,
        tuple(fact.text for fact in incident.facts),
        telling(said, settings),
        folder,
        incident.folder.parent,
        # As `weaklink answer` has it: files only where the run's own sources lie as they were, or where somebody says.
        measured_here=inside is not None,
        can_rerun=False,
        looks=False,
    )
    text = paste_prompt(opening.system, opening.brief, _objections(incident))
    return _plain(text, {file: sorted(lines) for file, lines in opening.shown.lines.items()})


def _objections(incident: Incident) -> list[str]:
    """The contract's, to the last answer, where somebody but the playbook gave one."""
    last = incident.answered[-1] if incident.answered else None
    return list(last.violations) if last is not None and last.advisor != Playbook.name else []


def _plain(text: str, files: dict[str, list[int]] | None) -> dict[str, Any]:
    return {"schema": SCHEMA, "text": text, "tokens": estimated_tokens(text), "files": files or {}}


def _refuse_beside(option: str, others: dict[str, object]) -> None:
    for name, value in others.items():
        if value:
            raise UsageError(f"{option} goes without {name}.", about=option, hint=f"leave {name} out.")


def _hand_out(body: dict[str, Any], out: str | None, json: bool) -> None:
    if out is not None and out != "-":
        try:
            Path(out).write_text(body["text"], encoding="utf-8", errors="backslashreplace")
        except (OSError, ValueError) as error:
            raise StorageError(
                f"The prompt cannot be written: {error}.", about=out, hint="choose another --out."
            ) from error
        body = {**body, "out": out}
        if not json:
            write(f"{out}\n")
            return
    if json:
        print_json(body)
    else:
        write(body["text"])
