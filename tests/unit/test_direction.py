"""Steps that climb a loss that is meant to fall, and losses that are climbed on purpose."""

from __future__ import annotations

import pytest
from collector_runs import line_of, observe_code, row

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(64, 8)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))

def train(optimizer, loss=F.cross_entropy, steps=30, sign=1.0):
    for _ in range(steps):
        optimizer.zero_grad()
        (sign * loss(model(x), y)).backward()
        optimizer.step()
"""

FAULTS = {
    "maximized": "train(torch.optim.SGD(model.parameters(), 0.1, maximize=True))  # here",
    "maximized_by_adam": "train(torch.optim.AdamW(model.parameters(), 0.01, maximize=True))  # here",
    "a_negative_rate": """
optimizer = torch.optim.SGD(model.parameters(), 0.1)  # here
optimizer.param_groups[0]["lr"] = -0.1
train(optimizer)
""",
    "an_optimizer_that_adds": """
class Plain(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=group["lr"])  # here

optimizer = Plain(model.parameters(), 0.1)
train(optimizer)
""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_known_loss_that_is_climbed_from_chance_level_fails(tmp_path, name):
    found = row(observe_code(HEAD + FAULTS[name], tmp_path, looks="fork"), "UPDATE/direction")
    assert (found.status, found.basis) == ("fail", "exact"), found.text
    assert found.where[0].line == line_of(HEAD + FAULTS[name], "# here")
    assert found.means == ["look"], "what a constant output would lose is only known where looks are taken"


HEALTHY = {
    "minimized": ("pass", "train(torch.optim.SGD(model.parameters(), 0.1))"),
    "a_likelihood_maximized": (
        "evidence",
        "train(torch.optim.SGD(model.parameters(), 0.1, maximize=True), sign=-1.0)",
    ),
    "unlearning": (
        "evidence",
        "train(torch.optim.SGD(model.parameters(), 0.5), steps=60)\n"
        "train(torch.optim.SGD(model.parameters(), 0.1, maximize=True))",
    ),
    "a_return_maximized": (
        "evidence",
        """
optimizer = torch.optim.Adam(model.parameters(), 0.01, maximize=True)
for _ in range(30):
    policy = torch.distributions.Categorical(logits=model(x))
    action = policy.sample()
    optimizer.zero_grad()
    (policy.log_prob(action) * (action == y).float()).mean().backward()
    optimizer.step()
""",
    ),
    "an_attack_on_the_inputs": (
        "evidence",
        """
noise = nn.Parameter(0.01 * torch.randn(64, 8))
optimizer = torch.optim.SGD([noise], 1.0, maximize=True)
for _ in range(30):
    optimizer.zero_grad()
    F.cross_entropy(model(x + noise), y).backward()
    optimizer.step()
""",
    ),
    "too_large_a_rate": ("pass", "train(torch.optim.SGD(model.parameters(), 500.0))"),
    "an_encoder_against_a_classifier": (
        "evidence",
        """
encoder = nn.Linear(8, 8)
first = torch.optim.SGD(model.parameters(), 0.1)
second = torch.optim.SGD(encoder.parameters(), 0.1, maximize=True)
for _ in range(30):
    first.zero_grad(); second.zero_grad()
    F.cross_entropy(model(encoder(x)), y).backward()
    first.step(); second.step()
""",
    ),
    "weight_decay_alone": (
        "pass",
        "for p in model.parameters(): p.data.mul_(3)\n"
        "train(torch.optim.SGD(model.parameters(), 0.01, weight_decay=0.1))",
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_climbed_on_purpose_is_not_accused(tmp_path, name):
    status, body = HEALTHY[name]
    assert row(observe_code(HEAD + body, tmp_path, looks="fork"), "UPDATE/direction").status == status
