"""What the experiments do to a running script: exactly the one change they declare, and a report of it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from collector_runs import Run, observe, plain, row

from weaklink.collector.catalogue import CATALOGUE, ParameterGlob, checked_parameters
from weaklink.collector.errors import InterventionError
from weaklink.collector.interventions import _KINDS, build
from weaklink.collector.interventions.placebo import Placebo

COMMON = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
x = torch.randn(32, 4)
y = (x[:, 0] > 0).long()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.features(x)))

def fit(model, *optimizers, steps=8, scheduler=None):
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if scheduler:
            scheduler.step()
        print(repr(loss.item()))

model = Net()
"""


def treated(source: str, folder: Path, pattern: str = "*", **job: Any) -> Run:
    return observe(
        COMMON + textwrap.dedent(source),
        folder,
        role="treatment",
        intervention="own_missing_parameters",
        intervention_parameters={"parameters": pattern},
        **job,
    )


def test_the_treated_script_prints_what_the_repaired_script_prints(tmp_path: Path) -> None:
    broken = """
        optimizer = torch.optim.Adam(model.parameters(), 0.05)
        torch.manual_seed(7)
        model.head = nn.Linear(8, 2)
        fit(model, optimizer)
    """
    fixed = """
        torch.manual_seed(7)
        model.head = nn.Linear(8, 2)
        fit(model, torch.optim.Adam(model.parameters(), 0.05))
    """
    run = treated(broken, tmp_path)
    alone = plain(COMMON + textwrap.dedent(fixed), tmp_path)
    assert run.out == alone.out
    assert run.out != plain(COMMON + textwrap.dedent(broken), tmp_path).out
    report = run.seen.intervention
    assert report is not None
    assert (report.applied, report.changed) == (True, ["head.weight", "head.bias"])
    assert report.detail == "2 parameters appended to Adam before step 1"
    assert row(run.seen, "OWNERSHIP/owned").status == "pass"


def test_a_new_parameter_goes_to_the_group_of_the_one_it_replaced(tmp_path: Path) -> None:
    source = """
        optimizer = torch.optim.SGD([
            {"params": model.features.parameters(), "lr": 0.1},
            {"params": model.head.parameters(), "lr": 0.02},
        ])
        model.head = nn.Linear(8, 2)
        fit(model, optimizer)
        print([len(group["params"]) for group in optimizer.param_groups])
    """
    assert treated(source, tmp_path).out.splitlines()[-1] == "[2, 4]"


def test_a_scheduler_built_before_goes_on_as_it_was(tmp_path: Path) -> None:
    source = """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        model.head = nn.Linear(8, 2)
        fit(model, optimizer, scheduler=scheduler)
        print(scheduler.get_last_lr(), len(optimizer.param_groups))
    """
    run = treated(source, tmp_path)
    assert run.code == 0, run.err
    assert run.out.splitlines()[-1].endswith(" 1")


def test_with_two_optimizers_the_one_that_held_the_old_head_gets_the_new_one(tmp_path: Path) -> None:
    source = """
        a = torch.optim.SGD(model.features.parameters(), 0.1)
        b = torch.optim.SGD(model.head.parameters(), 0.1)
        model.head = nn.Linear(8, 2)
        fit(model, a, b)
        print(len(a.param_groups[0]["params"]), len(b.param_groups[0]["params"]))
    """
    assert treated(source, tmp_path).out.splitlines()[-1] == "2 4"


def test_only_what_matches_is_added(tmp_path: Path) -> None:
    source = """
        optimizer = torch.optim.SGD(model.features.parameters(), 0.1)
        fit(model, optimizer)
    """
    report = treated(source, tmp_path, "head.b*").seen.intervention
    assert report is not None
    assert report.changed == ["head.bias"]


def test_frozen_parameters_are_never_added(tmp_path: Path) -> None:
    source = """
        model.features.requires_grad_(False)
        optimizer = torch.optim.SGD([model.head.weight], 0.1)
        fit(model, optimizer)
    """
    report = treated(source, tmp_path).seen.intervention
    assert report is not None
    assert report.changed == ["head.bias"]


@pytest.mark.parametrize(
    ("source", "pattern"),
    [
        ("fit(model, torch.optim.SGD(model.parameters(), 0.1))", "*"),
        ("fit(model, torch.optim.SGD(model.features.parameters(), 0.1))", "nothing.*"),
        ("fit(model)", "*"),
    ],
    ids=["nothing missing", "nothing matches", "no step"],
)
def test_where_nothing_applies_nothing_changes_and_the_report_says_so(
    tmp_path: Path, source: str, pattern: str
) -> None:
    run = treated(source, tmp_path, pattern)
    assert run.out == plain(COMMON + source, tmp_path).out
    assert run.seen.intervention is not None
    assert (run.seen.intervention.applied, run.seen.intervention.changed) == (False, [])


