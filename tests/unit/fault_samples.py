"""Evidence by hand of a small network (two layers of features and a head) with one fault each, and of its reruns."""

from __future__ import annotations

import math
from typing import Any

from evidence_samples import parameter

from weaklink.agent.verifier import Reruns
from weaklink.collector.evidence import (
    Environment,
    Evidence,
    Fingerprint,
    InterventionReport,
    Outcome,
    Row,
    Series,
    Status,
    StepRecord,
    Subject,
    Value,
)

FEATURES = ("features.0.weight", "features.0.bias", "features.2.weight", "features.2.bias")
NAMES = (*FEATURES, "head.weight", "head.bias")


def run(row_id: str, status: Status, values: dict[str, Value], last: float = 0.69, rate: float = 0.01) -> Evidence:
    """Fifty steps of a run in which one row diverges; everything else is as it should be."""
    basis = {"TASK": "declared"}.get(row_id.partition("/")[0], "exact") if status == "fail" else None
    row = Row.model_validate({"id": row_id, "status": status, "basis": basis, "text": "diverges", "values": values})
    learns = {"moved": True, "delta_net": 1.5, "reached": True, "gradient": "nonzero", "always_zero": False}
    digests = [f"{number:064x}" for number in range(len(NAMES))]
    return Evidence(
        subject=Subject(kind="script", name="train.py"),
        outcome=Outcome(ended="completed", backwards=50, steps_asked=50, steps=50, forwards=50),
        environment=Environment(torch="2.13.0", python="3.11.7", platform="linux"),
        branch="flat",
        rows=[row],
        parameters=[
            parameter(name, [2], digest_first=digest, gradient_digest_first=digest, **learns)
            for name, digest in zip(NAMES, digests, strict=True)
        ],
        steps=[StepRecord(step=1, lr=[rate], gradient_norm=0.3, parameter_norm=5.3, delta_norm=0.1)],
        losses=Series(index=list(range(1, 51)), value=[0.694159] + [last] * 49),
        fingerprint=Fingerprint(inputs="1" * 64, targets="2" * 64, outputs="3" * 64, loss=0.694159),
    )


def change(evidence: Evidence, names: tuple[str, ...], **fields: Any) -> Evidence:
    """The same evidence, with fields of some parameters changed."""
    for record in evidence.parameters:
        if record.name in names:
            for field, value in fields.items():
                setattr(record, field, value)
    return evidence


def still(evidence: Evidence, names: tuple[str, ...], **fields: Any) -> Evidence:
    """The same evidence, with parameters that never move."""
    return change(evidence, names, moved=False, delta_net=0.0, delta_first=0.0, **fields)


def detached() -> Evidence:
    """The features are cut off by a detach; the optimizer holds them."""
    values: dict[str, Value] = {"reached": 2, "expected": 6, "missed": list(FEATURES), "cut": ["train.py:31"]}
    missed = {"gradient": "missing", "reached": False, "gradient_digest_first": None, "always_zero": None}
    return still(run("DEPENDENCY/reached", "suspected", values, last=0.3), FEATURES, **missed)


def shuffled() -> Evidence:
    """Half the targets follow the declared rule, as a coin would."""
    return run("TASK/rule", "fail", {"agreement": 0.434, "rows": 256}, last=0.65)


def doubled() -> Evidence:
    """A softmax in front of a cross entropy."""
    return run("OBJECTIVE/fed", "fail", {"softmax_into_log_softmax": True}, last=0.3221)


def exploding() -> Evidence:
    """A learning rate of 1e4: the second step is a thousand times as long as the parameters."""
    values: dict[str, Value] = {"nonfinite_from_step": 4, "outgrown_steps": 3, "ratio": 654.99}
    return run("UPDATE/scale", "suspected", values, last=math.nan, rate=1e4)


def climbing() -> Evidence:
    """A learning rate of 100: the loss stays finite, and ends far above where it began."""
    values: dict[str, Value] = {"nonfinite_from_step": None, "outgrown_steps": 3, "ratio": 8.5}
    return run("UPDATE/scale", "suspected", values, last=83.6, rate=100.0)


def dead() -> Evidence:
    """The first layer's units never fire: its gradients are zero, and so are those of the weights behind it."""
    zero = FEATURES[:3]
    values: dict[str, Value] = {"nonzero": 3, "expected": 6, "zero": list(zero)}
    return still(run("GRADIENT/nonzero", "suspected", values), zero, gradient="zero", always_zero=True)


def motionless() -> Evidence:
    """The optimizer holds everything, steps, and changes nothing."""
    values: dict[str, Value] = {"moved": 0, "expected": 6, "still": list(NAMES)}
    return still(run("UPDATE/moved", "fail", values, last=0.694159), NAMES)


def treated(evidence: Evidence, status: Status | None = "pass", last: float | None = None) -> Evidence:
    """A rerun in which an experiment was applied, its row has that status (None: as it was) and the loss ends there."""
    if status is not None:
        was = evidence.rows[0]
        reason = "gone" if status == "not_measured" else None
        basis = was.basis or "exact" if status == "fail" else None
        made = was.model_dump() | {"status": status, "basis": basis, "reason": reason}
        evidence.rows[0] = Row.model_validate(made)
    if last is not None:
        evidence.losses = Series(index=evidence.losses.index, value=[evidence.losses.value[0]] + [last] * 49)
    evidence.intervention = InterventionReport(name="experiment", applied=True)
    return evidence


def reruns(control: Evidence, treatment: Evidence, placebo: Evidence | None = None) -> Reruns:
    """The reruns of one experiment; a placebo that moves every finite loss by 1e-9 unless another one is given."""
    if placebo is None:
        placebo = control.model_copy(deep=True)
        placebo.losses.value = [loss + 1e-9 for loss in placebo.losses.value]
    placebo.intervention = InterventionReport(name="placebo", applied=True)
    again = control.model_copy(deep=True)
    return Reruns(observed=control, control=control, control_again=again, placebo=placebo, treatment=treatment)
