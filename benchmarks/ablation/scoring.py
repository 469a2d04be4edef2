"""What an answer is worth, held against what the author of the case says of it. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from score.cases import Place

from ablation.answer import SmallAnswer, same_file
from ablation.subjects import Subject
from weaklink.agent.contract.families import NONE

NEAR = 3  # lines


@dataclass(frozen=True)
class Marks:
    """One answer's marks. None: does not apply.

    Attributes:
        healthy: Whether nothing was wrong with the subject.
        said: The boundary that was named; empty where the answer could not be read.
        boundary: Whether it is the right one, or one that the author accepts too.
        line_exact: Whether the place is a faulty one; where a whole file is at fault, the file.
        line_near: The same within three lines.
        family: Whether the cause is the right one.
        accused: On a healthy subject: whether a fault was named.
        confidence: As the model said it.
    """

    healthy: bool
    said: str
    boundary: bool | None = None
    line_exact: bool | None = None
    line_near: bool | None = None
    family: bool | None = None
    accused: bool | None = None
    confidence: float | None = None

    @property
    def right(self) -> bool:
        """Whether the boundary is right; on a healthy subject, whether it was readably left alone."""
        return self.said == NONE if self.healthy else bool(self.boundary)


def mark(subject: Subject, answer: SmallAnswer | None) -> Marks:
    """The marks of an answer; an unreadable one (None) is wrong about a fault, and accuses nobody."""
    said = answer.boundary if answer is not None else ""
    confidence = answer.confidence if answer is not None else None
    if subject.healthy:
        return Marks(True, said, accused=said not in ("", NONE), confidence=confidence)
    case = subject.case
    blamed = None if said == NONE else answer  # who says that nothing is wrong names no place and no cause
    return Marks(
        healthy=False,
        said=said,
        boundary=said in case.boundaries,
        line_exact=at_fault(blamed, case.places, 0),
        line_near=at_fault(blamed, case.places, NEAR),
        family=blamed is not None and blamed.family == case.expected.get("family"),
        confidence=confidence,
    )


def at_fault(answer: SmallAnswer | None, places: frozenset[Place], slack: int) -> bool | None:
    """Whether an answer's place is one of these, `slack` lines off at most; None where no place is known."""
    known = [(file, line) for file, line in places if file]
    if not known:
        return None
    if answer is None or answer.file is None:
        return False
    for file, line in known:
        if same_file(file, answer.file) and (line is None or _near(answer.line, line, slack)):
            return True
    return False


def _near(said: int | None, line: int, slack: int) -> bool:
    return said is not None and abs(said - line) <= slack


@dataclass
class Result:
    """What came of one arm on one subject.

    Attributes:
        found: Where the answer comes from: `kept`, `pasted`; or why there is none: `missing`, `stale` (it answers
            another prompt), `no reply`.
        refused: Whether the answer breaks the form; in the experiment whether the first one breaks the contract.
        accepted: In the experiment: whether some answer met the contract.
        violations: In the experiment: objections to all answers.
        proved: In the experiment: whether the rerun supports the right cause.
        wrongly_supported: In the experiment: whether it supports another one, or any in a healthy run.
    """

    subject: str
    arm: str
    found: str
    marks: Marks | None = None
    refused: bool | None = None
    accepted: bool | None = None
    violations: int | None = None
    proved: bool | None = None
    wrongly_supported: bool | None = None
    seconds: float | None = None
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    cost: float | None = None
    note: str = ""
