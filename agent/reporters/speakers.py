"""Who answered, what it cost, what it looked at, and what the playbook says beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weaklink.agent.proposal import Proposal
from weaklink.agent.reporters.blocks import Facts, Section
from weaklink.agent.reporters.reading import advisor_of, experiment_text
from weaklink.agent.reporters.view import IncidentView

SHOWN_LOOKS = 6
# Advisors whose answer somebody handed in, by their name in the record.
HANDED_IN = {"paste": "an answer that was handed in", "mcp": "a coding agent"}


class Agreement(NamedTuple):
    """Where two answers say the same."""

    boundary: bool
    mechanism: bool
    experiment: bool


def was_asked(incident: IncidentView) -> bool:
    """Whether somebody else than fixed rules was asked for the answer, in this round."""
    return incident.beside is not None


def agreement(incident: IncidentView) -> Agreement | None:
    """The model's accepted answer against the playbook's; None where there is no such answer."""
    answer, beside = incident.proposal, incident.beside
    if answer is None or beside is None or incident.failed is not None:
        return None
    return Agreement(
        boundary=answer.first_boundary == beside.first_boundary,
        mechanism=_lead(answer) == _lead(beside),
        experiment=answer.experiment == beside.experiment,
    )


def model_section(incident: IncidentView) -> Section | None:
    """The model's part of the incident; None where none was asked."""
    if not was_asked(incident):
        return None
    rows = [("asked", asked_text(incident)), *_attempts(incident)]
    if incident.exchanged:
        rows.append(("exchanged", _exchanges(incident)))
    if incident.looked:
        rows.append(("looked at", _looks(incident)))
    if incident.proposal is not None and incident.failed is None and incident.proposal.sources:
        rows.append(("cites", _cited(incident.proposal)))
    if incident.failed is not None:
        rows.append(("no answer", incident.failed.problem))
    assert incident.beside is not None, "was_asked says so"
    rows.append(("playbook", f"the built-in playbook, by itself, says: {in_words(incident.beside)}"))
    both = agreement(incident)
    if both is not None:
        rows.append(("compared", _compared(both)))
    return Section("Model", (Facts(tuple(rows)),))


def asked_text(incident: IncidentView) -> str:
    """`openai: NAME at HOST`; of a recording also when the model spoke, of an answer handed in who is said to be it."""
    asked = incident.asked[-1] if incident.asked else None
    name = (incident.answered[0].advisor if incident.answered else None) or incident.opened.advisor
    if asked is None or asked.model is None:
        return name if asked is None else asked.advisor
    if asked.advisor in HANDED_IN:
        return f"{asked.advisor}, said to be by {asked.model}"  # a label that nothing checked
    text = f"{asked.advisor}: {asked.model} at {asked.endpoint}"
    return text if asked.spoken is None else f"{text}, as it spoke on {asked.spoken} (a recording)"


def in_words(proposal: Proposal) -> str:
    """An answer in one line: boundary, lead, experiment or outcome."""
    lead = _lead(proposal)
    what = experiment_text(proposal) or proposal.outcome.replace("_", " ")
    return ", ".join(part for part in (proposal.first_row or proposal.first_boundary, lead, what) if part)


