"""The bodies of what a recovery adds to a record: the baseline that was kept, and both sides run on several seeds."""

from __future__ import annotations

from typing import Literal

from weaklink.agent.verdict import IncidentStatus
from weaklink.collector.evidence import Float, Model, RaisedException, SourceFile, Subject

Side = Literal["baseline", "repair"]
# What became of the incident's row in one run. `evidence` neither diverges nor is unmeasured: it counts as passed.
RowStatus = Literal["pass", "fail", "suspected", "evidence", "not_measured", "absent"]


class KeptFile(Model):
    """A file of the working folder, or, by an absolute path, one that the run read elsewhere.

    `kept`: its bytes lie in the incident's folder. `sha256` is None for what was neither kept nor seen to be read, and
    for what is too large to be hashed; `size` is -1 for a folder that is linked whole.
    """

    path: str
    size: int
    sha256: str | None = None
    kept: bool = False


class BaselineKept(Model):
    """What the observed run started from. `problem` says why nothing was kept."""

    files: list[KeptFile] = []
    problem: str | None = None


class UsedMetric(Model):
    """The number that was compared, which way is better, and who declared it."""

    name: str
    direction: Literal["max", "min"]
    declared: Literal["command line", "weaklink.toml"]


class RecoveryStarted(Model):
    """`subject` and `folder` are the repair's; `changed` are files of the baseline that are not what they were."""

    created: str
    row: str
    subject: Subject
    folder: str
    seeds: list[int]
    metric: UsedMetric | None = None
    changed: list[str] = []


class RecoveryRun(Model):
    """One run of one side from one random start. `seed` is what was added to the script's own seeds.

    `rows` are the statuses of its chain; `newly_failing` the rows before the incident's own that fail here and not in
    the baseline's run of the same seed. `metric` None: not read. `loss_last` decides nothing.
    """

    side: Side
    seed: int
    ended: str | None
    exit_code: int | None = None
    raised: RaisedException | None = None
    problem: str | None = None
    row: RowStatus = "absent"
    reason: str | None = None
    rows: dict[str, str] = {}
    newly_failing: list[str] = []
    first_divergence: str | None = None
    metric: Float | None = None
    loss_last: Float | None = None
    output_sha256: str | None = None
    seconds: float = 0.0


class RecoveryFinished(Model):
    """Both sides and what they decide. `reasons` and `limits` are sentences; `sources` are the repair's."""

    row: str
    subject: Subject
    folder: str
    runs: list[RecoveryRun]
    metric: UsedMetric | None = None
    sources: list[SourceFile] = []
    reasons: list[str]
    limits: list[str]
    status: IncidentStatus
