"""What counts as a difference between a stored receipt and a new run, and what does not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_reporters_samples import EVERY, healthy, stale_head

from weaklink.agent.errors import ReceiptError
from weaklink.agent.record.bodies import Frozen
from weaklink.agent.record.canonical import digest
from weaklink.agent.replays.compare import TOLERANCE, Comparison, compare
from weaklink.agent.replays.folder import Replay, find_replay, replays_in
from weaklink.agent.replays.receipt import Receipt, read_receipt, receipt_of, write_receipt
from weaklink.agent.reporters.json_report import plain
from weaklink.collector.errors import UsageError
from weaklink.collector.evidence import SourceFile

OWNED = "OWNERSHIP/owned"


@pytest.fixture
def stored() -> Receipt:
    """The stale head's receipt, with a claim and a context whose digests are their own."""
    claim, context = {"horizon": 50, "seeds": [0, 1]}, {"subject": "train.py"}
    frozen = Frozen(claim_sha256=digest(claim), context_sha256=digest(context), claim=claim, context=context)
    found = receipt_of(replace(stale_head(), frozen=frozen))
    found.rows[OWNED]["values"] = {"owned": 0, "expected": 2, "norm": 0.155585, "missing": ["head.weight", "head.bias"]}
    return found


def changed(receipt: Receipt, change: Callable[[dict[str, Any]], None]) -> Receipt:
    body = copy.deepcopy(plain(receipt))
    change(body)
    return Receipt.model_validate(body)


def elsewhere(receipt: Receipt, **environment: Any) -> Receipt:
    """The same run on another machine."""
    return changed(receipt, lambda body: body["environment"].update(environment or {"torch": "2.4.0+cu121"}))


def with_value(receipt: Receipt, name: str, value: Any) -> Receipt:
    return changed(receipt, lambda body: body["rows"][OWNED]["values"].update({name: value}))


@pytest.mark.parametrize("name", [name for name in EVERY if EVERY[name]().evidence is not None])
def test_a_receipt_equals_itself_and_comes_back_from_disk(name: str, tmp_path: Path) -> None:
    receipt = receipt_of(EVERY[name]())
    receipt.frozen = None  # the samples' digests are made up
    write_receipt(receipt, tmp_path / "receipt.json")
    found = compare(read_receipt(tmp_path / "receipt.json"), receipt)
    assert found == Comparison(exact=True)


def test_a_receipt_reads_well_in_a_diff(stored: Receipt, tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    write_receipt(stored, path)
    text = path.read_text()
    assert text.isascii()
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_volatile_and_no_path_of_a_machine_is_kept() -> None:
    sample = stale_head()
    text = json.dumps(plain(receipt_of(sample)))
    for word in ("seconds", "incidents", sample.opened.created, sample.head, str(sample.opened.folder)):
        assert word not in text
    later = replace(sample, folder=Path("incidents/other"), head="1" * 64)
    assert receipt_of(later) == receipt_of(sample)


def test_a_changed_value_is_named_with_both_values(stored: Receipt) -> None:
    found = compare(stored, with_value(stored, "owned", 2))
    assert found.differences == ["OWNERSHIP/owned values.owned: receipt 0, now 2"]
    assert not found.equal


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda body: body["rows"][OWNED].update(status="pass"), 'OWNERSHIP/owned status: receipt "fail", now "pass"'),
        (lambda body: body["rows"][OWNED].update(basis=None), 'OWNERSHIP/owned basis: receipt "exact", now null'),
        (
            lambda body: body["rows"][OWNED].update(downstream=True),
            "OWNERSHIP/owned downstream: receipt false, now true",
        ),
        (lambda body: body.update(branch="learning"), 'branch: receipt "flat", now "learning"'),
        (lambda body: body["status"].update(cause="refuted"), 'status cause: receipt "supported", now "refuted"'),
        (
            lambda body: body["mechanisms"].update(rate_wrong="inconclusive"),
            'mechanism rate_wrong: receipt "refuted", now "inconclusive"',
        ),
        (
            lambda body: body["predictions"]["rate_wrong"]["moved[head.*]"].update(status="held"),
            'prediction rate_wrong moved[head.*] status: receipt "failed", now "held"',
        ),
    ],
)
def test_every_part_is_compared(stored: Receipt, change: Callable[[dict[str, Any]], None], expected: str) -> None:
    assert compare(stored, changed(stored, change)).differences == [expected]


def test_rows_that_came_or_went_are_differences(stored: Receipt) -> None:
    gone = changed(stored, lambda body: body["rows"].pop(OWNED) and None)
    (lost,) = compare(stored, gone).differences
    assert lost.startswith("OWNERSHIP/owned: receipt {")
    assert lost.endswith("now has none")
    (new,) = compare(gone, stored).differences
    assert new.startswith("OWNERSHIP/owned: receipt has none, now ")


@pytest.mark.parametrize("other", [0.15558500000000003, "NaN", None, 0])
def test_on_the_same_machine_numbers_agree_in_every_bit(stored: Receipt, other: Any) -> None:
    found = compare(stored, with_value(stored, "norm", other))
    assert found.exact
    assert len(found.differences) == 1


@pytest.mark.parametrize(("one", "other"), [(0, False), (0.0, -0.0), (1, 1.0)])
def test_equal_in_python_is_not_equal_in_bits(stored: Receipt, one: Any, other: Any) -> None:
    assert not compare(with_value(stored, "owned", one), with_value(stored, "owned", other)).equal


