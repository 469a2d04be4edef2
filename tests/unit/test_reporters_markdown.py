from __future__ import annotations

import re

import pytest
from test_reporters_samples import EVERY, hostile
from test_reporters_terminal import GOLDENS, check_golden

from weaklink.agent.reporters.markdown import escaped, paragraph, render_markdown

UNESCAPED_PIPE = re.compile(r"(?<!\\)(?:\\\\)*\|")


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(name: str) -> None:
    check_golden(f"{name}.md", render_markdown(EVERY[name]()))


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a|b", "a\\|b"),
        ("`x`", "\\`x\\`"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("own_missing_parameters", "own_missing_parameters"),
        ("__init__", "\\_\\_init\\_\\_"),
        ("a\nb", "a\\\\nb"),
        ("[x](y)", "\\[x\\](y)"),
        ("$x$ ~~y~~ #1 *", "\\$x\\$ \\~\\~y\\~\\~ \\#1 \\*"),
    ],
)
def test_escaped(raw: str, shown: str) -> None:
    assert escaped(raw) == shown


@pytest.mark.parametrize(
    ("raw", "shown"), [("1. x", "1\\. x"), ("- x", "\\- x"), ("+ x", "\\+ x"), ("===", "\\==="), ("x - y", "x - y")]
)
def test_a_paragraph_starts_no_list(raw: str, shown: str) -> None:
    assert paragraph(raw) == shown


def test_the_marks_of_the_chain_are_bold() -> None:
    lines = render_markdown(EVERY["stale_head"]()).splitlines()
    first = next(line for line in lines if line.startswith("| **OWNERSHIP** | owned | **FAIL** |"))
    assert first.endswith("**&lt;-- FIRST DIVERGENCE (exact)** |")
    later = next(line for line in lines if line.startswith("|  | stale | FAIL |"))
    assert later.endswith(" (downstream) |")


@pytest.mark.parametrize("name", EVERY)
def test_every_table_is_rectangular(name: str) -> None:
    for block in render_markdown(EVERY[name]()).split("\n\n"):
        if block.startswith("| "):
            assert len({len(UNESCAPED_PIPE.findall(line)) for line in block.splitlines()}) == 1


def test_hostile_text_is_inert() -> None:
    text = render_markdown(hostile())
    # Indented lines are code, which is literal; only commands stand there.
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    assert "<" not in prose
    assert not re.search(r"(?<!\\)`", prose)
    assert "[red]" not in prose
    assert all(char.isprintable() for char in text.replace("\n", ""))
