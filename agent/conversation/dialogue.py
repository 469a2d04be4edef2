"""One conversation with a language model: bounded looks, an answer, the contract's objections, another answer.

The model is asked until an answer meets the contract, three times at most. What it may look at before is counted, each
request and each reply is recorded word for word as it happens, and what it says is data here: nothing of it is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from weaklink.agent.contract import violations
from weaklink.agent.conversation.answers import answer_form, read_turn, turn_form
from weaklink.agent.conversation.limits import ATTEMPTS, Limits
from weaklink.agent.conversation.looks import Desk, Look, Looked, RunInstrument
from weaklink.agent.conversation.messages import Message, Reply, Speaker, sent_digest
from weaklink.agent.conversation.shown import Shown
from weaklink.agent.conversation.window import fitting
from weaklink.agent.prompting.budget import look_room
from weaklink.agent.prompting.prompts import fact_prompt, looked_prompt, objections_prompt
from weaklink.agent.proposal import Proposal
from weaklink.agent.record.bodies import Answered, Exchanged, LookedAt
from weaklink.agent.record.chain import RecordWriter
from weaklink.collector.evidence import Evidence


@dataclass
class Dialogue:
    """A conversation about one evidence.

    Attributes:
        advisor: The advisor's name in the record.
        speaker: Who replies.
        evidence: What the answer is held against.
        opening: The system message and the brief.
        desk: Where looks are answered; None where nothing may be looked at.
        shown: Lines of files that the model was shown.
        instruments: Names of those that can be run here.
        limits: How much it may look at.
        context: Tokens that the model reads at once.
        writer: The record.
        ask_operator: Puts one question to the operator, who answers or leaves it open (None).
    """

    advisor: str
    speaker: Speaker
    evidence: Evidence
    opening: Sequence[Message]
    desk: Desk | None
    shown: Shown
    instruments: Sequence[str]
    limits: Limits
    context: int
    writer: RecordWriter
    ask_operator: Callable[[str], str | None] = lambda question: None
    objections: list[str] = field(default_factory=list, init=False)
    _messages: list[Message] = field(default_factory=list, init=False)
    _unsent: list[Message] = field(default_factory=list, init=False)
    _turn: int = field(default=0, init=False)
    _reads: int = field(default=0, init=False)
    _runs: int = field(default=0, init=False)
    _asked: bool = field(default=False, init=False)

    def hold(self) -> Proposal | None:
        """The first answer that meets the contract; None where none of the attempts did.

        Raises:
            AdvisorError: No reply came. What was said until then is recorded.
        """
        for message in self.opening:
            self._say(message)
        attempt = 1
        while attempt <= ATTEMPTS:
            reply = self._exchange(attempt)
            turn = read_turn(reply.text, self.evidence)
            if isinstance(turn, Look) and self._may(turn):
                self._look(turn, attempt)
                continue
            proposal = turn if isinstance(turn, Proposal) else None
            self.objections = self._judge(turn, reply)
            self._answered(attempt, proposal, reply)
            if proposal is not None and not self.objections:
                if self._settled_by_operator(proposal):
                    continue
                return proposal
            attempt += 1
            self._say(Message(role="user", content=objections_prompt(self.objections, ATTEMPTS - attempt + 1)))
        return None

    # -- parts -----------------------------------------------------------------------------------------------------

    def _say(self, message: Message) -> None:
        self._messages.append(message)
        self._unsent.append(message)

    def _exchange(self, attempt: int) -> Reply:
        self._turn += 1
        form = turn_form(self.evidence, self.instruments) if self._looks_left else answer_form(self.evidence)
        sent = fitting(self._messages, self.context)
        reply = self.speaker.reply(sent, form)
        exchanged = Exchanged(
            advisor=self.advisor,
            attempt=attempt,
            turn=self._turn,
            sent=self._unsent,
            sent_sha256=sent_digest(sent),
            reply=reply,
        )
        self.writer.append("advisor.exchanged", exchanged)
        self._unsent = []
        self._messages.append(Message(role="assistant", content=reply.text))
        return reply

    @property
    def _looks_left(self) -> int:
        if self.desk is None:
            return 0
        runs = self.limits.instruments - self._runs if self.instruments else 0
        return self.limits.reads - self._reads + runs

    def _may(self, look: Look) -> bool:
        if self.desk is None:
            return False
        if isinstance(look, RunInstrument):
            return bool(self.instruments) and self._runs < self.limits.instruments
        return self._reads < self.limits.reads

    def _look(self, look: Look, attempt: int) -> None:
        assert self.desk is not None, "asked before"
        if isinstance(look, RunInstrument):
            self._runs += 1
        else:
            self._reads += 1
        looked: Looked = self.desk.look(look)
        self.writer.append(
            "advisor.looked", LookedAt(advisor=self.advisor, attempt=attempt, turn=self._turn, look=looked)
        )
        self._say(Message(role="user", content=looked_prompt(looked, self._looks_left, look_room(self.context))))

    def _judge(self, turn: Look | Proposal | list[str], reply: Reply) -> list[str]:
        """The sentences that go back to the model."""
        if isinstance(turn, Proposal):
            return [str(violation) for violation in violations(turn, self.evidence, self.shown)]
        if isinstance(turn, list) and reply.finish == "length":
            return ["answer: the reply was cut at the largest number of tokens before it ended; write a shorter one."]
        self.speaker.was_unreadable()
        if isinstance(turn, list):
            return [f"answer: {sentence}" for sentence in turn]
        return [f"answer: no more looks of this kind ({turn.do}) are left; answer now, with what you have seen."]

    def _answered(self, attempt: int, proposal: Proposal | None, reply: Reply) -> None:
        answered = Answered(
            advisor=self.advisor, attempt=attempt, proposal=proposal, violations=self.objections, text=reply.text
        )
        self.writer.append("advisor.answered", answered)

    def _settled_by_operator(self, proposal: Proposal) -> bool:
        """Whether the model asked, for the first time, and the operator had something to say."""
        if proposal.outcome != "ask_operator" or self._asked or not proposal.question:
            return False
        self._asked = True
        fact = self.ask_operator(proposal.question)
        if fact is None:
            return False
        self._say(Message(role="user", content=fact_prompt(proposal.question, fact)))
        return True
