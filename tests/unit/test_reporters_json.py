from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from test_reporters_samples import (
    EVERY,
    confirmed,
    frozen_only,
    healthy,
    interrupted,
    rerun,
    stale_head,
    stale_verdict,
    suspected,
    withdrawn,
)

from weaklink.agent.record.bodies import Closed, VerdictReached
from weaklink.agent.reporters.json_report import diagnosis_json, error_json, receipt_json
from weaklink.agent.reporters.reading import effective_divergence, lead_mechanism, status_of
from weaklink.agent.verdict import IncidentStatus, MechanismOutcome, PredictionOutcome
from weaklink.collector.errors import SubjectError, WeaklinkError

KEYS = [
    "schema",
    "incident",
    "branch",
    "first_divergence",
    "mechanism",
    "alternatives",
    "where",
    "experiment",
    "predictions",
    "status",
    "advisor",
]


@pytest.mark.parametrize("name", EVERY)
def test_shape_and_strictness(name: str) -> None:
    sample = EVERY[name]()
    # `model` stands there where somebody was asked, under a schema of its own.
    assert list(diagnosis_json(sample)) == KEYS + ["model"] * (sample.beside is not None)
    text = json.dumps(receipt_json(sample), allow_nan=False)
    assert json.loads(text)["diagnosis"] == diagnosis_json(sample)


def test_stale_head() -> None:
    found = diagnosis_json(stale_head())
    mechanism = found.pop("mechanism")
    assert (mechanism["id"], mechanism["status"]) == ("optimizer_holds_old_objects", "supported")
    assert [(item["id"], item["status"]) for item in found.pop("alternatives")] == [
        ("rate_wrong", "refuted"),
        ("frozen_by_accident", "refuted"),
    ]
    assert found == {
        "schema": "weaklink.diagnosis/1",
        "incident": "incidents/20261130-120000-train-1a2b",
        "branch": "flat",
        "first_divergence": {
            "row": "OWNERSHIP/owned",
            "boundary": "OWNERSHIP",
            "status": "fail",
            "basis": "exact",
        },
        "where": [
            {
                "file": "train.py",
                "line": 52,
                "what": "head.weight was created here, after the optimizer; "
                "head.bias was created here, after the optimizer",
            },
            {"file": "train.py", "line": 48, "what": "the optimizer was built here"},
        ],
        "experiment": {
            "name": "own_missing_parameters",
            "parameters": {"group": 0},
            "must_change": ["row[OWNERSHIP/owned]", "moved[head.*]", "loss[50]"],
            "must_stay_unchanged": ["loss[1]", "gradient_digest[*]"],
        },
        "predictions": {"claim": "c1a1" * 16, "context": "c0" * 32, "held": 3, "failed": 0, "not_measured": 0},
        "status": {"cause": "supported", "action": "proposed", "recovery": "not attempted"},
        "advisor": "playbook",
    }


def test_before_a_rerun_nothing_is_held() -> None:
    found = diagnosis_json(frozen_only())
    assert found["mechanism"]["status"] == "not_tested"
    assert {key: found["predictions"][key] for key in ("held", "failed", "not_measured")} == {
        "held": 0,
        "failed": 0,
        "not_measured": 3,
    }


def test_healthy_accuses_nobody() -> None:
    found = diagnosis_json(healthy())
    assert found["first_divergence"] is None
    assert found["mechanism"] is None
    assert found["alternatives"] == found["where"] == []
    assert found["experiment"] is None
    assert found["predictions"] is None


def test_suspected_has_no_basis() -> None:
    found = diagnosis_json(suspected())
    assert found["first_divergence"] == {
        "row": "TASK/pairing",
        "boundary": "TASK",
        "status": "suspected",
        "basis": None,
    }
    assert found["where"] == [{"file": "data/labels.csv", "line": None, "what": "the run read its targets here"}]
    assert found["advisor"] == "openai"


def test_a_suspicion_the_rerun_refuted_is_withdrawn() -> None:
    found = diagnosis_json(withdrawn())
    assert found["first_divergence"] is None
    assert found["where"] == []
    assert found["mechanism"]["status"] == "refuted"


def test_a_suspicion_the_rerun_confirmed_is_a_controlled_fail() -> None:
    assert diagnosis_json(confirmed())["first_divergence"] == {
        "row": "UPDATE/rate",
        "boundary": "UPDATE",
        "status": "fail",
        "basis": "controlled",
    }


