"""Instruments on scripts nobody changed, and on factories: their figures, held against figures computed otherwise."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from conftest import STALE_HEAD
from torch import nn
from torch.nn import functional

from weaklink.agent.instruments import run_instrument
from weaklink.agent.progress import Progress
from weaklink.agent.runner import Runner
from weaklink.collector.asked import INSTRUMENTS, InstrumentResult
from weaklink.collector.declared import Intent
from weaklink.collector.evidence import Evidence, Subject

Script = Callable[..., Path]


class Bench:
    """A subject that was observed, and its instruments."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        evidence = runner.observe().evidence
        assert evidence is not None
        self.evidence: Evidence = evidence

    def measure(self, name: str, step: int = 1) -> InstrumentResult:
        result, why = self.runner.instrument(self.evidence, name, step)
        assert result is not None, why
        return result


@contextmanager
def bench(
    folder: Path, name: str = "train.py", intent: Intent | None = None, deadline: float = 60.0
) -> Iterator[Bench]:
    subject = Subject(kind="factory" if ":" in name else "script", name=name)
    logs = folder.parent / "logs"
    logs.mkdir(exist_ok=True)
    with Runner(subject, folder, sys.executable, logs, deadline, Progress(), intent=intent) as runner:
        yield Bench(runner)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Logs go beside it: nothing in it may change."""
    found = tmp_path / "work"
    found.mkdir()
    return found


def last_losses(result: InstrumentResult) -> list[float]:
    return [float(row["loss after"]) for row in result.rows]  # type: ignore[arg-type]


# -- (a) an optimizer that holds the old head --------------------------------------------------------------------------


def stale_system() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    namespace: dict[str, object] = {"__name__": "stale"}
    exec(compile(STALE_HEAD.read_text(), "train.py", "exec"), namespace)
    model, _ = namespace["set_up"]()  # type: ignore[operator]
    (x, y), _ = namespace["load_splits"]()  # type: ignore[operator]
    return model, x, y


def test_a_stale_head_is_told_by_every_instrument(folder: Path) -> None:
    (folder / "train.py").write_text(STALE_HEAD.read_text())
    before = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*")}
    model, x, y = stale_system()
    with bench(folder) as at:
        layers = at.measure("activation_statistics")
        finite = at.measure("nonfinite_trace")
        rates = at.measure("learning_rates")
        tiny = at.measure("tiny_batch")
        slices = at.measure("slices")
    with torch.no_grad():
        logits = model(x)
        hidden = model.features(x)  # type: ignore[operator]
        each = functional.cross_entropy(logits, y, reduction="none")
    by_name = {row["layer"]: row for row in layers.rows}
    assert by_name["features.3"]["zeros"] == pytest.approx(float((hidden == 0).float().mean()))
    assert by_name["head"]["spread over rows"] == pytest.approx(float(logits.std(0).mean()), rel=1e-5)
    assert by_name["head"]["mean"] == pytest.approx(float(logits.mean()), rel=1e-5)
    assert finite.reason is None
    assert "no operation of steps 1 to 6 makes" in finite.text
    # What the optimizer holds moves nothing, at no rate; plain SGD over the live head fits.
    assert len({*last_losses(rates), tiny.rows[0]["loss before"], tiny.rows[0]["loss after"]}) == 1
    assert "holds 0 of the 2 tensors" in tiny.text
    head = model.head
    parameters = list(head.parameters())  # type: ignore[union-attr]
    for _ in range(100):
        loss = functional.cross_entropy(model(x[:32]), y[:32])
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= 0.5 * gradient
    assert last_losses(tiny)[2] == pytest.approx(
        float(functional.cross_entropy(model(x[:32]), y[:32]).detach()), rel=1e-4
    )
    by_slice = {row["slice"]: row for row in slices.rows}
    for label in (0, 1):
        row = by_slice[f"class {label}"]
        assert row["examples"] == int((y == label).sum())
        assert row["share"] == pytest.approx(float((y == label).float().mean()))
        assert row["mean loss"] == pytest.approx(float(each[y == label].mean()), rel=1e-5)
        assert row["accuracy"] == pytest.approx(float((logits.argmax(1) == y)[y == label].float().mean()))
    assert before == {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*")}


# -- (b) a NaN at a known step and line --------------------------------------------------------------------------------

NAN = """
import torch
from torch import nn

