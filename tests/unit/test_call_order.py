"""The order of calls around a step: clipping, clearing, schedules, precision, and what is written elsewhere.

For each rule the faulty script first, then healthy ones that do something close to it on purpose.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from collector_runs import line_of, observe_code, row, with_status

COMMON = """
import copy, warnings
import torch
from torch import nn
from torch.nn import functional as F

warnings.filterwarnings("ignore")
torch.manual_seed(0)
x = torch.randn(64, 4)
y = (x[:, 0] + x[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
criterion = nn.CrossEntropyLoss()
"""

# -- faulty: the row that fails, and the line that is named first ------------------------------------------------------

FAULTS = {
    "clip_while_scaled": (
        "UPDATE/clipping",
        "# here",
        """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu")
        for step in range(20):
            optimizer.zero_grad()
            scaler.scale(criterion(model(x), y)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # here
            scaler.step(optimizer)
            scaler.update()
        """,
    ),
    "clip_values_while_scaled": (
        "UPDATE/clipping",
        "# here",
        """
        from torch.nn.utils import clip_grad_value_
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=4)
        for step in range(20):
            optimizer.zero_grad()
            scaler.scale(criterion(model(x), y)).backward()
            clip_grad_value_(model.parameters(), 0.5)  # here
            scaler.step(optimizer)
            scaler.update()
            print(scaler.get_scale())
        """,
    ),
    "clip_after_the_step": (
        "UPDATE/clipping",
        "# here",
        """
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for step in range(12):
            loss = criterion(model(x), y)
            for p in model.parameters():
                p.grad = None
            loss.backward()
            optimizer.step()
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)  # here
        """,
    ),
    "clip_before_backward": (
        "UPDATE/clipping",
        "# here",
        """
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for step in range(12):
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)  # here
            loss.backward()
            optimizer.step()
        """,
    ),
    "limit_from_a_zero_norm": (
        "UPDATE/clipping",
        "# here",
        """
        model.add_module("gate", nn.Linear(2, 2))
        nn.init.zeros_(model.gate.weight)
        nn.init.zeros_(model.gate.bias)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for step in range(12):
            optimizer.zero_grad()
            criterion(model(x) + model[2](model[1](model[0](x))), y).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.grad.mul_((0.1 * p.norm() / p.grad.norm().clamp(min=1e-8)).clamp(max=1.0))  # here
            optimizer.step()
        """,
    ),
    "cleared_for_each_micro_batch": (
        "GRADIENT/cleared",
        "# here",
        """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(12):
            for inputs, targets in zip(x.chunk(4), y.chunk(4)):
                optimizer.zero_grad()  # here
                (criterion(model(inputs), targets) / 4).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        """,
    ),
    "cleared_by_the_model": (
        "GRADIENT/cleared",
        "# here",
        """
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for step in range(12):
            for inputs, targets in zip(x.chunk(2), y.chunk(2)):
                model.zero_grad(set_to_none=False)  # here
                criterion(model(inputs), targets).backward()
            optimizer.step()
        """,
    ),
    "window_longer_than_an_epoch": (
        "UPDATE/steps",
        "# here",
        """
        def main():
            model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for epoch in range(4):
                optimizer.zero_grad()
                for index, (inputs, targets) in enumerate(zip(x.chunk(8), y.chunk(8))):
                    criterion(model(inputs), targets).backward()  # here
                    if (index + 1) % 16 == 0:
                        optimizer.step()
                        optimizer.zero_grad()
        main()
        """,
    ),
    "schedule_that_counts_micro_batches": (
        "UPDATE/schedule",
        "# here",
        """
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: max(0.0, 1 - n / 60))
        for step in range(60):
            for inputs, targets in zip(x.chunk(4), y.chunk(4)):
                criterion(model(inputs), targets).backward()
                decay.step()  # here
            optimizer.step()
            optimizer.zero_grad()
        """,
    ),
    "slow_weights_that_stay": (
        "UPDATE/returned",
        "# here",
        """
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        slow = [p.detach().clone() for p in model.parameters()]
        for step in range(1, 41):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            if step % 6 == 0:
                with torch.no_grad():
                    for p, s in zip(model.parameters(), slow):
                        s.lerp(p, 0.5)
                        p.copy_(s)  # here
        """,
    ),
    "slow_weights_that_stay_under_rates_set_by_hand": (
        "UPDATE/returned",
        "# here",
        """
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        slow = [p.detach().clone() for p in model.parameters()]
        for step in range(1, 41):
            optimizer.param_groups[0]["lr"] = 0.02 / (1 + step)
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            if step % 6 == 0:
                with torch.no_grad():
                    for p, s in zip(model.parameters(), slow):
                        p.copy_(s)  # here
        """,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_order_fails_by_arithmetic_and_names_the_line(tmp_path: Path, name: str) -> None:
    row_id, mark, body = FAULTS[name]
    source = COMMON + _dedent(body)
    found = row(observe_code(source, tmp_path), row_id)
    assert (found.status, found.basis) == ("fail", "exact"), found.text
    assert found.where[0].line == line_of(source, mark), found.where
    assert found.text


# -- healthy: near relatives of all of these ---------------------------------------------------------------------------

HEALTHY = {
    "clip_before_backward_with_a_limit_that_nothing_reaches": """
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for step in range(12):
            optimizer.zero_grad()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1e3)
            criterion(model(x), y).backward()
            optimizer.step()
    """,
    "clip_in_time_and_once_more_on_nothing": """
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for step in range(12):
            optimizer.zero_grad()
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            criterion(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            optimizer.step()
    """,
    "clip_after_unscaling": """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu")
        for step in range(20):
            optimizer.zero_grad()
            scaler.scale(criterion(model(x), y)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    """,
    "clip_with_a_limit_that_follows_the_scale": """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", growth_interval=5)
        for step in range(20):
            optimizer.zero_grad()
            scaler.scale(criterion(model(x), y)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1 * scaler.get_scale())
            scaler.step(optimizer)
            scaler.update()
    """,
    "a_disabled_scaler": """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        for step in range(20):
            optimizer.zero_grad()
            scaler.scale(criterion(model(x), y)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
    """,
    "two_optimizers_under_one_scaler": """
        first = torch.optim.SGD(model[0].parameters(), 0.1)
        second = torch.optim.SGD(model[2].parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu")
        for step in range(20):
            model.zero_grad()
            scaler.scale(criterion(model(x), y)).backward()
            scaler.unscale_(first); scaler.unscale_(second)
            nn.utils.clip_grad_norm_(model[0].parameters(), 0.1)
            scaler.step(first)
            nn.utils.clip_grad_norm_(model[2].parameters(), 0.1)
            scaler.step(second)
            scaler.update()
    """,
    "two_optimizers_clipped_one_after_the_other": """
        first = torch.optim.SGD(model[0].parameters(), 0.1)
        second = torch.optim.SGD(model[2].parameters(), 0.1)
        for step in range(12):
            model.zero_grad()
            criterion(model(x), y).backward()
            nn.utils.clip_grad_norm_(model[0].parameters(), 1e-3)
            first.step()
            nn.utils.clip_grad_norm_(model[2].parameters(), 1e-3)
            second.step()
    """,
    "the_norm_logged_after_the_step": """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(12):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            print(nn.utils.clip_grad_norm_(model.parameters(), float("inf")))
    """,
    "clipped_by_a_generator": """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(12):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            nn.utils.clip_grad_norm_((p for p in model.parameters()), 1e-2)
            optimizer.step()
    """,
    "lbfgs": """
        optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=5)
        def closure():
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            return loss
        for step in range(8):
            optimizer.step(closure)
    """,
    "sharpness_aware": """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        def gradients():
            optimizer.zero_grad()
            criterion(model(x), y).backward()
        for step in range(12):
            for ascent in (True, False):
                gradients()
                if ascent:
                    with torch.no_grad():
                        moved = [0.05 * p.grad / p.grad.norm() for p in model.parameters()]
                        for p, m in zip(model.parameters(), moved):
                            p.add_(m)
            with torch.no_grad():
                for p, m in zip(model.parameters(), moved):
                    p.sub_(m)
            optimizer.step()
    """,
    "gradient_surgery": """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(12):
            each = []
            for inputs, targets in zip(x.chunk(2), y.chunk(2)):
                optimizer.zero_grad()
                criterion(model(inputs), targets).backward()
                each.append([p.grad.clone() for p in model.parameters()])
            for p, a, b in zip(model.parameters(), *each):
                p.grad = (a + b) / 2
            optimizer.step()
    """,
    "private_gradients": """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(12):
            total = [torch.zeros_like(p) for p in model.parameters()]
            for inputs, targets in zip(x.chunk(8), y.chunk(8)):
                optimizer.zero_grad()
                criterion(model(inputs), targets).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                for t, p in zip(total, model.parameters()):
                    t += p.grad
            for t, p in zip(total, model.parameters()):
                p.grad = t / 8 + 1e-3 * torch.randn_like(t)
            optimizer.step()
    """,
    "bad_batches_skipped": """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(40):
            optimizer.zero_grad()
            index = torch.randint(0, 64, (8,))
            loss = criterion(model(x[index]), y[index])
            loss.backward()
            if step % 7 != 3:
                optimizer.step()
    """,
    "adversarial_inputs_before_each_step": """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(12):
            shift = torch.zeros_like(x, requires_grad=True)
            for attack in range(3):
                criterion(model(x + shift), y).backward()
                with torch.no_grad():
                    shift += 0.01 * shift.grad.sign()
                shift.grad = None
                model.zero_grad()
            criterion(model(x + shift.detach()), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    """,
    "a_gan": """
        make, judge = nn.Linear(2, 4), nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
        of_make, of_judge = torch.optim.Adam(make.parameters(), 1e-3), torch.optim.Adam(judge.parameters(), 1e-3)
        bce = F.binary_cross_entropy_with_logits
        for step in range(20):
            fake = make(torch.randn(64, 2))
            of_judge.zero_grad()
            bce(judge(x), torch.ones(64, 1)).backward()
            bce(judge(fake.detach()), torch.zeros(64, 1)).backward()
            nn.utils.clip_grad_norm_(judge.parameters(), 1.0)
            of_judge.step()
            of_make.zero_grad()
            bce(judge(fake), torch.ones(64, 1)).backward()
            of_make.step()
    """,
    "several_critic_steps": """
        make, judge = nn.Linear(2, 4), nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
        of_make, of_judge = torch.optim.RMSprop(make.parameters(), 1e-3), torch.optim.RMSprop(judge.parameters(), 1e-3)
        for step in range(10):
            for _ in range(3):
                of_judge.zero_grad()
                (judge(make(torch.randn(64, 2)).detach()).mean() - judge(x).mean()).backward()
                of_judge.step()
                for p in judge.parameters():
                    p.data.clamp_(-0.05, 0.05)
            of_make.zero_grad()
            (-judge(make(torch.randn(64, 2))).mean()).backward()
            of_make.step()
    """,
    "gradients_of_a_part_frozen_by_zeroing": """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(12):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            model[0].weight.grad.zero_()
            optimizer.step()
    """,
    "accumulation_with_a_rest": """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for epoch in range(6):
            optimizer.zero_grad()
            for index, (inputs, targets) in enumerate(zip(x.chunk(7), y.chunk(7))):
                criterion(model(inputs), targets).backward()
                if (index + 1) % 3 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
    """,
    "a_schedule_per_micro_batch_that_lasts": """
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: max(0.0, 1 - n / 160))
        for step in range(40):
            for inputs, targets in zip(x.chunk(4), y.chunk(4)):
                criterion(model(inputs), targets).backward()
                decay.step()
            optimizer.step()
            optimizer.zero_grad()
    """,
    "a_cosine_that_ends_at_zero": """
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
        for step in range(105):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            cosine.step()
    """,
    "a_plateau_schedule_on_a_solved_task": """
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=1e-3, eps=0.0)
        for step in range(120):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            plateau.step(1.0)
    """,
    "one_cycle": """
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=60)
        for step in range(60):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            cycle.step()
    """,
    "a_fitted_line_that_no_longer_moves": """
        line = nn.Linear(1, 1)
        inputs = torch.tensor([[0.5], [-0.5]])
        optimizer = torch.optim.SGD(line.parameters(), 1.0)
        slower = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.5)
        for step in range(300):
            optimizer.zero_grad()
            F.mse_loss(line(inputs), 2 * inputs + 1).backward()
            optimizer.step()
            slower.step()
    """,
    "three_steps_of_a_long_warmup": """
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 500))
        for step in range(3):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            warmup.step()
    """,
    "lookahead": """
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        slow = [p.detach().clone() for p in model.parameters()]
        for step in range(1, 41):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            if step % 5 == 0:
                with torch.no_grad():
                    for p, s in zip(model.parameters(), slow):
                        s.lerp_(p, 0.5)
                        p.copy_(s)
    """,
    "evaluated_with_averaged_weights": """
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        average = [p.detach().clone() for p in model.parameters()]
        for step in range(1, 41):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            with torch.no_grad():
                for p, a in zip(model.parameters(), average):
                    a.lerp_(p, 0.1)
                if step % 5 == 0:
                    kept = [p.detach().clone() for p in model.parameters()]
                    for p, a in zip(model.parameters(), average):
                        p.copy_(a)
                    model(x)
                    for p, k in zip(model.parameters(), kept):
                        p.copy_(k)
    """,
    "folds_that_begin_again": """
        start = copy.deepcopy(model.state_dict())
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        fresh = copy.deepcopy(optimizer.state_dict())
        for fold in range(6):
            model.load_state_dict(start)
            optimizer.load_state_dict(fresh)
            for step in range(5):
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
    """,
    "episodes_reset_by_hand": """
        start = [p.detach().clone() for p in model.parameters()]
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for episode in range(6):
            with torch.no_grad():
                for p, s in zip(model.parameters(), start):
                    p.copy_(s)
            optimizer.state.clear()
            for step in range(5):
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
    """,
    "a_bias_held_at_zero": """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        nn.init.zeros_(model[2].bias)
        for step in range(40):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            model[2].bias.data.zero_()
    """,
}
ROWS = (
    "GRADIENT/cleared",
    "UPDATE/clipping",
    "UPDATE/schedule",
    "UPDATE/returned",
    "UPDATE/steps",
    "UPDATE/resolution",
)


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_close_to_it_on_purpose_is_not_accused(tmp_path: Path, name: str) -> None:
    seen = observe_code(COMMON + _dedent(HEALTHY[name]), tmp_path, looks="fork")
    assert {i: t for i, t in with_status(seen, "fail").items() if i in ROWS} == {}
    assert {i: t for i, t in with_status(seen, "suspected").items() if i in ROWS} == {}


WARMUP = """
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / {peak}))
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
for epoch in range(5):
    for inputs, targets in data:
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()
        {every_step}
    {every_epoch}
    with torch.no_grad():
        model(x)
