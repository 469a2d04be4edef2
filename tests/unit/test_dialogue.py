"""The bounded conversation: looks are counted, objections go back word for word, every attempt is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from evidence_samples import stale_head_evidence
from test_record_incident import opened

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.brief import render_brief
from weaklink.agent.conversation.dialogue import Dialogue
from weaklink.agent.conversation.limits import Limits
from weaklink.agent.conversation.looks import Look, Looked
from weaklink.agent.conversation.messages import Form, Message, Reply, Usage
from weaklink.agent.conversation.shown import Shown
from weaklink.agent.errors import AdvisorError
from weaklink.agent.proposal import Proposal
from weaklink.agent.record.bodies import Observed
from weaklink.agent.record.chain import RecordWriter
from weaklink.agent.record.incident import Incident


def good() -> dict[str, Any]:
    """An answer that meets the contract, as a model writes it."""
    proposal = Playbook().advise(stale_head_evidence(), "", []).model_dump(mode="json")
    choice = proposal["experiment"]
    choice["parameters"] = [{"name": name, "value": value} for name, value in choice["parameters"].items()]
    return proposal


@dataclass
class Scripted:
    """Says what it was given, and keeps what it was sent."""

    replies: Sequence[str | AdvisorError]
    name: str = "openai"
    model: str = "scripted"
    sent: list[list[Message]] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)
    unreadable: int = 0

    def reply(self, messages: Sequence[Message], form: Form) -> Reply:
        said = self.replies[len(self.sent)]
        self.sent.append(list(messages))
        self.forms.append(form)
        if isinstance(said, AdvisorError):
            raise said
        usage = Usage(prompt_tokens=100, answer_tokens=10)
        finish = "length" if said.endswith("<cut") else "stop"
        return Reply(text=said, model="scripted-1", endpoint="here:1", rung="plain", finish=finish, usage=usage)

    def was_unreadable(self) -> None:
        self.unreadable += 1


@dataclass
class Looking:
    """A desk that shows one line of one file."""

    shown: Shown
    asked: list[Look] = field(default_factory=list)

    def look(self, request: Look) -> Looked:
        self.asked.append(request)
        self.shown.add("train.py", 1, ["optimizer = torch.optim.SGD(model.parameters(), lr=0.5)"], asked=True)
        plain = request.model_dump(exclude={"do"})
        return Looked(
            do=request.do, request=plain, ok=True, text="1| optimizer = ...", file="train.py", first=1, last=1
        )


Hold = Callable[..., tuple[Proposal | None, Scripted, Incident]]


@pytest.fixture
def hold(tmp_path: Path) -> Hold:
    """Hold a conversation with these replies; what came of it, the speaker, and the record."""

    def run(
        *replies: str | dict[str, Any] | AdvisorError, **options: Any
    ) -> tuple[Proposal | None, Scripted, Incident]:
        texts = [json.dumps(reply) if isinstance(reply, dict) else reply for reply in replies]
        speaker, evidence, shown = Scripted(texts), stale_head_evidence(), Shown()
        writer = RecordWriter(tmp_path / "events.jsonl")
        with writer:
            writer.append("incident.opened", opened(tmp_path))
            writer.append("evidence.observed", Observed(evidence=evidence, evidence_sha256="0" * 64))
            dialogue = Dialogue(
                advisor="openai",
                speaker=speaker,
                evidence=evidence,
                opening=[Message(role="system", content="the rules"), Message(role="user", content="the brief")],
                desk=options.get("desk", Looking(shown)),
                shown=shown,
                instruments=options.get("instruments", ("tiny_batch",)),
                limits=options.get("limits", Limits()),
                context=options.get("context", 32768),
                writer=writer,
                ask_operator=options.get("operator", lambda question: None),
            )
            try:
                proposal = dialogue.hold()
            except AdvisorError:
                proposal = None
        return proposal, speaker, Incident.read(tmp_path)

    return run


def test_a_good_answer_is_taken_at_once(hold: Hold) -> None:
    proposal, speaker, incident = hold(good())
    assert proposal is not None
    assert proposal.experiment is not None
    assert proposal.experiment.parameters == {"parameters": "head.*"}
    assert [message.content for message in speaker.sent[0]] == ["the rules", "the brief"]
    assert incident.proposal == proposal
    assert [each.reply.usage.prompt_tokens for each in incident.exchanged] == [100]


def test_objections_go_back_word_for_word_and_every_attempt_is_kept(hold: Hold) -> None:
    wrong = good() | {"must_stay_unchanged": []}
    proposal, speaker, incident = hold(wrong, good())
    assert proposal is not None
    first, second = incident.answered
    assert first.violations
    assert not second.violations
    assert any("must_stay_unchanged is empty" in sentence for sentence in first.violations)
    objections = speaker.sent[1][-1]
    assert objections.role == "user"
    assert all(sentence in objections.content for sentence in first.violations)


def test_three_answers_that_do_not_hold_end_it(hold: Hold) -> None:
    proposal, speaker, incident = hold("I think it is the optimizer.", "{", good() | {"first_boundary": "UPDATE"})
    assert proposal is None
    assert [len(answer.violations) > 0 for answer in incident.answered] == [True, True, True]
    assert [answer.proposal is None for answer in incident.answered] == [True, True, False]
    assert incident.answered[0].text == "I think it is the optimizer."
    assert speaker.unreadable == 2


def test_an_answer_that_was_cut_is_an_attempt_and_is_kept(hold: Hold) -> None:
    proposal, speaker, incident = hold('{"first_boundary": "OWNERSHIP", "cited": [<cut', good())
    assert proposal is not None
    (said,) = incident.answered[0].violations
    assert "write a shorter one" in said
    assert incident.exchanged[0].reply.finish == "length"
    assert speaker.unreadable == 0  # another way of asking would be cut too


def test_looks_are_shown_recorded_and_counted(hold: Hold) -> None:
    read = {"turn": {"do": "read", "file": "train.py", "first": 1, "last": 5}}
    run = {"turn": {"do": "instrument", "name": "tiny_batch", "step": None}}
    cited = {"file": "train.py", "line": 1, "text": "torch.optim.SGD"}
    proposal, speaker, incident = hold(read, run, good() | {"sources": [cited]})
    assert proposal is not None
    assert [each.look.do for each in incident.looked] == ["read", "instrument"]
    assert [each.turn for each in incident.looked] == [1, 2]
    assert "optimizer = ..." in speaker.sent[1][-1].content


def test_what_was_read_must_be_cited(hold: Hold) -> None:
    read = {"turn": {"do": "read", "file": "train.py", "first": 1, "last": 5}}
    proposal, _, incident = hold(read, good(), good(), good())
    assert proposal is None
    assert all(any(sentence.startswith("sources:") for sentence in each.violations) for each in incident.answered)


def test_no_look_beyond_the_limit(hold: Hold) -> None:
    read = {"turn": {"do": "read", "file": "train.py", "first": 1, "last": 5}}
    limits = Limits(reads=1, instruments=0)
    proposal, speaker, incident = hold(read, read, read, read, limits=limits, instruments=())
    assert proposal is None
    assert len(incident.looked) == 1
    assert [form.name for form in speaker.forms] == ["turn", "answer", "answer", "answer"]
    assert "no more looks" in incident.answered[0].violations[0]


def test_without_a_desk_only_an_answer_is_asked_for(hold: Hold) -> None:
    _, speaker, _ = hold(good(), desk=None, instruments=())
    assert [form.name for form in speaker.forms] == ["answer"]


def asking() -> dict[str, Any]:
    return good() | {
        "outcome": "ask_operator",
        "experiment": None,
        "must_change": [],
        "must_stay_unchanged": [],
        "question": "Is the head meant to train?",
        "mechanisms": [],
        "repair": None,
    }


def test_the_operators_answer_goes_on_in_the_same_attempt(hold: Hold) -> None:
    asked: list[str] = []

    def operator(question: str) -> str:
        asked.append(question)
        return "Yes, it is."

    proposal, speaker, incident = hold(asking(), good(), operator=operator)
    assert asked == ["Is the head meant to train?"]
    assert proposal is not None
    assert proposal.outcome == "experiment"
    assert '"Yes, it is."' in speaker.sent[1][-1].content
    assert [answer.attempt for answer in incident.answered] == [1, 1]


def test_one_question_only(hold: Hold) -> None:
    proposal, _, _ = hold(asking(), asking(), operator=lambda question: "Yes.")
    assert proposal is not None
    assert proposal.outcome == "ask_operator"


def test_a_question_that_nobody_answers_is_left_open(hold: Hold) -> None:
    proposal, speaker, _ = hold(asking())
    assert proposal is not None
    assert proposal.question == "Is the head meant to train?"
    assert len(speaker.sent) == 1


def test_what_was_said_before_the_wire_broke_is_recorded(hold: Hold) -> None:
    proposal, _, incident = hold("nothing", AdvisorError("The endpoint went away."))
    assert proposal is None
    assert len(incident.exchanged) == len(incident.answered) == 1


def test_a_long_conversation_keeps_its_opening_and_its_last_words(hold: Hold) -> None:
    long = "word " * 3000
    _, speaker, incident = hold(long, long, long, context=5000)
    last = speaker.sent[-1]
    assert [message.content for message in last[:1]] == ["the rules"]
    assert "earlier messages are left out" in last[1].content
    assert len(incident.answered) == 3


def test_the_playbook_can_be_told_in_the_same_brief() -> None:
    assert "OWNERSHIP/owned" in render_brief(stale_head_evidence())
