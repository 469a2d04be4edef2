"""Reading measurements from evidence: each key, and the reason where there is no value."""

from __future__ import annotations

import math

import pytest
from evidence_samples import stale_head_evidence

from weaklink.agent.measurements import MEASUREMENTS, parse_key, take
from weaklink.collector.evidence import Series


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("moved[head.*]", 0),
        ("owned[head.*]", 0),
        ("owned[features.*]", 4),
        ("delta.net[*]", 0.0),
        ("row[OWNERSHIP/owned]", "fail"),
        ("steps", 301),
        ("loss.first", 0.683606),
    ],
)
def test_values(key: str, value: object) -> None:
    assert take(stale_head_evidence(), key).value == value


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("moved[nothing.*]", "no parameter of the model matches 'nothing.*'"),
        ("row[TASK/none]", "this run has no row TASK/none"),
        ("row[TASK/declared]", "not declared"),
        ("speed", "no measurement of the name 'speed'"),
        ("moved", "no measurement of the name 'moved'"),
        ("steps[head.*]", "no measurement of the name 'steps[head.*]'"),
        ("loss.first\n", "no measurement of the name 'loss.first\\n'"),
    ],
)
def test_reasons(key: str, reason: str) -> None:
    found = take(stale_head_evidence(), key)
    assert not found.taken
    assert found.reason == reason


def test_replaced_parameters_do_not_count() -> None:
    evidence = stale_head_evidence()
    assert sum(record.name == "head.weight" for record in evidence.parameters) == 2
    assert take(evidence, "owned[head.weight]").value == 0


def test_first_gradients_differ_by_value_state_and_name() -> None:
    evidence, other = stale_head_evidence(), stale_head_evidence()
    head = next(r for r in other.parameters if r.name == "head.weight" and r.in_model)
    before = take(evidence, "gradient.first[head.*]").value
    assert take(other, "gradient.first[head.*]").value == before
    head.gradient_digest_first = "c" * 64
    assert take(other, "gradient.first[head.*]").value != before
    head.gradient_digest_first = None
    assert not take(other, "gradient.first[head.*]").taken


def test_first_parameters_differ_by_value_and_name_and_need_every_digest() -> None:
    evidence = stale_head_evidence()
    assert take(evidence, "parameters.first[head.*]").reason == (
        "not every matching parameter was fingerprinted at the first backward"
    )
    for record in evidence.parameters:
        record.digest_first = "d" * 64 if record.in_model else None
    before = take(evidence, "parameters.first[head.*]").value
    evidence.parameters.reverse()
    assert take(evidence, "parameters.first[head.*]").value == before
    assert take(evidence, "parameters.first[features.0.*]").value != before
    next(r for r in evidence.parameters if r.name == "head.bias" and r.in_model).digest_first = "e" * 64
    assert take(evidence, "parameters.first[head.*]").value != before
    assert not take(evidence, "parameters.first[nothing.*]").taken


def test_first_targets() -> None:
    evidence = stale_head_evidence()
    assert take(evidence, "target.first").value == "2" * 64
    evidence.fingerprint.targets = None
    assert take(evidence, "target.first").reason == "the first targets were not fingerprinted"


@pytest.mark.parametrize(
    ("losses", "mean"),
    [([1e308] * 12, 1e308), ([3.0], 3.0), ([1.0] * 90 + [2.0] * 10, 2.0), ([1.0, math.inf], math.nan)],
)
def test_the_last_losses(losses: list[float], mean: float) -> None:
    evidence = stale_head_evidence()
    evidence.losses = Series(index=list(range(1, len(losses) + 1)), value=losses)
    assert take(evidence, "loss.last").value == pytest.approx(mean, nan_ok=True)


def test_norms_that_overflow_when_squared() -> None:
    evidence = stale_head_evidence()
    for record in evidence.parameters:
        record.delta_net = 1e200
    assert take(evidence, "delta.net[head.*]").value == pytest.approx(math.sqrt(2) * 1e200)


def test_every_measurement_is_listed_under_its_own_name() -> None:
    for name, entry in MEASUREMENTS.items():
        key = name if entry.argument is None else f"{name}[x]"
        parsed = parse_key(key)
        assert parsed is not None
        assert str(parsed) == key
