"""`weaklink ledger`: the learning chain of one run, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

from weaklink.agent.cli.commands.subjects import evidence_file, read_subject, without_declarations
from weaklink.agent.cli.output import color, print_json, width, write
from weaklink.agent.cli.said import Said
from weaklink.agent.close_up import closer
from weaklink.agent.errors import NothingMeasuredError
from weaklink.agent.progress import Progress
from weaklink.agent.reporters.ledger import ledger_json, render_ledger
from weaklink.agent.runner import Runner
from weaklink.agent.session import measured
from weaklink.agent.settings import read_settings
from weaklink.collector.errors import StorageError
from weaklink.collector.evidence import Evidence, write_evidence
from weaklink.collector.replicas import read_stored
from weaklink.collector.workers import this_python


def run(
    words: list[str],
    module: str | None,
    python: str | None,
    out: str | None,
    strict: bool,
    seed_offset: int,
    deadline: float,
    said: Said,
    json: bool,
) -> None:
    """Run the subject once in a scratch copy, or read its evidence file, and show the chain; leave with its exit code.

    Raises:
        WeaklinkError: It cannot be run, or nothing was measured.
    """
    source = None if module else evidence_file(words)
    if source is not None:
        evidence, interrupted = read_stored(source), False
        without_declarations(said, evidence)
    else:
        subject, declared, here = read_subject(words, module), read_settings(said), Path.cwd()
        with tempfile.TemporaryDirectory(prefix="weaklink-") as logs:
            settings = (python or this_python(), Path(logs), deadline, Progress(), declared.task, declared.user_code)
            with Runner(subject, here, *settings, rule=declared.rule, intent=declared.intent) as runner:
                runner.pins = runner.pins.model_copy(update={"offset": seed_offset})
                record = runner.observe()
                if record.evidence is None:
                    raise KeyboardInterrupt
                evidence, interrupted = record.evidence, record.result.interrupted
                if not interrupted:
                    evidence, interrupted = closer(runner, evidence)
    if out is not None:
        _keep(evidence, Path(out))
    if not measured(evidence):
        if interrupted:
            raise KeyboardInterrupt
        raise NothingMeasuredError.of(evidence, None)
    if json:
        print_json(ledger_json(evidence))
    else:
        write(render_ledger(evidence, width(), color()))
    raise SystemExit(130 if interrupted else _exit_code(evidence, strict))


def _exit_code(evidence: Evidence, strict: bool) -> int:
    """1 for a failing row or an exception; a suspicion accuses nobody, unless the caller wants to hear of it."""
    first = evidence.first_divergence
    diverges = first is not None and (strict or first.status == "fail")
    return 1 if diverges or evidence.outcome.raised is not None else 0


def _keep(evidence: Evidence, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_evidence(evidence, path)
    except OSError as error:
        raise StorageError(
            f"The evidence cannot be written there: {error.strerror}.", about=str(path), hint="choose another --out."
        ) from error
