"""The evidence: the one file that passes from the collector to the agent. No torch here.

The collector writes it where the run happens; everything else (advisor, contract, verdict, report) needs nothing but
this file. Names of boundaries, statuses and bases are fixed: see `docs/evidence.md`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticSerializationError

from weaklink.collector.errors import EvidenceError

EVIDENCE_SCHEMA = "weaklink.evidence/1"

Boundary = Literal["TASK", "OBJECTIVE", "DEPENDENCY", "GRADIENT", "OWNERSHIP", "UPDATE", "CAPABILITY", "EVALUATION"]
BOUNDARIES: tuple[Boundary, ...] = get_args(Boundary)
Status = Literal["pass", "fail", "suspected", "evidence", "not_measured"]
Basis = Literal["exact", "declared", "controlled"]
Means = Literal["look", "close_up"]
# What contradicts the intended system, beyond doubt or not yet.
DIVERGING: tuple[Status, ...] = ("fail", "suspected")
Branch = Literal[
    "flat",
    "slow",
    "diverging",
    "nonfinite",
    "eval_gap",
    "noisy_plateau",
    "silently_wrong",
    "raised",
    "learning",
    "not_measured",
]
GradientState = Literal["missing", "nonfinite", "zero", "nonzero"]


_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _written_float(value: Any) -> Any:
    # The record writes every float as text, the evidence file only NaN and infinity. Only the exact text of a float
    # comes back as one: "0.50", "nan" and "3" are somebody's words.
    if not isinstance(value, str):
        return value
    try:
        number = float(value)
    except ValueError:
        return value
    text = repr(number)
    return number if _WORDS.get(text, text) == value else value


# No lists of floats: one read back from a record could not be told from a list of names such as "0.0".
Float = Annotated[float, BeforeValidator(_written_float)]
Value = Annotated[bool | int | float | str | list[str] | list[int] | None, BeforeValidator(_written_float)]


class Model(BaseModel):
    """Base of all files weaklink writes: unknown keys refused, NaN and infinity written as words."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings", populate_by_name=True)


class Site(Model):
    """A place in the user's own code (or a file the run read, then without a line)."""

    file: str
    line: int | None
    what: str

    @property
    def place(self) -> str:
        """`train.py:48`, or the file alone where it has no line."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Row(Model):
    """One line of the learning chain.

    `basis` belongs to a fail: *exact* holds by identity or arithmetic, *declared* contradicts what the user declared,
    *controlled* was reversed by a control run. `step` counts optimizer steps from 1; None means the whole run. `means`
    says what it took besides watching: a look in a copy of the process, a close-up. A rerun that is to show the row
    again needs the same.
    """

    id: str
    status: Status
    text: str
    basis: Basis | None = None
    values: dict[str, Value] = {}
    reason: str | None = None
    where: list[Site] = []
    step: int | None = None
    means: list[Means] = []
    downstream: bool = False

    @model_validator(mode="after")
    def _complete(self) -> Row:
        if self.boundary not in BOUNDARIES:
            raise ValueError(f"row {self.id!r}: no boundary of that name; one of {', '.join(BOUNDARIES)}")
        if (self.status == "fail") != (self.basis is not None):
            raise ValueError(f"row {self.id!r}: a basis belongs to a fail, and to nothing else")
        if (self.status == "not_measured") != (self.reason is not None):
            raise ValueError(f"row {self.id!r}: a reason belongs to not_measured, and to nothing else")
        return self

    @property
    def diverges(self) -> bool:
        """Whether it fails or is suspected to."""
        return self.status in DIVERGING

    @property
    def boundary(self) -> str:
        return self.id.partition("/")[0]

    @property
    def label(self) -> str:
        return self.id.partition("/")[2]


class ParameterRecord(Model):
    """One parameter object, by identity: a replaced head and its successor are two records of one name.

    Norms are Euclidean, in the parameter's own unit. `first` is the first backward or step of the run, `net` the
    movement from the first to the last sampled step of the dense window (in reruns: over the whole rerun).
    `digest_first` is the SHA-256 of its values at the first backward; None: not seen, or too large to hash.
    """

    name: str
    shape: list[int]
    dtype: str
    requires_grad: bool
    in_model: bool
    owned: bool
    registered: bool
    groups: list[str] = []
    created: Site | None = None
    created_by: Site | None = None
    created_after_optimizer: bool = False
    reached: bool | None = None
    digest_first: str | None = None
    gradient: GradientState | None = None
    gradient_norm_first: Float | None = None
    gradient_digest_first: str | None = None
    always_zero: bool | None = None
    moved: bool | None = None
    delta_first: Float | None = None
    delta_net: Float | None = None
    norm: Float | None = None


class StepRecord(Model):
    """One sampled optimizer step: learning rate by group and the Euclidean norms over all trainable parameters."""

    step: int
    lr: list[Float]
    gradient_norm: Float | None = None
    parameter_norm: Float | None = None
    delta_norm: Float | None = None


class Series(Model):
    """A scalar over backward calls, from 1. Thinned above some thousand points: `index` tells which ones are kept."""

    index: list[int] = []
    value: list[Float] = []


class RaisedException(Model):
    """What the script raised, and the innermost line of the user's own code."""

    type: str
    message: str
    where: Site | None = None


