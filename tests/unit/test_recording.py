"""Every number of a short run is written down: what the steps consumed and moved, and what moved between them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from collector_runs import Run, observe, plain

from weaklink.collector.declared import Intent
from weaklink.collector.step_values import LARGEST_SYSTEM, RECORDED, StepValues

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPLAY = Path(__file__).parents[2] / "replays" / "generator_critic"

PLAIN = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(2, 1).double()
idle = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
x = torch.randn(4, 2, dtype=torch.float64)
for step in range(3):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    print(model.weight.grad.tolist()[0])
    optimizer.step()
    idle(x.float())
"""


def recorded(source: str, folder: Path, **job: object) -> tuple[Run, StepValues]:
    run = observe(source, folder, role="record", record_values=True, **job)
    assert run.code == 0, run.err
    return run, StepValues.model_validate_json((folder / RECORDED).read_text(encoding="utf-8"))


def test_gradients_and_movements_of_each_step_are_what_the_script_had(tmp_path: Path) -> None:
    run, values = recorded(PLAIN, tmp_path)

    assert run.out == plain(PLAIN, tmp_path).out
    assert [repr(one) for one in values.gradients["Linear.weight"]] == run.out.splitlines()
    for gradient, movement in zip(values.gradients["Linear.weight"], values.movements["Linear.weight"], strict=True):
        assert movement == pytest.approx([-0.5 * value for value in gradient])
    assert values.moved == [["Linear.weight", "Linear.bias"]] * 3
    assert (values.outside, values.problem) == ([], None)


@pytest.mark.parametrize("when", ["between", "after the last step"])
def test_what_moves_outside_of_a_step_is_named(when: str, tmp_path: Path) -> None:
    step = 1 if when == "between" else 2
    by_hand = f"    if step == {step}:\n        with torch.no_grad():\n            model.bias.add_(1.0)\n"
    _, values = recorded(PLAIN + by_hand, tmp_path)

    assert values.outside == ["Linear.bias"]


def test_a_step_without_a_gradient_leaves_its_parameter_out(tmp_path: Path) -> None:
    source = PLAIN.replace("optimizer.zero_grad()\n", "optimizer.zero_grad()\n    model.bias.requires_grad_(False)\n")
    _, values = recorded(source, tmp_path)

    assert sorted(values.gradients) == sorted(values.movements) == ["Linear.weight"]


def test_a_large_system_is_not_written_down(tmp_path: Path) -> None:
    wide = LARGEST_SYSTEM // 2 + 1
    _, values = recorded(PLAIN.replace("idle = nn.Linear(2, 1)", f"idle = nn.Linear(2, {wide})"), tmp_path)

    assert values.problem is not None
    assert values.gradients == {}


def test_kept_apart_the_deferred_script_takes_the_isolated_ones_steps(tmp_path: Path) -> None:
    """One change that the operator's facts allow, against the script in which it was made by hand."""
    (tmp_path / "system.py").write_text((REPLAY / "system.py").read_text(encoding="utf-8"), encoding="utf-8")
    intent = Intent.model_validate(tomllib.loads((REPLAY / "facts.toml").read_text(encoding="utf-8")))
    run = observe(
        (REPLAY / "deferred.py").read_text(encoding="utf-8"),
        tmp_path,
        name="deferred.py",
        role="treatment",
        intervention="isolate_objectives",
        intent=intent,
    )

    isolated = plain((REPLAY / "isolated.py").read_text(encoding="utf-8"), tmp_path, name="isolated.py")
    assert run.out == isolated.out != ""
    assert run.seen.intervention is not None
    assert run.seen.intervention.applied
