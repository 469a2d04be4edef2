"""The experiment `seed`: the script from another random start, its own generators left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from collector_runs import Run, observe, plain

from weaklink.collector.evidence import InterventionReport
from weaklink.collector.job import Pins

# `seeds` stands for how a script seeds itself.
SCRIPT = """
import random
import numpy
import torch
from torch import nn
{seeds}
data = torch.Generator().manual_seed(3)
x = torch.randn(8, 4, generator=data)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), torch.arange(8) % 2)
    loss.backward()
    optimizer.step()
print(x.sum().item(), loss.item(), random.random(), numpy.random.rand(), torch.rand(1).item())
"""
SEEDED = SCRIPT.format(seeds="random.seed({0}); numpy.random.seed({0}); torch.manual_seed({0})")
# Nothing here draws from a global stream: all numbers come from generators of its own.
OWN = """
import numpy, random, torch
from torch import nn
data = torch.Generator().manual_seed(3)
rng, dice = numpy.random.default_rng(1), random.Random(2)
model = nn.Linear(4, 2, device="meta").to_empty(device="cpu")
with torch.no_grad():
    for parameter in model.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=data))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.randn(8, 4, generator=data)).square().mean()
loss.backward()
optimizer.step()
print(loss.item(), rng.random(), dice.random())
"""


def treated(source: str, folder: Path, k: int) -> Run:
    run = observe(
        source, folder, role="treatment", intervention="seed", intervention_parameters={"k": k}, keep_initial=True
    )
    assert run.code == 0, run.err
    assert run.seen.problems == []
    return run


def report(run: Run) -> InterventionReport:
    assert run.seen.intervention is not None
    return run.seen.intervention


def test_a_seeded_script_is_what_it_is_with_a_larger_seed(tmp_path: Path) -> None:
    run = treated(SEEDED.format(4), tmp_path, k=3)
    assert run.out == plain(SEEDED.format(7), tmp_path).out
    assert report(run).changed == ["random.seed", "numpy.random.seed", "torch.manual_seed"]
    assert "seed 4 became 7" in report(run).detail
    assert "train.py:6" in report(run).detail


def test_a_script_that_seeds_nothing_begins_elsewhere_and_the_same_for_the_same_offset(tmp_path: Path) -> None:
    source = SCRIPT.format(seeds="")
    pinned = observe(source, tmp_path, pins=Pins())
    runs = [observe(source, tmp_path, pins=Pins(offset=offset)) for offset in (1, 1, 2)]
    words = [run.out.split() for run in (pinned, *runs)]
    assert words[1] == words[2]
    for place, name in enumerate(("data", "loss", "random", "numpy", "torch")):
        alike = len({tuple(line[place : place + 1]) for line in words})
        assert alike == (1 if name == "data" else 3), name


def test_the_offset_of_the_pins_and_the_experiment_are_the_same_change(tmp_path: Path) -> None:
    pinned = observe(SEEDED.format(0), tmp_path, pins=Pins(offset=5))
    assert pinned.out == treated(SEEDED.format(0), tmp_path, k=5).out == plain(SEEDED.format(5), tmp_path).out
    assert pinned.seen.environment.pins["offset"] == "5"


def test_generators_of_the_scripts_own_are_left_alone(tmp_path: Path) -> None:
    run = treated(OWN, tmp_path, k=1)
    assert run.out == plain(OWN, tmp_path).out
    assert not report(run).applied


@pytest.mark.parametrize(
    "seeds",
    [
        "random.seed('words'); numpy.random.seed([1, 2]); torch.manual_seed(0)",
        "torch.random.manual_seed(seed=0); numpy.random.seed(seed=0); random.seed(a=0)",
        "torch.manual_seed(torch.tensor(0)); numpy.random.seed(numpy.int64(2**32 - 1)); random.seed(None)",
        "torch.manual_seed(2**64 - 1); torch.cuda.manual_seed_all(0); torch.cuda.manual_seed(0)",
        "torch.manual_seed(-3)",
    ],
)
def test_whatever_a_stream_can_be_seeded_with_is_taken(seeds: str, tmp_path: Path) -> None:
    source = SCRIPT.format(seeds=seeds)
    run = treated(source, tmp_path, k=2)
    assert run.out.split()[1] != plain(source, tmp_path).out.split()[1]


FACTORY = """
import torch
from torch import nn
from weaklink.collector import TrainingSystem
def build():
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return TrainingSystem(model, optimizer, x, torch.arange(8) % 2)
"""


def test_a_factory_begins_elsewhere_too(tmp_path: Path) -> None:
    from collector_runs import run_job, write

    from weaklink.collector.evidence import Subject
    from weaklink.collector.job import Job

    write(FACTORY, tmp_path)
    subject = Subject(kind="factory", name="train.py:build")
    job = Job(role="control", subject=subject, folder=tmp_path, evidence=tmp_path / "evidence.json", horizon=3)
    first = run_job(job, tmp_path).seen
    moved = run_job(job.model_copy(update={"intervention": "seed", "intervention_parameters": {"k": 1}}), tmp_path).seen
    assert moved.intervention is not None
    assert moved.intervention.applied
    assert moved.fingerprint.inputs == first.fingerprint.inputs
    assert moved.fingerprint.outputs != first.fingerprint.outputs
