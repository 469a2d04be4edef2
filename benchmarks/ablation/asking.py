"""One answer for an arm and a subject: the one that was kept or pasted, or a new one, which is kept at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from ablation.answer import objections, read_answer, small_form
from ablation.experiment import NoReplyError, diagnose, read_diagnosed
from ablation.files import line_counts
from ablation.kept import Kept, Shelf, Tokens, prompt_key
from ablation.observed import Observed
from ablation.prompts import Arm, as_one_text, prompt
from ablation.scoring import Result, mark
from ablation.subjects import Subject
from weaklink.agent.conversation.messages import Message, Speaker
from weaklink.agent.errors import AdvisorError


@dataclass(frozen=True)
class Asker:
    """Who is asked, and how much it is shown.

    Attributes:
        speaker: The model; None: nobody is asked, only what is there counts.
        options: The options of `weaklink diagnose` that name the same model.
        shelf: Where its answers are kept.
        context: Tokens that it reads at once.
        weaklink: The command.
        timeout: Seconds for a whole diagnosis.
        prices: US dollars for a million tokens of prompts and of answers, where the endpoint does not say what it took.
    """

    speaker: Speaker | None
    options: Sequence[str]
    shelf: Shelf
    context: int
    weaklink: str
    timeout: float
    prices: tuple[float, float] | None = None

    def result(self, subject: Subject, observed: Observed, arm: Arm) -> Result:
        """The marks of the answer, wherever it comes from. Never raises for anything that a model can say."""
        messages = prompt(subject, observed, "both" if arm == "experiment" else arm, self.context)
        key = prompt_key(as_one_text(messages))
        if arm == "experiment":
            # The prompts of that conversation are the product's own: another version may word them otherwise.
            key = prompt_key(f"{key} {self.context} {version('weaklink')}")
        kept, found = self.shelf.find(arm, subject, key)
        if kept is None and self.speaker is not None:
            try:
                kept = self._asked(subject, observed, arm, messages, key)
            except (AdvisorError, NoReplyError) as error:
                return Result(subject.name, arm, "no reply", note=str(error)[:300])
            self.shelf.keep(arm, subject, kept)
            found = "kept"
        if kept is None:
            return Result(subject.name, arm, found)
        if kept.cost is None and self.prices is not None:
            kept = kept.model_copy(update={"cost": cost(kept.tokens, self.prices)})
        return _marked(subject, observed.folder, arm, kept, found == "pasted")

    def _asked(self, subject: Subject, observed: Observed, arm: Arm, messages: list[Message], key: str) -> Kept:
        if arm == "experiment":
            return diagnose(self.weaklink, subject, observed, self.options, key, self.timeout)
        assert self.speaker is not None, "asked before"
        reply = self.speaker.reply(messages, small_form())
        if read_answer(reply.text) is None:
            self.speaker.was_unreadable()
        return Kept(
            prompt_sha256=key,
            text=reply.text,
            model=reply.model,
            endpoint=reply.endpoint,
            tokens=Tokens(prompt=reply.usage.prompt_tokens, answer=reply.usage.answer_tokens),
            cost=reply.usage.cost,
            seconds=reply.seconds,
            when=datetime.now().astimezone().isoformat(timespec="seconds"),
        )


def cost(tokens: Tokens, prices: tuple[float, float]) -> float | None:
    """US dollars, at so many for a million tokens of prompt and of answer; None where the tokens are not known."""
    if tokens.prompt is None or tokens.answer is None:
        return None
    return (tokens.prompt * prices[0] + tokens.answer * prices[1]) / 1e6


def _marked(subject: Subject, folder: Path, arm: Arm, kept: Kept, pasted: bool) -> Result:
    result = Result(
        subject.name,
        arm,
        "pasted" if pasted else "kept",
        seconds=kept.seconds,
        prompt_tokens=kept.tokens.prompt,
        answer_tokens=kept.tokens.answer,
        cost=kept.cost,
    )
    if arm != "experiment":
        answer = read_answer(kept.text)
        result.refused = bool(objections(answer, None if arm == "evidence" else line_counts(folder)))
        result.marks = mark(subject, answer)
        return result
    found = read_diagnosed(kept)
    if found is None:
        return Result(subject.name, arm, "stale")
    result.refused, result.accepted, result.violations = found.first_refused, found.answer is not None, found.violations
    result.marks = mark(subject, found.answer)
    supported = found.verdict == "supported"
    right = not subject.healthy and found.family == subject.case.expected.get("family")
    result.proved, result.wrongly_supported = supported and right, supported and not right
    return result
