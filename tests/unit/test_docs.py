"""The pages in docs/ are true: their examples print what stands below them, and they leave no row or experiment out.

WEAKLINK_UPDATE_GOLDEN=1 writes the printed blocks of docs/ledger.md anew; read them before they are committed.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import systems
import torch

from weaklink.agent.advisors.playbook import PAGES
from weaklink.collector import LearningChain, TrainingSystem, learning_ledger, probes, watch
from weaklink.collector.catalogue import CATALOGUE
from weaklink.collector.evidence import BOUNDARIES
from weaklink.collector.rows.raised import _BOUNDARY as RAISED_IN

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES_OF_TEXT = [*sorted(DOCS.glob("*.md")), ROOT / "CONTRIBUTING.md"]
LEDGER = DOCS / "ledger.md"
# A block of code and, where one follows directly, the block of what it prints.
EXAMPLE = re.compile(
    r"^```(?P<language>python|console)\n(?P<code>.*?)^```\n(?:\n```\n(?P<printed>.*?)^```\n)?", re.M | re.S
)
WALL_CLOCK = re.compile(r"in \d+(\.\d+)? s\b")


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


# -- ledger.md ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own in which `replays` can be imported and named by path, as from the root of the repository."""
    shutil.copytree(ROOT / "replays", tmp_path / "replays", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    before = torch.get_rng_state()
    yield tmp_path
    torch.set_rng_state(before)
    for name in [name for name in sys.modules if name.partition(".")[0] == "replays"]:
        del sys.modules[name]


def run_python(code: str, folder: Path, namespace: dict[str, Any]) -> str:
    printed = io.StringIO()
    # Each block is a file of its own there: the lines that rows name are those of the block.
    compiled = compile(code, str(folder / "example.py"), "exec")
    with contextlib.redirect_stdout(printed):
        exec(compiled, namespace)
    return printed.getvalue()


def run_console(code: str, folder: Path) -> str:
    commands = "\n".join(line[2:] for line in code.splitlines() if line.startswith("$ "))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        ["bash", "-c", commands],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode <= 1, done.stderr
    return done.stdout


def printed_by(example: re.Match[str], namespace: dict[str, Any], folder: Path) -> str:
    if example["language"] == "console":
        return run_console(example["code"], folder)
    return run_python(example["code"], folder, namespace)


def differences(shown: str, printed: str) -> list[str]:
    """Words that differ: numbers by more than another processor's rounding, all others at all. Not where lines end."""
    one, other = (WALL_CLOCK.sub("in N s", text).split() for text in (shown, printed))
    found = [f"{a!r} is {b!r}" for a, b in zip(one, other, strict=False) if not _same(a, b)]
    return found if len(one) == len(other) else [*found, f"{len(one)} words are {len(other)}"]


def _same(one: str, other: str) -> bool:
    if one == other:
        return True
    numbers = [re.fullmatch(r"[^\d+-]*([+-]?\d+\.\d+(?:e[+-]?\d+)?)[^\d]*", word) for word in (one, other)]
    if numbers[0] is None or numbers[1] is None:
        return False
    return math.isclose(float(numbers[0][1]), float(numbers[1][1]), rel_tol=1e-3, abs_tol=1e-6)


def test_the_examples_of_the_ledger_page_print_what_stands_below_them(clone: Path) -> None:
    page = LEDGER.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    wrong, written, end = [], [], 0
    for example in EXAMPLE.finditer(page):
        line = page.count("\n", 0, example.start("code"))
        printed = printed_by(example, namespace, clone)
        found = differences(example["printed"] or "", printed)
        wrong += [f"ledger.md:{line + 1}: {difference}" for difference in found[:5]]
        block = f"```{example['language']}\n{example['code']}```\n"
        written += [page[end : example.start()], block + (f"\n```\n{printed.rstrip()}\n```\n" if printed else "")]
        end = example.end()
    assert len(written) > 20
    if os.environ.get("WEAKLINK_UPDATE_GOLDEN") == "1":
        LEDGER.write_text("".join(written) + page[end:], encoding="utf-8")
    else:
        assert not wrong, "\n".join([*wrong, "intended? then rerun with WEAKLINK_UPDATE_GOLDEN=1"])


def test_the_comparison_notices_a_wrong_word_and_a_wrong_number() -> None:
    assert differences("loss 0.69400,\n  at 3.1e-09 in 0.2 s", "loss 0.69401, at 2.9e-09 in 1.4 s") == []
    assert differences("loss 0.694", "loss 0.684")
    assert differences("2/2 moved", "0/2 moved")
    assert differences("fails (exact)", "fails (declared)")
    assert differences("one word", "one word more")


def test_the_ledger_page_names_every_argument_and_every_instrument() -> None:
    page = LEDGER.read_text(encoding="utf-8")
    names = [*inspect.signature(learning_ledger).parameters, *inspect.signature(watch).parameters]
    names += [field.name for field in fields(TrainingSystem)]
    names += [name for name in vars(LearningChain) if not name.startswith("_")]
    names += [name for name in probes.__all__ if name.islower()]
    missing = [name for name in names if not re.search(rf"`{name}[`(]", page)]
    assert not missing


# -- experiments.md ----------------------------------------------------------------------------------------------------


def sections() -> dict[str, str]:
    parts = re.split(r"^### `(\w+)`\n", read("experiments.md"), flags=re.M)[1:]
    return {name: text.partition("\n## ")[0] for name, text in zip(parts[::2], parts[1::2], strict=True)}


def test_every_experiment_has_its_section_and_no_other_has_one() -> None:
    assert set(sections()) == set(CATALOGUE)


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_a_section_names_boundary_parameters_and_defaults(name: str) -> None:
    text, entry = sections()[name], CATALOGUE[name]
    assert f"Boundary: {entry.boundary}." in text
    for parameter, field in entry.parameters.model_fields.items():
        default = "" if field.is_required() else f"={field.default!r}"
        assert f"`{parameter}{default}`" in text
    bullet = text.partition("- Parameters:")[2].partition("\n- ")[0]
    assert set(re.findall(r"`(\w+)(?:=[^`]*)?`", bullet)) == set(entry.parameters.model_fields)


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_a_section_names_the_rows_whose_pages_ask_for_it(name: str) -> None:
    asking = {row for row, page in PAGES.items() if f'name="{name}"' in inspect.getsource(page)}
    asked = sections()[name].partition("Asked for by")[2].partition("\n- ")[0]
    assert set(re.findall(r"`([A-Z]+/\w+)`", asked)) == asking


# -- evidence.md -------------------------------------------------------------------------------------------------------


def rows_of_the_code() -> set[str]:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "collector" / "rows").glob("*.py")))
    literal = set(re.findall(rf'"((?:{"|".join(BOUNDARIES)})/\w+)"', text))
    return literal | {f"{boundary}/raised" for boundary in RAISED_IN.values()}


