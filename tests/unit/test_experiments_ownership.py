"""Experiments on which parameters there are, which are trained and who holds them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from collector_runs import Run, observe, plain, row, run_job, write
from test_collector_experiments import SGD, losses, report, treated
from test_collector_figures import PROBLEM, script

from weaklink.collector.evidence import Subject
from weaklink.collector.job import Job


def printed(source: str, folder: Path) -> str:
    run = plain(source, folder)
    assert run.code == 0, run.err
    return run.out


# -- modules that no model has -----------------------------------------------------------------------------------------

LISTED = """
class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = {kind}([nn.Linear(2, 8) for _ in range(3)])
        self.head = nn.Linear(24, 2)

    def forward(self, x):
        return self.head(torch.cat([torch.relu(branch(x)) for branch in self.branches], 1))

torch.manual_seed(3)
net = Branches()
optimizer = torch.optim.{optimizer}
for step in range(6):
    loss = F.cross_entropy(net(batch), labels)
    net.zero_grad()
    for branch in net.branches:
        branch.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", repr(loss.item()))
"""


@pytest.mark.parametrize("optimizer", ["SGD(net.parameters(), lr=0.1)", "Adam(net.parameters(), lr=0.01)"])
def test_layers_in_a_plain_list_are_held_and_learn(tmp_path: Path, optimizer: str) -> None:
    source = PROBLEM + LISTED.format(kind="list", optimizer=optimizer)
    run = treated(source, tmp_path, "own_missing_parameters", parameters="*", unregistered=True)
    assert run.out == printed(PROBLEM + LISTED.format(kind="nn.ModuleList", optimizer=optimizer), tmp_path)
    assert run.out != printed(source, tmp_path)
    assert row(run.seen, "OWNERSHIP/unregistered").status == "pass"
    assert len(report(run).changed) == 6


def test_registered_or_not_are_two_experiments(tmp_path: Path) -> None:
    listed = PROBLEM + LISTED.format(kind="list", optimizer="SGD(net.parameters(), lr=0.1)")
    assert not report(treated(listed, tmp_path, "own_missing_parameters", parameters="*")).applied
    head = script("optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)")
    run = treated(head, tmp_path, "own_missing_parameters", parameters="*", unregistered=True)
    assert run.seen.losses.value == losses(head, tmp_path)
    assert not report(run).applied


# -- one module in several places --------------------------------------------------------------------------------------

PLACES = """
class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 16), nn.ReLU())
        self.heads = {container}

    def forward(self, x):
        hidden = self.body(x)
        return [head(hidden) for head in self.heads]

torch.manual_seed(3)
net = Heads()
{after}
{optimizer}
for step in range(6):
    outs = net(batch)
    loss = sum(F.cross_entropy(out, labels if k else 1 - labels) for k, out in enumerate(outs))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", repr(loss.item()))
