"""What one process says of itself under a launcher, and whether a sampler reshuffles."""

from __future__ import annotations

from pathlib import Path

import pytest
from collector_runs import line_of, observe_code, row, with_status

from weaklink.collector.rank import rank_of

SAMPLED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

torch.manual_seed(0)
x = torch.randn(48, 4)
y = (x.sum(1) > 0).long()
data = TensorDataset(x, y)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
sampler = DistributedSampler(data, num_replicas=2, rank=0, shuffle=True)
loader = DataLoader(data, batch_size=4, sampler=sampler)
held_out = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, num_replicas=2, rank=0, shuffle=True))

def train(batch, change=lambda a: a):
    a, b = batch
    loss = nn.functional.cross_entropy(model(change(a)), b)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

def evaluate():
    model.eval()
    with torch.no_grad():
        for a, b in held_out:
            model(a)
    model.train()
"""

FORGOTTEN = """
for epoch in range(3):
    for batch in loader:
        train(batch)
    evaluate()
"""

AUGMENTED = """
for epoch in range(3):
    for batch in loader:
        train(batch, lambda a: a + 0.1 * torch.randn_like(a))
"""

HEALTHY = {
    "told which epoch begins": """
for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch in loader:
        train(batch)
    evaluate()
""",
    "one epoch alone, evaluated in the middle of it": """
for number, batch in enumerate(loader):
    train(batch)
    if number % 2:
        evaluate()
""",
    "an evaluation that computes gradients for nothing": """
sampler.set_epoch(1)
for number, batch in enumerate(loader):
    train(batch)
    if number % 3 == 1:
        for a, b in held_out:
            model(a)
""",
    "a data set that reshuffles itself": """
class Own(torch.utils.data.Dataset):
    def __init__(self):
        self.order = torch.arange(len(x))
    def __len__(self):
        return len(x)
    def __getitem__(self, index):
        return data[int(self.order[index])]
own = Own()
loader = DataLoader(own, batch_size=4, sampler=DistributedSampler(own, num_replicas=2, rank=0))
for epoch in range(3):
    own.order = torch.randperm(len(x))
    for batch in loader:
        train(batch)
""",
    "a sampler of the user's own over torch's": """
class Own(DistributedSampler):
    def __iter__(self):
        found = list(super().__iter__())
        return iter([found[place] for place in torch.randperm(len(found)).tolist()])
loader = DataLoader(data, batch_size=4, sampler=Own(data, num_replicas=2, rank=0))
for epoch in range(3):
    for batch in loader:
        train(batch)
""",
    "no shuffling asked for": """
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, 2, 0, shuffle=False))
for epoch in range(3):
    for batch in loader:
        train(batch)
""",
}


@pytest.mark.parametrize("loop", [FORGOTTEN, AUGMENTED], ids=["plain", "augmented"])
def test_a_sampler_that_nobody_tells_the_epoch_draws_one_order(loop: str, tmp_path: Path) -> None:
    found = row(observe_code(SAMPLED + loop, tmp_path), "TASK/epoch_order")
    assert (found.status, found.basis) == ("fail", "exact")
    assert found.where[0].line == line_of(SAMPLED + loop, "for batch in loader")
    assert found.values == {"epochs": 3, "orders": 1}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_ways_to_deal_out_data_accuse_nobody(name: str, tmp_path: Path) -> None:
    seen = observe_code(SAMPLED + HEALTHY[name], tmp_path)
    assert with_status(seen, "fail") == {}
    order = seen.row("TASK/epoch_order")
    assert order is None or order.status in ("pass", "evidence")


def test_a_process_that_is_alone_says_nothing_of_replicas(tmp_path: Path) -> None:
    assert observe_code(SAMPLED + "train((x, y))", tmp_path).replica is None


def test_under_a_launcher_each_sampled_step_is_written_down(tmp_path: Path) -> None:
    launched = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "29500"}
    loop = "\nfor step in range(30):\n    train((x[step:], y[step:]))\n"
    replica = observe_code(SAMPLED + loop, tmp_path, environment=launched).replica
    assert replica is not None
    assert (replica.rank, replica.world_size, replica.process_group, replica.wrapped) == (1, 2, 0, [])
    assert [step.step for step in replica.steps] == [1, 2, 3, 4, 5, 10, 20]
    assert len({step.inputs[0] for step in replica.steps}) == 7
    assert all(step.before != step.after and step.gradients for step in replica.steps)
    # Single parameters of the first two and the last step; the others would only make the file long.
    assert [len(step.after_by_parameter) for step in replica.steps] == [2, 2, 0, 0, 0, 0, 2]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "zero", "WORLD_SIZE": "2"}, None),
        ({"RANK": "2", "WORLD_SIZE": "4"}, (2, 4)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "8"}, (1, 8)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"RANK": "0", "WORLD_SIZE": "2", "SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, (0, 2)),
    ],
)
def test_the_rank_is_what_the_launcher_says(environment: dict[str, str], expected: tuple[int, int] | None) -> None:
    found = rank_of(environment)
    assert (None if found is None else (found.rank, found.world_size)) == expected
