"""A run's first steps taken again: a rate that kills units, a state of another run, and healthy runs beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from collector_runs import line_of, observe_code, row, with_status

HEAD = """
import copy, torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
prototypes = torch.randn(6, 24)
labels = torch.randint(0, 6, (600,))
inputs = 0.8 * prototypes[labels] + torch.randn(600, 24)

def network(width=24):
    layers = []
    for size in (24, width, width):
        layers += [nn.Linear(size, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 6))

def batches(epochs, size=40):
    for _ in range(epochs):
        order = torch.randperm(len(inputs))
        for rows in order.split(size):
            yield inputs[rows], labels[rows]

def fit(model, optimizer, epochs=8, scale=1.0, schedule=None):
    for x, y in batches(epochs):
        optimizer.zero_grad()
        loss = scale * F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return float(loss)
"""

TOO_LARGE = """
model = network()
for module in model:
    if isinstance(module, nn.Linear):
        nn.init.kaiming_normal_(module.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=2.0, momentum=0.9)  # here
fit(model, optimizer)
"""

FOREIGN_STATE = """
model = network()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
saved = optimizer.state_dict()
saved["state"] = {  # of a run whose loss was summed over a large batch
    i: {"step": torch.tensor(900.0), "exp_avg": 40 * torch.randn_like(p), "exp_avg_sq": torch.full_like(p, 1e4)}
    for i, p in enumerate(model.parameters())
}
optimizer.load_state_dict(saved)  # here
fit(model, optimizer)
"""


def found(body: str, folder: Path):
    return observe_code(HEAD + body, folder, looks="fork")


def test_a_rate_at_which_the_units_die_fails_by_the_same_steps_at_a_smaller_rate(tmp_path):
    evidence = found(TOO_LARGE, tmp_path)
    scale = row(evidence, "UPDATE/scale")
    assert (scale.status, scale.basis) == ("fail", "controlled"), scale.text
    assert scale.where[0].line == line_of(HEAD + TOO_LARGE, "# here")
    # What the rate has killed is no suspicion of its own.
    assert row(evidence, "GRADIENT/nonzero").status != "suspected"


def test_a_state_of_another_run_fails_by_the_same_steps_without_it(tmp_path):
    state = row(found(FOREIGN_STATE, tmp_path), "UPDATE/state")
    assert (state.status, state.basis) == ("fail", "controlled"), state.text
    assert line_of(HEAD + FOREIGN_STATE, "# here") in [site.line for site in state.where]


def test_a_state_that_only_slows_the_run_down_is_suspected(tmp_path):
    slow = (
        FOREIGN_STATE.replace("1e4", "1e-1")
        .replace("40 *", "0.1 *")
        .replace("fit(model, optimizer)", "fit(model, optimizer, 60)")
    )
    assert row(found(slow, tmp_path), "UPDATE/state").status in ("fail", "suspected")


def test_without_looks_a_loaded_state_is_only_described(tmp_path):
    state = row(observe_code(HEAD + FOREIGN_STATE, tmp_path), "UPDATE/state")
    assert state.status == "evidence"
    assert "times those of the first step" in state.text


HEALTHY = {
    "a_rate_that_fits": "model = network(); fit(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))",
    "a_rate_that_is_slow": "model = network(); fit(model, torch.optim.SGD(model.parameters(), lr=1e-4))",
    "labels_drawn_at_random": """
labels = torch.randint(0, 6, (600,))
model = network(); fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), epochs=10)
""",
    "a_large_rate_on_random_labels": """
labels = torch.randint(0, 6, (600,))
model = network(); fit(model, torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9), epochs=10)
""",
    "parity": """
bits = (torch.rand(600, 24) > 0.5).float(); inputs = 2 * bits - 1; labels = bits.sum(1).long() % 2
model = network(); fit(model, torch.optim.AdamW(model.parameters(), lr=3e-3), epochs=10)
""",
    "a_warmup": """
model = network(); optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
fit(model, optimizer, schedule=torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 30)))
""",
    "resumed": """