def rows_of_some_ledgers() -> set[str]:
    x, y = systems.batch()
    found: set[str] = set()
    for model, rows in ((systems.healthy(), 256), (systems.healthy(systems.Detached), 8), (systems.healthy(), 7)):
        chain = learning_ledger(model, systems.adamw(model), x[:rows], y[:8] if rows < 9 else y, capability_steps=2)
        found |= {row.id for row in chain.rows}
    return found


def test_the_evidence_page_has_a_line_for_every_row_and_for_no_other() -> None:
    lines = set(re.findall(r"^\| `([A-Z]+/\w+)` \|", read("evidence.md"), re.M))
    raised = {row for row in rows_of_the_code() if row.endswith("/raised")}
    assert lines == rows_of_the_code() - raised
    assert rows_of_some_ledgers() <= lines
    assert all(f"`{row}`" in read("evidence.md") for row in raised)


# -- every page --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES_OF_TEXT, ids=lambda page: page.name)
def test_every_link_and_every_path_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("https://")]
    broken = [link for link in links if not (page.parent / link).exists()]
    paths = re.findall(r"`((?:agent|benchmarks|collector|docs|prompts|tests)/[\w./]*)`", text)
    broken += [path for path in paths if not (ROOT / path).exists()]
    assert not broken


def test_the_architecture_page_names_every_package() -> None:
    page = read("architecture.md")
    found = {path.parent.relative_to(ROOT).as_posix() for side in ("agent", "collector", "prompts")
             for path in (ROOT / side).rglob("__init__.py")}  # fmt: skip
    assert not sorted(name for name in found if f"`{name}/`" not in page)
