"""What a report says, section by section, the same for every medium. A section without content is left out."""

from __future__ import annotations

from weaklink.agent.proposal import Mechanism, Proposal
from weaklink.agent.reporters.blocks import Block, Bullets, Facts, Paragraph, Section
from weaklink.agent.reporters.chain import not_measured
from weaklink.agent.reporters.next_step import next_step
from weaklink.agent.reporters.outcome import predictions, verdict
from weaklink.agent.reporters.reading import (
    advisor_of,
    borne_out,
    effective_divergence,
    experiment_text,
    lead_mechanism,
    mechanism_status,
    mechanisms,
    sites,
    withdrawn_row,
)
from weaklink.agent.reporters.recovery import recovery_section
from weaklink.agent.reporters.rounds import earlier, facts
from weaklink.agent.reporters.speakers import HANDED_IN, asked_text, model_section
from weaklink.agent.reporters.text import plural
from weaklink.agent.reporters.view import IncidentView
from weaklink.collector.evidence import Evidence, Row


def sections(incident: IncidentView) -> list[Section]:
    """All sections that have something to say, in reading order."""
    parts = [
        question(incident),
        facts(incident),
        meaning(incident),
        model_section(incident),
        where(incident),
        experiment(incident),
        predictions(incident),
        verdict(incident),
        recovery_section(incident),
        frozen(incident),
        earlier(incident),
        notes(incident),
        next_step(incident),
    ]
    return [part for part in parts if part is not None]


def result(incident: IncidentView) -> list[str]:
    """What the chain says, in plain sentences: the first divergence, or that no row fails and what that is worth."""
    evidence = incident.evidence
    if evidence is None:
        return ["Nothing was observed: the diagnosis ended before there was any evidence."]
    return [*ending(evidence), *_divergence(incident, evidence)]


def ending(evidence: Evidence) -> list[str]:
    """What the run raised, and that it did not get to its end, where either is so."""
    return [*_raised(evidence), *_cut_short(evidence)]


def question(incident: IncidentView) -> Section | None:
    """A dissent or a question to the operator: open, and shown as open."""
    proposal = incident.proposal
    if proposal is None or (proposal.question is None and proposal.dissent is None):
        return None
    about = proposal.first_row or proposal.first_boundary
    blocks: list[Block] = []
    if proposal.dissent is not None:
        blocks.append(Paragraph(f"{_doubt(incident, proposal)} {proposal.dissent}"))
    if proposal.question is not None:
        blocks.append(Paragraph(f"About {about}: {proposal.question}"))
    return Section("Question", tuple(blocks))


def _doubt(incident: IncidentView, proposal: Proposal) -> str:
    """What a dissent asks: nothing presumes a fault where no row diverges."""
    first = incident.evidence.first_divergence if incident.evidence else None
    if proposal.outcome == "nothing_to_repair":
        return "Is it a fault at all?" if first is None else f"Is {first.id} a fault at all?"
    about = proposal.first_row or proposal.first_boundary
    return f"Is there a fault at {about}?" if first is None else f"Does the fault begin earlier, at {about}?"


def meaning(incident: IncidentView) -> Section | None:
    """The lead mechanism's explanation, who gave it, and what else was considered."""
    lead = lead_mechanism(incident)
    if lead is None:
        return _no_mechanism(incident)
    state = mechanism_status(incident, lead)
    if state == "refuted":
        # Nothing that was tested and failed is told as the meaning.
        rows = [("said by", said_by(incident)), *_considered(incident, mechanisms(incident), "considered")]
        return Section("What it means", (Paragraph("The first explanation did not hold."), Facts(tuple(rows))))
    rows = [
        ("mechanism", f"{lead.id} ({_words(state)})"),
        ("said by", said_by(incident)),
        *_considered(incident, mechanisms(incident)[1:], "rival"),
    ]
    title = "What it means" if borne_out(incident) else "It may mean"
    return Section(title, (Paragraph(lead.explanation), Facts(tuple(rows))))


def where(incident: IncidentView) -> Section | None:
    """The places in the user's code the first divergence points at."""
    found = sites(incident)
    if not found:
        return None
    return Section("Where", (Facts(tuple((site.place, site.what) for site in found)),))


def experiment(incident: IncidentView) -> Section | None:
    """The one change the rerun makes, what must change and what must stay."""
    proposal = incident.proposal
    if proposal is None or proposal.experiment is None:
        return None
    rows = (
        ("change", experiment_text(proposal)),
        ("must change", ", ".join(proposal.must_change) or "nothing named"),
        ("must stay", ", ".join(proposal.must_stay_unchanged) or "nothing named"),
    )
    return Section("Experiment", (Facts(rows),))


def frozen(incident: IncidentView) -> Section | None:
    """Both digests in full, and why the first belongs somewhere else too."""
    if incident.frozen is None:
        return None
    digests = Facts((("claim", incident.frozen.claim_sha256), ("context", incident.frozen.context_sha256)))
    advice = "Frozen before any rerun. Keep the claim hash elsewhere: it shows a rewritten record."
    return Section("Frozen", (digests, Paragraph(advice)))


