from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weaklink.agent.reporters.text import (
    is_digest,
    movement_text,
    number,
    pair_text,
    plural,
    printable_lines,
    value_text,
)
from weaklink.collector.table.layout import beside, cells, column_widths, wrap
from weaklink.collector.table.text import printable


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("head.weight", "head.weight"),
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x9b31m", "\\x9b31m"),
        ("x\u202egnp.py", "x\\u202egnp.py"),
        ("x\u2066y\u2069\u200b", "x\\u2066y\\u2069\\u200b"),
        ("line\u2028end", "line\\u2028end"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("頭の重み é", "頭の重み é"),
        ("a\u00a0b", "a\u00a0b"),
        ("\x00\x7f", "\\x00\\x7f"),
    ],
)
def test_printable_shows_what_it_cannot_print(raw: str, shown: str) -> None:
    assert printable(raw) == shown


def test_printable_cuts_at_the_limit() -> None:
    assert printable("abcdef", limit=6) == "abcdef"
    assert printable("abcdefg", limit=6) == "abcde…"
    # An escape is never cut in two.
    assert printable("abc\x1b[", limit=6) == "abc…"
    assert len(printable("x" * 10_000_000)) == 400


@given(st.text(alphabet=st.characters(codec=None)), st.integers(1, 60))
def test_printable_is_safe_and_bounded(raw: str, limit: int) -> None:
    shown = printable(raw, limit)
    assert len(shown) <= limit
    assert "\n" not in shown
    assert "\x1b" not in shown
    shown.encode("utf-8")


def test_printable_lines_keeps_line_breaks_only() -> None:
    assert printable_lines("a\n\x1bb\r\n") == "a\n\\x1bb\\r\n"
    assert printable_lines("abc", limit=2) == "ab…"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.683606, "0.6836"),
        (0.01, "0.01"),
        (1e-05, "1e-05"),
        (0.0019479, "1.948e-03"),
        (9.796e7, "9.796e+07"),
        (1.2345678e26, "1.235e+26"),
        (0.0, "0"),
        (-0.0, "0"),
        (2, "2"),
        (-3, "-3"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (True, "true"),
    ],
)
def test_number(value: float, shown: str) -> None:
    assert number(value) == shown


def test_norms_are_read_by_their_exponent() -> None:
    assert number(0.1948, scientific=True) == "1.948e-01"


def test_values() -> None:
    assert value_text(None) == "-"
    assert value_text([0.5, 0.683606]) == "[0.5, 0.6836]"
    assert value_text(list(range(10))) == "[0, 1, 2, 3, 4, 5, 6, 7, 2 more]"
    assert value_text(["a"] * 3) == "[a, a, a]"


def test_different_numbers_never_look_equal() -> None:
    assert pair_text(0.68360612, 0.68360618) == ("0.68360612", "0.68360618")
    assert pair_text(0.683606, 0.683606) == ("0.6836", "0.6836")
    assert pair_text(math.nan, math.nan) == ("nan", "nan")
    assert pair_text(None, 0.5) == ("-", "0.5")


def test_a_digest_is_shown_by_its_first_twelve_digits() -> None:
    digest = "0123456789abcdef" * 4
    assert value_text(digest) == "0123456789ab…"
    assert value_text(digest[:-1]) == digest[:-1]
    assert value_text(digest[:-1] + "g") == digest[:-1] + "g"
    assert [is_digest(text) for text in (digest, digest[:-1], digest + "0", digest.upper())] == [True] + 3 * [False]


def test_digests_and_lists_that_differ_late_never_look_equal() -> None:
    first, second = "0" * 64, "0" * 63 + "1"
    assert pair_text(first, second) == (first, second)
    assert pair_text([0] * 9, [0] * 8 + [1]) == ("[" + "0, " * 8 + "0]", "[" + "0, " * 8 + "1]")


def test_equal_values_are_shown_once() -> None:
    assert movement_text(0.683606, 0.683606) == "= 0.6836"
    assert movement_text("a" * 64, "a" * 64) == "= aaaaaaaaaaaa…"
    assert movement_text(math.nan, math.nan) == "= nan"
    assert movement_text(0.683606, 0.409912) == "0.6836 -> 0.4099"
    assert movement_text(0.68360612, 0.68360618) == "0.68360612 -> 0.68360618"
    assert movement_text(1, True) == "1 -> true"
    assert movement_text(None, 2) == "- -> 2"


def test_plural() -> None:
    assert [plural(count, "row") for count in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]


@given(st.text(alphabet="ab 頭é", max_size=80), st.integers(2, 30))
def test_wrap_fits_and_loses_nothing(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(cells(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_wide_and_combining_characters_are_counted_in_cells() -> None:
    assert cells("頭") == 2
    assert cells("e\u0301") == 1


def test_table_shrinks_its_widest_column() -> None:
    rows = [("", ""), ("a", "one two three four five six seven"), ("bb", "x")]
    widths = column_widths(rows, width=24)
    assert widths == [2, 20]
    assert [line for row in rows for line in beside(row, widths)][1:] == [
        "a   one two three four",
        "    five six seven",
        "bb  x",
    ]


def test_a_head_gives_way_before_the_cells_below_it() -> None:
    rows = [("measurement", "control -> treatment"), ("gradient.first[head.*]", "0 -> 3.506e+00")]
    assert column_widths(rows, width=60) == [22, 20]
    assert column_widths(rows, width=40) == [22, 14]
    assert column_widths(rows, width=30) == [14, 14]
