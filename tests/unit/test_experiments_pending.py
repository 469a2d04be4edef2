"""A step that comes before its backward: the row that names both lines, and the experiment that lets the step wait."""

from __future__ import annotations

from pathlib import Path

import pytest
from collector_runs import Run, line_of, observe, observe_code, plain, row, run_job, write

from weaklink.collector.evidence import Subject
from weaklink.collector.job import Job

# The critic's step stands between the generator's forward and its backward.
EARLY = """
import torch
from torch import nn
torch.manual_seed(0)
generator = nn.Linear(2, 2)
critic = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
of_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
of_critic = torch.optim.Adam(critic.parameters(), lr=0.1)
for step in range(4):
    noise, real = torch.randn(3, 2), torch.randn(3, 2)
    fake = generator(noise)
    wanted = (critic(fake) - 1).pow(2).mean()
    judged = critic(fake.detach()).pow(2).mean() + (critic(real) - 1).pow(2).mean()
    of_critic.zero_grad()
    of_generator.zero_grad()
    judged.backward()
    of_critic.step()
    wanted.backward()
    of_generator.step()
    print(repr(judged.item()), repr(wanted.item()))
"""
LATE = EARLY.replace("    of_critic.step()\n    wanted.backward()\n", "    wanted.backward()\n    of_critic.step()\n")

# Frozen while the generator's loss is made, as many write it: nothing of the critic hangs in that graph.
FROZEN = EARLY.replace(
    "    wanted = (critic(fake) - 1).pow(2).mean()\n",
    "    critic.requires_grad_(False)\n"
    "    wanted = (critic(fake) - 1).pow(2).mean()\n"
    "    critic.requires_grad_(True)\n",
)

CARRIED = """
import torch
from torch import nn
torch.manual_seed(0)
cell, head = nn.RNNCell(2, 4), nn.Linear(4, 1)
optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
hidden = torch.zeros(3, 4)
for step in range(4):
    hidden = cell(torch.randn(3, 2), hidden)
    loss = head(hidden).pow(2).mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
"""

# Of the same shape as the weights, and at the versions that a step takes them through.
BY_HAND = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    scores = torch.sigmoid(model(torch.randn(4, 4)))
    squares = (scores * scores).mean()
    if step == 1:
        scores.add_(1)
    optimizer.zero_grad()
    squares.backward()
    optimizer.step()
"""


def deferred(source: str, folder: Path, site: str) -> Run:
    return observe(
        source,
        folder,
        role="treatment",
        intervention="defer_step_until_backward",
        intervention_parameters={"site": site},
        keep_initial=True,
    )


@pytest.mark.parametrize("source", [EARLY, FROZEN], ids=["in the graph", "frozen meanwhile"])
def test_the_step_and_the_backward_that_still_needed_the_parameters_are_named(source: str, tmp_path: Path) -> None:
    run = observe(source, tmp_path)

    assert run.code == 1
    found = row(run.seen, "UPDATE/pending")
    assert (found.status, found.basis, found.step) == ("fail", "exact", 1)
    lines = [line_of(source, "of_critic.step()"), line_of(source, "wanted.backward()")]
    assert [site.place for site in found.where] == [f"train.py:{line}" for line in lines]
    assert found.values["parameters"] == ["Sequential.2.weight"]
    assert "modified by an inplace operation" in found.text
    assert run.seen.first_divergence == found
    assert run.seen.row("GRADIENT/raised") is None
    assert run.seen.problems == []


def test_a_graph_that_is_carried_over_a_step_is_no_early_step(tmp_path: Path) -> None:
    run = observe(CARRIED, tmp_path)

    assert run.seen.first_divergence is not None
    assert run.seen.first_divergence.id == "DEPENDENCY/carried"
    assert run.seen.row("UPDATE/pending") is None
    assert run.seen.first_divergence.values["parameters"] == ["RNNCell.weight_hh"]


def test_a_tensor_that_the_script_changes_itself_accuses_no_step(tmp_path: Path) -> None:
    run = observe(BY_HAND, tmp_path)

    assert row(run.seen, "GRADIENT/raised").status == "fail"
    assert row(run.seen, "UPDATE/pending").status == "evidence"


def test_a_step_after_all_its_backward_calls_passes(tmp_path: Path) -> None:
    assert row(observe_code(LATE, tmp_path), "UPDATE/pending").status == "pass"


def test_without_a_step_nothing_is_measured(tmp_path: Path) -> None:
    source = EARLY.replace("    of_critic.step()\n", "").replace("    of_generator.step()\n", "")
    assert row(observe_code(source, tmp_path), "UPDATE/pending").status == "not_measured"


def test_a_step_that_waits_gives_what_the_reordered_script_prints(tmp_path: Path) -> None:
    run = deferred(EARLY, tmp_path, f"train.py:{line_of(EARLY, 'of_critic.step()')}")

    assert run.code == 0, run.err
    assert run.out == plain(LATE, tmp_path).out
    report = run.seen.intervention
    assert report is not None
    assert (report.applied, report.changed) == (True, ["Adam"])
    assert row(run.seen, "UPDATE/pending").status == "pass"
    assert run.seen.problems == []


def test_a_line_that_asks_for_no_step_changes_nothing(tmp_path: Path) -> None:
    run = deferred(LATE, tmp_path, f"train.py:{line_of(LATE, 'judged.backward()')}")

    assert run.seen.intervention is not None
    assert not run.seen.intervention.applied
    assert run.out == plain(LATE, tmp_path).out


def test_a_step_with_a_closure_never_waits(tmp_path: Path) -> None:
    source = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    model, x = nn.Linear(2, 1), torch.randn(4, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    def closure():
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss
    for step in range(2):
        print(repr(optimizer.step(closure).item()))
    """
    run = deferred(source, tmp_path, f"train.py:{line_of(source, 'optimizer.step')}")

    assert run.seen.intervention is not None
    assert not run.seen.intervention.applied
    assert run.out == plain(source, tmp_path).out


FACTORY = """
import torch
from torch import nn
from weaklink.collector import TrainingSystem

def build():
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return TrainingSystem(
        model=model, optimizer=optimizer, inputs=torch.randn(8, 2), targets=torch.arange(8) % 2, steps=3
    )
"""


def test_a_factorys_step_is_no_line_of_the_users_and_never_waits(tmp_path: Path) -> None:
    write(FACTORY, tmp_path)
    runs = [
        run_job(
            Job(
                role="treatment" if name else "control",
                subject=Subject(kind="factory", name="train.py:build"),
                folder=tmp_path,
                evidence=tmp_path / "evidence.json",
                intervention=name,
                intervention_parameters={"site": "train.py:9"} if name else {},
            ),
            tmp_path,
        )
        for name in ("defer_step_until_backward", None)
    ]
    treated, control = runs
    assert treated.code == control.code == 0, treated.err
    assert treated.seen.intervention is not None
    assert not treated.seen.intervention.applied
    assert treated.seen.losses == control.seen.losses
    assert row(treated.seen, "UPDATE/pending").status == "pass"
