"""The fixed-batch ledger: what it says of each system, and that it leaves no trace."""

from __future__ import annotations

import copy
import functools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import systems
import torch
from torch import Tensor, nn
from torch.nn import functional

from weaklink.collector import LearningChain, learning_ledger, watch
from weaklink.collector.errors import LedgerError
from weaklink.collector.evidence import Evidence

# -- the chapter's systems ---------------------------------------------------------------------------------------------


def ledger(model: nn.Module, optimizer: Any = None, **options: Any) -> LearningChain:
    x, y = systems.batch()
    return learning_ledger(
        model, optimizer or systems.adamw(model), options.pop("x", x), options.pop("y", y), **options
    )


def test_a_healthy_system_diverges_nowhere() -> None:
    chain = ledger(systems.healthy(), rule=systems.rule)
    assert chain.first_divergence is None
    assert chain.suspected == []
    assert chain.row("TASK/rule").status == "pass"
    assert chain.row("TASK/pairing").status == "pass"
    assert chain.row("GRADIENT/present").values == {"present": 6, "expected": 6}
    assert [row.id for row in chain.rows if row.status == "fail"] == []
    assert {record.gradient for record in chain.parameters} == {"nonzero"}


@pytest.mark.parametrize("frozen", [True, False])
def test_a_stale_head_is_named_by_identity(frozen: bool) -> None:
    chain = ledger(*systems.stale_head(frozen))
    assert chain.first_divergence == "OWNERSHIP/owned"
    assert chain.row("OWNERSHIP/owned").values["missing"] == ["head.weight", "head.bias"]
    assert chain.row("OWNERSHIP/stale").values == {"stale": 2, "held": 6, "replaced": 2}
    assert chain.row("OWNERSHIP/stale").downstream


def test_a_new_head_with_more_classes_is_named_too() -> None:
    model, (x, y) = systems.healthy(), systems.batch()
    optimizer = systems.adamw(model)
    model.head = nn.Linear(32, 3)
    chain = learning_ledger(model, optimizer, x, y)
    assert chain.first_divergence == "OWNERSHIP/owned"
    assert chain.row("OWNERSHIP/stale").values["replaced"] == 2


def test_a_step_below_the_resolution_of_the_type_fails_after_a_second_one() -> None:
    model, (x, y) = systems.healthy().bfloat16(), systems.batch()
    chain = learning_ledger(model, torch.optim.SGD(model.parameters(), lr=1e-9), x.bfloat16(), y)
    assert chain.first_divergence == "UPDATE/moved"
    assert chain.row("UPDATE/resolution").values["still"] == chain.row("UPDATE/resolution").values["entries"]


def test_a_loss_that_climbs_by_steps_longer_than_the_parameters_is_suspected() -> None:
    model = systems.healthy()
    chain = ledger(model, torch.optim.SGD(model.parameters(), lr=100.0, momentum=0.9))
    assert chain.first_divergence is None
    assert chain.suspected == ["UPDATE/scale"]


@pytest.mark.parametrize(
    ("kind", "status"),
    # A block without gradients may be left later on: a staged thaw looks just so.
    [(systems.Detached, ("fail", "exact")), (systems.WithoutGradients, ("suspected", None))],
)
def test_a_cut_path_is_named_with_its_line(kind: type[systems.Classifier], status: tuple[str, str | None]) -> None:
    row = ledger(systems.healthy(kind)).row("DEPENDENCY/reached")
    assert (row.status, row.basis) == status
    assert (row.values["reached"], row.values["expected"]) == (2, 6)
    assert row.where[0].file.endswith("systems.py")
    source = Path(systems.__file__).read_text(encoding="utf-8").splitlines()
    assert "self.features(x)" in source[(row.where[0].line or 0) - 1]


