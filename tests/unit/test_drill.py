"""The drill: where each first measurement points, and what several seeds make of a fix. No run is made here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from weaklink.agent.drill import diverging, eval_gap, flat, noisy_plateau, nonfinite
from weaklink.agent.drill.page import DrillPage, choice, distinct, row_passes
from weaklink.agent.drill.session import PAGES, Driller, DrillInterruptedError, branch_of
from weaklink.agent.drill.shapes import Drill, Measurement
from weaklink.agent.errors import NothingMeasuredError
from weaklink.agent.replays.compare import compare_drills
from weaklink.agent.reporters.drill import drill_json, drill_sections
from weaklink.agent.reporters.terminal import render_sections
from weaklink.agent.runner import Runner
from weaklink.collector.branch import name_branch
from weaklink.collector.catalogue import CATALOGUE, checked_parameters
from weaklink.collector.evidence import (
    Environment,
    Evidence,
    InterventionReport,
    Outcome,
    ParameterRecord,
    Row,
    Series,
    StepRecord,
    Subject,
)
from weaklink.collector.job import Pins

STUCK, FALLING = [1.0] * 100, [1.0 - step / 200 for step in range(100)]
RISING, BROKEN = [1.0 + step for step in range(100)], [1.0] * 50 + [math.nan] * 50
NOISY, LOWER = [1.0, 3.0] * 50, [0.5, 1.0] * 50
OWNED = Row(id="OWNERSHIP/owned", status="fail", basis="exact", text="0/1 in an optimizer", values={"owned": 0})
PASSING = Row(id="OWNERSHIP/owned", status="pass", text="1/1 in an optimizer")
STALE = Row(id="EVALUATION/buffers", status="fail", basis="exact", text="the statistics are still initial")


def parameter(**changed: Any) -> ParameterRecord:
    plain: dict[str, Any] = {
        "name": "head.weight",
        "shape": [2],
        "dtype": "float32",
        "requires_grad": True,
        "in_model": True,
        "owned": False,
        "registered": True,
        "gradient": "nonzero",
        "gradient_norm_first": 2.0,
        "moved": True,
        "delta_net": 0.5,
    }
    return ParameterRecord(**(plain | changed))


def run(losses: list[float], *rows: Row, applied: bool | None = None, **changed: Any) -> Evidence:
    """One run with these losses and rows; `applied` says whether an intervention changed something in it."""
    report = None if applied is None else InterventionReport(name="x", applied=applied)
    return Evidence(
        **{
            "subject": Subject(kind="script", name="train.py"),
            "outcome": Outcome(ended="completed", backwards=len(losses), steps=len(losses), forwards=len(losses)),
            "environment": Environment(torch="2.13.0", python="3.11", platform="linux"),
            "branch": name_branch(losses, False, list(rows)),
            "rows": list(rows),
            "losses": Series(index=list(range(1, len(losses) + 1)), value=losses),
            "intervention": report,
            **changed,
        }
    )


# -- the first measurement ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "reading"),
    [
        ([parameter(gradient="zero", gradient_norm_first=0.0, moved=False)], flat.NO_GRADIENT),
        ([parameter(gradient="missing", gradient_norm_first=None, moved=False)], flat.NO_GRADIENT),
        ([parameter(moved=False, delta_net=0.0)], flat.NO_MOVEMENT),
        ([parameter()], flat.IGNORED),
        ([parameter(gradient="zero"), parameter(name="b", moved=False)], flat.IGNORED),
        ([parameter(gradient=None)], flat.UNKNOWN),
        ([parameter(requires_grad=False), parameter(in_model=False)], flat.UNKNOWN),
    ],
)
def test_flat_points_where_the_chain_of_numbers_breaks(records: list[ParameterRecord], reading: str) -> None:
    measured = flat.measure(run(STUCK, parameters=records))
    assert measured.reading == reading
    plan = flat.control(run(STUCK, parameters=records), measured)
    assert (plan is None) == (reading == flat.UNKNOWN)


def test_each_reading_of_flat_has_a_control_that_splits_it() -> None:
    dead, alive = parameter(gradient="zero", moved=False), parameter()
    still = parameter(moved=False, delta_net=0.0)
    for broken, mended, readings in (
        (dead, alive, ("the graph", "dead units")),
        (still, alive, ("clearing, or a missing step", "ownership or the optimizer")),
    ):
        before = run(STUCK, parameters=[broken], steps=[StepRecord(step=1, lr=[0.1])])
        plan = flat.control(before, flat.measure(before))
        assert plan is not None
        assert plan.read(before, before)[0] == readings[0]
        assert plan.read(before, run(FALLING, parameters=[mended]))[0] == readings[1]
    ignored = run(STUCK, parameters=[alive])
    plan = flat.control(ignored, flat.measure(ignored))
    assert plan is not None
    assert plan.read(ignored, ignored)[0] == "the objective"
    assert plan.read(ignored, run([1.5] * 100))[0] != "the objective"


def test_diverging_reads_the_steps_against_what_they_move() -> None:
    steps = [StepRecord(step=n, lr=[1.0], gradient_norm=1.0, parameter_norm=2.0, delta_norm=1.0 * n) for n in (1, 4)]
    measured = diverging.measure(run(RISING, steps=steps))
    assert measured.reading == diverging.OUTGROWN
    assert measured.values == {"first": 0.5, "largest": 2.0, "largest_at": 4}
    assert diverging.measure(run(RISING, steps=steps[:1])).reading == diverging.SHORT
    assert diverging.measure(run(RISING)).reading == "not measured"
    assert [each.name for each in diverging.fixes(run(RISING, steps=steps))] == [
        "scale_lr",
        "scale_lr",
        "clip_grad_norm",
    ]


def test_half_the_rate_tells_size_from_direction() -> None:
    plan = diverging.control(run(RISING), Measurement(text="", reading=""))
    assert plan is not None
    assert plan.read(run(RISING), run(FALLING))[0] == "the size of the steps"
    assert plan.read(run(RISING), run([1.0 + step / 2 for step in range(100)]))[0] == "the size of the steps"
    assert plan.read(run(RISING), run(RISING))[0] == "not the rate alone"


def test_nonfinite_names_the_operation_and_the_step_before_it() -> None:
    origin = Row(
        id="GRADIENT/origin",
        status="evidence",
        text="log at train.py:9 is the first value that is not finite, in step 3",
        values={"direction": "forward", "operation": "log"},
        step=3,
    )
    steps = [StepRecord(step=n, lr=[1.0], gradient_norm=1.0, parameter_norm=2.0, delta_norm=8.0) for n in (1, 2, 3)]
    measured = nonfinite.measure(run(BROKEN, origin, steps=steps))
    assert measured.reading == "log, forward"
    assert measured.values["moved_before"] == 4.0
    assert measured.values["first_loss"] == 51
    plan = nonfinite.control(run(BROKEN), measured)
    assert plan is not None
    assert plan.read(run(BROKEN), run(FALLING))[0] == "the steps before it"
    assert plan.read(run(BROKEN), run([1.0] * 60 + [math.nan]))[0] == "the steps before it"
    assert plan.read(run(BROKEN), run(BROKEN))[0] == "the operation or its data"


@pytest.mark.parametrize(
    ("modules", "reading", "control"),
    [
        (["Dropout"], eval_gap.DIFFER, "without_dropout"),
        (["BatchNorm1d"], eval_gap.DIFFER, "batchnorm_momentum"),
        (["BatchNorm2d", "Dropout2d"], eval_gap.DIFFER, "without_dropout"),
        ([], eval_gap.AGREE, None),
    ],
)
def test_eval_gap_splits_dropout_from_normalisation(modules: list[str], reading: str, control: str | None) -> None:
    gap = Row(id=eval_gap.GAP, status="evidence", text="x", values={"train": 0.1, "eval": 9.0, "modules": modules})
    measured = eval_gap.measure(run(FALLING, gap, STALE))
    assert measured.reading == reading
    plan = eval_gap.control(run(FALLING, gap, STALE), measured)
    assert (plan.choice.name if plan else None) == control


def test_a_gap_that_was_not_measured_is_said_to_be_so() -> None:
    gap = Row(id=eval_gap.GAP, status="not_measured", text="", reason="no fork")
    measured = eval_gap.measure(run(FALLING, gap, STALE))
    assert measured.reading == "not measured"
    assert "no fork" in measured.text


def test_noise_is_told_from_a_change_by_its_own_spread() -> None:
    assert noisy_plateau.measure(run(NOISY)).values["mean"] == 2.0
    assert noisy_plateau.below([1.0, 3.0] * 20, [0.5, 1.0] * 20)
    assert not noisy_plateau.below([1.0, 3.0] * 20, [0.9, 2.9] * 20)
    assert not noisy_plateau.below([1.0, 3.0], [math.nan, 0.0])
    assert not noisy_plateau.below([1.0], [0.0])


def test_a_suspicion_about_the_evaluation_of_a_run_that_learns_is_a_gap() -> None:
    row = Row(id="EVALUATION/inputs", status="suspected", text="x")
    assert branch_of(run(FALLING, row)) == "eval_gap"
    assert branch_of(run(FALLING, STALE)) == "eval_gap"
    assert branch_of(run(FALLING)) == "learning"


def test_every_control_and_every_fix_is_one_that_the_catalogue_takes() -> None:
    origin = Row(id="GRADIENT/finite", status="fail", basis="exact", text="x")
    step = StepRecord(step=1, lr=[0.1], gradient_norm=1.0, parameter_norm=2.0, delta_norm=1.0)
    for branch, page in PAGES.items():
        for rows in ((), (OWNED,), (STALE,), (origin,)):
            observed = run(STUCK, *rows, parameters=[parameter(moved=False)], steps=[step])
            plan = page.control(observed, page.measure(observed))
            for each in [*page.fixes(observed), *([plan.choice] if plan else [])]:
                assert each.name in CATALOGUE, branch
                checked_parameters(each.name, each.parameters)


def test_one_experiment_stands_once_with_the_parameters_of_who_asked_first() -> None:
    found = distinct([choice("scale_lr", factor=0.001), choice("seed", k=1), choice("scale_lr", factor=0.1)])
    assert [each.name for each in found] == ["scale_lr", "seed"]
    assert found[0].parameters == {"factor": 0.001}


def test_a_row_that_is_not_measured_any_more_does_not_pass() -> None:
    gone = Row(id=OWNED.id, status="not_measured", text="", reason="x")
    assert row_passes(run(STUCK, OWNED), run(STUCK, PASSING))
    assert not row_passes(run(STUCK, OWNED), run(STUCK, gone))
    assert not row_passes(run(STUCK, OWNED), run(STUCK))
    assert row_passes(run(STUCK), run(STUCK))


# -- over seeds --------------------------------------------------------------------------------------------------------

Made = Callable[[int, str | None], Evidence | None]


@dataclass
class Runs:
    """Stands in for a runner: the evidence of a seed, without and with an experiment of that name."""

    made: Made
    pins: Pins = field(default_factory=Pins)
    asked: list[tuple[int, str | None]] = field(default_factory=list)

    def observe(self) -> Any:
        return self._record(None)

    def rerun(self, role: str, observed: Evidence, horizon: int | None, name: str, *_: Any) -> Any:
        return self._record(name)

    def _record(self, name: str | None) -> Any:
        self.asked.append((self.pins.offset, name))
        evidence = self.made(self.pins.offset, name)
        result = SimpleNamespace(interrupted=evidence is None)
        return SimpleNamespace(evidence=evidence, result=result)


@pytest.fixture(autouse=True)
def no_close_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weaklink.agent.drill.session.closer", lambda runner, evidence: (evidence, False))


def drill(made: Made, seeds: int = 3) -> tuple[Drill, Runs]:
    runs = Runs(made)
    return Driller(cast(Runner, runs), seeds).drill(), runs


def owned(holds_on: set[int], stuck_on: set[int] | None = None) -> Made:
    """A head that no optimizer holds; giving it to one mends these seeds, and the fault shows on those."""

    def made(seed: int, name: str | None) -> Evidence:
        if name == "own_missing_parameters" and seed in holds_on:
            return run(FALLING, PASSING, applied=True)
        if name is None and stuck_on is not None and seed not in stuck_on:
            return run(FALLING, PASSING)
        return run(STUCK, OWNED, parameters=[parameter(moved=False)], applied=None if name is None else True)

    return made


def test_a_fix_that_holds_on_every_seed_is_established() -> None:
    found, runs = drill(owned({0, 1, 2}))
    assert found.outcome == "established"
    assert found.fix is not None
    assert found.fix.name == "own_missing_parameters"
    assert [(each.seed, each.holds, each.shown) for each in found.seeds] == [(n, True, True) for n in range(3)]
    assert runs.asked[0] == (0, None)
    assert runs.asked[-1] == (2, "own_missing_parameters"), "the same seeds without and with it"
    text = " ".join(render_sections(drill_sections(found)).split())
    assert "Established over 3 seeds: with own_missing_parameters" in text


def test_a_fix_that_holds_on_seed_0_and_fails_on_seed_1_is_not() -> None:
    found, _ = drill(owned({0, 2}))
    assert found.outcome == "not established"
    assert found.reasons == ["it holds on seed 0 and fails on seed 1"]
    assert "Not established: it holds on seed 0 and fails on seed 1." in render_sections(drill_sections(found))


def test_a_seed_that_shows_no_symptom_establishes_nothing() -> None:
    found, _ = drill(owned({0, 1, 2}, stuck_on={0, 1}))
    assert found.outcome == "not established"
    assert found.reasons[0].startswith("without it there is no symptom on seed 2:")


def test_two_seeds_are_too_few() -> None:
    found, _ = drill(owned({0, 1, 2}), seeds=2)
    assert found.outcome == "not established"
    assert found.reasons == ["2 of at least 3 seeds were run"]


def test_a_better_loss_with_the_row_as_it_was_is_no_fix() -> None:
    def made(seed: int, name: str | None) -> Evidence:
        losses = STUCK if name is None else FALLING
        return run(losses, OWNED, parameters=[parameter(moved=False)], applied=None if name is None else True)

    found, _ = drill(made)
    assert found.outcome == "not established"
    assert found.fix is None
    assert found.attempts
    assert not any(each.holds for each in found.attempts)


def test_what_changed_nothing_is_no_fix_and_no_control() -> None:
    def made(seed: int, name: str | None) -> Evidence:
        losses, row = (STUCK, OWNED) if name is None else (FALLING, PASSING)
        return run(losses, row, parameters=[parameter(moved=False)], applied=None if name is None else False)

    found, _ = drill(made)
    assert found.control is not None
    assert (found.control.applied, found.control.reading) == (False, "not applicable")
    assert not any(each.applied or each.holds for each in found.attempts)


def test_fixes_are_tried_one_at_a_time_until_one_holds() -> None:
    def made(seed: int, name: str | None) -> Evidence:
        losses = FALLING if name == "clip_grad_norm" else RISING
        steps = [StepRecord(step=1, lr=[1.0], gradient_norm=2.0, parameter_norm=1.0, delta_norm=9.0)]
        return run(losses, steps=steps, applied=None if name is None else True)

    found, runs = drill(made)
    tried = [(each.change.name, each.holds) for each in found.attempts]
    assert tried == [("scale_lr", False), ("scale_lr", False), ("clip_grad_norm", True)]
    assert found.attempts[2].change.parameters == {"max": 2.0}
    assert found.outcome == "established"
    assert [name for seed, name in runs.asked if seed == 1] == [None, "clip_grad_norm"]


def test_on_a_noisy_plateau_the_ranges_over_seeds_decide() -> None:
    def made(seed: int, name: str | None) -> Evidence:
        if name is None:
            return run([value * (1 + 4 * seed) for value in NOISY])
        return run([value * (1 + 4 * seed) for value in LOWER], applied=True)

    found, _ = drill(made)
    assert all(each.holds for each in found.seeds), "each seed alone is better"
    assert found.outcome == "not established"
    assert found.reasons == [found.over_seeds]
    assert (found.over_seeds or "").startswith("the ranges over seeds meet")


@pytest.mark.parametrize(
    ("evidence", "outcome", "reason"),
    [
        (run(FALLING), "nothing to drill", "the loss falls"),
        (run(FALLING, OWNED), "not a branch of the drill", "while a row fails"),
        (run([1.0, 0.5]), "not a branch of the drill", "too few losses"),
        (run(STUCK, branch="raised"), "not a branch of the drill", "exception"),
    ],
)
def test_runs_without_a_branch_are_run_once(evidence: Evidence, outcome: str, reason: str) -> None:
    found, runs = drill(lambda seed, name: evidence)
    assert found.outcome == outcome
    assert reason in found.reasons[0]
    assert runs.asked == [(0, None)]


def test_nothing_measured_and_interrupted() -> None:
    nothing = run([], outcome=Outcome(ended="completed"))
    with pytest.raises(NothingMeasuredError):
        drill(lambda seed, name: nothing)
    with pytest.raises(DrillInterruptedError):
        drill(lambda seed, name: None)


# -- receipts ----------------------------------------------------------------------------------------------------------


def test_a_drill_is_its_own_receipt() -> None:
    found, _ = drill(owned({0, 1, 2}))
    body = drill_json(found)
    assert body["schema"] == "weaklink.drill/1"
    again = Drill.model_validate(body)
    assert compare_drills(again, found).equal
    assert compare_drills(again, found).exact


def test_a_receipt_differs_in_what_was_found_and_not_in_words() -> None:
    found, _ = drill(owned({0, 1, 2}))
    other, _ = drill(owned({0, 2}))
    assert any(text.startswith("outcome") for text in compare_drills(found, other).differences)
    assert found.measurement is not None
    words = found.model_copy(update={"measurement": found.measurement.model_copy(update={"text": "otherwise"})})
    assert compare_drills(words, found).equal
    elsewhere = found.model_copy(update={"environment": found.environment.model_copy(update={"torch": "2.14.0"})})
    compared = compare_drills(elsewhere, found)
    assert compared.equal
    assert not compared.exact
    assert compared.skipped


def test_pages_have_an_advice_each() -> None:
    advised = {page.advice for page in PAGES.values()}
    assert len(advised) == 5
    assert all(isinstance(page, DrillPage) for page in PAGES.values())
