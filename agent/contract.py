"""The contract a proposal must meet before anything is frozen or rerun: one small function a rule, one table of rules.

A prompt cannot hold a contract, code can. Each violation is one sentence that names what offends and what would be
accepted, because it goes back to the advisor word for word. The same table, in plain words, is what the brief shows.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from itertools import combinations, islice
from typing import get_args

from weaklink.agent.measurements import MEASUREMENTS, matching, parse_key, take
from weaklink.agent.proposal import Mechanism, MechanismFamily, Prediction, Proposal
from weaklink.collector.catalogue import CATALOGUE, ParameterGlob, checked_parameters
from weaklink.collector.errors import InterventionError
from weaklink.collector.evidence import BOUNDARIES, Evidence, Row, Status, Value

NONE = "NONE"
FAMILIES: dict[str, tuple[MechanismFamily, ...]] = {
    "TASK": (
        "pairing_broken",
        "target_leak",
        "supervision_missing",
        "data_not_mixed",
        "input_corrupted",
        "input_scale",
        "label_convention",
    ),
    "OBJECTIVE": (
        "wrong_scores_to_loss",
        "shape_misread",
        "wrong_term_or_sign",
        "wrong_reduction",
        "wrong_mode_in_training",
        "objective_mixed",
    ),
    "DEPENDENCY": ("graph_cut", "frozen_by_accident", "missing_stop_gradient"),
    "GRADIENT": ("zero_gradient", "nonfinite", "stale_gradient", "gradient_cleared_early", "not_reduced_across_ranks"),
    "OWNERSHIP": ("not_in_optimizer", "optimizer_holds_old_objects", "not_registered", "shared_by_mistake"),
    "UPDATE": (
        "step_missing_or_skipped",
        "step_before_backward",
        "rate_wrong",
        "regularization_wrong",
        "update_lost",
        "clipping_misordered",
        "optimizer_state_wrong",
    ),
    "CAPABILITY": ("signal_vanishes", "capacity", "initial_weights_wrong"),
    "EVALUATION": ("stale_buffers", "evaluation_mismatch", "wrong_weights_evaluated", "metric_wrong"),
}
ANY_BOUNDARY: tuple[MechanismFamily, ...] = ("none", "other")
BOUNDARY_OF: dict[str, str] = {family: boundary for boundary, families in FAMILIES.items() for family in families}

# Where a repair of that kind acts. It is premature while anything before that boundary fails.
REPAIR_ACTS_AT: dict[str, str] = {
    "precision": "GRADIENT",
    "learning_rate": "UPDATE",
    "clipping": "UPDATE",
    "architecture": "CAPABILITY",
    "more_data": "EVALUATION",
}

# A row of one of these leaves room for another opinion; a pass and a fail do not.
OPEN: tuple[Status, ...] = ("evidence", "suspected", "not_measured")

MAX_TEXTS = 8  # of one rule: a proposal with a thousand wrong citations needs no thousand sentences
MAX_SHOWN = 160
MAX_LISTED = 12
LONGEST_NUMBER = 64


@dataclass(frozen=True)
class Violation:
    """One broken rule, and the sentence that says what offends and what would be accepted."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass(frozen=True)
class Rule:
    """A rule of the contract: its name, its plain words, and the function that yields a sentence a violation."""

    name: str
    says: str
    check: Callable[[Proposal, Evidence], Iterator[str]]
    experiments_only: bool = True


def violations(proposal: Proposal, evidence: Evidence) -> list[Violation]:
    """Every rule the proposal breaks on this evidence, in the order of the table; empty means accepted.

    Never raises on a proposal that validates. At most `MAX_TEXTS` sentences a rule are kept.
    """
    return [
        Violation(rule.name, text)
        for rule in RULES
        if proposal.outcome == "experiment" or not rule.experiments_only
        for text in islice(rule.check(proposal, evidence), MAX_TEXTS)
    ]