"""
SHARED = "nn.ModuleList([nn.Linear(16, 2)] * 3)"
COPIES = "import copy; net.heads = nn.ModuleList([copy.deepcopy(net.heads[0]) for _ in range(3)])"


def places(container: str = SHARED, after: str = "", optimizer: str = "SGD(net.parameters(), lr=0.5)") -> str:
    return PROBLEM + PLACES.format(container=container, after=after, optimizer=f"optimizer = torch.optim.{optimizer}")


TWO_GROUPS = "Adam([{'params': net.body.parameters()}, {'params': net.heads.parameters()}], lr=0.01)"


@pytest.mark.parametrize("optimizer", ["SGD(net.parameters(), lr=0.5)", TWO_GROUPS])
def test_one_module_in_three_places_becomes_three(tmp_path: Path, optimizer: str) -> None:
    shared = places(optimizer=optimizer)
    run = treated(shared, tmp_path, "untie_modules", container="heads")
    assert run.out == printed(places(after=COPIES, optimizer=optimizer), tmp_path)
    assert run.out.splitlines()[0] == printed(shared, tmp_path).splitlines()[0]
    assert run.out != printed(shared, tmp_path)
    assert report(run).changed == ["heads.1", "heads.2"]
    assert row(run.seen, "OWNERSHIP/shared").status == "pass"
    assert row(run.seen, "OWNERSHIP/owned").status == "pass"


def test_an_optimizer_that_is_built_after_the_first_forward_finds_them_by_itself(tmp_path: Path) -> None:
    late = places().replace("optimizer = ", "net(batch)\noptimizer = ")
    run = treated(late, tmp_path, "untie_modules")
    assert run.out == printed(places(after=COPIES), tmp_path)


@pytest.mark.parametrize("container", ["body", "heads.*"])
def test_another_container_stays_as_it_is(tmp_path: Path, container: str) -> None:
    run = treated(places(), tmp_path, "untie_modules", container=container)
    assert run.out == printed(places(), tmp_path)
    assert not report(run).applied


def test_modules_of_their_own_stay_and_their_row_passes(tmp_path: Path) -> None:
    own = places("nn.ModuleList([nn.Linear(16, 2) for _ in range(3)])")
    run = treated(own, tmp_path, "untie_modules")
    assert run.out == printed(own, tmp_path)
    assert not report(run).applied
    assert row(run.seen, "OWNERSHIP/shared").status == "pass"


def test_a_factorys_shared_heads_are_untied_too(tmp_path: Path) -> None:
    source = """
        import torch
        from torch import nn
        from weaklink.collector import TrainingSystem

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.heads = nn.ModuleList([nn.Linear(2, 2)] * 2)

            def forward(self, x):
                return torch.cat([head(x) for head in self.heads], 1)

        def build():
            torch.manual_seed(0)
            x = torch.randn(64, 2)
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            return TrainingSystem(model=model, optimizer=optimizer, inputs=x, targets=(x[:, 0] > 0).long(), steps=5)
    """
    control, treatment = factory(source, tmp_path, None), factory(source, tmp_path, "untie_modules")
    assert treatment.seen.losses.value[0] == control.seen.losses.value[0]
    assert treatment.seen.losses.value[1:] != control.seen.losses.value[1:]
    assert report(treatment).changed == ["heads.1"]
    assert row(treatment.seen, "OWNERSHIP/shared").status == "pass"


def factory(source: str, folder: Path, name: str | None) -> Run:
    write(source, folder)
    job = Job(
        role="control" if name is None else "treatment",
        folder=folder,
        evidence=folder / "evidence.json",
        subject=Subject(kind="factory", name="train.py:build", argv=[]),
        intervention=name,
    )
    return run_job(job, folder)


# -- freezing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", ["model.parameters()", "[p for p in model.parameters() if p.requires_grad]"])
def test_what_was_frozen_is_trained_and_held(tmp_path: Path, held: str) -> None:
    frozen = script(f"model.features.requires_grad_(False)\noptimizer = torch.optim.SGD({held}, lr=0.1)")
    run = treated(frozen, tmp_path, "unfreeze", parameters="features.*")
    assert run.seen.losses.value == losses(script(SGD), tmp_path)
    assert run.seen.losses.value != losses(frozen, tmp_path)
    assert report(run).changed == ["features.0.weight", "features.0.bias", "features.2.weight", "features.2.bias"]


def test_what_is_frozen_again_at_every_step_is_trained_from_that_step_on(tmp_path: Path) -> None:
    again = SGD + "\nfreeze = model.features.requires_grad_"
    frozen = script(again).replace("    loss = ", "    freeze(step < 2)\n    loss = ")
    run = treated(frozen, tmp_path, "unfreeze", parameters="features.*", after=3)
    late = frozen.replace("freeze(step < 2)", "freeze(step != 2)")
    assert run.seen.losses.value == losses(late, tmp_path)
    assert run.seen.losses.value != losses(frozen, tmp_path)


# -- single parameters drawn anew --------------------------------------------------------------------------------------

FACTORS = """
class Adapter(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(2, 2)
        self.down = nn.Parameter(torch.{down}(4, 2))
        self.up = nn.Parameter(torch.zeros(2, 4))

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T

torch.manual_seed(3)
net = Adapter()
net.base.requires_grad_(False)
optimizer = torch.optim.SGD([net.down, net.up], lr=0.5)
for step in range(14):
    loss = F.cross_entropy(net(batch), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", repr(loss.item()))
"""


def test_one_of_two_factors_that_are_zero_lets_both_learn(tmp_path: Path) -> None:
    source = textwrap.dedent(PROBLEM + FACTORS.format(down="zeros"))
    run = treated(source, tmp_path, "reinitialize", module="down", scheme="kaiming_uniform")
    before = printed(source, tmp_path).splitlines()
    assert len(set(before)) == 1
    assert run.out.splitlines()[0] == before[0]
    assert run.out.splitlines()[-1] < before[-1]
    assert report(run).changed == ["down"]
    assert row(run.seen, "GRADIENT/nonzero").status == "pass"


def test_the_row_names_what_waits_layer_by_layer(tmp_path: Path) -> None:
    source = PROBLEM + FACTORS.format(down="zeros").replace("[net.down, net.up]", "factors")
    source = source.replace("net = Adapter()", "net = nn.Sequential(Adapter(), nn.Tanh(), Adapter())")
    named = "factors = [p for n, p in net.named_parameters() if 'base' not in n]"
    source = source.replace("net.base.requires_grad_(False)", named)
    run = observe(source, tmp_path, looks="fork")
    assert row(run.seen, "GRADIENT/nonzero").values["waiting"] == ["0.down", "2.down"]
