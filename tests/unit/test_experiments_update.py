"""The experiments on the step and on the order of calls around it: each makes of the faulty script the repaired one."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from collector_runs import RANDOM_STATE, SEEDED, observe, plain, row, write
from test_collector_experiments import report, treated

from weaklink.collector.evidence import Subject

HEAD = (
    SEEDED
    + """
import copy
from torch import nn
x = torch.randn(64, 6)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
criterion = nn.CrossEntropyLoss()
"""
)
# What the script prints to its end: losses, rates, and its random state.
TAIL = "print([repr(p.double().sum().item()) for p in model.parameters()])" + RANDOM_STATE


def source(body: str) -> str:
    return HEAD + textwrap.dedent(body) + TAIL


def becomes(tmp_path: Path, broken: str, repaired: str, name: str, **parameters: Any) -> None:
    """The experiment turns what the faulty script prints into what the repaired one prints, bit for bit."""
    run = treated(source(broken), tmp_path, name, **parameters)
    wanted = plain(source(repaired), tmp_path)
    assert wanted.code == 0, wanted.err
    assert run.out == wanted.out
    assert report(run).applied
    assert run.out != plain(source(broken), tmp_path).out


LOOP = """
optimizer = torch.optim.{optimizer}
{before}
for step in range({steps}):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    {after}
    print(repr(loss.item()))
"""


def loop(
    optimizer: str = "SGD(model.parameters(), 0.1)", before: str = "", after: str = "pass", steps: int = 12
) -> str:
    return LOOP.format(optimizer=optimizer, before=before, after=after, steps=steps)


# -- where there is nothing to change ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("hold_scheduler", {}),
        ("set_lr", {"lr": 0.1}),
        ("step_scheduler_per_step", {"n": 1}),
        ("unscale_before_clipping", {}),
        ("clip_grad_norm", {"max": 1e6}),
        ("without_scaler", {}),
        ("float32_steps", {}),
        ("reset_optimizer_state", {}),
        ("minimize", {}),
        ("keep_stepped", {}),
        ("copy_states", {}),
    ],
)
def test_where_nothing_is_to_change_every_bit_stays(tmp_path: Path, name: str, parameters: dict[str, Any]) -> None:
    # With all that these experiments look at, each as it should be.
    body = """
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.5)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    saved = None
    for step in range(12):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if step == 5:
            saved = copy.deepcopy(model.state_dict())
        print(repr(loss.item()))
    model.load_state_dict(saved)
    """
    run = treated(source(body), tmp_path, name, **parameters)
    assert run.out == plain(source(body), tmp_path).out
    assert (report(run).applied, report(run).changed) == (False, [])


def test_a_script_without_backward_gives_no_step_to_take(tmp_path: Path) -> None:
    body = "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nprint(criterion(model(x), y).item())\n"
    run = treated(source(body), tmp_path, "step_after_backward", n=1)
    assert run.out == plain(source(body), tmp_path).out
    assert not report(run).applied


# -- schedules ---------------------------------------------------------------------------------------------------------

DECAY = "scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: max(0.0, 1 - n / {}))"


def test_a_held_rate_is_the_one_that_the_optimizer_was_built_with(tmp_path: Path) -> None:
    broken = loop(before=DECAY.format(4), after="scheduler.step()")
    becomes(tmp_path, broken, loop(), "hold_scheduler")


def test_a_schedule_goes_on_while_its_rate_is_held(tmp_path: Path) -> None:
    after = "scheduler.step(); print(scheduler.get_last_lr(), optimizer.param_groups[0]['lr'])"
    body = loop(before=DECAY.format(4), after=after)
    run = treated(source(body), tmp_path, "hold_scheduler")
    rates = [line for line in plain(source(body), tmp_path).out.splitlines() if line.startswith("[") and "]" in line]
    assert [line for line in run.out.splitlines() if line in rates][:12] == rates[:12]


def test_a_warmup_from_zero_and_a_rate_set_by_hand_are_held_as_well(tmp_path: Path) -> None:
    warmup = loop(
        before="s = torch.optim.lr_scheduler.OneCycleLR(optimizer, 9.0, 50, cycle_momentum=False)", after="s.step()"
    )
    becomes(tmp_path, warmup, loop(), "hold_scheduler")
    by_hand = loop(after="optimizer.param_groups[0]['lr'] = 0.1 / (step + 2)")
    becomes(tmp_path, by_hand, loop(), "hold_scheduler")


def test_each_group_keeps_its_own_rate(tmp_path: Path) -> None:
    groups = "SGD([{'params': model[0].parameters(), 'lr': 0.3}, {'params': model[2].parameters()}], lr=0.1)"
    broken = loop(groups, DECAY.format(4), "scheduler.step()")
    becomes(tmp_path, broken, loop(groups), "hold_scheduler")


MICRO = """
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
scheduler = torch.optim.lr_scheduler.{scheduler}
for step in range(12):
    for inputs, targets in zip(x.chunk(4), y.chunk(4)):
        (criterion(model(inputs), targets) / 4).backward()
        {inside}
    optimizer.step()
    optimizer.zero_grad()
    {outside}
    print(scheduler.get_last_lr())
