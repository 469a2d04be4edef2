"""The close-up's evidence put into the observed one, and when a close-up is taken at all."""

from __future__ import annotations

import pytest

from weaklink.agent.close_up import beginnings, closer
from weaklink.agent.runner import RunRecord
from weaklink.collector.errors import WorkerError
from weaklink.collector.evidence import Environment, Evidence, Outcome, Row, Series, Site, Subject
from weaklink.collector.job import CANNOT_COPY, JobResult
from weaklink.collector.merging import merged, needs_looks_in_place


def line(number: int) -> Site:
    return Site(file="train.py", line=number, what="called")


def evidence(*rows: Row, losses: tuple[float, ...] = (1.0, 0.5), steps: int = 100, **more: object) -> Evidence:
    return Evidence(
        subject=Subject(kind="script", name="train.py"),
        outcome=Outcome(ended="completed", backwards=steps, steps=steps, forwards=steps, seconds=1.0),
        environment=Environment(torch="2.13", python="3.11", platform="Linux"),
        branch="flat",
        rows=list(rows),
        losses=Series(index=list(range(1, len(losses) + 1)), value=list(losses)),
        **more,  # type: ignore[arg-type]
    )


def failing(row_id: str, number: int, **more: object) -> Row:
    return Row.model_validate(
        {"id": row_id, "status": "fail", "basis": "exact", "text": "t", "where": [line(number)], "step": 1} | more
    )


def test_a_row_that_only_a_close_up_has_is_added_in_chain_order() -> None:
    observed = evidence(Row(id="TASK/rows", status="pass", text="t"), failing("UPDATE/moved", 9))
    found = merged(observed, evidence(failing("DEPENDENCY/terms", 3), failing("UPDATE/steps", 4)))
    assert [row.id for row in found.rows] == ["TASK/rows", "DEPENDENCY/terms", "UPDATE/moved"]
    assert found.first_divergence is not None
    assert found.first_divergence.id == "DEPENDENCY/terms"
    assert found.row("UPDATE/moved").downstream  # type: ignore[union-attr]
    assert [row.id for row in observed.rows] == ["TASK/rows", "UPDATE/moved"]


def test_a_loss_that_broadcasts_is_one_finding_with_the_line_of_its_call() -> None:
    found = merged(evidence(failing("OBJECTIVE/shapes", 9)), evidence(failing("OBJECTIVE/broadcast", 7)))
    assert [row.id for row in found.rows] == ["OBJECTIVE/shapes"]
    assert [site.line for site in found.rows[0].where] == [7, 9]


def test_a_cut_path_takes_its_line_only_where_the_same_parameters_are_missed() -> None:
    mine = Row(id="DEPENDENCY/reached", status="suspected", text="t", values={"missed": ["a"]}, where=[line(20)])
    same = mine.model_copy(update={"where": [line(5)], "values": {"missed": ["a"], "cut": ["train.py:5"]}})
    more = mine.model_copy(update={"where": [line(6)], "values": {"missed": ["a", "b"]}})
    assert merged(evidence(mine), evidence(same)).rows[0].where == [line(5)]
    assert merged(evidence(mine), evidence(more)).rows[0].where == [line(20)]


def origin(step: int, direction: str = "backward") -> Row:
    values = {"direction": direction, "operation": "sqrt"}
    return Row(id="GRADIENT/origin", status="evidence", text="sqrt", values=values, where=[line(3)], step=step)


def suspected(step: int) -> Row:
    return Row(id="GRADIENT/finite", status="suspected", text="t", where=[line(9)], step=step)


NAN = float("nan")


@pytest.mark.parametrize(
    ("row_step", "origin_step", "losses", "status"),
    [
        (100, 3, (1.0, 1.0, 1.0, NAN, NAN, NAN), "fail"),
        (4, 3, (1.0, 1.0, 1.0, NAN, NAN, NAN), "fail"),
        (100, 1, (1.0, NAN, 1.0, NAN, 1.0, NAN), "suspected"),
        (4, 3, (1.0, 1.0, 1.0, NAN, 1.0, 1.0), "suspected"),
        (2, 3, (1.0, NAN, 1.0, NAN, NAN, NAN), "suspected"),
    ],
)
def test_the_origin_settles_a_run_that_never_came_back(
    row_step: int, origin_step: int, losses: tuple[float, ...], status: str
) -> None:
    found = merged(evidence(suspected(row_step), losses=losses), evidence(origin(origin_step)))
    assert found.row("GRADIENT/finite").status == status  # type: ignore[union-attr]