def test_a_row_that_the_treated_rerun_still_shows_is_not_withdrawn_with_its_explanation() -> None:
    sample = withdrawn()
    assert sample.verdict is not None
    there = PredictionOutcome(
        mechanism="rate_wrong",
        measurement="row[UPDATE/rate]",
        expect="different",
        control="suspected",
        treatment="suspected",
        status="failed",
    )
    sample.verdict.verdict.predictions.append(there)
    row = effective_divergence(sample)
    assert row is not None
    assert row.status == "suspected"
    there.treatment = "pass"
    assert effective_divergence(sample) is None


def test_a_dissent_settles_no_suspected_row() -> None:
    sample = withdrawn()
    sample.answered[0].proposal.dissent = "The targets look shifted."
    row = effective_divergence(sample)
    assert row is not None
    assert row.status == "suspected"


def test_an_exact_fail_stands_whatever_the_mechanism() -> None:
    reached = stale_verdict()
    for item in reached.verdict.mechanisms:
        item.status = "refuted"
    row = effective_divergence(replace(stale_head(), verdict=reached))
    assert row is not None
    assert row.id == "OWNERSHIP/owned"


def test_the_one_supported_mechanism_leads() -> None:
    reached = stale_verdict()
    reached.verdict.mechanisms = [
        MechanismOutcome(id="optimizer_holds_old_objects", status="refuted", reason=""),
        MechanismOutcome(id="frozen_by_accident", status="supported", reason=""),
    ]
    sample = replace(stale_head(), verdict=reached)
    found = diagnosis_json(sample)
    assert found["mechanism"]["id"] == "frozen_by_accident"
    assert found["predictions"]["held"] == 1
    assert [item["id"] for item in found["alternatives"]] == ["optimizer_holds_old_objects", "rate_wrong"]
    reached.verdict.mechanisms[0].status = "supported"
    lead = lead_mechanism(sample)
    assert lead is not None
    assert lead.id == "optimizer_holds_old_objects"


def test_status_of_a_later_verdict_is_newer_than_an_earlier_closing() -> None:
    early = Closed(status=IncidentStatus(cause="suspected"), exit_code=1)
    assert status_of(replace(stale_head(), closed=early)).cause == "supported"
    recovered = IncidentStatus(cause="supported", action="applied", recovery="recovered (bounded)")
    assert status_of(replace(stale_head(), closed=Closed(status=recovered, exit_code=0))) == recovered


def test_interrupted_is_not_measured() -> None:
    found = diagnosis_json(interrupted())
    assert found["branch"] == "not_measured"
    assert found["first_divergence"] is None


def test_receipt_holds_reruns_and_limits() -> None:
    sample = stale_head()
    sample.reruns.append(rerun("treatment", [0.7, math.nan]))
    found = receipt_json(sample)
    assert found["schema"] == "weaklink.receipt/1"
    assert len(found["chain"]) == 15
    assert len(found["predictions"]) == 9
    first = found["reruns"][0]
    assert (first["role"], first["outcome"], first["loss_first"]) == ("control", "stopped", 0.683606)
    assert found["reruns"][3]["loss_last"] == pytest.approx(0.409912)
    assert found["reruns"][4]["loss_last"] == "NaN"
    assert found["head"] == found["digests"]["head"] == "9" * 64
    assert [text.split(":")[0] for text in found["does_not_prove"]][-4:] == [
        "Objective",
        "Checkpoint",
        "Recurrence",
        "Record",
    ]


def test_reruns_that_died_are_kept() -> None:
    dead = rerun("control", [], evidence=None, problem="killed: out of memory")
    found = receipt_json(replace(stale_head(), reruns=[dead]))["reruns"][0]
    assert (found["outcome"], found["problem"], found["loss_first"]) == (None, "killed: out of memory", None)


def test_error() -> None:
    error = SubjectError("No such file.", about="trian.py", hint="check the path.")
    assert error_json(error) == {
        "schema": "weaklink.error/1",
        "error": "SubjectError",
        "message": "No such file.",
        "about": "trian.py",
        "hint": "check the path.",
        "exit_code": 2,
    }
    assert error_json(WeaklinkError("x"))["hint"] is None


def test_a_verdict_without_mechanisms_tests_nothing() -> None:
    empty = stale_verdict().verdict.model_copy(update={"mechanisms": [], "predictions": []})
    sample = replace(stale_head(), verdict=VerdictReached(verdict=empty, status=IncidentStatus()))
    found = diagnosis_json(sample)
    assert found["mechanism"]["status"] == "not_tested"
    assert found["predictions"]["not_measured"] == 3
