"""Stretches of files for the brief: which lines, how many, and what is noted as shown."""

from __future__ import annotations

import hashlib
from pathlib import Path

from evidence_samples import EMPTY, stale_head_evidence

from weaklink.agent.prompting.excerpts import CHANGED, excerpts
from weaklink.agent.reading.library import Library
from weaklink.collector.evidence import Evidence, Row, Site, SourceFile

SHORT = "".join(f"line_{number} = {number}\n" for number in range(1, 61))


def evidence_of(folder: Path, text: str, *sites: int, data: list[str] | None = None) -> Evidence:
    """The stale head at these lines of a `train.py` with that text."""
    (folder / "train.py").write_text(text)
    evidence = stale_head_evidence()
    first = evidence.first_divergence
    assert first is not None
    first.where = [Site(file="train.py", line=line, what="built") for line in sites]
    evidence.sources = [SourceFile(path="train.py", sha256=hashlib.sha256(text.encode()).hexdigest())]
    if data is not None:
        values = {"configuration": [], "data": data}
        evidence.rows.append(Row(id="TASK/files", status="evidence", text="read", values=values))
    return evidence


def long_script() -> str:
    functions = [
        f"def function_{number}():\n" + "".join(f"    value_{line} = {line}\n" for line in range(30))
        for number in range(20)
    ]
    return "\n".join(functions)


def test_a_short_script_is_shown_whole(tmp_path: Path) -> None:
    library = Library(tmp_path)
    (part,) = excerpts(evidence_of(tmp_path, SHORT, 41), library, 32_768)
    assert (part.file, part.first, len(part.lines)) == ("train.py", 1, 60)
    assert part.numbered[40] == (41, "line_41 = 41")
    assert part.note == "lines 1 to 60 of 60"
    assert library.shown.lines["train.py"][41] == "line_41 = 41"
    assert library.shown.read == set()


def test_of_a_long_one_the_functions_around_the_sites(tmp_path: Path) -> None:
    text = long_script()
    sites = [index for index, line in enumerate(text.splitlines(), 1) if "def function_7(" in line]
    library = Library(tmp_path)
    (part,) = excerpts(evidence_of(tmp_path, text, sites[0] + 15), library, 32_768)
    assert (part.first, len(part.lines)) == (sites[0], 31)
    assert set(library.shown.lines["train.py"]) == set(range(sites[0], sites[0] + 31))


def test_where_room_is_short_the_first_site_stays(tmp_path: Path) -> None:
    parts = excerpts(evidence_of(tmp_path, SHORT, 41, 5), Library(tmp_path), 4_096)
    numbers = {number for part in parts for number, _ in part.numbered}
    assert 41 in numbers
    assert {40, 42} <= numbers
    assert len(numbers) < 60
    assert excerpts(evidence_of(tmp_path, SHORT, 41), Library(tmp_path), 1_000) == []


def test_a_source_that_changed_is_marked(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, SHORT, 41)
    (tmp_path / "train.py").write_text(SHORT + "more = 1\n")
    (part,) = excerpts(evidence, Library(tmp_path), 32_768)
    assert CHANGED in part.note


def test_heads_of_what_the_run_opened(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,label\n" + "0.5,1\n" * 500)
    (tmp_path / "weights.bin").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "other.csv").write_text("never opened\n")
    evidence = evidence_of(tmp_path, SHORT, 41, data=["rows.csv", "weights.bin", "missing.csv"])
    library = Library(tmp_path)
    source, table, binary = excerpts(evidence, library, 32_768)
    assert source.file == "train.py"
    assert (table.file, table.first, table.lines[0]) == ("rows.csv", 1, "x,label")
    assert len(table.lines) < 50
    assert (binary.file, binary.first) == ("weights.bin", None)
    assert "other.csv" not in library.shown.lines


def test_nothing_outside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("a secret\n")
    folder = tmp_path / "project"
    folder.mkdir()
    evidence = evidence_of(folder, SHORT, 41, data=["../secret.txt", str(tmp_path / "secret.txt")])
    assert [part.file for part in excerpts(evidence, Library(folder), 32_768)] == ["train.py"]


def test_secrets_are_masked(tmp_path: Path) -> None:
    key = "sk-proj-" + "a1B2c3D4e5F6" * 4
    (part,) = excerpts(evidence_of(tmp_path, f'api_key = "{key}"\n' + SHORT, 2), Library(tmp_path), 32_768)
    assert key not in "".join(part.lines)
    assert part.numbered[1] == (2, "line_1 = 1")


def test_no_source_is_no_excerpt(tmp_path: Path) -> None:
    assert excerpts(EMPTY, Library(tmp_path), 32_768) == []
    missing = stale_head_evidence()
    assert excerpts(missing, Library(tmp_path), 32_768) == []


def test_text_that_is_no_python(tmp_path: Path) -> None:
    (part,) = excerpts(evidence_of(tmp_path, "def (\n" + "x\n" * 400, 200), Library(tmp_path), 32_768)
    assert part.first == 188
    assert len(part.lines) == 25
