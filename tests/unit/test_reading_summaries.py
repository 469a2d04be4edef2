"""Summaries of binary files: the numbers are those that numpy and torch find, and nothing is ever run."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
import sqlite3
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weaklink.agent.conversation.looks import ReadLines
from weaklink.agent.reading.library import Library
from weaklink.agent.reading.summaries import summary_of

KINDS = (
    "npy",
    "npz",
    "pt",
    "zip",
    "safetensors",
    "sqlite",
    "png",
    "jpg",
    "gz",
    "tar",
    "pkl",
    "csv",
    "json",
    "jsonl",
    "bin",
)


def summary(path: Path) -> str:
    with path.open("rb") as file:
        return summary_of(path.name, file, path.stat().st_size).text


def of_bytes(data: bytes, name: str) -> str:
    return summary_of(name, io.BytesIO(data), len(data)).text


def line_of(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(start))


class Evil:
    """Runs a command when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        import os

        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ">f4", "int64", "uint8", "int16"])
def test_columns_of_an_array_are_those_of_numpy(tmp_path: Path, dtype: str, order: str) -> None:
    array = (np.random.default_rng(0).normal(50, 10, (30_000, 3))).astype(dtype)
    array[:, 1] = 7
    np.save(tmp_path / "x.npy", np.asarray(array, order=order))
    text = summary(tmp_path / "x.npy")
    assert "[30000, 3]" in text
    assert "constant columns: 1" in text
    column = array[:, 2].astype("float64")
    told = line_of(text, "column 2")
    for name, value in (("min", column.min()), ("max", column.max()), ("mean", column.mean()), ("std", column.std())):
        assert float(told.split(f"{name} ")[1].split(",")[0]) == pytest.approx(value, rel=1e-5)


def test_rows_that_are_not_finite_are_counted_and_the_first_are_named(tmp_path: Path) -> None:
    array = np.zeros((100_000, 4), dtype="float32")
    array[70_001, 2], array[70_001, 3], array[99_999, 0] = np.nan, np.inf, -np.inf
    np.save(tmp_path / "x.npy", array)
    text = summary(tmp_path / "x.npy")
    assert "2 rows hold an entry that is not finite; first rows (from 0): 70001, 99999" in text
    assert "3 not finite" in line_of(text, "all entries")
    assert "1 not finite (first at 99999)" in line_of(text, "column 0")


def test_labels_are_counted(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.array([0] * 90 + [1] * 10))
    assert "how often each value: 0: 90, 1: 10" in summary(tmp_path / "y.npy")


def test_arrays_of_an_archive_are_told_one_by_one(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", inputs=np.ones((5, 2)), labels=np.arange(5))
    text = summary(tmp_path / "d.npz")
    assert "inputs:" in text
    assert "array int64 [5]" in text
    assert "constant 1" in text


def test_an_array_of_objects_is_refused_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    np.save(tmp_path / "o.npy", np.array([Evil(marker)], dtype=object), allow_pickle=True)
    assert "Python objects (a pickle; refused)" in summary(tmp_path / "o.npy")
    assert not marker.exists()


def test_a_header_that_promises_too_much_is_told(tmp_path: Path) -> None:
    for shape in ("(1000000000000, 1000000000000)", "(99999999999999999999,)", "(3, -4)", "(" + "9" * 900 + ",)"):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
        data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 40
        assert of_bytes(data, "x.npy")
    assert "damaged" in of_bytes(data.replace(b"9" * 900, b"77"), "x.npy")


def checkpoint() -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
    return {"epoch": 12, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "best": 0.75, "name": "run"}


@pytest.mark.parametrize("new", [True, False])
def test_a_checkpoint_is_told_with_norms_scalars_and_optimizer(tmp_path: Path, new: bool) -> None:
    saved = checkpoint()
    torch.save(saved, tmp_path / "c.pt", _use_new_zipfile_serialization=new)
    text = summary(tmp_path / "c.pt")
    for name, tensor in saved["model"].items():
        told = line_of(text, f"model.{name} ")
        assert str(list(tensor.shape)) in told
        if tensor.numel() > 1:
            assert float(told.split("norm ")[1].split(",")[0]) == pytest.approx(float(tensor.norm()), rel=1e-5)
    assert "epoch = 12" in text
    assert "best = 0.75" in text
    assert "name = 'run'" in text
    assert "lr = 0.003" in text
    assert "weight_decay = 0.1" in text
    assert "state of an optimizer: 6 parameters with a state" in text
    assert "value 3 to 3 over 6 parameters" in line_of(text, "step")
    assert "model.1.num_batches_tracked  int64 [] value 3" in text


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.uint8, torch.bool])
def test_every_type_has_its_norm(tmp_path: Path, dtype: torch.dtype) -> None:
    tensor = (torch.arange(1, 2001) % 100).reshape(40, 50).to(dtype)
    torch.save({"x": tensor, "t": tensor.t(), "part": tensor[3:7]}, tmp_path / "c.pt")
    text = summary(tmp_path / "c.pt")
    for name, value in (("x", tensor), ("t", tensor.t()), ("part", tensor[3:7])):
        told = line_of(text, f"{name} ")
        assert str(dtype).removeprefix("torch.") in told
        assert float(told.split("norm ")[1].split(",")[0]) == pytest.approx(float(value.double().norm()), rel=1e-5)