"""


@pytest.mark.parametrize(
    ("peak", "by_step", "status"),
    [(20, True, "pass"), (30, False, "suspected"), (1000, True, "suspected"), (45, True, "pass")],
)
def test_a_run_that_ends_in_its_warmup_is_suspected(tmp_path: Path, peak: int, by_step: bool, status: str) -> None:
    step = "warmup.step()"
    source = COMMON + WARMUP.format(
        peak=peak, every_step=step if by_step else "pass", every_epoch="pass" if by_step else step
    )
    found = row(observe_code(source, tmp_path, looks="fork"), "UPDATE/schedule")
    assert found.status == status, found.text
    if status == "suspected":
        assert line_of(source, "lr_scheduler.LambdaLR(") in [site.line for site in found.where]


LOW_PRECISION = """
model.to(torch.bfloat16)
inputs = x.to(torch.bfloat16)
optimizer = torch.optim.{optimizer}
for step in range(20):
    optimizer.zero_grad()
    criterion(model(inputs).float(), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("optimizer", "status"),
    [
        ("SGD(model.parameters(), 1e-4)", "fail"),
        ("Adam(model.parameters(), 1e-6)", "fail"),
        ("SGD(model.parameters(), 0.5)", "pass"),
        ("Adam(model.parameters(), 0.02)", "pass"),
    ],
)
def test_a_16_bit_type_that_rounds_the_update_away(tmp_path: Path, optimizer: str, status: str) -> None:
    found = row(
        observe_code(COMMON + LOW_PRECISION.format(optimizer=optimizer), tmp_path, looks="fork"), "UPDATE/resolution"
    )
    assert found.status == status, found.text