"""
SCHEDULES = {
    "lambda": "LambdaLR(optimizer, lambda n: max(0.0, 1 - n / 12))",
    "chainable": "ExponentialLR(optimizer, 0.7)",
    "of others": "SequentialLR(optimizer, [torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 4), "
    "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)], milestones=[4])",
    "chained": "ChainedScheduler([torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), "
    "torch.optim.lr_scheduler.StepLR(optimizer, 3)])",
    "cycle": "OneCycleLR(optimizer, 0.05, total_steps=60)",
}


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_schedule_that_counted_micro_batches_counts_steps(tmp_path: Path, kind: str) -> None:
    each = "scheduler.step()"
    broken = MICRO.format(scheduler=SCHEDULES[kind], inside=each, outside="pass")
    repaired = MICRO.format(scheduler=SCHEDULES[kind], inside="pass", outside=each)
    becomes(tmp_path, broken, repaired, "step_scheduler_per_step", n=1)


def test_a_schedule_that_counted_steps_counts_epochs(tmp_path: Path) -> None:
    broken = MICRO.format(scheduler=SCHEDULES["chainable"], inside="pass", outside="scheduler.step()")
    repaired = MICRO.format(
        scheduler=SCHEDULES["chainable"], inside="pass", outside="scheduler.step() if step % 4 == 3 else None"
    )
    becomes(tmp_path, broken, repaired, "step_scheduler_per_step", n=4)


def test_what_is_counted_of_a_schedule_is_what_it_really_does(tmp_path: Path) -> None:
    body = MICRO.format(scheduler=SCHEDULES["lambda"], inside="scheduler.step()", outside="pass")
    run = treated(source(body), tmp_path, "step_scheduler_per_step", n=1)
    assert row(run.seen, "UPDATE/schedule").values["scheduler_steps"] == 12


def test_a_schedule_that_follows_a_metric_is_left_to_the_script(tmp_path: Path) -> None:
    before = "scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)"
    body = loop(before=before, after="scheduler.step(1.0)")
    run = treated(source(body), tmp_path, "step_scheduler_per_step", n=1)
    assert run.out == plain(source(body), tmp_path).out
    assert not report(run).applied


def test_a_rate_of_zero_is_not_held_and_can_be_set(tmp_path: Path) -> None:
    broken = loop("SGD(model.parameters(), 0.0)")
    held = treated(source(broken), tmp_path, "hold_scheduler")
    assert not report(held).applied
    becomes(tmp_path, broken, loop("SGD(model.parameters(), 0.05)"), "set_lr", lr=0.05)


# -- gradients ---------------------------------------------------------------------------------------------------------

SCALED = """
optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
for step in range(12):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    {scaled}.backward()
    {unscale}
    nn.utils.{clip}
    {after}
    {step}
    print(repr(loss.item()))