def test_a_layer_that_appears_later_is_added_when_it_appears(tmp_path: Path) -> None:
    source = """
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        fit(model, optimizer, steps=3)
        model.head = nn.Linear(8, 2)
        fit(model, optimizer, steps=3)
    """
    report = treated(source, tmp_path).seen.intervention
    assert report is not None
    assert report.changed == ["head.weight", "head.bias"]
    assert report.detail.endswith("before step 4")


# -- placebo -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setup", "name"),
    [
        ("", "head.bias"),
        ("model.head.bias.requires_grad_(False)", "head.weight"),
        ("model = model.double(); x = x.double()", "head.bias"),
        ("model = model.bfloat16(); x = x.bfloat16()", "head.bias"),
        ("model.head.weight.data = model.head.weight.data.t().contiguous().t()", "head.bias"),
    ],
)
def test_placebo_moves_one_entry_by_one_unit_in_the_last_place(tmp_path: Path, setup: str, name: str) -> None:
    show = """
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        model(x)
        for n, p in model.named_parameters():
            for old, new in zip(before[n].flatten(), p.detach().flatten()):
                if old != new:
                    up = torch.nextafter(old, torch.full_like(old, float("inf")))
                    print(n, bool(new == up), bool(old.abs() == before[n].abs().max()))
    """
    run = observe(COMMON + setup + textwrap.dedent(show), tmp_path, role="placebo", intervention="placebo")
    assert run.out == f"{name} True True\n", run.err
    report = run.seen.intervention
    assert report is not None
    assert (report.name, report.applied, report.changed) == ("placebo", True, [name])


def test_placebo_changes_the_losses_by_less_than_a_millionth(tmp_path: Path) -> None:
    source = COMMON + "fit(model, torch.optim.SGD(model.parameters(), 0.1), steps=20)"
    nudged = observe(source, tmp_path, role="placebo", intervention="placebo").seen.losses.value
    control = observe(source, tmp_path).seen.losses.value
    again = observe(source, tmp_path).seen.losses.value
    assert control == again
    assert nudged != control
    assert max(abs(a - b) / b for a, b in zip(nudged, control, strict=True)) < 1e-6


def test_placebo_without_anything_trainable_is_not_applied(tmp_path: Path) -> None:
    source = COMMON + "model.requires_grad_(False)\nprint(model(x).sum().item())"
    run = observe(source, tmp_path, role="placebo", intervention="placebo")
    assert run.out == plain(source, tmp_path).out
    assert run.seen.intervention is not None
    assert not run.seen.intervention.applied


# -- the catalogue -----------------------------------------------------------------------------------------------------


def test_the_catalogue_and_the_interventions_are_the_same_list() -> None:
    required: dict[str, dict[str, Any]] = {
        "reattach": {"site": "train.py:1"},
        "scale_lr": {"factor": 2.0},
        "fresh_optimizer": {"lr": 0.1},
        "set_lr": {"lr": 0.1},
        "clip_grad_norm": {"max": 1.0},
        "seed": {"k": 1},
        "supervise_token": {"token": 0},
        "prior_by_class": {"order": [1, 0]},
        "grad_enabled": {"site": "train.py:1"},
        "stop_gradient": {"site": "train.py:1"},
        "defer_step_until_backward": {"site": "train.py:1"},
        "at_site": {"site": "train.py:1", "function": "sqrt", "change": "clamp"},
    }
    assert set(CATALOGUE) == set(_KINDS)
    for name, entry in CATALOGUE.items():
        assert entry.name == name
        assert build(name, required.get(name, {})).name == name
        assert entry.can_move


def test_the_placebo_is_ours_and_no_entry_of_the_catalogue() -> None:
    assert isinstance(build("placebo", {}), Placebo)
    assert "placebo" not in CATALOGUE


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("reboot", {}, "There is no experiment 'reboot'"),
        ("own_missing_parameters", {"pattern": "*"}, "pattern: Extra inputs are not permitted"),
        ("own_missing_parameters", {"parameters": 3}, "parameters: Input should be a valid string"),
        ("own_missing_parameters", {"parameters": ""}, "at least 1 character"),
        ("own_missing_parameters", {"parameters": "x" * 201}, "at most 200 characters"),
    ],
)
def test_a_wrong_experiment_is_refused_with_what_is_allowed(name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InterventionError, match=message) as raised:
        build(name, given)
    assert raised.value.hint


def test_defaults_of_the_pattern() -> None:
    given = checked_parameters("own_missing_parameters", {})
    assert isinstance(given, ParameterGlob)
    assert given.model_dump() == {"parameters": "*", "unregistered": False}