def test_a_view_with_gaps_is_not_given_a_norm_that_is_wrong(tmp_path: Path) -> None:
    tensor = torch.arange(12.0).reshape(3, 4)
    torch.save({"gaps": tensor[:, :2], "repeats": torch.ones(3, 1).expand(3, 5)}, tmp_path / "c.pt")
    text = summary(tmp_path / "c.pt")
    assert "a view with gaps or repeats, not read" in line_of(text, "gaps")
    assert "a view with gaps or repeats, not read" in line_of(text, "repeats")


def test_what_is_not_finite_in_a_checkpoint_is_told(tmp_path: Path) -> None:
    weight = torch.ones(10)
    weight[3] = torch.nan
    torch.save(OrderedDict(weight=torch.nn.Parameter(weight)), tmp_path / "c.pt")
    assert "1 not finite (first at 3)" in summary(tmp_path / "c.pt")


def test_a_whole_model_is_told_by_names_and_not_made(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 3), tmp_path / "m.pt")
    text = summary(tmp_path / "m.pt")
    assert "would be made by torch.nn.modules.linear.Linear" in text
    assert "_parameters.weight  float32 [3, 2] norm" in text


def test_nothing_that_a_pickle_asks_for_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    hostile = {"weights": [1, 2], "evil": Evil(marker)}
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(hostile))
    torch.save(hostile, tmp_path / "new.pt")
    torch.save(hostile, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("x.pkl", "new.pt", "old.pt"):
        text = summary(tmp_path / name)
        assert ".system" in text
        assert "1, 2" in text
    for protocol in range(6):
        (tmp_path / "p.pkl").write_bytes(pickle.dumps(hostile, protocol))
        assert ".system" in summary(tmp_path / "p.pkl")
    assert not marker.exists()


def test_cyclic_and_laughing_pickles_end_at_once() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    laugh: list[Any] = ["ha"] * 10
    for _ in range(60):
        laugh = [laugh] * 10
    deep = b"\x80\x04" + b"(" * 50_000 + b"t" * 49_999 + b"."
    opcodes = b"\x80\x04" + b"]" * 5_000_000
    started = time.monotonic()
    for data in (pickle.dumps(cycle), pickle.dumps(laugh), deep, opcodes, b"\x80\x04]" + b"2a" * 100_000 + b"."):
        assert len(of_bytes(data, "x.pkl")) < 20_000
    assert time.monotonic() - started < 40


def test_safetensors_are_told_with_norms_and_metadata(tmp_path: Path) -> None:
    weight = np.arange(6, dtype="<f4").reshape(2, 3)
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
            "lies": {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 24]},
            "cut": {"dtype": "I64", "shape": [100], "data_offsets": [8, 808]},
            "odd": {"dtype": "F32", "shape": [-2], "data_offsets": "x"},
        }
    ).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + weight.tobytes())
    text = summary(tmp_path / "m.safetensors")
    assert float(line_of(text, "w ").split("norm ")[1]) == pytest.approx(float(np.linalg.norm(weight)), rel=1e-5)
    assert "too large" in line_of(text, "lies")
    assert "damaged" in line_of(text, "cut")
    assert "damaged" in line_of(text, "odd")
    assert "metadata format = pt" in text


