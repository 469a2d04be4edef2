"""A language model at a Chat Completions endpoint, as somebody who replies."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence

from weaklink.agent.conversation.messages import Form, Message, Reply
from weaklink.agent.endpoint.answer import Answer
from weaklink.agent.endpoint.connection import TICK, Clock, Connection
from weaklink.agent.endpoint.faults import (
    DeadlinePassedError,
    EndpointError,
    Refusal,
    WireFault,
    fault_of_exception,
    fault_of_refusal,
)
from weaklink.agent.endpoint.keys import Redaction
from weaklink.agent.endpoint.ladder import Way, request_body, way_after
from weaklink.agent.endpoint.remembered import remember, remembered_way
from weaklink.agent.endpoint.retries import Retries, is_loading
from weaklink.agent.endpoint.settings import Endpoint
from weaklink.agent.endpoint.stream import objects
from weaklink.agent.progress import Progress
from weaklink.agent.prompting.budget import answer_room, estimated_tokens
from weaklink.collector.table.text import printable

UNREADABLE = 2  # replies in a row that nobody could read, before another way is tried
SAID_LIMIT = 300  # characters of a server's own words in an error
AFTER_THE_END = 2.0  # seconds for the usage that follows an answer's end


class ChatCompletions:
    """A Speaker over Chat Completions.

    Nothing is sent, and the SDK is not even imported, before a reply is asked for.

    Args:
        endpoint: Where, and with what.
        progress: Where to tell how long it takes.
    """

    name = "openai"

    def __init__(self, endpoint: Endpoint, progress: Progress) -> None:
        self.endpoint, self.model = endpoint, endpoint.model
        self._progress = progress
        self._redaction = Redaction(endpoint.secrets)
        self._way: Way | None = None
        self._unreadable = 0
        self._told = True
        self._kept = True

    def reply(self, messages: Sequence[Message], form: Form) -> Reply:
        """The next reply.

        Raises:
            EndpointError: None came before the deadline. Says why, without any key.
        """
        if not self._told:
            self._unreadable = 0
        self._told = False
        clock = Clock(self.endpoint.deadline)
        self._progress.begin(f"asking {printable(self.model, 80)} at {printable(self.endpoint.host, 80)}")
        try:
            answer, text = self._answered(messages, form, clock)
            return self._reply(answer, text, clock)
        except WireFault as fault:
            raise self._error(fault) from None  # the causes may hold keys
        finally:
            self._progress.done()

    def was_unreadable(self) -> None:
        """The last reply did not have its form: after two in a row the next way of asking is tried."""
        self._told = True
        self._unreadable += 1
        if self._unreadable < UNREADABLE or self._way is None:
            return
        self._unreadable = 0
        lower = self._way.lower()
        if lower is not None:
            # A weak model writes nonsense whatever the way: that is no property of the endpoint.
            self._way, self._kept = lower, False

    # -- parts -------------------------------------------------------------------------------------------------------

    def _answered(self, messages: Sequence[Message], form: Form, clock: Clock) -> tuple[Answer, str]:
        retries = Retries()
        if self._way is None:
            self._way = remembered_way(self.endpoint)
        while True:
            if self._way.rung == "tool" and not self._holds_tool(messages, form):
                self._way = self._way.lower() or self._way
            try:
                return self._exchange(self._way, messages, form, clock)
            except (Refusal, WireFault) as trouble:
                lower = way_after(self._way, trouble) if isinstance(trouble, Refusal) else None
                if lower is not None:
                    self._way = lower
                    continue
                pause = retries.pause_after(trouble, clock.left)
                if pause is None:
                    raise self._fault(trouble) from None
                self._wait(pause, "its model is being loaded" if is_loading(trouble) else "asking again", clock)

    def _exchange(self, way: Way, messages: Sequence[Message], form: Form, clock: Clock) -> tuple[Answer, str]:
        answer = Answer()
        body = request_body(way, self.model, messages, form, self._room(messages))
        pieces = Connection(self.endpoint, body, clock).pieces(lambda: self._running(answer, clock))
        try:
            with contextlib.closing(pieces):
                for chunk in objects(pieces):
                    answer.take(chunk)
                    if answer.finish is not None:
                        clock.at_most(AFTER_THE_END)
        except DeadlinePassedError:
            if answer.finish is None:
                raise DeadlinePassedError(clock.seconds, answer.characters) from None
        except Exception as error:
            if answer.finish is None or isinstance(error, Refusal | WireFault):
                raise fault_of_exception(error, self.endpoint, answer.characters > 0) from None
        return answer, answer.checked()

    def _room(self, messages: Sequence[Message]) -> int:
        """Tokens for the answer: what the messages leave of the context."""
        context = self.endpoint.context
        return max(answer_room(context), context - sum(estimated_tokens(each.content) + 8 for each in messages))

    def _holds_tool(self, messages: Sequence[Message], form: Form) -> bool:
        """Whether a tool's schema, which servers write into the prompt, fits there beside the messages."""
        sent = sum(estimated_tokens(each.content) for each in messages)
        schema = estimated_tokens(json.dumps(form.schema))
        return sent + schema + answer_room(self.endpoint.context) <= self.endpoint.context

    def _reply(self, answer: Answer, text: str, clock: Clock) -> Reply:
        assert self._way is not None, "asked that way"
        if self._kept:
            remember(self.endpoint, self._way)
        return Reply(
            text=self._redaction.clean(text),
            model=self._redaction.clean(answer.model or self.model)[:200],
            endpoint=self.endpoint.host,
            rung=self._way.rung,
            finish=self._redaction.clean(answer.finish or "stop")[:40],
            usage=answer.cost(self.endpoint.price_input, self.endpoint.price_output),
            seconds=round(clock.passed, 3),
        )

    def _fault(self, trouble: Refusal | WireFault) -> WireFault:
        return fault_of_refusal(trouble, self.endpoint) if isinstance(trouble, Refusal) else trouble

    def _error(self, fault: WireFault) -> EndpointError:
        clean = self._redaction.clean
        about = f"{printable(self.model, 80)} at {printable(self.endpoint.host, 80)}"
        # Cleaned first, then cut: a key cut short is no longer known as one.
        said = f' It says: "{printable(clean(fault.said).strip(), SAID_LIMIT)}"' if fault.said.strip() else ""
        return EndpointError(clean(fault.message) + said, about=clean(about), hint=clean(fault.hint))

    def _running(self, answer: Answer, clock: Clock) -> None:
        parts = [f"{answer.characters} characters"] if answer.characters else []
        parts += [f"{answer.thought} of reasoning"] if answer.thought else []
        self._progress.running(clock.passed, ", ".join(parts))

    def _wait(self, seconds: float, why: str, clock: Clock) -> None:
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            self._progress.running(clock.passed, why)
            time.sleep(min(TICK, rest))
