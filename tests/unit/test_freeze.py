"""What belongs to the claim and what to the context: a claim is the same wherever the same sources are."""

from __future__ import annotations

import json

import pytest
from evidence_samples import stale_head_evidence

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.freeze import freeze
from weaklink.agent.record.bodies import Frozen
from weaklink.agent.record.canonical import digest
from weaklink.agent.resuming import changed_sources
from weaklink.collector.evidence import Evidence, SourceFile
from weaklink.collector.job import Pins


def frozen(evidence: Evidence, horizon: int = 50) -> Frozen:
    return freeze(evidence, Playbook().advise(evidence, "", []), horizon, Pins())


def test_digests_are_those_of_what_is_kept() -> None:
    found = frozen(stale_head_evidence())
    assert found.claim_sha256 == digest(found.claim)
    assert found.context_sha256 == digest(found.context)
    assert Frozen.model_validate_json(found.model_dump_json()).claim_sha256 == digest(found.claim)


def test_another_machine_changes_the_context_alone() -> None:
    here, there = stale_head_evidence(), stale_head_evidence()
    there.environment.torch, there.environment.threads = "2.4.0+cu121", 64
    there.fingerprint.loss = 0.6836061
    there.losses.value[0] = 0.6836061
    assert frozen(here).claim_sha256 == frozen(there).claim_sha256
    assert frozen(here).context_sha256 != frozen(there).context_sha256


@pytest.mark.parametrize("change", ["source", "horizon", "argv", "prediction"])
def test_whatever_is_claimed_changes_the_claim(change: str) -> None:
    before, evidence, horizon = frozen(stale_head_evidence()), stale_head_evidence(), 50
    if change == "source":
        evidence.sources = [SourceFile(path="train.py", sha256="0" * 64)]
    elif change == "argv":
        evidence.subject.argv = ["--lr", "1"]
    elif change == "horizon":
        horizon = 51
    proposal = Playbook().advise(evidence, "", [])
    if change == "prediction":
        proposal.mechanisms[0].predictions[0].expect = "down"
    assert freeze(evidence, proposal, horizon, Pins()).claim_sha256 != before.claim_sha256


@pytest.mark.parametrize("typed", ["train.py", "./train.py", "/home/a/run/train.py", "/b/train.py"])
def test_however_the_script_was_typed_the_claim_is_the_same(typed: str) -> None:
    evidence = stale_head_evidence()
    evidence.sources = [SourceFile(path="train.py", sha256="0" * 64)]
    evidence.subject.name = typed
    assert frozen(evidence).claim["subject"]["name"] == "train.py"


def test_sources_outside_the_folder_stay_out_of_the_claim() -> None:
    evidence = stale_head_evidence()
    evidence.sources = [SourceFile(path="/elsewhere/lib.py", sha256="1" * 64)]
    found = frozen(evidence)
    assert found.claim["sources"] == []
    assert "/elsewhere/lib.py" in json.dumps(found.context)


def test_changed_sources(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    evidence = stale_head_evidence()
    import hashlib

    (folder / "same.py").write_text("x = 1\n")
    (folder / "edited.py").write_text("x = 2\n")
    same = hashlib.sha256(b"x = 1\n").hexdigest()
    evidence.sources = [SourceFile(path=name, sha256=same) for name in ("same.py", "edited.py", "gone.py")]
    assert changed_sources(frozen(evidence), folder) == ["edited.py", "gone.py"]
