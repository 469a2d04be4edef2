"""Real processes: the command as a user runs it, in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from weaklink.agent.record.incident import Incident

ROOT = Path(__file__).resolve().parents[2]
STALE_HEAD = ROOT / "replays" / "stale_head" / "train.py"
COMMAND = [str(Path(sys.executable).with_name("weaklink"))]
TIMEOUT = 240


def environment(**changes: str) -> dict[str, str]:
    """One thread a process: two would only spin against each other on a small machine."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", **changes}


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        lines = self.out.splitlines()
        assert len(lines) == 1, f"stdout must hold one object alone: {self.out[:500]!r}\n{self.err[-2000:]}"
        body = json.loads(lines[0])
        assert isinstance(body, dict)
        return body


Weaklink = Callable[..., Ran]


def call(*words: str, cwd: Path, **options: Any) -> Ran:
    done = subprocess.run(
        [*COMMAND, *words],
        cwd=cwd,
        env=options.pop("env", environment()),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        stdin=subprocess.DEVNULL,
        check=False,
        **options,
    )
    assert "Traceback (most recent call last)" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def weaklink(tmp_path: Path) -> Weaklink:
    """Run `weaklink` with these words in the test's folder."""

    def run(*words: str, **options: Any) -> Ran:
        return call(*words, cwd=options.pop("cwd", tmp_path), **options)

    return run


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Write `train.py` into the test's folder."""

    def write(text: str, name: str = "train.py") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@dataclass
class Diagnosed:
    """One diagnosis of the stale head, shared by all tests that only read it."""

    folder: Path
    ran: Ran
    incident: Incident

    @property
    def body(self) -> dict[str, Any]:
        return self.ran.json


@pytest.fixture(scope="session")
def stale_head(tmp_path_factory: pytest.TempPathFactory) -> Diagnosed:
    folder = tmp_path_factory.mktemp("stale_head")
    shutil.copy(STALE_HEAD, folder / "train.py")
    ran = call("diagnose", "train.py", "--json", "--horizon", "201", cwd=folder)
    return Diagnosed(folder, ran, Incident.read(folder / ran.json["incident"]))


TRAINING = """
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(64, 4)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range({steps}):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    {body}
"""


def training(body: str = "pass", steps: int = 30) -> str:
    """A small healthy training script; `body` runs at the end of every step."""
    return TRAINING.format(body=body, steps=steps)
