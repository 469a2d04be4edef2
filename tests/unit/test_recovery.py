"""What decides a recovery: the incident's own row over several seeds, and a declared metric whose ranges keep apart."""

from __future__ import annotations

import json
import math
from datetime import datetime, timezone
from pathlib import Path

import pytest
from evidence_samples import EMPTY
from test_reporters_samples import Sample, stale_head

from weaklink.agent.baseline import FILE_BYTES, FOLDER, keep_baseline, lay_baseline
from weaklink.agent.record.bodies import Opened
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.record.incident import Incident, new_incident
from weaklink.agent.record.recoveries import KeptFile, RecoveryFinished, RecoveryRun, UsedMetric
from weaklink.agent.recovery.decision import CHANCE, by_chance, decide
from weaklink.agent.recovery.metric import metric_of, read_metric
from weaklink.agent.recovery.runs import compare
from weaklink.agent.reporters.html import render_html
from weaklink.agent.reporters.limits import limits
from weaklink.agent.reporters.markdown import render_markdown
from weaklink.agent.reporters.recovery import recovery_json
from weaklink.agent.reporters.terminal import render_incident
from weaklink.agent.verdict import IncidentStatus
from weaklink.collector.declared import Metric
from weaklink.collector.errors import UsageError
from weaklink.collector.evidence import RaisedException, Row, SourceFile

ROW = "OWNERSHIP/owned"
ACCURACY = UsedMetric(name="accuracy", direction="max", declared="command line")


def runs(
    side: str, rows: str, metric: tuple[float | None, ...] = (None, None, None), **changed: object
) -> list[RecoveryRun]:
    """Three runs of one side; `rows` has a word for each, or one for all."""
    words = rows.split() if " " in rows else [rows] * 3
    return [
        RecoveryRun.model_validate(
            {"side": side, "seed": seed, "ended": "completed", "row": word, "metric": value, **changed}
        )
        for seed, (word, value) in enumerate(zip(words, metric, strict=True))
    ]


def verdict(before: list[RecoveryRun], after: list[RecoveryRun], metric: UsedMetric | None = None) -> str:
    return decide(ROW, [*before, *after], metric).recovery


# -- rows --------------------------------------------------------------------------------------------------------------


def test_a_row_that_passes_on_every_seed_recovers_and_the_missing_metric_is_told() -> None:
    found = decide(ROW, [*runs("baseline", "fail"), *runs("repair", "pass")], None)
    assert found.recovery == "recovered (bounded)"
    assert any("no metric was declared: nothing is said about how well it learns" in text for text in found.limits)
    assert [text.partition(":")[0] for text in found.limits[-3:]] == ["Objective", "Checkpoint", "Recurrence"]


def test_a_suspected_row_must_lose_its_suspicion_and_a_number_alone_is_told() -> None:
    assert verdict(runs("baseline", "suspected"), runs("repair", "suspected")) == "not recovered"
    found = decide(ROW, [*runs("baseline", "suspected"), *runs("repair", "evidence")], None)
    assert found.recovery == "recovered (bounded)"
    assert any("gives a number there" in text for text in found.limits)


def test_one_seed_on_which_the_row_diverges_is_enough_against_a_repair() -> None:
    found = decide(ROW, [*runs("baseline", "fail"), *runs("repair", "pass fail pass")], None)
    assert found.recovery == "not recovered"
    assert "seed 1" in found.reasons[0]


@pytest.mark.parametrize(
    ("row", "decided"),
    [
        ("OBJECTIVE/reduction", "recovered (bounded)"),
        ("GRADIENT/raised", "recovered (bounded)"),
        ("OWNERSHIP/owned", "inconclusive"),
    ],
)
def test_a_row_that_is_told_only_where_it_is_found_passes_by_its_absence(row: str, decided: str) -> None:
    assert decide(row, [*runs("baseline", "fail"), *runs("repair", "absent")], None).recovery == decided


@pytest.mark.parametrize("row", ["not_measured", "absent"])
def test_what_is_not_measured_does_not_pass(row: str) -> None:
    assert verdict(runs("baseline", "fail"), runs("repair", f"pass {row} pass")) == "inconclusive"


