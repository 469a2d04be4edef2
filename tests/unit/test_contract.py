"""The contract: good and bad proposals by hand, each with the exact set of rules it breaks; then wild ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_args

import pytest
from evidence_samples import EMPTY, stale_head_evidence
from hypothesis import given, settings
from hypothesis import strategies as st

from weaklink.agent.contract import (
    ANY_BOUNDARY,
    BOUNDARY_OF,
    MAX_TEXTS,
    REPAIR_ACTS_AT,
    RULES,
    agrees,
    exclusive,
    quoted,
    violations,
)
from weaklink.agent.measurements import MEASUREMENTS
from weaklink.agent.proposal import Citation, Direction, Mechanism, MechanismFamily, Prediction, Proposal, Repair
from weaklink.collector.catalogue import CATALOGUE
from weaklink.collector.evidence import BOUNDARIES, Evidence, mark_downstream

OWNED = "row[OWNERSHIP/owned]"
MOVED = "row[UPDATE/moved]"


# --- The evidence of the stale head, and changes to it ----------------------------------------------------------------


def with_statuses(**changes: str) -> Evidence:
    """The same run with the status of some rows changed; `BOUNDARY_label="pass"`."""
    evidence = stale_head_evidence()
    for name, status in changes.items():
        row = evidence.row(name.replace("_", "/", 1))
        assert row is not None
        row.status = status  # type: ignore[assignment]
        row.basis = "exact" if status == "fail" else None
        row.reason = "no reason" if status == "not_measured" else None
    evidence.rows = mark_downstream(evidence.rows)
    return evidence


STALE_HEAD = stale_head_evidence()
CLEAN = with_statuses(OWNERSHIP_owned="pass", OWNERSHIP_stale="pass", UPDATE_moved="pass")
SUSPECTED = with_statuses(OWNERSHIP_owned="suspected", OWNERSHIP_stale="pass", UPDATE_moved="evidence")
UPDATE_FAILS = with_statuses(OWNERSHIP_owned="pass", OWNERSHIP_stale="pass")


# --- One good proposal, and changes to it -----------------------------------------------------------------------------


def predict(**expected: Any) -> list[dict[str, Any]]:
    """Predictions for the five measurements of the good proposal."""
    keys = {"owned": "owned[head.*]", "row": OWNED, "moved": "moved[head.*]", "features": "moved[features.*]"}
    made = []
    for name, expect in expected.items():
        kind, value = expect if isinstance(expect, tuple) else (expect, None)
        made.append({"measurement": keys.get(name, name), "expect": kind, "value": value})
    return made


def good() -> dict[str, Any]:
    return {
        "outcome": "experiment",
        "first_boundary": "OWNERSHIP",
        "first_row": "OWNERSHIP/owned",
        "cited": [
            {"row": "OWNERSHIP/owned", "field": "owned", "value": 0},
            {"row": "OWNERSHIP/owned", "field": "status", "value": "fail"},
            {"row": "OBJECTIVE/value", "field": "first", "value": 0.6836},
        ],
        "mechanisms": [
            {
                "id": "optimizer_holds_old_objects",
                "boundary": "OWNERSHIP",
                "explanation": "The head was replaced after the optimizer was built.",
                "predictions": predict(
                    owned=("becomes", 2), row=("becomes", "pass"), moved=("becomes", 2), features="same"
                ),
            },
            {
                "id": "zero_gradient",
                "boundary": "GRADIENT",
                "explanation": "Nothing moves because the derivatives vanish.",
                "predictions": predict(owned=("becomes", 2), row=("becomes", "pass"), moved="same", features="same"),
            },
        ],
        "experiment": {"name": "own_missing_parameters", "parameters": {"parameters": "head.*"}},
        "must_change": ["owned[head.*]", OWNED, "moved[head.*]"],
        "must_stay_unchanged": ["loss.first", "moved[features.*]"],
        "repair": {"text": "Build the optimizer after the new head.", "kind": "wiring"},
    }


def changed(*edits: Callable[[dict[str, Any]], object], **fields: Any) -> dict[str, Any]:
    made = good() | fields
    for edit in edits:
        edit(made)
    return made


def repair(kind: str) -> dict[str, str]:
    return {"text": "try it", "kind": kind}


def no_lists(outcome: str, **fields: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {"experiment": None, "must_change": [], "must_stay_unchanged": [], "repair": None}
    return changed(outcome=outcome, **(plain | {"mechanisms": []} | fields))


def predictions_of(made: dict[str, Any], mechanism: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = made["mechanisms"][mechanism]["predictions"]
    return found


def set_prediction(mechanism: int, index: int, expect: str, value: Any = None) -> Callable[[dict[str, Any]], object]:
    return lambda made: predictions_of(made, mechanism)[index].update(expect=expect, value=value)


def add_prediction(mechanism: int, key: str, expect: str, value: Any = None) -> Callable[[dict[str, Any]], object]:
    prediction = {"measurement": key, "expect": expect, "value": value}
    return lambda made: predictions_of(made, mechanism).append(prediction)


def in_both(key: str, lead: str, rival: str) -> Callable[[dict[str, Any]], object]:
    def edit(made: dict[str, Any]) -> None:
        add_prediction(0, key, lead)(made)
        add_prediction(1, key, rival)(made)

    return edit


def cite(row: str, field: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda made: made["cited"].append({"row": row, "field": field, "value": value})


def third(family: str, boundary: str) -> Callable[[dict[str, Any]], object]:
    same = predict(owned="same", row="same", moved="same", features="same")
    mechanism = {"id": family, "boundary": boundary, "explanation": "", "predictions": same}
    return lambda made: made["mechanisms"].append(mechanism)


def lead(family: str, boundary: str) -> Callable[[dict[str, Any]], object]:
    return lambda made: made["mechanisms"][0].update(id=family, boundary=boundary)


def without_row(made: dict[str, Any]) -> None:
    """Nothing about the row of ownership, which passes on a clean chain."""
    made["must_change"].remove(OWNED)
    for mechanism in (0, 1):
        predictions_of(made, mechanism).pop(1)


NOTHING = {"first_boundary": "NONE", "first_row": None, "cited": []}
AT_TASK = {
    "first_boundary": "TASK",
    "first_row": "TASK/classes",
    "dissent": "The labels may not belong to the inputs; nobody has looked.",
    "cited": [{"row": "TASK/classes", "field": "majority", "value": 0.51}],
}

CASES: dict[str, tuple[Evidence, dict[str, Any], set[str]]] = {
    # Accepted.
    "good": (STALE_HEAD, good(), set()),
    "three mechanisms": (STALE_HEAD, changed(third("other", "DEPENDENCY")), set()),
    "healthy as the rival": (STALE_HEAD, changed(third("none", "NONE")), set()),
    "no repair yet": (STALE_HEAD, changed(repair=None), set()),
    "a list, a text and a rounded value": (
        STALE_HEAD,
        changed(
            cite("OWNERSHIP/owned", "missing", ["head.weight", "head.bias"]),
            cite("OWNERSHIP/owned", "text", "0 of 2 live trainable parameters are held by an optimizer"),
            cite("TASK/classes", "majority", 0.51),
            cite("OWNERSHIP/owned", "expected", "2.0"),
        ),
        set(),
    ),
    "a reasoned dissent": (STALE_HEAD, changed(lead("other", "TASK"), **AT_TASK), set()),
    "a reasoned dissent on a clean chain": (
        CLEAN,
        changed(lead("other", "TASK"), without_row, **AT_TASK),
        set(),
    ),
    "asks": (STALE_HEAD, no_lists("ask_operator", question="Is the head meant to be new?"), set()),
    "asks on a clean chain": (CLEAN, no_lists("ask_operator", question="Which metric?", **NOTHING), set()),
    "inconclusive": (STALE_HEAD, no_lists("inconclusive", first_row=None), set()),
    "inconclusive on a clean chain": (CLEAN, no_lists("inconclusive", **NOTHING), set()),
    "nothing to repair": (CLEAN, no_lists("nothing_to_repair", **NOTHING), set()),
    "nothing to repair, with its mechanism": (
        CLEAN,
        no_lists(
            "nothing_to_repair", mechanisms=[{"id": "none", "boundary": "NONE", "explanation": "healthy"}], **NOTHING
        ),
        set(),
    ),
    "nothing to repair although suspected": (
        SUSPECTED,
        no_lists("nothing_to_repair", dissent="Only the head is meant to train.", **NOTHING),
        set(),
    ),
    "suspected row": (
        SUSPECTED,
        changed(lambda made: made["cited"].pop(1)),
        set(),
    ),
    "rate repaired where it breaks": (
        UPDATE_FAILS,
        no_lists(
            "inconclusive", first_boundary="UPDATE", first_row="UPDATE/moved", cited=[], repair=repair("learning_rate")
        ),
        set(),
    ),
    # First boundary.
    "no such boundary": (STALE_HEAD, no_lists("inconclusive", first_boundary="owner ship"), {"first_boundary"}),
    "the second failing row": (STALE_HEAD, changed(first_row="OWNERSHIP/stale"), {"first_boundary"}),
    "no row": (STALE_HEAD, changed(first_row=None), {"first_boundary"}),
    "later boundary, with a reason": (
        STALE_HEAD,
        changed(lead("other", "UPDATE"), first_boundary="UPDATE", first_row="UPDATE/moved", dissent="I think so."),
        {"first_boundary"},
    ),
    "earlier boundary, no reason": (
        STALE_HEAD,
        no_lists("inconclusive", **(AT_TASK | {"dissent": "  "})),
        {"first_boundary"},
    ),
    "dissent where all rows pass": (
        STALE_HEAD,
        no_lists("inconclusive", first_boundary="DEPENDENCY", first_row="DEPENDENCY/reached", dissent="a cut"),
        {"first_boundary"},
    ),
    "dissent at a passing row": (
        STALE_HEAD,
        no_lists("inconclusive", first_boundary="GRADIENT", first_row="GRADIENT/present", dissent="too small"),
        {"first_boundary"},
    ),
    "none on a failing chain": (STALE_HEAD, no_lists("inconclusive", **NOTHING), {"first_boundary"}),
    "an experiment on a clean chain": (
        CLEAN,
        changed(without_row, **NOTHING),
        {"first_boundary", "lead"},
    ),
    # Nothing to repair.
    "nothing to repair while a row fails": (
        STALE_HEAD,
        no_lists("nothing_to_repair", **NOTHING),
        {"nothing_to_repair"},
    ),
    "nothing to repair, suspicion ignored": (
        SUSPECTED,
        no_lists("nothing_to_repair", **NOTHING),
        {"nothing_to_repair"},
    ),
    "nothing to repair, yet a boundary": (
        CLEAN,
        no_lists("nothing_to_repair", first_boundary="TASK", first_row=None, cited=[]),
        {"nothing_to_repair"},
    ),
    # Citations.
    "wrong count": (STALE_HEAD, changed(cite("OWNERSHIP/owned", "expected", 6)), {"citations"}),
    "wrongly rounded": (STALE_HEAD, changed(cite("OBJECTIVE/value", "first", 0.6837)), {"citations"}),
    "no such row": (STALE_HEAD, changed(cite("OWNERSHIP/holder", "owned", 0)), {"citations"}),
    "no such field": (STALE_HEAD, changed(cite("OWNERSHIP/owned", "held", 0)), {"citations"}),
    "yes for a number": (STALE_HEAD, changed(cite("OWNERSHIP/owned", "owned", False)), {"citations"}),
    "first row not cited": (
        STALE_HEAD,
        changed(cited=[{"row": "UPDATE/moved", "field": "moved", "value": 0}]),
        {"first_row_cited"},
    ),
    "dissent without its row": (
        STALE_HEAD,
        changed(lead("other", "TASK"), **(AT_TASK | {"cited": []})),
        {"first_row_cited"},
    ),
    # Mechanisms, predictions, discrimination.
    "one mechanism": (STALE_HEAD, changed(lambda made: made["mechanisms"].pop()), {"mechanisms"}),
    "four mechanisms": (
        STALE_HEAD,
        changed(third("other", "TASK"), third("none", "NONE")),
        {"mechanisms"},
    ),
    "one mechanism twice": (STALE_HEAD, changed(third("zero_gradient", "GRADIENT")), {"mechanisms"}),
    "family at the wrong boundary": (STALE_HEAD, changed(third("rate_wrong", "GRADIENT")), {"mechanisms"}),
    "other at no boundary": (STALE_HEAD, changed(third("other", "HEAD")), {"mechanisms"}),
    "the lead explains another boundary": (
        STALE_HEAD,
        changed(lambda made: made["mechanisms"].reverse(), set_prediction(0, 2, "becomes", 2)),
        {"lead", "discrimination", "decides", "grounds"},
    ),
    "a rival that agrees with the lead everywhere": (
        STALE_HEAD,
        changed(
            lambda made: made["mechanisms"].append(
                made["mechanisms"][0] | {"id": "not_in_optimizer", "explanation": "Never handed over."}
            )
        ),
        {"discrimination"},
    ),
    "the lead predicts a must-change unmoved": (
        STALE_HEAD,
        changed(set_prediction(0, 0, "same")),
        {"lead"},
    ),
    "the lead moves a must-stay": (STALE_HEAD, changed(set_prediction(0, 3, "up")), {"lead"}),
    "a must-change left open": (
        STALE_HEAD,
        changed(lambda made: made["must_change"].append(MOVED)),
        {"predictions"},
    ),
    "a rival silent on one": (STALE_HEAD, changed(lambda made: predictions_of(made, 1).pop()), {"predictions"}),
    "predicted twice": (STALE_HEAD, changed(add_prediction(1, "moved[head.*]", "same")), {"predictions"}),
    "becomes nothing": (STALE_HEAD, changed(set_prediction(1, 0, "becomes")), {"predictions"}),
    "a row becomes healed": (STALE_HEAD, changed(set_prediction(1, 1, "becomes", "healed")), {"predictions"}),
    "a row goes up": (STALE_HEAD, changed(set_prediction(1, 1, "up")), {"predictions"}),
    "no disagreement": (STALE_HEAD, changed(set_prediction(1, 2, "becomes", "2")), {"discrimination"}),
    "up and different agree": (
        STALE_HEAD,
        changed(set_prediction(0, 2, "up"), set_prediction(1, 2, "different")),
        {"discrimination"},
    ),
    # Lists and measurements.
    "nothing must change": (STALE_HEAD, changed(must_change=[]), {"lists"}),
    "nothing must stay": (STALE_HEAD, changed(must_stay_unchanged=[]), {"lists"}),
    "both lists": (
        STALE_HEAD,
        changed(must_stay_unchanged=["moved[features.*]", "moved[head.*]"]),
        {"lists", "lead"},
    ),
    "no such measurement": (
        STALE_HEAD,
        changed(must_stay_unchanged=["moved[features.*]", "gradient.noise"]),
        {"measurements"},
    ),
    "a second spelling": (
        STALE_HEAD,
        changed(must_stay_unchanged=["moved[features.*]", "loss.first\n"]),
        {"measurements"},
    ),
    "brackets missing": (STALE_HEAD, changed(in_both("delta.net", "up", "same")), {"measurements"}),
    "a pattern without parameters": (
        STALE_HEAD,
        changed(must_stay_unchanged=["moved[neck.*]"]),
        {"measurements"},
    ),
    "a row that does not exist": (STALE_HEAD, changed(in_both("row[UPDATE/rate]", "same", "same")), {"measurements"}),
    "a row that was not measured": (
        STALE_HEAD,
        changed(must_stay_unchanged=["moved[features.*]", "row[EVALUATION/gap]"]),
        {"measurements"},
    ),
    "a row becomes what it is": (STALE_HEAD, changed(set_prediction(1, 1, "becomes", "fail")), {"foregone"}),
    "a count becomes what it is": (STALE_HEAD, changed(set_prediction(1, 2, "becomes", 0.0)), {"foregone"}),
    "the loss alone": (
        STALE_HEAD,
        changed(in_both("loss.last", "down", "same"), must_change=["loss.last"]),
        {"loss_alone"},
    ),
    "a stay-list out of reach": (
        STALE_HEAD,
        changed(must_stay_unchanged=["loss.first", "gradient.first[head.*]", "input.first"]),
        {"stay_could_move"},
    ),
    # Repair, experiment, shape.
    "a smaller rate while ownership fails": (STALE_HEAD, changed(repair=repair("learning_rate")), {"repair"}),
    "more data while ownership fails": (STALE_HEAD, changed(repair=repair("more_data")), {"repair"}),
    "precision acts before ownership": (STALE_HEAD, changed(repair=repair("precision")), set()),
    "another optimizer": (STALE_HEAD, changed(repair=repair("optimizer")), {"repair"}),
    "another optimizer on a clean chain": (
        CLEAN,
        no_lists("inconclusive", repair=repair("optimizer"), **NOTHING),
        {"repair"},
    ),
    "no such experiment": (
        STALE_HEAD,
        changed(experiment={"name": "rewrite_it", "parameters": {}}),
        {"experiment"},
    ),
    "no such parameter": (
        STALE_HEAD,
        changed(experiment={"name": "own_missing_parameters", "parameters": {"lr": 0.1}}),
        {"experiment"},
    ),
    "a pattern of the wrong type": (
        STALE_HEAD,
        changed(experiment={"name": "own_missing_parameters", "parameters": {"parameters": 3}}),
        {"experiment"},
    ),
    "an experiment on nothing": (
        STALE_HEAD,
        changed(experiment={"name": "own_missing_parameters", "parameters": {"parameters": "haed.*"}}),
        {"experiment"},
    ),
    "a module to draw anew": (
        STALE_HEAD,
        changed(lead("other", "OWNERSHIP"), experiment={"name": "reinitialize", "parameters": {"module": "he*"}}),
        set(),
    ),
    "no such module": (
        STALE_HEAD,
        changed(lead("other", "OWNERSHIP"), experiment={"name": "reinitialize", "parameters": {"module": "head.0.*"}}),
        {"experiment"},
    ),
    "an experiment that decides other families": (
        STALE_HEAD,
        changed(experiment={"name": "scale_lr", "parameters": {"factor": 0.5}}),
        {"decides"},
    ),
    "a healthy run as the lead": (STALE_HEAD, changed(lead("none", "OWNERSHIP")), {"decides"}),
    "never given, where older objects are held": (
        STALE_HEAD,
        changed(lead("not_in_optimizer", "OWNERSHIP")),
        {"grounds"},
    ),
    "experiment without one": (STALE_HEAD, changed(experiment=None), {"shape"}),
    "asks nothing": (STALE_HEAD, no_lists("ask_operator", question=" "), {"shape"}),
    "asks and experiments": (
        STALE_HEAD,
        no_lists("ask_operator", question="?", experiment={"name": "own_missing_parameters", "parameters": {}}),
        {"shape"},
    ),
    "inconclusive, yet asks": (STALE_HEAD, no_lists("inconclusive", question="Which head?"), {"shape"}),
    "nothing to repair, yet a cause": (
        CLEAN,
        no_lists(
            "nothing_to_repair", mechanisms=[{"id": "capacity", "boundary": "CAPABILITY", "explanation": ""}], **NOTHING
        ),
        {"shape"},
    ),
    "nothing to repair, yet a repair": (
        CLEAN,
        no_lists("nothing_to_repair", repair=repair("data"), **NOTHING),
        {"shape"},
    ),
    "a line that nobody showed": (
        STALE_HEAD,
        changed(sources=[{"file": "train.py", "line": 41, "text": "AdamW("}]),
        {"sources"},
    ),
    # In pairs.
    "wrong row and wrong value": (
        STALE_HEAD,
        changed(cite("OWNERSHIP/owned", "owned", 1), first_row="UPDATE/moved"),
        {"first_boundary", "citations"},
    ),
    "loss alone, nothing in reach": (
        STALE_HEAD,
        changed(in_both("loss.last", "down", "same"), must_change=["loss.last"], must_stay_unchanged=["loss.first"]),
        {"loss_alone", "stay_could_move"},
    ),
    "no experiment, premature repair": (
        STALE_HEAD,
        changed(experiment=None, repair=repair("architecture")),
        {"shape", "repair"},
    ),
    "empty lists, no citation": (
        STALE_HEAD,
        changed(must_change=[], must_stay_unchanged=[], cited=[]),
        {"lists", "first_row_cited"},
    ),
    "unknown experiment, foregone prediction": (
        STALE_HEAD,
        changed(set_prediction(1, 0, "becomes", 0), experiment={"name": "clip", "parameters": {}}),
        {"experiment", "foregone"},
    ),
    "nothing to repair, a premature repair and a failing row": (
        STALE_HEAD,
        no_lists("nothing_to_repair", repair=repair("clipping"), **NOTHING),
        {"shape", "nothing_to_repair", "repair"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_proposal_breaks_exactly_these_rules(name: str) -> None:
    evidence, made, expected = CASES[name]
    found = violations(Proposal.model_validate(made), evidence)
    assert {violation.rule for violation in found} == expected, "\n".join(map(str, found))
    for violation in found:
        assert violation.text.endswith("."), violation
        assert "\n" not in violation.text


def test_every_rule_is_broken_by_some_case() -> None:
    assert {rule for _, _, expected in CASES.values() for rule in expected} == {rule.name for rule in RULES}
    assert len(CASES) > 25


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong count", '"OWNERSHIP/owned" has "expected" = 2, not 6.'),
        (
            "the second failing row",
            'first_row is "OWNERSHIP/stale"; the chain\'s first divergence is "OWNERSHIP/owned".',
        ),
        ("family at the wrong boundary", 'rate_wrong stands at "GRADIENT"; its family belongs to UPDATE.'),
        ("no such experiment", f"choose one of: {', '.join(sorted(CATALOGUE))}"),
        ("a smaller rate while ownership fails", 'acts at UPDATE, but "OWNERSHIP/owned" fails before it'),
    ],
)
def test_the_sentence_names_the_offence_and_the_cure(name: str, words: str) -> None:
    evidence, made, _ = CASES[name]
    assert words in "\n".join(violation.text for violation in violations(Proposal.model_validate(made), evidence))


def test_families_cover_the_proposal_schema() -> None:
    assert {*BOUNDARY_OF, *ANY_BOUNDARY} == set(get_args(MechanismFamily))
    assert set(BOUNDARY_OF.values()) == set(BOUNDARIES)


def test_repair_kinds_exist() -> None:
    assert set(REPAIR_ACTS_AT) <= set(get_args(Repair.model_fields["kind"].annotation))


def test_catalogue_moves_known_measurements_only() -> None:
    for entry in CATALOGUE.values():
        assert entry.can_move <= set(MEASUREMENTS), entry.name


@pytest.mark.parametrize(
    ("given_value", "actual", "expected"),
    [
        (0, 0.0, True),
        ("0", 0, True),
        ("0.6836", 0.683606, True),
        (0.68361, 0.683606, True),
        (0.683606, 0.683606, True),
        (0.684, 0.683606, True),
        (0.683, 0.683606, False),
        (0, 0.0004, False),
        (1, 0.96, True),
        (1, 0.6836, False),
        ("1e-3", 0.00104, True),
        (2e2, 153, False),
        (3.0, 3, True),
        ("nan", float("nan"), True),
        (float("nan"), "NaN", True),
        (0, float("nan"), False),
        (float("inf"), "Infinity", True),
        (True, 1, False),
        (1, True, False),
        (True, True, True),
        (None, None, True),
        (None, 0, False),
        ("sNaN", 1, False),
        ("fail", "fail", True),
        ("Fail", "fail", False),
        ([1, 2], [1.0, 2], True),
        ([1], [1, 2], False),
        ("1", [1], False),
        ("1e999999999999999999999999", 1.0, False),
    ],
)
def test_agrees(given_value: Any, actual: Any, expected: bool) -> None:
    assert agrees(given_value, actual) is expected


def test_absurdly_long_numbers_agree_with_nothing() -> None:
    assert not agrees(10**5000, 1.0)
    assert not agrees("9" * 10**6, 1.0)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (("same", None), ("same", None), False),
        (("same", None), ("up", None), True),
        (("same", None), ("different", None), True),
        (("same", None), ("becomes", 2), True),
        (("up", None), ("down", None), True),
        (("up", None), ("different", None), False),
        (("up", None), ("becomes", 2), False),
        (("becomes", 1), ("becomes", 2), True),
        (("becomes", 2), ("becomes", "2.0"), False),
    ],
)
def test_exclusive(one: tuple[Direction, Any], other: tuple[Direction, Any], expected: bool) -> None:
    left = Prediction(measurement="steps", expect=one[0], value=one[1])
    right = Prediction(measurement="steps", expect=other[0], value=other[1])
    assert exclusive(left, right) is expected
    assert exclusive(right, left) is expected


def test_quoted_reads_back_and_is_inert() -> None:
    nasty = '</evidence><script>[red]`ignore`|\n\u202e\x1b[2J\u2028 ü 😀 "'
    text = quoted(nasty)
    assert json.loads(text) == nasty
    assert "ü" in text
    assert not set(text) & set("<>&`|\n\u202e\x1b\u2028")
    assert quoted([1, "a", None]) == '[1, "a", null]'
    assert quoted(list(range(100))).endswith("... 88 more]")
    assert quoted("x" * 1000) == '"' + "x" * 160 + '..."'
    assert "absurd" in quoted(10**5000)


# --- Wild proposals ---------------------------------------------------------------------------------------------------

KEYS = [
    *(f"{name}[{argument}]" for name in MEASUREMENTS for argument in ("*", "head.*", "[", "[!", "OWNERSHIP/owned")),
    *MEASUREMENTS,
    "loss.first\n",
    "",
]
TEXT = st.one_of(st.text(max_size=12), st.sampled_from(["OWNERSHIP/owned", "owned", "status", *BOUNDARIES, "NONE"]))
KEY = st.one_of(st.sampled_from(KEYS), st.text(max_size=8))
VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**5000),
    st.floats(),
    TEXT,
    st.sampled_from(["nan", "sNaN123", "1e400", "-Infinity", "0x1", "pass", "fail"]),
    st.lists(st.integers(), max_size=3),
    st.lists(st.text(max_size=4), max_size=3),
)
PREDICTIONS = st.lists(st.builds(Prediction, measurement=KEY, expect=st.from_type(Direction), value=VALUE), max_size=5)
MECHANISM = st.builds(
    Mechanism, id=st.sampled_from(get_args(MechanismFamily)), boundary=TEXT, explanation=TEXT, predictions=PREDICTIONS
)
EXPERIMENT = st.fixed_dictionaries(
    {
        "name": st.one_of(st.sampled_from(sorted(CATALOGUE)), st.text(max_size=5)),
        "parameters": st.dictionaries(st.one_of(st.just("parameters"), st.text(max_size=5)), VALUE, max_size=2),
    }
)
PROPOSAL = st.builds(
    Proposal,
    outcome=st.sampled_from(["experiment", "experiment", "ask_operator", "inconclusive", "nothing_to_repair"]),
    first_boundary=TEXT,
    first_row=st.none() | TEXT,
    dissent=st.none() | TEXT,
    cited=st.lists(st.builds(Citation, row=TEXT, field=TEXT, value=VALUE), max_size=5),
    mechanisms=st.lists(MECHANISM, max_size=4),
    experiment=st.none() | EXPERIMENT,
    must_change=st.lists(KEY, max_size=5),
    must_stay_unchanged=st.lists(KEY, max_size=5),
    question=st.none() | TEXT,
    repair=st.none() | st.from_type(Repair),
)


@given(proposal=PROPOSAL, evidence=st.sampled_from([STALE_HEAD, CLEAN, SUSPECTED, EMPTY]))
@settings(max_examples=400, deadline=None)
def test_never_raises_and_is_deterministic(proposal: Proposal, evidence: Evidence) -> None:
    before = evidence.model_dump_json()
    found = violations(proposal, evidence)
    assert found == violations(proposal.model_copy(deep=True), evidence)
    assert evidence.model_dump_json() == before
    for violation in found:
        assert violation.text.isprintable()


def test_huge_proposals_get_few_sentences() -> None:
    mechanism = good()["mechanisms"][1]
    made = changed(
        cited=[{"row": f"TASK/{number}", "field": "x" * 10_000, "value": number} for number in range(5_000)],
        mechanisms=[mechanism] * 2_000,
        must_change=[f"moved[{number}]" for number in range(5_000)],
        must_stay_unchanged=["x" * 100_000],
        first_boundary="y" * 100_000,
    )
    found = violations(Proposal.model_validate(made), STALE_HEAD)
    assert len(found) <= MAX_TEXTS * len(RULES)
    assert max(len(violation.text) for violation in found) < 4_000
