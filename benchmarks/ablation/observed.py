"""What is known of a subject before anybody is asked: its files, what its run printed, the evidence. Computed once."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from score.cases import environment

from ablation.subjects import Subject, digest
from weaklink.collector.evidence import Evidence, read_evidence

NEUTRAL = "project"  # the folder's name in every run: a case's own name says what is wrong with it


class ObservationError(Exception):
    """A subject's run gave no evidence; says why."""


@dataclass(frozen=True)
class Observed:
    """`folder` holds the subject's files as they were before the run, `output` what the run printed."""

    folder: Path
    evidence: Evidence
    output: str


def observe(weaklink: str, root: Path, subject: Subject, store: Path, timeout: float) -> Observed:
    """The subject's files, output and evidence, kept below `store`.

    Args:
        weaklink: The command.
        root: The folder of the cases.
        subject: What is run.
        store: Where it is kept; made if it is not there.
        timeout: Seconds for the run with its close-up.

    Raises:
        ObservationError: It gave no evidence.
    """
    kept = store / subject.file_name
    key = f"{digest(root, subject)} {version('weaklink')}"
    marker = kept / "key.txt"  # written last: whoever finds it finds everything
    if not marker.is_file() or marker.read_text(encoding="utf-8") != key:
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        _run(weaklink, subject, kept, timeout)
        marker.write_text(key, encoding="utf-8")
    output = (kept / "output.txt").read_text(encoding="utf-8", errors="replace")
    return Observed(kept / NEUTRAL, read_evidence(kept / "evidence.json"), output)


def words(subject: Subject) -> list[str]:
    """The subject as `weaklink diagnose` takes it."""
    script, *rest = subject.case.arguments
    return [script, *(["--", *rest] if rest else [])]


def _run(weaklink: str, subject: Subject, kept: Path, timeout: float) -> None:
    (kept / NEUTRAL).mkdir()
    subject.case.lay(subject.variant, kept / NEUTRAL)
    with tempfile.TemporaryDirectory() as name:
        # Run elsewhere: what a script prints may hold the path, and this one holds the case's name.
        folder = Path(name) / NEUTRAL
        shutil.copytree(kept / NEUTRAL, folder)
        script, *rest = words(subject)
        command = [weaklink, "diagnose", script, "--no-rerun", "--no-capture", "--json", "--incidents", f"{name}/seen"]
        try:
            done = ended([*command, *rest], folder, timeout)
        except subprocess.TimeoutExpired:
            raise ObservationError(f"no evidence after {timeout:g} s") from None
        incidents = list((Path(name) / "seen").glob("*/evidence.json"))
        if done.returncode not in (0, 1) or len(incidents) != 1:
            raise ObservationError(_why(done.stdout, done.stderr))
        shutil.copy(incidents[0], kept / "evidence.json")
        logs = sorted((incidents[0].parent / "logs").glob("observe*.log"))
        printed = logs[0].read_bytes() if logs else b""
        (kept / "output.txt").write_bytes(printed)


def _why(printed: str, said: str) -> str:
    try:
        return str(json.loads(printed)["message"])
    except (ValueError, KeyError, TypeError):
        return said.strip().splitlines()[-1][:300] if said.strip() else "nothing was printed"


def ended(command: list[str], folder: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """A command of weaklink's in a case's folder, to its end.

    Raises:
        subprocess.TimeoutExpired: It took longer than `timeout` seconds.
    """
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        check=False,
    )
