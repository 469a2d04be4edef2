"""One case: the plain run, the observed one, the diagnosis of the broken and of the fixed variant."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from score.cases import Case, Place, environment
from score.intervenable import intervenable

NEAR = 3
# Seconds and rates that a script prints of itself differ from run to run.
_TIMES = re.compile(r"\d+(\.\d+)? ?(s|ms|sec|seconds|it/s|samples/s)\b")


@dataclass
class Score:
    """What came of one case. None: does not apply, or was not tried."""

    kind: str
    case: str
    expected: str
    boundary: str
    row: str | None = None
    status: str | None = None
    right: bool | None = None
    site_exact: bool | None = None
    site_near: bool | None = None
    family: bool | None = None
    verdict: str | None = None
    intervenable: bool | None = None
    recovered_fixed: str | None = None
    recovered_broken: str | None = None
    accused: bool | None = None
    suspected: bool | None = None
    fixed_accused: bool | None = None
    fixed_suspected: bool | None = None
    fixed_row: str | None = None
    same_output: bool | None = None
    seconds: float = 0.0
    plain_seconds: float = 0.0
    observed_seconds: float = 0.0
    note: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def score_case(weaklink: str, case: Case, timeout: float, with_fixed: bool, with_recovery: bool = False) -> Score:
    """Run everything for one case in folders of its own, which are thrown away.

    `with_recovery`: the repaired variant, and the broken one as it is, are held against the diagnosis too.
    """
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        score = _broken(weaklink, case, base, timeout)
        if case.has_fixed and with_fixed:
            folder = _laid(case, "fixed", base / "run_b")
            found = _diagnose(weaklink, case, folder, timeout)[0]
            if found is None or "first_divergence" not in found:
                score.note += " no diagnosis of the fixed variant"
            else:
                first = found["first_divergence"]
                score.fixed_row = first["row"] if first else None
                score.fixed_accused = bool(first) and first["status"] == "fail"
                score.fixed_suspected = bool(first) and first["status"] == "suspected"
            if with_recovery and (base / "run_a" / "incidents").is_dir():
                score.recovered_fixed = _recovery(weaklink, base / "run_a", folder, timeout)
                score.recovered_broken = _recovery(weaklink, base / "run_a", base / "run_a", timeout)
        return score


def _broken(weaklink: str, case: Case, base: Path, timeout: float) -> Score:
    score = Score(case.kind, case.name, case.expected["first_boundary"], "ERROR")
    plain, score.plain_seconds = _run([sys.executable, *case.arguments], _laid(case, "broken", base / "plain"), timeout)
    observed, score.observed_seconds = _run(
        [weaklink, "observe", "--out", str(base / "evidence.json"), *_words(case)],
        _laid(case, "broken", base / "seen"),
        timeout,
    )
    score.same_output = _lines(plain) == _lines(observed)
    found, score.seconds = _diagnose(weaklink, case, _laid(case, "broken", base / "run_a"), timeout)
    if found is None or "first_divergence" not in found:
        score.note = str((found or {}).get("message", "no JSON"))[:200]
        score.right = False if not case.healthy else None
        return score
    first, mechanism, where = found["first_divergence"], found.get("mechanism") or {}, found.get("where") or []
    score.boundary = first["boundary"] if first else "NONE"
    score.row, score.status = (first["row"], first["status"]) if first else (None, None)
    if case.healthy:
        score.accused, score.suspected = score.status == "fail", score.status == "suspected"
        return score
    score.intervenable = intervenable(case.name)
    score.right = score.boundary in case.boundaries
    score.site_exact, score.site_near = _hits(where[:1], case.places, 0), _hits(where[:3], case.places, NEAR)
    score.family, score.verdict = mechanism.get("id") == case.expected.get("family"), mechanism.get("status")
    return score


def _laid(case: Case, variant: str, folder: Path) -> Path:
    folder.mkdir()
    case.lay(variant, folder)  # type: ignore[arg-type]
    return folder


def _words(case: Case) -> list[str]:
    rest = case.arguments[1:]
    return [case.arguments[0], *(["--", *rest] if rest else [])]


def _diagnose(weaklink: str, case: Case, folder: Path, timeout: float) -> tuple[dict[str, Any] | None, float]:
    words = _words(case)
    done, seconds = _run([weaklink, "diagnose", words[0], "--json", *words[1:]], folder, timeout)
    try:
        found = json.loads(done)
    except ValueError:
        return None, seconds
    return found if isinstance(found, dict) else None, seconds


def _recovery(weaklink: str, diagnosed: Path, folder: Path, timeout: float) -> str:
    """The verdict of `weaklink recover`, or why there is none."""
    incident = max((diagnosed / "incidents").iterdir())
    printed, _ = _run([weaklink, "recover", str(incident), str(folder), "--json"], diagnosed, 2 * timeout)
    try:
        found = json.loads(printed)
    except ValueError:
        return "no JSON"
    return str(found["status"]["recovery"]) if "status" in found else str(found.get("message"))[:80]


def _run(command: list[str], folder: Path, timeout: float) -> tuple[str, float]:
    """Standard output (empty after a timeout), and wall seconds."""
    started = time.perf_counter()
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=timeout, check=False
        ).stdout
    except subprocess.TimeoutExpired:
        done = ""
    return done, time.perf_counter() - started


def _lines(output: str) -> list[str]:
    return [_TIMES.sub("", line) for line in output.splitlines()]


def _hits(where: list[dict[str, Any]], places: frozenset[Place], slack: int) -> bool:
    for site in where:
        for file, line in places:
            if not file or not str(site.get("file", "")).endswith(file):
                continue
            if line is None or (site.get("line") is not None and abs(site["line"] - line) <= slack):
                return True
    return False
