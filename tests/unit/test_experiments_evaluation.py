"""Experiments on what is evaluated: the evaluation becomes the repaired script's, the training stays bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from collector_runs import RANDOM_STATE, SEEDED, Run, observe, plain, row, run_job, write
from test_collector_experiments import QUIET, report, treated
from test_model_looks import HEAD, averaged, classes

from weaklink.collector.evidence import Subject
from weaklink.collector.job import Job

PRINTED = "print('loss', repr(loss.item())); loss.backward()"


def evaluations(run: Run) -> list[str]:
    return [line for line in run.out.splitlines() if not line.startswith(("loss ", "random "))]


def training(run: Run) -> list[str]:
    return [line for line in run.out.splitlines() if line.startswith(("loss ", "random "))]


def shown(source: str) -> str:
    """The script, its losses printed, and the random state that it ends with."""
    return SEEDED + HEAD + source.replace("loss.backward()", PRINTED) + RANDOM_STATE


def becomes(tmp_path: Path, broken: str, repaired: str, name: str, **parameters: Any) -> None:
    """The evaluations are the repaired script's; losses and random state are those of the script as it is."""
    run = treated(shown(broken), tmp_path, name, **parameters)
    assert run.code == 0
    assert report(run).applied
    wanted, was = plain(shown(repaired), tmp_path), plain(shown(broken), tmp_path)
    assert evaluations(run) == evaluations(wanted) != evaluations(was)
    assert training(run) == training(was)


def read_again(tmp_path: Path, source: str, name: str, row_id: str, **parameters: Any) -> list[str]:
    """The status of a row without and with the experiment, both read with looks."""
    more = {"keep_initial": True, "looks": "fork"}
    control = observe(HEAD + source, tmp_path, role="control", **more)
    treatment = observe(
        HEAD + source, tmp_path, role="treatment", intervention=name, intervention_parameters=parameters, **more
    )
    assert report(treatment).applied
    assert control.seen.losses == treatment.seen.losses
    return [row(run.seen, row_id).status for run in (control, treatment)]


# -- dropout -----------------------------------------------------------------------------------------------------------

DROPS = "hidden = F.dropout(hidden, 0.4)"
SWITCHED = "hidden = F.dropout(hidden, 0.4, self.training)"
# So that what an evaluation draws decides nothing that is printed afterwards.
SEEDS = "for epoch in range(4):\n    torch.manual_seed(epoch)"


def test_dropout_that_follows_the_mode_is_silent_in_evaluation(tmp_path: Path) -> None:
    broken, repaired = (classes(dropout=call).replace("for epoch in range(4):", SEEDS) for call in (DROPS, SWITCHED))
    run, wanted = treated(shown(broken), tmp_path, "dropout_follows_mode"), plain(shown(repaired), tmp_path)
    assert evaluations(run) == evaluations(wanted) != evaluations(plain(shown(broken), tmp_path))
    # What the evaluation drew it draws still: the training after it, and the end of the random stream, are as before.
    assert training(run) == training(plain(shown(broken), tmp_path))


@pytest.mark.parametrize(
    "call", [DROPS, "hidden = F.scaled_dot_product_attention(*3 * [hidden[:, None]], dropout_p=0.3)[:, 0]"]
)
def test_the_row_of_dropout_turns(tmp_path: Path, call: str) -> None:
    found = read_again(tmp_path, classes(dropout=call), "dropout_follows_mode", "EVALUATION/dropout")
    assert found == ["fail", "pass"]


def test_dropout_that_follows_its_mode_already_is_left_alone(tmp_path: Path) -> None:
    source = shown(classes(dropout=SWITCHED))
    run = treated(source, tmp_path, "dropout_follows_mode")
    assert run.out == plain(source, tmp_path).out
    assert not report(run).applied


# -- running statistics ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", ["0.0", "0.0005"])
def test_another_momentum_moves_the_statistics_and_nothing_else(tmp_path: Path, momentum: str) -> None:
    becomes(tmp_path, classes(momentum), classes("0.1"), "batchnorm_momentum", momentum=0.1)


@pytest.mark.parametrize("momentum", ["0.0", "0.0005"])
def test_the_row_of_the_statistics_turns(tmp_path: Path, momentum: str) -> None:
    source = classes(momentum, epochs=6)
    found = read_again(tmp_path, source, "batchnorm_momentum", "EVALUATION/buffers", momentum=0.1)
    assert found == ["fail", "pass"]


@pytest.mark.parametrize("momentum", ["0.1", "None"])
def test_the_same_momentum_and_a_plain_average_stay(tmp_path: Path, momentum: str) -> None:
    source = shown(classes(momentum))
    run = treated(source, tmp_path, "batchnorm_momentum", momentum=0.1)
    assert run.out == plain(source, tmp_path).out
    assert not report(run).applied


# -- a copy of the trained model ---------------------------------------------------------------------------------------

