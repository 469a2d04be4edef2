"""The contract a proposal must meet before anything is frozen or rerun: one small function a rule, one table of rules.

A prompt cannot hold a contract, code can. Each violation is one sentence that names what offends and what would be
accepted, because it goes back to the advisor word for word. The same table, in plain words, is what the brief shows.

A rule's function has the rule's name. They stand in `first_boundary`, `citations`, `mechanisms`, `lists`,
`experiment`, `grounds` and `sources`; `families` and `values` are what those share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from weaklink.agent.contract import citations, experiment, first_boundary, grounds, lists, mechanisms, sources
from weaklink.agent.contract.experiment import REPAIR_ACTS_AT
from weaklink.agent.contract.families import ANY_BOUNDARY, BOUNDARY_OF, FAMILIES
from weaklink.agent.contract.mechanisms import exclusive
from weaklink.agent.contract.values import agrees, quoted
from weaklink.agent.conversation.shown import Shown
from weaklink.agent.proposal import Proposal
from weaklink.collector.evidence import Evidence

__all__ = [
    "ANY_BOUNDARY",
    "BOUNDARY_OF",
    "FAMILIES",
    "MAX_TEXTS",
    "REPAIR_ACTS_AT",
    "RULES",
    "Rule",
    "Violation",
    "agrees",
    "exclusive",
    "quoted",
    "violations",
]

MAX_TEXTS = 8  # of one rule: a proposal with a thousand wrong citations needs no thousand sentences


@dataclass(frozen=True)
class Violation:
    """One broken rule, and the sentence that says what offends and what would be accepted."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass(frozen=True)
class Rule:
    """A rule of the contract: its name, its plain words, and the function that yields a sentence a violation.

    `check` holds a proposal against the evidence; of the one rule about files, `check_shown` holds it against what was
    shown of them.
    """

    name: str
    says: str
    check: Callable[[Proposal, Evidence], Iterator[str]] | None = None
    experiments_only: bool = True
    check_shown: Callable[[Proposal, Shown], Iterator[str]] | None = None

    def broken(self, proposal: Proposal, evidence: Evidence, shown: Shown) -> Iterator[str]:
        """A sentence for every way in which the proposal breaks this rule."""
        if self.check is not None:
            yield from self.check(proposal, evidence)
        if self.check_shown is not None:
            yield from self.check_shown(proposal, shown)


def violations(proposal: Proposal, evidence: Evidence, shown: Shown | None = None) -> list[Violation]:
    """Every rule the proposal breaks on this evidence, in the order of the table; empty means accepted.

    Never raises on a proposal that validates. At most `MAX_TEXTS` sentences a rule are kept.

    Args:
        proposal: What an advisor answered.
        evidence: The observed run.
        shown: Lines of files that the advisor was shown; None: none.
    """
    shown = shown or Shown()
    return [
        Violation(rule.name, text)
        for rule in RULES
        if proposal.outcome == "experiment" or not rule.experiments_only
        for text in islice(rule.broken(proposal, evidence, shown), MAX_TEXTS)
    ]


RULES: tuple[Rule, ...] = (
    Rule(
        "shape",
        "All four outcomes are valid answers. `experiment` names one entry of the catalogue, `ask_operator` asks "
        "a question and names no experiment, `inconclusive` does neither, `nothing_to_repair` names no mechanism "
        "but `none`, and no repair.",
        experiment.shape,
        experiments_only=False,
    ),
    Rule(
        "first_boundary",
        "`first_boundary` and `first_row` are the chain's first divergence: the first row that fails, where none "
        "fails the first suspected one, `NONE` where there is neither (then there is no experiment). Or name an "
        "earlier boundary, there a row that neither passes nor fails, and the reason in `dissent`.",
        first_boundary.first_boundary,
        experiments_only=False,
    ),
    Rule(
        "nothing_to_repair",
        "`nothing_to_repair` has the first boundary `NONE`, is refused while a row fails, and says in `dissent` why "
        "a suspected row, if there is one, is no fault.",
        first_boundary.nothing_to_repair,
        experiments_only=False,
    ),
    Rule(
        "citations",
        "Every citation names an existing row, one of its values (or `status`, or `text`), and that value as it stands "
        "there. A fraction may be quoted with fewer digits, correctly rounded.",
        citations.citations,
        experiments_only=False,
    ),
    Rule("first_row_cited", "An experiment cites at least the first row.", citations.first_row_cited),
    Rule(
        "mechanisms",
        "An experiment has two or three mechanisms with different ids; any other answer has at most three. Each stands "
        "at the boundary of its family; `other` and `none` may stand at any.",
        mechanisms.mechanisms,
        experiments_only=False,
    ),
    Rule(
        "lead",
        "The first mechanism is the one you believe: it stands at `first_boundary`, predicts a change for everything "
        "in `must_change`, and `same` (or nothing) for everything in `must_stay_unchanged`.",
        mechanisms.lead,
    ),
    Rule(
        "predictions",
        "Every mechanism predicts every measurement in `must_change`, and all of them predict the same set of "
        "measurements, each once. `becomes` has a value; `up` and `down` are for numbers.",
        mechanisms.predictions,
    ),
    Rule(
        "discrimination",
        "The first mechanism and each of its rivals exclude each other on at least one measurement: same against any "
        "change, up against down, or two different values.",
        mechanisms.discrimination,
    ),
    Rule("lists", "`must_change` and `must_stay_unchanged` are both filled, and share nothing.", lists.lists),
    Rule(
        "measurements",
        "Every measurement you name is in the list of measurements and could be taken on the observed run.",
        lists.measurements,
    ),
    Rule("foregone", "No prediction says that a measurement becomes what it already is.", lists.foregone),
    Rule(
        "loss_alone",
        "`must_change` holds more than the loss: a better loss does not identify a cause.",
        lists.loss_alone,
    ),
    Rule(
        "stay_could_move",
        "At least one measurement in `must_stay_unchanged` is one that the experiment could have moved.",
        lists.stay_could_move,
    ),
    Rule(
        "repair",
        "No repair of kind precision (acts at GRADIENT), learning_rate or clipping (UPDATE), architecture (CAPABILITY) "
        "or more_data (EVALUATION) while a row at an earlier boundary fails, and never another optimizer. An "
        "experiment may vary one of them as a control.",
        experiment.repair,
        experiments_only=False,
    ),
    Rule(
        "experiment",
        "One experiment, one change: an entry of the catalogue, with parameters it takes and a pattern that matches.",
        experiment.experiment,
    ),
    Rule(
        "decides",
        "The experiment is one that can support the first mechanism's family; the catalogue says which it decides.",
        grounds.decides,
    ),
    Rule(
        "grounds",
        "Exact evidence does not exclude the first mechanism: its own row, where it has one, does not pass.",
        grounds.grounds,
    ),
    Rule(
        "sources",
        "Every line in `sources` was shown, and its `text`, if there is one, stands in it. Who asked to read files "
        "cites at least one line for an experiment or a dissent.",
        experiments_only=False,
        check_shown=sources.sources,
    ),
)
