"""What happens to an experiment when something comes between the freeze and its verdict."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import COMMAND, STALE_HEAD, Weaklink, environment

from weaklink.agent.record.bodies import RerunFinished, RerunStarted
from weaklink.agent.record.incident import Incident

STALE = """
import os, time
import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randint(2, (64,))
BEFORE
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model[2] = nn.Linear(8, 2)
start = model[2].weight.detach().clone()
for step in range(120):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    AFTER
"""


def stale(before: str = "pass", after: str = "pass") -> str:
    return STALE.replace("BEFORE", before).replace("AFTER", after)


def write(folder: Path, before: str = "pass", after: str = "pass") -> Path:
    path = folder / "train.py"
    path.write_text(stale(before, after))
    return path


def diagnose_and_meddle(folder: Path, meddle: Callable[[], object], **variables: str) -> Incident:
    """Start a diagnosis, and do something the moment its prediction is frozen."""
    process = subprocess.Popen(
        [*COMMAND, "diagnose", "train.py", "--json"],
        cwd=folder,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("frozen"):
            meddle()
            break
    process.communicate(timeout=200)
    (incident,) = (folder / "incidents").iterdir()
    return Incident.read(incident)


def lead(incident: Incident) -> tuple[str, str]:
    assert incident.verdict is not None
    first = incident.verdict.verdict.mechanisms[0]
    return first.status, first.reason


def test_a_source_that_changes_after_the_freeze_makes_the_experiment_void(tmp_path: Path) -> None:
    path = write(tmp_path, after="time.sleep(0.01)")
    incident = diagnose_and_meddle(tmp_path, lambda: path.write_text(stale("torch.set_num_threads(1)")))
    status, reason = lead(incident)
    assert status == "void"
    assert reason.endswith(": train.py"), reason  # seen before the next rerun, or by the one that was under way
    assert incident.frozen is not None
    assert incident.closed is not None


def test_an_input_that_changes_between_the_runs_makes_the_experiment_void(tmp_path: Path) -> None:
    data = tmp_path / "rates.csv"
    data.write_text("0.1\n0.2\n")
    write(tmp_path, 'print(open("rates.csv").read())', "time.sleep(0.01)")
    incident = diagnose_and_meddle(tmp_path, lambda: data.write_text("0.1\n0.3\n"))
    assert lead(incident) == ("void", "a rerun read what was not there before: rates.csv")


def test_a_treatment_that_raises_is_recorded_and_decides_nothing(tmp_path: Path, weaklink: Weaklink) -> None:
    write(tmp_path, after="assert torch.equal(model[2].weight, start), 'the head has moved'")
    ran = weaklink("diagnose", "train.py", "--json")
    incident = Incident.read(tmp_path / ran.json["incident"])
    status, reason = lead(incident)
    assert status == "inconclusive"
    assert "ended differently from the control (raised instead of" in reason
    treated = incident.reruns[-1]
    assert treated.role == "treatment"
    assert treated.evidence is not None
    assert treated.evidence.outcome.raised is not None
    assert treated.evidence.outcome.raised.message == "the head has moved"
    assert incident.verdict is not None
    assert incident.verdict.status.cause == "suspected"


def test_a_treatment_that_is_killed_is_recorded_and_decides_nothing(tmp_path: Path, weaklink: Weaklink) -> None:
    (tmp_path / "train.py").write_text(
        stale(after="if not torch.equal(model[2].weight, start): os.kill(os.getpid(), 9)")
    )
    ran = weaklink("diagnose", "train.py", "--json")
    incident = Incident.read(tmp_path / ran.json["incident"])
    assert lead(incident)[0] == "inconclusive"
    assert incident.reruns[-1].problem == "the run's process ended with killed by signal 9 (out of memory?)"


def test_a_treatment_that_outlasts_its_deadline_is_recorded(tmp_path: Path, weaklink: Weaklink) -> None:
    write(tmp_path, after="time.sleep(0 if torch.equal(model[2].weight, start) else 60)")
    ran = weaklink("diagnose", "train.py", "--json", "--deadline", "12")
    incident = Incident.read(tmp_path / ran.json["incident"])
    assert lead(incident)[0] == "inconclusive"
    assert "deadline" in lead(incident)[1]


def test_a_treatment_that_turns_non_finite_is_not_supported(tmp_path: Path, weaklink: Weaklink) -> None:
    (tmp_path / "train.py").write_text(
        stale(after="model[2].weight.data.mul_(1 if torch.equal(model[2].weight, start) else float('nan'))")
    )
    ran = weaklink("diagnose", "train.py", "--json")
    assert lead(Incident.read(tmp_path / ran.json["incident"]))[0] in ("refuted", "inconclusive", "void")


def test_what_one_horizon_leaves_open_is_run_once_more_further(tmp_path: Path, weaklink: Weaklink) -> None:
    # Around the first horizon the labels are turned over: a head that learns is the worse for it, until they are back.
    write(tmp_path, after="y = 1 - y if step in (39, 59) else y")
    ran = weaklink("diagnose", "train.py", "--json")
    incident = Incident.read(tmp_path / ran.json["incident"])
    started = [body for _, _, body in incident.events if isinstance(body, RerunStarted) and body.role == "treatment"]
    assert [body.horizon for body in started] == [50, None]
    assert incident.frozen is not None
    assert incident.frozen.claim["horizons"] == [50, None]
    finished = [body for _, _, body in incident.events if isinstance(body, RerunFinished) and body.role == "control"]
    assert [body.evidence.outcome.steps for body in finished if body.evidence] == [50, 120]
    assert lead(incident)[0] == "supported"


@pytest.mark.parametrize("threads", ["1", "2"])
def test_reruns_side_by_side_and_one_by_one_decide_alike(tmp_path: Path, threads: str, weaklink: Weaklink) -> None:
    (tmp_path / "train.py").write_text(STALE_HEAD.read_text())
    ran = weaklink("diagnose", "train.py", "--json", env=environment(OMP_NUM_THREADS=threads))
    assert ran.json["mechanism"]["status"] == "supported"
    incident = Incident.read(tmp_path / ran.json["incident"])
    roles = [rerun.role for rerun in incident.reruns]
    assert roles == ["control", "control_again", "placebo", "treatment"]
