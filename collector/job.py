"""What a worker is told to do, and what comes back. No torch here: the command line writes jobs, workers read them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from weaklink.collector.declared import Intent
from weaklink.collector.evidence import Model, Subject, Value

Role = Literal[
    "observe",
    "close_up",
    "capture",
    "recreate",
    "record",
    "instrument",
    "control",
    "control_again",
    "placebo",
    "treatment",
]
# Whether looks that take forwards of our own are allowed: in a forked copy, or in this process (then disposable).
LookMode = Literal["off", "fork", "in_place"]
# Steps that a close-up looks at from each of its beginnings on.
CLOSE_UP_STEPS = 6
# Why no look was taken where this is the reason; a rerun that exists for looks takes them in its own process.
CANNOT_COPY = "this process cannot be copied (no fork, or a CUDA context)"


class Pins(Model):
    """Seeds for generators that the script itself may leave unseeded; the same for every run of one incident.

    `offset` moves these and every seed that the script sets for the global streams (`seeds.py`).
    """

    python: int = 0
    numpy: int = 0
    hash: str = "0"
    offset: int = 0


class GuardSettings(Model):
    """Where a rerun may write freely, and where it notes what it changed elsewhere, so that it can be undone."""

    scratch: Path
    journal: Path
    keep: Path


class CaptureSettings(Model):
    """Which optimizer steps to keep until one turns non-finite, where to write it, and bytes it may take."""

    folder: Path
    first: int
    last: int
    limit: int


class Job(Model):
    """One run of the user's script in a worker.

    `horizon` counts optimizer steps, `horizon_backwards` backward calls of a run that never steps; None runs to the
    end. `deadline` is in seconds and is watched from outside as well. `rule` names a function, `module:function` or
    `file.py:function`, that gives the targets belonging to a batch of inputs; `intent` is what else was declared.
    `looks` allows forwards of our own; a close-up begins at each of the steps `close_up_at`. Evidence holds records of
    `max_parameters` parameters at most. `capture` keeps a step, `captured` is the folder of a kept one to take again.
    `record_values` writes every number of the steps of a small system beside the evidence. `instrument` is measured at
    the step `instrument_step` (from 1), and ends the run there.
    """

    role: Role
    subject: Subject
    folder: Path
    evidence: Path
    horizon: int | None = None
    horizon_backwards: int | None = None
    deadline: float | None = None
    intervention: str | None = None
    intervention_parameters: dict[str, Value] = {}
    keep_initial: bool = False
    looks: LookMode = "off"
    close_up_at: list[int] = []
    every_step_until: int = 5
    pins: Pins | None = None
    guard: GuardSettings | None = None
    environment: dict[str, str] = {}
    user_code: list[str] = []
    task: str | None = None
    rule: str | None = None
    max_parameters: int | None = None
    capture: CaptureSettings | None = None
    captured: Path | None = None
    record_values: bool = False
    instrument: str | None = None
    instrument_step: int | None = None
    intent: Intent = Intent()


class JobResult(Model):
    """How the worker process itself ended. What it measured lies in the job's evidence file."""

    exit_code: int | None
    signal: int | None = None
    deadline_hit: bool = False
    interrupted: bool = False
    seconds: float
    output_sha256: str
    output_bytes: int
    output_tail: str = ""
