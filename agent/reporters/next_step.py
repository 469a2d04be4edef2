"""The one thing to do next."""

from __future__ import annotations

import shlex

from weaklink.agent.reporters.blocks import Block, Command, Paragraph, Section
from weaklink.agent.reporters.reading import effective_divergence, lead_mechanism, mechanism_status
from weaklink.agent.reporters.view import IncidentView
from weaklink.collector.evidence import Subject


def next_step(incident: IncidentView) -> Section:
    """One sentence, and one command where there is one."""
    folder = shlex.quote(str(incident.folder))
    return Section("Next", _step(incident, folder))


def diagnose_command(subject: Subject) -> str:
    """The command that diagnoses this subject again."""
    head = ["-m", subject.name] if subject.kind == "module" else [subject.name]
    return shlex.join(["weaklink", "diagnose", *head, *(["--", *subject.argv] if subject.argv else [])])


def _step(incident: IncidentView, folder: str) -> tuple[Block, ...]:
    again = Command(diagnose_command(incident.opened.subject))
    proposal = incident.proposal
    if incident.evidence is None or (proposal is None and not incident.answered and incident.closed is None):
        return (Paragraph("The diagnosis did not get to its end; run it again:"), again)
    if proposal is not None and proposal.outcome == "ask_operator":
        return (Paragraph("The answer decides. With the script as it was meant, diagnose again:"), again)
    if incident.frozen is not None and incident.verdict is None:
        return (Paragraph("The predictions are frozen and no rerun has tested them yet:"), _verify(folder))
    if _supported(incident):
        return (*_repair(incident), again)
    if effective_divergence(incident) is None and incident.evidence.outcome.raised is not None:
        return (Paragraph("The exception comes first. With it mended, diagnose again:"), again)
    if effective_divergence(incident) is None:
        return (Paragraph("Nothing here asks for a repair. To read this again:"), _show(folder))
    return (Paragraph("To read this again:"), _show(folder))


def _supported(incident: IncidentView) -> bool:
    lead = lead_mechanism(incident)
    return lead is not None and mechanism_status(incident, lead) == "supported"


def _repair(incident: IncidentView) -> tuple[Block, ...]:
    repair = incident.proposal.repair if incident.proposal is not None else None
    text = f"Repair proposed ({repair.kind}): {repair.text}" if repair is not None else "Repair the script."
    return (Paragraph(text), Paragraph("With the repair made, diagnose again:"))


def _verify(folder: str) -> Command:
    return Command(f"weaklink verify {folder}")


def _show(folder: str) -> Command:
    return Command(f"weaklink show {folder}")
