"""The canonical form against RFC 8785, and what it refuses."""

from __future__ import annotations

import enum
import hashlib
import json
import math
import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from weaklink.agent.record.canonical import MAX_DEPTH, as_number, canonical_bytes, digest, float_text

integers = st.integers(min_value=-(2**53) + 1, max_value=2**53 - 1)
keys = st.text(st.characters(max_codepoint=127))
texts = st.text(st.characters(exclude_categories=["Cs"]))


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=20)


@settings(max_examples=500)
@given(nested(st.none() | st.booleans() | integers | texts))
def test_equals_rfc8785_on_values_without_floats(value: Any) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)


@given(nested(st.none() | st.booleans() | integers | st.text(st.characters()) | st.floats()))
def test_what_comes_out_is_its_own_canonical_form(value: Any) -> None:
    written = canonical_bytes(value)
    assert rfc8785.dumps(json.loads(written)) == written
    assert canonical_bytes(json.loads(written)) == written


@given(st.floats())
def test_a_float_reads_back_to_the_same_bits(value: float) -> None:
    back = as_number(json.loads(canonical_bytes(value)))
    assert back is not None
    assert math.isnan(back) == math.isnan(value)
    assert math.isnan(value) or struct.pack("d", back) == struct.pack("d", value)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.1, b'"0.1"'),
        (1e-05, b'"1e-05"'),
        (2.0, b'"2.0"'),
        (-0.0, b'"-0.0"'),
        (math.nan, b'"NaN"'),
        (math.inf, b'"Infinity"'),
        (-math.inf, b'"-Infinity"'),
        (None, b"null"),
        (True, b"true"),
        (1, b"1"),
        ((1, 2), b"[1,2]"),
        ({"b": 1, "a": [0.5]}, b'{"a":["0.5"],"b":1}'),
        ("é€", '"é€"'.encode()),
        (2**53 - 1, b"9007199254740991"),
    ],
)
def test_written_forms(value: object, written: bytes) -> None:
    assert canonical_bytes(value) == written


def test_nan_none_and_both_zeros_have_four_digests() -> None:
    assert len({digest([value]) for value in (math.nan, None, 0.0, -0.0)}) == 4


def test_digest_is_sha256_of_the_bytes() -> None:
    assert digest({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


def test_half_a_surrogate_pair_becomes_its_escape() -> None:
    assert canonical_bytes("é\ud800") == '"é\\\\ud800"'.encode()


class _NamedFloat(float):
    def __repr__(self) -> str:
        return f"np.float64({float(self)})"


class _Level(enum.IntEnum):
    LOW = 3


def test_subclasses_are_written_as_their_plain_value() -> None:
    # numpy.float64 and IntEnum are what really arrives here.
    assert canonical_bytes([_NamedFloat(0.5), _Level.LOW]) == b'["0.5",3]'


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [0, {"b": 2**53}]}, r"\$\.a\[1\]\.b: an integer of 2\*\*53"),
        ({"a": -(2**53)}, r"\$\.a: an integer"),
        ({"a": 10**6000}, r"\$\.a: an integer"),
        ({"rows": {"é": 1}}, r"\$\.rows: the key '\\xe9' is not ASCII"),
        ({1: 2}, r"\$: the key 1 is not ASCII"),
        ({"a": {1, 2}}, r"\$\.a: a set has no canonical form"),
        ({"two words": b""}, r'\$\["two words"\]: a bytes has'),
    ],
)
def test_refusals_name_the_path(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        canonical_bytes(value)


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_depth_up_to_the_limit() -> None:
    assert canonical_bytes(deep(MAX_DEPTH)) == b"[" * MAX_DEPTH + b"]" * MAX_DEPTH


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 100_000])
def test_deeper_is_refused_in_one_short_sentence(levels: int) -> None:
    value = deep(levels)
    with pytest.raises(ValueError, match="nested more than") as caught:
        canonical_bytes(value)
    assert len(str(caught.value)) < 200
    # Taken apart by hand: freeing a list this deep is fine, comparing it in a failing test is not.
    while value:
        value = value.pop()


def test_a_list_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ValueError, match="nested more than"):
        canonical_bytes(value)


@pytest.mark.parametrize("value", ["0.50", "nan", "inf", "3", " 0.5", "1_0.0", "", "lr", None, True, [0.5]])
def test_as_number_leaves_other_text_alone(value: object) -> None:
    assert as_number(value) is None


@pytest.mark.parametrize(("value", "number"), [(3, 3.0), (0.5, 0.5), ("0.5", 0.5), ("-Infinity", -math.inf)])
def test_as_number(value: object, number: float) -> None:
    assert as_number(value) == number


def test_float_text_of_nan() -> None:
    assert float_text(-math.nan) == "NaN"
