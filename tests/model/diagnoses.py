"""Diagnoses with a model as a user starts them, and what must hold of every record whatever the model said."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from servers import CONTEXT, ROOT, Server

from weaklink.agent.proposal import Proposal
from weaklink.agent.record.bodies import Answered
from weaklink.agent.record.incident import Incident

COMMAND = str(Path(sys.executable).with_name("weaklink"))
TIMEOUT = 900
MODEL_ADVISORS = ("openai", "recorded")


@dataclass
class Diagnosed:
    """One command, and the record it left (None where it left none)."""

    folder: Path
    code: int
    out: str
    err: str
    seconds: float
    incident: Incident | None

    @property
    def record(self) -> Incident:
        assert self.incident is not None, self.err
        return self.incident


def weaklink(*words: str, cwd: Path, key: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command; keys of this machine's user stay out of it, and so does what it remembers of endpoints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "WEAKLINK_"))}
    own = {"OMP_NUM_THREADS": "1", "COLUMNS": "100", "WEAKLINK_CACHE_DIR": str(cwd / ".cache")}
    if key is not None:
        own["WEAKLINK_API_KEY"] = key
    done = subprocess.run(
        [COMMAND, *words],
        cwd=cwd,
        env={**kept, **own},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert "Traceback (most recent call last)" not in done.stderr, done.stderr
    return done


def diagnose(replay: str, folder: Path, server: Server, *words: str) -> Diagnosed:
    """Copy a replay's script into a folder and diagnose it there with the server's model."""
    shutil.copy(ROOT / "replays" / replay / "train.py", folder / "train.py")
    said = ["--model", server.model, "--base-url", server.base_url, "--context", str(CONTEXT), "--json", *words]
    start = time.monotonic()
    done = weaklink("diagnose", "train.py", *said, cwd=folder, key=server.key)
    return finished(folder, done, time.monotonic() - start)


def replay_offline(recording: Path, folder: Path, *words: str) -> Diagnosed:
    """Diagnose the script that lies in the folder with a recorded conversation: no server is named."""
    said = ["--recording", str(recording), "--context", str(CONTEXT), "--json", *words]
    start = time.monotonic()
    done = weaklink("diagnose", "train.py", *said, cwd=folder)
    return finished(folder, done, time.monotonic() - start)


def finished(folder: Path, done: subprocess.CompletedProcess[str], seconds: float) -> Diagnosed:
    """The record that a command left in the folder, read back."""
    body = json.loads(done.stdout) if done.stdout.strip() else {}
    where = body.get("incident")
    incident = Incident.read(folder / where) if where else None
    return Diagnosed(folder, done.returncode, done.stdout, done.stderr, seconds, incident)


def of_model(incident: Incident) -> list[Answered]:
    """The model's own answers; the playbook's stand under another name."""
    return [answer for answer in incident.answered if answer.advisor in MODEL_ADVISORS]


def accepted(incident: Incident) -> Proposal | None:
    """The model's answer that broke no rule, if there is one."""
    return next((each.proposal for each in of_model(incident) if not each.violations), None)
