"""The shapes of an outcome: what became of each prediction, each mechanism and the incident."""

from __future__ import annotations

from typing import Literal

from weaklink.collector.evidence import Float, Model, Value

PredictionStatus = Literal["held", "failed", "not_measured"]
MechanismStatus = Literal["supported", "refuted", "inconclusive", "void", "not_applicable", "not_tested"]
Cause = Literal["unknown", "suspected", "supported", "refuted"]
Action = Literal["none", "proposed", "applied"]
Recovery = Literal["not attempted", "recovered (bounded)", "incomplete", "not recovered", "inconclusive"]


class PredictionOutcome(Model):
    """One prediction against its measurement. `floor` is the placebo's movement of the same measurement."""

    mechanism: str
    measurement: str
    expect: str
    expected_value: Value = None
    control: Value = None
    treatment: Value = None
    floor: Float | None = None
    status: PredictionStatus
    reason: str | None = None


class MechanismOutcome(Model):
    """The verdict on one mechanism, and the sentence that says why."""

    id: str
    status: MechanismStatus
    reason: str


class StayOutcome(Model):
    """One entry of the stay-list: equal or not, bitwise."""

    measurement: str
    control: Value = None
    treatment: Value = None
    equal: bool | None


class IncidentStatus(Model):
    """Cause, action and recovery are three results."""

    cause: Cause = "unknown"
    action: Action = "none"
    recovery: Recovery = "not attempted"


class Verdict(Model):
    """Everything the rerun decided."""

    controls_agree: bool
    observed_prefix_agrees: bool | None
    applied: bool
    nondeterminism: list[str] = []
    predictions: list[PredictionOutcome] = []
    stays: list[StayOutcome] = []
    mechanisms: list[MechanismOutcome] = []
    text: str
