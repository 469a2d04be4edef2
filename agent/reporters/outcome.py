"""Predictions against measurements, and what the rerun decided."""

from __future__ import annotations

from weaklink.agent.proposal import Mechanism
from weaklink.agent.reporters.blocks import Block, Bullets, Facts, Heading, Paragraph, Section, Table
from weaklink.agent.reporters.reading import counts, mechanisms, outcomes, status_of
from weaklink.agent.reporters.text import movement_text, number, value_text
from weaklink.agent.reporters.view import IncidentView
from weaklink.agent.verdict import MechanismOutcome, PredictionOutcome, StayOutcome, Verdict

HEAD = ("outcome", "measurement", "expected", "control -> treatment", "floor")
PLAN_HEAD = ("measurement", "expected")
STAY_HEAD = ("measurement", "control -> treatment", "equal")
WORDS = {"held": "held", "failed": "FAILED", "not_measured": "not measured"}
EXPECTED = {"same": "stays the same", "different": "differs", "up": "goes up", "down": "goes down"}


def predictions(incident: IncidentView) -> Section | None:
    """The lead mechanism's predictions in full, and where each rival's failed; before a rerun, where they differ."""
    found = [(mechanism, outcomes(incident, mechanism)) for mechanism in mechanisms(incident)]
    found = [(mechanism, items) for mechanism, items in found if items]
    if not found:
        return None
    if all(item.status == "not_measured" for _, items in found for item in items):
        return Section("Predictions", (*_planned(*found[0]), *_otherwise(found)))
    (lead, items), *rivals = found
    blocks: list[Block] = [Heading(_heading(incident, lead)), Table(HEAD, tuple(map(prediction_cells, items)))]
    for rival, items in rivals:
        blocks.append(Heading(_heading(incident, rival)))
        failed = tuple(prediction_cells(item) for item in items if item.status == "failed")
        blocks += [Table(HEAD, failed)] if failed else []
    return Section("Predictions", tuple(blocks))


def verdict(incident: IncidentView) -> Section:
    """Cause, action and recovery; each mechanism's verdict with its reason, and what limits the comparison."""
    now = status_of(incident)
    blocks: list[Block] = [Paragraph(f"cause {now.cause}, action {now.action}, recovery {now.recovery}")]
    if incident.verdict is None:
        return Section("Status", tuple(blocks))
    decided = incident.verdict.verdict
    if len(decided.mechanisms) > 1 and len({item.reason for item in decided.mechanisms}) == 1:
        # Nothing was judged, and one reason holds for all.
        blocks += [Paragraph(decided.text), Paragraph(_together(decided.mechanisms))]
    elif decided.mechanisms:
        blocks.append(Facts(tuple(_judged(decided))))
    else:
        blocks.append(Paragraph(decided.text))
    blocks.append(Paragraph(_comparison(decided)))
    unequal = tuple(stay_text(item) for item in decided.stays if item.equal is not True)
    if unequal:
        blocks.append(Bullets(unequal))
    return Section("Verdict", tuple(blocks))


def prediction_cells(item: PredictionOutcome) -> tuple[str, str, str, str, str]:
    """One prediction as table cells: outcome, measurement, expectation, control -> treatment, floor."""
    return (
        WORDS[item.status],
        item.measurement,
        expected_text(item),
        _movement(item),
        "-" if item.floor is None else number(item.floor, scientific=True),
    )


def expected_text(item: PredictionOutcome) -> str:
    """`goes down`, or `becomes 2`."""
    return EXPECTED.get(item.expect) or f"becomes {value_text(item.expected_value)}"


def stay_text(item: StayOutcome) -> str:
    """One entry of the stay-list in words."""
    measurement, movement, equal = _stay_cells(item)
    if item.equal is None:
        return f"{measurement}: {equal}"
    return f"{measurement}: {'equal' if item.equal else 'NOT EQUAL'}, {movement}"


def stay_table(incident: IncidentView) -> Table | None:
    """The whole stay-list with its values; the terminal names only what was not equal."""
    stays = incident.verdict.verdict.stays if incident.verdict else []
    return Table(STAY_HEAD, tuple(_stay_cells(item) for item in stays)) if stays else None


def is_magnitude(measurement: str) -> bool:
    """Norms and deltas are read by their exponent, losses by their digits."""
    return any(word in measurement for word in ("norm", "delta"))


