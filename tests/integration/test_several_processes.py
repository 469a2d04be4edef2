"""`weaklink observe` under torchrun: two real processes, gloo, and what their evidence says side by side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND, Weaklink, environment

Script = Callable[..., Path]

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

# `kind` says which one thing is done otherwise.
TRAIN = """
import os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

def main(kind):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
    replica = DistributedDataParallel(model)
    net = model if kind == "bypassed" else replica
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    sampler = DistributedSampler(data)
    torch.manual_seed(rank if kind == "healthy" else 0)
    loader = DataLoader(data, batch_size=4, shuffle=True) if kind == "same_data" else \\
        DataLoader(data, batch_size=4, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for number, (a, b) in enumerate(loader):
            if kind == "killed" and rank == 1 and number == 3:
                os.kill(os.getpid(), 9)
            if kind == "hanging" and rank == 1 and number == 3:
                time.sleep(600)
            optimizer.zero_grad()
            with replica.no_sync():  # two halves of a batch, reduced with the second one
                nn.functional.cross_entropy(net(a[:2]), b[:2]).backward()
            nn.functional.cross_entropy(net(a[2:]), b[2:]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        if rank == 0:
            print("epoch", epoch)
    dist.destroy_process_group()

main(sys.argv[1])
"""


def launched(folder: Path, kind: str, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TORCHRUN, *(words or ("--no-python", *COMMAND)), "observe", "train.py", "--", kind],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def rows_of(folder: Path, weaklink: Weaklink) -> dict[str, dict[str, Any]]:
    ran = weaklink("ledger", "evidence", "--json", cwd=folder)
    return {row["id"]: row for row in ran.json["rows"]}


def test_healthy_replicas_accuse_nobody(script: Script, tmp_path: Path, weaklink: Weaklink) -> None:
    script(TRAIN)
    ran = launched(tmp_path, "healthy", "-m", "weaklink.agent")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "epoch 0\nepoch 1\n"
    assert "weaklink diagnose" in ran.stderr
    assert sorted(path.name for path in (tmp_path / "evidence").iterdir()) == ["rank-0.json", "rank-1.json"]
    rows = rows_of(tmp_path, weaklink)
    assert [name for name, row in rows.items() if row["status"] in ("fail", "suspected")] == []
    assert [rows[f"{name}/replicas"]["status"] for name in ("TASK", "GRADIENT", "UPDATE")] == ["pass"] * 3
    assert rows["TASK/epoch_order"]["status"] == "pass"


@pytest.mark.parametrize(
    ("kind", "row", "family", "line"),
    [
        ("bypassed", "GRADIENT/replicas", "not_reduced_across_ranks", "net(a[:2])"),
        ("same_data", "TASK/replicas", "data_not_mixed", "shuffle=True"),
    ],
)
def test_one_fault_is_named_with_its_line(
    kind: str, row: str, family: str, line: str, script: Script, tmp_path: Path, weaklink: Weaklink
) -> None:
    script(TRAIN)
    assert launched(tmp_path, kind).returncode == 0
    body = weaklink("diagnose", "evidence", "--json").json
    assert body["first_divergence"] == {
        "row": row,
        "boundary": row.partition("/")[0],
        "status": "fail",
        "basis": "exact",
    }
    assert body["mechanism"]["id"] == family
    sites = [TRAIN.splitlines()[site["line"] - 1] for site in body["where"]]
    assert any(line in site for site in sites), sites


def test_a_rank_that_is_killed_leaves_the_others_evidence_whole(
    script: Script, tmp_path: Path, weaklink: Weaklink
) -> None:
    script(TRAIN)
    ran = launched(tmp_path, "killed")
    assert ran.returncode == 1
    assert "exitcode  : 137" in ran.stderr, "the launcher sees how the rank ended"
    survivor = json.loads((tmp_path / "evidence" / "rank-0.json").read_text())
    assert survivor["outcome"]["steps"] >= 3
    assert json.loads((tmp_path / "evidence" / "rank-1.json").read_text())["outcome"]["ended"] == "killed"
    rows = rows_of(tmp_path, weaklink)
    assert rows["GRADIENT/replicas"]["status"] == "pass"
    assert [name for name, row in rows.items() if row["status"] == "fail"] == []


def test_a_rank_that_hangs_does_not_outlive_its_launcher(script: Script, tmp_path: Path, weaklink: Weaklink) -> None:
    script(TRAIN)
    command = [*TORCHRUN, "--no-python", *COMMAND, "observe", "train.py", "--", "hanging"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL) as process:
        survivor = tmp_path / "evidence" / "rank-0.json"
        for _ in range(600):
            if survivor.exists() and (tmp_path / "evidence" / "rank-1.json").exists():
                break
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
        process.terminate()
        process.wait(60)
    assert json.loads(survivor.read_text())["outcome"]["steps"] >= 1
    rows = rows_of(tmp_path, weaklink)
    assert rows["UPDATE/replicas"]["status"] in ("pass", "not_measured")
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in listed


def test_evidence_of_a_run_that_is_killed_can_be_read(script: Script, tmp_path: Path, weaklink: Weaklink) -> None:
    script(
        "import os, torch\nfrom torch import nn\nmodel = nn.Linear(4, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for step in range(20):\n    model(torch.randn(8, 4)).pow(2).mean().backward()\n    optimizer.step()\n"
        "    optimizer.zero_grad()\n    if step == 10:\n        os.kill(os.getpid(), 9)\n"
    )
    ran = weaklink("observe", "train.py")
    assert ran.code == 128 + 9
    assert weaklink("ledger", "evidence.json", "--json").json["outcome"]["ended"] == "killed"


def test_a_disk_that_is_full_ends_the_evidence_and_not_the_training(script: Script, tmp_path: Path) -> None:
    """A limit on the size of files, under which the evidence cannot be written and the script's own small file can."""
    import resource

    script(
        "import torch\nfrom torch import nn\nmodel = nn.Linear(4, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for step in range(5):\n    model(torch.randn(8, 4)).pow(2).mean().backward()\n    optimizer.step()\n"
        "open('mine.txt', 'w').write('trained')\nprint('done')\nraise SystemExit(7)\n"
    )
    done = subprocess.run(
        [*COMMAND, "observe", "train.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)),
    )
    assert done.stdout == "done\n"
    assert done.returncode == 7
    assert (tmp_path / "mine.txt").read_text() == "trained"
    assert "evidence cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path).count("evidence.json.part") == 0
