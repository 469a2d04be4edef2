"""A language model behind the contract, over real HTTP: what it says is judged, and the rerun decides."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND, STALE_HEAD, Diagnosed, Ran, Weaklink, environment, training
from scripted_endpoint import Endpoint, scripted_endpoint

from weaklink.agent.record.incident import Incident

SECRET = "sk-of-the-user-0123456789abcdef"


@pytest.fixture
def stale(tmp_path: Path) -> Path:
    shutil.copy(STALE_HEAD, tmp_path / "train.py")
    return tmp_path


def answer_of(diagnosed: Diagnosed) -> dict[str, Any]:
    """The playbook's answer, as a model would write it."""
    proposal = diagnosed.incident.proposal
    assert proposal is not None
    body = proposal.model_dump(mode="json")
    choice = body["experiment"]
    choice["parameters"] = [{"name": name, "value": value} for name, value in choice["parameters"].items()]
    return body


def asked(weaklink: Weaklink, endpoint: Endpoint, *words: str, **options: Any) -> Ran:
    model = ["--model", "scripted", "--base-url", endpoint.base_url]
    hidden = {"OPENAI_API_KEY": SECRET, "OPENAI_ORG_ID": "org-of-the-user", "WEAKLINK_CACHE_DIR": options.pop("cache")}
    return weaklink("diagnose", "train.py", *model, *words, env=environment(**hidden), **options)


def test_a_good_answer_is_frozen_rerun_and_credited_to_the_model(
    stale: Path, weaklink: Weaklink, stale_head: Diagnosed
) -> None:
    read = {"turn": {"do": "read", "file": "train.py", "first": 30, "last": 60}}
    line = (stale / "train.py").read_text().splitlines()[39]
    answer = answer_of(stale_head) | {"sources": [{"file": "train.py", "line": 40, "text": line.strip()}]}
    with scripted_endpoint(read, answer) as endpoint:
        ran = asked(weaklink, endpoint, "--json", "--horizon", "201", cache=str(stale / "cache"))
    assert ran.code == 1, ran.err
    body = ran.json
    assert (body["schema"], body["advisor"]) == ("weaklink.diagnosis/2", "openai")
    assert body["mechanism"]["status"] == "supported"
    assert body["model"]["agrees"] == {"boundary": True, "mechanism": True, "experiment": True}
    assert (body["model"]["prompt_tokens"], body["model"]["exchanges"]) == (2000, 2)
    # The same claim as the playbook's: who said it belongs to the record, not to the prediction.
    assert body["predictions"]["claim"] == stale_head.body["predictions"]["claim"]
    incident = Incident.read(stale / body["incident"])
    assert incident.beside == stale_head.incident.proposal
    assert [look.look.file for look in incident.looked] == ["train.py"]
    assert weaklink("check", body["incident"]).code == 0


def test_no_key_and_no_name_of_the_user_reaches_a_custom_endpoint_or_the_record(
    stale: Path, weaklink: Weaklink, stale_head: Diagnosed
) -> None:
    with scripted_endpoint(answer_of(stale_head)) as endpoint:
        ran = asked(weaklink, endpoint, "--json", "--no-rerun", cache=str(stale / "cache"))
    assert ran.code == 1, ran.err
    sent = json.dumps([endpoint.headers, endpoint.requests])
    record = (stale / ran.json["incident"] / "events.jsonl").read_text()
    for hidden in (SECRET, "org-of-the-user"):
        assert hidden not in sent
        assert hidden not in record + ran.out + ran.err