def tally(held: int, failed: int, not_measured: int) -> str:
    """`all 8 predictions held`, or `4 of 8 predictions failed, the other 4 held`."""
    total = held + failed + not_measured
    if not_measured == total:
        return "no prediction was measured"
    if total in (held, failed):
        word = "held" if held else "failed"
        return f"its prediction {word}" if total == 1 else f"all {total} predictions {word}"
    first, word = (failed, "failed") if failed else (not_measured, "was not measured")
    if not failed and not_measured > 1:
        word = "were not measured"
    rest = [f"the other {held} held" if first + held == total else f"{held} held"] if held else []
    rest += [f"{not_measured} not measured"] if failed and not_measured else []
    return ", ".join([f"{first} of {total} predictions {word}", *rest])


def _planned(lead: Mechanism, items: list[PredictionOutcome]) -> tuple[Block, ...]:
    reasons = list(dict.fromkeys(item.reason for item in items if item.reason))
    why = f" ({reasons[0]})" if len(reasons) == 1 else ""
    table = Table(PLAN_HEAD, tuple((item.measurement, expected_text(item)) for item in items))
    return (Heading(f"{lead.id}: not measured{why}"), table)


def _otherwise(found: list[tuple[Mechanism, list[PredictionOutcome]]]) -> tuple[Block, ...]:
    """Where each rival predicts something else than the lead: that is what the experiment would decide by."""
    (_, expected), *rivals = found
    lead = {item.measurement: expected_text(item) for item in expected}
    rows = []
    for rival, items in rivals:
        other = [f"{i.measurement} {expected_text(i)}" for i in items if lead.get(i.measurement) != expected_text(i)]
        rows.append((rival.id, ", ".join(other) or "nothing else than that"))
    return (Heading("The rivals predict otherwise:"), Facts(tuple(rows))) if rows else ()


def _heading(incident: IncidentView, mechanism: Mechanism) -> str:
    return f"{mechanism.id}: {tally(*counts(incident, mechanism))}"


def _movement(item: PredictionOutcome) -> str:
    if item.status == "not_measured":
        return item.reason or "no value was taken"
    movement = movement_text(item.control, item.treatment, scientific=is_magnitude(item.measurement))
    return f"{movement} ({item.reason})" if item.reason else movement


def _stay_cells(item: StayOutcome) -> tuple[str, str, str]:
    if item.equal is None:
        return (item.measurement, "-", "not measured")
    movement = movement_text(item.control, item.treatment, scientific=is_magnitude(item.measurement))
    return (item.measurement, movement, "yes" if item.equal else "NO")


def _status(item: MechanismOutcome) -> str:
    return item.status.replace("_", " ")


def _judged(decided: Verdict) -> list[tuple[str, str]]:
    """Status with mechanism and reason. Rivals whose failed predictions stand in the table above need no more."""
    failed = {item.mechanism for item in decided.predictions if item.status == "failed"}
    plain = [item.id for item in decided.mechanisms[1:] if item.status == "refuted" and item.id in failed]
    rows = [(_status(item), f"{item.id}: {item.reason}") for item in decided.mechanisms if item.id not in plain]
    return [*rows, ("refuted", f"{', '.join(plain)}: by the predictions that failed")] if plain else rows


def _together(decided: list[MechanismOutcome]) -> str:
    return "; ".join(f"{item.id} {_status(item)}" for item in decided)


def _comparison(decided: Verdict) -> str:
    applied = f"change {'applied' if decided.applied else 'NOT applied'}"
    if not decided.stays and all(item.status == "not_measured" for item in decided.predictions):
        # Nothing was compared: what the record holds on the controls is only a default.
        return _capital(applied)
    parts = [
        f"controls {'agree' if decided.controls_agree else 'DO NOT agree'}",
        _prefix(decided.observed_prefix_agrees),
        applied,
        _stay_summary(decided.stays),
        *([f"varies by itself: {', '.join(decided.nondeterminism)}"] if decided.nondeterminism else []),
    ]
    return _capital(", ".join(parts))


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _stay_summary(stays: list[StayOutcome]) -> str:
    if not stays:
        return "stay-list empty"
    equal = sum(item.equal is True for item in stays)
    unknown = sum(item.equal is None for item in stays)
    text = f"stay-list {equal} of {len(stays)} equal"
    return f"{text}, {unknown} not measured" if unknown else text


def _prefix(agrees: bool | None) -> str:
    if agrees is None:
        return "observed run not compared"
    return f"observed run {'begins' if agrees else 'DOES NOT begin'} alike"
