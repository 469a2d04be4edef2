"""Experiments on the step itself. Data, forward, loss and the first backward are past when they act."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from weaklink.collector.catalogue.entry import FROM_STEP, Entry, NoParameters
from weaklink.collector.evidence import Model


class RateFactor(Model):
    """What every learning rate is multiplied by."""

    factor: float = Field(gt=0, allow_inf_nan=False)

    @field_validator("factor")
    @classmethod
    def _changes_something(cls, factor: float) -> float:
        if factor == 1:
            raise ValueError("a factor of 1 changes nothing")
        return factor


class StepSite(Model):
    """A line of the user's code that asks for a step, as rows name it: `train.py:31`."""

    site: str = Field(pattern=r"^.+:[1-9][0-9]*$", max_length=1000)


class FreshOptimizer(Model):
    """What steps instead of the script's optimizers; weight decay and momentum 0."""

    kind: Literal["SGD", "Adam", "AdamW"] = "SGD"
    lr: float = Field(gt=0, allow_inf_nan=False)


SCALE_LR = Entry(
    name="scale_lr",
    boundary="UPDATE",
    changes="During each step the learning rate of every group is multiplied by the factor, and put back after it; "
    "schedulers go on as they were.",
    cannot_change="Data, first forward, first loss and first gradients; which parameters are held.",
    not_applicable="The script never steps an optimizer, or its rates are 0.",
    parameters=RateFactor,
    can_move=FROM_STEP | {"lr.first"},
    decides=frozenset({"rate_wrong"}),
)

FRESH_OPTIMIZER = Entry(
    name="fresh_optimizer",
    boundary="UPDATE",
    changes="Each step that the script asks for is carried out by one new optimizer over all trainable parameters of "
    "the models that ran (kind SGD, Adam or AdamW), never by the script's own. A control, and never a repair.",
    cannot_change="Data, first forward, first loss and first gradients; parameters that are frozen.",
    not_applicable="The script never steps an optimizer, or before any model ran.",
    parameters=FreshOptimizer,
    can_move=FROM_STEP | {"lr.first", "owned"},
    decides=frozenset({"update_lost", "optimizer_state_wrong"}),
)

WITHOUT_WEIGHT_DECAY = Entry(
    name="without_weight_decay",
    boundary="UPDATE",
    changes="During each step the weight decay of every group is 0; it is put back after the step.",
    cannot_change="Data, first forward, first loss and first gradients; a penalty that the script adds to its loss.",
    not_applicable="No group has a weight decay, or the script never steps an optimizer.",
    parameters=NoParameters,
    can_move=FROM_STEP,
    decides=frozenset({"regularization_wrong"}),
)

WITHOUT_CLIPPING = Entry(
    name="without_clipping",
    boundary="UPDATE",
    changes="torch's functions that clip gradients change none; the norm that they return is the same.",
    cannot_change="Data, first forward, first loss and first gradients as backward left them; clipping by hand.",
    not_applicable="The script does not call them, or they would have changed no gradient.",
    parameters=NoParameters,
    can_move=FROM_STEP,
    decides=frozenset({"clipping_misordered"}),
)

DEFER_STEP_UNTIL_BACKWARD = Entry(
    name="defer_step_until_backward",
    boundary="UPDATE",
    changes="A step that exactly that line of the user's code asks for waits until after the next backward, whichever "
    "that is.",
    cannot_change="Data, first forward, first loss and first gradients; steps of other lines; what a step consumes, "
    "beyond what that backward adds.",
    not_applicable="That line asks for no step, gives it a closure, or no backward comes after it.",
    parameters=StepSite,
    can_move=FROM_STEP,
    decides=frozenset({"step_before_backward"}),
)

ENTRIES = (
    SCALE_LR,
    FRESH_OPTIMIZER,
    WITHOUT_WEIGHT_DECAY,
    WITHOUT_CLIPPING,
    DEFER_STEP_UNTIL_BACKWARD,
)
