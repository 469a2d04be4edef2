"""A step that turns non-finite is kept, and shows the same when it takes the place of the script's first one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from collector_runs import Run, observe

from weaklink.collector.capture import MANIFEST, RECREATED, STEP, Manifest, Outcomes, read_manifest
from weaklink.collector.errors import EvidenceError
from weaklink.collector.job import CaptureSettings
from weaklink.collector.plain_data import NotPlainError, in_place_of, plain

# A row of zeros at a random place of a random epoch: the derivative of the square root is infinite there. Momentum,
# dropout, the order of the data and the targets all decide what the loss is by then.
SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def main():
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    x[41] = 0.0
    data = TensorDataset(x, (x.sum(1) > 0).float())
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Dropout(0.2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for epoch in range(3):
        for a, b in DataLoader(data, batch_size=4, shuffle=True):
            loss = nn.functional.mse_loss(model(a).pow(2).sum(1).sqrt(), b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()

main()
"""


def capture(source: str, folder: Path, last: int = 30, limit: int = 2**20) -> Manifest | None:
    settings = CaptureSettings(folder=folder / "captured", first=1, last=last, limit=limit)
    observe(source, folder, role="capture", capture=settings, horizon=last)
    path = folder / "captured" / MANIFEST
    return Manifest.model_validate_json(path.read_text()) if path.exists() else None


def recreate(source: str, folder: Path) -> tuple[Run, Outcomes]:
    run = observe(source, folder, role="recreate", captured=folder / "captured", horizon=1)
    return run, Outcomes.model_validate_json((folder / RECREATED).read_text())


def test_the_captured_step_shows_the_same_loss_and_the_same_gradients(tmp_path: Path) -> None:
    manifest = capture(SCRIPT, tmp_path)
    assert manifest is not None
    assert manifest.complete
    assert manifest.step > 3, "the step must not be the script's first one by itself"
    assert manifest.outcomes.nonfinite_gradients == ["0.weight"]
    run, now = recreate(SCRIPT, tmp_path)
    assert now.problem is None
    assert manifest.outcomes.agrees(now)
    assert now.losses == manifest.outcomes.losses
    assert run.seen.outcome.steps == 1
    row = run.seen.row("GRADIENT/finite")
    assert row is not None
    assert row.status == "fail"


def test_what_is_kept_is_read_without_running_anything(tmp_path: Path) -> None:
    assert capture(SCRIPT, tmp_path) is not None
    kept = torch.load(tmp_path / "captured" / STEP, weights_only=True)
    assert set(kept) == {"calls", "loss_inputs", "scalers", "random", "roots", "optimizers"}
    assert kept["calls"][0]["args"][0].shape == (4, 4)
    assert [tensor.shape for tensor in kept["loss_inputs"]] == [(4,)]
    assert kept["optimizers"][0]["state"]["param_groups"][0]["lr"] < 1e-2


def test_a_run_that_stays_finite_keeps_nothing(tmp_path: Path) -> None:
    assert capture(SCRIPT.replace("x[41] = 0.0", ""), tmp_path, last=20) is None


def test_above_its_limit_a_step_is_not_kept_and_says_why(tmp_path: Path) -> None:
    manifest = capture(SCRIPT, tmp_path, limit=100)
    assert manifest is not None
    assert not manifest.complete
    assert not (tmp_path / "captured" / STEP).exists()
    with pytest.raises(EvidenceError, match="larger than the limit"):
        read_manifest(tmp_path / "captured")


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    assert capture(SCRIPT, tmp_path) is not None
    assert read_manifest(tmp_path / "captured").complete
    with (tmp_path / "captured" / STEP).open("ab") as file:
        file.write(b"x")
    with pytest.raises(EvidenceError, match="not the one that was recorded"):
        read_manifest(tmp_path / "captured")
    with pytest.raises(EvidenceError, match="holds no captured step"):
        read_manifest(tmp_path)


def test_accumulation_and_a_teacher_are_taken_again_too(tmp_path: Path) -> None:
    source = """
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(40, 4)
x[34] = 0.0
teacher, model = nn.Linear(4, 3), nn.Linear(4, 3, bias=False)
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
for step in range(10):
    optimizer.zero_grad()
    for half in (0, 1):
        a = x[4 * step + 2 * half:][:2]
        with torch.no_grad():
            wanted = teacher(a)
        loss = (model(a) - wanted).pow(2).mean() + model(a[:1]).pow(2).sum().sqrt()
        loss.backward()
    optimizer.step()
"""
    manifest = capture(source, tmp_path)
    assert manifest is not None
    assert manifest.complete, manifest.outcomes.problem
    assert manifest.calls == ["Linear"] * 4
    assert manifest.step == 9
    assert len(manifest.outcomes.losses) == 2
    _, now = recreate(source, tmp_path)
    assert now.problem is None
    assert manifest.outcomes.agrees(now), (manifest.outcomes, now)


def test_a_value_in_a_variable_of_the_scripts_shows_as_a_difference(tmp_path: Path) -> None:
    source = SCRIPT.replace("for epoch in range(3):", "weight = 1.0\n    for epoch in range(3):").replace(
        "optimizer.zero_grad()", "loss = loss * weight; weight = weight * 0.5; optimizer.zero_grad()"
    )
    manifest = capture(source, tmp_path)
    assert manifest is not None
    _, now = recreate(source, tmp_path)
    assert now.problem is None
    assert not manifest.outcomes.agrees(now)


def test_a_script_whose_first_step_calls_other_models_is_told(tmp_path: Path) -> None:
    assert capture(SCRIPT, tmp_path) is not None
    other = SCRIPT.replace("nn.Linear(4, 8, bias=False)", "nn.Linear(4, 9, bias=False)")
    _, now = recreate(other, tmp_path)
    assert now.problem == "the script never called a Sequential like the captured one"


def test_values_that_are_no_plain_data_are_not_kept() -> None:
    class Batch:
        pass

    with pytest.raises(NotPlainError, match="Batch"):
        plain({"batch": [Batch()]}, torch.clone)
    with pytest.raises(NotPlainError, match="dimensions"):
        in_place_of(torch.zeros(3), torch.zeros(3, 1))
    assert plain((1, [torch.ones(1)], {"a": None}), torch.clone)[2] == {"a": None}
