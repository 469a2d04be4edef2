"""Experiments on gradients and on single operations, each where it makes the difference and where it makes none."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from collector_runs import RANDOM_STATE, SEEDED, line_of, observe, plain, row, run_job, write
from test_collector_experiments import QUIET, SGD, losses, report, treated
from test_collector_figures import PROBLEM, script

from weaklink.collector.catalogue import checked_parameters
from weaklink.collector.declared import Intent, Objective
from weaklink.collector.errors import InterventionError
from weaklink.collector.evidence import Subject
from weaklink.collector.job import Job

PRINTS = 'print("loss", repr(loss.item()))'


def printed(source: str, folder: Path) -> str:
    run = plain(source, folder)
    assert run.code == 0, run.err
    return run.out


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("zero_grad_before_backward", {}),
        ("keep_grad_until_step", {}),
        ("isolate_objectives", {}),
        ("at_site", {"site": "train.py:1", "function": "add", "change": "cut"}),
        ("at_site", {"site": "train.py:10", "function": "sqrt", "change": "clamp"}),
        ("at_site", {"site": "train.py:10", "function": "softmax", "change": "clamp"}),
        ("at_site", {"site": "train.py:10", "function": "mul", "change": "out_of_place"}),
        ("unfreeze", {"parameters": "nothing.*"}),
        ("untie_modules", {}),
    ],
)
def test_where_nothing_is_to_change_every_bit_stays(tmp_path: Path, name: str, parameters: dict[str, Any]) -> None:
    source = SEEDED + QUIET + RANDOM_STATE
    run = treated(source, tmp_path, name, **parameters)
    assert run.out == printed(source, tmp_path)
    assert (report(run).applied, report(run).changed) == (False, [])


# -- clearing ----------------------------------------------------------------------------------------------------------

LOOP = """
for step in range(6):
    {before}
    for half in (slice(0, 128), slice(128, 256)):
        {each}
        loss = F.cross_entropy(model(batch[half]), labels[half])
        loss.backward()
        print("loss", repr(loss.item()))
    optimizer.step()
"""


def windows(before: str = "pass", each: str = "pass", optimizer: str = SGD) -> str:
    return PROBLEM + optimizer + LOOP.format(before=before, each=each)


def test_gradients_that_are_never_cleared_are(tmp_path: Path) -> None:
    run = treated(windows(), tmp_path, "zero_grad_before_backward")
    assert run.out == printed(windows(before="optimizer.zero_grad()"), tmp_path)
    assert run.out != printed(windows(), tmp_path)
    assert (report(run).applied, report(run).changed) == (True, ["SGD"])
    assert row(run.seen, "GRADIENT/pre_existing").status == "pass"


TWO = """
critic = nn.Linear(2, 2)
first = torch.optim.SGD(model.parameters(), lr=0.1)
second = torch.optim.SGD(critic.parameters(), lr=0.1)
for step in range(5):
    loss = F.cross_entropy(critic(model(batch)), labels)
    first.zero_grad()
    loss.backward()
    first.step()
    {clear}
    loss = F.cross_entropy(critic(model(batch).detach()), labels)
    loss.backward()
    second.step()
    print("loss", repr(loss.item()))
