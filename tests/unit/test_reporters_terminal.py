from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest
from test_reporters_samples import EVERY, GOLDEN, Sample, evidence, healthy, hostile, interrupted, rows, stale_head

from weaklink.agent.reporters.outcome import tally
from weaklink.agent.reporters.terminal import render_chain, render_incident
from weaklink.collector.evidence import BOUNDARIES, Row
from weaklink.collector.table.layout import cells

GOLDENS = [
    "stale_head",
    "healthy",
    "suspected",
    "raised",
    "model_answered",
    "model_failed",
    "frozen_only",
    "withdrawn",
    "confirmed",
    "unjudged",
    "cut_short",
    "interrupted",
]
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


@pytest.mark.parametrize("width", [60, 72])
def test_golden_narrow(width: int) -> None:
    check_golden(f"stale_head_{width}.txt", render_incident(stale_head(), width))


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
    assert line.split()[:4] == ["OWNERSHIP", "owned", "FAIL", "0/2"]
    assert line.endswith("optimizer   <-- FIRST DIVERGENCE (exact)")
    assert text.count("<-- FIRST DIVERGENCE") == 1
    assert text.count("(downstream)") == 2
    assert next(line for line in text.splitlines() if "2048 inputs" in line).split()[:2] == ["rows", "ok"]
    assert next(line for line in text.splitlines() if line.startswith("CAPABILITY")).split()[1:3] == ["tiny_batch", "-"]


def test_a_mark_that_does_not_fit_stands_below_the_evidence() -> None:
    row = Row(id="TASK/rows", status="fail", basis="declared", text="x" * 60)
    lines = render_chain(evidence([row])).splitlines()
    at = next(index for index, line in enumerate(lines) if "x" * 60 in line)
    assert lines[at].endswith("x" * 60)
    assert lines[at + 1] == " " * lines[at].index("x") + "<-- FIRST DIVERGENCE (declared)"


def test_a_suspicion_is_no_accusation() -> None:
    text = " ".join(render_incident(EVERY["suspected"]()).split())
    assert "No row fails. TASK/pairing is suspected, not proven:" in text
    assert "FIRST DIVERGENCE" not in text
    assert "First divergence" not in text
    assert "What it means" not in text
    assert "It may mean Inputs were reordered" in text
    line = next(line for line in render_incident(EVERY["suspected"]()).splitlines() if "pairing " in line)
    assert line.split()[:2] == ["pairing", "SUSPECTED"]


def test_a_confirmed_suspicion_is_a_controlled_fail() -> None:
    text = render_incident(EVERY["confirmed"]())
    lines = text.splitlines()
    at = next(index for index, line in enumerate(lines) if "4.1 times" in line)
    assert lines[at].split()[:2] == ["rate", "FAIL"]
    assert lines[at + 1].strip() == "<-- FIRST DIVERGENCE (controlled)"


def test_a_refuted_explanation_is_not_told_as_the_meaning() -> None:
    lines = render_incident(EVERY["withdrawn"]()).splitlines()
    assert "What it means  The first explanation did not hold." in lines
    assert not any("FAIL " in line for line in lines)


def test_a_rival_shows_only_what_failed() -> None:
    text = render_incident(stale_head())
    lead, rest = text.split("rate_wrong: all 3 predictions failed")
    rate, frozen = rest.split("frozen_by_accident: 2 of 3 predictions failed, the other 1 held")
    assert lead.count(" held ") == 3
    assert rate.count("FAILED") == 3
    assert frozen.split("Verdict")[0].count("FAILED") == 2
    assert " held " not in rate + frozen.split("Verdict")[0]
    # The head of the table is shown once.
    assert text.count("control -> treatment") == 1


def test_before_a_rerun_a_rival_shows_where_it_predicts_otherwise() -> None:
    lines = render_incident(EVERY["frozen_only"]()).splitlines()
    assert lines.count("               frozen_by_accident  moved[head.*] stays the same, loss[50] stays the same") == 1
    assert sum("becomes pass" in line for line in lines) == 1