class Outcome(Model):
    """How the run ended, and how far it got."""

    ended: Literal["completed", "raised", "exited", "stopped", "deadline", "interrupted", "killed"]
    backwards: int = 0
    steps_asked: int = 0
    steps: int = 0
    forwards: int = 0
    exit_code: int | None = None
    raised: RaisedException | None = None
    seconds: Float = 0.0
    note: str | None = None


class Environment(Model):
    """Where the run happened. Nothing here belongs to the claim: it differs from machine to machine."""

    torch: str
    python: str
    platform: str
    devices: list[str] = []
    threads: int = 1
    pins: dict[str, str] = {}
    deterministic: bool = False


class SourceFile(Model):
    """A file of the user's own code that the run executed: relative path and SHA-256 of its bytes."""

    path: str
    sha256: str


class Fingerprint(Model):
    """SHA-256 over the raw bytes of the first batch and what came of it. None: not seen, or too large to hash."""

    inputs: str | None = None
    targets: str | None = None
    outputs: str | None = None
    loss: Float | None = None


class InterventionReport(Model):
    """What an intervention really did: fired is not the same as changed something."""

    name: str
    parameters: dict[str, Value] = {}
    applied: bool = False
    detail: str = ""
    changed: list[str] = []


class ReplicaStep(Model):
    """Checksums of one sampled optimizer step on one rank; "" where there was nothing to read.

    Equal bits have equal checksums: two that differ prove a difference. `inputs` are those of the first root calls with
    gradients since the step before, `gradients` those that the step consumed, `before` and `after` the parameters
    around it. By parameter, in the order of `Replica.names`, they are kept of the first two and the last sampled step.
    """

    step: int
    optimizer: int
    inputs: list[str] = []
    targets: str = ""
    gradients: str = ""
    before: str = ""
    after: str = ""
    gradients_by_parameter: list[str] = []
    after_by_parameter: list[str] = []


class Replica(Model):
    """What one of several processes says of itself and of what it shares with the others.

    Attributes:
        run: Names the launch; ranks of one run share it.
        process_group: Size of torch.distributed's default group; 0 where none was made.
        wrapped: Ranks that a live `DistributedDataParallel` keeps equal; empty without one.
        hooked: A communication hook of the user's reduces in place of torch's own.
        sharded: Parameters are sharded over the ranks: no rank is a replica of another.
        sampler: A `DistributedSampler` dealt out the training data.
        exchanged: Entries of the tensors that the script itself sent between ranks since the first backward.
        trainable: Entries of the parameters that are compared.
    """

    rank: int
    world_size: int
    run: str = ""
    process_group: int = 0
    wrapped: list[int] = []
    hooked: bool = False
    sharded: bool = False
    sampler: bool = False
    exchanged: int = 0
    trainable: int = 0
    names: list[str] = []
    steps: list[ReplicaStep] = []
    sites: dict[str, Site] = {}