torch.manual_seed(0)
x = torch.rand(16, 3) + 0.5
y = x.sum(1, keepdim=True)
first, second = nn.Linear(3, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.01)
for step in range(1, 13):
    hidden = torch.relu(first(x))
    if step == 7:
        hidden = torch.log(hidden - 100.0)
    loss = nn.functional.mse_loss(second(hidden), y)
    {check}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("check", ["pass", "assert torch.isfinite(loss), 'the loss is not finite'"])
def test_the_trace_names_operation_line_and_step(folder: Path, check: str) -> None:
    (folder / "train.py").write_text(NAN.format(check=check))
    with bench(folder) as at:
        traced = run_instrument(at.runner, at.evidence, "nonfinite_trace", None if check == "pass" else 5)
        late = at.measure("nonfinite_trace", 5)
        early = at.measure("nonfinite_trace", 1)
    assert traced.ok
    assert "made by log at train.py:13, in the forward of step 7" in traced.text
    by_layer = {str(row["layer"]): row for row in late.rows}
    assert [row["not finite"] for row in by_layer.values()] == [0, 16]
    assert [row["inputs not finite"] for row in by_layer.values()] == [0, 128]
    assert "no operation of steps 1 to 6 makes" in early.text


def test_a_backward_that_breaks_is_told_with_its_line(folder: Path) -> None:
    (folder / "train.py").write_text(
        NAN.format(check="pass").replace("torch.log(hidden - 100.0)", "torch.sqrt(hidden * 0.0)")
    )
    with bench(folder) as at:
        traced = at.measure("nonfinite_trace", 5)
    assert "the derivative of Sqrt at train.py:13, in the backward of step 7" in traced.text
    assert "every layer's output is finite" in traced.text


# -- (c) a factory -----------------------------------------------------------------------------------------------------

FACTORY = """
import torch
from torch import nn
from weaklink.collector import TrainingSystem

def build():
    torch.manual_seed(0)
    x = torch.randn(24, 4)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    return TrainingSystem(model=model, optimizer=optimizer, inputs=x, targets=(x[:, 0] > 0).long(), steps=8)
"""


def adam_by_torch(factor: float, steps: int, before: int = 0) -> float:
    """The factory's system, trained by a loop of the test's own; the rate changes after `before` steps."""
    namespace: dict[str, object] = {}
    exec(FACTORY, namespace)
    system = namespace["build"]()  # type: ignore[operator]
    for step in range(before + steps):
        if step == before:
            system.optimizer.param_groups[0]["lr"] = 0.05 * factor
        system.optimizer.zero_grad()
        system.loss_fn(system.model(system.inputs), system.targets).backward()
        system.optimizer.step()
    return float(system.loss_fn(system.model(system.inputs), system.targets).detach())


def test_a_factory_is_measured_like_a_script(folder: Path) -> None:
    (folder / "system.py").write_text(FACTORY)
    with bench(folder, "system.py:build") as at:
        rates, tiny = at.measure("learning_rates"), at.measure("tiny_batch")
        later = at.measure("tiny_batch", 5)
        others = [at.measure(name) for name in ("activation_statistics", "nonfinite_trace", "slices")]
    wanted = [adam_by_torch(factor, 50) for factor in (0.01, 0.1, 1.0, 10.0)]
    assert last_losses(rates) == pytest.approx(wanted, rel=1e-4, abs=1e-7)
    assert last_losses(tiny)[0] == pytest.approx(adam_by_torch(1.0, 100), rel=1e-4)
    # Four steps lie behind it, with the state of the optimizer: of one run of 104.
    assert last_losses(later)[0] == pytest.approx(adam_by_torch(1.0, 104), rel=1e-4)
    assert [other.reason for other in others] == [None, None, None]
    assert [row["layer"] for row in others[0].rows] == ["0", "1", "2"]


# -- (d) a loss by hand ------------------------------------------------------------------------------------------------