"""


@pytest.mark.parametrize("name", ["zero_grad_before_backward", "keep_grad_until_step"])
def test_what_another_objective_left_is_cleared_by_the_script_as_before(tmp_path: Path, name: str) -> None:
    source = PROBLEM + TWO.format(clear="second.zero_grad()")
    run = treated(source, tmp_path, name)
    assert run.out == printed(source, tmp_path)
    # What the critic's last step has used goes a little earlier than the script clears it.
    assert report(run).applied == (name == "zero_grad_before_backward")


def test_the_unused_part_of_another_optimizer_is_left_alone(tmp_path: Path) -> None:
    # What the second one has stepped goes; what the first objective has just left there does not.
    run = treated(PROBLEM + TWO.format(clear="pass"), tmp_path, "zero_grad_before_backward")
    cleared_first = TWO.format(clear="pass").replace(
        "    first.zero_grad()", "    first.zero_grad(); second.zero_grad()"
    )
    assert run.out == printed(PROBLEM + cleared_first, tmp_path)
    assert report(run).changed == ["SGD"]


def test_gradients_cleared_between_the_backward_calls_of_one_step_are_kept(tmp_path: Path) -> None:
    early = windows(each="optimizer.zero_grad()")
    run = treated(early, tmp_path, "keep_grad_until_step")
    assert run.out == printed(windows(before="optimizer.zero_grad()"), tmp_path)
    assert run.out != printed(early, tmp_path)
    assert report(run).changed == [f"train.py:{line_of(early, 'optimizer.zero_grad()')}"]
    assert row(run.seen, "GRADIENT/cleared").status == "pass"


def test_gradients_cleared_before_the_step_are_kept_for_it(tmp_path: Path) -> None:
    lost = script(SGD, clear="pass").replace("    optimizer.step()", "    model.zero_grad()\n    optimizer.step()")
    run = treated(lost, tmp_path, "keep_grad_until_step")
    assert run.seen.losses.value == losses(script(SGD, clear="pass"), tmp_path)
    assert report(run).applied


@pytest.mark.parametrize("name", ["zero_grad_before_backward", "keep_grad_until_step"])
def test_a_step_that_the_scaler_skips_ends_the_window(tmp_path: Path, name: str) -> None:
    source = (
        PROBLEM
        + SGD
        + textwrap.dedent("""
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 20)
        for step in range(6):
            {before}
            loss = F.cross_entropy(model(batch), labels) * (1e34 if step < 2 else 1.0)
            scaler.scale(loss).backward()
            {after}
            scaler.step(optimizer)
            scaler.update()
            print("loss", repr(loss.item()))
    """)
    )
    healthy = source.format(before="optimizer.zero_grad()", after="pass")
    broken = source.format(before="pass", after="pass") if name.startswith("zero") else healthy
    run = treated(broken, tmp_path, name)
    assert run.out == printed(healthy, tmp_path)
    assert report(run).applied == name.startswith("zero")


def test_a_factorys_gradients_are_cleared_by_its_own_loop(tmp_path: Path) -> None:
    source = """
        import torch
        from torch import nn
        from weaklink.collector import TrainingSystem

        def build():
            torch.manual_seed(0)
            x = torch.randn(64, 2)
            model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            return TrainingSystem(model=model, optimizer=optimizer, inputs=x, targets=(x[:, 0] > 0).long(), steps=5)
    """
    write(source, tmp_path)
    seen = []
    for name, role in ((None, "control"), ("zero_grad_before_backward", "treatment")):
        job = Job(
            role=role,
            folder=tmp_path,
            evidence=tmp_path / "evidence.json",
            subject=Subject(kind="factory", name="train.py:build", argv=[]),
            intervention=name,
        )
        seen.append(run_job(job, tmp_path).seen)
    assert seen[0].losses.value == seen[1].losses.value
    assert seen[1].intervention is not None
    assert not seen[1].intervention.applied


# -- single operations -------------------------------------------------------------------------------------------------


def operation(source: str, text: str, function: str, change: str) -> dict[str, str]:
    return {"site": f"train.py:{line_of(source, text)}", "function": function, "change": change}


def distances(formula: str) -> str:
    """Distances between pairs, of which one pair is equal from the third step on."""
    return (
        PROBLEM
        + SGD
        + textwrap.dedent(f"""
        other = batch.flip(0).clone()
        for step in range(6):
            if step == 2:
                other[:4] = batch[:4]
            gap = model(batch) - model(other)
            distance = {formula}
            loss = (distance - 1).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print("loss", repr(loss.item()))
    """)
    )


@pytest.mark.parametrize(
    ("formula", "function", "repaired"),
    [
        ("gap.pow(2).sum(1).sqrt()", "sqrt", "gap.pow(2).sum(1).clamp(min=1e-12).sqrt()"),
        ("torch.sqrt((gap * gap).sum(1))", "sqrt", "torch.sqrt((gap * gap).sum(1).clamp(min=1e-12))"),
        ("(gap * gap).sum(1) ** 0.5", "pow", "(gap * gap).sum(1).clamp(min=1e-12) ** 0.5"),
        ("1 - 1 / (gap * gap).sum(1) ** 0.5", "pow", "1 - 1 / (gap * gap).sum(1).clamp(min=1e-12) ** 0.5"),
        ("(gap * gap).sum(1).sqrt_()", "sqrt", "(gap * gap).sum(1).clamp(min=1e-12).sqrt()"),
    ],
)
def test_a_root_kept_away_from_zero_gives_the_repaired_run(
    tmp_path: Path, formula: str, function: str, repaired: str
) -> None:
    source = distances(formula)
    run = treated(source, tmp_path, "at_site", **operation(source, "distance =", function, "clamp"))
    assert run.out == printed(distances(repaired), tmp_path)
    assert "nan" in printed(source, tmp_path)
    assert run.out.splitlines()[:2] == printed(source, tmp_path).splitlines()[:2]
    assert report(run).applied


def test_an_epsilon_under_a_root(tmp_path: Path) -> None:
    source = distances("gap.pow(2).sum(1).sqrt()")
    run = treated(source, tmp_path, "at_site", **operation(source, "distance =", "sqrt", "epsilon"))
    assert run.out == printed(distances("(gap.pow(2).sum(1) + 1e-12).sqrt()"), tmp_path)
    assert report(run).applied


@pytest.mark.parametrize(
    ("expression", "function"),
    [
        ("torch.where(z < 60, torch.exp(z * big), z)", "exp"),
        ("torch.where(z.abs() > 0, gap / (z - z.detach()), z)", "div"),
        ("torch.where(z.abs() > 0, 1 / (z - z.detach()) * z, z)", "reciprocal"),
        ("torch.where(z.abs() < 0, torch.log(z - z.detach()), z)", "log"),
        ("torch.where(z.abs() < 0, torch.acos(1 + z - z.detach()), z)", "acos"),
    ],
)
def test_each_range_makes_the_gradient_finite(tmp_path: Path, expression: str, function: str) -> None:
    source = PROBLEM + textwrap.dedent(f"""
        z = model(batch)[:, 0]
        gap, big = z * 0, 1e6
        answer = {expression}
        answer.sum().backward()
        print(all(torch.isfinite(p.grad).all().item() for p in model.parameters()))
    """)
    run = treated(source, tmp_path, "at_site", **operation(source, "answer =", function, "clamp"))
    assert (printed(source, tmp_path), run.out) == ("False\n", "True\n")
    assert report(run).applied


DYING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        self.last = nn.ReLU({inplace})

    def forward(self, x):
        hidden = self.body(x) - 3
        return {answer}

torch.manual_seed(1)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(8):
    loss = F.mse_loss(net(batch)[:, 0], labels.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", repr(loss.item()))
"""


