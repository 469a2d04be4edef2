"""The evidence file is the border: observed here, diagnosed there, without torch; and what each side may import."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COMMAND, ROOT, STALE_HEAD, Ran, Weaklink, call, environment

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
"""


def without(blocked: set[str], code: str, cwd: Path, *words: str) -> Ran:
    """Run code in a Python where these packages cannot be imported."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(blocked=blocked) + code, *words],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


MAIN = "from weaklink.agent.cli.main import main; main()"


def test_observe_here_diagnose_on_a_machine_without_torch(tmp_path: Path, weaklink: Weaklink) -> None:
    shutil.copy(STALE_HEAD, tmp_path / "train.py")
    observed = weaklink("observe", "train.py")
    assert observed.code == 0, observed.err
    laptop = tmp_path / "laptop"
    laptop.mkdir()
    shutil.move(tmp_path / "evidence.json", laptop / "evidence.json")
    ran = without({"torch", "openai", "numpy"}, MAIN, laptop, "diagnose", "evidence.json", "--json")
    assert ran.code == 1, ran.err
    body = ran.json
    assert body["first_divergence"]["row"] == "OWNERSHIP/owned"
    assert body["mechanism"] == {**body["mechanism"], "id": "optimizer_holds_old_objects", "status": "not_tested"}
    assert len(body["predictions"]["claim"]) == 64
    events = (laptop / body["incident"] / "events.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in events]
    assert kinds[-2:] == ["prediction.frozen", "incident.closed"]
    # Back where the script is, the same incident can be verified.
    back = weaklink("verify", str(laptop / body["incident"]), "--in", str(tmp_path), "--json")
    assert back.code == 1, back.err
    assert back.json["mechanism"]["status"] == "supported"
    assert back.json["predictions"]["claim"] == body["predictions"]["claim"]


def test_an_evidence_file_gives_the_chain_of_the_direct_way(tmp_path: Path, weaklink: Weaklink) -> None:
    shutil.copy(STALE_HEAD, tmp_path / "train.py")
    assert weaklink("observe", "train.py", "--out", "e.json").code == 0
    direct = weaklink("diagnose", "train.py", "--json", "--no-rerun").json
    indirect = weaklink("diagnose", "e.json", "--json").json
    for body in (direct, indirect):
        # Another incident, and another context: `observe` pins no seeds in the user's own run.
        del body["incident"], body["predictions"]["context"]
    assert direct == indirect


@pytest.mark.parametrize("words", [["--help"], ["diagnose", "--help"], ["check", "nowhere"], ["--version"]])
def test_light_commands_load_neither_torch_nor_openai(tmp_path: Path, words: list[str]) -> None:
    code = (
        "import sys; from weaklink.agent.cli.main import run; code = run(sys.argv[1:]);"
        "heavy = {'torch', 'openai', 'jinja2', 'numpy'} & set(sys.modules); print('HEAVY', sorted(heavy))"
    )
    ran = without(set(), code, tmp_path, *words)
    assert "HEAVY []" in ran.out, ran.err


def test_check_runs_without_torch_and_openai(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("{}\n")
    ran = without({"torch", "openai"}, MAIN, tmp_path, "check", "events.jsonl")
    assert ran.code == 1, ran.err
    assert "line 1" in ran.out


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [("agent", ("torch",)), ("collector", ("openai", "weaklink.agent", "jinja2")), ("prompts", ("torch", "weaklink"))],
)
def test_no_file_imports_across_the_border(folder: str, forbidden: tuple[str, ...]) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    for path in files:
        crossing = {m for m in imported(path) if any(m == f or m.startswith(f + ".") for f in forbidden)}
        assert not crossing, f"{path} imports {crossing}"


def test_the_whole_agent_imports_without_torch(tmp_path: Path) -> None:
    names = [
        "weaklink." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "agent").rglob("*.py"))
        if path.name != "__init__.py"
    ]
    code = f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\nprint(len(sys.modules))"
    ran = without({"torch", "openai"}, code, tmp_path)
    assert ran.code == 0, ran.err


def test_a_python_without_torch_is_named_with_what_to_do(tmp_path: Path, weaklink: Weaklink) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    shutil.copy(STALE_HEAD, tmp_path / "train.py")
    bare = str(tmp_path / "bare" / "bin" / "python")
    for command in ("diagnose", "observe"):
        ran = weaklink(command, "train.py", "--python", bare, "--json")
        assert ran.code == 2
        assert ran.json["error"] == "InterpreterError"
        assert ran.json["message"] == "torch is not installed in this Python."
        assert ran.json["about"] == bare
    assert not list((tmp_path / "incidents").iterdir())


def test_help_is_complete_and_names_the_defaults(tmp_path: Path) -> None:
    ran = call("diagnose", "--help", cwd=tmp_path)
    assert ran.code == 0
    for option in ("--python", "--deadline", "--horizon", "--no-rerun", "--incidents", "--advisor", "--json"):
        assert option in ran.out
    assert "600" in ran.out
    assert "50 at least" in ran.out.replace("\n", " ")


def test_the_command_of_the_package_is_installed(tmp_path: Path) -> None:
    installed = Path(sys.executable).with_name("weaklink")
    done = subprocess.run([installed, "--version"], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.startswith("weaklink 0.")
    assert Path(COMMAND[0]) == installed
