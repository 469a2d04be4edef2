"""Failures of weaklink's own never reach the run, and accuse nobody; what it keeps stays small."""

from __future__ import annotations

from pathlib import Path

import pytest
from collector_runs import observe, plain, row, with_status

BODY = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(0)
x = torch.randn(32, 4)
y = (x.sum(1) > 0).long()
for step in range(STEPS):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(repr(loss.item()), torch.rand(1).item())
"""

# Breaks one thing of ours from inside the run, as a version of torch that we do not know might.
BREAK = """
import importlib
def broken(*args, **kwargs):
    raise RuntimeError("broken by the test")
owner = importlib.import_module("weaklink.collector.{module}")
*path, name = "{name}".split(".")
for part in path:
    owner = getattr(owner, part)
setattr(owner, name, broken)
"""

OURS = [
    ("watching.watcher", "read_gradients"),
    ("watching.watcher", "left_over"),
    ("watching.watcher", "walk"),
    ("watching.watcher", "summarize"),
    ("watching.watcher", "digest_all"),
    ("watching.watcher", "digest_parameters"),
    ("watching.watcher", "name_parameters"),
    ("watching.movement", "Movement.before"),
    ("watching.movement", "Movement.after"),
    ("watching.movement", "Movement.net"),
    ("watching.optimizers", "OptimizerBook.entry"),
    ("watching.optimizers", "OptimizerBook.read_groups"),
    ("watching.parameters", "RootBook.entry"),
    ("watching.parameters", "ParameterBook.registered"),
    ("watching.losses", "LossReader.note"),
    ("watching.sites", "UserCode.site"),
    ("watching.ranks", "checksums"),
    ("instruments", "Instruments.finish"),
    ("assembly", "build_rows"),
    ("run", "write_evidence"),
]


@pytest.mark.parametrize(("module", "name"), OURS, ids=[name for _, name in OURS])
def test_a_failure_of_ours_changes_neither_output_nor_exit_code(module: str, name: str, tmp_path: Path) -> None:
    body = BODY.replace("STEPS", "8")
    launched = {"RANK": "0", "WORLD_SIZE": "2"}  # so that nothing of ours is idle
    run = observe(BREAK.format(module=module, name=name) + body, tmp_path, environment=launched)
    assert run.code == 0, run.err
    assert run.out == plain(body, tmp_path).out
    told = run.err + " ".join(run.evidence.problems if run.evidence is not None else [])
    assert "broken by the test" in told
    if run.evidence is not None:  # none where it could not be written
        assert with_status(run.evidence, "fail") == {}
        assert with_status(run.evidence, "suspected") == {}


def test_a_broken_hook_is_named_and_what_it_would_accuse_is_withdrawn(tmp_path: Path) -> None:
    body = BODY.replace("STEPS", "8").replace("SGD(model.parameters()", "SGD([torch.zeros(1, requires_grad=True)]")
    assert "OWNERSHIP/owned" in with_status(observe(body, tmp_path).seen, "fail")
    seen = observe(BREAK.format(module="watching.movement", name="Movement.after") + body, tmp_path).seen
    assert any("broken by the test" in problem for problem in seen.problems)
    assert with_status(seen, "fail") == {}
    assert row(seen, "OWNERSHIP/owned").reason == "a hook of weaklink's own failed: step_ended raised RuntimeError"


def test_records_of_parameters_are_bounded_and_those_that_diverge_come_first(tmp_path: Path) -> None:
    source = """
import torch
from torch import nn
model = nn.ModuleList([nn.Linear(2, 2) for _ in range(200)])
late = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.model, self.late = model, late
    def forward(self, x):
        return self.late(sum(part(x) for part in self.model))
whole = Whole()
for step in range(3):
    whole(torch.randn(4, 2)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    whole = observe(source, tmp_path).seen
    small = observe(source, tmp_path, max_parameters=10).seen
    assert len(whole.parameters) == 402
    assert len(small.parameters) == 10
    assert {"late.weight", "late.bias"} <= {parameter.name for parameter in small.parameters}
    assert "records of 392 parameters were left out" in small.problems
    assert [(row.id, row.status) for row in small.rows] == [(row.id, row.status) for row in whole.rows]


HELD = """
import gc
from weaklink.collector.watching import watcher as ours

def held():
    movement = ours._installed[-1].movement
    tensors = [value for part in vars(movement).values() if isinstance(part, dict) for value in part.values()]
    return sum(isinstance(value, (torch.Tensor, tuple)) for value in tensors)
"""


def test_no_copy_of_the_parameters_is_held_outside_sampled_steps(tmp_path: Path) -> None:
    body = BODY.replace("STEPS", "9").replace(
        "    optimizer.step()\n", "    print(step + 1, held())\n    optimizer.step()\n"
    )
    out = observe("import torch\n" + HELD + body, tmp_path).out.splitlines()
    after = {int(line.split()[0]): int(line.split()[1]) for line in out[:-1]}
    assert after[2] > 0, "the test sees the copies while there are some"
    assert [after[step] for step in (6, 7, 8, 9)] == [0, 0, 0, 0]


def test_a_long_run_does_not_grow(tmp_path: Path) -> None:
    """Objects of ours after 3,000 steps and after 12,000: what is kept by the step would show as thousands."""
    count = "    if step in (3_000, 11_999):\n        gc.collect()\n        print(len(gc.get_objects()))\n"
    body = BODY.replace("STEPS", "12_000").replace("    optimizer.step()\n", "    optimizer.step()\n" + count)
    out = observe("import gc\n" + body, tmp_path).out.splitlines()
    early, late = int(out[0]), int(out[1])
    assert late - early < 2000


def test_a_run_terminated_from_outside_says_so(tmp_path: Path) -> None:
    """As a launcher ends its processes; a handler of the script's own is left alone."""
    kill = "\nimport os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nprint('still here')\n"
    run = observe(BODY.replace("STEPS", "3") + kill, tmp_path)
    assert run.code == 128 + 15
    assert run.seen.outcome.ended == "interrupted"
    own = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('mine'))\n"
    run = observe(own + BODY.replace("STEPS", "3") + kill, tmp_path)
    assert (run.code, run.out.splitlines()[-2:]) == (0, ["mine", "still here"])
