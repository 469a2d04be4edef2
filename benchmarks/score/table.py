"""The scores as Markdown: totals, then one line a case."""

from __future__ import annotations

import os
import platform
import statistics

from score.one import Score


def markdown(scores: list[Score]) -> str:
    """Versions, totals by kind, and every case."""
    import torch

    lines = [
        f"{len(scores)} cases, torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        "one thread a run.",
        "",
        *totals(scores),
        "",
        "| case | expected | found | row | status | site | family | verdict | fixed | recovered | output | wall |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *[_line(score) for score in scores],
    ]
    return "\n".join(lines)


def totals(scores: list[Score]) -> list[str]:
    """A table of counts by kind. Suspected boundaries are counted apart from failed ones."""
    kinds = list(dict.fromkeys(score.kind for score in scores))
    lines = ["| | " + " | ".join(kinds) + " |", "| --- |" + " --- |" * len(kinds)]
    for label, count in _COUNTS.items():
        lines.append(
            f"| {label} | " + " | ".join(count([s for s in scores if s.kind == kind]) for kind in kinds) + " |"
        )
    return lines


def _share(scores: list[Score], name: str) -> str:
    known = [getattr(score, name) for score in scores if getattr(score, name) is not None]
    return f"{sum(known)}/{len(known)}"


def _by_status(scores: list[Score], status: str) -> str:
    broken = [score for score in scores if score.right is not None]
    return f"{sum(bool(score.right) and score.status == status for score in broken)}/{len(broken)}"


def _verdicts(scores: list[Score], verdict: str, family: bool = False) -> str:
    settled = [score for score in scores if score.intervenable]
    found = [score for score in settled if score.verdict == verdict and (score.family or not family)]
    return f"{len(found)}/{len(settled)}"


def _wrongly_supported(scores: list[Score]) -> str:
    broken = [score for score in scores if score.intervenable is not None]
    return f"{sum(score.verdict == 'supported' and not score.family for score in broken)}/{len(broken)}"


def _without_verdict(scores: list[Score]) -> str:
    beyond = [score for score in scores if score.intervenable is False]
    return f"{sum(score.verdict not in ('supported', 'refuted') for score in beyond)}/{len(beyond)}"


def _recovered(scores: list[Score], name: str) -> str:
    tried = [getattr(score, name) for score in scores if getattr(score, name) is not None]
    return f"{tried.count('recovered (bounded)')}/{len(tried)}"


def _wall(scores: list[Score], name: str) -> str:
    ratios = [getattr(score, name) / score.plain_seconds for score in scores if score.plain_seconds > 0]
    return f"{statistics.median(ratios):.2f} (largest {max(ratios):.2f})" if ratios else "none"


_COUNTS = {
    "boundary right": lambda scores: _share(scores, "right"),
    "... as a fail": lambda scores: _by_status(scores, "fail"),
    "... as a suspicion": lambda scores: _by_status(scores, "suspected"),
    "faulty place first, exactly": lambda scores: _share(scores, "site_exact"),
    "faulty place among three, within 3 lines": lambda scores: _share(scores, "site_near"),
    "intervenable: supported": lambda scores: _verdicts(scores, "supported"),
    "intervenable: refuted": lambda scores: _verdicts(scores, "refuted"),
    "intervenable: supported, and the family is right": lambda scores: _verdicts(scores, "supported", family=True),
    "a wrong family supported": lambda scores: _wrongly_supported(scores),
    "not intervenable: no verdict": lambda scores: _without_verdict(scores),
    "repaired variant recovered": lambda scores: _recovered(scores, "recovered_fixed"),
    "broken variant recovered": lambda scores: _recovered(scores, "recovered_broken"),
    "family right": lambda scores: _share(scores, "family"),
    "healthy accused": lambda scores: _share(scores, "accused"),
    "healthy suspected": lambda scores: _share(scores, "suspected"),
    "fixed accused": lambda scores: _share(scores, "fixed_accused"),
    "fixed suspected": lambda scores: _share(scores, "fixed_suspected"),
    "printed numbers unchanged by observing": lambda scores: _share(scores, "same_output"),
    "observed / plain run": lambda scores: _wall(scores, "observed_seconds"),
    "diagnosis / plain run": lambda scores: _wall(scores, "seconds"),
}


def _line(score: Score) -> str:
    site = "" if score.site_near is None else "exact" if score.site_exact else "near" if score.site_near else "no"
    fixed = "" if score.fixed_accused is None else score.fixed_row or "clean"
    found = score.boundary if score.right is not False else f"**{score.boundary}**"
    wall = f"{score.seconds:.1f} s / {score.plain_seconds:.1f} s"
    cells = [score.case, score.expected, found, score.row or "", score.status or "", site, _word(score.family)]
    cells += [_verdict(score), fixed, _recovery(score)]
    return "| " + " | ".join([*cells, {None: "", True: "same", False: "differs"}[score.same_output], wall]) + " |"


def _verdict(score: Score) -> str:
    asked = "" if score.intervenable is not False else " (not intervenable)"
    return (score.verdict or "").replace("_", " ") + asked


def _recovery(score: Score) -> str:
    """What became of the repaired variant; the broken one is named where it recovered, which it never may."""
    if score.recovered_fixed is None:
        return ""
    wrong = " **(and the broken one)**" if score.recovered_broken == "recovered (bounded)" else ""
    return score.recovered_fixed + wrong


def _word(value: bool | None) -> str:
    return {None: "", True: "right", False: "other"}[value]