@pytest.mark.parametrize("inplace", ["", "inplace=True"])
@pytest.mark.parametrize("answer", ["self.last(hidden)", "torch.relu(hidden)", "F.relu(hidden)", "hidden.relu_()"])
def test_a_dead_activation_left_out_gives_the_run_without_it(tmp_path: Path, inplace: str, answer: str) -> None:
    source = PROBLEM + DYING.format(inplace=inplace, answer=answer)
    run = treated(source, tmp_path, "at_site", **operation(source, f"return {answer}", "relu", "bypass"))
    assert run.out == printed(PROBLEM + DYING.format(inplace="", answer="hidden"), tmp_path)
    assert len(set(printed(source, tmp_path).splitlines())) == 1
    assert report(run).applied


def test_a_cut_second_operand_is_a_constant(tmp_path: Path) -> None:
    source = script(SGD, scores="(model(batch) * 3 - model(batch))")
    line = operation(source, "loss = ", "sub", "cut")
    run = treated(source, tmp_path, "at_site", **line)
    by_hand = script(SGD, scores="(model(batch) * 3 - model(batch).detach())")
    assert run.seen.losses.value == losses(by_hand, tmp_path)
    assert run.seen.losses.value[1:] != losses(source, tmp_path)[1:]
    assert run.seen.losses.value[0] == losses(source, tmp_path)[0]
    assert report(run).applied


def test_an_answer_without_a_second_operand_is_cut_itself(tmp_path: Path) -> None:
    source = script(SGD, scores="(model(batch) + model(batch).tanh())")
    run = treated(source, tmp_path, "at_site", **operation(source, "loss = ", "tanh", "cut"))
    by_hand = script(SGD, scores="(model(batch) + model(batch).tanh().detach())")
    assert run.seen.losses.value == losses(by_hand, tmp_path)
    assert row(run.seen, "DEPENDENCY/reached").status == "pass"


