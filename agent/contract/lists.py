"""What must change and what must stay: both filled, disjoint, measurable, and able to come out wrong."""

from __future__ import annotations

from collections.abc import Iterator

from weaklink.agent.contract.values import agrees, quoted
from weaklink.agent.measurements import MEASUREMENTS, parse_key, take
from weaklink.agent.proposal import Proposal
from weaklink.collector.catalogue import CATALOGUE
from weaklink.collector.evidence import Evidence


def lists(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """Both lists are filled and share nothing."""
    if not proposal.must_change:
        yield "must_change is empty; name at least one measurement that the experiment must move."
    if not proposal.must_stay_unchanged:
        yield "must_stay_unchanged is empty; name at least one measurement that must stay bitwise equal."
    stays = set(proposal.must_stay_unchanged)
    for key in dict.fromkeys(proposal.must_change):
        if key in stays:
            yield f"{quoted(key)} stands in must_change and in must_stay_unchanged; it can be in one of them only."


def measurements(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """Every measurement that is named exists and could be taken on the observed run."""
    for key in _keys(proposal):
        parsed = parse_key(key)
        # The round trip also refuses a second spelling of one key, which would slip through "disjoint".
        if parsed is None or str(parsed) != key:
            yield f"{quoted(key)} is no measurement; they are: {', '.join(map(_usage, MEASUREMENTS))}."
            continue
        observed = take(evidence, key)
        if not observed.taken:
            yield f"{quoted(key)} cannot be taken: {quoted(observed.reason)}; name one that the observed run has."


def foregone(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """No prediction holds without any experiment."""
    for mechanism in proposal.mechanisms:
        for prediction in mechanism.predictions:
            if prediction.expect != "becomes" or prediction.value is None:
                continue
            observed = take(evidence, prediction.measurement)
            if observed.taken and agrees(prediction.value, observed.value):
                about = f"{quoted(prediction.measurement)} becomes {quoted(prediction.value)}"
                yield (
                    f"{mechanism.id} predicts that {about}, which it already is without any experiment; "
                    "say same, or another value."
                )


def loss_alone(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """More than the loss must change."""
    if proposal.must_change and all(key.startswith("loss.") for key in proposal.must_change):
        yield (
            "must_change names the loss alone, and a better loss does not identify a cause; "
            "add the row or the parameters that the first mechanism acts on."
        )


def stay_could_move(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """Something that must stay is within the experiment's reach."""
    entry = CATALOGUE.get(proposal.experiment.name) if proposal.experiment else None
    parsed = [key for key in map(parse_key, proposal.must_stay_unchanged) if key is not None]
    if entry is None or not parsed or any(key.name in entry.can_move for key in parsed):
        return
    movable = ", ".join(_usage(name) for name in sorted(entry.can_move) if name in MEASUREMENTS)
    yield f"{entry.name} could not move anything in must_stay_unchanged; add at least one of: {movable}."


def _keys(proposal: Proposal) -> Iterator[str]:
    predicted = (p.measurement for mechanism in proposal.mechanisms for p in mechanism.predictions)
    yield from dict.fromkeys([*proposal.must_change, *proposal.must_stay_unchanged, *predicted])


def _usage(name: str) -> str:
    argument = MEASUREMENTS[name].argument
    return f"{name}[{argument}]" if argument else name
