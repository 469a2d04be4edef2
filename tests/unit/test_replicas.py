"""Ranks compared by what each of them wrote: who is accused, and the many healthy ways to be unequal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weaklink.collector.errors import EvidenceError
from weaklink.collector.evidence import (
    Environment,
    Evidence,
    Outcome,
    Replica,
    ReplicaStep,
    Row,
    Site,
    Subject,
    write_evidence,
)
from weaklink.collector.replicas import compare, is_run_folder, merged, read_run

SITES = {
    "called": Site(file="train.py", line=9, what="Net called"),
    "loader": Site(file="train.py", line=4, what="DataLoader built"),
    "wrapped": Site(file="train.py", line=3, what="DistributedDataParallel built"),
    "no_sync": Site(file="train.py", line=8, what="no_sync entered"),
    "stepped": Site(file="train.py", line=11, what="SGD stepped"),
}


def a_step(rank: int, number: int, unequal: str = "") -> ReplicaStep:
    """What a healthy rank writes of a step; what is named in `unequal` is its own."""

    def value(part: str) -> str:
        return f"{part}{number}" + (f" of {rank}" if part in unequal.split() else "")

    return ReplicaStep(
        step=number,
        optimizer=0,
        inputs=[value("inputs")],
        targets=value("targets"),
        gradients=value("gradients"),
        before=value("before"),
        after=value("after"),
        gradients_by_parameter=[value("gradients"), "same"],
        after_by_parameter=[value("after"), "same"],
    )


def a_rank(rank: int, unequal: str = "inputs targets", steps: int = 5, size: int = 2, **changes: Any) -> Evidence:
    """A rank of a DDP run whose first step begins equal on all of them, with another batch for each."""
    later = [a_step(rank, number, unequal) for number in range(2, steps + 1)]
    replica = Replica(
        rank=rank,
        world_size=size,
        run="one",
        process_group=size,
        wrapped=list(range(size)),
        trainable=100,
        names=["0.module.head", "0.module.bias"],
        steps=[a_step(rank, 1, unequal.replace("before", "")), *later],
        sites=SITES,
    )
    return Evidence(
        subject=Subject(kind="script", name="train.py"),
        outcome=Outcome(ended="completed", steps=steps, backwards=steps, exit_code=0),
        environment=Environment(torch="2.13", python="3.11", platform="Linux", devices=["cpu"]),
        branch="learning",
        rows=[Row(id="TASK/rows", status="pass", text="rows")],
        replica=replica.model_copy(update=changes),
    )


DRIFTING = "inputs targets gradients before after"


def found(*ranks: Evidence) -> dict[str, Row]:
    return {row.boundary: row for row in compare(ranks)}


def statuses(*ranks: Evidence) -> list[str]:
    return [row.status for row in compare(ranks)]


def test_a_healthy_run_passes_all_three() -> None:
    assert statuses(a_rank(0), a_rank(1)) == ["pass", "pass", "pass"]
    assert "different data at 5 of 5" in found(a_rank(0), a_rank(1))["TASK"].text


def test_gradients_that_nobody_reduces_are_named_with_the_line() -> None:
    row = found(a_rank(0, DRIFTING), a_rank(1, DRIFTING))["GRADIENT"]
    assert (row.status, row.basis, row.step) == ("fail", "exact", 1)
    assert row.values["parameters"] == ["module.head"]
    assert [site.line for site in row.where] == [8, 9, 11]
    assert found(a_rank(0, DRIFTING), a_rank(1, DRIFTING))["UPDATE"].status == "fail"


def test_a_sampler_without_ddp_says_the_same_and_neither_of_them_nothing() -> None:
    dealt = {"wrapped": [], "sampler": True}
    assert found(a_rank(0, DRIFTING, **dealt), a_rank(1, DRIFTING, **dealt))["GRADIENT"].status == "fail"
    alone: dict[str, Any] = {"wrapped": []}
    assert statuses(a_rank(0, DRIFTING, **alone), a_rank(1, DRIFTING, **alone)) == ["pass", "evidence", "evidence"]


HEALTHY: dict[str, tuple[str, dict[str, Any]]] = {
    "a sweep without a process group": (DRIFTING, {"process_group": 0, "wrapped": []}),
    "folds of a cross-validation that gather their scores": (DRIFTING, {"wrapped": [], "exchanged": 2}),
    "an ensemble from one seed": (DRIFTING, {"wrapped": []}),
    "local SGD that averages parameters itself": (DRIFTING, {"exchanged": 100}),
    "one-shot averaging after the last step": (DRIFTING, {"wrapped": [], "sampler": True, "exchanged": 100}),
    "post-local SGD by a communication hook": (DRIFTING, {"hooked": True}),
    "fully sharded parameters": (DRIFTING, {"wrapped": [], "sampler": True, "sharded": True}),
    "replicas inside groups, parts of the model across them": (DRIFTING, {"wrapped": [0]}),
    "tensor parallelism: one batch for all": ("before after gradients", {"wrapped": [], "sharded": True}),
    "a pipeline: one batch for all": ("", {"wrapped": []}),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_ways_to_be_unequal_accuse_nobody(name: str) -> None:
    unequal, changes = HEALTHY[name]
    rows = compare([a_rank(0, unequal, **changes), a_rank(1, unequal, **changes)])
    assert [row.id for row in rows if row.status in ("fail", "suspected")] == []


def test_replicas_that_become_equal_again_are_averaged_by_somebody() -> None:
    ranks = [a_rank(rank, DRIFTING) for rank in (0, 1)]
    for one in ranks:
        assert one.replica is not None
        one.replica.steps[-1].before = "averaged"
    assert statuses(*ranks) == ["pass", "evidence", "evidence"]


def test_ranks_with_other_models_are_no_replicas() -> None:
    critic = a_rank(1, DRIFTING, names=["0.critic"], wrapped=[])
    assert statuses(a_rank(0, DRIFTING, wrapped=[]), critic) == ["pass", "evidence", "evidence"]


def test_one_step_is_too_little_to_say_that_ranks_part() -> None:
    assert "fail" not in statuses(a_rank(0, DRIFTING, steps=1), a_rank(1, DRIFTING, steps=1))


def test_the_same_data_on_all_ranks_fails_with_the_loader_as_its_place() -> None:
    row = found(a_rank(0, ""), a_rank(1, ""))["TASK"]
    assert (row.status, row.basis, row.where[0].line) == ("fail", "exact", 4)


def test_two_ranks_of_four_with_the_same_data_fail_too() -> None:
    """A sampler that is told the rank on its node: ranks 0 and 2 draw the same batches."""
    ranks = [a_rank(rank, size=4) for rank in range(4)]
    for first, second in ((0, 2), (1, 3)):
        one, other = ranks[first].replica, ranks[second].replica
        assert one is not None
        assert other is not None
        for step, its in zip(other.steps, one.steps, strict=True):
            step.inputs, step.targets = its.inputs, its.targets
    row = found(*ranks)["TASK"]
    assert row.status == "fail"
    assert row.values["alike"] == [0, 2]


def test_one_batch_at_every_step_is_all_the_data_there_is() -> None:
    ranks = [a_rank(rank, "") for rank in (0, 1)]
    for one in ranks:
        assert one.replica is not None
        for step in one.replica.steps:
            step.inputs, step.targets = ["the batch"], "its targets"
    assert found(*ranks)["TASK"].status == "evidence"


def test_equal_latents_beside_different_targets_are_different_data() -> None:
    assert found(a_rank(0, "targets"), a_rank(1, "targets"))["TASK"].status == "pass"


def test_inputs_that_cannot_be_read_are_not_measured() -> None:
    ranks = [a_rank(rank, "") for rank in (0, 1)]
    for one in ranks:
        assert one.replica is not None
        for step in one.replica.steps:
            step.inputs = [""]
    assert found(*ranks)["TASK"].status == "not_measured"


def test_weights_loaded_on_one_rank_alone_fail_by_the_parameters() -> None:
    ranks = [a_rank(rank, "inputs targets before after") for rank in (0, 1)]
    for one in ranks:
        assert one.replica is not None
        one.replica.steps[0].before += f" of {one.replica.rank}"
    rows = found(*ranks)
    assert rows["GRADIENT"].status == "pass"
    assert rows["UPDATE"].status == "fail"
    assert "did before the first one" in rows["UPDATE"].text


def test_devices_of_two_kinds_may_part_in_their_last_digits() -> None:
    ranks = [a_rank(rank, "inputs targets after before") for rank in (0, 1)]
    assert found(*ranks)["UPDATE"].status == "fail"
    ranks[1].environment.devices = ["another"]
    assert found(*ranks)["UPDATE"].status == "evidence"


def test_a_missing_rank_is_named_and_the_others_compared(tmp_path: Path) -> None:
    for rank in (0, 2):
        write_evidence(a_rank(rank, size=3), tmp_path / f"rank-{rank}.json")
    assert is_run_folder(tmp_path)
    whole = read_run(tmp_path)
    assert "rank 1 left no evidence" in whole.problems
    row = whole.row("GRADIENT/replicas")
    assert row is not None
    assert row.status == "pass"
    assert "no evidence of rank 1" in row.text


def test_one_rank_alone_is_not_compared(tmp_path: Path) -> None:
    write_evidence(a_rank(0), tmp_path / "rank-0.json")
    row = read_run(tmp_path).row("UPDATE/replicas")
    assert row is not None
    assert row.reason == "only rank 0 left evidence, not rank 1"


def test_files_of_an_earlier_launch_and_damaged_ones_are_left_out(tmp_path: Path) -> None:
    write_evidence(a_rank(3, run="earlier"), tmp_path / "rank-3.json")
    (tmp_path / "rank-2.json").write_text("{")
    for rank in (0, 1):
        write_evidence(a_rank(rank), tmp_path / f"rank-{rank}.json")
    whole = read_run(tmp_path)
    assert any(problem.startswith("rank-3.json was left out") for problem in whole.problems)
    assert any(problem.startswith("rank-2.json was left out") for problem in whole.problems)
    assert whole.first_divergence is None


def test_a_folder_without_any_readable_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rank-0.json").write_text("{")
    with pytest.raises(EvidenceError, match="No evidence of any rank"):
        read_run(tmp_path)


def test_what_diverges_on_another_rank_is_shown_as_its_own() -> None:
    other = a_rank(1)
    other.rows = [Row(id="TASK/rows", status="fail", basis="exact", text="they differ")]
    row = merged([a_rank(0), other]).row("TASK/rows")
    assert row is not None
    assert (row.status, row.text) == ("fail", "rank 1: they differ")


def test_a_rank_that_raises_because_another_was_killed_is_not_accused() -> None:
    ranks = [a_rank(0), a_rank(1)]
    ranks[0].rows.append(Row(id="GRADIENT/raised", status="fail", basis="exact", text="connection closed"))
    assert merged(ranks).first_divergence is not None
    ranks[1].outcome.ended = "killed"
    row = merged(ranks).row("GRADIENT/raised")
    assert row is not None
    assert row.status == "evidence"
    assert "rank 1 ended before its time" in row.text
