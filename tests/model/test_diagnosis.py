"""Whole diagnoses with a small language model. What it says is nearly always wrong; what becomes of that is tested.

No test asserts that the model is right. Each holds the record against what must be true whatever it said: a wrong
answer was refused by the contract, or the rerun decided on it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from diagnoses import Diagnosed, accepted, diagnose, of_model, replay_offline, weaklink
from servers import Server

from weaklink.agent.contract import violations
from weaklink.agent.conversation.dialogue import ATTEMPTS
from weaklink.agent.record.bodies import Exchanged
from weaklink.agent.record.incident import Incident
from weaklink.collector.evidence import Row, first_divergence

# What the stale head's rerun can honestly support: both say that the head's parameters are in no optimizer.
TRUE_OF_STALE_HEAD = {"optimizer_holds_old_objects", "not_in_optimizer"}


@pytest.fixture(scope="session")
def stale_head(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Diagnosed:
    return diagnose("stale_head", tmp_path_factory.mktemp("stale_head"), server)


@pytest.fixture(scope="session")
def healthy(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Diagnosed:
    return diagnose("healthy", tmp_path_factory.mktemp("healthy"), server)


@pytest.fixture(params=["stale_head", "healthy"])
def diagnosed(request: pytest.FixtureRequest, server: Server) -> Diagnosed:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Diagnosed)
    return found


def row(incident: Incident, role: str, name: str) -> Row:
    evidence = next(rerun.evidence for rerun in incident.reruns if rerun.role == role)
    assert evidence is not None
    return next(each for each in evidence.rows if each.id == name)


def test_the_record_is_intact(diagnosed: Diagnosed) -> None:
    checked = weaklink("check", str(diagnosed.record.folder), cwd=diagnosed.folder)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_exit_code_says_whether_the_model_met_the_contract(diagnosed: Diagnosed) -> None:
    incident = diagnosed.record
    assert incident.closed is not None
    assert diagnosed.code == incident.closed.exit_code
    if accepted(incident) is None:
        assert diagnosed.code == 3
        assert incident.failed is not None
        assert incident.failed.kind == "contract_not_met", incident.failed
        assert len(of_model(incident)) == ATTEMPTS
    else:
        assert incident.failed is None
        assert diagnosed.code == (0 if first_divergence(incident.observed.evidence.rows) is None else 1)


def test_every_answer_is_either_refused_with_reasons_or_meets_the_contract(diagnosed: Diagnosed) -> None:
    incident = diagnosed.record
    assert incident.evidence is not None
    answers = of_model(incident)
    assert [each.attempt for each in answers] == list(range(1, len(answers) + 1))
    assert len(answers) <= ATTEMPTS
    assert answers
    for answer in answers:
        if answer.proposal is None:
            assert answer.violations, "words that nobody could read were accepted"
            continue
        # Judged once more by the contract itself, apart from the dialogue that recorded it.
        # By rule: the record keeps keys sorted, so a sentence that lists them may have another order now.
        again = {violation.rule for violation in violations(answer.proposal, incident.evidence)} - {"sources"}
        assert again <= {sentence.partition(":")[0] for sentence in answer.violations}
    assert all(each.violations for each in answers[:-1]), "an accepted answer ends the conversation"


def test_every_exchange_is_in_the_record_word_for_word(diagnosed: Diagnosed) -> None:
    incident = diagnosed.record
    exchanged = incident.exchanged
    assert [each.turn for each in exchanged] == list(range(1, len(exchanged) + 1))
    assert exchanged
    assert [message.role for each in exchanged[:1] for message in each.sent] == ["system", "user"][: 2 * len(exchanged)]
    assert all(each.sent for each in exchanged), "each request sends something new"
    said = [each.reply.text for each in exchanged]
    assert all(answer.text in said for answer in of_model(incident))
    assert len(exchanged) == len(of_model(incident)) + len(incident.looked)


def test_the_model_is_told_its_objections_word_for_word(stale_head: Diagnosed) -> None:
    incident = stale_head.record
    for answer in of_model(incident)[:-1]:
        following = next(each for each in incident.exchanged if each.attempt == answer.attempt + 1)
        sent = "\n".join(message.content for message in following.sent)
        assert all(violation in sent for violation in answer.violations)


def test_tokens_and_seconds_are_counted(stale_head: Diagnosed, server: Server) -> None:
    for each in stale_head.record.exchanged:
        assert each.reply.seconds > 0
        assert each.reply.endpoint == server.base_url.removeprefix("http://").removesuffix("/v1")
        if server.kind == "llama-server":  # the other one counts no tokens in a stream
            assert (each.reply.usage.prompt_tokens or 0) > 0
            assert (each.reply.usage.answer_tokens or 0) > 0


def test_no_key_is_in_the_record_or_on_the_screen(diagnosed: Diagnosed, server: Server) -> None:
    if server.key is None:
        pytest.skip("the endpoint that was given takes no key")
    key = server.key.encode()
    assert server.key not in diagnosed.out + diagnosed.err
    kept = [path for path in diagnosed.folder.rglob("*") if path.is_file()]
    assert [path.name for path in kept if key in path.read_bytes()] == []
    assert any(path.name == "events.jsonl" for path in kept)


def test_the_playbook_is_kept_beside_and_under_its_own_name(stale_head: Diagnosed) -> None:
    incident = stale_head.record
    assert incident.beside is not None
    assert incident.beside.mechanisms[0].id == "optimizer_holds_old_objects"
    fallen_back = [each for each in incident.answered if each not in of_model(incident)]
    assert [each.advisor for each in fallen_back] == ([] if accepted(incident) else ["playbook"])


def test_nothing_is_supported_but_by_the_rerun(stale_head: Diagnosed) -> None:
    incident = stale_head.record
    if incident.verdict is None:
        assert incident.closed is not None
        assert incident.closed.status.cause != "supported"
        return
    verdict = incident.verdict.verdict
    supported = {each.id for each in verdict.mechanisms if each.status == "supported"}
    assert supported <= TRUE_OF_STALE_HEAD
    assert (incident.verdict.status.cause == "supported") == bool(supported)
    if supported:
        assert verdict.controls_agree
        assert verdict.applied
        assert row(incident, "control", "OWNERSHIP/owned").status == "fail"
        assert row(incident, "treatment", "OWNERSHIP/owned").status == "pass"
        assert all(each.status == "held" for each in verdict.predictions if each.mechanism in supported)
    if accepted(incident) is None:
        assert incident.closed is not None
        assert incident.closed.exit_code == 3, "the playbook's verdict must not hide that the model failed"


def test_a_healthy_run_is_never_accused(healthy: Diagnosed) -> None:
    incident = healthy.record
    assert incident.evidence is not None
    assert first_divergence(incident.evidence.rows) is None
    assert incident.frozen is None
    assert incident.reruns == []
    for answer in of_model(incident):
        named = answer.proposal is not None and {each.id for each in answer.proposal.mechanisms} - {"none"}
        assert not (named and not answer.violations), "a mechanism was accepted on a healthy run"
    assert incident.closed is not None
    assert incident.closed.status.cause in ("unknown",)
    assert healthy.code in (0, 3)


def test_the_conversation_is_held_again_offline(stale_head: Diagnosed, tmp_path: Path) -> None:
    incident = stale_head.record
    recording = tmp_path / "recording.json"
    wrote = weaklink(
        "export", str(incident.folder), "--format", "recording", "--out", str(recording), cwd=stale_head.folder
    )
    assert wrote.returncode == 0, wrote.stderr
    (tmp_path / "train.py").write_bytes((stale_head.folder / "train.py").read_bytes())
    again = replay_offline(recording, tmp_path)
    assert again.code == stale_head.code
    assert events(again.record) == events(incident)
    assert again.record.exchanged[0].reply.model == incident.exchanged[0].reply.model


def events(incident: Incident) -> list[object]:
    """Kinds in order, and every word of the model."""
    told: list[object] = []
    for _, kind, body in incident.events:
        if isinstance(body, Exchanged):
            told.append((kind, body.attempt, body.turn, body.reply))
        elif kind == "advisor.answered":
            told.append((kind, body.model_dump(exclude={"advisor"})))
        else:
            told.append(kind)
    return told


def test_without_a_rerun_nothing_is_settled(one_server: Server, tmp_path: Path) -> None:
    ran = diagnose("softmax_before_loss", tmp_path, one_server, "--no-rerun")
    incident = ran.record
    assert incident.reruns == []
    assert incident.verdict is None
    assert incident.closed is not None
    assert incident.closed.status.cause in ("suspected", "unknown")
    assert weaklink("check", str(incident.folder), cwd=tmp_path).returncode == 0