def test_an_unused_head_is_suspected_not_accused() -> None:
    class Spare(systems.Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.spare = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            self.spare(x)
            return super().forward(x)

    chain = ledger(systems.healthy(Spare))
    assert chain.first_divergence is None
    assert chain.suspected == ["DEPENDENCY/reached"]


def test_shuffled_pairs_contradict_the_declared_rule_alone() -> None:
    x, y = systems.shuffled()
    declared = ledger(systems.healthy(), x=x[:256], y=y[:256], rule=systems.rule)
    assert declared.first_divergence == "TASK/rule"
    assert (declared.row("TASK/rule").basis, declared.row("TASK/rule").values["agreeing"]) == ("declared", 111)
    silent = ledger(systems.healthy(), x=x[:256], y=y[:256])
    assert silent.first_divergence is None
    assert silent.suspected == []
    assert silent.row("TASK/pairing").status == "evidence"


def test_a_rule_that_nearly_holds_is_suspected() -> None:
    x, y = systems.batch()
    y = y.clone()
    y[:10] = 1 - y[:10]
    chain = ledger(systems.healthy(), x=x, y=y, rule=systems.rule)
    assert chain.first_divergence is None
    assert chain.suspected == ["TASK/rule"]
    assert chain.row("TASK/rule").values["mismatched"] == list(range(10))


def test_a_softmax_before_the_loss_is_read_off_the_graph() -> None:
    chain = ledger(systems.healthy(), loss_fn=lambda out, y: functional.cross_entropy(out.softmax(dim=1), y))
    assert chain.first_divergence == "OBJECTIVE/fed"


def test_a_rate_of_ten_thousand_is_suspected_after_the_step_outgrew_its_parameters() -> None:
    model = systems.healthy()
    chain = ledger(model, torch.optim.SGD(model.parameters(), lr=1e4))
    assert chain.first_divergence is None
    assert chain.suspected == ["UPDATE/scale"]
    steps = chain.evidence.steps
    assert [step.lr for step in steps] == [[1e4]] * 4
    assert (steps[0].delta_norm or 0) / (steps[0].parameter_norm or 1) == pytest.approx(654.977, rel=1e-5)


def test_a_dead_layer_is_suspected_after_a_window_of_zero_gradients() -> None:
    chain = ledger(systems.dead_first_layer())
    assert chain.first_divergence is None
    assert chain.suspected == ["GRADIENT/nonzero"]
    zero = ["features.0.weight", "features.0.bias", "features.2.weight"]
    assert chain.row("GRADIENT/nonzero").values["zero"] == zero
    assert [record.name for record in chain.parameters if record.gradient == "zero"] == zero


def test_zeros_of_the_first_step_alone_accuse_nobody() -> None:
    class Adapted(nn.Module):
        """A low-rank adapter as it starts: its second factor is zero, and with it the first one's gradient."""

        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(2, 2).requires_grad_(False)
            self.down = nn.Linear(2, 4, bias=False)
            self.up = nn.Linear(4, 2, bias=False)
            nn.init.zeros_(self.up.weight)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.base(x) + self.up(self.down(x))
            return scores

    chain = ledger(Adapted())
    assert {r.name: r.gradient for r in chain.parameters}["down.weight"] == "zero"
    assert chain.first_divergence is None
    assert chain.suspected == []


def test_a_backbone_frozen_by_intent_accuses_nobody() -> None:
    model = systems.healthy()
    model.features.requires_grad_(False)
    chain = ledger(model, torch.optim.AdamW(model.head.parameters(), lr=1e-2))
    assert (chain.first_divergence, chain.suspected) == (None, [])
    assert chain.row("UPDATE/frozen").status == "pass"


def test_what_is_meant_to_train_is_declared_never_guessed() -> None:
    def head_only(**options: Any) -> LearningChain:
        model = systems.healthy()
        return ledger(model, torch.optim.AdamW(model.head.parameters(), lr=1e-2), **options)

    assert head_only().suspected == ["OWNERSHIP/owned"]
    assert head_only(expected="head.*").suspected == []
    declared = head_only(expected=["head.*", "features.*"])
    assert (declared.first_divergence, declared.row("OWNERSHIP/owned").basis) == ("OWNERSHIP/owned", "declared")


def test_a_frozen_parameter_declared_to_train_is_a_contradiction() -> None:
    model = systems.healthy()
    model.features.requires_grad_(False)
    chain = ledger(model, expected="*")
    assert (chain.first_divergence, chain.row("DEPENDENCY/declared").basis) == ("DEPENDENCY/declared", "declared")
    assert chain.row("DEPENDENCY/reached").basis == "declared"


def test_a_rate_of_zero_fails_unless_a_schedule_holds_it_there() -> None:
    model = systems.healthy()
    assert ledger(model, torch.optim.SGD(model.parameters(), lr=0.0)).first_divergence == "UPDATE/lr"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
    chain = ledger(model, optimizer)
    assert (chain.first_divergence, chain.suspected) == (None, [])


def test_the_tiny_batch_tells_a_stuck_optimizer_from_a_fit_that_works() -> None:
    chain = ledger(*systems.stale_head(), capability_steps=50)
    assert chain.row("CAPABILITY/gap").status == "suspected"
    assert chain.row("CAPABILITY/gap").downstream
    assert ledger(systems.healthy(), capability_steps=50).row("CAPABILITY/tiny_batch").status in ("pass", "evidence")


def test_rows_that_leak_into_each_other_are_told() -> None:
    class Mixed(systems.Classifier):
        def forward(self, x: Tensor) -> Tensor:
            scores = super().forward(x)
            return scores + scores.mean(dim=0)

    assert ledger(systems.healthy()).row("OBJECTIVE/independence").status == "pass"
    mixed = ledger(systems.healthy(Mixed)).row("OBJECTIVE/independence")
    assert mixed.status == "evidence"
    assert mixed.values["moved"] == 255


def test_modes_are_compared_where_they_matter() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    row = ledger(model).row("EVALUATION/mode_gap")
    assert row.values["modules"] == ["BatchNorm1d", "Dropout"]
    assert row.values["train"] != row.values["eval"]
    assert ledger(systems.healthy()).row("EVALUATION/mode_gap").status == "pass"


# -- the chain as an object --------------------------------------------------------------------------------------------


def test_the_chain_is_a_table_a_page_and_a_file() -> None:
    chain = ledger(*systems.stale_head())
    assert "owned         FAIL  0/2 expected parameters" in str(chain)
    assert "\n\nFirst divergence: OWNERSHIP/owned fails (exact)" in str(chain)
    assert "<table>" in chain._repr_html_()
    evidence = Evidence.model_validate_json(chain.to_json())
    assert evidence.first_divergence == chain.row("OWNERSHIP/owned")
    assert json.loads(chain.to_json())["subject"]["kind"] == "process"


def test_a_row_that_does_not_exist_is_named_with_its_neighbours() -> None:
    with pytest.raises(KeyError, match="GRADIENT/present"):
        ledger(systems.healthy()).row("GRADIENT/presence")


def test_names_of_the_user_are_data_in_every_form() -> None:
    model = nn.Module()
    name = "</td><script>alert(1)</script>[red]"
    model.add_module(name, nn.Linear(2, 2))
    model.forward = lambda x: getattr(model, name)(x)  # type: ignore[method-assign]
    other = nn.Parameter(torch.zeros(1))
    chain = ledger(model, torch.optim.SGD([other], lr=0.1))
    assert chain.first_divergence == "OWNERSHIP/owned"
    assert "<script>" not in chain._repr_html_()
    assert name.replace("\x1b", "") in str(chain).replace("\n" + " " * 38, " ") or "script" in str(chain)


# -- no trace ----------------------------------------------------------------------------------------------------------


def fingerprint(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Any]:
    """Everything that the ledger may not change, as comparable values."""
    tensors = [*model.parameters(), *model.buffers()]
    state = copy.deepcopy(optimizer.state_dict())
    return [
        [(id(t), t.data_ptr(), t.detach().clone(), t.requires_grad) for t in tensors],
        [(id(p.grad), None if p.grad is None else p.grad.clone()) for p in model.parameters()],
        state,
        [module.training for module in model.modules()],
        [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        torch.get_rng_state(),
        random.getstate(),
    ]


def same(before: Any, after: Any) -> bool:
    if isinstance(before, Tensor):
        return torch.equal(before, after)
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(same(before[key], after[key]) for key in before)
    if isinstance(before, (list, tuple)):
        return len(before) == len(after) and all(map(same, before, after))
    return bool(before == after)


def noisy() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True),
        lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
        lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
        lambda p: torch.optim.RMSprop(p, lr=0.1, centered=True),
    ],
)
def test_everything_is_put_back_bit_for_bit(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    model, (x, y) = noisy(), systems.batch()
    optimizer = make(model.parameters())

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    for _ in range(2):
        optimizer.step(step) if isinstance(optimizer, torch.optim.LBFGS) else (step(), optimizer.step())
    before = fingerprint(model, optimizer)
    chain = learning_ledger(model, optimizer, x, y, capability_steps=3)
    # The bias before the normalisation layer has a gradient of rounding errors alone.
    assert chain.row("UPDATE/moved").values["moved"] in (5, 6)
    assert chain.row("GRADIENT/pre_existing").values["pre_existing"] == 6
    assert same(before, fingerprint(model, optimizer))


def test_a_layer_made_at_every_call_is_suspected() -> None:
    class Forgetful(systems.Classifier):
        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = nn.Linear(32, 2)(self.features(x)) + self.head(self.features(x))
            return scores

    model = systems.healthy(Forgetful)
    optimizer, (x, y) = systems.adamw(model), systems.batch()
    with watch() as watched:
        for _ in range(3):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    assert watched.chain.suspected == ["OWNERSHIP/unregistered"]


@pytest.mark.parametrize("where", ["forward", "loss", "step"])
def test_everything_is_put_back_when_something_raises(where: str) -> None:
    model, (x, y) = noisy(), systems.batch()

    class Raising(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            super().step(closure)
            if where == "step":
                raise RuntimeError("raised in step")

    optimizer = Raising(model.parameters(), lr=0.1, momentum=0.9)

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        if where == "loss":
            raise RuntimeError("raised in loss")
        return functional.cross_entropy(outputs, targets)

    if where == "forward":
        model.append(nn.Linear(3, 3))
        optimizer = Raising(model.parameters(), lr=0.1, momentum=0.9)
    before = fingerprint(model, optimizer)
    chain = learning_ledger(model, optimizer, x, y, loss_fn)
    boundary = "UPDATE" if where == "step" else "OBJECTIVE"
    assert chain.first_divergence == f"{boundary}/raised"
    assert same(before, fingerprint(model, optimizer))


def test_what_the_batch_was_computed_from_is_left_alone() -> None:
    encoder, model, (x, y) = nn.Linear(2, 2), systems.healthy(), systems.batch()
    hidden, soft = encoder(x), functional.one_hot(y, 2) * encoder.bias.exp()
    chain = learning_ledger(model, systems.adamw(model), (hidden,), soft)
    assert chain.row("OWNERSHIP/unregistered").status == "pass"
    assert encoder.weight.grad is None
    functional.cross_entropy(model(hidden), soft).backward()  # the graph is still there


class Averaging(nn.Module):
    """A loss with a memory."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.seen += 1
        return functional.cross_entropy(outputs, targets)

    def of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self(outputs, targets)  # type: ignore[no-any-return]


CRITERION = Averaging()


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda criterion: criterion,
        lambda criterion: criterion.of,
        functools.partial,
        lambda criterion: lambda outputs, targets: criterion(outputs, targets),
        lambda _: lambda outputs, targets: CRITERION(outputs, targets),
        lambda _: lambda outputs, targets: sum(CRITERION(outputs, targets) for _ in range(2)),
    ],
)
def test_the_module_behind_a_loss_function_is_put_back(wrapped: Callable[[Any], Any]) -> None:
    chain = ledger(systems.healthy(), loss_fn=wrapped(CRITERION))
    assert chain.row("UPDATE/moved").values["moved"] == 6
    assert CRITERION.seen == 0


@pytest.fixture
def elsewhere() -> Iterator[None]:
    """New tensors are made on another device than the model's."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def test_a_default_device_does_not_matter(elsewhere: None) -> None:
    with torch.device("cpu"):
        model, (x, y) = systems.healthy(), systems.batch()
    chain = learning_ledger(model, systems.adamw(model), x, y, rule=systems.rule)
    assert [chain.row(f"TASK/{label}").status for label in ("rule", "pairing")] == ["pass", "pass"]


def test_a_step_that_cannot_be_undone_is_not_taken() -> None:
    class Remembering(torch.optim.SGD):
        def __init__(self, parameters: Any, lr: float) -> None:
            super().__init__(parameters, lr)
            self.memory = object()

        def step(self, closure: Any = None) -> Any:
            raise AssertionError("the step was taken")

    model = systems.healthy()
    chain = ledger(model, Remembering(model.parameters(), 0.1))
    assert chain.first_divergence is None
    assert "memory" in (chain.row("UPDATE/moved").reason or "")


def test_an_optimizer_that_is_not_torchs_shows_what_it_holds() -> None:
    class Own:
        def __init__(self, parameters: Any) -> None:
            self.param_groups = [{"params": list(parameters), "lr": 0.1}]

        def step(self) -> None:
            raise AssertionError("the step was taken")

    model = systems.healthy()
    chain = ledger(model, Own(model.parameters()))
    assert chain.first_divergence is None
    assert chain.row("OWNERSHIP/owned").values == {"owned": 6, "expected": 6, "missing": []}
    assert "cannot be put back" in (chain.row("UPDATE/moved").reason or "")
    assert ledger(model, Own(model.head.parameters())).suspected == ["OWNERSHIP/owned"]


def test_a_ledger_inside_a_watched_loop_is_no_part_of_it() -> None:
    model, (x, y) = systems.healthy(), systems.batch()
    optimizer = systems.adamw(model)
    with watch() as watched:
        for _ in range(3):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            learning_ledger(model, optimizer, x, y)
            optimizer.step()
    assert watched.chain.row("UPDATE/steps").values == {"backwards": 3, "asked": 3, "executed": 3}
    assert watched.chain.first_divergence is None


@pytest.mark.parametrize("block", [torch.no_grad, torch.inference_mode])
def test_a_ledger_needs_no_gradients_enabled_around_it(block: Callable[[], Any]) -> None:
    model, (x, y) = systems.healthy(), systems.batch()
    optimizer = systems.adamw(model)
    with block():
        chain = learning_ledger(model, optimizer, x, y)
        assert not torch.is_grad_enabled()
    assert (chain.first_divergence, chain.row("GRADIENT/present").values["present"]) == (None, 6)


# -- inputs of every kind ----------------------------------------------------------------------------------------------


def test_inputs_may_be_tuples_and_dictionaries() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
            return {"scores": self.layer(torch.cat([left, right], dim=1))}

    x, y = systems.batch()
    for inputs in ((x, x * 2), {"left": x, "right": x * 2}):
        model = Two()
        chain = learning_ledger(
            model,
            systems.adamw(model),
            inputs,
            {"y": y},
            lambda outputs, targets: functional.cross_entropy(outputs["scores"], targets["y"]),
        )
        assert chain.first_divergence is None
        assert chain.row("UPDATE/moved").values["moved"] == 2


def test_several_optimizers_are_one_union() -> None:
    model, (x, y) = systems.healthy(), systems.batch()
    pair = [torch.optim.SGD(model.features.parameters(), lr=0.1), torch.optim.AdamW(model.head.parameters(), lr=0.01)]
    chain = learning_ledger(model, pair, x, y)
    assert (chain.first_divergence, chain.suspected) == (None, [])
    assert chain.row("UPDATE/moved").values["moved"] == 6


def test_complex_and_sparse_gradients_are_measured() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 4, sparse=True)
            self.phase = nn.Parameter(torch.ones(4, dtype=torch.complex64))
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.head((self.embedding(x) * self.phase).real)
            return scores

    model = Odd()
    chain = learning_ledger(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.arange(8), torch.arange(8) % 2)
    assert (chain.first_divergence, chain.suspected) == (None, [])
    assert {record.gradient for record in chain.parameters} == {"nonzero"}


def test_tied_and_shared_parameters_are_held_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Linear(2, 2)
            self.decoder = nn.Linear(2, 2)
            self.decoder.weight = self.encoder.weight
            flat = torch.randn(4)
            self.left, self.right = nn.Parameter(flat[:2]), nn.Parameter(flat[2:])

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.decoder(torch.relu(self.encoder(x)) * self.left) * self.right
            return scores

    torch.manual_seed(0)
    model = Tied()
    before = [p.detach().clone() for p in model.parameters()]
    chain = ledger(model)
    assert chain.first_divergence is None
    assert chain.row("GRADIENT/present").values["expected"] == 5
    assert all(map(torch.equal, before, model.parameters()))


def test_ten_thousand_tensors() -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(torch.randn(2)) for _ in range(10_000)])
            self.head = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.head(x + torch.stack(list(self.weights)).mean(dim=0))
            return scores

    model = Many()
    spare = nn.Parameter(torch.zeros(1))
    chain = ledger(model, torch.optim.SGD([spare], lr=0.1))
    assert chain.first_divergence == "OWNERSHIP/owned"
    assert chain.row("OWNERSHIP/owned").values["expected"] == 10_002