def notes(incident: IncidentView) -> Section | None:
    """Corrections, and everything that went wrong on the way."""
    items = [f"amendment to event {item.of}: {item.text}" for item in incident.amendments]
    if incident.evidence is not None:
        items += [f"weaklink's own problem while observing: {problem}" for problem in incident.evidence.problems]
    items += [f"rerun {rerun.role}: {rerun.problem}" for rerun in incident.reruns if rerun.problem]
    damage: str | None = getattr(incident, "damage", None)
    if damage is not None:
        items.append(f"the record is damaged, and shown up to there: {damage}")
    if incident.closed is None:
        items.append("the record is not closed: the diagnosis was interrupted, or is still running")
    elif incident.closed.problem:
        items.append(incident.closed.problem)
    return Section("Notes", (Bullets(tuple(items)),)) if items else None


def said_by(incident: IncidentView) -> str:
    """Who the words are from. The playbook is never mistaken for a model."""
    advisor = advisor_of(incident)
    if advisor == "playbook":
        asked = (
            "no model was asked" if incident.failed is None else f"the {incident.failed.advisor} advisor gave no answer"
        )
        return f"the built-in playbook (fixed rules; {asked})"
    if advisor == "operator":
        return "the operator, who chose the experiment; what it must show follows fixed rules"
    if advisor in ("openai", "recorded"):
        return f"a language model ({asked_text(incident)})"
    if advisor in HANDED_IN:
        return f"{HANDED_IN[advisor]} ({asked_text(incident)})"
    return f"advisor {advisor}"


def _raised(evidence: Evidence) -> list[str]:
    raised = evidence.outcome.raised
    if raised is None:
        return []
    at = f" at {raised.where.place}" if raised.where else ""
    return [f"The script raised {raised.type}{at}: {raised.message}"]


def _cut_short(evidence: Evidence) -> list[str]:
    if evidence.outcome.ended not in ("deadline", "interrupted", "killed"):
        return []
    return ["The run did not get to its end; the chain shows what had been measured by then."]


def _divergence(incident: IncidentView, evidence: Evidence) -> list[str]:
    row = effective_divergence(incident)
    if row is not None and row.status == "fail":
        return [failing(row)]
    if row is not None:
        open_end = "Nothing has settled it yet." if incident.verdict is None else "The experiment did not settle it."
        return [f"{suspecting(row)} {open_end}"]
    withdrawn = withdrawn_row(incident)
    if withdrawn is None:
        return [no_row_fails(evidence), worth(evidence)]
    text = f"No row fails. The suspicion of {withdrawn.id} was not confirmed by the rerun and is withdrawn."
    return [text, worth(evidence)]


def failing(row: Row) -> str:
    """The sentence that names the first divergence."""
    return f"First divergence: {row.id} fails ({row.basis}): {_sentence(row.text)}"


def suspecting(row: Row) -> str:
    """The sentence on the first row that is suspected, where none fails."""
    return f"No row fails. {row.id} is suspected, not proven: {_sentence(row.text)}"


def no_row_fails(evidence: Evidence) -> str:
    """The sentence on a chain without a failing or a suspected row."""
    measured = any(row.status != "not_measured" for row in evidence.rows)
    return "No row fails." if measured else "No row was measured, so none can fail."


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def worth(evidence: Evidence) -> str:
    """What a chain without a failing row shows, and what it does not."""
    missing = not_measured(evidence)
    if missing == 0:
        return "This shows no more than the rows that were measured."
    verb = "was" if missing == 1 else "were"
    return (
        f"This shows no more than the rows that were measured; {plural(missing, 'row')} {verb} not measured, "
        "which is neither a pass nor a fail."
    )


def _no_mechanism(incident: IncidentView) -> Section | None:
    proposal = incident.proposal
    if proposal is not None:
        diverges = incident.evidence is None or incident.evidence.first_divergence is not None
        unknown = "which cause it is" if diverges else "whether anything is wrong"
        text = {
            "nothing_to_repair": "Nothing to repair was found.",
            "inconclusive": f"The advisor could not tell {unknown}.",
        }.get(proposal.outcome)
        return Section("What it means", (Paragraph(text), Facts((("said by", said_by(incident)),)))) if text else None
    if not incident.answered:
        return None
    refused = incident.answered[-1]
    blocks = (
        Paragraph(f"No answer met the contract ({plural(len(incident.answered), 'attempt')}). The last one failed on:"),
        Bullets(tuple(refused.violations)),
    )
    return Section("What it means", blocks)


def _considered(incident: IncidentView, others: list[Mechanism], name: str) -> list[tuple[str, str]]:
    return [(name, f"{item.id} ({_words(mechanism_status(incident, item))}): {item.explanation}") for item in others]


def _words(status: str) -> str:
    return status.replace("_", " ")
