"""The evidence file: nothing is lost on the way to the agent, and a bad file is refused with its place."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from weaklink.collector.errors import EvidenceError
from weaklink.collector.evidence import (
    Environment,
    Evidence,
    Fingerprint,
    InterventionReport,
    Outcome,
    ParameterRecord,
    RaisedException,
    Row,
    Series,
    Site,
    SourceFile,
    StepRecord,
    Subject,
    first_divergence,
    in_chain_order,
    mark_downstream,
    read_evidence,
    write_evidence,
)

NAN, INF = float("nan"), float("inf")


def evidence(**changes: Any) -> Evidence:
    fields: dict[str, Any] = {
        "subject": Subject(kind="script", name="train.py", argv=["--name", "a b"]),
        "outcome": Outcome(ended="completed"),
        "environment": Environment(torch="2.13.0", python="3.11", platform="Linux x86_64"),
        "branch": "learning",
        "rows": [],
    }
    return Evidence(**{**fields, **changes})


def row(row_id: str, status: str = "pass", **values: Any) -> Row:
    extra: dict[str, Any] = {"basis": "exact"} if status == "fail" else {}
    if status == "not_measured":
        extra["reason"] = "because"
    return Row(id=row_id, status=status, text="text", values=values, **extra)  # type: ignore[arg-type]


def back(given: Evidence, folder: Path) -> Evidence:
    write_evidence(given, folder / "evidence.json")
    return read_evidence(folder / "evidence.json")


def same(a: Any, b: Any) -> bool:
    """Equal, with NaN equal to itself and integers kept apart from floats and truth values."""
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, 1, -3, 2**60, 0.0, -0.0, 0.1, 1e-300, 5e-324, 1e300, NAN, INF, -INF,
        "", "head.weight", "nan", "3", "0.50", "inf", "</evidence>", "\u2028\x00",
        [], ["a", "b"], [1, 2], ["0.0", "0.1"], [True][:0], ["NaN-ish", "1"],
    ],
    ids=repr,
)  # fmt: skip
def test_row_values_survive_the_file(tmp_path: Path, value: Any) -> None:
    found = back(evidence(rows=[row("TASK/x", value=value)]), tmp_path).rows[0].values["value"]
    assert same(found, value), (found, value)


@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, 1 / 3, 5e-324, NAN, INF, -INF, None])
def test_floats_of_every_other_field_survive_the_file(tmp_path: Path, value: float | None) -> None:
    given = evidence(
        parameters=[
            ParameterRecord(
                name="w", shape=[2], dtype="float32", requires_grad=True, in_model=True, owned=True, registered=True,
                gradient_norm_first=value, delta_first=value, delta_net=value, norm=value,
            )
        ],
        steps=[StepRecord(step=1, lr=[] if value is None else [value], gradient_norm=value, delta_norm=value)],
        losses=Series(index=[1], value=[0.5 if value is None else value]),
        fingerprint=Fingerprint(loss=value),
    )  # fmt: skip
    found = back(given, tmp_path)
    assert same(found.parameters[0].norm, value)
    assert same(found.parameters[0].delta_net, value)
    assert same(found.steps[0].gradient_norm, value)
    assert same(found.steps[0].lr, given.steps[0].lr)
    assert same(found.losses.value, given.losses.value)
    assert same(found.fingerprint.loss, value)


def test_a_whole_file_survives(tmp_path: Path) -> None:
    site = Site(file="train.py", line=3, what="x")
    given = evidence(
        task="tell them apart",
        outcome=Outcome(
            ended="raised", exit_code=1, raised=RaisedException(type="E", message="é\n", where=site), seconds=1.5
        ),
        rows=[row("OWNERSHIP/owned", "fail", owned=0, missing=["head.weight"]), row("TASK/x", "not_measured")],
        sources=[SourceFile(path="train.py", sha256="0" * 64)],
        files_written=["out/model.pt"],
        intervention=InterventionReport(name="placebo", applied=True, changed=["w"]),
        problems=["x: y"],
    )
    assert back(given, tmp_path) == given
    assert json.loads((tmp_path / "evidence.json").read_text())["schema"] == "weaklink.evidence/1"


def test_writing_replaces_the_old_file_and_leaves_no_part(tmp_path: Path) -> None:
    back(evidence(task="old"), tmp_path)
    assert back(evidence(task="new"), tmp_path).task == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["evidence.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    back(evidence(task="old"), tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="No space left"):
            write_evidence(evidence(task="new"), tmp_path / "evidence.json")
    assert read_evidence(tmp_path / "evidence.json").task == "old"


GOOD = json.loads(evidence().model_dump_json(by_alias=True))


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ("", "the whole file"),
        ("not json", "the whole file"),
        ("[]", "the whole file"),
        (json.dumps(GOOD)[:-20], "the whole file"),
        (json.dumps({**GOOD, "schema": "weaklink.evidence/2"}), "schema"),
        (json.dumps({**GOOD, "extra": 1}), "extra"),
        (json.dumps({**GOOD, "branch": "wild"}), "branch"),
        (json.dumps({**GOOD, "outcome": {"ended": "vanished"}}), "outcome.ended"),
        (json.dumps({**GOOD, "losses": {"index": [1], "value": ["many"]}}), "losses.value.0"),
        (json.dumps({k: v for k, v in GOOD.items() if k != "subject"}), "subject"),
    ],
)
def test_a_bad_file_is_refused_and_the_field_named(tmp_path: Path, content: str, field: str) -> None:
    path = tmp_path / "evidence.json"
    path.write_text(content)
    with pytest.raises(EvidenceError) as raised:
        read_evidence(path)
    assert f": {field}: " in raised.value.message
    assert raised.value.about == str(path)
    assert raised.value.hint


@pytest.mark.parametrize("kind", ["missing", "folder", "binary"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "evidence.json"
    if kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(EvidenceError, match="cannot be read"):
        read_evidence(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": "LUCK/x", "status": "pass"}, "no boundary of that name"),
        ({"id": "TASK/x", "status": "fail"}, "a basis belongs to a fail"),
        ({"id": "TASK/x", "status": "pass", "basis": "exact"}, "a basis belongs to a fail"),
        ({"id": "TASK/x", "status": "suspected", "basis": "controlled"}, "a basis belongs to a fail"),
        ({"id": "TASK/x", "status": "not_measured"}, "a reason belongs to not_measured"),
        ({"id": "TASK/x", "status": "pass", "reason": "r"}, "a reason belongs to not_measured"),
        ({"id": "TASK/x", "status": "fine"}, "status"),
    ],
)
def test_rows_that_contradict_themselves_cannot_be_built(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Row(text="", **fields)


def test_first_divergence_is_the_first_fail_in_chain_order_whatever_the_list_order() -> None:
    rows = [row("UPDATE/lr", "fail"), row("TASK/x", "suspected"), row("OWNERSHIP/owned", "fail"), row("TASK/y")]
    found = first_divergence(rows)
    assert found is not None
    assert found.id == "OWNERSHIP/owned"
    assert evidence(rows=rows).first_divergence == found


def test_a_suspicion_leads_only_where_nothing_fails() -> None:
    rows = [row("UPDATE/scale", "suspected"), row("OBJECTIVE/mode", "suspected"), row("GRADIENT/norm", "evidence")]
    found = first_divergence(rows)
    assert found is not None
    assert found.id == "OBJECTIVE/mode"
    assert first_divergence([row("TASK/x"), row("UPDATE/lr", "evidence")]) is None
    assert first_divergence([]) is None


def test_downstream_is_everything_wrong_after_the_first_divergence() -> None:
    rows = [
        row("UPDATE/moved", "fail"),
        row("OBJECTIVE/mode", "suspected"),
        row("OWNERSHIP/stale", "suspected"),
        row("OWNERSHIP/owned", "fail"),
        row("UPDATE/scale", "suspected"),
        row("UPDATE/lr", "evidence"),
    ]
    marked = {r.id: r.downstream for r in mark_downstream(rows)}
    assert marked == {
        "OBJECTIVE/mode": False,
        "OWNERSHIP/stale": False,
        "OWNERSHIP/owned": False,
        "UPDATE/moved": True,
        "UPDATE/scale": True,
        "UPDATE/lr": False,
    }


def test_chain_order_keeps_the_order_within_a_boundary() -> None:
    rows = [row("UPDATE/b"), row("TASK/z"), row("UPDATE/a"), row("TASK/a")]
    assert [r.id for r in in_chain_order(rows)] == ["TASK/z", "TASK/a", "UPDATE/b", "UPDATE/a"]


@pytest.mark.parametrize(
    ("subject", "command"),
    [
        (Subject(kind="script", name="train.py", argv=["--name", "a b", "$HOME"]), "train.py --name 'a b' '$HOME'"),
        (Subject(kind="module", name="pkg.train"), "-m pkg.train"),
    ],
)
def test_the_command_can_be_pasted_into_a_shell(subject: Subject, command: str) -> None:
    assert subject.command == command