# --- Rule 1: the first boundary ---------------------------------------------------------------------------------------


def _first_boundary(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    if proposal.outcome == "nothing_to_repair":
        return  # has a rule of its own
    first = evidence.first_divergence
    chain = first.boundary if first else NONE
    if proposal.first_boundary not in (*BOUNDARIES, NONE):
        yield f"first_boundary {quoted(proposal.first_boundary)} is no boundary; the chain's is {chain}."
    elif proposal.first_boundary != chain:
        yield from _dissent(proposal, evidence, chain)
    elif first is None:
        if proposal.outcome == "experiment":
            yield (
                "No row fails or is suspected, so there is nothing to experiment on; acceptable are nothing_to_repair, "
                "ask_operator, inconclusive, or a reasoned dissent at a boundary with an open row."
            )
    elif proposal.first_row != first.id and not (proposal.first_row is None and proposal.outcome != "experiment"):
        yield f"first_row is {quoted(proposal.first_row)}; the chain's first divergence is {quoted(first.id)}."


def _dissent(proposal: Proposal, evidence: Evidence, chain: str) -> Iterator[str]:
    named = proposal.first_boundary
    if _order(named) >= _order(chain):
        yield f"first_boundary is {named}, the chain's is {chain}; say {chain}, or dissent at an earlier boundary."
        return
    if not _filled(proposal.dissent):
        yield f"first_boundary is {named}, the chain's is {chain}; say {chain}, or give the reason in dissent."
        return
    here = [row for row in evidence.rows if row.boundary == named]
    open_rows = [row.id for row in here if row.status in OPEN]
    if not open_rows:
        yield f"The dissent names {named}, where no row is open (evidence, suspected or not measured)."
    elif proposal.first_row not in open_rows and not (proposal.first_row is None and proposal.outcome != "experiment"):
        row = quoted(proposal.first_row)
        yield f"The dissent at {named} names the row {row}; its open rows are: {_listed(open_rows)}."


def _dissents(proposal: Proposal, evidence: Evidence) -> bool:
    first = evidence.first_divergence
    earlier = _order(proposal.first_boundary) < _order(first.boundary if first else NONE)
    return earlier and _filled(proposal.dissent)


def _nothing_to_repair(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    if proposal.outcome != "nothing_to_repair":
        return
    first = evidence.first_divergence
    if first is not None and first.status == "fail":
        yield f"The row {quoted(first.id)} fails, so there is something to repair; name it, ask, or be inconclusive."
        return
    if proposal.first_boundary != NONE:
        yield f"first_boundary is {quoted(proposal.first_boundary)}; with nothing_to_repair it must be {quoted(NONE)}."
    # A suspicion accuses nobody, but whoever waves it off must say why.
    if first is not None and not _filled(proposal.dissent):
        yield f"The row {quoted(first.id)} is suspected; nothing_to_repair must say in dissent why that is no fault."


# --- Rule 2: citations ------------------------------------------------------------------------------------------------


def _citations(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    rows = {row.id: row for row in reversed(evidence.rows)}  # of two rows of one id the first, as `Evidence.row` has it
    for citation in proposal.cited:
        row = rows.get(citation.row)
        if row is None:
            yield f"There is no row {quoted(citation.row)}; the rows are: {_listed(row.id for row in evidence.rows)}."
            continue
        fields = _citable(row)
        if citation.field not in fields:
            yield f"The row {quoted(row.id)} has no {quoted(citation.field)}; it has: {_listed(fields)}."
        elif not agrees(citation.value, fields[citation.field]):
            actual = quoted(fields[citation.field])
            yield f"{quoted(row.id)} has {quoted(citation.field)} = {actual}, not {quoted(citation.value)}."


def _first_row_cited(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    anchor = _anchor(proposal, evidence)
    if anchor is not None and all(citation.row != anchor for citation in proposal.cited):
        yield f"The first row {quoted(anchor)} is not cited; cite it with one of its values."


def _citable(row: Row) -> dict[str, Value]:
    return {"status": row.status, "text": row.text, **row.values}


def _anchor(proposal: Proposal, evidence: Evidence) -> str | None:
    # The row the whole proposal stands on: the chain's, or the one it dissents at.
    if _dissents(proposal, evidence):
        return proposal.first_row
    first = evidence.first_divergence
    return first.id if first else None


# --- Rule 3: mechanisms and what they predict -------------------------------------------------------------------------


def _mechanisms(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    ids = [mechanism.id for mechanism in proposal.mechanisms]
    if proposal.outcome == "experiment" and not 2 <= len(ids) <= 3:
        yield f"There are {len(ids)} mechanisms; an experiment needs two or three."
    elif len(ids) > 3:
        yield f"There are {len(ids)} mechanisms; at most three are read."
    for name, count in Counter(ids).items():
        if count > 1:
            yield f"The mechanism {name} stands there {count} times; every id may be used once."
    for mechanism in proposal.mechanisms:
        yield from _mechanism_boundary(mechanism)


def _mechanism_boundary(mechanism: Mechanism) -> Iterator[str]:
    wanted = BOUNDARY_OF.get(mechanism.id)
    stands = f"{mechanism.id} stands at {quoted(mechanism.boundary)}"
    if wanted is None and mechanism.boundary not in (*BOUNDARIES, NONE):
        yield f"{stands}, which is no boundary; use one of: {', '.join(BOUNDARIES)}."
    if wanted is not None and mechanism.boundary != wanted:
        yield f"{stands}; its family belongs to {wanted}."


def _lead(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    if not proposal.mechanisms:
        return
    lead = proposal.mechanisms[0]
    if lead.boundary != proposal.first_boundary:
        stands = f"The first mechanism, {lead.id}, stands at {quoted(lead.boundary)}"
        yield f"{stands}; it must explain first_boundary, which is {quoted(proposal.first_boundary)}."
    expected = {prediction.measurement: prediction.expect for prediction in lead.predictions}
    for key in dict.fromkeys(proposal.must_change):
        if expected.get(key) == "same":
            yield f"must_change has {quoted(key)}, for which the first mechanism, {lead.id}, predicts same."
    for key in dict.fromkeys(proposal.must_stay_unchanged):
        if expected.get(key, "same") != "same":
            yield (
                f"must_stay_unchanged has {quoted(key)}, for which the first mechanism, {lead.id}, "
                f"predicts {expected[key]}; it must predict same, or nothing."
            )


def _predictions(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    # Every mechanism answers for the same measurements: a rival that is silent about one could never be wrong there.
    keys = [dict.fromkeys(p.measurement for p in mechanism.predictions) for mechanism in proposal.mechanisms]
    asked = dict.fromkeys(key for own in (proposal.must_change, *keys) for key in own)
    for mechanism, own in zip(proposal.mechanisms, keys, strict=True):
        missing = [key for key in asked if key not in own]
        if missing:
            yield f"{mechanism.id} predicts nothing for: {_listed(missing)}; every mechanism must predict each of them."
        if len(own) < len(mechanism.predictions):
            yield f"{mechanism.id} predicts the same measurement more than once; one prediction a measurement."
        for prediction in mechanism.predictions:
            yield from _prediction(mechanism, prediction, evidence)


def _prediction(mechanism: Mechanism, prediction: Prediction, evidence: Evidence) -> Iterator[str]:
    about = f"{mechanism.id} predicts {quoted(prediction.measurement)} {prediction.expect}"
    if prediction.expect == "becomes":
        if prediction.value is None:
            yield f"{about}, but no value; give the value it becomes."
        elif prediction.measurement.startswith("row[") and prediction.value not in _MEASURED_STATUSES:
            yield f"{about} {quoted(prediction.value)}; a row becomes one of: {', '.join(_MEASURED_STATUSES)}."
    elif prediction.expect in ("up", "down"):
        observed = take(evidence, prediction.measurement)
        if observed.taken and not _finite_number(observed.value):
            yield (
                f"{about}, but on the observed run it is {quoted(observed.value)}, which has no up or down; "
                "use same, different or becomes."
            )


def _discrimination(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    if not 2 <= len(proposal.mechanisms) <= 3:
        return
    sides = [{p.measurement: p for p in mechanism.predictions} for mechanism in proposal.mechanisms]
    for one, other in combinations(sides, 2):
        if any(exclusive(one[key], other[key]) for key in one if key in other):
            return
    yield (
        "No two mechanisms exclude each other on any measurement, so the experiment cannot tell them apart; "
        "at least one measurement must be, for example, same for one and up for another."
    )


def exclusive(one: Prediction, other: Prediction) -> bool:
    """Whether no single outcome of a measurement can fulfil both predictions."""
    kinds = {one.expect, other.expect}
    if kinds == {"becomes"}:
        return not agrees(one.value, other.value)
    return kinds == {"up", "down"} or ("same" in kinds and len(kinds) == 2)


# --- Rules 4 and 5: the lists -----------------------------------------------------------------------------------------


def _lists(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    if not proposal.must_change:
        yield "must_change is empty; name at least one measurement that the experiment must move."
    if not proposal.must_stay_unchanged:
        yield "must_stay_unchanged is empty; name at least one measurement that must stay bitwise equal."
    stays = set(proposal.must_stay_unchanged)
    for key in dict.fromkeys(proposal.must_change):
        if key in stays:
            yield f"{quoted(key)} stands in must_change and in must_stay_unchanged; it can be in one of them only."


def _measurements(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    for key in _keys(proposal):
        parsed = parse_key(key)
        # The round trip also refuses a second spelling of one key, which would slip through "disjoint".
        if parsed is None or str(parsed) != key:
            yield f"{quoted(key)} is no measurement; they are: {', '.join(map(_usage, MEASUREMENTS))}."
            continue
        observed = take(evidence, key)
        if not observed.taken:
            yield f"{quoted(key)} cannot be taken: {quoted(observed.reason)}; name one that the observed run has."


def _foregone(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
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


def _loss_alone(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    if proposal.must_change and all(key.startswith("loss.") for key in proposal.must_change):
        yield (
            "must_change names the loss alone, and a better loss does not identify a cause; "
            "add the row or the parameters that the first mechanism acts on."
        )


def _stay_could_move(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    entry = CATALOGUE.get(proposal.experiment.name) if proposal.experiment else None
    parsed = [key for key in map(parse_key, proposal.must_stay_unchanged) if key is not None]
    if entry is None or not parsed or any(key.name in entry.can_move for key in parsed):
        return
    movable = ", ".join(_usage(name) for name in sorted(entry.can_move) if name in MEASUREMENTS)
    yield f"{entry.name} could not move anything in must_stay_unchanged; add at least one of: {movable}."


# --- Rules 6 to 8: repair, experiment, shape --------------------------------------------------------------------------


def _repair(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
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
    if _order(first.boundary) < _order(acts_at):
        yield f"A repair of kind {kind} acts at {acts_at}, but {quoted(first.id)} fails before it; repair that first."


def _experiment(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
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


def _shape(proposal: Proposal, evidence: Evidence) -> Iterator[str]:
    outcome = proposal.outcome
    if outcome == "experiment":
        if proposal.experiment is None:
            yield "The outcome is experiment, but no experiment is named; choose one entry of the catalogue."
        return
    if proposal.experiment is not None:
        yield f"The outcome is {outcome}, yet an experiment is named; leave it out, or make the outcome experiment."
    if outcome == "ask_operator" and not _filled(proposal.question):
        yield "The outcome is ask_operator, but the question is empty; ask for the one fact that would decide."
    if outcome == "inconclusive" and _filled(proposal.question):
        yield "The outcome is inconclusive, yet a question is asked; make the outcome ask_operator, or leave it out."
    if outcome == "nothing_to_repair":
        yield from _nothing_in_it(proposal)


def _nothing_in_it(proposal: Proposal) -> Iterator[str]:
    causes = dict.fromkeys(mechanism.id for mechanism in proposal.mechanisms if mechanism.id != "none")
    if causes:
        yield f"With nothing_to_repair the only mechanism is none; leave out: {', '.join(causes)}."
    if proposal.repair is not None:
        yield "With nothing_to_repair there is no repair; leave it out."


# --- The table --------------------------------------------------------------------------------------------------------

RULES: tuple[Rule, ...] = (
    Rule(
        "shape",
        "All four outcomes are valid answers. `experiment` names one entry of the catalogue, `ask_operator` asks "
        "a question and names no experiment, `inconclusive` does neither, `nothing_to_repair` names no mechanism "
        "but `none`, and no repair.",
        _shape,
        experiments_only=False,
    ),
    Rule(
        "first_boundary",
        "`first_boundary` and `first_row` are the chain's first divergence: the first row that fails, where none "
        "fails the first suspected one, `NONE` where there is neither (then there is no experiment). Or name an "
        "earlier boundary, there a row that neither passes nor fails, and the reason in `dissent`.",
        _first_boundary,
        experiments_only=False,
    ),
    Rule(
        "nothing_to_repair",
        "`nothing_to_repair` has the first boundary `NONE`, is refused while a row fails, and says in `dissent` why "
        "a suspected row, if there is one, is no fault.",
        _nothing_to_repair,
        experiments_only=False,
    ),
    Rule(
        "citations",
        "Every citation names an existing row, one of its values (or `status`, or `text`), and that value as it stands "
        "there. A fraction may be quoted with fewer digits, correctly rounded.",
        _citations,
        experiments_only=False,
    ),
    Rule("first_row_cited", "An experiment cites at least the first row.", _first_row_cited),
    Rule(
        "mechanisms",
        "An experiment has two or three mechanisms with different ids; any other answer has at most three. Each stands "
        "at the boundary of its family; `other` and `none` may stand at any.",
        _mechanisms,
        experiments_only=False,
    ),
    Rule(
        "lead",
        "The first mechanism is the one you believe: it stands at `first_boundary`, predicts a change for everything "
        "in `must_change`, and `same` (or nothing) for everything in `must_stay_unchanged`.",
        _lead,
    ),
    Rule(
        "predictions",
        "Every mechanism predicts every measurement in `must_change`, and all of them predict the same set of "
        "measurements, each once. `becomes` has a value; `up` and `down` are for numbers.",
        _predictions,
    ),
    Rule(
        "discrimination",
        "At least two mechanisms exclude each other on at least one measurement: same against any change, up against "
        "down, or two different values.",
        _discrimination,
    ),
    Rule("lists", "`must_change` and `must_stay_unchanged` are both filled, and share nothing.", _lists),
    Rule(
        "measurements",
        "Every measurement you name is in the list of measurements and could be taken on the observed run.",
        _measurements,
    ),
    Rule("foregone", "No prediction says that a measurement becomes what it already is.", _foregone),
    Rule("loss_alone", "`must_change` holds more than the loss: a better loss does not identify a cause.", _loss_alone),
    Rule(
        "stay_could_move",
        "At least one measurement in `must_stay_unchanged` is one that the experiment could have moved.",
        _stay_could_move,
    ),
    Rule(
        "repair",
        "No repair of kind precision (acts at GRADIENT), learning_rate or clipping (UPDATE), architecture (CAPABILITY) "
        "or more_data (EVALUATION) while a row at an earlier boundary fails, and never another optimizer. An "
        "experiment may vary one of them as a control.",
        _repair,
        experiments_only=False,
    ),
    Rule(
        "experiment",
        "One experiment, one change: an entry of the catalogue, with parameters it takes and a pattern that matches.",
        _experiment,
    ),
)


# --- Small helpers ----------------------------------------------------------------------------------------------------

_MEASURED_STATUSES = tuple(status for status in get_args(Status) if status != "not_measured")


def agrees(given: Value, actual: Value) -> bool:
    """Whether a quoted value is the actual one: equal, or an actual fraction rounded to the digits that were quoted.

    A number may be quoted as text. Zero is never a rounding of something else, counts are never rounded, and a
    yes or no is not a number.
    """
    if isinstance(given, list) or isinstance(actual, list):
        both = isinstance(given, list) and isinstance(actual, list)
        return both and len(given) == len(actual) and all(map(agrees, given, actual))  # type: ignore[arg-type]
    left, right = _number(given), _number(actual)
    if left is None or right is None:
        return isinstance(given, bool) == isinstance(actual, bool) and given == actual
    if left.is_nan() or right.is_nan():
        return left.is_nan() and right.is_nan()
    return left == right or (isinstance(actual, float) and _rounds_to(right, left))


def _rounds_to(exact: Decimal, printed: Decimal) -> bool:
    digits = len(printed.as_tuple().digits)
    # Both ways to round a final five are seen in print.
    modes = (ROUND_HALF_EVEN, ROUND_HALF_UP)
    return any(Context(prec=digits, rounding=mode, traps=[]).plus(exact) == printed for mode in modes)


def _number(value: Value) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and len(value) > LONGEST_NUMBER:
        return None
    try:
        return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    except InvalidOperation:
        return None


def _finite_number(value: Value) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def quoted(value: Value, limit: int = MAX_SHOWN) -> str:
    """A value as JSON in which nothing is markup, line break or invisible, cut where it is long.

    Names, texts and messages come from the user's files or from a model: quoted like this they stay data wherever
    they are printed. Where nothing was cut, a JSON parser reads the original back.
    """
    if isinstance(value, list):
        shown = [quoted(item, limit) for item in value[:MAX_LISTED]]
        rest = [f"... {len(value) - MAX_LISTED} more"] if len(value) > MAX_LISTED else []
        return "[" + ", ".join([*shown, *rest]) + "]"
    if isinstance(value, str):
        cut = value if len(value) <= limit else value[:limit] + "..."
        return "".join(map(_inert, json.dumps(cut, ensure_ascii=False)))
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**LONGEST_NUMBER:
        return "an integer of absurd length"  # Python refuses to print more than 4300 digits
    return json.dumps(value)


def _inert(character: str) -> str:
    if character.isprintable() and character not in "<>&`|":
        return character
    # As UTF-16, which is how JSON escapes what lies beyond four hexadecimal digits.
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def _listed(names: Iterable[str]) -> str:
    # Texts only, so no brackets: a comma-separated list with its tail cut.
    known = list(dict.fromkeys(names))
    shown = [quoted(name) for name in known[:MAX_LISTED]]
    return ", ".join([*shown, f"{len(known) - MAX_LISTED} more"] if len(known) > MAX_LISTED else shown) or "none"


def _usage(name: str) -> str:
    argument = MEASUREMENTS[name].argument
    return f"{name}[{argument}]" if argument else name


def _keys(proposal: Proposal) -> Iterator[str]:
    predicted = (p.measurement for mechanism in proposal.mechanisms for p in mechanism.predictions)
    yield from dict.fromkeys([*proposal.must_change, *proposal.must_stay_unchanged, *predicted])


def _order(boundary: str) -> int:
    # NONE (and anything unknown) comes after the last boundary: on a clean chain every dissent is an earlier one.
    return BOUNDARIES.index(boundary) if boundary in BOUNDARIES else len(BOUNDARIES)


def _filled(text: str | None) -> bool:
    return bool(text and text.strip())
