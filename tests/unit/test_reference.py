"""A reference that was sealed before anything was held against it, and the questions put to an attempt."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from test_record_chain import closed, opened

from weaklink.agent.record import line as lines
from weaklink.agent.record.bodies import ReferenceCompared, ReferenceSealed
from weaklink.agent.record.canonical import digest
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.record.check import check_record
from weaklink.agent.replays.outcome import RecordedRun
from weaklink.agent.replays.reference import Reference, ReferenceRun, compute_reference, hold_against
from weaklink.collector.declared import Objective
from weaklink.collector.errors import SubjectError
from weaklink.collector.step_values import StepValues

REFERENCE = Reference(
    runs=[
        ReferenceRun(
            seed=seed,
            losses=[2.0, 1.0],
            gradients={"Critic.weight": [[4.0, -2.0]], "Generator.weight": [[1.0]]},
            movements={"Critic.weight": [[-0.4, 0.2]], "Generator.weight": [[-0.1]]},
        )
        for seed in (0, 1, 2)
    ]
)
OBJECTIVES = {
    "critic": Objective(parameters=["Critic.*"]),
    "generator": Objective(site="train.py:9", parameters=["Generator.*"]),
}
QUESTIONS = ["finite_losses", "finite_gradients", "moves_only_what_is_intended", "equal_to_the_reference"]


def equal(seed: int) -> RecordedRun:
    expected = REFERENCE.runs[seed]
    values = StepValues(
        gradients={name: [list(one) for one in series] for name, series in expected.gradients.items()},
        movements={name: [list(one) for one in series] for name, series in expected.movements.items()},
        moved=[["Critic.weight"], ["Generator.weight"]],
    )
    return RecordedRun(seed, list(expected.losses), values)


def changed(change: Callable[[RecordedRun], object]) -> dict[str, bool]:
    runs = [equal(0), equal(1), equal(2)]
    change(runs[2])
    return hold_against(REFERENCE, runs, OBJECTIVES, 1e-9).checks


def test_the_same_numbers_are_complete() -> None:
    found = hold_against(REFERENCE, [equal(0), equal(1), equal(2)], OBJECTIVES, 1e-9)

    assert found.checks == dict.fromkeys(QUESTIONS, True)
    assert (found.complete, found.worst) == (True, 0.0)


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        (lambda run: run.losses.__setitem__(1, math.nan), ["finite_losses", "equal_to_the_reference"]),
        (
            lambda run: run.values.gradients.__setitem__("Generator.weight", [[math.inf]]),
            ["finite_gradients", "equal_to_the_reference"],
        ),
        (lambda run: run.values.moved[0].append("Generator.weight"), ["moves_only_what_is_intended"]),
        (lambda run: run.values.moved.pop(), ["moves_only_what_is_intended"]),
        (lambda run: run.values.outside.append("Critic.weight"), ["moves_only_what_is_intended"]),
        (lambda run: run.values.gradients["Critic.weight"][0].__setitem__(1, -2.1), ["equal_to_the_reference"]),
        (lambda run: run.values.movements["Critic.weight"].append([0.0, 0.0]), ["equal_to_the_reference"]),
        (lambda run: run.values.gradients.pop("Generator.weight"), ["equal_to_the_reference"]),
        (lambda run: run.losses.append(0.5), ["equal_to_the_reference"]),
    ],
    ids=[
        "a loss is nan",
        "a gradient is infinite",
        "a step moves the other's",
        "one objective never moves",
        "something moves between steps",
        "another gradient",
        "a step too many",
        "a parameter without a gradient",
        "a loss too many",
    ],
)
def test_each_question_is_answered_by_what_belongs_to_it(
    change: Callable[[RecordedRun], object], failed: list[str]
) -> None:
    assert [name for name, held in changed(change).items() if not held] == failed


@pytest.mark.parametrize(("apart", "held"), [(3.9e-9, True), (4.1e-9, False)], ids=["within", "beyond"])
def test_the_tolerance_is_relative_to_the_largest_number_of_the_reference_there(apart: float, held: bool) -> None:
    def moved(run: RecordedRun) -> None:
        run.values.gradients["Critic.weight"][0][1] -= apart

    assert changed(moved)["equal_to_the_reference"] is held


def test_the_farthest_number_is_named() -> None:
    runs = [equal(0), equal(1), equal(2)]
    runs[1].values.movements["Generator.weight"][0][0] = -0.2
    runs[2].values.gradients["Critic.weight"][0][0] = 4.4
    found = hold_against(REFERENCE, runs, OBJECTIVES, 1e-9)

    assert found.worst == pytest.approx(1.0)
    assert found.worst_at == "seed 1, operation 1, movement of Generator.weight"
    assert found.text.startswith("incomplete: not so: equal to the reference")


# -- the reference's own script ----------------------------------------------------------------------------------------


def test_the_script_is_given_the_seeds_and_its_object_is_read(tmp_path: Path) -> None:
    body = '{"seed": int(word), "losses": [0.5], "gradients": {}, "movements": {}}'
    text = f"import json, sys\nprint(json.dumps({{'runs': [{body} for word in sys.argv[1:]]}}))\n"
    script = tmp_path / "reference.py"
    script.write_text(text, encoding="utf-8")

    found = compute_reference(script, [3, 4], sys.executable, 60.0)

    assert [run.seed for run in found.runs] == [3, 4]
    assert found.runs[0].losses == [0.5]


@pytest.mark.parametrize(
    ("text", "said"),
    [("raise ValueError('no such seed')", "no such seed"), ("print('done')", "printed something else")],
)
def test_a_reference_that_cannot_be_computed_says_why(text: str, said: str, tmp_path: Path) -> None:
    script = tmp_path / "reference.py"
    script.write_text(text, encoding="utf-8")

    with pytest.raises(SubjectError) as raised:
        compute_reference(script, [0], sys.executable, 60.0)
    assert said in str(raised.value.hint)


# -- the seal ----------------------------------------------------------------------------------------------------------


def sealed(outcome_sha256: str | None = None) -> ReferenceSealed:
    outcome = REFERENCE.model_dump(mode="python")
    return ReferenceSealed(
        what="by hand",
        sources={"reference.py": "0" * 64},
        outcome=outcome,
        outcome_sha256=outcome_sha256 or digest(outcome),
        tolerance=1e-9,
        expects={"isolated.py": True},
        does_not_prove=["Convergence: nothing is said about it."],
    )


def compared() -> ReferenceCompared:
    return ReferenceCompared(
        attempt="isolated.py",
        source_sha256="0" * 64,
        sealed=2,
        claim_sha256=None,
        outcome_sha256="0" * 64,
        checks={"finite_losses": True},
        worst=0.0,
        worst_at=None,
        complete=True,
        text="equal",
    )


def test_the_seal_may_follow_a_closed_incident_and_is_flushed_before_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    flushed: list[int] = []
    with RecordWriter(tmp_path) as writer:
        writer.append("incident.opened", opened())
        writer.append("incident.closed", closed())
        monkeypatch.setattr(os, "fsync", lambda file: flushed.append(writer.count))
        writer.append("reference.sealed", sealed())
        assert flushed == [2]
        writer.append("reference.compared", compared())

    report = check_record(tmp_path)
    assert (report.intact, report.sealed) == (True, [2])
    assert "no hash shows" in report.note


def test_an_outcome_that_was_there_before_the_seal_is_refused(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as writer:
        writer.append("incident.opened", opened())
        with pytest.raises(Exception, match="the reference was not there first"):
            writer.append("reference.compared", compared())


def test_a_seal_over_another_outcome_is_refused(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as writer:
        writer.append("incident.opened", opened())
        with pytest.raises(Exception, match="outcome_sha256 is not the digest of the outcome"):
            writer.append("reference.sealed", sealed("1" * 64))


def test_a_number_of_a_sealed_reference_that_was_edited_breaks_the_chain(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as writer:
        writer.append("incident.opened", opened())
        writer.append("reference.sealed", sealed())
        writer.append("incident.closed", closed())
    path = tmp_path / lines.FILE_NAME
    path.write_bytes(path.read_bytes().replace(b'"4.0","-2.0"', b'"4.0","-2.5"', 1))

    report = check_record(tmp_path)
    assert (report.intact, report.bad_line) == (False, 2)
