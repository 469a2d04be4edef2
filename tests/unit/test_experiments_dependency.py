"""Experiments on the graph: each prints what the repaired script prints, and nothing else where there is no cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from collector_runs import RANDOM_STATE, SEEDED, line_of, plain, row, run_job, write
from test_collector_experiments import QUIET, report, treated

from weaklink.collector.evidence import Subject
from weaklink.collector.job import Job

# A trunk that is meant to be trained, and what stands in the place of TRUNK.
CUT = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
x, y = torch.randn(32, 4), torch.randint(2, (32,))

class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 8)

    DECORATOR
    def forward(self, x):
        return torch.relu(self.layer(x))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.head = Trunk(), nn.Linear(8, 2)

    def forward(self, x):
        hidden = TRUNK
        return self.head(hidden)

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(6):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(repr(loss.item()))
with torch.no_grad():
    print(model(x).sum().item(), model(x).requires_grad)
"""


def cut(trunk: str = "self.trunk(x)", decorator: str = "") -> str:
    source = CUT.replace("hidden = TRUNK", trunk if "hidden" in trunk else f"hidden = {trunk}")
    return SEEDED + source.replace("    DECORATOR\n", f"    {decorator}\n" if decorator else "")


BLOCK = "with torch.no_grad():\n            hidden = self.trunk(x)"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (cut(BLOCK), "with torch.no_grad():\n            hidden"),
        (cut(BLOCK), "hidden = self.trunk(x)"),
        (cut(BLOCK.replace("no_grad", "inference_mode")), "with torch.inference_mode()"),
        (cut(BLOCK.replace("no_grad()", "set_grad_enabled(False)")), "with torch.set_grad_enabled(False)"),
        (cut(decorator="@torch.no_grad()"), "@torch.no_grad()"),
        (cut(decorator="@torch.inference_mode()"), "@torch.inference_mode()"),
    ],
    ids=["block", "module called in a block", "inference", "switch", "decorator", "inference decorator"],
)
def test_with_gradients_on_the_cut_system_is_the_whole_one(tmp_path: Path, source: str, line: str) -> None:
    at = f"train.py:{line_of(source, line.splitlines()[0])}"
    run = treated(source + RANDOM_STATE, tmp_path, "grad_enabled", site=at)
    assert run.out == plain(cut() + RANDOM_STATE, tmp_path).out
    assert run.out != plain(source + RANDOM_STATE, tmp_path).out
    assert (report(run).applied, report(run).changed) == (True, [at])
    assert row(run.seen, "DEPENDENCY/reached").status == "pass"


def test_another_line_keeps_its_gradients_off(tmp_path: Path) -> None:
    source = cut(BLOCK) + RANDOM_STATE
    run = treated(source, tmp_path, "grad_enabled", site=f"train.py:{line_of(source, 'return self.head')}")
    assert run.out == plain(source, tmp_path).out
    assert not report(run).applied


@pytest.mark.parametrize("how", ["use_reentrant=True", "use_reentrant=True, preserve_rng_state=False"])
def test_a_checkpoint_that_keeps_the_graph_trains_what_is_in_it(tmp_path: Path, how: str) -> None:
    source = cut(f"checkpoint(self.trunk, x, {how})") + RANDOM_STATE
    run = treated(source, tmp_path, "non_reentrant_checkpoint")
    assert run.out == plain(cut() + RANDOM_STATE, tmp_path).out
    assert run.out != plain(source, tmp_path).out
    assert report(run).applied


def test_the_line_of_a_re_entrant_checkpoint_is_where_the_path_ends(tmp_path: Path) -> None:
    source = cut("checkpoint(self.trunk, x, use_reentrant=True)")
    found = row(treated(source, tmp_path, "non_reentrant_checkpoint").seen, "DEPENDENCY/reached")
    assert found.values["ends"] == []
    found = row(treated(source, tmp_path, "reattach", site="train.py:1").seen, "DEPENDENCY/reached")
    assert found.values["ends"] == [f"checkpoint train.py:{line_of(source, 'checkpoint(self.trunk')}"]


