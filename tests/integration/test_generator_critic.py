"""The replay of a generator and a critic: an exception, a repair that is none, what only the operator knew, and the
reference that was sealed before anything was held against it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Weaklink, environment

from weaklink.agent.cli.said import Said
from weaklink.agent.record.canonical import digest
from weaklink.agent.replays.compare import compare_stories
from weaklink.agent.replays.outcome import record_runs
from weaklink.agent.replays.receipt import read_stored
from weaklink.agent.replays.reference import Reference, compute_reference, hold_against
from weaklink.agent.replays.story_receipt import StoryReceipt
from weaklink.agent.settings import read_settings

FOLDER = ROOT / "replays" / "generator_critic"
SEEDS = [0, 1, 2]
TOLERANCE = 1e-9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copied = tmp_path / "generator_critic"
    shutil.copytree(FOLDER, copied, ignore=shutil.ignore_patterns("__pycache__"))
    return copied


@pytest.fixture(scope="module")
def receipt() -> StoryReceipt:
    return read_stored(FOLDER / "receipt.json", StoryReceipt)


@pytest.fixture(scope="module")
def reference() -> Reference:
    return compute_reference(FOLDER / "reference.py", SEEDS, sys.executable, 120.0)


def python(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=folder, env=environment(PYTHONDONTWRITEBYTECODE="1"), capture_output=True, text=True, check=False
    )


# -- what the scripts do -----------------------------------------------------------------------------------------------


def test_the_script_raises_where_the_second_backward_is(folder: Path) -> None:
    ran = python(["train.py"], folder)

    assert ran.returncode == 1
    assert "[torch.DoubleTensor [4, 1]]" in ran.stderr
    assert "is at version 2; expected version 1 instead" in ran.stderr
    assert ran.stdout == ""


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        (
            "deferred.py",
            """
            operation 0  critic 1.803348  generator 0.599791
            operation 1  critic 1.680319  generator 0.627871
            operation 2  critic 1.678745  generator 0.547707
            """,
        ),
        (
            "isolated.py",
            """
            operation 0  critic 1.803348  generator 0.599791
            operation 1  critic 1.665164  generator 0.661802
            operation 2  critic 1.648034  generator 0.608815
            """,
        ),
    ],
)
def test_both_repairs_run_and_look_alike(script: str, printed: str, folder: Path) -> None:
    ran = python([script], folder)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == textwrap.dedent(printed).lstrip()


def test_the_reference_calls_neither_autograd_nor_an_optimizer(folder: Path) -> None:
    text = (folder / "reference.py").read_text(encoding="utf-8")
    code = text.split('"""', 2)[2]

    assert not [word for word in ("backward", "autograd", "optim", "requires_grad", "softplus") if word in code]
    assert "with torch.inference_mode():" in code


# -- against the reference ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("script", "complete"), [("deferred.py", False), ("isolated.py", True)])
def test_only_the_isolated_repair_has_the_references_gradients(
    script: str, complete: bool, reference: Reference
) -> None:
    runs = record_runs(script, SEEDS, FOLDER, sys.executable, 120.0)
    objectives = read_settings(Said(config="facts.toml"), FOLDER).intent.objectives
    found = hold_against(reference, runs, objectives, TOLERANCE)

    assert [len(run.losses) for run in runs] == [6, 6, 6]  # three operations of two backward calls
    assert {name: len(series) for name, series in runs[0].values.gradients.items()} == {
        "Generator.output.weight": 3,
        "Generator.output.bias": 3,
        "Critic.hidden.weight": 3,
        "Critic.hidden.bias": 3,
        "Critic.score.weight": 3,
        "Critic.score.bias": 3,
    }
    assert found.checks == {
        "finite_losses": True,
        "finite_gradients": True,
        "moves_only_what_is_intended": True,
        "equal_to_the_reference": complete,
    }
    assert found.worst is not None
    assert (found.worst < 1e-12) is complete


def test_at_the_first_operation_the_critic_alone_holds_what_is_not_its_own(reference: Reference) -> None:
    run = record_runs("deferred.py", [0], FOLDER, sys.executable, 120.0)[0]
    expected, found = reference.runs[0].gradients, run.values.gradients

    for name, series in expected.items():
        same = found[name][0] == pytest.approx(series[0], rel=TOLERANCE)
        assert same is name.startswith("Generator."), name


# -- the story ---------------------------------------------------------------------------------------------------------


def test_the_story_is_told_again_and_equals_its_receipt(weaklink: Weaklink) -> None:
    ran = weaklink("replay", "generator_critic", "--in", str(FOLDER.parent), "--json")

    assert ran.json["replays"][0]["differences"] == []
    assert ran.code == 0


def test_the_first_diagnosis_names_the_exception_and_the_step_before_it(receipt: StoryReceipt) -> None:
    first = receipt.first

    assert first.first_divergence == {"row": "UPDATE/pending", "status": "fail", "basis": "exact"}
    assert first.rows["UPDATE/pending"]["where"] == ["train.py:21", "train.py:22"]
    assert first.outcome["raised"] == "RuntimeError"
    assert first.experiment == {"name": "defer_step_until_backward", "parameters": {"site": "train.py:21"}}
    assert first.mechanisms == {"step_before_backward": "supported", "other": "refuted"}
    assert first.status.recovery == "not attempted"