"""
STEP = "scaler.step(optimizer); scaler.update()"


def scaled(
    unscale: str = "pass",
    clip: str = "clip_grad_norm_(model.parameters(), 0.05)",
    after: str = "pass",
    scaled: str = "scaler.scale(loss)",
    step: str = STEP,
) -> str:
    return SCALED.format(unscale=unscale, clip=clip, after=after, scaled=scaled, step=step)


@pytest.mark.parametrize(
    "clip", ["clip_grad_norm_(model.parameters(), 0.05)", "clip_grad_value_(model[0].weight, 0.01)"]
)
@pytest.mark.parametrize("after", ["pass", "scaler.unscale_(optimizer)"])
def test_gradients_are_clipped_after_they_were_unscaled(tmp_path: Path, clip: str, after: str) -> None:
    repaired = scaled("scaler.unscale_(optimizer)", clip)
    becomes(tmp_path, scaled(clip=clip, after=after), repaired, "unscale_before_clipping")


def test_what_the_script_unscales_before_clipping_stays_as_it_is(tmp_path: Path) -> None:
    body = source(scaled("scaler.unscale_(optimizer)"))
    run = treated(body, tmp_path, "unscale_before_clipping")
    assert run.out == plain(body, tmp_path).out
    assert not report(run).applied


def test_without_a_scaler_the_loss_is_the_loss(tmp_path: Path) -> None:
    becomes(tmp_path, scaled(), scaled(scaled="loss", step="optimizer.step()"), "without_scaler")


def test_clipping_that_came_too_late_comes_before_the_step(tmp_path: Path) -> None:
    late = "nn.utils.clip_grad_norm_(model.parameters(), 0.05)"
    broken = loop(after=late)
    repaired = loop().replace("    optimizer.step()", f"    {late}\n    optimizer.step()")
    becomes(tmp_path, broken, repaired, "clip_grad_norm", max=0.05)
    assert row(treated(source(broken), tmp_path, "clip_grad_norm", max=0.05).seen, "UPDATE/clipping").status == "pass"


@pytest.mark.parametrize("given", ["closure", "closure=closure"])
def test_what_a_closure_leaves_is_clipped_inside_the_step(tmp_path: Path, given: str) -> None:
    body = """
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    def closure():
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        {clip}
        return loss
    for step in range(8):
        print(repr(optimizer.step({given}).item()))
    """
    body = textwrap.dedent(body)
    repaired = body.format(clip="nn.utils.clip_grad_norm_(model.parameters(), 0.05)", given=given)
    becomes(tmp_path, body.format(clip="pass", given=given), repaired, "clip_grad_norm", max=0.05)


# -- steps -------------------------------------------------------------------------------------------------------------

NEVER = """
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
for epoch in range(3):
    optimizer.zero_grad()
    for inputs, targets in zip(x.chunk(4), y.chunk(4)):
        loss = criterion(model(inputs), targets)
        loss.backward()
        {step}
        print(repr(loss.item()))
