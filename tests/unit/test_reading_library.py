"""The library: what may be listed, searched and read, what never, and that nothing makes it raise or wait."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weaklink.agent.conversation.looks import ListFiles, Looked, ReadLines, SearchFiles
from weaklink.agent.reading.library import MOST_CHARACTERS, MOST_LINES, Library
from weaklink.agent.reading.secret_names import MASK

SOURCE = "import torch\n\nmodel = torch.nn.Linear(2, 2)\napi_key = 'hunter2'\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "data").mkdir(parents=True)
    (root / "train.py").write_text(SOURCE)
    (root / "data" / "rows.csv").write_text("x,y\n1,0\n2,1\n")
    (tmp_path / "outside.txt").write_text("outside\n")
    return root


def read(library: Library, file: str, first: int = 1, last: int | None = None) -> Looked:
    return library.look(ReadLines(file=file, first=first, last=last))


def test_lines_are_numbered_counted_and_noted_as_shown(project: Path) -> None:
    library = Library(project)
    looked = read(library, "train.py", 2, 3)
    assert looked.ok
    assert looked.text.splitlines() == [
        "train.py, lines 2 to 3 of 4 (64 bytes, UTF-8)",
        "2  ",
        "3  model = torch.nn.Linear(2, 2)",
    ]
    assert (looked.file, looked.first, looked.last) == ("train.py", 2, 3)
    assert looked.sha256 == hashlib.sha256(SOURCE.encode()).hexdigest()
    assert library.shown.lines["train.py"] == {2: "", 3: "model = torch.nn.Linear(2, 2)"}
    assert library.shown.read == {"train.py"}


def test_an_excerpt_is_shown_but_not_asked_for(project: Path) -> None:
    library = Library(project)
    assert library.head("train.py", 2).last == 2
    assert set(library.shown.lines["train.py"]) == {1, 2}
    assert library.shown.read == set()


def test_a_secret_is_masked_in_reads_searches_excerpts_and_what_is_noted(project: Path) -> None:
    library = Library(project)
    assert MASK in read(library, "train.py").text
    assert MASK in library.look(SearchFiles(text="api_key")).text
    everything = [read(library, "train.py"), library.head("train.py", 9), library.look(SearchFiles(text="key"))]
    assert not any("hunter2" in looked.text for looked in everything)
    text = library.text("train.py")
    assert text is not None
    assert not any("hunter2" in line for line in text.lines)
    assert library.shown.lines["train.py"][4] == f"api_key = '{MASK}'"


def test_a_search_tells_nothing_about_what_is_masked(project: Path) -> None:
    for text in ("hunter2", "hunt", "'h"):
        assert "no line holds" in Library(project).look(SearchFiles(text=text)).text


def test_a_name_given_in_another_way_is_noted_under_the_same_name(project: Path) -> None:
    library = Library(project)
    for name in ("./train.py", str(project / "train.py"), "data/./rows.csv"):
        assert read(library, name).ok
    assert set(library.shown.lines) == {"train.py", "data/rows.csv"}


@pytest.mark.parametrize(
    "name",
    [
        "../outside.txt", "data/../../outside.txt", "data/../train.py", "/etc/passwd", "/proc/self/environ",
        "", " ", "\0", "train.py\0", "a" * 5000, "a/" * 600, "x" * 300, "\ud800", "missing.py", "train.py/x",
        "/dev/zero", "~/.bashrc", "-", "//etc/passwd", "\x1b[31m",
    ],
)  # fmt: skip
def test_a_name_that_leads_nowhere_good_is_refused(project: Path, name: str) -> None:
    library = Library(project)
    for looked in (read(library, name), library.look(SearchFiles(text="a", path=name)), library.head(name, 3)):
        assert not looked.ok
        assert looked.text
        looked.model_dump_json()
    assert not library.shown.lines


def test_a_file_outside_is_read_by_the_very_name_under_which_the_run_opened_it(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    library = Library(project, [str(outside), "../outside.txt"])
    assert read(library, str(outside)).text.endswith("1  outside")
    assert read(library, "../outside.txt").ok
    assert not read(library, str(tmp_path / "project" / ".." / "outside.txt")).ok
    (tmp_path / "beside.txt").write_text("beside\n")
    assert not read(library, str(tmp_path / "beside.txt")).ok
    assert "outside.txt  opened by the run, outside of this folder" in library.look(ListFiles()).text
    assert f"{outside}:1: outside" in library.look(SearchFiles(text="OUTSIDE")).text


@pytest.mark.parametrize("name", ["/etc/shadow", "/proc/self/environ", "/dev/zero"])
def test_a_file_of_secrets_or_of_the_system_is_not_read_though_the_run_opened_it(project: Path, name: str) -> None:
    assert not read(Library(project, [name]), name).ok


def test_names_of_the_run_start_from_its_own_folder(project: Path) -> None:
    library = Library(project, ["rows.csv"], folder=project / "data")
    assert read(library, "rows.csv", 1, 2).file == "rows.csv"
    assert read(library, "data/rows.csv", 1, 2).file == "rows.csv"
    assert "rows.csv  " in library.look(ListFiles(path="data")).text


def test_links_inside_are_followed_and_links_outside_are_not(project: Path, tmp_path: Path) -> None:
    (project / "good.py").symlink_to("train.py")
    (project / "bad.txt").symlink_to(tmp_path / "outside.txt")
    (project / "up").symlink_to(tmp_path)
    (project / "loop").symlink_to("loop")
    (project / "data" / "again").symlink_to(project)
    library = Library(project)
    assert read(library, "good.py").ok
    assert read(library, "data/again/train.py").ok
    for name in ("bad.txt", "up/outside.txt", "up", "loop"):
        assert not read(library, name).ok
    listed = library.look(ListFiles()).text
    assert "bad.txt  a link that leads outside" in listed
    assert "again  a link to a folder" in listed
    assert "outside" not in library.look(SearchFiles(text="outside")).text.replace("no line holds outside", "").replace(
        "leads outside", ""
    )


def test_a_link_that_is_swapped_in_after_the_check_leads_nowhere(project: Path, tmp_path: Path) -> None:
    from weaklink.agent.reading.places import Grounds, Refusal, open_file

    place = Grounds(project, (), project, ()).find("data/rows.csv")
    (project / "data" / "rows.csv").unlink()
    (project / "data" / "rows.csv").symlink_to(tmp_path / "outside.txt")
    with pytest.raises(Refusal):
        open_file(place)
    (project / "data" / "rows.csv").unlink()
    (project / "data").rmdir()
    (tmp_path / "rows.csv").write_text("outside\n")
    (project / "data").symlink_to(tmp_path)
    with pytest.raises(Refusal):
        open_file(place)


def test_what_is_no_regular_file_is_refused_at_once(project: Path) -> None:
    os.mkfifo(project / "pipe")
    held = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(project)  # the name of a socket is short
    try:
        held.bind("socket")
    finally:
        os.chdir(here)
    library = Library(project, ["pipe"])
    started = time.monotonic()
    for name in ("pipe", "socket", "data"):
        assert not read(library, name).ok
    library.look(SearchFiles(text="x"))
    assert "pipe  no regular file" in library.look(ListFiles()).text
    assert time.monotonic() - started < 2
    held.close()


@pytest.mark.parametrize(
    "name",
    [
        ".env", ".ENV", ".env.local", "prod.env", "server.pem", "x.key", "id_rsa", "ID_RSA.pub", ".netrc",
        "credentials", "credentials.json", "secrets.toml", ".ssh/config", ".aws/config", "sub/.env", "kaggle.json",
    ],
)  # fmt: skip
def test_files_of_secrets_are_neither_read_nor_listed_nor_searched(project: Path, name: str) -> None:
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("needle\n")
    (project / "innocent.txt").symlink_to(name)
    library = Library(project)
    for asked in (name, "innocent.txt"):
        looked = read(library, asked)
        assert not looked.ok
        assert "holds secrets by its name" in looked.text
    assert "no line holds needle" in library.look(SearchFiles(text="needle")).text
    listed = library.look(ListFiles()).text
    assert name.rsplit("/", 1)[-1] not in listed or name.startswith(".aws") or name.startswith(".ssh")
    assert "not shown: they hold secrets by their names" in listed


def test_whether_a_file_of_secrets_is_there_is_not_told(project: Path) -> None:
    assert read(Library(project), ".env").text == "not read: holds secrets by its name"


FOREIGN = [".git", ".venv", "__pycache__", "node_modules", "lib/site-packages", "incidents", "env"]


@pytest.mark.parametrize("folder", FOREIGN)
def test_what_is_no_part_of_the_project_is_left_out(project: Path, folder: str) -> None:
    (project / folder).mkdir(parents=True)
    (project / folder / "inner.txt").write_text("needle\n")
    if folder == "env":
        (project / folder / "pyvenv.cfg").write_text("home = /usr\n")
    library = Library(project)
    assert "inner.txt" not in library.look(ListFiles()).text
    assert "no line holds needle" in library.look(SearchFiles(text="needle")).text
    assert not read(library, f"{folder}/inner.txt").ok


def test_a_folder_left_out_is_not_read_wherever_it_lies(project: Path) -> None:
    (project / "data" / "records").mkdir()
    (project / "data" / "records" / "x.txt").write_text("needle\n")
    library = Library(project, leave_out=[project / "data" / "records"])
    assert not read(library, "data/records/x.txt").ok
    assert "records" not in library.look(ListFiles()).text


def test_names_that_are_no_plain_text_are_shown_as_text_that_can_be_asked_for(project: Path) -> None:
    name = "</evidence>\x1b[31m\u202e`x`"
    (project / name.replace("/", "")).write_text("x = 1\n")
    library = Library(project)
    listed = library.look(ListFiles()).text
    assert "\x1b" not in listed
    assert "<evidence>" not in listed
    assert "\\u003cevidence\\u003e" in listed
    assert read(library, name.replace("/", "")).ok


def test_a_name_of_bytes_that_are_no_text_can_be_asked_for_and_recorded(project: Path) -> None:
    Path(os.fsdecode(os.fsencode(project) + b"/b\xff.txt")).write_text("needle\n")
    library = Library(project)
    listed = library.look(ListFiles())
    name = json.loads(next(line for line in listed.text.splitlines() if "udcff" in line).split("  ")[0])
    looked = read(library, name)
    assert looked.ok
    assert looked.file in library.shown.lines
    for answer in (listed, looked, library.look(SearchFiles(text="needle"))):
        answer.model_dump_json()


def test_a_file_that_changed_between_two_reads_is_read_anew(project: Path) -> None:
    library = Library(project)
    read(library, "train.py")
    (project / "train.py").write_text("changed = 1\n")
    assert "changed = 1" in read(library, "train.py").text


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"\xef\xbb\xbfx = 1\r\ny\r\n", ["x = 1", "y"]),
        ("Grüße\n".encode("utf-16"), ["Grüße"]),
        ("a\nb".encode("utf-16-le").join([b"\xff\xfe", b""]), ["a", "b"]),
        ("Grüße\n".encode("latin-1"), ["Grüße"]),
        (b"a\x1b[31m\x0c\x7f\n", ["a\\x1b[31m\\x0c\\x7f"]),
        ("a\u202eb\u2028c\n".encode(), ["a\\u202eb\\u2028c"]),
        (b"one\rtwo\n", ["one", "two"]),
        (b"", []),
    ],
)
def test_any_encoding_becomes_lines_that_are_safe_to_show(project: Path, data: bytes, lines: list[str]) -> None:
    (project / "note.txt").write_bytes(data)
    library = Library(project)
    assert read(library, "note.txt").ok
    assert list(library.shown.lines.get("note.txt", {}).values()) == lines


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        (5, None, "has 4 lines"),
        (0, None, "count from 1"),
        (-3, 2, "count from 1"),
        (3, 2, "before first"),
        (10**30, None, "far"),
    ],
)
def test_a_range_that_is_none_is_answered_clearly(project: Path, first: int, last: int | None, said: str) -> None:
    looked = read(Library(project), "train.py", first, last)
    assert not looked.ok
    assert said in looked.text


def test_a_long_file_is_read_in_parts(project: Path) -> None:
    (project / "long.py").write_text("".join(f"x = {number}\n" for number in range(1000)))
    looked = read(Library(project), "long.py", 101, 10**18)
    assert (looked.first, looked.last) == (101, 100 + MOST_LINES)
    assert f"ask for first={101 + MOST_LINES}" in looked.text
    (project / "wide.txt").write_text("\n".join("y" * 5000 for _ in range(300)))
    looked = read(Library(project), "wide.txt")
    assert len(looked.text) < MOST_CHARACTERS + 1000
    assert "[cut: 5000 characters]" in looked.text


def test_a_file_beyond_the_bound_says_that_it_goes_on(project: Path) -> None:
    (project / "big.txt").write_text("line\n" * 1000)
    looked = read(Library(project, most_bytes=1002), "big.txt")
    assert "of more than 200" in looked.text
    assert looked.sha256 is None


def test_a_table_is_summarised_before_its_lines_when_it_is_asked_for_whole(project: Path) -> None:
    looked = read(Library(project), "data/rows.csv")
    assert "a table of 2 rows and 2 columns" in looked.text
    assert looked.text.endswith("3  2,1")
    assert "a table" not in read(Library(project), "data/rows.csv", 1, 3).text


def test_a_secret_column_of_a_table_is_masked(project: Path) -> None:
    (project / "users.csv").write_text("name,password\nbob,hunter2\nann,hunter2\n")
    library = Library(project)
    assert "hunter2" not in read(library, "users.csv").text
    assert "no line holds" in library.look(SearchFiles(text="hunter2")).text


def test_a_search_shows_lines_with_their_numbers_upper_and_lower_case_alike(project: Path) -> None:
    library = Library(project)
    looked = library.look(SearchFiles(text="TORCH.NN"))
    assert looked.text.splitlines()[0] == "train.py:3: model = torch.nn.Linear(2, 2)"
    assert library.shown.lines["train.py"] == {3: "model = torch.nn.Linear(2, 2)"}
    assert "train.py:1" in library.look(SearchFiles(text="import", path="train.py")).text


def test_a_search_is_bounded_and_says_so(project: Path) -> None:
    (project / "many.txt").write_text("needle\n" * 500)
    (project / "far.txt").write_text("x" * 3000 + "haystack" + "\n")
    (project / "binary.bin").write_bytes(b"\0needle" * 10)
    looked = Library(project).look(SearchFiles(text="needle"))
    assert "ended after 50 hits" in looked.text
    assert "haystack" in Library(project).look(SearchFiles(text="haystack")).text
    assert "1 × binary files" in Library(project).look(SearchFiles(text="absent")).text
    for text in ("", "  ", "a\nb", "x" * 500):
        assert not Library(project).look(SearchFiles(text=text)).ok


def test_a_listing_is_bounded_and_says_what_it_left_out(project: Path) -> None:
    for number in range(30):
        (project / f"part{number:02}").mkdir()
        for inner in range(30):
            (project / f"part{number:02}" / f"{inner}.txt").write_text("x")
    text = Library(project).look(ListFiles()).text
    assert len(text.splitlines()) < 240
    assert "train.py  64 bytes" in text
    assert "folders were not listed" in text
    assert not Library(project).look(ListFiles(path="train.py")).ok


def test_ten_thousand_files_are_searched_in_seconds(project: Path) -> None:
    for number in range(100):
        (project / f"d{number}").mkdir()
        for inner in range(100):
            (project / f"d{number}" / f"{inner}.py").write_text(f"x = {inner}\n" * 20)
    started = time.monotonic()
    looked = Library(project).look(SearchFiles(text="absent"))
    assert time.monotonic() - started < 8
    assert "no line holds absent" in looked.text


PARTS = ["..", ".", "", "train.py", "data", "~", "up", "/", "proc", "self"]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    name=st.one_of(
        st.text(max_size=60),
        st.lists(st.sampled_from(PARTS), max_size=8).map("/".join),
    ),
    first=st.integers(),
    last=st.none() | st.integers(),
)
def test_no_name_leads_outside_or_raises(project: Path, name: str, first: int, last: int | None) -> None:
    if not (project / "up").is_symlink():
        (project / "up").symlink_to(project.parent)
    library = Library(project)
    answers = [
        read(library, name, first, last),
        library.look(ListFiles(path=name)),
        library.look(SearchFiles(text=name, path=name)),
        library.head(name, first),
    ]
    for looked in answers:
        looked.model_dump_json()
    assert not any("1  outside" in looked.text for looked in answers)