def test_a_rival_refuted_by_the_table_above_gives_no_reason_twice() -> None:
    sample = stale_head()
    assert sample.verdict is not None
    decided = sample.verdict.verdict
    shown = " ".join(render_incident(sample).split())
    assert "refuted rate_wrong, frozen_by_accident: by the predictions that failed" in shown
    assert "it predicted no movement" not in shown
    decided.predictions = [item for item in decided.predictions if item.mechanism != "rate_wrong"]
    shown = " ".join(render_incident(sample).split())
    assert "refuted rate_wrong: it predicted no movement, and both moved. refuted frozen_by_accident: by" in shown


def test_sections_stand_in_reading_order() -> None:
    titles = [line.split("  ")[0] for line in render_incident(stale_head()).splitlines() if line[:1].strip()]
    order = ["What it means", "Where", "Experiment", "Predictions", "Verdict", "Frozen", "Next"]
    assert [title for title in titles if title in order] == order
    assert "Status" not in titles


def test_remarks_stand_under_the_title() -> None:
    lines = render_incident(EVERY["cut_short"]()).splitlines()
    assert lines[1:4] == ["  interrupted by the user", "  2 problems of weaklink's own while observing", ""]
    notes = lines[next(index for index, line in enumerate(lines) if line.startswith("Notes")) :]
    assert any(line.endswith("- weaklink's own problem while observing: rows of UPDATE: KeyError: 3") for line in notes)
    assert "interrupted by the user" not in "\n".join(notes)


def test_a_run_cut_short_is_told_as_such() -> None:
    text = " ".join(render_incident(EVERY["cut_short"]()).split())
    assert "The run did not get to its end; the chain shows what had been measured by then." in text
    assert "asks for a repair" not in text


def test_nothing_is_said_of_controls_that_were_not_compared() -> None:
    text = " ".join(render_incident(EVERY["unjudged"]()).split())
    assert "Change NOT applied." in text
    assert "ontrols" not in text
    assert text.count("the experiment found nothing to change in the rerun") == 2


@pytest.mark.parametrize("name", [name for name in EVERY if name != "hostile"])
def test_only_commands_that_exist_are_named(name: str) -> None:
    named = re.findall(r"weaklink (\w+) (?:incidents/|train)", render_incident(EVERY[name]()))
    assert named
    assert set(named) <= {"diagnose", "observe", "verify", "recover", "continue", "show", "check", "export"}


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((8, 0, 0), "all 8 predictions held"),
        ((1, 0, 0), "its prediction held"),
        ((4, 4, 0), "4 of 8 predictions failed, the other 4 held"),
        ((0, 3, 0), "all 3 predictions failed"),
        ((5, 0, 1), "1 of 6 predictions was not measured, the other 5 held"),
        ((0, 0, 3), "no prediction was measured"),
        ((2, 1, 3), "1 of 6 predictions failed, 2 held, 3 not measured"),
        ((0, 1, 3), "1 of 4 predictions failed, 3 not measured"),
    ],
)
def test_tally(counts: tuple[int, int, int], said: str) -> None:
    assert tally(*counts) == said


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
        ("stale_head", "weaklink export incidents/20261130-120000-train-1a2b --format html"),
        ("unjudged", "weaklink export incidents/20261130-120000-train-1a2b --format html"),
        ("cut_short", "weaklink diagnose train.py"),
        ("healthy", "weaklink show incidents/healthy"),
        ("interrupted", "weaklink diagnose train.py"),
        ("raised", "weaklink diagnose train.py"),
    ],
)
def test_next_ends_with_a_command(name: str, command: str) -> None:
    for width in (60, 100):
        assert render_incident(EVERY[name](), width).splitlines()[-1].strip() == command


def test_after_a_supported_verdict_the_repair_is_diagnosed_again() -> None:
    lines = [line.removeprefix("Next").strip() for line in render_incident(stale_head()).splitlines()[-6:]]
    assert lines[:4] == [
        "Repair proposed (wiring): Build the optimizer after model.head is replaced.",
        "With the repair made, hold it against this run, or diagnose again:",
        f"weaklink recover {stale_head().folder} FIXED",
        "weaklink diagnose train.py",
    ]


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
