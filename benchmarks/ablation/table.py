"""The results as Markdown: shares with intervals by arm, arms compared on the same cases, then every case."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from ablation.intervals import paired, share
from ablation.scoring import Marks, Result

COMPARED = (("source", "evidence"), ("source", "both"), ("evidence", "both"))


def markdown(results: Sequence[Result], expected: dict[str, str], arms: Sequence[str]) -> str:
    """All tables.

    Args:
        results: One for each arm and subject.
        expected: The right boundary of each subject, by its name.
        arms: The columns, in their order.
    """
    lines = ["| | " + " | ".join(arms) + " |", "| --- |" + " --- |" * len(arms)]
    for label, cell in _CELLS.items():
        cells = [cell([result for result in results if result.arm == arm]) for arm in arms]
        if any(cells):
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, *_compared(results, arms), "", *_cases(results, expected, arms)])


def _marks(results: Sequence[Result], healthy: bool) -> list[Marks]:
    return [result.marks for result in results if result.marks is not None and result.marks.healthy is healthy]


def _of_faults(name: str) -> Callable[[Sequence[Result]], str]:
    def cell(results: Sequence[Result]) -> str:
        return _share([getattr(marks, name) for marks in _marks(results, healthy=False)])

    return cell


def _of_answers(name: str) -> Callable[[Sequence[Result]], str]:
    def cell(results: Sequence[Result]) -> str:
        return _share([getattr(result, name) for result in results])

    return cell


def _proved(results: Sequence[Result]) -> str:
    return _share([result.proved for result in results if result.marks is not None and not result.marks.healthy])


def _accused(results: Sequence[Result]) -> str:
    return _share([marks.accused for marks in _marks(results, healthy=True)])


def _share(values: Sequence[bool | None]) -> str:
    known = [value for value in values if value is not None]
    return share(sum(known), len(known)) if known else ""


def _confidence(right: bool) -> Callable[[Sequence[Result]], str]:
    def cell(results: Sequence[Result]) -> str:
        marks = [result.marks for result in results if result.marks is not None]
        said = [each.confidence for each in marks if each.confidence is not None and each.right is right]
        return f"{statistics.fmean(said):.2f} (n {len(said)})" if said else ""

    return cell


def _median(name: str, form: str) -> Callable[[Sequence[Result]], str]:
    def cell(results: Sequence[Result]) -> str:
        known = [value for result in results if (value := getattr(result, name)) is not None]
        return f"{statistics.median(known):{form}} (n {len(known)})" if known else ""

    return cell


def _cost(results: Sequence[Result]) -> str:
    known = [result.cost for result in results if result.cost is not None]
    return f"{sum(known):.4f} (n {len(known)})" if known else ""


def _count(found: str) -> Callable[[Sequence[Result]], str]:
    def cell(results: Sequence[Result]) -> str:
        return str(sum(result.found == found for result in results) or "")

    return cell


def _violations(results: Sequence[Result]) -> str:
    known = [result.violations for result in results if result.violations is not None]
    return f"{statistics.fmean(known):.1f} (n {len(known)})" if known else ""


_CELLS: dict[str, Callable[[Sequence[Result]], str]] = {
    "faults: boundary right": _of_faults("boundary"),
    "faults: line right, exactly": _of_faults("line_exact"),
    "faults: line right, within 3": _of_faults("line_near"),
    "faults: family right": _of_faults("family"),
    "faults: proved by the rerun, family right": _proved,
    "all: another family supported by the rerun": _of_answers("wrongly_supported"),
    "healthy: accused": _accused,
    "(first) answer breaks the form or the contract": _of_answers("refused"),
    "contract met in the end": _of_answers("accepted"),
    "violations of the contract, mean": _violations,
    "confidence where right, mean": _confidence(True),
    "confidence where wrong, mean": _confidence(False),
    "tokens of the prompts, median": _median("prompt_tokens", ".0f"),
    "tokens of the answers, median": _median("answer_tokens", ".0f"),
    "seconds of the model, median": _median("seconds", ".1f"),
    "cost in US dollars, sum": _cost,
    "answers pasted": _count("pasted"),
    "answers missing": _count("missing"),
    "answers to another prompt": _count("stale"),
    "no reply": _count("no reply"),
}


def _compared(results: Sequence[Result], arms: Sequence[str]) -> list[str]:
    right = {(result.arm, result.subject): result.marks.right for result in results if result.marks is not None}
    lines = []
    for first, second in COMPARED:
        if first not in arms or second not in arms:
            continue
        both = [name for arm, name in right if arm == first and (second, name) in right]
        gained, lost, p = paired((right[first, name], right[second, name]) for name in both)
        lines.append(
            f"- {first} against {second}, on the same {len(both)} subjects: {gained} right only with {second}, "
            f"{lost} only with {first} (sign test p = {p:.2g})"
        )
    return ["", *lines] if lines else []


def _cases(results: Sequence[Result], expected: dict[str, str], arms: Sequence[str]) -> list[str]:
    by_place = {(result.subject, result.arm): result for result in results}
    lines = ["| case | expected | " + " | ".join(arms) + " |", "| --- | --- |" + " --- |" * len(arms)]
    for name, boundary in expected.items():
        cells = [_case(by_place.get((name, arm))) for arm in arms]
        lines.append(f"| {name} | {boundary} | " + " | ".join(cells) + " |")
    return lines


def _case(result: Result | None) -> str:
    """The boundary that was named, bold where it is wrong; then what else is right."""
    if result is None:
        return ""
    if result.marks is None:
        return result.found
    marks = result.marks
    # A model's own word: letters alone, so that it stays inside its cell.
    said = "".join(letter for letter in marks.said[:20] if letter.isalnum() or letter == "_") or "unreadable"
    line = "line" if marks.line_exact else "near" if marks.line_near else ""
    proof = "proved" if result.proved else "wrongly supported" if result.wrongly_supported else ""
    more = [word for word in (line, "family" if marks.family else "", proof) if word]
    return ", ".join([said if marks.right else f"**{said}**", *more])