def test_the_reorder_stops_the_exception_and_is_refused_as_incomplete(receipt: StoryReceipt) -> None:
    attempt = receipt.attempts["deferred.py"]

    assert attempt.recovery == "incomplete"
    assert {run["row"] for run in attempt.runs.values()} == {"pass"}
    assert {run["ended"] for run in attempt.runs.values()} == {"completed"}
    assert [run["newly_failing"] for run in attempt.runs.values()] == [["OWNERSHIP/isolation"]] * 3
    assert attempt.against_the_reference["complete"] is False
    diagnosed = receipt.diagnosed["deferred.py"]
    assert diagnosed.first_divergence == {"row": "OWNERSHIP/isolation", "status": "fail", "basis": "declared"}
    assert diagnosed.experiment == {"name": "isolate_objectives", "parameters": {}}
    assert diagnosed.status.cause == "supported"


def test_isolation_is_complete(receipt: StoryReceipt) -> None:
    attempt = receipt.attempts["isolated.py"]

    assert attempt.recovery == "recovered (bounded)"
    assert [run["first_divergence"] for run in attempt.runs.values()] == [None] * 3
    assert attempt.against_the_reference["complete"] is True
    assert receipt.diagnosed["isolated.py"].first_divergence is None
    assert receipt.diagnosed["isolated.py"].frozen is None


def test_the_first_prediction_the_facts_and_the_failed_attempt_stay_in_one_chain(receipt: StoryReceipt) -> None:
    assert receipt.first.frozen is not None
    assert receipt.first_prediction["claim_sha256"] == receipt.first.frozen.claim_sha256
    assert digest(receipt.first.frozen.claim) == receipt.first.frozen.claim_sha256
    assert [fact.partition(":")[0] for fact in receipt.facts] == ["Ownership", "Zeroing order", "Backward scope"]
    kinds = [
        kind for kind in receipt.events if kind.partition(".")[0] in ("prediction", "verdict", "operator", "reference")
    ]
    assert kinds == [
        "prediction.frozen",
        "verdict.reached",
        *["operator.fact"] * 3,
        "reference.sealed",
        "reference.compared",
        "reference.compared",
    ]
    assert receipt.events.count("recovery.finished") == 2
    assert receipt.check == "intact"


def test_the_reference_was_sealed_before_any_outcome_was_held_against_it(receipt: StoryReceipt) -> None:
    sealed = receipt.events.index("reference.sealed")

    assert sealed < min(receipt.events.index("recovery.started"), receipt.events.index("reference.compared"))
    assert receipt.reference["outcome_sha256"] == digest(receipt.reference["outcome"])
    assert receipt.reference["expects"] == {"deferred.py": False, "isolated.py": True}
    for attempt in receipt.attempts.values():
        assert attempt.against_the_reference["sealed"] == sealed
        assert attempt.against_the_reference["claim_sha256"] == receipt.first_prediction["claim_sha256"]
    open_questions = [limit.partition(":")[0] for limit in receipt.reference["does_not_prove"]]
    assert open_questions == ["Convergence", "Recurrence", "Checkpoints", "Several devices"]


def test_the_stored_reference_is_the_one_that_is_computed_now(receipt: StoryReceipt, reference: Reference) -> None:
    stored = Reference.model_validate(receipt.reference["outcome"])

    for then, now in zip(stored.runs, reference.runs, strict=True):
        assert now.losses == pytest.approx(then.losses, rel=TOLERANCE)
        for name, series in then.gradients.items():
            for one, other in zip(series, now.gradients[name], strict=True):
                assert other == pytest.approx(one, rel=1e-6, abs=1e-12)


def _fact(body: dict[str, Any]) -> None:
    body["facts"][0] = "Ownership: anything may change anything."


def _claim(body: dict[str, Any]) -> None:
    body["first_prediction"]["claim_sha256"] = "0" * 64


def _verdict(body: dict[str, Any]) -> None:
    body["attempts"]["deferred.py"]["recovery"] = "recovered (bounded)"


def _number(body: dict[str, Any]) -> None:
    body["reference"]["outcome"]["runs"][1]["losses"][0] += 0.5


def _order(body: dict[str, Any]) -> None:
    body["events"].remove("reference.sealed")
    body["events"].append("reference.sealed")


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (_fact, "facts"),
        (_claim, "first_prediction: the receipt's digest is not that of its own claim"),
        (_verdict, "attempts deferred.py.recovery"),
        (_number, "reference outcome.runs[1].losses"),
        (_order, "events"),
    ],
    ids=["a fact", "the first prediction", "what became of an attempt", "the reference", "the order of events"],
)
def test_an_edited_receipt_differs(edit: Callable[[dict[str, Any]], None], said: str, receipt: StoryReceipt) -> None:
    body = json.loads((FOLDER / "receipt.json").read_text(encoding="utf-8"))
    edit(body)
    found = compare_stories(StoryReceipt.model_validate(body), receipt)

    assert any(text.startswith(said) for text in found.differences), found.differences
    assert compare_stories(receipt, receipt).equal