BY_HAND = """
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(40, 4)
y = x @ torch.tensor([1.0, -2.0, 0.5, 0.0])
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(12):
    error = (model(x).squeeze(-1) - y) ** 2
    loss = error.mean() + 1e-2 * sum(p.pow(2).sum() for p in model.parameters())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def by_hand(lr: float, steps: int) -> float:
    torch.manual_seed(0)
    x = torch.randn(40, 4)
    y = x @ torch.tensor([1.0, -2.0, 0.5, 0.0])
    model = nn.Linear(4, 1)

    def loss() -> torch.Tensor:
        penalty = sum(p.pow(2).sum() for p in model.parameters())
        return ((model(x).squeeze(-1) - y) ** 2).mean() + 1e-2 * penalty

    parameters = list(model.parameters())
    for _ in range(steps):
        gradients = torch.autograd.grad(loss(), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= lr * gradient
    return float(loss().detach())


def test_a_loss_by_hand_is_computed_again_from_what_was_recorded(folder: Path) -> None:
    (folder / "train.py").write_text(BY_HAND)
    with bench(folder) as at:
        tiny, rates, slices = (at.measure(name) for name in ("tiny_batch", "learning_rates", "slices"))
    assert last_losses(tiny) == pytest.approx([by_hand(lr, 100) for lr in (0.05, 0.1, 0.5)], rel=1e-4)
    assert last_losses(rates)[:3] == pytest.approx([by_hand(0.05 * f, 50) for f in (0.01, 0.1, 1.0)], rel=1e-4)
    assert slices.rows[0]["examples"] == 40
    assert "by class: not measured" in slices.text


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("error = Own.apply(model(x).squeeze(-1) - y)", "has a backward of its own"),
        ("error = (model(x).squeeze(-1) - y).detach().requires_grad_() ** 2", "holds 2 of the 2 tensors trained here"),
        ("error = (model(x).squeeze(-1) - y) ** 2 * (1 + counted())", "where the script had"),
    ],
)
def test_what_cannot_be_computed_again_says_why(folder: Path, line: str, why: str) -> None:
    own = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, d):
        ctx.save_for_backward(d)
        return d * d

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]

class Counting(nn.Linear):
    calls = 0
    def forward(self, x):
        Counting.calls += 1
        return super().forward(x) * Counting.calls

counter = Counting(1, 1)
def counted():
    return counter(torch.ones(1, 1)).sum()
"""
    text = BY_HAND.replace("torch.manual_seed(0)", own + "torch.manual_seed(0)", 1)
    (folder / "train.py").write_text(text.replace("error = (model(x).squeeze(-1) - y) ** 2", line))
    with bench(folder) as at:
        tiny = at.measure("tiny_batch")
    assert why in tiny.text
    assert (tiny.reason is None) == why.startswith("holds")


def test_weights_that_no_optimizer_moves_are_measured_before_they_move(folder: Path) -> None:
    text = BY_HAND.replace("    optimizer.zero_grad()\n", "    model.zero_grad()\n").replace(
        "    optimizer.step()\n",
        "    with torch.no_grad():\n        for p in model.parameters():\n            p -= 0.05 * p.grad\n",
    )
    (folder / "train.py").write_text(text.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.05)\n", ""))
    with bench(folder) as at:
        tiny, rates = at.measure("tiny_batch"), at.measure("learning_rates")
    assert last_losses(tiny) == pytest.approx([by_hand(lr, 100) for lr in (0.1, 0.5)], rel=1e-4)
    assert rates.reason == "no optimizer stepped after that backward"


def test_a_batch_that_requires_a_gradient_is_not_trained(folder: Path) -> None:
    slope = (
        "z = x.clone().requires_grad_()\n"
        "    error = (torch.autograd.grad(model(z).sum(), z, create_graph=True)[0] - 1) ** 2"
    )
    (folder / "train.py").write_text(BY_HAND.replace("error = (model(x).squeeze(-1) - y) ** 2", slope))
    with bench(folder) as at:
        tiny = at.measure("tiny_batch")
    assert "holds 2 of the 2 tensors trained here" in tiny.text


def test_a_loss_that_is_not_finite_is_not_fitted_and_its_slice_stands_first(folder: Path) -> None:
    (folder / "train.py").write_text(TWO.replace("y = (", "x[3, 1] = float('nan')\ny = ("))  # row 3 is of class 0
    with bench(folder) as at:
        fits, slices = [at.measure(name) for name in ("tiny_batch", "learning_rates")], at.measure("slices")
    assert [fit.reason for fit in fits] == ["the loss of that step is not finite"] * 2
    assert [row["slice"] for row in slices.rows] == ["all", "class 0", "class 1"]
    assert str(slices.rows[1]["mean loss"]).lower() == "nan"
    assert float(slices.rows[2]["mean loss"]) < 10  # type: ignore[arg-type]


def test_a_rate_of_zero_is_said_and_not_held_against_the_optimizer(folder: Path) -> None:
    warm_up = "warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)\nfor step in range(12):\n"
    text = BY_HAND.replace("for step in range(12):\n", warm_up)
    (folder / "train.py").write_text(text + "    warm_up.step()\n")
    with bench(folder) as at:
        first, later = at.measure("tiny_batch"), at.measure("tiny_batch", 6)
    assert first.rows[0]["loss after"] == first.rows[0]["loss before"]
    assert "is 0 at that step" in first.text
    assert later.rows[0]["learning rate"] == pytest.approx(0.025)
    assert "is 0 at that step" not in later.text


