"""`with watch()` around a loop: what it says, that it changes nothing, and that torch is itself again afterwards."""

from __future__ import annotations

import gc
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import systems
import torch
import torch.optim.optimizer as optimizer_module
from collector_runs import RANDOM_STATE, SEEDED, plain
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as module_hooks
from torch.optim import Optimizer, lr_scheduler
from torch.overrides import TorchFunctionMode

from weaklink.collector import watch
from weaklink.collector.errors import LedgerError
from weaklink.collector.evidence import Evidence
from weaklink.collector.watching.movement import Movement
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.watcher import Watcher


def train(model: nn.Module, optimizer: Optimizer, steps: int = 4) -> None:
    x, y = systems.batch()
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def pair(kind: type[systems.Classifier] = systems.Classifier) -> tuple[nn.Module, Optimizer]:
    model = systems.healthy(kind)
    return model, systems.adamw(model)


# -- what it says ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [False, True])
def test_a_healthy_loop_is_not_accused(inside: bool) -> None:
    model, optimizer = pair()
    with watch() as watched:
        if inside:
            model, optimizer = pair()
        train(model, optimizer)
    chain = watched.chain
    assert (chain.first_divergence, chain.suspected, chain.evidence.problems) == (None, [], [])
    assert (chain.evidence.outcome.ended, chain.evidence.outcome.steps) == ("completed", 4)
    assert chain.row("UPDATE/moved").values["moved"] == 6
    assert "No row diverges" in str(watched)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("inside", [False, True])
def test_a_stale_head_is_named_wherever_it_was_built(frozen: bool, inside: bool) -> None:
    model, optimizer = systems.stale_head(frozen)
    with watch() as watched:
        if inside:
            model, optimizer = systems.stale_head(frozen)
        train(model, optimizer)
    owned = watched.chain.row("OWNERSHIP/owned")
    assert watched.chain.first_divergence == "OWNERSHIP/owned"
    assert (owned.basis, owned.values["missing"]) == ("exact", ["head.weight", "head.bias"])
    assert watched.chain.row("OWNERSHIP/stale").values["replaced"] == 2
    if inside:
        assert owned.where[0].what == "AdamW built"
        assert owned.where[1].what.startswith("head.weight created, after the optimizer at ")


def test_a_head_replaced_below_a_live_optimizer_is_named_with_its_line() -> None:
    model, optimizer = pair()
    with watch() as watched:
        model.head = nn.Linear(32, 2)
        train(model, optimizer)
    owned = watched.chain.row("OWNERSHIP/owned")
    assert (owned.status, owned.basis) == ("fail", "exact")
    assert [Path(site.file).name for site in owned.where] == [Path(__file__).name]
    assert f"{owned.where[0].file}:{owned.where[0].line}: head.weight created" in str(watched)
    assert f"{owned.where[0].file}:{owned.where[0].line}: head.weight created" in watched._repr_html_()


def test_a_head_with_another_number_of_classes_is_named() -> None:
    model, optimizer = pair()
    model.head = nn.Linear(32, 5)
    with watch() as watched:
        train(model, optimizer)
    assert (watched.chain.first_divergence, watched.chain.suspected) == ("OWNERSHIP/owned", [])


