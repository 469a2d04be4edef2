"""Evidence by hand: the stale head as the collector would write it, and a run that left nothing."""

from __future__ import annotations

from typing import Any

from weaklink.collector.evidence import (
    Environment,
    Evidence,
    Fingerprint,
    Outcome,
    ParameterRecord,
    Row,
    Series,
    Site,
    StepRecord,
    Subject,
    mark_downstream,
)

EMPTY = Evidence(
    subject=Subject(kind="script", name="train.py"),
    outcome=Outcome(ended="raised"),
    environment=Environment(torch="2.13.0", python="3.11.7", platform="linux"),
    branch="raised",
    rows=[],
)


def parameter(name: str, shape: list[int], **more: Any) -> ParameterRecord:
    defaults: dict[str, Any] = {
        "dtype": "torch.float32",
        "requires_grad": True,
        "in_model": True,
        "owned": True,
        "registered": True,
        "moved": False,
        "delta_first": 0.0,
        "delta_net": 0.0,
    }
    return ParameterRecord(name=name, shape=shape, **(defaults | more))


def stale_head_parameters() -> list[ParameterRecord]:
    frozen = {"requires_grad": False, "gradient": "missing", "reached": False, "groups": ["0.0"]}
    built = Site(file="train.py", line=41, what="optimizer AdamW constructed")
    new = Site(file="train.py", line=45, what="created")
    live = {
        "owned": False,
        "created": new,
        "created_by": built,
        "created_after_optimizer": True,
        "reached": True,
        "gradient": "nonzero",
    }
    stale = {"in_model": False, "moved": None, "delta_first": None, "delta_net": None, "groups": ["0.0"]}
    return [
        parameter("features.0.weight", [32, 2], **frozen),
        parameter("features.0.bias", [32], **frozen),
        parameter("features.2.weight", [32, 32], **frozen),
        parameter("features.2.bias", [32], **frozen),
        parameter("head.weight", [2, 32], gradient_norm_first=0.147, gradient_digest_first="a" * 64, **live),
        parameter("head.bias", [2], gradient_norm_first=0.05, gradient_digest_first="b" * 64, **live),
        parameter("head.weight", [2, 32], **stale),
        parameter("head.bias", [2], **stale),
    ]


def stale_head_rows() -> list[Row]:
    rows = [
        Row(
            id="TASK/declared", status="not_measured", text="what one input and one target mean", reason="not declared"
        ),
        Row(
            id="TASK/classes", status="evidence", text="2 classes", values={"counts": [1039, 1009], "majority": 0.5073}
        ),
        Row(
            id="OBJECTIVE/value", status="evidence", text="loss 0.683606", values={"first": 0.683606, "last": 0.683606}
        ),
        Row(id="DEPENDENCY/reached", status="pass", text="2 of 2 reached", values={"reached": 2, "expected": 2}),
        Row(id="GRADIENT/present", status="pass", text="2 of 2 present", values={"present": 2, "expected": 2}),
        Row(id="GRADIENT/norm", status="evidence", text="total norm 0.155525", values={"norm": 0.155525}, step=1),
        Row(
            id="OWNERSHIP/owned",
            status="fail",
            basis="exact",
            text="0 of 2 live trainable parameters are held by an optimizer",
            values={"owned": 0, "expected": 2, "missing": ["head.weight", "head.bias"]},
            where=[
                Site(file="train.py", line=45, what="head.weight created"),
                Site(file="train.py", line=41, what="optimizer AdamW constructed"),
            ],
            step=1,
        ),
        Row(
            id="OWNERSHIP/stale",
            status="fail",
            basis="exact",
            text="2 held parameters are no longer in the model",
            values={"stale": 2, "held": 6, "replaced": 2},
        ),
        Row(
            id="UPDATE/moved",
            status="fail",
            basis="exact",
            text="0 of 2 moved, bitwise",
            values={"moved": 0, "expected": 2},
        ),
        Row(id="EVALUATION/gap", status="not_measured", text="train against eval mode", reason="needs a probe run"),
    ]
    return mark_downstream(rows)


def stale_head_evidence() -> Evidence:
    return Evidence(
        subject=Subject(kind="script", name="train.py"),
        outcome=Outcome(ended="completed", backwards=301, steps_asked=301, steps=301, forwards=315, exit_code=0),
        environment=Environment(torch="2.13.0+cpu", python="3.11.7", platform="linux", threads=1),
        branch="flat",
        rows=stale_head_rows(),
        parameters=stale_head_parameters(),
        steps=[StepRecord(step=1, lr=[0.01], gradient_norm=0.155525, parameter_norm=5.3, delta_norm=0.0)],
        losses=Series(index=list(range(1, 21)), value=[0.683606] * 20),
        fingerprint=Fingerprint(inputs="1" * 64, targets="2" * 64, outputs="3" * 64, loss=0.683606),
    )