def test_source_is_sent_unless_it_is_not_to_be(stale: Path, weaklink: Weaklink, stale_head: Diagnosed) -> None:
    marker = "# nobody outside may read this line"
    script = stale / "train.py"
    script.write_text(script.read_text() + marker + "\n")
    read = {"turn": {"do": "read", "file": "train.py", "first": 1, "last": 500}}
    sent = []
    for more in ([], ["--no-source"]):
        with scripted_endpoint(read, answer_of(stale_head)) as endpoint:
            asked(weaklink, endpoint, "--json", "--no-rerun", *more, cache=str(stale / "cache"))
        sent.append(json.dumps(endpoint.requests))
    assert marker in sent[0]
    assert marker not in sent[1]
    assert "optimizer" in sent[1]  # the evidence still names its sites


def test_answers_that_break_the_contract_are_kept_and_the_playbook_delivers(
    stale: Path, weaklink: Weaklink, stale_head: Diagnosed
) -> None:
    wrong = answer_of(stale_head) | {"first_boundary": "CAPABILITY"}
    with scripted_endpoint("It is the learning rate.", wrong, '{"outcome":') as endpoint:
        ran = asked(weaklink, endpoint, "--json", "--horizon", "201", cache=str(stale / "cache"))
    assert ran.code == 3
    body = ran.json
    assert body["advisor"] == "playbook"
    assert body["mechanism"]["status"] == "supported"
    assert body["model"]["failed"]["kind"] == "contract_not_met"
    assert len(body["model"]["attempts"]) == 3
    assert body["model"]["agrees"] is None
    # Each refusal went back word for word.
    incident = Incident.read(stale / body["incident"])
    for attempt, messages in enumerate(endpoint.messages[1:]):
        for sentence in incident.answered[attempt].violations:
            assert sentence in messages[-1]["content"]
    assert weaklink("check", body["incident"]).code == 0
    assert weaklink("show", body["incident"]).code == 0


@pytest.mark.parametrize("status", [401, 404, 500])
def test_an_endpoint_that_fails_leaves_chain_and_playbook(stale: Path, weaklink: Weaklink, status: int) -> None:
    with scripted_endpoint(status) as endpoint:
        ran = asked(weaklink, endpoint, "--no-rerun", cache=str(stale / "cache"))
    assert ran.code == 3
    assert "OWNERSHIP/owned fails" in ran.out
    assert "the openai advisor gave no answer" in ran.out
    assert "weaklink: the openai advisor gave no answer" in ran.err
    assert "next:" in ran.err


def test_a_refused_connection_is_told_before_anything_is_guessed(stale: Path, weaklink: Weaklink) -> None:
    nobody = Endpoint([], "http://127.0.0.1:9/v1")
    ran = asked(weaklink, nobody, "--json", "--no-rerun", cache=str(stale / "cache"))
    assert ran.code == 3
    assert ran.json["model"]["failed"]["kind"] == "endpoint"
    assert ran.json["mechanism"]["id"] == "optimizer_holds_old_objects"


def test_a_healthy_run_is_not_accused_whatever_a_model_says(tmp_path: Path, weaklink: Weaklink) -> None:
    (tmp_path / "train.py").write_text(training(steps=60))
    accusation = {
        "outcome": "ask_operator",
        "first_boundary": "TASK",
        "first_row": "TASK/inputs",
        "dissent": "The inputs look wrong.",
        "cited": [],
        "mechanisms": [{"id": "input_scale", "boundary": "TASK", "explanation": "Unscaled.", "predictions": []}],
        "question": "Were the inputs scaled?",
    }
    with scripted_endpoint(accusation) as endpoint:
        ran = asked(weaklink, endpoint, "--json", cache=str(tmp_path / "cache"))
    assert ran.code == 0, ran.err
    assert ran.json["first_divergence"] is None
    assert ran.json["status"] == {"cause": "unknown", "action": "none", "recovery": "not attempted"}


