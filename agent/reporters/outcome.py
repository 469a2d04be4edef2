"""Predictions against measurements, and what the rerun decided."""

from __future__ import annotations

from weaklink.agent.proposal import Mechanism
from weaklink.agent.reporters.blocks import Block, Bullets, Facts, Heading, Paragraph, Section, Table
from weaklink.agent.reporters.reading import counts, mechanisms, outcomes
from weaklink.agent.reporters.text import number, pair_text, value_text
from weaklink.agent.reporters.view import IncidentView
from weaklink.agent.verdict import PredictionOutcome, StayOutcome, Verdict

HEAD = ("outcome", "measurement", "expected", "control -> treatment", "floor")
STAY_HEAD = ("measurement", "control", "treatment", "bitwise equal")
WORDS = {"held": "held", "failed": "FAILED", "not_measured": "not measured"}
EXPECTED = {"same": "stays the same", "different": "differs", "up": "goes up", "down": "goes down"}


def predictions(incident: IncidentView) -> Section | None:
    """For each mechanism, what it predicted and what was measured."""
    blocks: list[Block] = []
    for mechanism in mechanisms(incident):
        rows = tuple(prediction_cells(item) for item in outcomes(incident, mechanism))
        if rows:
            blocks += [Heading(_heading(incident, mechanism)), Table(HEAD, rows)]
    return Section("Predictions", tuple(blocks)) if blocks else None


def verdict(incident: IncidentView) -> Section | None:
    """Each mechanism's verdict with its reason, the stay-list, and what limits the comparison."""
    if incident.verdict is None:
        return None
    decided = incident.verdict.verdict
    blocks: list[Block] = [Paragraph(decided.text)] if decided.text else []
    if decided.mechanisms:
        rows = tuple((item.id, item.status.replace("_", " "), item.reason) for item in decided.mechanisms)
        blocks.append(Table(("mechanism", "verdict", "reason"), rows))
    blocks.append(Facts(_comparison(decided)))
    unequal = tuple(stay_text(item) for item in decided.stays if item.equal is not True)
    if unequal:
        blocks.append(Bullets(unequal))
    return Section("Verdict", tuple(blocks))


def prediction_cells(item: PredictionOutcome) -> tuple[str, str, str, str, str]:
    """One prediction as table cells: outcome, measurement, expectation, control -> treatment, floor."""
    scientific = is_magnitude(item.measurement)
    return (
        WORDS[item.status],
        item.measurement,
        expected_text(item),
        _movement(item, scientific),
        "-" if item.floor is None else number(item.floor, scientific=True),
    )


def expected_text(item: PredictionOutcome) -> str:
    """`goes down`, or `becomes 2`."""
    return EXPECTED.get(item.expect) or f"becomes {value_text(item.expected_value)}"


def stay_text(item: StayOutcome) -> str:
    """One entry of the stay-list in words."""
    if item.equal is None:
        return f"{item.measurement}: not measured"
    left, right = pair_text(item.control, item.treatment, scientific=is_magnitude(item.measurement))
    return f"{item.measurement}: {'equal' if item.equal else 'NOT EQUAL'}, {left} -> {right}"


def stay_table(incident: IncidentView) -> Table | None:
    """The whole stay-list with its values; the terminal names only what was not equal."""
    stays = incident.verdict.verdict.stays if incident.verdict else []
    return Table(STAY_HEAD, tuple(_stay_cells(item) for item in stays)) if stays else None


def is_magnitude(measurement: str) -> bool:
    """Norms and deltas are read by their exponent, losses by their digits."""
    return any(word in measurement for word in ("norm", "delta"))


def stay_summary(stays: list[StayOutcome]) -> str:
    """`3 of 3 equal`, with what was not measured named apart."""
    if not stays:
        return "empty"
    equal = sum(item.equal is True for item in stays)
    unknown = sum(item.equal is None for item in stays)
    text = f"{equal} of {len(stays)} bitwise equal"
    return f"{text}, {unknown} not measured" if unknown else text


def _stay_cells(item: StayOutcome) -> tuple[str, str, str, str]:
    left, right = pair_text(item.control, item.treatment, scientific=is_magnitude(item.measurement))
    equal = "not measured" if item.equal is None else ("yes" if item.equal else "NO")
    return (item.measurement, left, right, equal)


def _heading(incident: IncidentView, mechanism: Mechanism) -> str:
    found = counts(incident, mechanism)
    return f"{mechanism.id}: {found.held} held, {found.failed} failed, {found.not_measured} not measured"


def _movement(item: PredictionOutcome, scientific: bool) -> str:
    if item.status == "not_measured":
        return item.reason or "no value was taken"
    left, right = pair_text(item.control, item.treatment, scientific=scientific)
    movement = f"{left} -> {right}"
    return f"{movement} ({item.reason})" if item.reason else movement


def _comparison(decided: Verdict) -> tuple[tuple[str, str], ...]:
    rows = [
        ("controls", "agree with each other" if decided.controls_agree else "DO NOT agree with each other"),
        ("observed run", _prefix(decided.observed_prefix_agrees)),
        ("change applied", "yes" if decided.applied else "NO"),
        ("stay-list", stay_summary(decided.stays)),
    ]
    if decided.nondeterminism:
        rows.append(("varies by itself", ", ".join(decided.nondeterminism)))
    return tuple(rows)


def _prefix(agrees: bool | None) -> str:
    if agrees is None:
        return "not compared"
    return "begins as the control does" if agrees else "DOES NOT begin as the control does"