def test_an_origin_that_is_another_one_lends_no_line() -> None:
    found = merged(evidence(suspected(100), losses=(1.0, NAN, 1.0, 1.0, NAN)), evidence(origin(1)))
    assert found.row("GRADIENT/finite").where == [line(9)]  # type: ignore[union-attr]


def test_rows_that_wanted_a_copy_are_taken_from_the_run_that_exists_for_them() -> None:
    wanting = Row(id="TASK/isolation", status="not_measured", text="t", reason=f"no look: {CANNOT_COPY}")
    other = Row(id="TASK/rule", status="not_measured", text="t", reason="none was declared")
    looked = evidence(
        Row(id="TASK/isolation", status="pass", text="seen"), Row(id="TASK/rule", status="pass", text="s")
    )
    observed = evidence(wanting, other)
    assert needs_looks_in_place(observed)
    assert [row.status for row in merged(observed, None, looked).rows] == ["pass", "not_measured"]
    assert not needs_looks_in_place(evidence(other))


def test_where_a_close_up_begins() -> None:
    assert beginnings(evidence(stages=[1, 40])) == [1, 40]
    assert beginnings(evidence(suspected(50), losses=(1.0,) * 19 + (NAN,))) == [1, 18]
    assert beginnings(evidence(steps=0)) == []
    assert beginnings(evidence(failing("TASK/finite", 3))) == []
    assert beginnings(evidence(failing("OBJECTIVE/shapes", 3))) == [1]


def test_a_stage_too_far_into_a_long_run_is_left_out() -> None:
    long = evidence(stages=[1, 90])
    long.outcome.seconds = 3600.0
    assert beginnings(long) == [1]


class Reruns:
    """In place of a runner: answers with evidence, and counts what it was asked for."""

    def __init__(self, close: Evidence, looked: Evidence | None = None, interrupted: bool = False) -> None:
        self.asked: list[str] = []
        self._close, self._looked, self._interrupted = close, looked, interrupted

    def close_up(self, observed: Evidence, starts: list[int]) -> RunRecord:
        self.asked.append(f"close-up at {starts}")
        return self._record(self._close)

    def look(self, observed: Evidence) -> RunRecord:
        self.asked.append("looks")
        return self._record(self._looked)

    def _record(self, found: Evidence | None) -> RunRecord:
        result = JobResult(exit_code=0, seconds=1.0, output_sha256="", output_bytes=0, interrupted=self._interrupted)
        return RunRecord(found, result)


def test_looks_are_taken_in_a_rerun_where_the_observed_run_could_not_be_copied() -> None:
    wanting = Row(id="TASK/isolation", status="not_measured", text="t", reason=CANNOT_COPY)
    looked = evidence(Row(id="TASK/isolation", status="pass", text="seen"))
    runner = Reruns(evidence(failing("DEPENDENCY/terms", 3)), looked)
    told: list[int] = []
    found, interrupted = closer(runner, evidence(wanting), told.append)  # type: ignore[arg-type]
    assert runner.asked == ["close-up at [1]", "looks"]
    assert [(row.id, row.status) for row in found.rows] == [("TASK/isolation", "pass"), ("DEPENDENCY/terms", "fail")]
    assert told == [6, 100]
    assert not interrupted


def test_a_close_up_that_is_interrupted_ends_there() -> None:
    runner = Reruns(evidence(), interrupted=True)
    assert closer(runner, evidence())[1]  # type: ignore[arg-type]


def test_a_close_up_that_fails_leaves_the_chain_as_it_is() -> None:
    class Failing(Reruns):
        def close_up(self, observed: Evidence, starts: list[int]) -> RunRecord:
            raise WorkerError("it died", about="train.py", hint="")

    found, interrupted = closer(Failing(evidence()), evidence(failing("UPDATE/moved", 3)))  # type: ignore[arg-type]
    assert [row.id for row in found.rows] == ["UPDATE/moved"]
    assert found.problems == ["close-up: it died"]
    assert not interrupted
