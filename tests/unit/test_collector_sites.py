"""Sites: the user's own lines, relative to the project, and nobody else's."""

from __future__ import annotations

import os
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from collector_runs import observe_code, row

import weaklink.collector.watching.watcher as own
from weaklink.collector.watching.sites import UserCode


def called_from(code: UserCode, file: Path, source: str, **names: Any) -> Any:
    """What `source` leaves in `found`, run as if it stood in `file`, with `code` in reach.

    In a thread of its own: the frames of this test would count as the user's too.
    """
    scope: dict[str, Any] = {"code": code, "found": None, **names}
    thread = threading.Thread(target=exec, args=(compile(source, str(file), "exec"), scope))
    thread.start()
    thread.join()
    return scope["found"]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("train.py", "train.py"),
        ("package/model.py", "package/model.py"),
        (".venv/lib/python3.11/site-packages/timm/model.py", None),
        ("env/lib/python3/dist-packages/timm/model.py", None),
        ("site-packages.py", "site-packages.py"),
    ],
)
def test_relative_to_the_project(tmp_path: Path, file: str, name: str | None) -> None:
    assert UserCode(tmp_path).relative(str(tmp_path / file)) == name


@pytest.mark.parametrize("file", ["<string>", "<frozen runpy>", os.__file__, own.__file__, pytest.__file__])
def test_libraries_and_weaklink_itself_are_not_the_user(tmp_path: Path, file: str) -> None:
    assert UserCode(tmp_path).relative(file) is None


def test_a_file_outside_the_project_keeps_its_whole_path(tmp_path: Path) -> None:
    other = tmp_path.parent / "shared_code" / "layers.py"
    assert UserCode(tmp_path).relative(str(other)) == str(other)


def test_a_sibling_folder_whose_name_begins_alike_is_outside(tmp_path: Path) -> None:
    project = tmp_path / "run"
    assert UserCode(project).relative(str(tmp_path / "run2" / "a.py")) == str(tmp_path / "run2" / "a.py")


def test_a_symlinked_root_is_known_by_both_paths(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    code = UserCode(link)
    assert code.relative(str(link / "train.py")) == "train.py"
    assert code.relative(str(real / "train.py")) == "train.py"


def test_globs_claim_library_files(tmp_path: Path) -> None:
    library = Path(sysconfig.get_paths()["purelib"]) / "mine" / "layers.py"
    assert UserCode(tmp_path).relative(str(library)) is None
    assert UserCode(tmp_path, ("*/mine/*.py",)).relative(str(library)) == str(library)


def test_innermost_user_line_is_named_through_library_frames(tmp_path: Path) -> None:
    code = UserCode(tmp_path)
    library = Path(sysconfig.get_paths()["purelib"]) / "lib.py"
    scope: dict[str, Any] = {"code": code}
    exec(compile("def deep():\n    return code.site('x')", str(library), "exec"), scope)
    found = called_from(code, tmp_path / "a.py", "\n\nfound = deep()", deep=scope["deep"])
    assert (found.file, found.line, found.what) == ("a.py", 3, "x")


def test_the_innermost_of_two_user_frames_wins(tmp_path: Path) -> None:
    code = UserCode(tmp_path)
    scope: dict[str, Any] = {"code": code}
    exec(compile("def deep():\n    return code.site('x')", str(tmp_path / "inner.py"), "exec"), scope)
    found = called_from(code, tmp_path / "a.py", "found = deep()", deep=scope["deep"])
    assert (found.file, found.line) == ("inner.py", 2)


def test_the_function_that_makes_something_leads_and_neither_its_constructor_nor_its_caller(tmp_path: Path) -> None:
    code = UserCode(tmp_path)
    source = """
class Model:
    def __init__(self):
        self.site = code.maker_site('x')
def build():
    return Model().site
def main():
    return build()
found = main()
"""
    found = called_from(code, tmp_path / "a.py", source)
    assert (found.file, found.line) == ("a.py", 6)


def test_no_user_frame_is_none(tmp_path: Path) -> None:
    code = UserCode(tmp_path)
    library = Path(sysconfig.get_paths()["purelib"]) / "lib.py"
    assert called_from(code, library, "def deep():\n    return code.site('x') or 'none'\nfound = deep()") == "none"


def test_a_traceback_points_at_the_innermost_user_line(tmp_path: Path) -> None:
    code = UserCode(tmp_path)
    source = "import json\ndef read():\n    return json.loads('{')\nread()"
    with pytest.raises(ValueError, match="Expecting") as raised:
        exec(compile(source, str(tmp_path / "a.py"), "exec"), {})
    found = code.site_of_traceback(raised.value.__traceback__, "raised")
    assert found is not None
    assert (found.file, found.line) == ("a.py", 3)
    assert code.site_of_traceback(None, "x") is None


MODULE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 2)

    def forward(self, x):
        return self.body(x)

def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.0)
"""

SCRIPT = """
import torch
from lib.parts import Net, optimizer_of

def main():
    model = Net()
    optimizer = optimizer_of(model)
    for _ in range(6):
        loss = model(torch.ones(3, 4)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

main()
"""


@pytest.fixture
def project(tmp_path: Path) -> Callable[[], Path]:
    def make() -> Path:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "parts.py").write_text(MODULE)
        return tmp_path

    return make


def test_sites_and_sources_of_a_project_of_two_files(project: Callable[[], Path]) -> None:
    evidence = observe_code(SCRIPT, project())
    where = row(evidence, "UPDATE/lr").where
    assert [(site.file, site.line) for site in where] == [("lib/parts.py", 14)]
    body = next(p for p in evidence.parameters if p.name == "body.weight")
    assert body.created is not None
    assert (body.created.file, body.created.line) == ("lib/parts.py", 8)
    assert body.created_by is not None
    assert (body.created_by.file, body.created_by.line) == ("train.py", 6)
    assert [source.path for source in evidence.sources] == ["lib/parts.py", "train.py"]


def test_the_hash_of_a_source_is_that_of_its_bytes(project: Callable[[], Path]) -> None:
    import hashlib

    folder = project()
    evidence = observe_code(SCRIPT, folder)
    for source in evidence.sources:
        assert source.sha256 == hashlib.sha256((folder / source.path).read_bytes()).hexdigest()


def test_what_only_says_that_it_is_a_module_is_none(tmp_path: Path) -> None:
    # As a library of cffi's does, which stands among the modules and has no names of its own.
    evidence = observe_code(
        """
        import sys, types
        import torch

        class Library:
            __slots__ = ()
            __class__ = types.ModuleType

        sys.modules["a_library.lib"] = Library()
        weight = torch.zeros(2, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (weight - 1).square().sum().backward()
            optimizer.step()
        """,
        tmp_path,
    )
    assert [source.path for source in evidence.sources] == ["train.py"]
