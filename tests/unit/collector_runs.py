"""Runs small scripts with and without the watcher, each in a forked child of one process that has torch imported.

As a module: `observe`, `plain` and their shorthands. As a script: that process. It is a process of its own so that no
test ever forks a Python that may have started threads; importing torch is paid once a session, a run costs hundredths
of a second.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weaklink.collector.evidence import Evidence, Row, Subject, read_evidence
from weaklink.collector.job import Job

# Around a script under test: what a watcher that draws a random number would change.
SEEDED = "import random, torch; random.seed(0); torch.manual_seed(0)\n"
RANDOM_STATE = """
import hashlib as _hashlib, random as _random, torch as _torch
_state = bytes(_torch.get_rng_state().tolist()) + repr(_random.getstate()).encode()
if __name__ == "__main__":  # not in the workers that a script spawns: their lines come whenever they come
    print("random state", _hashlib.sha256(_state).hexdigest())
"""


@dataclass(frozen=True)
class Run:
    """How a script ended. `evidence` is None for a plain run, and where none was written."""

    code: int
    out: str
    err: str
    evidence: Evidence | None = None
    refused: str | None = None

    @property
    def seen(self) -> Evidence:
        assert self.evidence is not None, f"no evidence; exit code {self.code}\n{self.err}"
        return self.evidence


def observe(source: str, folder: Path, name: str = "train.py", argv: tuple[str, ...] = (), **job: Any) -> Run:
    """Write the script into `folder` and run it under the watcher, exactly as a worker does."""
    script = write(source, folder, name)
    job.setdefault("role", "observe")
    job.setdefault("folder", folder)
    job.setdefault("evidence", folder / "evidence.json")
    job.setdefault("subject", Subject(kind="script", name=script.name, argv=list(argv)))
    return run_job(Job(**job), folder)


def run_job(job: Job, folder: Path) -> Run:
    """Run a job in a forked child."""
    refused = folder / "refused.json"
    job.evidence.unlink(missing_ok=True)
    code, out, err = _runner().ask({"job": job.model_dump(mode="json"), "refused": str(refused)}, folder)
    evidence = read_evidence(job.evidence) if job.evidence.exists() else None
    return Run(code, out, err, evidence, refused.read_text(encoding="utf-8") if refused.exists() else None)


def plain(source: str, folder: Path, name: str = "train.py", argv: tuple[str, ...] = ()) -> Run:
    """Write the script into `folder` and run it as Python would, without weaklink."""
    script = write(source, folder, name)
    return Run(*_runner().ask({"plain": str(script), "folder": str(folder), "argv": [name, *argv]}, folder))


def observe_code(source: str, folder: Path, **job: Any) -> Evidence:
    """The evidence of a script that is expected to run to its end, and of a watcher without problems."""
    run = observe(source, folder, **job)
    assert run.code == 0, run.err
    assert run.seen.problems == []
    return run.seen


def write(source: str, folder: Path, name: str = "train.py") -> Path:
    """The script's file; indentation common to all lines is taken away."""
    path = folder / name
    path.write_text(textwrap.dedent(source), encoding="utf-8")
    return path


def row(evidence: Evidence, row_id: str) -> Row:
    """The row of that id, which must be there."""
    found = evidence.row(row_id)
    assert found is not None, f"no row {row_id}: {[r.id for r in evidence.rows]}"
    return found


def with_status(evidence: Evidence, status: str) -> dict[str, str]:
    """Text of the rows of that status, by id."""
    return {r.id: r.text for r in evidence.rows if r.status == status}


def line_of(source: str, text: str) -> int:
    """Number of the first line that contains `text`."""
    lines = textwrap.dedent(source).splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


# -- the process that forks --------------------------------------------------------------------------------------------


class _Runner:
    def __init__(self) -> None:
        environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
        # Under no file's name: frames of this helper must not pass for the user's code.
        code = "import sys; sys.argv[0] = ''; exec(compile(open(sys.argv[1]).read(), '<runner>', 'exec'))"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        atexit.register(self.close)

    def ask(self, request: dict[str, Any], folder: Path) -> tuple[int, str, str]:
        out, err = folder / "stdout.txt", folder / "stderr.txt"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**request, "out": str(out), "err": str(err)}) + "\n")
        self._process.stdin.flush()
        code = json.loads(self._process.stdout.readline())
        return code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")

    def close(self) -> None:
        self._process.communicate()


@functools.cache
def _runner() -> _Runner:
    return _Runner()


def _serve() -> None:
    import torch
    import torch._dynamo

    import weaklink.collector.run  # noqa: F401

    torch.set_num_threads(1)
    sys.path[:] = [path for path in sys.path if path]
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(json.dumps(os.waitstatus_to_exitcode(status)) + "\n")
        sys.stdout.flush()


def _become(request: dict[str, Any]) -> None:
    """In the child: own session, own output, then the script. Never returns."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for number, name in ((1, request["out"]), (2, request["err"])):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    os.dup2(null, 0)
    if "job" in request:
        from weaklink.collector.run import run_job_and_leave

        run_job_and_leave(Job.model_validate(request["job"]), Path(request["refused"]))
    _run_plainly(Path(request["plain"]), Path(request["folder"]), request["argv"])


def _run_plainly(script: Path, folder: Path, argv: list[str]) -> None:
    """What `python script` does, by other means than the code under test."""
    import builtins
    import runpy
    import traceback

    from weaklink.collector.stopping import leave, run_exit_handlers

    code = 0
    os.chdir(folder)
    sys.argv = argv
    sys.path.insert(0, str(script.parent))
    try:
        runpy.run_path(str(script), {"__builtins__": builtins}, run_name="__main__")
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    run_exit_handlers(wait_for_threads=True)
    leave(code)


if __name__ == "__main__":
    _serve()
