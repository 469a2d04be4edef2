"""The guard and the scratch folder: what a rerun writes outside is undone, and no original is ever touched."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from collector_runs import Run, plain

from weaklink.collector import scratch as scratch_module
from weaklink.collector.errors import StorageError
from weaklink.collector.guard import undo
from weaklink.collector.scratch import Scratch

# A guard stays for the life of its process: every case runs in a forked child.
GUARDED = """
import os, shutil, sys
from pathlib import Path
from weaklink.collector.guard import Guard
from weaklink.collector.job import GuardSettings

base = Path.cwd()
out, scratch = base / "out", base / "scratch"
guard = Guard(GuardSettings(scratch=scratch, journal=scratch / "journal.jsonl", keep=scratch / "keep"))
guard.install()
import torch
guard.watch_torch_save()
os.chdir(scratch / "run")
"""


def tree(folder: Path) -> dict[str, bytes | str]:
    """Content of every file, target of every link, by relative path."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else "folder"
        for path in sorted(folder.rglob("*"))
    }


Guarded = Callable[[str], Run]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    (folder / "old").mkdir(parents=True)
    (folder / "a.txt").write_text("first")
    (folder / "b.txt").write_text("second")
    (folder / "old" / "c.txt").write_text("third")
    (tmp_path / "scratch" / "run").mkdir(parents=True)
    return folder


@pytest.fixture
def guarded(tmp_path: Path, out: Path) -> Guarded:
    return lambda statements: plain(GUARDED + statements, tmp_path)


@pytest.mark.parametrize(
    ("statements", "written"),
    [
        ("(out / 'a.txt').write_text('changed')", ["a.txt"]),
        ("open(out / 'a.txt', 'r+').write('x')", ["a.txt"]),
        ("open(out / 'a.txt', 'a').write('more')", ["a.txt"]),
        ("open(bytes(out / 'a.txt'), 'wb').write(b'x')", ["a.txt"]),
        ("os.write(os.open(out / 'a.txt', os.O_WRONLY | os.O_TRUNC), b'x')", ["a.txt"]),
        ("os.truncate(out / 'a.txt', 1)", ["a.txt"]),
        ("os.remove(out / 'a.txt')", ["a.txt"]),
        ("(out / 'a.txt').unlink(); (out / 'a.txt').write_text('again')", ["a.txt"]),
        ("(out / 'new.txt').write_text('x')", ["new.txt"]),
        ("open(out / 'new.txt', 'x').write('x')", ["new.txt"]),
        ("os.rename(out / 'a.txt', out / 'moved.txt')", ["a.txt", "moved.txt"]),
        ("os.replace(out / 'a.txt', out / 'b.txt')", ["a.txt", "b.txt"]),
        ("shutil.move(out / 'a.txt', out / 'moved.txt')", ["a.txt", "moved.txt"]),
        ("shutil.copy(out / 'a.txt', out / 'copy.txt')", ["copy.txt"]),
        ("(out / 'x' / 'y').mkdir(parents=True); (out / 'x' / 'y' / 'z').write_text('1')", ["x", "x/y"]),
        ("(out / 'x').mkdir(); shutil.rmtree(out / 'x')", ["x"]),
        ("os.symlink(out / 'a.txt', out / 'link')", ["link"]),
        ("os.link(out / 'a.txt', out / 'link')", ["link"]),
        ("torch.save({'a': 1}, out / 'model.pt')", ["model.pt"]),
        ("torch.save({'a': 1}, str(out / 'a.txt'))", ["a.txt"]),
        ("torch.save(obj={'a': 1}, f=out / 'a.txt')", ["a.txt"]),
        ("torch.save({'a': 1}, open(out / 'a.txt', 'wb'))", ["a.txt"]),
        ("os.chdir(out); open('a.txt', 'w').write('relative')", ["a.txt"]),
        ("[(out / 'a.txt').write_text(str(i)) for i in range(5)]", ["a.txt"]),
        ("os.fork() or ((out / 'a.txt').write_text('child'), os._exit(0)); os.wait()", ["a.txt"]),
        ("(out / 'a.txt').read_text(); os.listdir(out); (out / 'a.txt').stat()", []),
        ("open('/dev/null', 'w').write('x')", []),
    ],
)
def test_what_was_written_outside_is_undone(
    guarded: Guarded, out: Path, tmp_path: Path, statements: str, written: list[str]
) -> None:
    before = tree(out)
    run = guarded(statements)
    assert run.code == 0, run.err
    journal = tmp_path / "scratch" / "journal.jsonl"
    undone = set(undo(journal))
    assert {str(out / name) for name in written} <= undone
    assert written or not undone
    assert tree(out) == before
    assert undo(journal) == []


