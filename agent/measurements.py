"""Measurements that predictions speak about, each taken from one run's evidence.

A key is a name, with a pattern over parameter names (or a row id) in brackets where it needs one: `loss.first`,
`moved[head.*]`, `row[UPDATE/moved]`. The same function reads control, placebo and treatment.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from weaklink.agent.proposal import Proposal
from weaklink.collector.evidence import Evidence, ParameterRecord, Value

LAST_LOSSES = 10
_KEY = re.compile(r"(?P<name>[a-z]+(?:\.[a-z]+)?)(?:\[(?P<argument>.+)\])?", re.DOTALL)


@dataclass(frozen=True)
class Key:
    """A parsed measurement key."""

    name: str
    argument: str | None

    def __str__(self) -> str:
        return self.name if self.argument is None else f"{self.name}[{self.argument}]"


@dataclass(frozen=True)
class Measured:
    """A value, or the reason why there is none."""

    value: Value = None
    reason: str | None = None

    @property
    def taken(self) -> bool:
        return self.reason is None


@dataclass(frozen=True)
class Measurement:
    """How one measurement is read. `argument` says what stands in the brackets, or None."""

    name: str
    argument: str | None
    meaning: str
    read: Callable[[Evidence, str], Measured]


def parse_key(text: str) -> Key | None:
    """The key, or None when the name is unknown or the brackets are missing or superfluous."""
    match = _KEY.fullmatch(text)
    if match is None or match["name"] not in MEASUREMENTS:
        return None
    key = Key(match["name"], match["argument"])
    wants = MEASUREMENTS[key.name].argument is not None
    return key if wants == (key.argument is not None) else None


def take(evidence: Evidence, text: str) -> Measured:
    """Read the measurement of that key from a run's evidence; an unknown key is not measured, with its reason."""
    key = parse_key(text)
    if key is None:
        return Measured(reason=f"no measurement of the name {text!r}")
    return MEASUREMENTS[key.name].read(evidence, key.argument or "")


def measured_keys(proposal: Proposal) -> list[str]:
    """Every measurement that a proposal speaks about, each once: predicted, to change, to stay."""
    predicted = [p.measurement for mechanism in proposal.mechanisms for p in mechanism.predictions]
    return list(dict.fromkeys([*predicted, *proposal.must_change, *proposal.must_stay_unchanged]))


def matching(evidence: Evidence, pattern: str) -> list[ParameterRecord]:
    """Parameters of the model (not its replaced ones) whose name matches the shell-style pattern."""
    return [record for record in evidence.parameters if record.in_model and fnmatchcase(record.name, pattern)]


def _first_loss(evidence: Evidence, _: str) -> Measured:
    if not evidence.losses.value:
        return Measured(reason="no backward call was seen")
    return Measured(evidence.losses.value[0])


def _last_loss(evidence: Evidence, _: str) -> Measured:
    tail = evidence.losses.value[-LAST_LOSSES:]
    if not tail:
        return Measured(reason="no backward call was seen")
    # Divided before the sum: ten losses near the largest float64 have a mean, but no sum.
    return Measured(math.fsum(loss / len(tail) for loss in tail) if all(map(math.isfinite, tail)) else math.nan)


def _loss_trend(evidence: Evidence, _: str) -> Measured:
    first, last = _first_loss(evidence, ""), _last_loss(evidence, "")
    if not isinstance(first.value, float) or not isinstance(last.value, float) or len(evidence.losses.value) < 2:
        return Measured(reason="fewer than two backward calls were seen")
    if not math.isfinite(first.value) or not math.isfinite(last.value):
        return Measured("non-finite")
    return Measured("falls" if last.value < first.value else "rises" if last.value > first.value else "stays")


def _all_losses(evidence: Evidence, _: str) -> Measured:
    series = evidence.losses
    if not series.value:
        return Measured(reason="no backward call was seen")
    return _digest(f"{index:012}\0{loss!r}" for index, loss in zip(series.index, series.value, strict=True))


def _fingerprint(field: str) -> Callable[[Evidence, str], Measured]:
    def read(evidence: Evidence, _: str) -> Measured:
        value = getattr(evidence.fingerprint, field)
        return Measured(value) if value is not None else Measured(reason=f"the first {field} were not fingerprinted")

    return read


def _owned(evidence: Evidence, pattern: str) -> Measured:
    records = matching(evidence, pattern)
    return Measured(sum(record.owned for record in records)) if records else _nothing(pattern)


def _moved(evidence: Evidence, pattern: str) -> Measured:
    records = matching(evidence, pattern)
    if not records:
        return _nothing(pattern)
    if any(record.moved is None for record in records):
        return Measured(reason="movement was not measured for every matching parameter")
    return Measured(sum(bool(record.moved) for record in records))