# A term of the loss that was rebuilt from the numbers of its parts.
REBUILT = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
x, y = torch.randn(32, 4), torch.randint(2, (32,))
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(6):
    parts = [layer.weight.pow(2).mean() for layer in (model[0], model[2])]
    term = TERM
    loss = F.cross_entropy(model(x), y) + term
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(repr(loss.item()))
"""


@pytest.mark.parametrize(
    ("lost", "kept"),
    [
        ("torch.tensor(parts).mean()", "torch.stack(parts).mean()"),
        ("torch.as_tensor(parts).mean()", "torch.stack(parts).mean()"),
        ("torch.tensor(parts[0])", "parts[0]"),
        ("parts[0].data", "parts[0]"),
        ("torch.stack(parts).detach().mean()", "torch.stack(parts).mean()"),
    ],
)
def test_a_rebuilt_term_gets_its_history_back(tmp_path: Path, lost: str, kept: str) -> None:
    source = SEEDED + REBUILT.replace("TERM", lost)
    run = treated(source, tmp_path, "reattach", site=f"train.py:{line_of(source, 'term =')}")
    assert run.out == plain(SEEDED + REBUILT.replace("TERM", kept), tmp_path).out
    assert run.out != plain(source, tmp_path).out
    assert report(run).applied


@pytest.mark.parametrize("lost", ["torch.tensor([part.item() for part in parts]).mean()", "parts[0].item()"])
def test_plain_numbers_cannot_be_joined_to_anything(tmp_path: Path, lost: str) -> None:
    source = SEEDED + REBUILT.replace("TERM", lost)
    run = treated(source, tmp_path, "reattach", site=f"train.py:{line_of(source, 'term =')}")
    assert run.out == plain(source, tmp_path).out
    assert not report(run).applied


SIAMESE = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
x = torch.randn(64, 8)
encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
predictor = nn.Linear(4, 4)
optimizer = torch.optim.SGD([*encoder.parameters(), *predictor.parameters()], lr=0.1)
for step in range(40):
    one, other = encoder(x + 0.1 * torch.randn_like(x)), encoder(x + 0.1 * torch.randn_like(x))
    loss = LOSS
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(repr(loss.item()))
"""


@pytest.mark.parametrize(
    ("loss", "fixed"),
    [
        (
            "-F.cosine_similarity(predictor(one), other, dim=-1).mean()",
            "-F.cosine_similarity(predictor(one), other.detach(), dim=-1).mean()",
        ),
        (
            "-F.cosine_similarity(other, predictor(one), dim=-1).mean()",
            "-F.cosine_similarity(other.detach(), predictor(one), dim=-1).mean()",
        ),
        (
            "-(F.normalize(predictor(one), dim=1) * F.normalize(other, dim=1)).sum(1).mean()",
            "-(F.normalize(predictor(one), dim=1) * F.normalize(other, dim=1).detach()).sum(1).mean()",
        ),
        (
            "-nn.CosineSimilarity()(predictor(one), other).mean()",
            "-nn.CosineSimilarity()(predictor(one), other.detach()).mean()",
        ),
    ],
    ids=["target second", "target first", "by hand", "module"],
)
def test_the_side_without_the_predictor_becomes_a_fixed_target(tmp_path: Path, loss: str, fixed: str) -> None:
    source = SEEDED + SIAMESE.replace("LOSS", loss)
    run = treated(source, tmp_path, "stop_gradient", site=f"train.py:{line_of(source, 'loss =')}")
    assert run.out == plain(SEEDED + SIAMESE.replace("LOSS", fixed), tmp_path).out
    assert run.out != plain(source, tmp_path).out
    assert report(run).applied
    assert row(run.seen, "DEPENDENCY/stop_gradient").status == "pass"


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("grad_enabled", {"site": "train.py:3"}),
        ("non_reentrant_checkpoint", {}),
        ("stop_gradient", {"site": "train.py:3"}),
    ],
)
def test_where_nothing_is_to_change_every_bit_stays(tmp_path: Path, name: str, parameters: dict[str, Any]) -> None:
    source = SEEDED + QUIET + RANDOM_STATE
    run = treated(source, tmp_path, name, **parameters)
    assert run.out == plain(source, tmp_path).out
    assert (report(run).applied, report(run).changed) == (False, [])


FACTORY = """
import torch
from torch import nn
from weaklink.collector import TrainingSystem

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(2, 16), nn.Linear(16, 2)

    def forward(self, x):
        with torch.no_grad():
            hidden = self.body(x)
        return self.head(hidden)

def build():
    torch.manual_seed(0)
    x = torch.randn(64, 2)
    model = Model()
    return TrainingSystem(model, torch.optim.SGD(model.parameters(), lr=0.1), x, (x[:, 0] > 0).long())
"""


def test_a_factorys_system_is_joined_as_well(tmp_path: Path) -> None:
    write(FACTORY, tmp_path)
    subject = Subject(kind="factory", name="train.py:build")

    def ran(role: str, **more: Any) -> Any:
        job = Job(role=role, folder=tmp_path, evidence=tmp_path / "e.json", subject=subject, horizon=5, **more)
        return run_job(job, tmp_path)

    found = row(ran("control").seen, "DEPENDENCY/reached")
    assert found.values["ends"] == [f"no_grad train.py:{line_of(FACTORY, 'self.body(x)')}"]
    site = f"train.py:{line_of(FACTORY, 'self.body(x)')}"
    run = ran("treatment", intervention="grad_enabled", intervention_parameters={"site": site})
    assert report(run).applied, run.err
    assert row(run.seen, "DEPENDENCY/reached").status == "pass"