model = network(); optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
def answer(x):  # another process in all but name: the model is not called
    for layer in model[::2]:
        x = F.linear(x, layer.weight, layer.bias)
        x = x if layer is model[-1] else x.relu()
    return x
def earlier():
    for x, y in batches(6):
        loss = F.cross_entropy(answer(x), y)
        for p, g in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):
            state = optimizer.state[p]
            if not state:
                state.update(step=torch.tensor(0.0), exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
            state["step"] += 1
            state["exp_avg"].lerp_(g, 0.1); state["exp_avg_sq"].lerp_(g * g, 0.001)
            p.data -= 3e-3 * state["exp_avg"] / (1 - 0.9 ** state["step"].item()) / (
                (state["exp_avg_sq"] / (1 - 0.999 ** state["step"].item())).sqrt() + 1e-8)
earlier()
saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
model = network(); optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
model.load_state_dict(saved[0]); optimizer.load_state_dict(saved[1])
fit(model, optimizer)
""",
}
RESUMED_AT_A_TINY_RATE = HEALTHY["resumed"].replace(
    "fit(model, optimizer)", "optimizer.param_groups[0]['lr'] = 1e-6\nfit(model, optimizer)"
)
HEALTHY["resumed_at_the_end_of_a_schedule"] = RESUMED_AT_A_TINY_RATE
HEALTHY["resumed_in_noise"] = HEALTHY["resumed"].replace(
    "def earlier", "labels[::2] = torch.randint(0, 6, (300,))\ndef earlier"
)
HEALTHY["resumed_after_gradients_that_were_large_at_first"] = HEALTHY["resumed"].replace(
    "earlier()\nsaved", "earlier()\nfor s in optimizer.state.values():\n    s['exp_avg_sq'].mul_(100)\nsaved"
)
HEALTHY["momentum_carried_over"] = """
model = network(); optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
saved = optimizer.state_dict()
saved["state"] = {i: {"momentum_buffer": 0.05 * torch.randn_like(p)} for i, p in enumerate(model.parameters())}
optimizer.load_state_dict(saved)
fit(model, optimizer)
"""
HEALTHY["dropout_and_normalisation"] = """
model = nn.Sequential(nn.Linear(24, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 6))
fit(model, torch.optim.Adam(model.parameters(), lr=1e-2))
"""
HEALTHY["accumulated"] = """
model = network(); optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for number, (x, y) in enumerate(batches(10), 1):
    (F.cross_entropy(model(x), y) / 3).backward()
    if number % 3 == 0:
        optimizer.step(); optimizer.zero_grad()
"""
HEALTHY["a_few_steps"] = """
model = network(); optimizer = torch.optim.SGD(model.parameters(), lr=2.0, momentum=0.9)
for number, (x, y) in enumerate(batches(1)):
    optimizer.zero_grad(); F.cross_entropy(model(x), y).backward(); optimizer.step()
    if number == 3: break
"""
HEALTHY["two_networks_against_each_other"] = """
maker, judge = nn.Linear(4, 24), nn.Sequential(nn.Linear(24, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
first, second = torch.optim.Adam(maker.parameters(), lr=1e-2), torch.optim.Adam(judge.parameters(), lr=1e-2)
for x, _ in batches(8):
    made = maker(torch.randn(len(x), 4))
    second.zero_grad()
    scores = judge(torch.cat([x, made.detach()]))
    truth = torch.cat([torch.ones(len(x), 1), torch.zeros(len(x), 1)])
    F.binary_cross_entropy_with_logits(scores, truth).backward()
    second.step()
    first.zero_grad()
    F.binary_cross_entropy_with_logits(judge(made), torch.ones(len(x), 1)).backward()
    first.step()
"""


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_beginning_is_not_accused(tmp_path, name):
    evidence = found(HEALTHY[name], tmp_path)
    wrong = {**with_status(evidence, "fail"), **with_status(evidence, "suspected")}
    assert not {"UPDATE/scale", "UPDATE/state"} & wrong.keys(), wrong