def _net_delta(evidence: Evidence, pattern: str) -> Measured:
    records = matching(evidence, pattern)
    if not records:
        return _nothing(pattern)
    deltas = [record.delta_net for record in records if record.delta_net is not None]
    if len(deltas) < len(records):
        return Measured(reason="net movement was not measured for every matching parameter")
    return Measured(math.hypot(*deltas))


def _first_gradients(evidence: Evidence, pattern: str) -> Measured:
    records = matching(evidence, pattern)
    if not records:
        return _nothing(pattern)
    if all(record.gradient is None for record in records):
        return Measured(reason="no backward call was sampled")
    if any(r.gradient in ("nonzero", "nonfinite") and r.gradient_digest_first is None for r in records):
        return Measured(reason="a matching gradient was too large to be fingerprinted")
    return _digest(f"{r.name}\0{r.gradient}\0{r.gradient_digest_first}" for r in records)


def _first_parameters(evidence: Evidence, pattern: str) -> Measured:
    records = matching(evidence, pattern)
    if not records:
        return _nothing(pattern)
    if any(record.digest_first is None for record in records):
        return Measured(reason="not every matching parameter was fingerprinted at the first backward")
    return _digest(f"{r.name}\0{r.digest_first}" for r in records)


def _digest(lines: Iterable[str]) -> Measured:
    """One SHA-256 for several parameters, whatever their order."""
    return Measured(hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "backslashreplace")).hexdigest())


def _row(evidence: Evidence, row_id: str) -> Measured:
    row = evidence.row(row_id)
    if row is None:
        return Measured(reason=f"this run has no row {row_id}")
    if row.status == "not_measured":
        return Measured(reason=row.reason or "not measured")
    return Measured(row.status)


def _listed(evidence: Evidence, place: str) -> Measured:
    """1 where a list among a row's values holds the item, 0 where it does not."""
    row_id, field, item = (*place.rsplit("/", 2), "", "")[:3]
    row = evidence.row(row_id)
    values = row.values.get(field) if row is not None else None
    if not isinstance(values, list):
        return Measured(reason=f"this run has no list {field!r} in a row {row_id}")
    return Measured(int(item in map(str, values)))


def _steps(evidence: Evidence, _: str) -> Measured:
    return Measured(evidence.outcome.steps)


def _first_rate(evidence: Evidence, _: str) -> Measured:
    if not evidence.steps:
        return Measured(reason="no optimizer step was sampled")
    rates = evidence.steps[0].lr
    return Measured(rates[0] if len(rates) == 1 else ", ".join(repr(rate) for rate in rates))


def _last_rate(evidence: Evidence, _: str) -> Measured:
    if not evidence.steps:
        return Measured(reason="no optimizer step was sampled")
    rates = evidence.steps[-1].lr
    return Measured(rates[0] if len(rates) == 1 else ", ".join(repr(rate) for rate in rates))


def _nothing(pattern: str) -> Measured:
    return Measured(reason=f"no parameter of the model matches {pattern!r}")


MEASUREMENTS: dict[str, Measurement] = {
    entry.name: entry
    for entry in (
        Measurement("input.first", None, "SHA-256 of the first batch's inputs", _fingerprint("inputs")),
        Measurement("target.first", None, "SHA-256 of the first batch's targets", _fingerprint("targets")),
        Measurement("output.first", None, "SHA-256 of the model's first output", _fingerprint("outputs")),
        Measurement("loss.first", None, "loss at the first backward call", _first_loss),
        Measurement("loss.last", None, f"mean loss of the last {LAST_LOSSES} backward calls in the window", _last_loss),
        Measurement(
            "parameters.first", "parameters", "SHA-256 over their values at the first backward", _first_parameters
        ),
        Measurement("loss.trend", None, "falls, rises, stays or non-finite: loss.last against loss.first", _loss_trend),
        Measurement("losses", None, "SHA-256 over the losses of all backward calls", _all_losses),
        Measurement("gradient.first", "parameters", "SHA-256 over the first gradients", _first_gradients),
        Measurement("owned", "parameters", "how many are held by an optimizer", _owned),
        Measurement("moved", "parameters", "how many changed in a sampled step, bitwise", _moved),
        Measurement("delta.net", "parameters", "Euclidean norm of their net movement over the window", _net_delta),
        Measurement("row", "row id", "status of that row of the chain", _row),
        Measurement("listed", "row id/field/item", "1 where that list of the row holds the item, else 0", _listed),
        Measurement("steps", None, "optimizer steps executed", _steps),
        Measurement("lr.first", None, "learning rate of each group at the first step", _first_rate),
        Measurement("lr.last", None, "learning rate of each group at the last sampled step", _last_rate),
    )
}
