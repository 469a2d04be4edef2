"""The ablation's marks and intervals: pure functions, held against values known from elsewhere."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from ablation.answer import SmallAnswer, objections, read_answer, same_file, small_form
from ablation.intervals import paired, share, wilson
from ablation.scoring import Result, at_fault, mark
from ablation.subjects import BUCKETS, Subject, digest, read_subjects, sample
from ablation.table import markdown
from hypothesis import given
from hypothesis import strategies as st
from score.cases import Case

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "cases"


def subject(variant: str = "broken", **expected: Any) -> Subject:
    says = {"first_boundary": "OWNERSHIP", "also_acceptable": ["UPDATE"], "family": "not_in_optimizer", **expected}
    places = frozenset({("train.py", 40), ("train.py", 41)})
    case = Case("scripts", "some", says, lambda variant, folder: None, ["train.py"], places, True)
    return Subject(case, variant)  # type: ignore[arg-type]


# -- intervals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hits", "tries", "low", "high"),
    [
        # Newcombe 1998, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0),
    ],
)
def test_wilson_intervals_are_those_of_the_literature(hits: int, tries: int, low: float, high: float) -> None:
    assert wilson(hits, tries) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(0, 400).flatmap(lambda tries: st.tuples(st.integers(0, tries), st.just(tries))))
def test_an_interval_holds_its_share_and_solves_wilsons_equation(counts: tuple[int, int]) -> None:
    hits, tries = counts
    low, high = wilson(hits, tries)
    assert 0 <= low <= high <= 1
    if tries:
        assert low <= hits / tries <= high
        for end in (low, high):
            # The score test is just at its limit there: the definition of the interval.
            assert abs(hits / tries - end) == pytest.approx(
                1.959963984540054 * math.sqrt(end * (1 - end) / tries), abs=1e-9
            )


def test_no_share_of_more_than_all() -> None:
    with pytest.raises(ValueError, match="5 of 4"):
        wilson(5, 4)
    assert share(0, 0) == "none"
    assert share(0, 20) == "0/20 (0 %, 0-16)"


def test_paired_subjects_are_compared_by_those_that_differ() -> None:
    pairs = [(True, True)] * 7 + [(False, False)] * 3 + [(False, True)] * 6 + [(True, False)]
    assert paired(pairs) == (6, 1, pytest.approx(2 * (1 + 7) / 2**7))
    assert paired([(True, True)] * 4) == (0, 0, 1.0)


# -- marks -------------------------------------------------------------------------------------------------------------


def test_a_right_answer_has_all_marks_and_an_acceptable_boundary_counts() -> None:
    marks = mark(subject(), SmallAnswer("OWNERSHIP", "train.py", 40, "not_in_optimizer"))
    assert (marks.boundary, marks.line_exact, marks.line_near, marks.family, marks.accused) == (True,) * 4 + (None,)
    assert mark(subject(), SmallAnswer("UPDATE")).boundary is True
    assert mark(subject(), SmallAnswer("GRADIENT")).boundary is False


@pytest.mark.parametrize(
    ("line", "exact", "near"),
    [(40, True, True), (44, False, True), (45, False, False), (37, False, True), (36, False, False)],
)
def test_a_line_is_near_within_three(line: int, exact: bool, near: bool) -> None:
    marks = mark(subject(), SmallAnswer("OWNERSHIP", "train.py", line))
    assert (marks.line_exact, marks.line_near) == (exact, near)


def test_a_line_in_another_file_and_a_line_that_was_not_said_are_wrong() -> None:
    places = subject().case.places
    assert at_fault(SmallAnswer("UPDATE", "other.py", 40), places, 0) is False
    assert at_fault(SmallAnswer("UPDATE", "xtrain.py", 40), places, 0) is False
    assert at_fault(SmallAnswer("UPDATE", "train.py", None), places, 3) is False
    assert at_fault(None, places, 3) is False


def test_where_a_file_is_at_fault_any_line_of_it_counts_and_where_no_place_is_known_none_does() -> None:
    assert at_fault(SmallAnswer("TASK", "data/labels.csv"), frozenset({("data/labels.csv", None)}), 0) is True
    assert at_fault(SmallAnswer("TASK", "train.py", 3), frozenset(), 0) is None
    assert at_fault(SmallAnswer("TASK", "train.py", 3), frozenset({("", None)}), 0) is None


@pytest.mark.parametrize("variant", ["broken", "fixed"])
def test_a_healthy_run_is_accused_by_a_fault_and_by_nothing_else(variant: str) -> None:
    healthy = subject(variant, **({"first_boundary": "NONE", "family": "none"} if variant == "broken" else {}))
    assert mark(healthy, SmallAnswer("OWNERSHIP")).accused is True
    assert mark(healthy, SmallAnswer("NONSENSE")).accused is True
    assert mark(healthy, SmallAnswer("NONE")).accused is False
    assert mark(healthy, SmallAnswer("NONE")).right is True
    unreadable = mark(healthy, None)
    assert (unreadable.accused, unreadable.right) == (False, False)
    assert mark(healthy, SmallAnswer("OWNERSHIP")).boundary is None, "counts among the healthy ones alone"


def test_who_says_that_nothing_is_wrong_has_found_no_line_and_no_cause() -> None:
    marks = mark(subject(), SmallAnswer("NONE", "train.py", 40, "not_in_optimizer"))
    assert (marks.boundary, marks.line_exact, marks.line_near, marks.family) == (False,) * 4


def test_an_unreadable_answer_is_wrong_about_a_fault() -> None:
    marks = mark(subject(), None)
    assert (marks.boundary, marks.line_exact, marks.line_near, marks.family) == (False,) * 4


@pytest.mark.parametrize(
    ("said", "same"),
    [
        ("visionlab/optim/clip.py", True),
        ("./visionlab/optim/clip.py", True),
        ("clip.py", True),
        ("optim\\clip.py", True),
        ("/tmp/project/visionlab/optim/clip.py", True),
        ("lip.py", False),
        ("other/clip.py", False),
        ("", False),
        (".", False),
    ],
)
def test_a_file_is_meant_by_its_path_or_by_the_end_of_it(said: str, same: bool) -> None:
    assert same_file("visionlab/optim/clip.py", said) is same


# -- reading -----------------------------------------------------------------------------------------------------------

WANTED = SmallAnswer("OWNERSHIP", "train.py", 40, "not_in_optimizer", 0.9)
BODY = '{"boundary": "OWNERSHIP", "file": "train.py", "line": 40, "family": "not_in_optimizer", "confidence": 0.9}'


@pytest.mark.parametrize(
    "text",
    [
        BODY,
        f"Let me think {{about it}}.\n```json\n{BODY}\n```\nI hope this helps {{}}!",
        f'{{"boundary": "UPDATE", "reason": "a first thought"}} No, rather:\n{BODY}',
        f'<think>{{"boundary": "NONE"}}</think>{BODY}',
        f'{{"answer": {BODY}}}',
        f"[{BODY}]",
        BODY.replace('"OWNERSHIP"', '" ownership "').replace("not_in_optimizer", "Not in-optimizer"),
        BODY.replace("40", '"line 40"').replace("0.9", '"90 %"'),
        BODY.replace("40", '"40-44"'),
        BODY.replace("40", "40.0"),
        BODY.replace('"train.py", "line": 40', '"train.py:40", "line": null'),
        BODY.replace('"train.py", "line": 40', '"train.py:40-44"'),
        BODY.replace("{", '{"reason": "two\nlines", ', 1),
        "{" * 3000 + BODY,
        '{"a": ' * 2000 + BODY,
    ],
)
def test_an_answer_is_read_from_whatever_stands_around_it(text: str) -> None:
    assert read_answer(text) == WANTED


@pytest.mark.parametrize(
    "text", ["", "OWNERSHIP", "null", "{}", '{"boundary": 3}', '{"boundary": null}', BODY[:40], '{"BOUNDARY": "TASK"}']
)
def test_what_holds_no_answer_is_none(text: str) -> None:
    assert read_answer(text) is None


@pytest.mark.parametrize("line", ["true", "-3", "0", "1e400", "NaN", '"x"', "[40]", "{}", "99999999999", "40.5"])
def test_a_line_that_is_none_is_not_read_as_one(line: str) -> None:
    answer = read_answer(BODY.replace("40", line))
    assert answer is not None
    assert answer.line is None
    assert answer.boundary == "OWNERSHIP"


@pytest.mark.parametrize("said", ["true", "-1", "90", "NaN", "Infinity", '"high"', "null"])
def test_a_confidence_that_is_none_is_left_out(said: str) -> None:
    answer = read_answer(BODY.replace("0.9", said))
    assert answer is not None
    assert answer.confidence is None


@given(
    st.text()
    | st.recursive(st.none() | st.floats() | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)).map(
        json.dumps
    )
)
def test_no_text_makes_reading_fail(text: str) -> None:
    read_answer(text)


@given(
    st.dictionaries(
        st.sampled_from(["boundary", "file", "line", "family", "confidence"]),
        st.none() | st.floats() | st.text() | st.integers() | st.lists(st.text()),
    )
)
def test_no_values_make_reading_or_marking_fail(body: dict[str, Any]) -> None:
    answer = read_answer(json.dumps(body))
    marks = mark(subject(), answer)
    objections(answer, {"train.py": 50})
    table = markdown([Result("scripts/some", "source", "kept", marks)], {"scripts/some": "OWNERSHIP"}, ["source"])
    assert len({line.count("|") for line in table.splitlines()[-3:]}) == 1, "no word of a model's opens a cell"


@pytest.mark.parametrize(
    "text", ["{" * 10**6, '{"a":' * 10**6, '{"a":"' + "{" * 10**6, '{"boundary":"' + "x" * 10**7, "[" * 10**6]
)
def test_a_hostile_answer_is_refused_in_no_time(text: str) -> None:
    started = time.perf_counter()
    assert read_answer(text) is None
    assert time.perf_counter() - started < 5


def test_the_form_holds_what_strict_modes_ask_for() -> None:
    schema = small_form().schema
    assert schema["required"] == list(schema["properties"])
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({}, None),
        ({"boundary": "OPTIMIZER"}, "a boundary that there is not"),
        ({"family": "bad_luck"}, "a family that there is not"),
        ({"family": None}, "a family that there is not"),
        ({"family": "graph_cut"}, "a family of another boundary"),
        ({"boundary": "NONE", "family": "other"}, "nothing is wrong, and yet a cause"),
        ({"file": "model.py"}, "a file that there is not"),
        ({"line": 51}, "a line behind the end of the file"),
    ],
)
def test_what_an_answer_breaks_is_named(changed: dict[str, Any], sentence: str | None) -> None:
    answer = SmallAnswer(**{**WANTED.__dict__, **changed})
    found = objections(answer, {"train.py": 50})
    assert (sentence in found) if sentence else not found


def test_who_was_shown_no_files_is_not_held_to_their_names() -> None:
    assert objections(SmallAnswer("UPDATE", "model.py", 3, "rate_wrong"), None) == []


# -- subjects ----------------------------------------------------------------------------------------------------------


def test_repaired_variants_are_healthy_and_a_project_has_one_for_each_command() -> None:
    subjects = read_subjects(CASES)
    names = [each.name for each in subjects]
    assert len(set(names)) == len(names)
    assert all(each.healthy for each in subjects if each.name.endswith("@fixed"))
    repaired = [each for each in subjects if each.case.kind == "projects" and each.variant == "fixed"]
    commands = [(each.case.name.partition("/")[0], tuple(each.case.arguments)) for each in repaired]
    assert repaired
    assert len(set(commands)) == len(commands)


def test_a_sample_is_balanced_and_a_larger_one_goes_on_from_it() -> None:
    subjects = read_subjects(CASES)
    assert {each.bucket for each in sample(subjects, len(BUCKETS))} == set(BUCKETS)
    assert sample(subjects, 25)[:8] == sample(list(reversed(subjects)), 8)
    assert sample(subjects, 8, seed=1) != sample(subjects, 8, seed=0)
    assert len(sample(subjects, 10**6)) == len(subjects)


def test_subjects_are_chosen_by_patterns() -> None:
    assert all(each.name.startswith("inputs/") for each in read_subjects(CASES, ["inputs/*"]))
    one = read_subjects(CASES, ["batchnorm_momentum_zero"])
    assert [each.name for each in one] == ["scripts/batchnorm_momentum_zero"]
    assert read_subjects(CASES, ["no_such_case"]) == []


def test_a_case_that_was_changed_has_another_digest(tmp_path: Path) -> None:
    folder = tmp_path / "scripts" / "some"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text("a")
    before = digest(tmp_path, subject())
    assert digest(tmp_path, subject()) == before
    assert digest(tmp_path, subject("fixed")) != before
    (folder / "train.py").write_text("b")
    assert digest(tmp_path, subject()) != before


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_table_counts_faults_and_healthy_runs_apart_and_says_what_is_missing() -> None:
    right = mark(subject(), WANTED)
    results = [
        Result("a", "source", "kept", right, refused=False, seconds=2.0, cost=0.5),
        Result("b", "source", "pasted", mark(subject(), None), refused=True),
        Result("c", "source", "kept", mark(subject("fixed"), SmallAnswer("TASK")), refused=False, seconds=4.0),
        Result("d", "source", "missing"),
        Result("a", "experiment", "kept", right, accepted=True, violations=2, proved=True, wrongly_supported=False),
        Result("c", "experiment", "kept", mark(subject("fixed"), None), proved=False, wrongly_supported=True),
    ]
    rows = {
        line.split(" | ")[0].lstrip("| "): line.strip("| ").split(" | ")[1:]
        for line in markdown(results, dict.fromkeys("abcd", "OWNERSHIP"), ["source", "experiment"]).splitlines()
        if line.startswith("| ")
    }
    assert rows["faults: boundary right"] == ["1/2 (50 %, 9-91)", "1/1 (100 %, 21-100)"]
    assert rows["healthy: accused"] == ["1/1 (100 %, 21-100)", "0/1 (0 %, 0-79)"]
    assert rows["faults: proved by the rerun, family right"][-1] == "1/1 (100 %, 21-100)"
    assert rows["all: another family supported by the rerun"][-1] == "1/2 (50 %, 9-91)"
    assert rows["seconds of the model, median"][0] == "3.0 (n 2)"
    assert rows["cost in US dollars, sum"][0] == "0.5000 (n 1)"
    assert rows["answers pasted"][0] == "1"
    assert rows["answers missing"][0] == "1"
    assert rows["d"] == ["OWNERSHIP", "missing", ""] or rows["d"][:2] == ["OWNERSHIP", "missing"]
    assert rows["c"][1] == "**TASK**"


def test_arms_are_compared_on_the_subjects_that_both_answered() -> None:
    right, wrong = mark(subject(), WANTED), mark(subject(), None)
    results = [Result(name, "source", "kept", wrong) for name in "abc"]
    results += [Result(name, "both", "kept", right) for name in "bcd"]
    table = markdown(results, dict.fromkeys("abcd", "OWNERSHIP"), ["source", "both"])
    assert "on the same 2 subjects: 2 right only with both, 0 only with source (sign test p = 0.5)" in table