class Subject(Model):
    """What was run: a script path, a module name or a factory (`train.py:build`), with its arguments.

    *process* is a ledger or a watched loop inside a process of the user's own: there is nothing to run again.
    """

    kind: Literal["script", "module", "factory", "process"]
    name: str
    argv: list[str] = []

    @property
    def command(self) -> str:
        """The command as a user would type it after `python`."""
        import shlex

        head = ["-m", self.name] if self.kind == "module" else [self.name]
        return shlex.join([*head, *self.argv])


class Evidence(Model):
    """All that was measured on one run."""

    schema_: Literal["weaklink.evidence/1"] = Field(default="weaklink.evidence/1", alias="schema")
    subject: Subject
    task: str | None = None
    rule: str | None = None
    declared: dict[str, Any] = {}
    outcome: Outcome
    environment: Environment
    branch: Branch
    rows: list[Row]
    parameters: list[ParameterRecord] = []
    steps: list[StepRecord] = []
    losses: Series = Series()
    stages: list[int] = []
    fingerprint: Fingerprint = Fingerprint()
    sources: list[SourceFile] = []
    files_written: list[str] = []
    intervention: InterventionReport | None = None
    replica: Replica | None = None
    problems: list[str] = []

    def row(self, row_id: str) -> Row | None:
        """The row of that id, or None."""
        return next((row for row in self.rows if row.id == row_id), None)

    @property
    def first_divergence(self) -> Row | None:
        """The first failing row; where none fails, the first suspected one; else None."""
        return first_divergence(self.rows)


def first_divergence(rows: list[Row]) -> Row | None:
    """The first `fail` in chain order; where none fails, the first `suspected`; None on a clean chain."""
    ordered = in_chain_order(rows)
    for status in ("fail", "suspected"):
        for row in ordered:
            if row.status == status:
                return row
    return None


def in_chain_order(rows: list[Row]) -> list[Row]:
    """Rows sorted by boundary, the order within a boundary kept."""
    return sorted(rows, key=lambda row: BOUNDARIES.index(row.boundary))


def mark_downstream(rows: list[Row]) -> list[Row]:
    """Rows in chain order, with every failing or suspected row after the first divergence marked downstream."""
    ordered = in_chain_order(rows)
    first = first_divergence(ordered)
    passed = False
    for row in ordered:
        row.downstream = passed and row.status in ("fail", "suspected")
        passed = passed or row is first
    return ordered


def write_evidence(evidence: Evidence, path: Path) -> None:
    """Write the file at once or not at all: a killed run leaves the last whole version.

    Raises:
        OSError: The folder cannot be written.
    """
    partial = path.with_name(path.name + ".part")
    try:
        partial.write_text(evidence_text(evidence) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def evidence_text(evidence: Evidence) -> str:
    """The file's text, one line of JSON; bytes that are no UTF-8 are escaped."""
    try:
        return evidence.model_dump_json(by_alias=True)
    except PydanticSerializationError:  # lone surrogates: a name or message with bytes that are no UTF-8
        return json.dumps(_escaped(evidence.model_dump(mode="json", by_alias=True)), ensure_ascii=False)


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return value


def read_evidence(path: Path) -> Evidence:
    """Read and check an evidence file.

    Raises:
        EvidenceError: The file cannot be read, is no JSON, or is of another schema; names the first bad field.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EvidenceError(
            f"The evidence file cannot be read: {error}.", about=str(path), hint="check the path and its permissions."
        ) from error
    try:
        return Evidence.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole file"
        raise EvidenceError(
            f"This is no evidence file of schema {EVIDENCE_SCHEMA}: {field}: {first['msg']}.",
            about=str(path),
            hint="write a new one with `weaklink observe train.py`; a file cut short by a full disk cannot be mended.",
        ) from error
