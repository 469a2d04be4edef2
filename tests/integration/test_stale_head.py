"""The main job on the chapter's stale head, end to end."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from conftest import STALE_HEAD, Diagnosed, call

from weaklink.agent.record.bodies import RerunFinished, RerunStarted
from weaklink.collector.evidence import Evidence, read_evidence

KEYS = {
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
}


def line_of(text: str) -> int:
    lines = STALE_HEAD.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def rerun(diagnosed: Diagnosed, role: str) -> Evidence:
    found = next(r for r in diagnosed.incident.reruns if r.role == role)
    assert found.evidence is not None
    return found.evidence


def test_json_is_one_object_with_exactly_the_promised_keys(stale_head: Diagnosed) -> None:
    body = stale_head.body
    assert set(body) == KEYS
    assert body["schema"] == "weaklink.diagnosis/1"
    assert set(body["first_divergence"]) == {"row", "boundary", "status", "basis"}
    assert set(body["mechanism"]) == {"id", "explanation", "status"}
    assert set(body["predictions"]) == {"claim", "context", "held", "failed", "not_measured"}
    assert all(set(site) == {"file", "line", "what"} for site in body["where"])


def test_the_divergence_is_ownership_by_identity(stale_head: Diagnosed) -> None:
    assert stale_head.ran.code == 1
    assert stale_head.body["branch"] == "flat"
    assert stale_head.body["first_divergence"] == {
        "row": "OWNERSHIP/owned",
        "boundary": "OWNERSHIP",
        "status": "fail",
        "basis": "exact",
    }
    assert stale_head.body["advisor"] == "playbook"


def test_both_lines_are_named_the_early_optimizer_first(stale_head: Diagnosed) -> None:
    where = stale_head.body["where"]
    assert [(site["file"], site["line"]) for site in where[:2]] == [
        ("train.py", line_of("torch.optim.AdamW(")),
        ("train.py", line_of("model.head = nn.Linear(32, 2)")),
    ]


def test_the_chain_shows_the_figures_of_the_chapter(stale_head: Diagnosed) -> None:
    evidence = stale_head.incident.evidence
    assert evidence is not None
    rows = {row.id: row for row in evidence.rows}
    assert rows["TASK/classes"].values["counts"] == [1039, 1009]
    assert rows["TASK/classes"].values["majority"] == pytest.approx(0.5073, abs=5e-5)
    assert evidence.losses.value == pytest.approx([0.683606] * 301, abs=5e-7)
    assert rows["OWNERSHIP/owned"].values["owned"] == 0
    assert rows["OWNERSHIP/owned"].values["expected"] == 2
    assert (rows["OWNERSHIP/stale"].values["stale"], rows["OWNERSHIP/stale"].values["held"]) == (2, 6)
    assert rows["UPDATE/moved"].values["moved"] == 0
    assert rows["UPDATE/frozen"].values == {"still": 4, "frozen": 4}
    assert rows["GRADIENT/norm"].values["norm"] == pytest.approx(0.155585, rel=1e-3)
    assert [rows[name].downstream for name in ("OWNERSHIP/owned", "OWNERSHIP/stale", "UPDATE/moved")] == [
        False,
        True,
        True,
    ]


def test_the_treated_loss_falls_as_in_the_chapter(stale_head: Diagnosed) -> None:
    control, treated = rerun(stale_head, "control"), rerun(stale_head, "treatment")
    assert set(control.losses.value) == {control.losses.value[0]}
    assert treated.losses.value[0] == control.losses.value[0]
    assert round(treated.losses.value[50], 4) == 0.4099
    assert round(treated.losses.value[200], 4) == 0.2115


def test_mechanism_supported_and_both_rivals_refuted(stale_head: Diagnosed) -> None:
    body = stale_head.body
    assert body["mechanism"]["id"] == "optimizer_holds_old_objects"
    assert body["mechanism"]["status"] == "supported"
    assert {a["id"]: a["status"] for a in body["alternatives"]} == {
        "rate_wrong": "refuted",
        "frozen_by_accident": "refuted",
    }
    assert (body["predictions"]["failed"], body["predictions"]["not_measured"]) == (0, 0)
    assert body["status"] == {"cause": "supported", "action": "proposed", "recovery": "not attempted"}


def test_what_had_to_stay_is_bitwise_equal(stale_head: Diagnosed) -> None:
    verdict = stale_head.incident.verdict
    assert verdict is not None
    assert verdict.verdict.controls_agree
    assert verdict.verdict.observed_prefix_agrees
    stays = {stay.measurement: stay.equal for stay in verdict.verdict.stays}
    assert stays == {
        "output.first": True,
        "loss.first": True,
        "gradient.first[head.*]": True,
        "delta.net[features.*]": True,
    }
    treated = rerun(stale_head, "treatment")
    frozen = [p for p in treated.parameters if p.in_model and not p.requires_grad]
    assert [p.delta_net for p in frozen] == [0.0] * 4


def test_the_placebo_moved_the_loss_and_measured_a_floor(stale_head: Diagnosed) -> None:
    placebo = rerun(stale_head, "placebo")
    assert placebo.intervention is not None
    assert placebo.intervention.applied
    assert placebo.intervention.changed == ["head.bias"]
    assert placebo.fingerprint.outputs != rerun(stale_head, "control").fingerprint.outputs


def test_frozen_before_the_first_rerun(stale_head: Diagnosed) -> None:
    kinds = [
        kind
        for _, kind, body in stale_head.incident.events
        if not isinstance(body, RerunStarted) or body.role != "close_up"
    ]
    assert kinds.index("prediction.frozen") < kinds.index("rerun.started")
    claim = stale_head.body["predictions"]["claim"]
    assert f"claim {claim}" in stale_head.ran.err
    assert stale_head.ran.err.index(claim) < stale_head.ran.err.index("rerun ")


def test_the_claim_holds_no_measured_value_and_no_path_of_this_machine(stale_head: Diagnosed) -> None:
    frozen = stale_head.incident.frozen
    assert frozen is not None
    text = repr(frozen.claim)
    assert str(stale_head.folder) not in text
    assert not re.search(r"\b0\.68\d+", text)
    source = hashlib.sha256(STALE_HEAD.read_bytes()).hexdigest()
    assert frozen.claim["sources"] == [{"path": "train.py", "sha256": source}]


def test_the_same_claim_from_another_folder_at_another_time(stale_head: Diagnosed, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(STALE_HEAD.read_bytes())
    again = call("diagnose", "train.py", "--json", "--no-rerun", "--horizon", "201", cwd=tmp_path)
    assert again.json["predictions"]["claim"] == stale_head.body["predictions"]["claim"]


def test_every_rerun_prints_a_beginning_of_what_the_plain_script_prints(stale_head: Diagnosed) -> None:
    logs = stale_head.incident.folder / "logs"
    observed = (logs / "observe.log").read_text()
    assert "step 300  loss 0.6836  train accuracy 0.7144" in observed
    assert observed.startswith((logs / "control.log").read_text())
    assert "step  50  loss 0.4099" in (logs / "treatment.log").read_text()


def test_the_evidence_lies_beside_the_record(stale_head: Diagnosed) -> None:
    path = stale_head.incident.folder / "evidence.json"
    observed = stale_head.incident.observed
    assert observed is not None
    assert observed.evidence_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert read_evidence(path) == stale_head.incident.evidence


def test_the_first_batch_is_fingerprinted_whole(stale_head: Diagnosed) -> None:
    prints = [rerun(stale_head, role).fingerprint for role in ("control", "treatment")]
    assert None not in prints[0].model_dump().values()
    assert prints[0] == prints[1]


def test_show_check_and_terminal_agree(stale_head: Diagnosed) -> None:
    folder = str(stale_head.incident.folder)
    shown = call("show", folder, cwd=stale_head.folder)
    assert shown.code == 0
    assert "<-- FIRST DIVERGENCE" in shown.out
    marked = next(line for line in shown.out.splitlines() if "0/2 expected parameters in an optimizer" in line)
    assert "owned" in marked
    checked = call("check", folder, "--json", cwd=stale_head.folder)
    assert checked.code == 0
    assert checked.json["intact"] is True
    assert checked.json["frozen"][0]["claim"] == stale_head.body["predictions"]["claim"]
    assert call("show", folder, "--json", cwd=stale_head.folder).json == {
        **stale_head.body,
        "incident": str(stale_head.incident.folder),
    }


def test_finished_reruns_are_recorded_in_the_order_of_the_claim(stale_head: Diagnosed) -> None:
    finished = [body for _, _, body in stale_head.incident.events if isinstance(body, RerunFinished)]
    assert stale_head.incident.frozen is not None
    # The close-up belongs to observing: nothing is predicted of it.
    assert [body.role for body in finished if body.role != "close_up"] == stale_head.incident.frozen.claim["reruns"]