def test_a_row_that_the_baseline_shows_on_some_seeds_only_may_pass_by_chance() -> None:
    assert verdict(runs("baseline", "fail pass fail"), runs("repair", "pass")) == "inconclusive"
    found = decide(ROW, [*runs("baseline", "fail pass pass"), *runs("repair", "pass")], None)
    assert "shows OWNERSHIP/owned on 1 of 3 seeds" in found.reasons[0]
    assert "--seeds 12" in found.reasons[0]
    apart = runs("baseline", "fail pass fail", (0.5, 0.6, 0.5)), runs("repair", "pass", (0.8, 0.9, 0.8))
    assert verdict(*apart, ACCURACY) == "recovered (bounded)"


def test_more_seeds_tell_a_row_that_comes_and_goes_from_chance() -> None:
    before, after = runs("baseline", "fail pass pass") * 4, runs("repair", "pass") * 4
    assert verdict(before[:9], after[:9]) == "inconclusive"
    assert verdict(before, after) == "recovered (bounded)"
    assert by_chance(3, 3) == CHANCE


def test_a_baseline_that_no_longer_shows_its_row_or_changed_is_nothing_to_compare_with() -> None:
    assert verdict(runs("baseline", "pass"), runs("repair", "pass")) == "inconclusive"
    both = [*runs("baseline", "fail"), *runs("repair", "pass")]
    found = decide(ROW, both, None, ["data/labels.csv"])
    assert found.recovery == "inconclusive"
    assert "data/labels.csv" in found.reasons[0]


def test_an_earlier_row_that_newly_fails_is_a_repair_that_broke_something() -> None:
    before, after = runs("baseline", "fail"), runs("repair", "pass")
    for run, status in ((before[1], "pass"), (after[1], "fail")):
        run.rows = {"TASK/finite": status, ROW: run.row, "UPDATE/moved": "fail"}
    compare(ROW, before, after)
    assert after[1].newly_failing == ["TASK/finite"]
    assert verdict(before, after) == "incomplete"


def test_an_earlier_row_that_failed_before_is_not_held_against_the_repair() -> None:
    before, after = runs("baseline", "fail"), runs("repair", "pass")
    before[0].rows, after[0].rows = {"TASK/finite": "suspected", ROW: "fail"}, {"TASK/finite": "fail", ROW: "pass"}
    compare(ROW, before, after)
    assert after[0].newly_failing == []


# -- how the repair ends -----------------------------------------------------------------------------------------------


def test_a_repair_that_raises_on_one_seed_is_none() -> None:
    after = runs("repair", "pass")
    after[2].raised = RaisedException(type="RuntimeError", message="shapes")
    assert verdict(runs("baseline", "fail"), after) == "not recovered"
    assert verdict(runs("baseline", "fail", (0.1, 0.1, 0.1)), after, ACCURACY) == "not recovered"


def test_a_repair_that_leaves_with_an_exit_code_of_its_own_is_none() -> None:
    assert verdict(runs("baseline", "fail", exit_code=0), runs("repair", "pass", exit_code=3)) == "not recovered"
    assert verdict(runs("baseline", "fail", exit_code=3), runs("repair", "pass", exit_code=3)) == "recovered (bounded)"


def test_a_repair_that_nobody_saw_to_its_end_is_not_judged() -> None:
    assert verdict(runs("baseline", "fail"), runs("repair", "pass", ended="deadline")) == "inconclusive"
    cut = runs("baseline", "fail", ended="deadline"), runs("repair", "pass", ended="deadline")
    assert verdict(*cut) == "recovered (bounded)"
    assert verdict(runs("baseline", "fail"), runs("repair", "absent", problem="nothing was measured")) == "inconclusive"


# -- the metric --------------------------------------------------------------------------------------------------------


def test_a_metric_that_is_better_while_the_cause_remains_is_told_as_that() -> None:
    found = decide(
        ROW, [*runs("baseline", "fail", (0.5, 0.6, 0.5)), *runs("repair", "fail", (0.7, 0.8, 0.9))], ACCURACY
    )
    assert found.recovery == "incomplete"
    assert found.reasons[0].startswith("The metric is better, the cause remains")


@pytest.mark.parametrize(
    ("repaired", "expected"),
    [
        ((0.7, 0.8, 0.9), "recovered (bounded)"),
        ((0.6, 0.8, 0.9), "incomplete"),
        ((0.1, 0.2, 0.3), "incomplete"),
        ((0.7, None, 0.9), "inconclusive"),
        ((0.7, math.nan, 0.9), "incomplete"),
    ],
)
def test_ranges_over_the_seeds_must_not_touch(repaired: tuple[float | None, ...], expected: str) -> None:
    assert verdict(runs("baseline", "fail", (0.5, 0.6, 0.5)), runs("repair", "pass", repaired), ACCURACY) == expected


