"""Experiments on the gradients between a backward and the step that uses them, and on single operations."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, model_validator

from weaklink.collector.catalogue.entry import FROM_FORWARD, FROM_STEP, Entry, NoParameters
from weaklink.collector.evidence import Model

# Where a value or a derivative is not finite: beyond the range of the argument that `clamp` keeps it in.
Ranged = Literal[
    "sqrt",
    "rsqrt",
    "exp",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "pow",
    "div",
    "reciprocal",
    "acos",
    "asin",
    "atanh",
    "softmax",
    "log_softmax",
    "logsumexp",
]
# They answer in the shape of their first argument: a call can be left out.
Elementwise = Literal[
    "relu",
    "leaky_relu",
    "elu",
    "gelu",
    "silu",
    "softplus",
    "sigmoid",
    "logsigmoid",
    "tanh",
    "threshold",
    "hardtanh",
    "hardsigmoid",
    "hardswish",
    "softshrink",
    "hardshrink",
    "clamp",
    "maximum",
    "minimum",
    "round",
    "floor",
    "ceil",
    "sign",
    "abs",
    "add",
    "sub",
    "mul",
]
Function = Literal[Ranged, Elementwise, "matmul", "norm", "mean", "sum"]
Change = Literal["bypass", "cut", "epsilon", "clamp", "out_of_place"]


class Operation(Model):
    """One function of torch on one line of the user's code, as rows name it, and what becomes of its calls there.

    A function stands for all its spellings: `div` for `/`, `torch.div` and `Tensor.div_`, `relu` for `nn.ReLU` too.
    """

    site: str = Field(pattern=r"^.+:[1-9][0-9]*$", max_length=1000)
    function: Function
    change: Change

    @model_validator(mode="after")
    def _possible(self) -> Operation:
        if self.change in ("clamp", "epsilon") and self.function not in get_args(Ranged):
            raise ValueError(f"{self.function} has no range for its argument to leave: bypass it, or cut it")
        if self.change == "bypass" and self.function not in (*get_args(Elementwise), "softmax", "log_softmax"):
            raise ValueError(f"{self.function} does not answer the shape of its argument: it cannot be left out")
        return self


ZERO_GRAD_BEFORE_BACKWARD = Entry(
    name="zero_grad_before_backward",
    boundary="GRADIENT",
    changes="Gradients that an optimizer's step has used are cleared before the next backward.",
    cannot_change="Data, first forward, first loss and first gradients; gradients that no step has used yet.",
    not_applicable="Whatever a step uses is cleared by the script before the next backward.",
    parameters=NoParameters,
    can_move=FROM_STEP,
    decides=frozenset({"stale_gradient"}),
)

KEEP_GRAD_UNTIL_STEP = Entry(
    name="keep_grad_until_step",
    boundary="GRADIENT",
    changes="A zero_grad between a backward and the next step that is asked for clears nothing.",
    cannot_change="Data, first forward, first loss and first gradients; clearing between a step and the next backward, "
    "and by other means than zero_grad.",
    not_applicable="No zero_grad stands between a backward and the next step, or it finds no gradient to clear.",
    parameters=NoParameters,
    can_move=FROM_STEP,
    decides=frozenset({"gradient_cleared_early"}),
)

AT_SITE = Entry(
    name="at_site",
    boundary="GRADIENT",
    changes="The calls of one function of torch for one line of the user's code are changed: bypass answers their "
    "first argument, cut takes the history of their second operand away (or of the answer, where there is no second), "
    "clamp keeps their argument where value and derivative are finite, epsilon adds 1e-12 to it, and out_of_place lets "
    "a call that writes to its argument write to a copy.",
    cannot_change="Inputs, targets, first parameters; with clamp, everything before an argument leaves the range; with "
    "cut and out_of_place, the values of the first forward.",
    not_applicable="The line calls no such function, the change would change nothing, or it is in a compiled region.",
    parameters=Operation,
    can_move=FROM_FORWARD,
    decides=frozenset({"zero_gradient", "nonfinite", "missing_stop_gradient"}),
)

ENTRIES = (ZERO_GRAD_BEFORE_BACKWARD, KEEP_GRAD_UNTIL_STEP, AT_SITE)