@pytest.mark.parametrize("write", ["hidden += 1", "hidden = hidden.add_(1)", "hidden = F.relu(hidden, inplace=True)"])
def test_a_write_in_place_that_backward_needs_is_made_to_a_copy(tmp_path: Path, write: str) -> None:
    source = PROBLEM + textwrap.dedent(f"""
        hidden = model(batch).exp()
        kept = hidden
        {write}
        (hidden.sum() + kept.sum()).backward()
        print(repr(model.head.bias.grad.tolist()))
    """)
    function = "relu" if "relu" in write else "add"
    assert "modified by an inplace operation" in plain(source, tmp_path).err
    run = treated(source, tmp_path, "at_site", **operation(source, write, function, "out_of_place"))
    copied = source.replace(write, "hidden = F.relu(hidden)" if function == "relu" else "hidden = hidden + 1")
    assert run.out == printed(copied, tmp_path)
    assert report(run).applied


def test_only_that_line_and_only_that_function_are_changed(tmp_path: Path) -> None:
    source = distances("gap.pow(2).sum(1).sqrt()")
    for at in (
        operation(source, "loss = ", "sqrt", "clamp"),
        operation(source, "distance =", "exp", "clamp"),
    ):
        run = treated(source, tmp_path, "at_site", **at)
        assert run.out == printed(source, tmp_path)
        assert not report(run).applied


@pytest.mark.parametrize(("function", "change"), [("relu", "clamp"), ("matmul", "bypass"), ("div", "bypass")])
def test_a_change_that_a_function_cannot_take_is_refused(function: str, change: str) -> None:
    with pytest.raises(InterventionError):
        checked_parameters("at_site", {"site": "train.py:1", "function": function, "change": change})


# -- objectives --------------------------------------------------------------------------------------------------------


def test_each_objective_gives_gradients_only_to_what_it_may_touch(tmp_path: Path) -> None:
    leak = PROBLEM + textwrap.dedent("""
        critic = nn.Linear(2, 2)
        first = torch.optim.SGD(model.parameters(), lr=0.1)
        second = torch.optim.SGD(critic.parameters(), lr=0.1)
        for step in range(5):
            loss = F.cross_entropy(critic(model(batch)), labels)
            first.zero_grad()
            second.zero_grad()
            loss.backward()  # of the model
            first.step()
            again = F.cross_entropy(critic({}), 1 - labels)
            again.backward()  # of the critic
            second.step()
            print("loss", repr(again.item()))
    """)
    source = leak.format("model(batch).detach()")
    objectives = {
        "model": Objective(site=f"train.py:{line_of(source, '# of the model')}", parameters=["Classifier.*"]),
        "critic": Objective(site=f"train.py:{line_of(source, '# of the critic')}", parameters=["Linear.*"]),
    }
    run = observe(
        source,
        tmp_path,
        role="treatment",
        intervention="isolate_objectives",
        keep_initial=True,
        intent=Intent(objectives=objectives),
    )
    cleared = source.replace("    again.backward()", "    second.zero_grad(); again.backward()")
    assert run.seen.problems == []
    assert run.out == printed(cleared, tmp_path)
    assert run.out != printed(source, tmp_path)
    assert report(run).changed == ["Linear.weight", "Linear.bias"]
    assert row(run.seen, "OWNERSHIP/isolation").status == "pass"


@pytest.mark.parametrize(
    ("broken", "steps", "status"),
    [("step % 4", 12, "suspected"), ("step > 8 and step % 10", 150, "suspected"), ("step == 3", 12, "evidence")],
)
def test_a_guard_that_skips_most_steps_hides_nothing(tmp_path: Path, broken: str, steps: int, status: str) -> None:
    loop = textwrap.dedent(f"""
        for step in range({steps}):
            loss = F.cross_entropy(model(batch), labels)
            if {broken}:
                loss = loss + (model(batch) - model(batch.clone())).pow(2).sum(1).sqrt().mean()
            optimizer.zero_grad()
            loss.backward()
            if all(torch.isfinite(p.grad).all() for p in model.parameters()):
                optimizer.step()
    """)
    assert row(observe(PROBLEM + SGD + loop, tmp_path).seen, "GRADIENT/finite").status == status