# -- bad input: a row, or an error that names the argument -------------------------------------------------------------


def test_a_wrong_number_of_rows_is_a_row() -> None:
    x, y = systems.batch()
    chain = ledger(systems.healthy(), x=x, y=y[:-1])
    assert chain.first_divergence == "TASK/rows"


def test_targets_out_of_range_are_a_row_and_never_reach_the_loss() -> None:
    x, y = systems.batch()
    chain = ledger(systems.healthy(), x=x, y=y + 1)
    assert chain.first_divergence == "TASK/classes"
    assert "1 .. 2, and there are 2 classes" in chain.row("TASK/classes").text
    ignored = y.clone()
    ignored[0] = -100
    assert ledger(systems.healthy(), x=x, y=ignored).first_divergence is None
    declared = ledger(systems.healthy(), x=x, y=y, num_classes=1)
    assert declared.first_divergence == "TASK/classes"


def test_integer_inputs_are_a_row() -> None:
    x, _ = systems.batch()
    chain = ledger(systems.healthy(), x=x.long())
    assert chain.first_divergence == "OBJECTIVE/raised"
    assert "input int64" in chain.row("TASK/types").text or chain.row("TASK/types").status == "not_measured"


def test_inputs_that_are_not_finite_are_a_row() -> None:
    x, _ = systems.batch()
    x = x.clone()
    x[3, 1] = float("nan")
    assert ledger(systems.healthy(), x=x).first_divergence == "TASK/finite"