def test_a_conversation_is_saved_and_held_again_offline(stale: Path, weaklink: Weaklink, stale_head: Diagnosed) -> None:
    with scripted_endpoint("no JSON here", answer_of(stale_head)) as endpoint:
        first = asked(weaklink, endpoint, "--json", "--no-rerun", cache=str(stale / "cache"))
    saved = weaklink("export", first.json["incident"], "--format", "recording", "--out", "conversation.json")
    assert saved.code == 0, saved.err
    again = weaklink("diagnose", "train.py", "--recording", "conversation.json", "--json", "--no-rerun")
    assert again.code == 1, again.err
    assert again.json["advisor"] == "recorded"
    assert again.json["predictions"]["claim"] == first.json["predictions"]["claim"]
    label = again.json["model"]["asked"]
    assert label["model"] == "scripted"
    assert label["spoken"] == Incident.read(stale / first.json["incident"]).opened.created
    assert again.json["model"]["attempts"] == first.json["model"]["attempts"]
    assert "differs from the recording" not in again.err


def test_a_missing_recording_names_the_command_that_makes_it(stale: Path, weaklink: Weaklink) -> None:
    ran = weaklink("diagnose", "train.py", "--recording", "nowhere.json")
    assert ran.code == 3
    assert "weaklink export INCIDENT --format recording" in ran.err
    assert not (stale / "incidents").exists()


def test_a_model_is_asked_in_an_incident_that_is_there_already(
    stale: Path, weaklink: Weaklink, stale_head: Diagnosed
) -> None:
    first = weaklink("diagnose", "train.py", "--json", "--no-rerun")
    with scripted_endpoint(answer_of(stale_head)) as endpoint:
        words = ["--model", "scripted", "--base-url", endpoint.base_url, "--json", "--horizon", "201"]
        again = weaklink(
            "continue", first.json["incident"], *words, env=environment(WEAKLINK_CACHE_DIR=str(stale / "cache"))
        )
    assert again.code == 1, again.err
    assert again.json["diagnosis"]["advisor"] == "openai"
    assert again.json["round"] == 2


def test_paste_waits_for_an_answer(stale: Path, weaklink: Weaklink) -> None:
    ran = weaklink("diagnose", "train.py", "--advisor", "paste")
    assert ran.code == 1
    assert "An answer is waited for" in ran.out
    assert "weaklink prompt incidents/" in ran.out


def at_a_terminal(words: list[str], folder: Path, cache: Path, waits_for: bytes, answer: bytes) -> bytes:
    """What a person at a terminal sees who answers once; both ends of the command are that terminal."""
    terminal, its_end = pty.openpty()
    running = subprocess.Popen(
        [*COMMAND, *words],
        cwd=folder,
        env=environment(WEAKLINK_CACHE_DIR=str(cache)),
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
    )
    os.close(its_end)
    seen, answered = b"", False
    with contextlib.suppress(OSError):  # the other end is closed when the command is over
        while part := os.read(terminal, 4096):
            seen += part
            if waits_for in seen and not answered:
                answered = True
                os.write(terminal, answer)
    running.wait(timeout=60)
    os.close(terminal)
    return seen


def test_a_question_is_put_at_the_terminal_and_the_answer_goes_on(stale: Path) -> None:
    asks = {
        "outcome": "ask_operator",
        "first_boundary": "OWNERSHIP",
        "first_row": "OWNERSHIP/owned",
        "question": "Is the head \x1b[31mmeant\x1b[0m to train?",
    }
    gives_up = {"outcome": "inconclusive", "first_boundary": "OWNERSHIP", "first_row": "OWNERSHIP/owned"}
    with scripted_endpoint(asks, gives_up) as endpoint:
        words = ["diagnose", "train.py", "--no-rerun", "--model", "scripted", "--base-url", endpoint.base_url]
        seen = at_a_terminal(words, stale, stale / "cache", b"leaves the question open): ", b"Yes, it is.\n")
    assert b"The model asks: Is the head \\x1b[31mmeant\\x1b[0m to train?" in seen
    assert '"Yes, it is."' in endpoint.messages[1][-1]["content"]
    (incident,) = (stale / "incidents").iterdir()
    assert [fact.text for fact in Incident.read(incident).facts] == ["Yes, it is."]
