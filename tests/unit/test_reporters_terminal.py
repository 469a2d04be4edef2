from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest
from test_reporters_samples import EVERY, GOLDEN, Sample, evidence, healthy, hostile, interrupted, rows, stale_head

from weaklink.agent.reporters.layout import cells
from weaklink.agent.reporters.terminal import render_chain, render_incident
from weaklink.collector.evidence import BOUNDARIES, Row

GOLDENS = ["stale_head", "healthy", "suspected", "raised", "frozen_only", "withdrawn", "interrupted"]
ANSI = re.compile(r"\x1b\[\d*m")


def check_golden(name: str, text: str) -> None:
    """Compare with the stored file; WEAKLINK_UPDATE_GOLDEN=1 writes it anew."""
    path = GOLDEN / name
    if os.environ.get("WEAKLINK_UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8", newline="\n")
    assert path.read_text(encoding="utf-8") == text, f"see {path}; WEAKLINK_UPDATE_GOLDEN=1 writes it anew"


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(name: str) -> None:
    check_golden(f"{name}.txt", render_incident(EVERY[name]()))


def test_golden_chain_alone() -> None:
    found = stale_head().evidence
    assert found is not None
    check_golden("chain_120.txt", render_chain(found, width=120))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("width", [1, 40, 57, 72, 80, 100, 200])
def test_every_width_and_stage_renders(name: str, width: int) -> None:
    text = render_incident(EVERY[name](), width)
    assert text.endswith("\n")
    assert all(char.isprintable() for char in text.replace("\n", ""))


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_chain_keeps_its_width(width: int) -> None:
    for maker in EVERY.values():
        found = maker().evidence
        if found is not None:
            assert max(cells(line) for line in render_chain(found, width).splitlines()) <= width


@pytest.mark.parametrize("name", EVERY)
def test_colour_adds_codes_and_nothing_else(name: str) -> None:
    sample = EVERY[name]()
    painted = render_incident(sample, color=True)
    assert "\x1b[" in painted
    assert [line.rstrip() for line in ANSI.sub("", painted).splitlines()] == render_incident(sample).splitlines()


@pytest.mark.parametrize("part", ["observed", "answered", "frozen", "reruns", "verdict", "closed", "asked"])
def test_any_part_may_be_missing(part: str) -> None:
    empty = [] if part in ("answered", "reruns", "asked") else None
    assert render_incident(replace(stale_head(), **{part: empty}))


def test_statuses_are_words() -> None:
    text = render_incident(stale_head(), width=120)
    line = next(line for line in text.splitlines() if line.startswith("OWNERSHIP"))
    assert line.endswith("FAIL exact   <-- FIRST DIVERGENCE")
    assert text.count("<-- FIRST DIVERGENCE") == 1
    assert text.count("downstream") == 2


def test_a_boundary_without_a_row_is_not_measured() -> None:
    text = render_chain(evidence([Row(id="TASK/rows", status="pass", text="8 inputs")]))
    for boundary in BOUNDARIES[1:]:
        line = next(line for line in text.splitlines() if line.startswith(boundary))
        assert "not measured: no row was recorded" in line
        assert "ok" not in line.split()


def test_rows_out_of_order_are_shown_in_chain_order() -> None:
    text = render_chain(evidence(list(reversed(rows()))))
    assert [line.split()[0] for line in text.splitlines()[2:] if line[0] != " "] == list(BOUNDARIES)


def test_healthy_promises_no_more_than_was_measured() -> None:
    text = " ".join(render_incident(healthy()).split())
    assert "No row fails." in text
    assert "3 rows were not measured, which is neither a pass nor a fail" in text
    assert "FAIL" not in text
    assert "DIVERGENCE" not in text


def test_frozen_hash_is_whole_at_any_width() -> None:
    for width in (40, 100):
        assert "c1a1" * 16 in render_incident(stale_head(), width)


def test_a_playbook_is_never_taken_for_a_model() -> None:
    assert "the built-in playbook (fixed rules; no model was asked)" in render_incident(stale_head())
    assert "playbook" not in render_incident(EVERY["suspected"]())


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("frozen_only", "weaklink verify incidents/20261130-120000-train-1a2b"),
        ("stale_head", "weaklink recover incidents/20261130-120000-train-1a2b FIXED_SCRIPT"),
        ("healthy", "weaklink show incidents/healthy"),
        ("interrupted", "weaklink diagnose train.py"),
        ("raised", "weaklink diagnose train.py"),
    ],
)
def test_next_is_one_command(name: str, command: str) -> None:
    assert render_incident(EVERY[name]()).splitlines()[-1].strip() == command


def test_arguments_of_the_subject_follow_a_double_dash() -> None:
    sample = interrupted()
    subject = sample.opened.subject.model_copy(update={"argv": ["--name", "a b"]})
    opened = sample.opened.model_copy(update={"subject": subject})
    assert "weaklink diagnose train.py -- --name 'a b'" in render_incident(replace(sample, opened=opened))


def test_hostile_text_cannot_reach_the_terminal() -> None:
    text = render_incident(hostile())
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    # No line starts where a hostile line break would have put it.
    assert not any(line.startswith("| `x`") for line in text.splitlines() if "\\n" in line)
    assert "\\x1b[31m" in text


def test_question_is_marked_in_the_chain() -> None:
    sample: Sample = EVERY["suspected"]()
    proposal = sample.answered[0].proposal
    proposal.first_row, proposal.first_boundary = None, "OBJECTIVE"
    line = next(line for line in render_incident(sample).splitlines() if line.startswith("OBJECTIVE"))
    assert "<-- QUESTION" in line


def test_damage_is_named() -> None:
    sample = stale_head()
    sample.damage = "line 4 is not what was written"  # type: ignore[attr-defined]
    assert "the record is damaged, and shown up to there: line 4" in " ".join(render_incident(sample).split())
