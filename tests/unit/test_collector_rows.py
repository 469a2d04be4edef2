"""The rows on broken scripts: the first divergence, its basis, the line it points at, and the values it rests on."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from collector_runs import line_of, observe, observe_code, row, with_status

from weaklink.collector.evidence import Evidence

COMMON = """\
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(64, 4)
y = (x[:, 0] + x[:, 1] > 0).long()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.features(x)))


"""


@dataclass
class Case:
    """One fault. `lines` are texts of the lines that the first divergence must point at, most likely first."""

    source: str
    first: str
    lines: list[str]
    status: str = "fail"
    values: dict[str, Any] = field(default_factory=dict)
    downstream: tuple[str, ...] = ()
    step: int | None = 1
    branch: str | None = None

    @property
    def whole(self) -> str:
        return COMMON + textwrap.dedent(self.source).lstrip()


LOOP = """
for _ in range(12):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

CASES = {
    "head_replaced_after_the_optimizer_at_module_level": Case(
        """
        model = Net()
        model.features.requires_grad_(False)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)  # built
        model.head = nn.Linear(8, 2)  # new head
        """
        + textwrap.indent(LOOP, " " * 8),
        "OWNERSHIP/owned",
        ["# built", "# new head"],
        values={"owned": 0, "expected": 2, "missing": ["head.weight", "head.bias"]},
        downstream=("OWNERSHIP/stale", "UPDATE/moved"),
        branch="flat",
    ),
    "head_replaced_in_a_function_whose_model_is_gone_at_the_end": Case(
        """
        def main():
            model = Net()
            model.features.requires_grad_(False)
            optimizer = torch.optim.AdamW(model.parameters(), 1e-2)  # built
            model.head = nn.Linear(8, 2)  # new head
        """
        + textwrap.indent(LOOP, " " * 12)
        + """
        main()
        """,
        "OWNERSHIP/owned",
        ["# built", "# new head"],
        values={"owned": 0, "expected": 2, "missing": ["head.weight", "head.bias"]},
        downstream=("OWNERSHIP/stale", "UPDATE/moved"),
    ),
    "layer_added_after_the_optimizer": Case(
        """
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)  # built
        model.append(nn.Linear(8, 2))  # added
        """
        + textwrap.indent(LOOP, " " * 8),
        "OWNERSHIP/owned",
        ["# built", "# added"],
        values={"owned": 2, "expected": 4, "missing": ["2.weight", "2.bias"]},
        downstream=("UPDATE/moved",),
    ),
    "layers_in_a_python_list": Case(
        """
        class Hidden(Net):
            def __init__(self):
                super().__init__()
                self.extra = [nn.Linear(4, 4)]  # unregistered

            def forward(self, x):
                return super().forward(self.extra[0](x))


        model = Hidden()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        """
        + textwrap.indent(LOOP, " " * 8),
        "OWNERSHIP/unregistered",
        ["# unregistered", "# unregistered"],
        values={"unregistered": 2},
    ),
    "softmax_before_cross_entropy": Case(
        """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(12):
            loss = F.cross_entropy(torch.softmax(model(x), 1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        "OBJECTIVE/fed",
        ["cross_entropy(torch.softmax"],
        values={"softmax_into_log_softmax": True},
    ),
    "softmax_module_reshaped_before_cross_entropy": Case(
        """
        model = nn.Sequential(Net(), nn.Softmax(dim=1), nn.Unflatten(1, (2, 1)))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(12):
            loss = F.cross_entropy(model(x).squeeze(2), y)
            optimizer.zero_grad()
            loss.backward()  # here
            optimizer.step()
        """,
        "OBJECTIVE/fed",
        ["loss = F.cross_entropy(model(x).squeeze(2), y)", "# here"],
    ),
    "column_of_outputs_against_a_row_of_targets": Case(
        """
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(12):
            loss = F.mse_loss(model(x), x[:, 0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        "OBJECTIVE/shapes",
        ["F.mse_loss(model(x), x[:, 0])"],
        values={"outputs": [64, 1], "targets": [64], "broadcast": [64, 64]},
    ),
    "sigmoid_before_a_loss_with_logits": Case(
        """
        model = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(12):
            loss = F.binary_cross_entropy_with_logits(model(x).squeeze(1), y.float())
            optimizer.zero_grad()
            loss.backward()  # here
            optimizer.step()
        """,
        "OBJECTIVE/fed",
        ["# here"],
        values={"sigmoid_into_logits": True},
    ),
    "gradients_never_cleared": Case(
        """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(12):
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # here
            optimizer.step()  # consumed
        """,
        "GRADIENT/pre_existing",
        ["# here", "# consumed"],
        values={"pre_existing": 0, "never_cleared": 4},
        step=2,
    ),
    "rate_zero": Case(
        """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)  # built
        """
        + textwrap.indent(LOOP, " " * 8),
        "UPDATE/lr",
        ["# built"],
        values={"first": "0", "last": "0", "highest": 0.0},
        downstream=("UPDATE/moved",),
        branch="flat",
    ),
    "rate_kept_at_zero_by_a_scheduler": Case(
        """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # built
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step // 1000)
        for _ in range(12):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()  # scheduled
        """,
        "UPDATE/lr",
        ["# scheduled", "# built"],
        values={"highest": 0.0, "scheduler_steps": 12},
        downstream=("UPDATE/moved",),
    ),
    "step_never_called": Case(
        """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # built
        for _ in range(12):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()  # here
        """,
        "UPDATE/steps",
        ["# here", "# built"],
        values={"backwards": 12, "asked": 0, "executed": 0},
        step=None,
    ),
    "inputs_not_a_number": Case(
        """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x[5, 2] = float("nan")
        for _ in range(12):
            scores = model(x)  # called
            loss = F.cross_entropy(scores, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        "TASK/finite",
        ["# called"],
        values={"finite": False},
        downstream=("OBJECTIVE/loss",),
        branch="nonfinite",
    ),
    "every_label_ignored": Case(
        """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        y[:] = -100
        for _ in range(12):
            loss = F.cross_entropy(model(x), y, reduction="sum")
            optimizer.zero_grad()
            loss.backward()  # here
            optimizer.step()
        """,
        "TASK/supervised",
        ["# here"],
        # Sampled steps: 1 to 5 and 10.
        values={"supervised": 0, "targets": 6 * 64},
    ),
    "trained_in_eval_mode_with_dropout": Case(
        """
        model = nn.Sequential(Net(), nn.Dropout(0.1)).eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            scores = model(x)  # called
            loss = F.cross_entropy(scores, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        "OBJECTIVE/mode",
        ["# called"],
        status="suspected",
        values={"training": False, "modules": ["Dropout"]},
    ),
    "first_layer_dead": Case(
        """
        model = Net()  # made
        nn.init.constant_(model.features.bias, -100.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        """
        + textwrap.indent(LOOP, " " * 8),
        "GRADIENT/nonzero",
        ["self.features = nn.Linear(4, 8)"],
        status="suspected",
        values={"nonzero": 1, "expected": 4, "zero": ["features.weight", "features.bias", "head.weight"]},
    ),
    "rate_far_too_large": Case(
        """
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e4)  # built
        """
        + textwrap.indent(LOOP, " " * 8),
        "UPDATE/scale",
        ["# built"],
        status="suspected",
        branch="nonfinite",
    ),
    "hidden_state_detached": Case(
        """
        class Cut(Net):
            def forward(self, x):
                return self.head(torch.relu(self.features(x)).detach())


        model = Cut()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        """
        + textwrap.indent(LOOP, " " * 8),
        "DEPENDENCY/reached",
        [".detach())", "self.features = nn.Linear(4, 8)"],
        status="suspected",
        values={
            "reached": 2,
            "expected": 4,
            "missed": ["features.weight", "features.bias"],
            "cut": ["train.py:22"],
        },
    ),
    "loss_not_finite_before_any_update": Case(
        """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            loss = (model(x) - 1e30).log().mean()
            optimizer.zero_grad()
            loss.backward()  # here
            optimizer.step()
        """,
        "OBJECTIVE/loss",
        ["# here"],
        downstream=("UPDATE/moved",),
    ),
    "gradient_not_finite_while_the_loss_is": Case(
        """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            loss = F.cross_entropy(model(x), y) + (model(x) * 0.0).abs().sqrt().sum()
            optimizer.zero_grad()
            loss.backward()  # here
            optimizer.step()
        """,
        "GRADIENT/finite",
        ["# here"],
    ),
    "scaler_skips_every_step": Case(
        """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=0.9999)
        for _ in range(20):
            loss = F.cross_entropy(model(x), y) * 64
            optimizer.zero_grad()
            scaler.scale(loss).backward()  # here
            scaler.step(optimizer)
            scaler.update()
        """,
        "GRADIENT/finite",
        ["# here"],
        downstream=("UPDATE/steps",),
    ),
    "last_place_swallows_every_update": Case(
        """
        model = Net().bfloat16()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
        x = x.bfloat16()
        for _ in range(12):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()  # step
        """,
        "UPDATE/moved",
        ["# step"],
        values={"moved": 0, "expected": 4},
    ),
}


def observed(case: Case, folder: Path) -> Evidence:
    return observe_code(case.whole, folder)


@pytest.mark.parametrize("name", CASES)
def test_first_divergence_of_a_broken_script(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    evidence = observed(case, tmp_path)
    first = evidence.first_divergence
    assert first is not None
    assert (first.id, first.status) == (case.first, case.status)
    assert first.basis == ("exact" if case.status == "fail" else None)
    assert not first.downstream
    assert first.step == case.step
    expected = [("train.py", line_of(case.whole, text)) for text in case.lines]
    assert [(site.file, site.line) for site in first.where][: len(expected)] == expected
    assert {key: first.values.get(key) for key in case.values} == case.values
    later = {r.id for r in evidence.rows if r.status in ("fail", "suspected")} - {first.id}
    assert later == set(case.downstream)
    assert all(row(evidence, row_id).downstream for row_id in later)
    if case.branch is not None:
        assert evidence.branch == case.branch


def test_a_head_created_later_is_said_to_be_later(tmp_path: Path) -> None:
    case = CASES["head_replaced_after_the_optimizer_at_module_level"]
    evidence = observed(case, tmp_path)
    built = line_of(case.whole, "# built")
    assert row(evidence, "OWNERSHIP/owned").where[1].what == (
        f"head.weight created, after the optimizer at train.py:{built}"
    )
    heads = [p for p in evidence.parameters if p.name.startswith("head.")]
    assert sorted((p.name, p.in_model, p.owned, p.created_after_optimizer) for p in heads) == [
        ("head.bias", False, True, False),
        ("head.bias", True, False, True),
        ("head.weight", False, True, False),
        ("head.weight", True, False, True),
    ]


RAISING = {
    "in_forward": ("model(torch.zeros(2, 3))  # bang", "OBJECTIVE/raised", "RuntimeError"),
    "in_the_loss": ("F.cross_entropy(model(x), y[:3])  # bang", "OBJECTIVE/raised", "ValueError"),
    "in_backward": (
        "loss = model(x).sum(); loss.backward(); loss.backward()  # bang",
        "GRADIENT/raised",
        "RuntimeError",
    ),
    "in_the_data": ("raise KeyError('no such row')  # bang", None, "KeyError"),
    "in_a_custom_step": ("Bad(model.parameters(), {}).step()  # bang", "UPDATE/raised", "ZeroDivisionError"),
}


@pytest.mark.parametrize("name", RAISING)
def test_a_script_that_raises_is_placed_at_the_boundary_it_was_in(name: str, tmp_path: Path) -> None:
    statement, row_id, kind = RAISING[name]
    source = COMMON + textwrap.dedent(f"""
        class Bad(torch.optim.Optimizer):
            def step(self, closure=None):
                return 1 / 0  # division


        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        {statement}
    """)
    run = observe(source, tmp_path)
    evidence = run.seen
    assert (run.code, evidence.outcome.ended, evidence.outcome.exit_code) == (1, "raised", 1)
    assert evidence.branch == "raised"
    assert evidence.outcome.raised is not None
    assert evidence.outcome.raised.type == kind
    # The innermost line of the user's own code, not the line of the loop.
    inner = {"in_a_custom_step": "# division", "in_forward": "self.head(torch"}
    line = line_of(source, inner.get(name, "# bang"))
    assert evidence.outcome.raised.where is not None
    assert (evidence.outcome.raised.where.file, evidence.outcome.raised.where.line) == ("train.py", line)
    assert set(with_status(evidence, "fail")) == ({row_id} if row_id else set())
    if row_id:
        assert row(evidence, row_id).step == 4
        assert [site.line for site in row(evidence, row_id).where] == [line]
    assert "weaklink" not in run.err.split("Traceback")[1].split("\n")[1]


def test_backward_on_a_loss_without_a_graph(tmp_path: Path) -> None:
    source = COMMON + textwrap.dedent("""
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with torch.no_grad():
            loss = F.cross_entropy(model(x), y)
        loss.backward()  # bang
    """)
    run = observe(source, tmp_path)
    first = run.seen.first_divergence
    assert run.code == 1
    assert first is not None
    assert (first.id, first.status, first.basis) == ("DEPENDENCY/graph", "fail", "exact")
    assert [site.line for site in first.where] == [line_of(source, "# bang")]
    assert first.values == {"requires_grad": False}


def test_a_script_that_never_calls_backward_has_nothing_measured_and_nothing_accused(tmp_path: Path) -> None:
    evidence = observe_code(COMMON + "print(Net()(x).sum().item())", tmp_path)
    assert evidence.first_divergence is None
    assert evidence.branch == "not_measured"
    for row_id in ("DEPENDENCY/graph", "GRADIENT/present", "UPDATE/steps", "OBJECTIVE/loss", "OWNERSHIP/owned"):
        assert row(evidence, row_id).status == "not_measured"
        assert row(evidence, row_id).reason


def test_a_module_that_holds_itself_does_not_hang_us(tmp_path: Path) -> None:
    source = (
        COMMON
        + textwrap.dedent("""
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model.head.owner = model
    """)
        + LOOP
    )
    evidence = observe_code(source, tmp_path)
    assert evidence.first_divergence is None
    assert sorted(p.name for p in evidence.parameters) == [
        "features.bias", "features.weight", "head.bias", "head.weight",
    ]  # fmt: skip


def test_every_boundary_has_rows_and_they_stand_in_chain_order(tmp_path: Path) -> None:
    evidence = observed(CASES["rate_zero"], tmp_path)
    boundaries = list(dict.fromkeys(r.boundary for r in evidence.rows))
    assert boundaries == [
        "TASK", "OBJECTIVE", "DEPENDENCY", "GRADIENT", "OWNERSHIP", "UPDATE", "CAPABILITY", "EVALUATION",
    ]  # fmt: skip
    assert len({r.id for r in evidence.rows}) == len(evidence.rows)


@pytest.mark.parametrize(
    ("loss", "kind", "reduction"),
    [
        ("F.cross_entropy(scores, y)", "cross entropy", "mean"),
        ("F.cross_entropy(scores, y, reduction='sum')", "cross entropy", "sum"),
        ("F.cross_entropy(scores, y, weight=torch.tensor([0.2, 3.0]))", "cross entropy", "mean"),
        ("F.cross_entropy(scores, y.masked_fill(x[:, 2] > 0, -100))", "cross entropy", "mean"),
        ("F.cross_entropy(scores.view(8, 8, 2).transpose(1, 2), y.view(8, 8))", "cross entropy", "mean"),
        ("F.nll_loss(scores.log_softmax(1), y)", "cross entropy", "mean"),
        ("F.nll_loss(torch.log(scores.softmax(1)), y)", "negative log-likelihood", "mean"),
        ("F.mse_loss(scores, x[:, :2])", "mean squared error", "mean"),
        ("F.huber_loss(scores, x[:, :2], reduction='sum')", "Huber", "sum"),
        ("F.binary_cross_entropy(scores[:, 0].sigmoid(), y.float())", "binary cross entropy", "mean"),
        ("F.binary_cross_entropy_with_logits(scores[:, 0] * 50, y.float())", "binary cross entropy", "mean"),
    ],
)
def test_losses_are_computed_again_by_hand(loss: str, kind: str, reduction: str, tmp_path: Path) -> None:
    source = COMMON + textwrap.dedent(f"""
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            scores = model(x)
            loss = {loss}
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """)
    found = row(observe_code(source, tmp_path), "OBJECTIVE/by_hand")
    assert found.status == "pass"
    assert found.text.startswith(kind)
    assert found.values["reduction"] == reduction
    assert found.values["by_hand"] == pytest.approx(found.values["reported"], rel=1e-6)


def test_label_smoothing_is_read_off_the_graph_with_its_floor(tmp_path: Path) -> None:
    source = COMMON + textwrap.dedent("""
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """)
    evidence = observe_code(source, tmp_path)
    assert row(evidence, "OBJECTIVE/by_hand").status == "pass"
    assert row(evidence, "OBJECTIVE/floor").values["floor"] == pytest.approx(0.198515, abs=1e-6)
    assert row(evidence, "TASK/classes").status == "evidence"


def test_class_counts_are_those_of_the_batch(tmp_path: Path) -> None:
    source = COMMON + textwrap.dedent("""
        y = torch.tensor([0] * 40 + [2] * 20 + [-100] * 4)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """)
    evidence = observe_code(source, tmp_path)
    assert row(evidence, "TASK/classes").values == {"classes": 2, "counts": [40, 20], "majority": 40 / 60}
    assert row(evidence, "TASK/supervised").values == {"supervised": 180, "targets": 192}
    assert row(evidence, "TASK/supervised").status == "evidence"


def test_a_constant_input_column_is_counted(tmp_path: Path) -> None:
    source = COMMON + "x[:, 1] = 3.0\nmodel = Net()\noptimizer = torch.optim.SGD(model.parameters(), 0.1)" + LOOP
    found = row(observe_code(source, tmp_path), "TASK/inputs")
    assert found.values["constant_columns"] == 1
    assert found.values["max_abs"] is not None


def test_movement_and_ratio_are_those_of_plain_sgd(tmp_path: Path) -> None:
    source = COMMON + textwrap.dedent("""
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for _ in range(2):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """)
    evidence = observe_code(source, tmp_path)
    first = evidence.steps[0]
    assert first.step == 1
    assert first.lr == [0.5]
    assert first.gradient_norm is not None
    assert first.delta_norm == pytest.approx(0.5 * first.gradient_norm, rel=1e-5)
    assert row(evidence, "UPDATE/ratio").values["first"] == pytest.approx(first.delta_norm / first.parameter_norm)
    assert row(evidence, "GRADIENT/norm").values["norm"] == pytest.approx(first.gradient_norm)
    for parameter in evidence.parameters:
        assert parameter.delta_first == pytest.approx(0.5 * parameter.gradient_norm_first, rel=1e-5)


@pytest.mark.parametrize("role_keeps_initial", [False, True])
def test_net_movement_spans_the_dense_window_or_the_whole_rerun(role_keeps_initial: bool, tmp_path: Path) -> None:
    source = COMMON + textwrap.dedent("""
        model = nn.Linear(1, 1, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), 1.0)
        for _ in range(8):
            optimizer.zero_grad()
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
    """)
    (parameter,) = observe_code(source, tmp_path, keep_initial=role_keeps_initial).parameters
    assert parameter.delta_net == pytest.approx(8.0 if role_keeps_initial else 5.0)


def test_skipped_scaler_steps_are_counted_and_no_fault(tmp_path: Path) -> None:
    source = COMMON + textwrap.dedent("""
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-60)
        for _ in range(12):
            loss = F.cross_entropy(model(x), y) * 64
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    """)
    evidence = observe_code(source, tmp_path)
    found = row(evidence, "UPDATE/scaler")
    assert found.status == "evidence"
    assert found.values["asked"] == 12
    assert found.values["skipped"] == 12 - evidence.outcome.steps
    assert 0 < evidence.outcome.steps < 12
    # The loss on the tape is the script's own, not the one multiplied by the scale.
    assert 0 < evidence.losses.value[0] < 100


def test_frozen_parameters_that_move_are_reported_and_not_accused(tmp_path: Path) -> None:
    source = (
        COMMON
        + textwrap.dedent("""
        model = Net()
        model.features.requires_grad_(False)
        class Nudging(torch.optim.SGD):
            @torch.no_grad()
            def step(self, closure=None):
                super().step()
                model.features.bias += 1
        optimizer = Nudging(model.parameters(), 0.1)
    """)
        + LOOP
    )
    found = row(observe_code(source, tmp_path), "UPDATE/frozen")
    assert found.status == "evidence"
    assert found.values == {"still": 1, "frozen": 2}
    assert "features.bias" in found.text


ASKED = {
    "head_alone_by_intent": """
        model = Net()
        fit(model, torch.optim.SGD(model.head.parameters(), 0.1))
    """,
    "loss_network_left_trainable_and_made_after_the_optimizer": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        judge = nn.Sequential(nn.Linear(2, 8), nn.Tanh())
        fit(lambda x: judge(model(x)), optimizer)
    """,
    "loss_network_of_the_module_beside_a_model_of_a_function": """
        judge = nn.Sequential(nn.Linear(2, 8), nn.Tanh())


        def main():
            model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
            fit(lambda x: judge(model(x)), torch.optim.SGD(model.parameters(), 0.1))


        main()
    """,
    "head_alone_in_a_second_stage_with_a_model_of_its_own": """
        def pretrain():
            model = Net()
            fit(model, torch.optim.SGD(model.parameters(), 0.1), 3)
            return model.state_dict()


        def finetune(state):
            model = Net()
            model.load_state_dict(state)
            fit(model, torch.optim.SGD(model.head.parameters(), 0.1))


        finetune(pretrain())
    """,
}

FIT = """
def fit(model, optimizer, steps=12):
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


"""


@pytest.mark.parametrize("name", ASKED)
def test_what_may_be_intended_is_asked_and_not_accused(name: str, tmp_path: Path) -> None:
    evidence = observe_code(COMMON + FIT + textwrap.dedent(ASKED[name]), tmp_path)
    assert with_status(evidence, "fail") == {}
    assert set(with_status(evidence, "suspected")) == {"OWNERSHIP/owned"}


def test_a_head_replaced_in_a_model_whose_parts_are_called_one_by_one(tmp_path: Path) -> None:
    source = (
        COMMON
        + FIT
        + textwrap.dedent("""
        model = Net()
        model.features.requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model.head = nn.Linear(8, 2)
        fit(lambda x: model.head(torch.relu(model.features(x))), optimizer)
    """)
    )
    first = observe_code(source, tmp_path).first_divergence
    assert first is not None
    assert (first.id, first.status) == ("OWNERSHIP/owned", "fail")
