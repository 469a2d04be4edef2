"""Experiments on the step itself. Data, forward, loss and the first backward are past when they act."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from weaklink.collector.catalogue.entry import FROM_LOSS, FROM_STEP, Entry, NoParameters
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


class Rate(Model):
    """The learning rate of every group."""

    lr: float = Field(gt=0, allow_inf_nan=False)


class EveryNth(Model):
    """Once for so many."""

    n: int = Field(default=1, ge=1, lt=2**31)


class NormLimit(Model):
    """The largest norm of all gradients of an optimizer together."""

    max: float = Field(gt=0, allow_inf_nan=False)


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
    can_move=FROM_STEP | {"lr.first", "lr.last"},
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

HOLD_SCHEDULER = Entry(
    name="hold_scheduler",
    boundary="UPDATE",
    changes="During each step every group has the learning rate that its optimizer was built with; after it the rate "
    "is again what the script and its schedulers made of it. They go on as they were, without effect.",
    cannot_change="Data, first forward, first loss and first gradients; a momentum that a scheduler cycles.",
    not_applicable="No step has another rate than its group was built with, or the script never steps an optimizer.",
    parameters=NoParameters,
    can_move=FROM_STEP | {"lr.first", "lr.last"},
    decides=frozenset({"rate_wrong"}),
)

SET_LR = Entry(
    name="set_lr",
    boundary="UPDATE",
    changes="During each step every group has this learning rate; after it its own is put back.",
    cannot_change="Data, first forward, first loss and first gradients; which parameters are held.",
    not_applicable="The script never steps an optimizer, or its rates are this one.",
    parameters=Rate,
    can_move=FROM_STEP | {"lr.first", "lr.last"},
    decides=frozenset({"rate_wrong"}),
)

STEP_SCHEDULER_PER_STEP = Entry(
    name="step_scheduler_per_step",
    boundary="UPDATE",
    changes="Each of torch's schedulers advances right after every n-th step of its optimizer; the script's own calls "
    "of its `step` do nothing. One that follows a metric is left to the script.",
    cannot_change="Data, first forward, first loss, first gradients and the rate of the first step.",
    not_applicable="The script has no scheduler of torch's, or steps it once for so many optimizer steps itself.",
    parameters=EveryNth,
    can_move=FROM_STEP | {"lr.last"},
    decides=frozenset({"rate_wrong"}),
)

UNSCALE_BEFORE_CLIPPING = Entry(
    name="unscale_before_clipping",
    boundary="UPDATE",
    changes="Before torch's functions clip gradients, the gradient scaler unscales the optimizers that hold them.",
    cannot_change="Data, first forward, first loss and first gradients as backward left them; clipping by hand.",
    not_applicable="No such function clips gradients that a scaler has scaled.",
    parameters=NoParameters,
    can_move=FROM_STEP,
    decides=frozenset({"clipping_misordered"}),
)

CLIP_GRAD_NORM = Entry(
    name="clip_grad_norm",
    boundary="UPDATE",
    changes="Right before each step the gradients of its optimizer are clipped, all together, to a norm of at most "
    "max; where a closure makes them, after each evaluation.",
    cannot_change="Data, first forward, first loss and first gradients as backward left them.",
    not_applicable="No step has gradients of a larger norm, or the script never steps an optimizer.",
    parameters=NormLimit,
    can_move=FROM_STEP,
    decides=frozenset({"clipping_misordered"}),
)

WITHOUT_SCALER = Entry(
    name="without_scaler",
    boundary="UPDATE",
    changes="Every gradient scaler is switched off, as enabled=False does: the loss is not multiplied, gradients are "
    "not divided, and no step is skipped.",
    cannot_change="Data, first forward and first parameters; autocast.",
    not_applicable="The script scales no loss with torch's gradient scaler.",
    parameters=NoParameters,
    can_move=FROM_LOSS,
    decides=frozenset({"step_missing_or_skipped"}),
)

FLOAT32_STEPS = Entry(
    name="float32_steps",
    boundary="UPDATE",
    changes="Steps of 16-bit parameters are taken on float32 copies, which are kept from step to step; after each the "
    "model gets them back in its own type.",
    cannot_change="Data, first forward, first loss and first gradients: they stay in the 16-bit type.",
    not_applicable="No optimizer holds 16-bit parameters with a gradient before its step, or it is LBFGS.",
    parameters=NoParameters,
    can_move=FROM_STEP,
    decides=frozenset({"update_lost"}),
)

RESET_OPTIMIZER_STATE = Entry(
    name="reset_optimizer_state",
    boundary="UPDATE",
    changes="What is loaded into an optimizer sets its groups' settings and nothing else: it remembers no gradients "
    "and counts no steps of another run.",
    cannot_change="Data, first forward, first loss and first gradients; rates and decay, also those that are loaded.",
    not_applicable="No optimizer is loaded with a state.",
    parameters=NoParameters,
    can_move=FROM_STEP,
    decides=frozenset({"optimizer_state_wrong"}),
)

STEP_AFTER_BACKWARD = Entry(
    name="step_after_backward",
    boundary="UPDATE",
    changes="After every n-th backward each optimizer that has a gradient steps, through the gradient scaler where one "
    "scaled the loss, and its gradients are cleared.",
    cannot_change="Data, first forward, first loss and first gradients; which parameters are held.",
    not_applicable="The script builds no optimizer, or no backward leaves what it holds a gradient.",
    parameters=EveryNth,
    can_move=FROM_STEP,
    decides=frozenset({"step_missing_or_skipped"}),
)

MINIMIZE = Entry(
    name="minimize",
    boundary="UPDATE",
    changes="During each step no group maximizes, and a negative learning rate counts by its size.",
    cannot_change="Data, first forward, first loss and first gradients; a sign in the loss, a gradient turned by hand.",
    not_applicable="No group maximizes or has a negative rate, or the script never steps an optimizer.",
    parameters=NoParameters,
    can_move=FROM_STEP | {"lr.first", "lr.last"},
    decides=frozenset({"wrong_term_or_sign"}),
)

KEEP_STEPPED = Entry(
    name="keep_stepped",
    boundary="UPDATE",
    changes="Where, before a forward with gradients, an optimizer's parameters are bit for bit what they were before "
    "its first step, they get back what its last step left.",
    cannot_change="Data, first forward, first loss and first gradients; any other write into a parameter.",
    not_applicable="The parameters never come back to what they were before the first step.",
    parameters=NoParameters,
    can_move=FROM_STEP,
    decides=frozenset({"update_lost"}),
)

COPY_STATES = Entry(
    name="copy_states",
    boundary="UPDATE",
    changes="Where a line of the user's takes a module's state_dict(), its tensors are copies instead of the module's "
    "own memory.",
    cannot_change="Everything before such a state is loaded; states that the script copies or stores itself.",
    not_applicable="No state that was taken is loaded after the module has moved on.",
    parameters=NoParameters,
    can_move=FROM_STEP,
    decides=frozenset({"update_lost", "wrong_weights_evaluated"}),
)

DEFER_STEP_UNTIL_BACKWARD = Entry(
    name="defer_step_until_backward",
    boundary="UPDATE",
    changes="A step that exactly that line of the user's code asks for waits until after the next backward, whichever "
    "that is.",
    cannot_change="Data, first forward, first loss and first gradients; steps of other lines; what a step consumes, "
    "beyond what that backward adds.",
    not_applicable="That line asks for no step, or gives it a closure.",
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
    HOLD_SCHEDULER,
    SET_LR,
    STEP_SCHEDULER_PER_STEP,
    UNSCALE_BEFORE_CLIPPING,
    CLIP_GRAD_NORM,
    WITHOUT_SCALER,
    FLOAT32_STEPS,
    RESET_OPTIMIZER_STATE,
    STEP_AFTER_BACKWARD,
    MINIMIZE,
    KEEP_STEPPED,
    COPY_STATES,
)