NORMALISED = (
    averaged("0.5").replace("nn.ReLU()", "nn.BatchNorm1d(32), nn.ReLU()").replace("x = centers", "x = 3 + centers")
)
NORMALISED = NORMALISED.replace(
    "    with torch.no_grad():\n        print",
    "    average.eval()\n    UPDATE\n    with torch.no_grad():\n        print",
)
COPIES = "[a.copy_(b) for a, b in zip(average.buffers(), model.buffers())]"


def test_a_copy_is_evaluated_with_the_trained_models_buffers(tmp_path: Path) -> None:
    becomes(tmp_path, NORMALISED.replace("UPDATE", "pass"), NORMALISED.replace("UPDATE", COPIES), "update_buffers")


def test_the_row_of_a_copys_statistics_turns(tmp_path: Path) -> None:
    source = NORMALISED.replace("UPDATE", "pass")
    assert read_again(tmp_path, source, "update_buffers", "EVALUATION/buffers") == ["fail", "pass"]


STUCK = averaged("0.0001").replace(
    "optimizer =", "for slow in average.parameters():\n    slow.add_(0.05 * torch.randn_like(slow))\noptimizer =", 1
)


def test_a_copy_is_evaluated_with_the_trained_weights(tmp_path: Path) -> None:
    repaired = STUCK.replace("print(F.cross_entropy(average(x)", "print(F.cross_entropy(model(x)")
    becomes(tmp_path, STUCK, repaired, "evaluate_trained_weights")


def test_the_row_of_the_weights_turns(tmp_path: Path) -> None:
    assert read_again(tmp_path, STUCK, "evaluate_trained_weights", "EVALUATION/weights") == ["fail", "pass"]


@pytest.mark.parametrize("name", ["update_buffers", "evaluate_trained_weights", "evaluate_in_eval_mode"])
def test_the_trained_model_itself_is_evaluated_as_it_is(tmp_path: Path, name: str) -> None:
    source = shown(classes())
    run = treated(source, tmp_path, name)
    assert run.out == plain(source, tmp_path).out
    assert (report(run).applied, report(run).changed) == (False, [])


# -- mode --------------------------------------------------------------------------------------------------------------

MODULE = classes(dropout="hidden = self.drop(hidden)").replace(
    "        self.head =", "        self.drop = nn.Dropout(0.5)\n        self.head ="
)


@pytest.mark.parametrize("source", [classes(), MODULE], ids=["batch statistics", "dropout"])
def test_a_forgotten_eval_is_made_up_for_and_the_training_draws_what_it_drew(tmp_path: Path, source: str) -> None:
    # The statistics that an evaluation in train mode moves are no part of what is trained.
    broken = source.replace("    model.eval()\n", "").replace("for epoch in range(4):", SEEDS)
    run = treated(shown(broken), tmp_path, "evaluate_in_eval_mode")
    was = plain(shown(broken), tmp_path)
    assert report(run).applied
    assert evaluations(run) != evaluations(was)
    assert (
        evaluations(run)[:1] == evaluations(plain(shown(source.replace("for epoch in range(4):", SEEDS)), tmp_path))[:1]
    )
    assert training(run) == training(was)


# -- what is fitted ----------------------------------------------------------------------------------------------------


def test_a_run_that_learned_passes_what_it_could_learn(tmp_path: Path) -> None:
    seen = observe(HEAD + classes(), tmp_path, looks="fork").seen
    assert [row(seen, f"CAPABILITY/{label}").status for label in ("fit", "signal")] == ["pass", "pass"]


# -- nothing to change -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("dropout_follows_mode", {}),
        ("batchnorm_momentum", {"momentum": 0.1}),
        ("update_buffers", {}),
        ("evaluate_trained_weights", {}),
        ("evaluate_in_eval_mode", {}),
    ],
)
def test_where_nothing_is_to_change_every_bit_stays(tmp_path: Path, name: str, parameters: dict[str, Any]) -> None:
    source = SEEDED + QUIET + RANDOM_STATE
    run = treated(source, tmp_path, name, **parameters)
    assert run.out == plain(source, tmp_path).out
    assert (report(run).applied, report(run).changed) == (False, [])


FACTORY = """
import torch
from torch import nn
from weaklink.collector import TrainingSystem

def build():
    torch.manual_seed(0)
    x = torch.randn(64, 2)
    model = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16, momentum=0.0), nn.ReLU(), nn.Linear(16, 2))
    return TrainingSystem(model, torch.optim.SGD(model.parameters(), lr=0.1), x, (x[:, 0] > 0).long())
"""


def test_a_factorys_statistics_move_as_well(tmp_path: Path) -> None:
    write(FACTORY, tmp_path)
    job = Job(
        role="treatment",
        folder=tmp_path,
        evidence=tmp_path / "e.json",
        subject=Subject(kind="factory", name="train.py:build"),
        horizon=5,
        intervention="batchnorm_momentum",
        intervention_parameters={"momentum": 0.1},
    )
    run = run_job(job, tmp_path)
    assert (report(run).applied, report(run).changed) == (True, ["BatchNorm1d"])