def test_the_writes_really_happened_before_they_were_undone(guarded: Guarded, out: Path, tmp_path: Path) -> None:
    assert guarded("(out / 'a.txt').write_text('changed'); torch.save(1, out / 'model.pt')").code == 0
    assert (out / "a.txt").read_text() == "changed"
    assert (out / "model.pt").exists()


def test_a_run_that_is_killed_is_undone_too(guarded: Guarded, out: Path, tmp_path: Path) -> None:
    before = tree(out)
    run = guarded("(out / 'a.txt').write_text('changed')\nos.kill(os.getpid(), 9)")
    assert run.code == -9
    undo(tmp_path / "scratch" / "journal.jsonl")
    assert tree(out) == before


def test_a_journal_cut_off_in_its_last_line_is_read_up_to_there(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("x")
    journal = tmp_path / "journal.jsonl"
    journal.write_text(f'{{"delete": "{tmp_path / "new"}"}}\n{{"dele')
    assert undo(journal) == [str(tmp_path / "new")]
    assert not (tmp_path / "new").exists()


def test_the_oldest_note_wins_where_one_file_was_noted_twice(tmp_path: Path) -> None:
    """A forked child keeps its own list of what was noted: the parent may copy what the child had already changed."""
    for name, content in (("file", "last"), ("original", "first"), ("changed", "second")):
        (tmp_path / name).write_text(content)
    journal = tmp_path / "journal.jsonl"
    notes = [{"restore": str(tmp_path / "file"), "copy": str(tmp_path / name)} for name in ("original", "changed")]
    journal.write_text("".join(json.dumps(note) + "\n" for note in notes))
    undo(journal)
    assert (tmp_path / "file").read_text() == "first"


def test_removing_a_folder_outside_is_refused(guarded: Guarded, out: Path) -> None:
    before = tree(out)
    run = guarded("shutil.rmtree(out / 'old')")
    assert run.code == 1
    assert "PermissionError: weaklink reruns may not delete a folder outside their scratch copy" in run.err
    assert tree(out) == before


def test_a_folder_of_the_scratch_copy_may_be_removed(guarded: Guarded, tmp_path: Path) -> None:
    assert guarded("os.makedirs('mine/deep'); shutil.rmtree('mine')").code == 0
    assert not (tmp_path / "scratch" / "run" / "mine").exists()


@pytest.mark.parametrize(
    ("statement", "content"),
    [
        ("open('big.bin', 'w').write('x')", b"x"),
        ("open('big.bin', 'a').write('x')", b"secondx"),
        ("open('big.bin', 'r+').write('x')", b"xecond"),
        ("os.truncate('big.bin', 3)", b"sec"),
        ("open(Path('sub/../big.bin'), 'w').write('x')", b"x"),
        ("open(os.path.abspath('big.bin'), 'w').write('x')", b"x"),
    ],
)
def test_a_link_is_broken_before_the_first_write(
    guarded: Guarded, out: Path, tmp_path: Path, statement: str, content: bytes
) -> None:
    link = tmp_path / "scratch" / "run" / "big.bin"
    link.symlink_to(out / "b.txt")
    (tmp_path / "scratch" / "run" / "sub").mkdir()
    run = guarded(statement)
    assert run.code == 0, run.err
    assert (out / "b.txt").read_text() == "second"
    assert not link.is_symlink()
    assert link.read_bytes() == content
    assert undo(tmp_path / "scratch" / "journal.jsonl") == []


def test_removing_a_link_of_the_copy_leaves_the_original(guarded: Guarded, out: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch" / "run" / "big.bin").symlink_to(out / "b.txt")
    assert guarded("os.remove('big.bin')").code == 0
    assert (out / "b.txt").read_text() == "second"


def test_writing_into_a_linked_folder_is_journaled(guarded: Guarded, out: Path, tmp_path: Path) -> None:
    before = tree(out)
    (tmp_path / "scratch" / "run" / "data").symlink_to(out)
    assert guarded("open('data/a.txt', 'w').write('x'); open('data/new.txt', 'w').write('x')").code == 0
    undo(tmp_path / "scratch" / "journal.jsonl")
    assert tree(out) == before


# -- the scratch folder ------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)")
    (folder / "data" / "rows.csv").write_text("1,2")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return folder


def test_small_files_are_copied_with_their_times(project: Path) -> None:
    os.utime(project / "train.py", ns=(10**18, 10**18))
    with Scratch(project) as scratch:
        scratch.lay()
        assert scratch.folder.name == "project"
        assert tree(scratch.folder) == tree(project)
        assert (scratch.folder / "train.py").stat().st_mtime_ns == 10**18
        (scratch.folder / "train.py").write_text("changed")
    assert (project / "train.py").read_text() == "print(1)"


@pytest.mark.parametrize(
    ("limit", "value"), [("COPY_FILE_BYTES", 2), ("COPY_TOTAL_BYTES", 9)], ids=["one file", "all files"]
)
def test_large_files_are_linked(project: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(scratch_module, limit, value)
    with Scratch(project) as scratch:
        scratch.lay()
        assert (scratch.folder / "train.py").is_symlink()
        assert (scratch.folder / "train.py").read_text() == "print(1)"


def test_a_folder_of_many_entries_is_linked_whole(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_module, "FOLDER_ENTRIES", 1)
    (project / "data" / "more.csv").write_text("3")
    with Scratch(project) as scratch:
        scratch.lay()
        assert (scratch.folder / "data").is_symlink()
        assert not (scratch.folder / "train.py").is_symlink()


@pytest.mark.parametrize("name", [".git", "__pycache__", "incidents", ".pytest_cache", ".ipynb_checkpoints"])
def test_noise_is_left_out(project: Path, name: str) -> None:
    (project / name).mkdir()
    (project / name / "x").write_text("x")
    with Scratch(project) as scratch:
        scratch.lay()
        assert not (scratch.folder / name).exists()


@pytest.mark.parametrize("name", [".venv", "node_modules"])
def test_installed_things_are_linked(project: Path, name: str) -> None:
    (project / name).mkdir()
    with Scratch(project) as scratch:
        scratch.lay()
        assert (scratch.folder / name).is_symlink()


def test_links_of_the_project_point_where_they_pointed(project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.bin").write_text("big")
    (project / "relative").symlink_to(Path("data") / "rows.csv")
    (project / "absolute").symlink_to(tmp_path / "elsewhere.bin")
    (project / "dangling").symlink_to(tmp_path / "nowhere")
    with Scratch(project) as scratch:
        scratch.lay()
        assert (scratch.folder / "relative").read_text() == "1,2"
        assert (scratch.folder / "absolute").read_text() == "big"
        assert (scratch.folder / "dangling").is_symlink()


def test_pipes_and_other_special_files_are_left_out(project: Path) -> None:
    os.mkfifo(project / "pipe")
    with Scratch(project) as scratch:
        scratch.lay()
        assert not (scratch.folder / "pipe").exists()


def test_a_temporary_folder_inside_the_project_is_not_copied_into_itself(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(project / "tmp"))
    with Scratch(project) as scratch:
        scratch.lay()
        assert list((scratch.folder / "tmp").iterdir()) == []


def test_every_run_gets_the_same_path_and_the_original_content(project: Path) -> None:
    with Scratch(project) as scratch:
        scratch.lay()
        first = scratch.folder
        (first / "train.py").write_text("changed")
        (first / "resume.pt").write_text("x")
        (scratch.temporary / "left.tmp").write_text("x")
        scratch.lay()
        assert scratch.folder == first
        assert tree(first) == tree(project)
        assert list(scratch.temporary.iterdir()) == []


def test_settle_lists_what_a_run_wrote_inside_and_outside(project: Path, tmp_path: Path) -> None:
    with Scratch(project) as scratch:
        scratch.lay()
        (scratch.folder / "out").mkdir()
        (scratch.folder / "out" / "model.pt").write_text("x")
        (scratch.folder / "data" / "rows.csv").write_text("changed")
        (scratch.folder / "__pycache__").mkdir()
        (scratch.folder / "__pycache__" / "x.pyc").write_text("x")
        outside = tmp_path / "outside.txt"
        outside.write_text("x")
        scratch.journal.write_text(f'{{"delete": "{outside}"}}\n')
        assert scratch.settle() == ["data/rows.csv", "out/model.pt", str(outside)]
        assert not outside.exists()
        scratch.lay()
        assert scratch.settle() == []


def test_closing_removes_everything_of_ours_and_nothing_else(project: Path) -> None:
    before = tree(project)
    with Scratch(project) as scratch:
        scratch.lay()
        base = scratch.base
        guard = scratch.guard
        assert guard.scratch == base
        assert guard.journal.parent == base
    assert not base.exists()
    assert tree(project) == before


def test_no_room_for_a_scratch_folder_is_a_storage_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(project / "nowhere"))
    with pytest.raises(StorageError, match="No scratch folder can be made"):
        Scratch(project)


def test_a_copy_that_does_not_fit_is_a_storage_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "rows.csv")

    with Scratch(project) as scratch:
        monkeypatch.setattr(shutil, "copy2", full)
        with pytest.raises(StorageError, match="cannot be copied: No space left on device") as raised:
            scratch.lay()
        assert raised.value.about == "rows.csv"
