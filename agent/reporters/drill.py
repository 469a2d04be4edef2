"""A drill as text: branch, first measurement, control, fix, and one table over the seeds."""

from __future__ import annotations

from typing import Any

from weaklink.agent.drill.shapes import Attempt, Drill, RunNumbers, SeedRun
from weaklink.agent.reporters.blocks import Block, Bullets, Command, Facts, Paragraph, Section, Table
from weaklink.agent.reporters.json_report import plain
from weaklink.agent.reporters.next_step import diagnose_command
from weaklink.agent.reporters.reading import choice_text
from weaklink.agent.reporters.text import number, plural

HEAD = ("seed", "without", "loss", "with", "loss", "row", "holds")


def drill_sections(found: Drill) -> list[Section]:
    """All sections that have something to say, in the order of the drill."""
    parts = [_branch(found), _measured(found), _control(found), _tried(found), _seeds(found), _outcome(found)]
    return [part for part in parts if part is not None]


def drill_json(found: Drill) -> dict[str, Any]:
    """The one object `weaklink drill --json` prints."""
    return plain(found)


def _branch(found: Drill) -> Section:
    rows = [("branch", found.branch.replace("_", " ")), ("first divergence", found.first_row or "none")]
    return Section("Branch", (Facts(tuple(rows)),))


def _measured(found: Drill) -> Section | None:
    if found.measurement is None:
        return None
    return Section(
        "Measured", (Paragraph(f"{_sentence(found.measurement.text)} Points at: {found.measurement.reading}."),)
    )


def _control(found: Drill) -> Section | None:
    control = found.control
    if control is None:
        return None
    rows = (
        ("question", control.question),
        ("change", choice_text(control.change)),
        ("points at", control.reading),
        ("because", control.text),
    )
    return Section("Control", (Facts(rows),))


def _tried(found: Drill) -> Section | None:
    if found.advice is None:
        return None
    blocks: list[Block] = [Paragraph(f"First to try: {found.advice}.")]
    if found.attempts:
        blocks.append(Facts(tuple((choice_text(attempt.change), _attempt(attempt)) for attempt in found.attempts)))
    return Section("Fix", tuple(blocks))


def _attempt(attempt: Attempt) -> str:
    if attempt.run is None:
        return "its run left nothing to read"
    if not attempt.applied:
        return "nothing to change"
    holds = "holds on seed 0" if attempt.holds else "does not hold on seed 0"
    row = f", row {attempt.run.row.replace('_', ' ')}" if attempt.run.row else ""
    return f"{holds}: {attempt.run.branch.replace('_', ' ')}, loss {_losses(attempt.run)}{row}"


def _seeds(found: Drill) -> Section | None:
    if not found.seeds:
        return None
    return Section("Seeds", (Table(HEAD, tuple(map(_seed, found.seeds))),))


def _seed(run: SeedRun) -> tuple[str, ...]:
    before, after = run.baseline, run.treated
    rows = f"{before.row or '-'} -> {(after.row if after else None) or '-'}".replace("_", " ")
    return (
        str(run.seed),
        before.branch.replace("_", " "),
        _losses(before),
        after.branch.replace("_", " ") if after else "-",
        _losses(after) if after else "-",
        rows if before.row or (after and after.row) else "-",
        "yes" if run.holds and run.shown else "no symptom without" if run.holds else "NO",
    )


def _losses(run: RunNumbers) -> str:
    if run.loss_first is None or run.loss_last is None:
        return "-"
    return f"{number(run.loss_first)} -> {number(run.loss_last)}"


def _outcome(found: Drill) -> Section:
    blocks: list[Block] = [Paragraph(_said(found))]
    if found.limits:
        blocks.append(Bullets(tuple(found.limits)))
    if found.outcome != "nothing to drill":
        blocks += [Paragraph("For the cause:"), Command(diagnose_command(found.subject))]
    return Section("Outcome", tuple(blocks))


def _said(found: Drill) -> str:
    if found.outcome == "established" and found.fix is not None:
        seeds = plural(len(found.seeds), "seed")
        text = f"Established over {seeds}: with {choice_text(found.fix)} the symptom is gone."
        return f"{text} {_sentence(_capital(found.over_seeds))}" if found.over_seeds else text
    return _sentence(": ".join([_capital(found.outcome), "; ".join(found.reasons)]) if found.reasons else found.outcome)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
