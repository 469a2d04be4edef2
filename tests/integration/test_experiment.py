"""own_missing_parameters on running scripts: where it must make the difference, and where it must make none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import STALE_HEAD, Weaklink, training

from weaklink.collector.evidence import Evidence, Subject, read_evidence
from weaklink.collector.job import Job, Pins
from weaklink.collector.workers import Workers, base_environment, this_python

Script = Callable[..., Path]


@pytest.fixture(scope="module")
def workers() -> object:
    with Workers(this_python(), base_environment("0") | {"OMP_NUM_THREADS": "1"}) as running:
        yield running


def treat(workers: Workers, script: Path, pattern: str = "*", horizon: int = 20, name: str | None = None) -> Evidence:
    folder = script.parent
    evidence = folder / "evidence.json"
    job = Job(
        role="treatment",
        subject=Subject(kind="script", name=script.name),
        folder=folder,
        evidence=evidence,
        horizon=horizon,
        horizon_backwards=horizon,
        deadline=60,
        intervention=name or "own_missing_parameters",
        intervention_parameters={} if name else {"parameters": pattern},
        keep_initial=True,
        pins=Pins(),
    )
    workers.run(job, folder / "log")
    return read_evidence(evidence)


def test_the_stale_head_moves(workers: Workers, script: Script) -> None:
    evidence = treat(workers, script(STALE_HEAD.read_text()), "head.*")
    assert evidence.intervention is not None
    assert evidence.intervention.changed == ["head.weight", "head.bias"]
    assert evidence.first_divergence is None
    assert evidence.losses.value[-1] < evidence.losses.value[0]


def test_a_pattern_owns_only_what_it_matches(workers: Workers, script: Script) -> None:
    evidence = treat(workers, script(STALE_HEAD.read_text()), "head.bias")
    assert evidence.intervention is not None
    assert evidence.intervention.changed == ["head.bias"]
    row = evidence.row("OWNERSHIP/owned")
    assert row is not None
    assert row.values["owned"] == 1


def test_a_healthy_run_is_not_touched(workers: Workers, script: Script) -> None:
    path = script(training(steps=20))
    treated, placebo = treat(workers, path), treat(workers, path, name="placebo")
    assert treated.intervention is not None
    assert not treated.intervention.applied
    assert placebo.intervention is not None
    assert placebo.intervention.applied
    assert placebo.losses.value != treated.losses.value
    assert placebo.losses.value == pytest.approx(treated.losses.value, rel=1e-4)


def test_a_layer_added_late_is_owned_from_the_step_it_appears(workers: Workers, script: Script) -> None:
    text = training("if step == 9: model.append(nn.ReLU()); model.append(nn.Linear(2, 2))", steps=40)
    evidence = treat(workers, script(text), horizon=40)
    assert evidence.intervention is not None
    assert evidence.intervention.changed == ["4.weight", "4.bias"]
    assert "step 11" in evidence.intervention.detail
    assert next(p for p in evidence.parameters if p.name == "4.weight").moved


def test_what_is_unfrozen_later_is_owned_then(workers: Workers, script: Script) -> None:
    text = training("if step == 9: model[0].requires_grad_(True)", steps=40).replace(
        "optimizer = torch.optim.SGD(model.parameters()",
        "model[0].requires_grad_(False)\noptimizer = torch.optim.SGD(model[2].parameters()",
    )
    evidence = treat(workers, script(text), horizon=40)
    assert evidence.intervention is not None
    assert evidence.intervention.changed == ["0.weight", "0.bias"]
    assert "step 11" in evidence.intervention.detail


def test_with_two_optimizers_a_replaced_layer_goes_to_the_one_that_held_it(workers: Workers, script: Script) -> None:
    text = (
        training("second.step()")
        .replace(
            "lr=0.5)", "lr=0.5)\nsecond = torch.optim.SGD(model[2].parameters(), lr=0.25)\nmodel[2] = nn.Linear(8, 2)"
        )
        .replace("SGD(model.parameters()", "SGD(model[0].parameters()")
    )
    evidence = treat(workers, script(text))
    head = next(p for p in evidence.parameters if p.name == "2.weight" and p.in_model)
    assert head.groups == ["SGD#1[0]"]
    assert head.moved


def test_a_scheduler_built_before_keeps_working(workers: Workers, script: Script) -> None:
    """A new group would have no base rate there; the parameters go into an existing one."""
    text = training("scheduler.step()").replace(
        "lr=0.5)",
        "lr=0.5)\nscheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)\nmodel[2] = nn.Linear(8, 2)",
    )
    evidence = treat(workers, script(text))
    assert evidence.outcome.raised is None
    assert evidence.steps[0].lr == [0.5]
    assert evidence.steps[-1].lr[0] < 0.5


def test_a_rate_of_zero_refutes_ownership_as_the_cause(script: Script, weaklink: Weaklink) -> None:
    """Two faults at once: owning the head moves nothing, so ownership is refuted and the rival stands."""
    script(STALE_HEAD.read_text().replace("lr=1e-2", "lr=0.0"))
    ran = weaklink("diagnose", "train.py", "--json")
    assert ran.code == 1
    body = ran.json
    assert body["first_divergence"]["row"] == "OWNERSHIP/owned"
    assert body["mechanism"]["id"] == "optimizer_holds_old_objects"
    assert body["mechanism"]["status"] == "refuted"
    assert {a["id"]: a["status"] for a in body["alternatives"]}["rate_wrong"] == "inconclusive"
    assert body["status"]["cause"] == "refuted"


def test_steps_over_more_micro_batches_than_the_horizon(script: Script, weaklink: Weaklink) -> None:
    text = (
        STALE_HEAD.read_text()
        .replace(
            "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()",
            (
                "        (loss / 64).backward()\n        if step % 64 == 63:\n            optimizer.step()\n"
                "            optimizer.zero_grad()"
            ),
        )
        .replace("range(301)", "range(640)")
    )
    script(text)
    body = weaklink("diagnose", "train.py", "--json").json
    assert body["first_divergence"]["row"] == "OWNERSHIP/owned"
    assert body["mechanism"]["status"] == "supported"


def test_the_placebo_waits_for_something_trainable(workers: Workers, script: Script) -> None:
    """A frozen backbone is called first, as a root of its own."""
    text = (
        training(steps=10)
        .replace("model(x)", "model(backbone(x))")
        .replace("model =", "backbone = nn.Linear(4, 4).requires_grad_(False)\nmodel =", 1)
    )
    evidence = treat(workers, script(text), name="placebo")
    assert evidence.intervention is not None
    assert evidence.intervention.applied
    assert "2." in evidence.intervention.changed[0]
