"""docs/coding-agents.md is true: its commands run word for word, with the files they name written in between."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, STALE_HEAD, Weaklink, environment
from handed_in import Frozen

GUIDE = (ROOT / "docs" / "coding-agents.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
WRITES_ANSWER = "weaklink answer "
WRITES_FIX = "weaklink recover "


def body(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def write_answer(folder: Path) -> None:
    """What the agent would write: the form is the prompt's, the content here the playbook's."""
    incident = Path(body(folder, "diagnosis.json")["incident"])
    answer = Frozen(folder, incident.name).answer()
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


def write_fix(folder: Path) -> None:
    text = (folder / "train.py").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if "optimizer = torch.optim.AdamW(" in line]
    fixed = text.replace(line + "\n", "").replace("    return model, optimizer", f"{line}\n    return model, optimizer")
    (folder / "fixed_train.py").write_text(fixed, encoding="utf-8")


def test_every_command_runs_word_for_word(tmp_path: Path) -> None:
    shutil.copy(STALE_HEAD, tmp_path / "train.py")
    path = f"{Path(sys.executable).parent}:{environment().get('PATH', '')}"
    lines = [line for block in BLOCKS for line in block.splitlines()]
    assert len(lines) == 8
    incident = "INCIDENT=unknown"
    for line in lines:
        if line.startswith(WRITES_ANSWER):
            write_answer(tmp_path)
        if line.startswith(WRITES_FIX):
            write_fix(tmp_path)
        incident = line if line.startswith("INCIDENT=") else incident
        script = line if line == incident else f"{incident}\n{line}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment(PATH=path),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode in (0, 1), f"{line}\n{done.stdout}\n{done.stderr}"
    assert body(tmp_path, "diagnosis.json")["first_divergence"]["row"] == "OWNERSHIP/owned"
    assert any(row["id"] == "OWNERSHIP/owned" for row in body(tmp_path, "receipt.json")["chain"])
    assert "OWNERSHIP/owned" in body(tmp_path, "prompt.json")["text"]
    answered = body(tmp_path, "answered.json")["diagnosis"]
    assert (answered["advisor"], answered["model"]["asked"]["model"]) == ("paste", "my agent")
    verified = body(tmp_path, "verified.json")
    assert verified["status"]["cause"] == "supported"
    assert verified["predictions"]["claim"] == answered["predictions"]["claim"]
    assert "recovered (bounded)" in json.dumps(body(tmp_path, "recovered.json"))
    assert body(tmp_path, "check.json")["intact"] is True


def test_the_tools_are_those_that_the_server_has() -> None:
    pytest.importorskip("mcp")
    import anyio

    from weaklink.agent.mcp.server import build
    from weaklink.agent.mcp.shelf import Shelf

    tools = anyio.run(build(Shelf(ROOT / "incidents"), ROOT, 600.0).list_tools)
    table = GUIDE[GUIDE.index("| tool | what |") :]
    named = re.findall(
        r"`([a-z_]+)(?:\([^`]*\))?`",
        "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `")),
    )
    assert sorted(named) == sorted(tool.name for tool in tools)


def test_options_and_configuration_of_the_guide_exist(weaklink: Weaklink) -> None:
    commands = ("diagnose", "export", "prompt", "answer", "verify", "recover", "continue", "mcp")
    help_text = "".join(weaklink(command, "--help").out for command in commands)
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", GUIDE)):
        assert option in help_text, option
    (configuration,) = re.findall(r"^```json\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    server = json.loads(configuration)["mcpServers"]["weaklink"]
    assert (server["command"], server["args"][0]) == ("weaklink", "mcp")