"""


def test_a_script_that_never_steps_steps_after_each_backward(tmp_path: Path) -> None:
    repaired = NEVER.format(step="optimizer.step(); optimizer.zero_grad()")
    becomes(tmp_path, NEVER.format(step="pass"), repaired, "step_after_backward", n=1)


def test_steps_may_wait_for_several_backward_calls(tmp_path: Path) -> None:
    count = "epoch == 0 and None; n = globals().get('n', 0) + 1"
    repaired = NEVER.format(step=f"{count}; n % 2 or (optimizer.step(), optimizer.zero_grad())")
    becomes(tmp_path, NEVER.format(step="pass"), repaired, "step_after_backward", n=2)


def test_scaled_gradients_are_stepped_through_their_scaler(tmp_path: Path) -> None:
    body = NEVER.replace("for epoch", "scaler = torch.amp.GradScaler('cpu', init_scale=8.0)\nfor epoch")
    body = body.replace("loss.backward()", "scaler.scale(loss).backward()")
    repaired = body.format(step="scaler.step(optimizer); optimizer.zero_grad(); scaler.update()")
    becomes(tmp_path, body.format(step="pass"), repaired, "step_after_backward", n=1)


def test_a_backward_inside_a_step_is_followed_by_no_other_step(tmp_path: Path) -> None:
    body = source("""
    optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=3)
    def closure():
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        return loss
    for step in range(3):
        print(repr(optimizer.step(closure).item()))
    """)
    run = treated(body, tmp_path, "step_after_backward", n=1)
    assert run.out == plain(body, tmp_path).out
    assert not report(run).applied


LOW = "model.to(torch.bfloat16); x = x.to(torch.bfloat16)\n"
MOVED = """
first = [p.detach().clone() for p in model.parameters()]
{}
print(sum(float((p - f).abs().sum()) for p, f in zip(model.parameters(), first)))
"""


@pytest.mark.parametrize("optimizer", ["SGD(model.parameters(), 1e-4, momentum=0.5)", "Adam(model.parameters(), 1e-5)"])
def test_what_16_bit_parameters_round_away_adds_up_in_float32(tmp_path: Path, optimizer: str) -> None:
    body = MOVED.format(loop(optimizer, steps=100))
    in_float32 = float(plain(HEAD + body, tmp_path).out.split()[-1])
    in_16_bit = float(plain(HEAD + LOW + body, tmp_path).out.split()[-1])
    run = treated(HEAD + LOW + body, tmp_path, "float32_steps")
    assert report(run).applied
    # What the model is given is rounded once, not at every step.
    assert abs(float(run.out.split()[-1]) - in_float32) < abs(in_16_bit - in_float32) / 2
    assert row(run.seen, "UPDATE/resolution").status == "pass"


def test_float32_steps_leave_the_first_forward_and_backward_alone(tmp_path: Path) -> None:
    body = source("model.to(torch.bfloat16); x = x.to(torch.bfloat16)\n" + loop("SGD(model.parameters(), 1e-3)"))
    run, control = treated(body, tmp_path, "float32_steps"), observe(body, tmp_path)
    assert run.seen.fingerprint == control.seen.fingerprint
    assert [p.gradient_digest_first for p in run.seen.parameters] == [
        p.gradient_digest_first for p in control.seen.parameters
    ]
    assert [p.dtype for p in run.seen.parameters] == [p.dtype for p in control.seen.parameters]


def test_a_parameter_that_the_script_writes_keeps_what_was_written(tmp_path: Path) -> None:
    body = "model.to(torch.bfloat16); x = x.to(torch.bfloat16)\n" + loop(
        "SGD(model.parameters(), 1e-3)", after="model[0].weight.data.fill_(0.5 + step)"
    )
    run = treated(source(body + "print(model[0].weight[0, 0].item())\n"), tmp_path, "float32_steps")
    assert "\n11.5\n" in run.out


# -- memory ------------------------------------------------------------------------------------------------------------

LOADED = """
optimizer = torch.optim.{kind}
criterion(model(x), y).mul(1e4).backward()
other = torch.optim.{kind}
other.step()
model.load_state_dict(start)
optimizer.zero_grad()
{load}
for step in range(8):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(repr(loss.item()))
"""


@pytest.mark.parametrize("kind", ["Adam(model.parameters(), 0.01)", "Adagrad(model.parameters(), 0.01)"])
def test_a_state_that_was_loaded_is_dropped(tmp_path: Path, kind: str) -> None:
    body = "start = copy.deepcopy(model.state_dict())\n" + LOADED
    broken = body.format(kind=kind, load="optimizer.load_state_dict(other.state_dict())")
    becomes(tmp_path, broken, body.format(kind=kind, load="pass"), "reset_optimizer_state")
    # What Adagrad begins with is its own.
    wanted = "evidence" if "Adagrad" in kind else "pass"
    assert row(treated(source(broken), tmp_path, "reset_optimizer_state").seen, "UPDATE/state").status == wanted


def test_steps_that_climb_are_turned_around(tmp_path: Path) -> None:
    broken = loop("SGD(model.parameters(), 0.1, maximize=True)")
    becomes(tmp_path, broken, loop(), "minimize")
    negative = loop(before="optimizer.param_groups[0]['lr'] = -0.1")
    becomes(tmp_path, negative, loop(), "minimize")


SLOW = """
optimizer = torch.optim.SGD(model.parameters(), 0.1)
slow = [p.detach().clone() for p in model.parameters()]
for step in range(1, 25):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    {write}
    print(repr(loss.item()))