def test_a_table_is_told_column_by_column(tmp_path: Path) -> None:
    rows = ["age,label,city,note"] + [
        f"{number},{number % 2},Rome,{'' if number % 4 else 'x'}" for number in range(100)
    ]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    text = summary(tmp_path / "t.csv")
    assert "a table of 100 rows and 4 columns" in text
    assert "integers, min 0, max 99, mean 49.5, std 28.8661, 100 distinct" in line_of(text, "age")
    assert "'0': 50, '1': 50" in line_of(text, "label")
    assert "'Rome' in 100 %" in line_of(text, "city")
    assert "75 missing" in line_of(text, "note")


def test_a_secret_in_a_table_or_a_checkpoint_is_masked(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("user,password\n" + "bob,hunter2\n" * 5)
    torch.save({"api_key": "hunter2", "weights": torch.ones(2)}, tmp_path / "c.pt")
    assert "hunter2" not in summary(tmp_path / "t.csv") + summary(tmp_path / "c.pt")
    assert "[masked]" in summary(tmp_path / "c.pt")


def test_a_table_without_a_header_and_with_other_delimiters(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1;2\n3;4\n5\n")
    text = summary(tmp_path / "t.csv")
    assert "a table of 3 rows and 2 columns, no header" in text
    assert "1 rows have another number of cells" in text


def test_json_is_told_by_its_keys(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"text": "a", "label": 1}\n{"text": "b"}\nbroken\n')
    text = summary(tmp_path / "r.jsonl")
    assert "3 lines of JSON, 1 of them broken" in text
    assert "label in 1 of 2  number 1" in text
    rows = [{"label": number % 2, "text": f"row {number}", "password": "hunter2"} for number in range(40)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    text = summary(tmp_path / "rows.json")
    assert "a list of 40" in text
    assert line_of(text, "key label") == "key label  number 40; counts 0: 20, 1: 20"
    assert line_of(text, "key text") == "key text  text 40"
    assert "hunter2" not in text
    (tmp_path / "r.json").write_text('{"lr": 0.1, "layers": [1, 2]}')
    assert "layers  list of 2" in summary(tmp_path / "r.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    assert "not read" in summary(tmp_path / "deep.json")


def test_images_are_told_with_their_size() -> None:
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBB", 13, b"IHDR", 640, 480, 8, 2) + b"\0" * 20
    assert "640 × 480 pixels, 8 bits, RGB" in of_bytes(png, "x.png")
    assert "7 × 9" in of_bytes(b"GIF89a" + struct.pack("<HH", 7, 9), "x.gif")
    jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08" + struct.pack(">HH", 20, 30) + b"\x03" + b"\0" * 20
    assert "30 × 20 pixels, 3 channels" in of_bytes(jpeg, "x.jpg")


def test_a_database_is_told_by_its_tables_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    connection = sqlite3.connect(path)
    connection.execute('CREATE TABLE "rows ""x""" (a INTEGER, b TEXT)')
    connection.executemany('INSERT INTO "rows ""x""" VALUES (?, ?)', [(1, "x")] * 7)
    connection.execute("CREATE VIEW v AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x FROM c")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    text = summary(path)
    assert "7 rows; columns a INTEGER, b TEXT" in text
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["d.sqlite"]


def test_archives_are_listed_and_not_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("../../evil.txt", "x")
        archive.writestr("b.txt", "y" * 100)
    text = summary(tmp_path / "a.zip")
    assert "b.txt  100 bytes" in text
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "a.zip", "../escape.zip")
    assert "../escape.zip" in summary(tmp_path / "a.tar")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.tar", "a.zip"]


def test_what_is_compressed_is_told_from_its_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n3,4\n"))
    assert "a table of 2 rows and 2 columns" in summary(tmp_path / "t.csv.gz")
    array = io.BytesIO()
    np.save(array, np.ones((4, 2)))
    (tmp_path / "x.npy.gz").write_bytes(gzip.compress(array.getvalue()))
    assert "array float64 [4, 2]" in summary(tmp_path / "x.npy.gz")


def test_bombs_are_not_unpacked(tmp_path: Path) -> None:
    zeros = b"\0" * (1 << 20)
    with gzip.open(tmp_path / "bomb.gz", "wb") as file:
        for _ in range(300):
            file.write(zeros)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (39000000,), }"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    for name, inner, start in (("bomb.pt", "x/data.pkl", b""), ("bomb.npz", "x.npy", array)):
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(inner, start + zeros * 300)
    started = time.monotonic()
    assert "the first 16777216 bytes" in summary(tmp_path / "bomb.gz")
    assert "has more than 24 MiB" in summary(tmp_path / "bomb.pt")
    assert "of 39000000 entries" in summary(tmp_path / "bomb.npz")
    assert time.monotonic() - started < 40


def test_a_large_checkpoint_is_read_in_part_and_says_so(tmp_path: Path) -> None:
    torch.save({"big": torch.zeros(12_000_000), "small": torch.ones(4)}, tmp_path / "c.pt")
    text = summary(tmp_path / "c.pt")
    assert "too large to be read here" in line_of(text, "big")
    assert "norm 2, constant 1" in line_of(text, "small")


def test_any_other_file_has_its_first_bytes_and_its_entropy() -> None:
    assert "an empty file" in of_bytes(b"", "x.bin")
    assert "like compressed" in of_bytes(b"\0" + random.Random(0).randbytes(60_000), "x.bin")
    assert "the byte 0 alone" in of_bytes(b"\0" * 100, "x.bin")


def _samples(folder: Path) -> dict[str, bytes]:
    np.save(folder / "a.npy", np.ones((6, 2)))
    np.savez(folder / "a.npz", a=np.ones(3))
    torch.save({"a": torch.ones(5), "n": 3}, folder / "a.pt")
    torch.save({"a": torch.ones(5), "n": 3}, folder / "old.pt", _use_new_zipfile_serialization=False)
    (folder / "a.pkl").write_bytes(pickle.dumps({"a": [1, (2, 3)], "b": {1}}))
    with sqlite3.connect(folder / "a.sqlite") as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()
    with tarfile.open(folder / "a.tar", "w") as tar:
        tar.add(folder / "a.pkl", "a.pkl")
    (folder / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_file_that_is_cut_or_damaged_anywhere_is_answered(tmp_path: Path) -> None:
    drawn = random.Random(0)
    samples = _samples(tmp_path)
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for name, data in samples.items():
        for _ in range(60):
            broken = bytearray(data[: drawn.randrange(1, len(data) + 1)])
            for _ in range(drawn.randrange(4)):
                broken[drawn.randrange(len(broken))] = drawn.randrange(256)
            (damaged / name).write_bytes(broken)
            text = summary(damaged / name)
            assert name in text
            assert len(text) < 20_000


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    start=st.sampled_from(
        [b"", b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"\x80\x04", b"\x1f\x8b\x08\x00", b"PAR1", b"\xff\xd8\xff", b"GIF8",
         b"\x89PNG\r\n\x1a\n", b"SQLite format 3\0", b"\x20\0\0\0\0\0\0\0{", b"\x89HDF\r\n\x1a\n"]
    ),
    data=st.binary(max_size=2000),
    kind=st.sampled_from(KINDS),
)  # fmt: skip
def test_any_bytes_are_answered_in_bounds(start: bytes, data: bytes, kind: str) -> None:
    text = of_bytes(start + data, f"x.{kind}")
    assert text
    assert len(text) < 20_000
    assert text.isprintable() or "\n" in text


def test_a_binary_file_is_read_through_the_library(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 2)))
    library = Library(tmp_path)
    looked = library.look(ReadLines(file="x.npy"))
    assert looked.ok
    assert "array float64 [4, 2]" in looked.text
    assert library.shown.read == {"x.npy"}
    assert library.shown.lines["x.npy"][2] == "array float64 [4, 2]"
    assert f"{len(library.shown.lines['x.npy'])}  column 1: constant 1" in looked.text


def test_reading_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys, weaklink.agent.reading.library; "
        "sys.exit(bool({'torch', 'numpy', 'openai', 'jinja2'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