def test_a_smaller_number_is_better_where_that_was_declared_and_nan_is_the_worst() -> None:
    loss = UsedMetric(name="loss", direction="min", declared="weaklink.toml")
    before = runs("baseline", "fail", (2.0, math.nan, 3.0))
    assert verdict(before, runs("repair", "pass", (1.0, 1.5, 0.5)), loss) == "recovered (bounded)"
    assert verdict(before, runs("repair", "pass", (1.0, 2.5, 0.5)), loss) == "incomplete"


@pytest.mark.parametrize(
    ("output", "name", "expected"),
    [
        ("epoch 1 val_accuracy 0.50\nepoch 2 val_accuracy 0.91", "val_accuracy", 0.91),
        ("val acc: 0.91", "val_acc", 0.91),
        ("accuracy=0.91, loss=2", "accuracy", 0.91),
        ("Val Accuracy = 91.5%", "val_accuracy", 0.915),
        ('{"val_loss": 1e-3, "x": 4}', "val_loss", 0.001),
        ("val_loss tensor(0.25)", "val_loss", 0.25),
        ("| accuracy | 0.75 |", "accuracy", 0.75),
        ("accuracy nan", "accuracy", math.nan),
        ("epoch,val_acc,loss\n1,0.5,2\n2,0.75,1", "val_acc", 0.75),
        ("train accuracy 0.99 test accuracy 0.91", "test accuracy", 0.91),
        ("score -1.5", "score", -1.5),
        ("steps 1,250", "steps", 1250.0),
        ("best_val_acc 0.93", "val_acc", None),
        ("accuracy_top5 0.93", "accuracy", None),
        ("accuracy is high", "accuracy", None),
        ("", "accuracy", None),
        ("a[b 0.1", "a[b", 0.1),
    ],
)
def test_the_metric_is_the_last_number_after_its_name(output: str, name: str, expected: float | None) -> None:
    assert read_metric(output, name) == pytest.approx(expected, nan_ok=True)


def test_the_command_line_wins_over_the_file_and_must_say_which_way_is_better() -> None:
    declared = Metric(name="loss", direction="min")
    assert metric_of("val:acc:max", declared) == UsedMetric(name="val:acc", direction="max", declared="command line")
    assert metric_of(None, declared) == UsedMetric(name="loss", direction="min", declared="weaklink.toml")
    assert metric_of(None, None) is None
    for wrong in ("accuracy", ":max", "accuracy:up", "_:max"):
        with pytest.raises(UsageError):
            metric_of(wrong, None)


# -- what is told ------------------------------------------------------------------------------------------------------


def recovered(metric: UsedMetric | None, before: tuple[float | None, ...], after: tuple[float | None, ...]) -> Sample:
    both = [*runs("baseline", "fail", before), *runs("repair", "pass", after)]
    decision = decide(ROW, both, metric)
    sample = stale_head()
    sample.recovery = RecoveryFinished(  # type: ignore[attr-defined]
        row=ROW,
        subject=EMPTY.subject,
        folder="/home/somebody",
        runs=both,
        metric=metric,
        reasons=decision.reasons,
        limits=decision.limits,
        status=IncidentStatus(cause="supported", action="applied", recovery=decision.recovery),
    )
    return sample


def test_every_report_shows_both_sides_and_the_sentence_that_decides() -> None:
    sample = recovered(ACCURACY, (0.5, 0.6, 0.5), (0.7, 0.8, 0.9))
    told = " ".join(render_incident(sample).split())
    assert "recovered (bounded): OWNERSHIP/owned passes on seeds 0, 1, 2 of the repair" in told
    assert "accuracy (more is better) before 0.5 0.6 0.5 0.5 to 0.6" in told
    assert "accuracy (more is better) repaired 0.7 0.8 0.9 0.7 to 0.9" in told
    assert "weaklink export" in told.partition("Next ")[2]
    assert "## Recovery" in render_markdown(sample)
    assert "accuracy (more is better)" in render_html(sample)
    assert not any(text.startswith("Repair: that a repaired script learns") for text in limits(sample))


