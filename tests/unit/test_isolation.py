"""Whose gradients an optimizer steps with: told by the backward line they came from, judged where it was declared."""

from __future__ import annotations

from pathlib import Path

import pytest
from collector_runs import line_of, observe_code, row, with_status

from weaklink.collector.declared import Intent
from weaklink.collector.evidence import Evidence

ADVERSARIAL = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
x = torch.randn(48, 6)
one, zero = torch.ones(48, 1), torch.zeros(48, 1)


class Maker(nn.Sequential):
    pass


class Critic(nn.Sequential):
    pass


maker = Maker(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 6))
critic = Critic(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
first = torch.optim.Adam(maker.parameters(), 1e-3)
second = torch.optim.Adam(critic.parameters(), 1e-3)
for step in range(12):
    first.zero_grad()
    made = maker(torch.randn(48, 3))
    F.binary_cross_entropy_with_logits(critic(made), one).backward()  # of the maker
    first.step()
    second.zero_grad({how})
    scores = F.binary_cross_entropy_with_logits(critic(x), one)
    (scores + F.binary_cross_entropy_with_logits(critic(made.detach()), zero)).backward()  # of the critic
    nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
    second.step()  # the critic's
"""
HEALTHY = ADVERSARIAL.format(how="")
BROKEN = HEALTHY.replace("    second.zero_grad()\n", "")
OBJECTIVES = {
    "maker": {"site": f"train.py:{line_of(HEALTHY, 'of the maker')}", "parameters": ["Maker.*"]},
    "critic": {"parameters": ["Critic.*"]},
}


def seen(source: str, folder: Path, objectives: dict[str, object] | None = None) -> Evidence:
    return observe_code(source, folder, intent=Intent.model_validate({"objectives": objectives or {}}))


@pytest.mark.parametrize("how", ["", "set_to_none=False"])
def test_gradients_that_are_cleared_first_do_no_harm(how: str, tmp_path: Path) -> None:
    evidence = seen(ADVERSARIAL.format(how=how), tmp_path, OBJECTIVES)
    assert row(evidence, "OWNERSHIP/isolation").status == "pass"
    assert with_status(evidence, "fail") == {}


def test_a_gradient_of_another_objective_that_is_stepped_contradicts_the_declaration(tmp_path: Path) -> None:
    found = row(seen(BROKEN, tmp_path, OBJECTIVES), "OWNERSHIP/isolation")
    assert (found.status, found.basis) == ("fail", "declared")
    assert "Adam stepped Critic.0.weight" in found.text
    assert [site.line for site in found.where][:2] == [
        line_of(BROKEN, "of the maker"),
        line_of(BROKEN, "the critic's"),
    ]
    assert found.step == 2


def test_without_a_declaration_it_is_said_and_nobody_is_accused(tmp_path: Path) -> None:
    for source, mixed in ((HEALTHY, 0), (BROKEN, 4)):
        found = row(seen(source, tmp_path), "OWNERSHIP/isolation")
        assert (found.status, found.values["mixed"]) == ("evidence", mixed)
        assert "not declared" in found.text


def test_an_objective_that_was_not_seen_is_not_passed(tmp_path: Path) -> None:
    nowhere = {**OBJECTIVES, "maker": {"site": "train.py:1", "parameters": ["Maker.*"]}, "critic": OBJECTIVES["maker"]}
    found = row(seen(HEALTHY, tmp_path, nowhere), "OWNERSHIP/isolation")
    assert found.status == "not_measured"
    assert "no backward at train.py:1" in (found.reason or "")


def test_a_pattern_that_means_nothing_accuses_nobody(tmp_path: Path) -> None:
    misspelt = {**OBJECTIVES, "critic": {"parameters": ["Critik.*"]}}
    found = row(seen(HEALTHY, tmp_path, misspelt), "OWNERSHIP/isolation")
    assert found.status == "not_measured"
    assert "'Critik.*' matches no parameter; nearest: Critic." in (found.reason or "")


ONE_OPTIMIZER = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
x = torch.randn(48, 6)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(8, 1)

    def forward(self, x):
        hidden = torch.tanh(self.trunk(x))
        return self.one(hidden), self.two({hidden})


model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    optimizer.zero_grad()
    one, two = model(x)
    F.cross_entropy(one, (x[:, 0] > 0).long()).backward(retain_graph=True)  # the first
    (F.mse_loss(two.squeeze(1), x[:, 1]) + {extra}).backward()  # the second
    optimizer.step()
"""
PROBE = {
    "first": {
        "site": f"train.py:{line_of(ONE_OPTIMIZER, 'the first')}",
        "parameters": ["trunk.*", "one.*"],
    },
    "probe": {"site": f"train.py:{line_of(ONE_OPTIMIZER, 'the second')}", "parameters": ["two.*"]},
}


def test_a_probe_that_reaches_the_trunk_is_told_although_another_gradient_is_there(tmp_path: Path) -> None:
    found = row(seen(ONE_OPTIMIZER.format(hidden="hidden", extra="0"), tmp_path, PROBE), "OWNERSHIP/isolation")
    assert found.status == "fail"
    assert "trunk.weight, trunk.bias" in found.text
    assert "one.weight" not in found.text


@pytest.mark.parametrize("extra", ["0", "0 * one.sum()"], ids=["cut off", "reached by a loss times zero"])
def test_a_probe_that_is_cut_off_passes(extra: str, tmp_path: Path) -> None:
    source = ONE_OPTIMIZER.format(hidden="hidden.detach()", extra=extra)
    assert row(seen(source, tmp_path, PROBE), "OWNERSHIP/isolation").status == "pass"


def test_a_closure_calls_backward_inside_the_step(tmp_path: Path) -> None:
    source = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        x = torch.randn(32, 4)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
        def closure():
            optimizer.zero_grad()
            loss = (model(x) - x[:, :1]).square().mean()
            loss.backward()
            return loss
        for step in range(4):
            optimizer.step(closure)
    """
    fits = {"fit": {"parameters": ["*"]}}
    head = {"fit": {"parameters": ["2.*"]}}
    assert row(seen(source, tmp_path, fits), "OWNERSHIP/isolation").status == "pass"
    assert row(seen(source, tmp_path, head), "OWNERSHIP/isolation").status == "fail"


def test_gradients_put_in_place_by_hand_are_nobodys(tmp_path: Path) -> None:
    source = ONE_OPTIMIZER.format(hidden="hidden", extra="0").replace(
        "    optimizer.step()\n",
        "    for p in model.parameters():\n        p.grad = p.grad.clone()\n    optimizer.step()\n",
    )
    found = row(seen(source, tmp_path, PROBE), "OWNERSHIP/isolation")
    assert found.status == "not_measured"
    assert "no sampled step used a gradient" in (found.reason or "")