@pytest.mark.parametrize(
    ("loss_fn", "row"),
    [
        (lambda out, y: functional.cross_entropy(out, y, reduction="none"), "OBJECTIVE/loss"),
        (lambda out, y: 3.0, "OBJECTIVE/loss"),
        (lambda out, y: functional.cross_entropy(out.detach(), y), "DEPENDENCY/graph"),
    ],
)
def test_a_loss_that_cannot_be_differentiated_is_a_row(loss_fn: Any, row: str) -> None:
    assert ledger(systems.healthy(), loss_fn=loss_fn).first_divergence == row


def test_an_optimizer_over_nothing_is_a_row() -> None:
    model = systems.healthy()
    optimizer = systems.adamw(model)
    optimizer.param_groups.clear()
    assert ledger(model, optimizer).first_divergence == "OWNERSHIP/owned"


@pytest.mark.parametrize(
    ("change", "about"),
    [
        ({"x": torch.zeros(0, 2), "y": torch.zeros(0, dtype=torch.long)}, "x"),
        ({"y": torch.zeros(0, dtype=torch.long)}, "y"),
        ({"x": torch.zeros(4, 2, device="meta")}, "x"),
        ({"model": nn.Linear(2, 2, device="meta")}, "model"),
        ({"model": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))}, "model"),
        ({"model": nn.LazyLinear(2)}, "model"),
        ({"model": lambda x: x}, "model"),
        ({"optimizer": "adam"}, "optimizer"),
        ({"loss_fn": "cross entropy"}, "loss_fn"),
        ({"loss_fn": nn.CrossEntropyLoss}, "loss_fn"),
        ({"rule": 3}, "rule"),
        ({"capability_steps": -1}, "capability_steps"),
        ({"num_classes": 0}, "num_classes"),
        ({"expected": [1]}, "expected"),
        ({"expected": "haed.*"}, "expected"),
    ],
)
def test_what_no_ledger_can_be_read_from_names_the_argument(change: dict[str, Any], about: str) -> None:
    x, y = systems.batch()
    model = systems.healthy()
    arguments = {"model": model, "optimizer": systems.adamw(model), "x": x, "y": y, **change}
    with pytest.raises(LedgerError) as caught:
        learning_ledger(**arguments)
    assert caught.value.about == about
    assert caught.value.hint