def test_a_metrics_name_is_text_in_every_report_and_what_is_not_finite_is_a_word_in_the_object() -> None:
    hostile = UsedMetric(name="<script>|x|[red]", direction="min", declared="command line")
    sample = recovered(hostile, (math.nan, 2.0, math.inf), (1.0, 1.5, 0.5))
    assert "&lt;script&gt;|x|[red]" in render_html(sample)
    assert "<script>|" not in render_html(sample) + render_markdown(sample)
    body = json.loads(json.dumps(recovery_json(sample), allow_nan=False))
    assert body["baseline"]["metric"] == [2.0, "Infinity"]
    assert body["repair"]["metric"] == [0.5, 1.5]
    assert [run["metric"] for run in body["baseline"]["runs"]] == ["NaN", 2.0, "Infinity"]


# -- the baseline that is kept -----------------------------------------------------------------------------------------


def opened(folder: Path) -> Opened:
    return Opened(
        id=folder.name,
        created="2026-11-30T15:02:07+00:00",
        weaklink="0.1.0",
        subject=EMPTY.subject,
        source="script",
        folder="/home/somebody",
        python="python3",
        advisor="playbook",
    )


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A working folder: a script, data that it reads, an empty folder, a large file that nobody was seen to read."""
    folder = tmp_path / "work"
    (folder / "data").mkdir(parents=True)
    (folder / "out").mkdir()
    (folder / "train.py").write_text("print(1)\n")
    (folder / "data" / "labels.csv").write_text("1,0\n")
    with (folder / "data" / "large.bin").open("wb") as file:
        file.truncate(FILE_BYTES + 1)
    return folder


def keep(folder: Path, tmp_path: Path) -> Incident:
    where = new_incident(tmp_path / "incidents", "train", datetime.now(timezone.utc))
    found = EMPTY.model_copy(deep=True)
    found.sources = [SourceFile(path="train.py", sha256="0" * 64)]
    found.rows = [
        Row(id="TASK/files", status="evidence", text="read", values={"data": ["data/labels.csv", "data/large.bin"]})
    ]
    with RecordWriter(where) as writer:
        writer.append("incident.opened", opened(where))
        keep_baseline(where, folder, found, writer)
    return Incident.read(where)


def lay(incident: Incident, folder: Path, target: Path) -> list[str]:
    assert incident.baseline is not None
    return lay_baseline(incident.folder, incident.baseline, folder, target)


def test_the_baseline_is_what_it_was_when_the_originals_have_been_mended(work: Path, tmp_path: Path) -> None:
    incident = keep(work, tmp_path)
    (work / "train.py").write_text("print(2)\n")
    (work / "data" / "labels.csv").unlink()
    (work / "extra.py").write_text("")
    assert lay(incident, work, tmp_path / "again" / "work") == []
    again = tmp_path / "again" / "work"
    assert (again / "train.py").read_text() == "print(1)\n"
    assert (again / "data" / "labels.csv").read_text() == "1,0\n"
    assert (again / "out").is_dir()
    assert not (again / "extra.py").exists()
    assert (again / "data" / "large.bin").resolve() == (work / "data" / "large.bin").resolve()


def test_a_large_file_is_not_copied_and_is_named_when_it_is_another(work: Path, tmp_path: Path) -> None:
    incident = keep(work, tmp_path)
    assert not (incident.folder / FOLDER / "data" / "large.bin").exists()
    with (work / "data" / "large.bin").open("r+b") as file:
        file.write(b"x")
    assert lay(incident, work, tmp_path / "again") == ["data/large.bin"]


def test_a_kept_copy_that_was_edited_is_named(work: Path, tmp_path: Path) -> None:
    incident = keep(work, tmp_path)
    (incident.folder / FOLDER / "train.py").write_text("print(3)\n")
    assert lay(incident, work, tmp_path / "again") == ["train.py"]


def test_a_path_in_a_foreign_record_does_not_lead_out_of_the_folder(work: Path, tmp_path: Path) -> None:
    incident = keep(work, tmp_path)
    assert incident.baseline is not None
    incident.baseline.files = [KeptFile(path="../../outside.txt", size=1, kept=True)]
    assert lay(incident, work, tmp_path / "a" / "b") == ["../../outside.txt"]
    assert not (tmp_path / "outside.txt").exists()


def test_a_folder_that_cannot_be_copied_keeps_no_baseline_and_says_why(tmp_path: Path) -> None:
    incident = keep(tmp_path / "gone", tmp_path)
    assert incident.baseline is not None
    assert incident.baseline.files == []
    assert "nothing was kept" in str(incident.baseline.problem)