# -- (e) two optimizers ------------------------------------------------------------------------------------------------

TWO = """
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(20, 4)
y = (x[:, 1] > 0).long()
body, head = nn.Linear(4, 8), nn.Linear(8, 2)
one = torch.optim.SGD(body.parameters(), lr=0.1)
other = torch.optim.Adam(head.parameters(), lr=0.01)
for step in range(6):
    loss = nn.functional.cross_entropy(head(torch.relu(body(x))), y, label_smoothing=0.1)
    one.zero_grad()
    other.zero_grad()
    loss.backward()
    one.step()
    other.step()
"""


def test_all_optimizers_that_step_on_one_loss_belong_to_the_step(folder: Path) -> None:
    (folder / "train.py").write_text(TWO)
    with bench(folder) as at:
        tiny, layers = at.measure("tiny_batch"), at.measure("activation_statistics")
        last = run_instrument(at.runner, at.evidence, "slices")
        between = at.measure("slices", 2)
    namespace: dict[str, object] = {}
    exec(TWO.replace("range(6)", "range(101)"), namespace)
    assert tiny.rows[0]["steps by"] == "SGD + Adam"
    assert last_losses(tiny)[0] == pytest.approx(float(namespace["loss"].detach()), rel=1e-4)  # type: ignore[attr-defined]
    assert [row["layer"] for row in layers.rows] == ["Linear", "Linear2"]
    assert last.ok
    assert "at step 11 of a rerun, chosen" in last.text
    assert between.step == 3  # the second optimizer's step has no backward of its own


def test_examples_that_are_not_the_loss_are_said_to_differ(folder: Path) -> None:
    weighted = TWO.replace("label_smoothing=0.1", "weight=torch.tensor([1.0, 4.0])")
    (folder / "train.py").write_text(weighted)
    (folder / "plain.py").write_text(TWO.replace(", label_smoothing=0.1", ""))
    with bench(folder) as at:
        slices = at.measure("slices")
    with bench(folder, "plain.py") as at:
        plain = at.measure("slices")
    assert "they differ" in slices.text
    assert "they differ" not in plain.text
    assert slices.rows[0]["mean loss"] == plain.rows[0]["mean loss"]  # the weights are left out


ADVERSARIES = """
import torch
from torch import nn

torch.manual_seed(0)
maker, critic = nn.Linear(4, 2), nn.Linear(2, 1)
of_maker = torch.optim.Adam(maker.parameters(), lr=1e-2)
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-2)
score = nn.BCEWithLogitsLoss()
for step in range(4):
    made = maker(torch.randn(16, 4))
    of_critic.zero_grad()
    score(critic(torch.randn(16, 2) + 3), torch.ones(16, 1)).backward()
    score(critic(made.detach()), torch.zeros(16, 1)).backward()
    of_critic.step()
    of_maker.zero_grad()
    score(critic(made), torch.ones(16, 1)).backward()
    of_maker.step()
"""


def test_two_models_that_train_against_each_other(folder: Path) -> None:
    (folder / "train.py").write_text(ADVERSARIES)
    with bench(folder) as at:
        critic, maker = at.measure("tiny_batch", 1), at.measure("tiny_batch", 2)
    # Both of the critic's losses, and its optimizer alone.
    assert "on the 2 losses of step 1 together" in critic.text
    assert critic.rows[0]["steps by"] == "Adam"
    assert last_losses(critic)[0] < float(critic.rows[0]["loss before"])  # type: ignore[arg-type]
    # The maker's forward lies before the critic's step: without it, only the critic would be fitted.
    assert maker.reason == "the loss comes in part from a forward before the last step, which was not recorded"


# -- (f) a model that returns its loss ---------------------------------------------------------------------------------

