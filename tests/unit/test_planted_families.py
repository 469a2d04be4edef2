"""A wrong family of the right boundary, planted as the lead: no experiment of the catalogue may support it.

Either the contract refuses it (the experiment cannot decide it, or exact evidence excludes it), or the rerun leaves the
row as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from collector_runs import observe, row

from weaklink.agent.advisors.base import cite
from weaklink.agent.contract import FAMILIES, violations
from weaklink.agent.proposal import Proposal
from weaklink.collector.catalogue import CATALOGUE
from weaklink.collector.evidence import Evidence

LOOP = """
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(32, 4)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
{optimizer}
for step in range(12):
    {clear}
    loss = nn.functional.cross_entropy(model(x){fed}, y)
    loss.backward()
    {before}
    {step}
    {after}
"""
HEALTHY = {
    "optimizer": "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    "clear": "optimizer.zero_grad()",
    "fed": "",
    "before": "pass",
    "step": "optimizer.step()",
    "after": "pass",
}
BUILD = HEALTHY["optimizer"]
# The fault, the row it shows at, the family that is right.
FAULTS: dict[str, tuple[dict[str, str], str, str]] = {
    "replaced head": (
        {"optimizer": BUILD + "; model[2] = nn.Linear(8, 2)"},
        "OWNERSHIP/owned",
        "optimizer_holds_old_objects",
    ),
    "zero rate": ({"optimizer": BUILD.replace("0.1", "0.0")}, "UPDATE/lr", "rate_wrong"),
    "huge rate": ({"optimizer": BUILD.replace("0.1", "1e4")}, "UPDATE/scale", "rate_wrong"),
    "no step": ({"step": "pass"}, "UPDATE/steps", "step_missing_or_skipped"),
    "clipped after the step": (
        {"after": "nn.utils.clip_grad_norm_(model.parameters(), 0.1)"},
        "UPDATE/clipping",
        "clipping_misordered",
    ),
    "never cleared": ({"clear": "pass"}, "GRADIENT/pre_existing", "stale_gradient"),
    "cleared before the step": ({"before": "optimizer.zero_grad()"}, "UPDATE/moved", "step_before_backward"),
    "softmax before the loss": ({"fed": ".softmax(1)"}, "OBJECTIVE/fed", "wrong_scores_to_loss"),
}
PARAMETERS: dict[str, dict[str, Any]] = {
    "scale_lr": {"factor": 1e-6},
    "fresh_optimizer": {"lr": 0.1},
    "set_lr": {"lr": 0.1},
    "clip_grad_norm": {"max": 0.1},
    "supervise_token": {"token": 0},
    "prior_by_class": {"order": [1, 0]},
    "own_missing_parameters": {"unregistered": True},
}


def planted(evidence: Evidence, row_id: str, family: str, name: str, parameters: dict[str, Any]) -> Proposal:
    diverging = row(evidence, row_id)
    mechanism = {"boundary": diverging.boundary, "explanation": "planted"}
    changes, stays = f"row[{row_id}]", ["input.first", "steps"]
    kept = [{"measurement": key, "expect": "same"} for key in stays]
    return Proposal.model_validate(
        {
            "outcome": "experiment",
            "first_boundary": diverging.boundary,
            "first_row": row_id,
            "cited": cite(diverging),
            "mechanisms": [
                {
                    "id": family,
                    **mechanism,
                    "predictions": [{"measurement": changes, "expect": "becomes", "value": "pass"}, *kept],
                },
                {"id": "other", **mechanism, "predictions": [{"measurement": changes, "expect": "same"}, *kept]},
            ],
            "experiment": {"name": name, "parameters": parameters},
            "must_change": [changes],
            "must_stay_unchanged": stays,
        }
    )


def wrong(boundary: str, right: str) -> Iterator[tuple[str, str]]:
    """Every other family of the boundary, with each experiment: those that decide it, and those that decide the right
    one, which flip the row."""
    for family in FAMILIES[boundary]:
        for name, entry in CATALOGUE.items():
            if family != right and {family, right} & entry.decides:
                yield family, name


@pytest.mark.parametrize("fault", FAULTS)
def test_no_wrong_family_is_supported(fault: str, tmp_path: Path) -> None:
    change, row_id, right = FAULTS[fault]
    source = LOOP.format(**{**HEALTHY, **change})
    evidence = observe(source, tmp_path).seen
    first = evidence.first_divergence
    assert first is not None
    assert first.id == row_id, first
    refused, rerun = 0, 0
    for family, name in wrong(first.boundary, right):
        given = dict(PARAMETERS.get(name, {}))
        if "site" in CATALOGUE[name].parameters.model_fields:
            given |= {"site": "train.py:12", **({"function": "relu", "change": "bypass"} if name == "at_site" else {})}
        broken = {found.rule for found in violations(planted(evidence, row_id, family, name, given), evidence)}
        if broken & {"decides", "grounds", "experiment", "predictions", "measurements"}:
            refused += 1
            continue
        treated = observe(
            source, tmp_path, role="treatment", intervention=name, intervention_parameters=given, keep_initial=True
        )
        rerun += 1
        after = treated.evidence.row(row_id) if treated.evidence is not None else None
        assert after is None or after.status != "pass", f"{family} would be supported by {name}"
    assert refused + rerun > 0
