"""CAPABILITY and EVALUATION: what takes a fit or a forward of our own. A script's own run says so, and stays silent."""

from __future__ import annotations

import math

from weaklink.collector.declared import Fit
from weaklink.collector.evidence import Row, Value
from weaklink.collector.rows.evaluated_model import mode_gap_of
from weaklink.collector.rows.observation import Observation


def rows(run: Observation) -> list[Row]:
    """Rows from the examination of a system in hand; not measured for a script."""
    return [_tiny_batch(run), *_gap(run), _mode_gap(run), *_validation(run)]


def _tiny_batch(run: Observation) -> Row:
    fits = run.examined.capability
    if not fits:
        return Row(
            id="CAPABILITY/tiny_batch",
            status="not_measured",
            text="whether the training system fits a tiny fixed batch",
            reason=run.examined.why_not("CAPABILITY", "needs a run of its own"),
        )
    real = fits[0]
    # Fitting 32 rows proves that the machinery works; of the task it proves nothing: coin flips are learned as well.
    fitted = real.accuracy == 1.0
    return Row(
        id="CAPABILITY/tiny_batch",
        status="pass" if fitted else "evidence",
        text=f"{_fit(real)} in {run.examined.capability_steps} steps" + ("; memorized" if fitted else ""),
        values=_values(real),
    )


def _gap(run: Observation) -> list[Row]:
    fits = run.examined.capability
    if not fits or len(fits) < 2:
        return []
    real, fresh = fits[0], fits[1]
    stuck = real.first == real.last and math.isfinite(fresh.last) and fresh.last < fresh.first
    return [
        Row(
            id="CAPABILITY/gap",
            # Not one bit in hundreds of steps, where plain SGD goes down: no slowness, something is not connected.
            status="suspected" if stuck else "evidence",
            text=f"real optimizer {_fit(real)}; {_fit(fresh)}",
            values={"real": real.last, "fresh": fresh.last},
        )
    ]


def _fit(fit: Fit) -> str:
    accuracy = "" if fit.accuracy is None else f", accuracy {fit.accuracy:.4f}"
    return f"{fit.name} {fit.first:.5f} -> {fit.last:.5f}{accuracy}"


def _values(fit: Fit) -> dict[str, Value]:
    return {"first": fit.first, "last": fit.last, "accuracy": fit.accuracy}


def _mode_gap(run: Observation) -> Row:
    gap, text = run.examined.mode_gap or mode_gap_of(run), "the same data in train and in eval mode"
    if gap is None:
        reason = run.examined.why_not("EVALUATION/mode_gap", "needs a forward of its own")
        return Row(id="EVALUATION/mode_gap", status="not_measured", text=text, reason=reason)
    # Evaluation may take a fused path, whose last digits differ.
    same = not gap.modules and math.isclose(gap.train, gap.evaluation, rel_tol=1e-5, abs_tol=1e-8)
    of = f" ({', '.join(gap.modules)})" if gap.modules else ""
    return Row(
        id="EVALUATION/mode_gap",
        # Dropout and batch statistics differ by design; how much is for the reader.
        status="pass" if same else "evidence",
        text=f"loss {gap.train:.6f} in train mode, {gap.evaluation:.6f} in eval mode{of}",
        values={"train": gap.train, "eval": gap.evaluation, "modules": gap.modules},
    )


def _validation(run: Observation) -> list[Row]:
    gap = run.examined.validation
    if gap is None:
        return []
    return [
        Row(
            id="EVALUATION/validation",
            status="evidence",
            text=f"loss {gap.train:.6f} on the batch, {gap.evaluation:.6f} on validation data, both in eval mode",
            values={"train": gap.train, "validation": gap.evaluation},
        )
    ]