def model_json(incident: IncidentView) -> dict[str, Any]:
    """The same as plain data, for `--json`."""
    asked = incident.asked[-1] if incident.asked else None
    both = agreement(incident)
    failed, beside = incident.failed, incident.beside
    assert beside is not None, "was_asked says so"
    return {
        "asked": {
            "advisor": asked.advisor if asked else advisor_of(incident),
            "model": asked.model if asked else None,
            "endpoint": asked.endpoint if asked else None,
            "spoken": asked.spoken if asked else None,
        },
        "exchanges": len(incident.exchanged),
        "looks": [{"do": each.look.do, "ok": each.look.ok, "file": each.look.file} for each in incident.looked],
        "attempts": [list(answer.violations) for answer in incident.answered if _is_model(incident, answer.advisor)],
        "prompt_tokens": _sum([each.reply.usage.prompt_tokens for each in incident.exchanged]),
        "answer_tokens": _sum([each.reply.usage.answer_tokens for each in incident.exchanged]),
        "cost": cost(incident),
        "seconds": sum(each.reply.seconds for each in incident.exchanged),
        "rungs": list(dict.fromkeys(each.reply.rung for each in incident.exchanged)),
        "failed": None if failed is None else {"kind": failed.kind, "problem": failed.problem, "hint": failed.hint},
        "playbook": {
            "outcome": beside.outcome,
            "first_boundary": beside.first_boundary,
            "first_row": beside.first_row,
            "mechanism": _lead(beside),
            "experiment": experiment_text(beside) or None,
        },
        "agrees": None if both is None else both._asdict(),
    }


def cost(incident: IncidentView) -> float | None:
    """US dollars of all exchanges; None where one of them has no known price."""
    prices = [each.reply.usage.cost for each in incident.exchanged]
    known = [price for price in prices if price is not None]
    return sum(known) if known and len(known) == len(prices) else None


def _is_model(incident: IncidentView, advisor: str) -> bool:
    """Whether an answer is that of whoever was asked, not of the playbook after it failed."""
    return not (incident.failed is not None and advisor == "playbook")


def _lead(proposal: Proposal) -> str | None:
    return proposal.mechanisms[0].id if proposal.mechanisms else None


def _attempts(incident: IncidentView) -> list[tuple[str, str]]:
    rows = []
    for answer in incident.answered:
        if not _is_model(incident, answer.advisor):
            continue
        told = "met the contract"
        if answer.violations:
            rest = len(answer.violations) - 1
            told = f"refused: {answer.violations[0]}" + (f" (and {rest} more)" if rest else "")
        rows.append((f"answer {answer.attempt}", told))
    return rows


def _exchanges(incident: IncidentView) -> str:
    replies = [each.reply for each in incident.exchanged]
    prompt = _sum([reply.usage.prompt_tokens for reply in replies])
    answer = _sum([reply.usage.answer_tokens for reply in replies])
    tokens = "tokens not told by the endpoint" if prompt is None else f"{prompt} tokens sent, {answer} answered"
    price = cost(incident)
    paid = "cost unknown: no price is given" if price is None else f"{price:.4f} US dollars"
    rungs = ", ".join(dict.fromkeys(reply.rung for reply in replies))
    seconds = sum(reply.seconds for reply in replies)
    count = "1 reply" if len(replies) == 1 else f"{len(replies)} replies"
    return f"{count} in {seconds:.1f} s by {rungs}; {tokens}; {paid}"


def _looks(incident: IncidentView) -> str:
    told = []
    for each in incident.looked[:SHOWN_LOOKS]:
        look = each.look
        what = look.file or str(look.request.get("name") or look.request.get("text") or look.request.get("path") or "")
        told.append(f"{look.do} {what}" + ("" if look.ok else " (refused)"))
    rest = len(incident.looked) - len(told)
    return "; ".join([*told, f"{rest} more"] if rest > 0 else told)


def _cited(proposal: Proposal) -> str:
    """The lines that the answer relies on, as it quotes them."""
    told = [f"{each.file}:{each.line}  {each.text}".rstrip() for each in proposal.sources[:SHOWN_LOOKS]]
    rest = len(proposal.sources) - len(told)
    return "; ".join([*told, f"{rest} more"] if rest > 0 else told)


def _compared(both: Agreement) -> str:
    same = [name for name, equal in both._asdict().items() if equal]
    other = [name for name, equal in both._asdict().items() if not equal]
    if not other:
        return "both name the same boundary, mechanism and experiment"
    return "; ".join(
        part for part in (f"the same {' and '.join(same)}" if same else "", f"another {' and '.join(other)}") if part
    )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
