"""The operator chooses the experiment; what it must show still comes from fixed rules, and the contract still holds.

Where the row has a page that asks for the same experiment, mechanisms and predictions are the page's. Else they follow
from the catalogue: the families that the experiment decides against the row's other known causes, the row itself as
what must change, and all that the experiment cannot move as what must stay.
"""

from __future__ import annotations

from weaklink.agent.advisors.base import cite
from weaklink.agent.advisors.causes import CAUSES, REPAIRS
from weaklink.agent.advisors.playbook import PAGES
from weaklink.agent.contract import BOUNDARY_OF, violations
from weaklink.agent.measurements import take
from weaklink.agent.proposal import ExperimentChoice, Mechanism, MechanismFamily, Prediction, Proposal
from weaklink.collector.catalogue import CATALOGUE, Entry
from weaklink.collector.evidence import Evidence, Row

# Of the measurements that every run offers, in the order in which a step makes them.
_FIRST = ("input.first", "target.first", "parameters.first[*]", "output.first", "loss.first", "gradient.first[*]")
_MOST_MECHANISMS = 3
_OTHER = "Something that this experiment does not touch keeps the row as it is."


class ByHand:
    """An advisor that answers with the experiment it was given, or with the question why that one decides nothing."""

    name = "operator"

    def __init__(self, choice: ExperimentChoice) -> None:
        self.choice = choice

    def advise(self, evidence: Evidence, brief: str, violations: list[str]) -> Proposal:
        """The same proposal for the same evidence, always; objections change nothing here."""
        row = evidence.first_divergence
        if row is None:
            return Proposal(outcome="inconclusive", first_boundary="NONE")
        proposal = chosen(evidence, row, self.choice)
        return proposal if isinstance(proposal, Proposal) else _open(row, proposal)


def chosen(evidence: Evidence, row: Row, choice: ExperimentChoice) -> Proposal | str:
    """The proposal of this experiment for this row, accepted by the contract; or one sentence on why there is none.

    Args:
        evidence: The observed run.
        row: Its first divergence.
        choice: An entry of the catalogue, its parameters checked.
    """
    broken: list[str] = []
    for proposal in (_by_page(evidence, row, choice), _by_catalogue(evidence, row, choice)):
        if proposal is None:
            continue
        found = [str(violation) for violation in violations(proposal, evidence)]
        if not found:
            return proposal
        broken += found
    if broken:
        return f"{choice.name} cannot be judged on {row.id} here: {broken[0]}"
    able = ", ".join(deciding(row)) or "none of the catalogue"
    return f"{choice.name} can support none of the causes known for {row.id}; those that can: {able}."


def deciding(row: Row) -> list[str]:
    """Experiments that can support a cause known for this row, by name."""
    families = {family for family, _ in CAUSES.get(row.id, ()) if BOUNDARY_OF.get(family) == row.boundary}
    return sorted(name for name, entry in CATALOGUE.items() if families & entry.decides)


def _by_page(evidence: Evidence, row: Row, choice: ExperimentChoice) -> Proposal | None:
    page = PAGES.get(row.id)
    proposal = page(evidence, row) if page is not None else None
    if proposal is None or proposal.experiment is None or proposal.experiment.name != choice.name:
        return None
    if not choice.parameters or choice == proposal.experiment:
        return proposal
    said = [_without_values(mechanism, proposal.experiment, row) for mechanism in proposal.mechanisms]
    return proposal.model_copy(update={"experiment": choice, "mechanisms": said})


def _without_values(mechanism: Mechanism, choice: ExperimentChoice, row: Row) -> Mechanism:
    """The page's mechanism for another parameter: words that name the page's own one give way to the row's."""
    named = [f"{value:g}" if isinstance(value, float) else str(value) for value in choice.parameters.values()]
    if not any(value in mechanism.explanation for value in named):
        return mechanism
    words = dict(CAUSES.get(row.id, ()))
    return mechanism.model_copy(update={"explanation": words.get(mechanism.id, mechanism.id.replace("_", " "))})


def _by_catalogue(evidence: Evidence, row: Row, choice: ExperimentChoice) -> Proposal | None:
    entry = CATALOGUE[choice.name]
    causes = CAUSES.get(row.id, ())
    able = [
        (family, text) for family, text in causes if family in entry.decides and BOUNDARY_OF.get(family) == row.boundary
    ]
    if not able:
        return None
    stays = _stays(evidence, entry)
    other: tuple[MechanismFamily, str] = ("other", _OTHER)
    unable = [(family, text) for family, text in causes if family not in entry.decides and family != "other"]
    # A second family that the experiment decides predicts the same, and so keeps the first from being supported alone.
    named = [*able[:2], *unable, other][:_MOST_MECHANISMS]
    if all(family in entry.decides for family, _ in named):
        named[-1] = other
    return Proposal(
        outcome="experiment",
        first_boundary=row.boundary,
        first_row=row.id,
        cited=cite(row),
        mechanisms=[_mechanism(row, family, text, entry, stays) for family, text in named],
        experiment=choice,
        must_change=[f"row[{row.id}]"],
        must_stay_unchanged=stays,
        repair=REPAIRS.get(row.id),
    )


def _stays(evidence: Evidence, entry: Entry) -> list[str]:
    """What the experiment cannot move, and the number of steps, which it could and has no reason to."""
    untouched = [key for key in _FIRST if key.partition("[")[0] not in entry.can_move]
    return [key for key in [*untouched, "steps"] if take(evidence, key).taken]


def _mechanism(row: Row, family: MechanismFamily, text: str, entry: Entry, stays: list[str]) -> Mechanism:
    flips = family in entry.decides
    key = f"row[{row.id}]"
    judged = Prediction(measurement=key, expect="becomes", value="pass") if flips else _same(key)
    return Mechanism(
        id=family,
        boundary=BOUNDARY_OF.get(family, row.boundary),
        explanation=text,
        predictions=[judged, *map(_same, stays)],
    )


def _same(key: str) -> Prediction:
    return Prediction(measurement=key, expect="same")


def _open(row: Row, why: str) -> Proposal:
    return Proposal(
        outcome="ask_operator",
        first_boundary=row.boundary,
        first_row=row.id,
        cited=cite(row),
        question=f"Which other experiment would decide? {why}",
    )
