"""The close-up on small scripts: what a loss is made of, where shapes meet, who made the first NaN."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from collector_runs import line_of, observe, plain, row

from weaklink.collector.evidence import Evidence
from weaklink.collector.merging import OWN_ROWS

START = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(64, 4)
y = x.sum(1, keepdim=True) + 0.1 * torch.randn(64, 1)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
other = nn.Linear(4, 1)
optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.01)


def batches(steps=8):
    for step in range(steps):
        rows = torch.randperm(64)[:16]
        yield x[rows], y[rows]


def train(loss_of, steps=8):
    for inputs, targets in batches(steps):
        loss = loss_of(inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def close_up(source: str, folder: Path, at: tuple[int, ...] = (1,), **job: object) -> Evidence:
    settings = {"close_up_at": list(at), "horizon": at[-1] + 5, "horizon_backwards": at[-1] + 5} | job
    run = observe(START + textwrap.dedent(source), folder, role="close_up", **settings)
    assert run.code == 0, run.err
    assert run.seen.problems == []
    return run.seen


def site(source: str, text: str) -> str:
    return f"train.py:{line_of(START + textwrap.dedent(source), text)}"


CUT_TERMS = {
    "rebuilt_with_torch_tensor": """
        def penalty():
            parts = [(p ** 2).sum() for p in model.parameters()]
            return torch.tensor(parts).sum()  # HERE
        train(lambda a, b: F.mse_loss(model(a), b) + 0.1 * penalty())
    """,
    "read_as_a_number": """
        def loss(a, b):
            size = model(a).abs().mean().item()  # HERE
            return F.mse_loss(model(a), b) + 0.5 * size ** 2
        train(loss)
    """,
    "through_numpy": """
        def loss(a, b):
            size = other(a).abs().mean()
            array = size.detach().numpy()  # HERE
            return F.mse_loss(model(a), b) + torch.from_numpy(array)
        train(loss)
    """,
}


@pytest.mark.parametrize("name", [name for name in CUT_TERMS if name != "through_numpy"])
def test_a_term_that_was_rebuilt_from_numbers_fails_at_its_line(name: str, tmp_path: Path) -> None:
    found = row(close_up(CUT_TERMS[name], tmp_path), "DEPENDENCY/terms")
    assert (found.status, found.basis) == ("fail", "exact")
    assert found.where[0].place == site(CUT_TERMS[name], "# HERE")


def test_a_detached_term_is_asked_about(tmp_path: Path) -> None:
    source = CUT_TERMS["through_numpy"]
    found = row(close_up(source, tmp_path), "DEPENDENCY/terms")
    assert found.status == "suspected"
    assert found.where[0].place == site(source, "# HERE")


HEALTHY = {
    "sum_for_the_log": """
        total = 0.0
        def loss(a, b):
            global total
            found = F.mse_loss(model(a), b)
            total += found.item()
            return found
        train(loss)
    """,
    "value_swapped_for_the_log": """
        def loss(a, b):
            surrogate = F.mse_loss(model(a), b)
            shown = F.l1_loss(model(a), b)
            return surrogate + (shown - surrogate).detach()
        train(loss)
    """,
    "loss_minus_itself": """
        def loss(a, b):
            found = F.mse_loss(model(a), b)
            return found - found.detach()
        train(loss)
    """,
    "running_loss_as_a_baseline": """
        mean = 0.0
        def loss(a, b):
            global mean
            found = F.mse_loss(model(a), b)
            mean = 0.9 * mean + 0.1 * found.item()
            return found - mean
        train(loss)
    """,
    "constant_penalty": """
        train(lambda a, b: F.mse_loss(model(a), b) + 0.3 + torch.tensor([0.1, 0.2]).sum())
    """,
    "penalty_switched_off": """
        train(lambda a, b: F.mse_loss(model(a), b) + 0.0 * torch.tensor([p.norm() for p in model.parameters()]).sum())
    """,
    "term_of_a_frozen_part": """
        other.requires_grad_(False)
        train(lambda a, b: F.mse_loss(model(a), b) + other(a).mean())
    """,
    "accuracy_like_count_added": """
        train(lambda a, b: F.mse_loss(model(a), b) + (model(a) > b).float().mean())
    """,
    "teacher_without_gradients": """
        def loss(a, b):
            with torch.no_grad():
                soft = other(a)
            return F.mse_loss(model(a), soft) + F.mse_loss(other(a), b)
        train(loss)
    """,
    "loss_in_units_of_its_targets": """
        train(lambda a, b: F.mse_loss(model(a), b) / F.mse_loss(b, b.mean(0).expand_as(b)))
    """,
    "other_loss_shown_beside": """
        second = torch.optim.SGD(other.parameters(), lr=0.01)
        for a, b in batches():
            theirs = F.mse_loss(other(a), b)
            second.zero_grad(); theirs.backward(); second.step()
            mine = F.mse_loss(model(a), b) + theirs.item()
            optimizer.zero_grad(); mine.backward(); optimizer.step()
    """,
    "every_pair_on_purpose": """
        train(lambda a, b: (model(a).squeeze(1)[:, None] - b.squeeze(1)).pow(2).mean())
    """,
    "centres_as_many_as_rows": """
        centres = torch.linspace(-1, 1, 16)
        train(lambda a, b: ((model(a) - centres).abs().amin(1) - b.squeeze(1)).pow(2).mean())
    """,
    "weights_of_rows": """
        train(lambda a, b: (b.abs() * (model(a) - b) ** 2).mean())
    """,
    "attention_masked_with_infinity": """
        def loss(a, b):
            scores = (a @ a.T).masked_fill(torch.ones(16, 16).triu(1).bool(), float("-inf"))
            return F.mse_loss(model(scores.softmax(1) @ a), b)
        train(loss)
    """,
    "evaluation_between_steps": """
        best = 0.0
        for step, (a, b) in enumerate(batches()):
            loss = F.mse_loss(model(a), b)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            model.eval()
            with torch.no_grad():
                best = max(best, F.mse_loss(model(x), y).item())
            model.train()
    """,
    "accumulated": """
        for step, (a, b) in enumerate(batches(16)):
            (F.mse_loss(model(a), b) / 4).backward()
            if step % 4 == 3:
                optimizer.step(); optimizer.zero_grad()
    """,
    "closure": """
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss
        for step in range(4):
            optimizer.step(closure)
    """,
    "function_of_its_own": """
        class Round(torch.autograd.Function):
            @staticmethod
            def forward(ctx, value):
                return value.round()
            @staticmethod
            def backward(ctx, gradient):
                return gradient
        train(lambda a, b: F.mse_loss(Round.apply(10 * model(a)) / 10, b))
    """,
    "inside_vmap": """
        one = lambda a, b: (model(a) - b).pow(2).mean()
        train(lambda a, b: torch.vmap(one)(a, b).mean())
    """,
    "default_device": """
        torch.set_default_device("cpu")
        train(lambda a, b: F.mse_loss(model(a), b))
    """,
    "device_context": """
        with torch.device("cpu"):
            train(lambda a, b: F.mse_loss(model(a), b))
    """,
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_held_against_a_healthy_loss(name: str, tmp_path: Path) -> None:
    evidence = close_up(HEALTHY[name], tmp_path)
    own = {r.id: r for r in evidence.rows if r.id in OWN_ROWS}
    assert set(own) == set(OWN_ROWS)
    assert {r.id: r.text for r in own.values() if r.status in ("fail", "suspected")} == {}
    assert own["DEPENDENCY/terms"].status == "pass"
    assert own["GRADIENT/origin"].status == "pass"


SQUARES = {
    "targets_flat": """
        def loss(a, b):
            flat = b.squeeze(1)
            return ((model(a) - flat) ** 2).mean()  # HERE
        train(loss)
    """,
    "outputs_flattened_by_a_reduction": """
        def loss(a, b):
            size = (a - model(a)).norm(dim=1)  # HERE
            return (size * b).mean()
        train(loss)
    """,
    "torch_loss": """
        train(lambda a, b: F.mse_loss(model(a), b[:, 0]))  # HERE
    """,
}


@pytest.mark.parametrize("name", ["targets_flat", "torch_loss"])
def test_outputs_that_meet_every_target_fail(name: str, tmp_path: Path) -> None:
    found = row(close_up(SQUARES[name], tmp_path), "OBJECTIVE/broadcast")
    assert (found.status, found.basis) == ("fail", "exact")
    assert found.where[0].place == site(SQUARES[name], "# HERE")


SELF = {
    "function_of_the_teacher_twice": """
        def loss(a, b):
            with torch.no_grad():
                soft = other(a).repeat(1, 3) * torch.arange(3.0)
            return F.mse_loss(model(a), b) + F.kl_div(F.log_softmax(soft, 1), F.softmax(soft, 1))  # HERE
        train(loss)
    """,
    "output_against_itself": """
        def loss(a, b):
            out = model(a)
            return F.mse_loss(other(a), b) + F.mse_loss(out, out.detach().clone())  # HERE
        train(loss)
    """,
}


@pytest.mark.parametrize("name", SELF)
def test_a_term_that_compares_a_tensor_with_itself_fails(name: str, tmp_path: Path) -> None:
    found = row(close_up(SELF[name], tmp_path), "OBJECTIVE/terms")
    assert (found.status, found.basis) == ("fail", "exact")
    assert site(SELF[name], "# HERE") in [s.place for s in found.where]


ORIGINS = {
    "root_at_zero": ("backward", "train(lambda a, b: ((model(a) - model(a)) ** 2).sum(1).sqrt().mean())  # HERE"),
    "overflow_in_the_other_branch": (
        "backward",
        "train(lambda a, b: torch.where(a > 9, torch.exp(1000 * model(a).abs() + 1), model(a)).mean())  # HERE",
    ),
    "logarithm_of_zero": ("forward", "train(lambda a, b: (model(a) * 0).abs().log().mean())  # HERE"),
}


@pytest.mark.parametrize("name", ORIGINS)
def test_the_first_value_that_is_not_finite_has_its_line(name: str, tmp_path: Path) -> None:
    direction, source = ORIGINS[name]
    found = row(close_up(source, tmp_path), "GRADIENT/origin")
    assert found.values["direction"] == direction
    assert found.where[0].place == site(source, "# HERE")


def test_a_decorator_that_switches_gradients_off_is_the_place_where_the_path_ends(tmp_path: Path) -> None:
    source = """
        class Tower(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(4, 4)
            @torch.no_grad()  # HERE
            def forward(self, a):
                return self.inner(a)
        whole = nn.Sequential(Tower(), model)
        optimizer = torch.optim.SGD(whole.parameters(), lr=0.01)
        train(lambda a, b: F.mse_loss(whole(a), b))
    """
    found = row(close_up(source, tmp_path), "DEPENDENCY/reached")
    assert found.status == "suspected"
    assert found.where[0].place == site(source, "# HERE")


def test_only_the_cut_before_an_optimizers_own_loss_counts(tmp_path: Path) -> None:
    source = """
        maker, judge = nn.Linear(2, 4), nn.Linear(4, 1)
        first, second = torch.optim.SGD(maker.parameters(), 0.1), torch.optim.SGD(judge.parameters(), 0.1)
        for a, b in batches():
            made = maker(torch.randn(16, 2))
            fooled = F.softplus(-judge(made.detach())).mean()  # HERE
            first.zero_grad(); fooled.backward(); first.step()
            loss = F.softplus(judge(made.detach())).mean() + F.softplus(-judge(a)).mean()
            second.zero_grad(); loss.backward(); second.step()
    """
    found = row(close_up(source, tmp_path), "DEPENDENCY/reached")
    assert found.values["cut"] == [site(source, "# HERE")]


def test_a_later_stage_is_seen_where_it_begins(tmp_path: Path) -> None:
    source = """
        train(lambda a, b: F.mse_loss(other(a), b), 20)
        train(lambda a, b: F.mse_loss(model(a), b) + torch.tensor([model(a).mean()]).sum(), 20)  # HERE
    """
    early, late = close_up(source, tmp_path), close_up(source, tmp_path, at=(1, 21))
    assert row(early, "DEPENDENCY/terms").status == "pass"
    found = row(late, "DEPENDENCY/terms")
    assert (found.status, found.step, found.where[0].place) == ("fail", 21, site(source, "# HERE"))


def test_a_script_that_compiles_is_left_alone(tmp_path: Path) -> None:
    source = """
        compiled = torch.compile(model, backend="eager")
        train(lambda a, b: F.mse_loss(compiled(a), b))
    """
    found = row(close_up(source, tmp_path), "DEPENDENCY/terms")
    assert found.status == "not_measured"
    assert "compiles" in (found.reason or "")


def test_a_number_that_remembers_prints_like_any_other(tmp_path: Path) -> None:
    source = START + textwrap.dedent("""
        import copy, json, pickle
        def loss(a, b):
            found = F.mse_loss(model(a), b)
            value = found.item()
            print(value, f"{value:.3f}", json.dumps([value]), pickle.loads(pickle.dumps(value)), copy.deepcopy(value))
            print(round(value, 2), int(value * 100), max(value, 0.5), value ** 2, -value, abs(value), value // 0.1)
            return found
        train(loss, 6)
    """)
    seen = observe(source, tmp_path, role="close_up", close_up_at=[1])
    assert seen.out == plain(source, tmp_path).out
