"""`weaklink observe`: the user's own run, in place, with the evidence written beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from weaklink.agent.cli.commands.subjects import read_subject
from weaklink.agent.cli.output import print_json
from weaklink.agent.cli.said import Said
from weaklink.agent.settings import read_settings
from weaklink.collector.errors import InterpreterError, StorageError, SubjectError
from weaklink.collector.evidence import Evidence, read_evidence
from weaklink.collector.job import Job
from weaklink.collector.processes import cannot_start, missing_in, refusal, single_command
from weaklink.collector.rank import Rank, rank_of
from weaklink.collector.supervision import GRACE_SECONDS
from weaklink.collector.workers import this_python


def run(
    words: list[str],
    module: str | None,
    python: str | None,
    out: str,
    deadline: float | None,
    said: Said,
    max_parameters: int | None,
    json: bool,
) -> None:
    """Run the subject in a process of its own with this terminal's streams; leave with its exit code.

    Raises:
        WeaklinkError: It cannot be started, or left no evidence. The exit code is the run's own in the second case.
    """
    subject, declared = read_subject(words, module), read_settings(said)
    rank = rank_of()
    evidence = evidence_path(Path(out), rank).absolute()
    _must_be_writable(evidence)
    job = Job(
        role="observe",
        subject=subject,
        folder=Path.cwd(),
        evidence=evidence,
        deadline=deadline,
        user_code=list(declared.user_code),
        task=declared.task,
        rule=declared.rule,
        intent=declared.intent,
        max_parameters=max_parameters,
    )
    with tempfile.TemporaryDirectory(prefix="weaklink-") as folder:
        job_file, refused = Path(folder) / "job.json", Path(folder) / "refused.json"
        job_file.write_text(job.model_dump_json(), encoding="utf-8")
        before = evidence.stat().st_mtime_ns if evidence.exists() else None
        code = _call(python or this_python(), job_file, refused, json, deadline)
        if refused.exists():
            raise refusal(refused)
    if not evidence.exists() or evidence.stat().st_mtime_ns == before:
        raise _no_evidence(python or this_python(), subject.name, code)
    if rank is None or rank.rank == 0 or json:
        report(read_evidence(evidence), evidence, json, rank)
    raise SystemExit(code)


def evidence_path(out: Path, rank: Rank | None) -> Path:
    """Where a run's evidence goes: of one among several processes into a folder of that name, one file a rank."""
    return out if rank is None else (out.with_suffix("") if out.suffix == ".json" else out) / rank.file_name


def report(evidence: Evidence, path: Path, json: bool, rank: Rank | None = None) -> None:
    """One line for people on stderr (stdout is the script's), one object for machines.

    Of several processes the first one speaks, before it knows what the others saw.
    """
    first = evidence.first_divergence
    if json:
        print_json(
            {
                "schema": "weaklink.observation/1",
                "evidence": str(path),
                "branch": evidence.branch,
                "ended": evidence.outcome.ended,
                "steps": evidence.outcome.steps,
                "backwards": evidence.outcome.backwards,
                "first_divergence": None if first is None else {"row": first.id, "status": first.status},
            }
        )
    found = (
        "no row diverges" if evidence.rows else f"nothing was measured ({'; '.join(evidence.problems) or 'no torch'})"
    )
    found = found if first is None else f"first divergence {first.id} ({first.status})"
    if rank is not None:
        found, path = f"{found} on rank {rank.rank} of {rank.world_size}", path.parent
    print(f"weaklink: {found}; evidence in {path}; next: weaklink diagnose {path}", file=sys.stderr)


def _call(python: str, job: Path, refused: Path, json: bool, deadline: float | None) -> int:
    """Run in the foreground. Ctrl-C reaches the script itself, which writes its evidence on the way out."""
    try:
        process = subprocess.Popen(single_command(python, job, refused), stdout=sys.stderr.fileno() if json else None)
    except OSError as error:
        raise cannot_start(python, error) from error
    signal.signal(signal.SIGTERM, lambda number, frame: _pass_on(process))
    signals = [] if deadline is None else [getattr(signal, "SIGUSR1", signal.SIGTERM), signal.SIGKILL]
    wait = deadline
    while True:
        try:
            code = process.wait(timeout=wait)
            return code if code >= 0 else 128 - code
        except KeyboardInterrupt:
            continue
        except subprocess.TimeoutExpired:
            # The script is told first, in whose signal handler it stops; one that does not listen is killed.
            process.send_signal(signals.pop(0))
            wait = GRACE_SECONDS if signals else None


def _pass_on(process: subprocess.Popen[bytes]) -> None:
    """A launcher ends its processes with SIGTERM: the run is told, and killed where it does not listen.

    A rank that waits for another one inside a collective hears no signal; without us it would be dead by now.
    """
    process.send_signal(signal.SIGTERM)
    killer = threading.Timer(GRACE_SECONDS, process.kill)
    killer.daemon = True
    killer.start()


def _must_be_writable(path: Path) -> None:
    probe = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise StorageError(
            f"The evidence cannot be written there: {error.strerror}.", about=str(path), hint="choose another --out."
        ) from error


def _no_evidence(python: str, name: str, code: int) -> InterpreterError | SubjectError:
    if code == 3:
        tried = subprocess.run(
            single_command(python, Path(os.devnull), Path(os.devnull)), capture_output=True, text=True, check=False
        )
        if '"missing"' in tried.stdout:
            return missing_in(python, tried.stdout, tried.stderr)
    error = SubjectError(
        f"The run left no evidence (exit code {code}).",
        about=name,
        hint="run it with `python` first; is the disk full?",
    )
    error.exit_code = code
    return error