"""
BACK = "[p.{how} for p, s in zip(model.parameters(), slow) if step % 5 == 0 and torch.is_grad_enabled() is not None]"


@pytest.mark.parametrize("how", ["data.copy_(s)", "detach().copy_(s)"])
def test_weights_that_are_brought_back_keep_what_the_steps_reached(tmp_path: Path, how: str) -> None:
    # The last step is none of those after which they are brought back: what is seen at the end is what was reached.
    becomes(tmp_path, SLOW.format(write=BACK.format(how=how)), SLOW.format(write="pass"), "keep_stepped")
    treatment = treated(source(SLOW.format(write=BACK.format(how=how))), tmp_path, "keep_stepped").seen
    assert row(treatment, "UPDATE/returned").status == "pass"


def test_slow_weights_that_follow_are_left_alone(tmp_path: Path) -> None:
    follows = "[p.data.copy_(s.lerp_(p.data, 0.5)) for p, s in zip(model.parameters(), slow) if step % 5 == 0]"
    body = source(SLOW.format(write=follows))
    run = treated(body, tmp_path, "keep_stepped")
    assert run.out == plain(body, tmp_path).out
    assert not report(run).applied


ROLLBACK = """
optimizer = torch.optim.SGD(model.parameters(), 0.5)
for step in range(20):
    if step == 5:
        best = {taken}
    if step == 12:
        model.load_state_dict(best)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(repr(loss.item()))
"""


def test_a_state_is_what_was_there_when_it_was_taken(tmp_path: Path) -> None:
    broken = ROLLBACK.format(taken="model.state_dict()")
    becomes(tmp_path, broken, ROLLBACK.format(taken="copy.deepcopy(model.state_dict())"), "copy_states")
    assert row(observe(source(broken), tmp_path).seen, "UPDATE/restored").status == "fail"
    assert row(treated(source(broken), tmp_path, "copy_states").seen, "UPDATE/restored").status == "pass"


# -- factories ---------------------------------------------------------------------------------------------------------

BUILD = """
import torch
from torch import nn
from weaklink.collector import TrainingSystem

def build():
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr={rate})
    x = torch.randn(16, 4)
    y = (x[:, 0] > 0).long()
    return TrainingSystem(model=model, optimizer=optimizer, inputs=x, targets=y)
"""


@pytest.mark.parametrize(
    ("name", "rate", "parameters"), [("set_lr", 0.0, {"lr": 0.2}), ("clip_grad_norm", 0.2, {"max": 0.01})]
)
def test_a_factory_is_treated_as_a_script_is(
    tmp_path: Path, name: str, rate: float, parameters: dict[str, Any]
) -> None:
    write(BUILD.format(rate=rate), tmp_path)
    subject = Subject(kind="factory", name="train.py:build")
    control = observe(BUILD.format(rate=rate), tmp_path, subject=subject, horizon=20).seen
    run = observe(
        BUILD.format(rate=rate),
        tmp_path,
        subject=subject,
        horizon=20,
        role="treatment",
        intervention=name,
        intervention_parameters=parameters,
    )
    assert report(run).applied
    assert run.seen.losses.value[0] == control.losses.value[0]
    assert run.seen.losses.value[-1] != control.losses.value[-1]