@pytest.mark.parametrize(
    "environment",
    [{"torch": "2.4.0"}, {"platform": "Darwin arm64"}, {"devices": ["cpu", "H200"]}, {"threads": 64}],
)
def test_elsewhere_floats_may_differ_by_the_tolerance_it_names(stored: Receipt, environment: dict[str, Any]) -> None:
    near = with_value(elsewhere(stored, **environment), "norm", 0.155585 * (1 + TOLERANCE / 2))
    found = compare(stored, near)
    assert found.equal
    assert not found.exact
    assert any(f"{TOLERANCE:g} relative" in text and next(iter(environment)) in text for text in found.skipped)
    far = with_value(elsewhere(stored, **environment), "norm", 0.155585 * (1 + 2 * TOLERANCE))
    assert len(compare(stored, far).differences) == 1


def test_elsewhere_counts_words_and_what_is_no_number_stay_exact(stored: Receipt) -> None:
    there = elsewhere(stored)
    assert not compare(stored, with_value(there, "owned", 1)).equal
    assert not compare(stored, with_value(there, "missing", ["head.weight"])).equal
    assert not compare(stored, with_value(there, "norm", "NaN")).equal


def test_elsewhere_neither_digests_of_values_nor_noise_floors_are_compared(stored: Receipt) -> None:
    def rounded(body: dict[str, Any]) -> None:
        body["losses"]["sha256"] = "0" * 64
        body["predictions"]["rate_wrong"]["moved[head.*]"]["floor"] = 1e-9

    here = compare(stored, changed(stored, rounded))
    assert [text.split(":")[0] for text in here.differences] == [
        "losses sha256",
        "prediction rate_wrong moved[head.*] floor",
    ]
    there = compare(stored, elsewhere(changed(stored, rounded)))
    assert there.equal
    assert any("noise floors" in text for text in there.skipped)


def frozen_again(receipt: Receipt, name: str, body: dict[str, Any]) -> Receipt:
    again = receipt.model_copy(deep=True)
    assert again.frozen is not None
    setattr(again.frozen, name, body)
    setattr(again.frozen, f"{name}_sha256", digest(body))
    return again


def test_another_claim_is_a_difference_on_every_machine(stored: Receipt) -> None:
    now = frozen_again(elsewhere(stored), "claim", {"horizon": 51, "seeds": [0, 1]})
    differences = compare(stored, now).differences
    assert differences[0] == "claim horizon: receipt 50, now 51"
    assert differences[1].startswith("claim digest: receipt ")


def test_another_context_is_a_difference_only_in_the_same_environment(stored: Receipt) -> None:
    now = frozen_again(stored, "context", {"subject": "other.py"})
    assert compare(stored, now).differences == ['context subject: receipt "train.py", now "other.py"']
    found = compare(stored, elsewhere(now, python="3.13.1"))
    assert found.equal
    assert found.exact, "another Python does not change torch's bits"
    assert [text for text in found.skipped if text.startswith("context: python was ")]


@pytest.mark.parametrize("part", ["claim", "context"])
def test_an_edited_receipt_is_noticed_by_its_own_digest(stored: Receipt, part: str) -> None:
    edited = stored.model_copy(deep=True)
    assert edited.frozen is not None
    getattr(edited.frozen, part)["horizon"] = 7
    differences = compare(edited, elsewhere(stored)).differences
    assert any(text.startswith(f"{part} digest: receipt ") and text.endswith("it was edited") for text in differences)


def test_a_claim_that_no_run_freezes_any_more(stored: Receipt) -> None:
    now = changed(stored, lambda body: body.update(frozen=None))
    assert stored.frozen is not None
    assert compare(stored, now).differences == [f"claim: receipt {stored.frozen.claim_sha256}, now none frozen"]


def test_hostile_names_do_not_reach_the_terminal(stored: Receipt) -> None:
    now = with_value(stored, "\x1b[31mred\n", "\x1b[2J")
    (text,) = compare(stored, now).differences
    assert text.isprintable()


def test_a_run_of_code_outside_its_folder_gets_no_receipt() -> None:
    sample = healthy()
    assert sample.evidence is not None
    sample.evidence.sources = [SourceFile(path="/home/somebody/lib.py", sha256="0" * 64)]
    with pytest.raises(UsageError, match="outside its folder"):
        receipt_of(sample)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "weaklink.receipt/1"}', "\xff"])
def test_a_damaged_receipt_says_what_is_wrong_and_what_to_do(tmp_path: Path, text: str) -> None:
    path = tmp_path / "receipt.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ReceiptError) as caught:
        read_receipt(path)
    assert "--write" in str(caught.value.hint)


def test_no_receipt_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_receipt(tmp_path / "stale_head" / "receipt.json")
    assert f"weaklink replay {tmp_path / 'stale_head'} --write" in str(caught.value.hint)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text("")
    (tmp_path / "no_replay").mkdir()
    (tmp_path / "README.md").write_text("")
    return tmp_path


def test_replays_are_found_by_name_and_by_folder(root: Path, tmp_path: Path) -> None:
    assert [replay.name for replay in replays_in(root)] == ["a", "b"]
    assert find_replay("b", root).folder == root / "b"
    assert find_replay(str(root / "b"), tmp_path / "elsewhere").name == "b"


@pytest.mark.parametrize("word", ["c", "no_replay", ""])
def test_a_replay_that_is_not_there_lists_those_that_are(root: Path, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_replay(word, root)
    assert "there are: a, b." in str(caught.value.hint)


def test_settings_name_a_factory_arguments_and_a_rule(root: Path) -> None:
    replay = Replay(root / "a")
    assert replay.settings().subject == "train.py"
    (root / "a" / "replay.json").write_text('{"subject": "train.py:build", "rule": "train.py:rule"}')
    assert (replay.settings().subject, replay.settings().rule) == ("train.py:build", "train.py:rule")
    (root / "a" / "replay.json").write_text('{"subject": "train.py", "argv": []}')
    with pytest.raises(UsageError, match="argv"):
        replay.settings()
