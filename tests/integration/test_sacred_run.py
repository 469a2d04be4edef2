"""The user's run is sacred: what it prints is bitwise the same, and no file of theirs changes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from conftest import STALE_HEAD, Weaklink, environment, training

Script = Callable[..., Path]

NOISY = """
import random, numpy, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.manual_seed(3)
    x = torch.randn(96, 6)
    y = (x.sum(1) > 0).long()
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 2))
    attention = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, num_workers=2)
    for epoch in range(3):
        model.train()
        for a, b in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(a), b)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(repr(loss.item()))
        model.eval()
        attention.eval()
        with torch.no_grad():
            print(repr(model(x).sum().item()), repr(attention(x[:, None, :1].expand(-1, 3, 16)).sum().item()))
    print(torch.rand(1).item(), [p.double().sum().item() for p in model.parameters()])
"""


def plain(path: Path) -> str:
    done = subprocess.run(
        [sys.executable, path.name], cwd=path.parent, env=environment(), capture_output=True, text=True, check=True
    )
    return done.stdout


def test_observe_prints_bitwise_what_the_script_prints(tmp_path: Path, script: Script, weaklink: Weaklink) -> None:
    for text in (STALE_HEAD.read_text(), NOISY):
        path = script(text)
        assert weaklink("observe", "train.py").out == plain(path)


def test_the_observed_run_of_diagnose_prints_the_same_too(tmp_path: Path, script: Script, weaklink: Weaklink) -> None:
    path = script(NOISY)
    ran = weaklink("diagnose", "train.py", "--json")
    assert ran.code == 0, ran.out
    assert (tmp_path / ran.json["incident"] / "logs" / "observe.log").read_text() == plain(path)


def test_observe_passes_arguments_exit_code_and_working_folder_on(script: Script, weaklink: Weaklink) -> None:
    script(training(steps=3) + "\nimport sys, os\nprint(sys.argv, os.getcwd())\nsys.exit(5)\n")
    ran = weaklink("observe", "train.py", "--", "--epochs", "3", "-x")
    assert ran.code == 5
    assert ran.out.startswith("['train.py', '--epochs', '3', '-x'] ")


SIDE_EFFECTS = (
    training(steps=60)
    + """
import os, pathlib, shutil
here = pathlib.Path(__file__).parent
if pathlib.Path("last.pt").exists():
    print("RESUMED")
torch.save(model.state_dict(), "last.pt")
torch.save(model.state_dict(), OUTSIDE / "model.pt")
(OUTSIDE / "log.txt").open("a").write("another line\\n")
(OUTSIDE / "new.txt").write_text("new")
(OUTSIDE / "deeper").mkdir(exist_ok=True)
(OUTSIDE / "deeper" / "x.txt").write_text("new")
os.remove(OUTSIDE / "old.txt")
pathlib.Path("notes.txt").write_text("overwritten")
with open("big.bin", "r+b") as big:
    big.write(b"changed")
"""
)


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "incidents" not in path.parts
    }


def test_no_file_changes_inside_or_outside_the_working_folder(tmp_path: Path, weaklink: Weaklink) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    outside.mkdir()
    stale = STALE_HEAD.read_text().replace("if __name__", "def unused(): ...\nif __name__")
    tail = SIDE_EFFECTS.partition("import os, pathlib")[2].replace("model.state_dict()", "{}")
    header = f"import pathlib\nOUTSIDE = pathlib.Path({str(outside)!r})\n"
    (work / "train.py").write_text(stale + "\n" + header + "import torch\nimport os, pathlib" + tail)
    (work / "notes.txt").write_text("mine")
    (work / "big.bin").write_bytes(b"0" * (5 * 1024 * 1024))
    for name in ("model.pt", "log.txt", "old.txt"):
        (outside / name).write_text(f"the user's own {name}")
    before = tree(tmp_path)
    ran = weaklink("diagnose", "train.py", "--json", cwd=work)
    assert ran.json["mechanism"]["status"] == "supported", ran.err
    assert tree(tmp_path) == before
    assert not (outside / "deeper").exists()
    log = (work / ran.json["incident"] / "logs" / "observe.log").read_text()
    assert "RESUMED" not in log
    assert "Error" not in log


def test_reruns_start_from_the_same_files_each_time(script: Script, tmp_path: Path, weaklink: Weaklink) -> None:
    """A script that resumes from its own checkpoint: no rerun may find what another one wrote."""
    resuming = STALE_HEAD.read_text().replace(
        "    for step in range(301):",
        "    import pathlib\n    if pathlib.Path('last.pt').exists():\n        print('RESUMED')\n"
        "    torch.save(model.state_dict(), 'last.pt')\n    for step in range(301):",
    )
    script(resuming)
    ran = weaklink("diagnose", "train.py", "--json")
    assert ran.json["mechanism"]["status"] == "supported"
    for log in (tmp_path / ran.json["incident"] / "logs").iterdir():
        assert "RESUMED" not in log.read_text()


def test_trackers_are_offline_in_every_run(script: Script, tmp_path: Path, weaklink: Weaklink) -> None:
    script(training(steps=5) + "\nimport os\nprint(os.environ['WANDB_MODE'], os.environ['MPLBACKEND'])\n")
    ran = weaklink("diagnose", "train.py", "--json")
    assert (tmp_path / ran.json["incident"] / "logs" / "observe.log").read_text() == "offline Agg\n"


def test_files_nobody_closes_keep_what_was_written(script: Script, tmp_path: Path, weaklink: Weaklink) -> None:
    script(training("log.write(f'{step}\\n')", steps=20).replace("model =", "log = open('log.csv', 'w')\nmodel =", 1))
    assert weaklink("observe", "train.py").code == 0
    assert (tmp_path / "log.csv").read_text() == "".join(f"{step}\n" for step in range(20))


def test_shared_memory_and_databases_work_in_a_rerun(script: Script, tmp_path: Path, weaklink: Weaklink) -> None:
    (tmp_path / "log.db").write_bytes(b"")
    extra = (
        "\nimport multiprocessing, sqlite3\nmultiprocessing.Value('i', 0)\n"
        "with sqlite3.connect('log.db') as log: log.execute('create table t (x)')\n"
        "with sqlite3.connect(':memory:') as log: log.execute('create table t (x)')\nprint('done')\n"
    )
    script(training(steps=5) + extra)
    ran = weaklink("diagnose", "train.py", "--json")
    assert (tmp_path / ran.json["incident"] / "logs" / "observe.log").read_text() == "done\n"
    assert (tmp_path / "log.db").read_bytes() == b""


def test_large_originals_are_not_written_through_their_links(
    script: Script, tmp_path: Path, weaklink: Weaklink
) -> None:
    original = b"0" * (33 * 1024 * 1024)
    for name in ("traced.pt", "plain.pt", "native.bin"):
        (tmp_path / name).write_bytes(original)
    saving = "\ntorch.jit.save(torch.jit.script(nn.Linear(2, 2)), 'traced.pt')\ntorch.save({}, 'plain.pt')\n"
    script(training(steps=5) + saving)
    assert weaklink("diagnose", "train.py", "--json").code == 0
    assert (tmp_path / "traced.pt").read_bytes() == original
    assert (tmp_path / "plain.pt").read_bytes() == original
    # A native writer that no event tells of: found afterwards, and said.
    script(
        training(steps=5) + "\nimport subprocess\nsubprocess.run(['sh', '-c', 'echo x >> native.bin'], check=True)\n"
    )
    ran = weaklink("diagnose", "train.py", "--json")
    assert ran.code == 2
    assert "native.bin" in ran.json["about"]