RETURNS = """
import torch
from torch import nn

class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(11, 8), nn.Linear(8, 11)

    def forward(self, input_ids, labels):
        logits = self.out(nn.functional.dropout(self.embed(input_ids), 0.1, self.training))
        scores, wanted = logits[:, :-1].reshape(-1, 11), labels[:, 1:].reshape(-1)
        return {"loss": nn.functional.cross_entropy(scores, wanted), "logits": logits}

torch.manual_seed(0)
model = Language()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
ids = torch.randint(0, 11, (6, 9))
for step in range(5):
    out = model(input_ids=ids, labels=ids)
    (out["loss"] / 2).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_model_that_returns_its_loss(folder: Path) -> None:
    (folder / "train.py").write_text(RETURNS)
    (folder / "labels.py").write_text(
        "def even(inputs, classes):\n    return inputs['input_ids'][:, 0] % 2 == 0\n\n"
        "def first(inputs):\n    return [0]\n\ndef wrong(inputs):\n    return 1 / 0\n"
    )
    names = {name: f"labels.py:{name}" for name in ("even", "first", "wrong")}
    intent = Intent.model_validate({"slices": names, "metric": {"name": "accuracy", "direction": "max"}})
    with bench(folder, intent=intent) as at:
        tiny, slices = at.measure("tiny_batch"), at.measure("slices")
    namespace: dict[str, object] = {}
    exec(RETURNS.replace("range(5)", "range(1)"), namespace)
    out, ids = namespace["out"], namespace["ids"]
    assert isinstance(ids, torch.Tensor)
    assert isinstance(out, dict)
    assert tiny.reason is None
    assert last_losses(tiny)[0] < float(tiny.rows[0]["loss before"])  # type: ignore[arg-type]
    logits, wanted = out["logits"].detach()[:, :-1], ids[:, 1:]
    each = functional.cross_entropy(logits.movedim(-1, 1), wanted, reduction="none")
    even = ids[:, 0] % 2 == 0
    by_slice = {row["slice"]: row for row in slices.rows}
    assert by_slice["even"]["examples"] == int(even.sum()) * 8
    assert by_slice["even"]["mean loss"] == pytest.approx(float(each[even].mean()), rel=1e-4)
    assert by_slice["first"]["mean loss"] == pytest.approx(float(each[0].mean()), rel=1e-4)
    assert by_slice["class 3"]["mean loss"] == pytest.approx(float(each[wanted == 3].mean()), rel=1e-4)
    assert "slice wrong: not measured, it raised ZeroDivisionError" in slices.text
    found = [row["accuracy"] for row in slices.rows[1:]]
    assert found == sorted(found)  # type: ignore[type-var]


# -- asking ------------------------------------------------------------------------------------------------------------


def test_asking_twice_runs_once_and_bad_requests_say_why(folder: Path) -> None:
    (folder / "train.py").write_text(BY_HAND)
    with bench(folder) as at:
        first = run_instrument(at.runner, at.evidence, "tiny_batch", 2)
        (folder.parent / "logs" / "instrument.log").unlink()
        assert run_instrument(at.runner, at.evidence, "tiny_batch", 2) == first
        assert not (folder.parent / "logs" / "instrument.log").exists()
        assert first.ok
        assert first.request == {"name": "tiny_batch", "step": 2}
        beyond = run_instrument(at.runner, at.evidence, "slices", 13)
        assert not beyond.ok
        assert "the observed run took 12 steps" in beyond.text
        assert run_instrument(at.runner, at.evidence, "x_ray").text.startswith("there is no such instrument")


def test_a_script_that_swallows_every_stop_and_one_that_leaves_are_answered(folder: Path) -> None:
    swallowing = BY_HAND.replace("for step in range(12):\n", "for step in range(12):\n  try:\n").replace(
        "    optimizer.step()\n", "    optimizer.step()\n  except:\n    pass\n"
    )
    (folder / "train.py").write_text(swallowing)
    with bench(folder) as at:
        for name in INSTRUMENTS:
            assert at.measure(name, 2).reason is None, name
    (folder / "train.py").write_text(BY_HAND + "import os\nos._exit(3)\n")
    with bench(folder) as at:
        late = at.measure("tiny_batch", 40)
    assert late.reason == "the run ended after 12 steps, before step 40 began"


def test_a_step_behind_the_deadline_is_said_to_be(folder: Path) -> None:
    slow = BY_HAND.replace("range(12)", "range(100_000)").replace(
        "    optimizer.step()\n", "    optimizer.step()\n    time.sleep(0.02)\n"
    )
    (folder / "train.py").write_text("import time\n" + slow)
    with bench(folder, deadline=2.0) as at:
        assert at.evidence.outcome.ended == "deadline"
        late = at.measure("tiny_batch", 90_000)
    assert late.reason is not None
    assert "before step 90000 began; its deadline had passed" in late.reason
    assert late.rows == []
    assert [path.name for path in folder.iterdir()] == ["train.py"]