def test_what_an_optimizer_keeps_in_float32_is_not_lost(tmp_path: Path) -> None:
    source = (
        COMMON
        + """
class Master(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["master"] = p.float().clone()
                state["master"].sub_(p.grad.float(), alpha=group["lr"])
                p.copy_(state["master"])

model.to(torch.bfloat16)
inputs = x.to(torch.bfloat16)
optimizer = Master(model.parameters(), 1e-4)
for step in range(20):
    optimizer.zero_grad()
    criterion(model(inputs).float(), y).backward()
    optimizer.step()
"""
    )
    assert row(observe_code(source, tmp_path, looks="fork"), "UPDATE/resolution").status == "evidence"


def _dedent(body: str) -> str:
    import textwrap

    return textwrap.dedent(body)


RATES = """
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, {targets}), batch_size=16, shuffle=True)
optimizer = torch.optim.Adam(model.parameters(), {rate})
for epoch in range(30):
    for inputs, targets in data:
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("rate", "targets", "status"),
    [("1e-7", "y", "suspected"), ("1e-2", "y", "pass"), ("1e-3", "torch.randint(0, 2, (64,))", "pass")],
)
def test_a_rate_wrong_by_orders_of_magnitude_is_suspected(tmp_path: Path, rate: str, targets: str, status: str) -> None:
    source = COMMON + RATES.format(rate=rate, targets=targets)
    found = row(observe_code(source, tmp_path, looks="fork"), "UPDATE/lr")
    assert found.status == status, found.text