def test_a_critic_with_an_optimizer_elsewhere_is_not_taken_for_a_replaced_model() -> None:
    # The generator's optimizer also holds one that this loop does not use, of shapes that the critic has too.
    torch.manual_seed(0)
    x, used, unused = torch.randn(64, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    critic = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam([*used.parameters(), *unused.parameters()], lr=1e-3)
    with watch() as watched:
        for _ in range(4):
            optimizer.zero_grad()
            (-critic(used(x)).mean()).backward()
            optimizer.step()
    assert watched.chain.first_divergence is None
    assert watched.chain.row("OWNERSHIP/stale").values["replaced"] == 0


@pytest.mark.parametrize("kind", [systems.Detached, systems.WithoutGradients])
def test_a_cut_path_is_suspected_with_its_line(kind: type[systems.Classifier]) -> None:
    # Suspected only: of a loop it is not known which parameters are meant to be trained.
    with watch() as watched:
        train(*pair(kind))
    row = watched.chain.row("DEPENDENCY/reached")
    assert (watched.chain.first_divergence, watched.chain.suspected) == (None, ["DEPENDENCY/reached"])
    line = Path(systems.__file__).read_text(encoding="utf-8").splitlines()[(row.where[0].line or 0) - 1]
    assert "self.features(x)" in line
    assert "Suspected: DEPENDENCY/reached" in str(watched)


def test_declared_patterns_decide_what_has_to_be_reached() -> None:
    with watch(expected="head.*", task="which side of a line") as watched:
        train(*pair(systems.Detached))
    assert (watched.chain.first_divergence, watched.chain.suspected) == (None, [])
    assert watched.chain.row("GRADIENT/present").values == {"present": 2, "expected": 2}
    assert watched.chain.row("TASK/meaning").text == "which side of a line"
    with watch(expected=["features.*", "head.*"]) as declared:
        train(*pair(systems.Detached))
    assert declared.chain.row("DEPENDENCY/reached").basis == "declared"


def test_a_misspelt_pattern_does_not_pass_for_health() -> None:
    with watch(expected="haed.*") as watched:
        train(*pair())
    assert str(watched).endswith("No parameter has a name that was declared to be trained: nothing was judged.")


@pytest.mark.parametrize(("rule", "status"), [(systems.rule, "pass"), (lambda x: 1 - systems.rule(x), "fail")])
def test_a_declared_rule_is_held_against_the_targets(rule: Callable[[Tensor], Tensor], status: str) -> None:
    with watch(rule=rule) as watched:
        train(*pair())
    row = watched.chain.row("TASK/rule")
    assert (row.status, row.basis) == (status, "declared" if status == "fail" else None)


def test_a_rule_with_a_model_of_its_own_is_no_part_of_the_run() -> None:
    teacher = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    before = teacher[0].running_mean.clone()
    with watch(rule=lambda x: teacher(x).argmax(dim=1)) as watched:
        train(*pair())
    names = [record.name for record in watched.chain.parameters]
    assert names == [name for name, _ in systems.healthy().named_parameters()]
    assert watched.chain.row("TASK/rule").values["rows"] == 256
    assert torch.equal(teacher[0].running_mean, before)


def test_a_rule_may_write_to_the_inputs_it_is_given() -> None:
    def overwriting(x: Tensor) -> Tensor:
        targets = systems.rule(x)
        x.zero_()
        return targets

    model, optimizer = pair()
    train(model, optimizer)
    watched_model, watched_optimizer = pair()
    with watch(rule=overwriting) as watched:
        train(watched_model, watched_optimizer)
    assert watched.chain.row("TASK/rule").status == "pass"
    assert all(map(torch.equal, watched_model.parameters(), model.parameters()))


@pytest.mark.parametrize("options", [{"task": 5}, {"expected": 3}, {"expected": [1]}, {"rule": "right"}])
def test_an_argument_of_the_wrong_kind_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(LedgerError) as refused:
        watch(**options)
    assert refused.value.about == next(iter(options))
    assert refused.value.hint


# -- loops that end in other ways --------------------------------------------------------------------------------------


def test_an_exception_passes_through_and_the_chain_is_there() -> None:
    model, optimizer = pair()
    watched = watch()

    def loop() -> None:
        with watched:
            train(model, optimizer, 2)
            model(torch.ones(3, 3))

    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        loop()
    chain = watched.chain
    assert (chain.first_divergence, chain.evidence.outcome.ended) == ("OBJECTIVE/raised", "raised")
    assert chain.evidence.outcome.steps == 2
    row = chain.row("OBJECTIVE/raised")
    assert Path(row.where[0].file).name == "systems.py"


@pytest.mark.parametrize(("stop", "ended"), [(KeyboardInterrupt, "interrupted"), (SystemExit, "exited")])
def test_a_stopped_loop_is_read_as_far_as_it_came(stop: type[BaseException], ended: str) -> None:
    watched = watch()

    def loop() -> None:
        with watched:
            train(*pair(), 3)
            raise stop

    with pytest.raises(stop):
        loop()
    assert (watched.chain.evidence.outcome.ended, watched.chain.evidence.outcome.steps) == (ended, 3)
    assert (watched.chain.first_divergence, watched.chain.evidence.outcome.raised) == (None, None)


def test_a_loop_that_never_steps_is_suspected() -> None:
    model, (x, y) = systems.healthy(), systems.batch()
    with watch() as watched:
        for _ in range(3):
            functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
    assert (watched.chain.first_divergence, watched.chain.suspected) == (None, ["UPDATE/steps"])


def test_an_empty_body_is_called_neither_healthy_nor_broken() -> None:
    with watch() as watched:
        pass
    assert (watched.chain.first_divergence, watched.chain.suspected) == (None, [])
    assert str(watched).endswith("Nothing was measured: no training step was seen.")


def test_a_chain_that_cannot_be_read_leaves_the_loop_its_own_end(monkeypatch: pytest.MonkeyPatch) -> None:
    # As after an assertion on a device: from then on every look at a tensor of it raises.
    def fails(*_: Any) -> Any:
        raise RuntimeError("the device is gone")

    watched = watch()

    def loop() -> None:
        with watched:
            train(*pair(), 1)
            monkeypatch.setattr(Watcher, "flush_losses", fails)
            monkeypatch.setattr(Movement, "net", fails)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    with pytest.raises(LedgerError, match="the device is gone"):
        _ = watched.chain


# -- more than one, and while it runs ----------------------------------------------------------------------------------


def test_a_nested_loop_is_no_part_of_the_outer_one() -> None:
    model, optimizer = pair()
    with watch() as outer:
        train(model, optimizer, 2)
        with watch() as inner:
            train(*pair(), 3)
        train(model, optimizer, 1)
    assert [one.chain.evidence.outcome.steps for one in (outer, inner)] == [3, 3]
    assert [one.chain.first_divergence for one in (outer, inner)] == [None, None]


def test_two_loops_of_one_process_know_nothing_of_each_other() -> None:
    with watch() as first:
        train(*systems.stale_head())
    with watch() as second:
        train(*pair(), 2)
    assert first.chain.first_divergence == "OWNERSHIP/owned"
    assert (second.chain.first_divergence, second.chain.evidence.outcome.steps) == (None, 2)


def test_one_watch_is_for_one_loop() -> None:
    with watch() as watched:
        with pytest.raises(LedgerError, match="already"):
            watched.__enter__()
        train(*pair(), 2)
    with pytest.raises(LedgerError, match="already"):
        watched.__enter__()
    assert watched.chain.evidence.outcome.steps == 2


def test_the_chain_while_the_loop_runs_is_of_that_moment() -> None:
    model, optimizer = pair()
    with watch() as watched:
        assert watched.chain.evidence.outcome.steps == 0
        train(model, optimizer, 2)
        then = watched.chain
        train(model, optimizer, 3)
    assert (then.evidence.outcome.ended, then.evidence.outcome.steps) == ("stopped", 2)
    assert then.row("UPDATE/steps").values["executed"] == 2
    assert len(then.evidence.losses.value) == 2
    assert len(watched.chain.evidence.losses.value) == 5
    assert watched.chain is watched.chain


# -- it changes nothing ------------------------------------------------------------------------------------------------

LOOP = """
from torch import nn
from torch.nn import functional as F
import contextlib

{watch}

x = torch.randn(64, 2)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
with watch():
    for step in range(12):
        order = torch.randperm(64)[:32]
        loss = F.cross_entropy(model(x[order]), y[order])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        print(step, loss.item().hex(), random.random())
print([parameter.double().sum().item().hex() for parameter in model.parameters()])
"""


def test_numbers_and_random_state_are_those_of_the_loop_alone(tmp_path: Path) -> None:
    sources = {
        "plain": "watch = contextlib.nullcontext",
        "watched": "from weaklink.collector import watch",
    }
    printed = {}
    for name, line in sources.items():
        (tmp_path / name).mkdir()
        run = plain(SEEDED + LOOP.format(watch=line) + RANDOM_STATE, tmp_path / name)
        assert run.code == 0, run.err
        printed[name] = run.out
    assert printed["watched"] == printed["plain"]
    assert len(printed["plain"].splitlines()) == 14


def state_of_torch() -> list[Any]:
    """Everything a hook could hang on; functions compare by identity."""
    schedulers = [value for value in vars(lr_scheduler).values() if isinstance(value, type)]
    classes = [Tensor, nn.Module, Optimizer, torch.amp.GradScaler, torch.autograd.graph.saved_tensors_hooks]
    tables = [
        dict(value)
        for module in (module_hooks, optimizer_module)
        for name, value in sorted(vars(module).items())
        if name.startswith("_global") and isinstance(value, dict)
    ]
    return [
        *(dict(vars(one)) for one in [*classes, *schedulers]),
        tables,
        (torch.autograd.backward, torch.autograd.grad),
        list(warnings.filters),
    ]


@contextmanager
def nested() -> Iterator[None]:
    with watch(), watch():
        yield


@pytest.mark.parametrize("around", [watch, nested])
@pytest.mark.parametrize("raises", [False, True])
def test_hooks_and_patched_functions_are_what_they_were(around: Callable[[], Any], raises: bool) -> None:
    model, optimizer = pair()
    before = state_of_torch()
    # Otherwise the comparison would find nothing whatever it compares.
    with watch():
        assert state_of_torch() != before
    try:
        with around():
            train(model, optimizer, 2)
            if raises:
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert state_of_torch() == before
    assert not any(vars(model)[name] for name in vars(model) if name.endswith("_hooks"))
    assert "step" not in vars(optimizer)


def test_loops_that_end_in_the_order_they_began_leave_nobody_looking() -> None:
    before = state_of_torch()
    first, second = watch(), watch()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    train(*pair(), 2)
    second.__exit__(None, None, None)
    assert state_of_torch() == before
    assert [one.chain.evidence.outcome.steps for one in (first, second)] == [0, 2]


def test_a_function_that_the_loop_replaces_stays_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    asked: list[int] = []
    with watch() as watched:
        inner = torch.autograd.backward

        def counting(*args: Any, **kwargs: Any) -> Any:
            asked.append(1)
            return inner(*args, **kwargs)

        torch.autograd.backward = counting
        train(*pair(), 2)
    train(*pair(), 1)
    assert len(asked) == 3
    assert watched.chain.evidence.outcome.backwards == 2


class Labelled(Tensor):
    """Knows what to do with two functions, as torchvision's images do."""

    handlers: ClassVar[dict[Any, str]] = {Tensor.detach: "detach", Tensor.softmax: "softmax"}

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in cls.handlers:
            return cls.handlers[func]
        return super().__torch_function__(func, types, args, kwargs or {})


class Listed(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.heard.append(func)
        return func(*args, **(kwargs or {}))


def test_what_overrides_torchs_functions_is_asked_as_without_us() -> None:
    labelled, plain_tensor = torch.ones(2).as_subclass(Labelled), torch.ones(2, requires_grad=True) * 1
    with watch():
        found = [labelled.detach(), labelled.softmax(0)]
        with Listed() as mode:
            plain_tensor.detach()
            plain_tensor.softmax(0)
    assert found == ["detach", "softmax"]
    assert mode.heard == [Tensor.detach, Tensor.softmax]


def test_a_watched_model_is_let_go() -> None:
    model, optimizer = pair()
    with watch() as watched:
        train(model, optimizer)
    references = [weakref.ref(thing) for thing in (model, optimizer, *model.parameters())]
    del model, optimizer
    gc.collect()
    assert [reference() for reference in references] == [None] * 8
    assert watched.chain.row("UPDATE/moved").values["moved"] == 6
    assert Evidence.model_validate_json(watched.chain.to_json()).outcome.steps == 4


# -- in a notebook -----------------------------------------------------------------------------------------------------


class Compiler:
    """What IPython offers for its own tracebacks."""

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        return ("Cell", "In[3]") if name == "/tmp/ipykernel_7/42.py" else None


def ipython(shell: Any) -> Any:
    module: Any = types.ModuleType("IPython")
    module.get_ipython = lambda: shell
    return module


def test_a_cell_is_named_as_in_its_own_tracebacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "IPython", ipython(types.SimpleNamespace(compile=Compiler())))
    code = UserCode(tmp_path)
    assert code.relative("/tmp/ipykernel_7/42.py") == "In[3]"
    assert code.relative(str(tmp_path / "helpers.py")) == "helpers.py"
    assert code.relative(torch.__file__) is None


@pytest.mark.parametrize("shell", [None, types.SimpleNamespace(), types.SimpleNamespace(compile=compile)])
def test_without_a_shell_that_knows_cells_their_files_stand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shell: Any
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", ipython(shell))
    assert UserCode(tmp_path).relative("/tmp/ipykernel_7/42.py") == "/tmp/ipykernel_7/42.py"


@pytest.mark.parametrize("name", ["<stdin>", "<python-input-4>", "<ipython-input-3-0a1b>"])
def test_what_is_typed_into_an_interpreter_is_the_users_own(tmp_path: Path, name: str) -> None:
    assert UserCode(tmp_path).relative(name) == name


def test_the_page_escapes_what_the_user_named() -> None:
    model = nn.Module()
    model.add_module("<b>", nn.Linear(2, 2))
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    with watch() as watched:
        for _ in range(3):
            optimizer.zero_grad()
            functional.cross_entropy(model.get_submodule("<b>")(systems.batch()[0]), systems.batch()[1]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    assert watched._repr_html_().startswith("<table>")
    assert "<b>.weight" not in watched._repr_html_()
