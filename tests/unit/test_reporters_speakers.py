"""Who answered: a model's words are never the playbook's, and the other way round."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_reporters_samples import asked_model, model_answered, model_failed, stale_head

from weaklink.agent.reporters.content import said_by
from weaklink.agent.reporters.html import render_html
from weaklink.agent.reporters.json_report import diagnosis_json
from weaklink.agent.reporters.speakers import agreement, cost, model_json, model_section
from weaklink.agent.reporters.terminal import render_incident


def test_without_a_model_nothing_is_said_of_one() -> None:
    assert model_section(stale_head()) is None
    body = diagnosis_json(stale_head())
    assert body["schema"] == "weaklink.diagnosis/1"
    assert "model" not in body


def test_a_model_is_named_with_its_endpoint() -> None:
    assert said_by(model_answered()) == "a language model (openai: small-model at 127.0.0.1:8080)"


def test_a_recording_is_labelled_with_the_day_on_which_the_model_spoke() -> None:
    incident = replace(model_answered(), asked=[asked_model(spoken="2026-11-30T09:05:07+00:00")])
    assert "as it spoke on 2026-11-30T09:05:07+00:00 (a recording)" in said_by(incident)


def test_both_answers_are_compared_and_not_mixed() -> None:
    both = agreement(model_answered())
    assert both is not None
    assert both._asdict() == {"boundary": True, "mechanism": True, "experiment": False}
    told = render_incident(model_answered(), 100)
    assert "the same boundary and mechanism; another experiment" in told
    assert "the built-in playbook, by itself, says: OWNERSHIP/owned" in told


def test_after_a_failure_the_answer_is_the_playbooks_and_is_called_so() -> None:
    incident = model_failed()
    assert said_by(incident) == "the built-in playbook (fixed rules; no model was asked)".replace(
        "no model was asked", "the openai advisor gave no answer"
    )
    assert agreement(incident) is None
    body = model_json(incident)
    assert body["failed"]["kind"] == "endpoint"
    assert body["attempts"] == []
    assert "The endpoint refused the connection." in render_incident(incident, 100)


def test_tokens_and_attempts_are_counted() -> None:
    body = model_json(model_answered())
    assert (body["prompt_tokens"], body["answer_tokens"], body["exchanges"]) == (4500, 322, 3)
    assert body["attempts"] == [["answer: there is no JSON object in it."], []]
    assert body["rungs"] == ["json_schema"]
    assert body["cost"] is None


def test_a_cost_is_told_only_where_every_reply_has_one() -> None:
    incident = model_answered()
    for each in incident.exchanged[:2]:
        each.reply.usage.cost = 0.25
    assert cost(incident) is None
    incident.exchanged[2].reply.usage.cost = 0.5
    assert cost(incident) == pytest.approx(1.0)


def test_html_holds_what_was_sent_and_what_came_back() -> None:
    text = render_html(model_answered())
    assert "Turn 2: its reply" in text
    assert "sent to small-model at 127.0.0.1:8080" in text
    assert "answered by advisor openai, refused" in text
