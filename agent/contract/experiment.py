"""What an answer does: the repair it proposes, the one experiment it asks for, and the shape of each outcome."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from weaklink.agent.contract.families import order
from weaklink.agent.contract.values import filled, quoted
from weaklink.agent.measurements import matching
from weaklink.agent.proposal import Proposal
from weaklink.collector.catalogue import CATALOGUE, ParameterGlob, checked_parameters
from weaklink.collector.catalogue.capability import Redrawing
from weaklink.collector.catalogue.update import FreshOptimizer
from weaklink.collector.errors import InterventionError
from weaklink.collector.evidence import Evidence

# Where a repair of that kind acts. It is premature while anything before that boundary fails.
REPAIR_ACTS_AT: dict[str, str] = {
    "precision": "GRADIENT",
    "learning_rate": "UPDATE",
    "clipping": "UPDATE",
    "architecture": "CAPABILITY",
    "more_data": "EVALUATION",
}


def repair(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """The repair is not premature, and never a fresh optimizer."""
    if proposal.repair is None:
        return
    kind = proposal.repair.kind
    if kind == "optimizer":
        yield "A fresh optimizer is never a repair of the system under test; repair what the failing row names."
        return
    acts_at = REPAIR_ACTS_AT.get(kind)  # wiring, data and objective are never premature
    first = evidence.first_divergence
    if acts_at is None or first is None or first.status != "fail":
        return
    if order(first.boundary) < order(acts_at):
        yield f"A repair of kind {kind} acts at {acts_at}, but {quoted(first.id)} fails before it; repair that first."


def experiment(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """The experiment is in the catalogue and accepts its parameters."""
    choice = proposal.experiment
    if choice is None:
        return  # the shape says so
    entry = CATALOGUE.get(choice.name)
    if entry is None:
        yield f"There is no experiment {quoted(choice.name)}; choose one of: {', '.join(sorted(CATALOGUE))}."
        return
    try:
        checked = checked_parameters(choice.name, choice.parameters)
    except InterventionError as error:
        # The message repeats names that the advisor made up, so it is quoted whole.
        takes = ", ".join(entry.parameters.model_fields) or "none"
        yield f"{entry.name} does not accept these parameters: {quoted(error.message)}; it takes: {takes}."
        return
    if isinstance(checked, ParameterGlob) and not matching(evidence, checked.parameters):
        yield f"{choice.name}: no parameter of the model matches {quoted(checked.parameters)}; use a pattern that does."
    if isinstance(checked, FreshOptimizer) and not _own_rate(evidence, checked.lr):
        yield f"{choice.name}: with a rate of {checked.lr!r} two things change; step at a rate that the run itself has."
    if isinstance(checked, Redrawing) and not _has_module(evidence, checked.module):
        yield f"{choice.name}: no module with parameters matches {quoted(checked.module)}; use a pattern that does."


def _own_rate(evidence: Evidence, rate: float) -> bool:
    """Whether the run steps at that rate; where no step was seen nobody can tell."""
    rates = {known for step in evidence.steps for known in step.lr}
    return not rates or rate in rates


def _has_module(evidence: Evidence, pattern: str) -> bool:
    names = [record.name for record in evidence.parameters if record.in_model]
    modules = [name.rpartition(".")[0] for name in names]
    return any(fnmatchcase(each, pattern) for each in (*modules, *names))


def shape(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    """Each outcome holds what belongs to it, and nothing else."""
    outcome = proposal.outcome
    if outcome == "experiment":
        if proposal.experiment is None:
            yield "The outcome is experiment, but no experiment is named; choose one entry of the catalogue."
        return
    if proposal.experiment is not None:
        yield f"The outcome is {outcome}, yet an experiment is named; leave it out, or make the outcome experiment."
    if outcome == "ask_operator" and not filled(proposal.question):
        yield "The outcome is ask_operator, but the question is empty; ask for the one fact that would decide."
    if outcome == "inconclusive" and filled(proposal.question):
        yield "The outcome is inconclusive, yet a question is asked; make the outcome ask_operator, or leave it out."
    if outcome == "nothing_to_repair":
        yield from _nothing_in_it(proposal)


def _nothing_in_it(proposal: Proposal) -> Iterator[str]:
    causes = dict.fromkeys(mechanism.id for mechanism in proposal.mechanisms if mechanism.id != "none")
    if causes:
        yield f"With nothing_to_repair the only mechanism is none; leave out: {', '.join(causes)}."
    if proposal.repair is not None:
        yield "With nothing_to_repair there is no repair; leave it out."
