"""Asking for an instrument: what is refused, which step is chosen, and what text comes back."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from evidence_samples import stale_head_evidence

from weaklink.agent.instruments import default_step, run_instrument
from weaklink.agent.runner import Runner
from weaklink.collector.asked import INSTRUMENTS, TABLE_LINES, InstrumentResult
from weaklink.collector.errors import WorkerError
from weaklink.collector.evidence import Evidence, Row, Series
from weaklink.collector.measuring.result import found, missing

ROOT = Path(__file__).parents[2]


class Answering:
    """In place of a runner: answers with a result, a reason, or an error."""

    def __init__(self, result: InstrumentResult | None = None, why: str = "", error: Exception | None = None) -> None:
        self.result, self.why, self.error = result, why, error
        self.asked: list[tuple[str, int]] = []

    def instrument(self, observed: Evidence, name: str, step: int) -> tuple[InstrumentResult | None, str]:
        self.asked.append((name, step))
        if self.error is not None:
            raise self.error
        return self.result, self.why


def runner(**answer: object) -> Runner:
    return cast(Runner, Answering(**answer))  # type: ignore[arg-type]


def evidence(steps: int = 20, backwards: int = 20, seconds: float = 1.0, rows: list[Row] | None = None) -> Evidence:
    made = stale_head_evidence().model_copy(deep=True)
    made.outcome.steps, made.outcome.backwards, made.outcome.seconds = steps, backwards, seconds
    made.losses = Series(index=[1], value=[1.0])
    made.rows = rows if rows is not None else made.rows
    return made


@pytest.mark.parametrize(
    ("name", "step", "why"),
    [
        ("x_ray", None, "there is no such instrument"),
        ("slices\x1b[2J", None, "there is no such instrument"),
        ("slices", 0, "steps count from 1"),
        ("slices", 21, "the observed run took 20 steps"),
    ],
)
def test_bad_requests_are_refused_with_a_reason_and_run_nothing(name: str, step: int | None, why: str) -> None:
    asked = Answering()
    looked = run_instrument(cast(Runner, asked), evidence(), name, step)
    assert not looked.ok
    assert why in looked.text
    assert looked.request == {"name": name, "step": step}
    assert asked.asked == []
    assert looked.text.isprintable()


def test_what_has_no_script_here_is_sent_to_where_the_script_is() -> None:
    assert "run it where the script is" in run_instrument(None, evidence(), "slices").text
    live = evidence()
    live.subject = live.subject.model_copy(update={"kind": "process"})
    assert "run it where the script is" in run_instrument(runner(), live, "slices").text


def test_a_crash_and_an_error_of_the_worker_are_told_not_raised() -> None:
    crashed = run_instrument(runner(why="the rerun ended before it could measure: signal 11"), evidence(), "slices")
    assert (crashed.ok, crashed.text) == (False, "the rerun ended before it could measure: signal 11")
    failed = run_instrument(runner(error=WorkerError("The fork server died.")), evidence(), "slices")
    assert (failed.ok, failed.text) == (False, "The fork server died.")


def test_names_in_a_result_cannot_reach_a_terminal() -> None:
    result = found("slices", 3, "the batch", ("slice", "examples"), [["evil\x1b[31m\nname", 3]], ["note\u202e"])
    looked = run_instrument(runner(result=result), evidence(), "slices", 3)
    assert looked.ok
    assert all(line.isprintable() for line in looked.text.splitlines())
    assert "\\x1b[31m\\nname" in looked.text
    assert looked.text.startswith("slices at step 3 of a rerun: For which rows")


def test_not_measured_is_no_success() -> None:
    looked = run_instrument(runner(result=missing("tiny_batch", 1, "the model is compiled")), evidence(), "tiny_batch")
    assert not looked.ok
    assert looked.text.endswith("not measured: the model is compiled")


def test_a_long_table_keeps_both_ends_and_counts_the_rest() -> None:
    result = found("slices", 1, "t", ("slice", "examples"), [[f"class {n}", n] for n in range(300)])
    lines = result.table.splitlines()
    assert len(lines) == TABLE_LINES + 3
    assert lines[2].startswith("class 0")
    assert lines[-1].startswith("class 299")
    assert "... 250 left out ..." in result.table
    assert len(result.rows) == 300


def test_figures_that_are_no_numbers_survive_the_file() -> None:
    result = found("tiny_batch", 1, "t", ("steps by", "loss after"), [["SGD", float("nan")], ["Adam", float("inf")]])
    again = InstrumentResult.model_validate_json(result.model_dump_json())
    assert again.table == result.table
    assert [str(row["loss after"]).lower()[:3] for row in again.rows] == ["nan", "inf"]


def test_steps_that_are_chosen() -> None:
    broken = Row(id="GRADIENT/finite", status="fail", basis="exact", text="t", step=9, values={"nonfinite": 3})
    nonfinite = evidence(rows=[broken])
    chosen = {name: default_step(nonfinite, name) for name in INSTRUMENTS}
    assert chosen == {
        "activation_statistics": 8,
        "nonfinite_trace": 7,
        "slices": 8,
        "learning_rates": 1,
        "tiny_batch": 1,
    }
    assert default_step(evidence(rows=[]), "activation_statistics") == 1
    assert default_step(evidence(rows=[]), "slices") == 20
    assert default_step(evidence(steps=20, backwards=10, rows=[]), "slices") == 19
    assert default_step(evidence(steps=3000, backwards=3000, seconds=300.0, rows=[]), "slices") == 300
    assert default_step(evidence(steps=0, backwards=5, rows=[]), "slices") == 1


def test_the_page_tells_of_every_instrument() -> None:
    page = (ROOT / "docs" / "instruments.md").read_text(encoding="utf-8")
    assert [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")] == list(INSTRUMENTS)
