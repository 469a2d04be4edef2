"""The cases: how each one is laid out in a folder, how it is run, and which places are at fault."""

from __future__ import annotations

import difflib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

KINDS = ("scripts", "inputs", "projects")
Variant = Literal["broken", "fixed"]
# A file and a line of it; None: the file as a whole.
Place = tuple[str, int | None]


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        expected: What the case's author says of it.
        lay: Writes one variant into an empty folder.
        arguments: What follows `python`.
        places: What is at fault.
        has_fixed: Whether there is a repaired variant.
    """

    kind: str
    name: str
    expected: dict[str, Any]
    lay: Callable[[Variant, Path], None]
    arguments: list[str]
    places: frozenset[Place]
    has_fixed: bool

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong with it."""
        return bool(self.expected["first_boundary"] == "NONE")

    @property
    def boundaries(self) -> set[str]:
        """The boundaries that count as right."""
        return {self.expected["first_boundary"], *(self.expected.get("also_acceptable") or [])}


def read_cases(root: Path, kinds: tuple[str, ...] = KINDS) -> Iterator[Case]:
    """All cases of these kinds below `root`, in the order of their names."""
    readers = {"scripts": _scripts, "inputs": _inputs, "projects": _projects}
    for kind in kinds:
        yield from readers[kind](root)


def _scripts(root: Path) -> Iterator[Case]:
    for expected in sorted(root.glob("scripts/*/expected.json")):
        folder, says = expected.parent, json.loads(expected.read_text())

        def lay(variant: Variant, to: Path, folder: Path = folder) -> None:
            shutil.copy(folder / ("fixed.py" if variant == "fixed" else "train.py"), to / "train.py")

        has_fixed = (folder / "fixed.py").exists()
        lines = _changed(folder / "train.py", folder / "fixed.py") if has_fixed else set()
        places = frozenset(("train.py", line) for line in lines)
        yield Case("scripts", folder.name, says, lay, ["train.py"], places, has_fixed)


def _inputs(root: Path) -> Iterator[Case]:
    for expected in sorted(root.glob("inputs/*/expected.json")):
        folder, says = expected.parent, json.loads(expected.read_text())

        def lay(variant: Variant, to: Path, folder: Path = folder, says: dict[str, Any] = says) -> None:
            made = "healthy" if "healthy" in says["setup"] else variant
            ignored = shutil.ignore_patterns("expected.json", "__pycache__")
            shutil.copytree(folder, to, dirs_exist_ok=True, ignore=ignored)
            subprocess.run([sys.executable, "make_inputs.py", made], cwd=to, check=True, capture_output=True)
            shown = set(says["files_shown"])  # the maker of the inputs is none of the user's files
            for file in [f for f in to.rglob("*") if f.is_file() and str(f.relative_to(to)) not in shown]:
                file.unlink()

        named = (says.get("culprit") or {}).get("file") or []
        files = [named] if isinstance(named, str) else named
        healthy = says["first_boundary"] == "NONE"
        yield Case("inputs", folder.name, says, lay, ["train.py"], frozenset((f, None) for f in files), not healthy)


def _projects(root: Path) -> Iterator[Case]:
    for expected in sorted(root.glob("projects/*/faults/*.json")):
        project, says = expected.parents[1] / "project", json.loads(expected.read_text())
        patch = expected.with_suffix(".patch")

        def lay(variant: Variant, to: Path, project: Path = project, patch: Path = patch) -> None:
            shutil.copytree(project, to, dirs_exist_ok=True)
            if variant == "broken":
                subprocess.run(["patch", "-p1", "-s", "-i", str(patch.absolute())], cwd=to, check=True)

        culprit = says.get("culprit") or {}
        places = frozenset((culprit.get("file") or "", line) for line in culprit.get("lines") or [None])
        healthy = says["first_boundary"] == "NONE"
        name = f"{project.parent.name}/{expected.stem}"
        yield Case("projects", name, says, lay, shlex.split(says["command"])[1:], places, not healthy)


def _changed(broken: Path, fixed: Path) -> set[int]:
    """Lines of the broken file that the repair changes; where it only adds, the lines around."""
    before, after = broken.read_text().splitlines(), fixed.read_text().splitlines()
    lines: set[int] = set()
    for tag, start, end, _, _ in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            lines |= set(range(start + 1, end + 1)) or {start, start + 1}
    return lines


def environment() -> dict[str, str]:
    """One thread, one hash seed: the runs that are compared must not differ in either."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
