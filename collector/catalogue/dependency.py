"""Experiments on the graph between loss and parameters."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from weaklink.collector.catalogue.entry import FROM_BACKWARD, Entry, NoParameters
from weaklink.collector.evidence import Model


class SiteOfCall(Model):
    """The line of the call, as rows name it: `train.py:31`, the file relative to the run's folder."""

    site: str = Field(pattern=r"^.+:[1-9][0-9]*$", max_length=1000)


class SideOfComparison(SiteOfCall):
    """The line of the comparison, and which of its two sides becomes a fixed target."""

    side: Literal["fewer", "first", "second"] = "fewer"


REATTACH = Entry(
    name="reattach",
    boundary="DEPENDENCY",
    changes="A call of `detach` or `detach_`, or `.data`, on exactly that line of the user's code (site, such as "
    "train.py:31) answers its own input, so that the gradient passes; a tensor that `torch.tensor` rebuilds there from "
    "a list of tensors is stacked of them.",
    cannot_change="Any value of the first forward: outputs and first loss stay bitwise equal.",
    not_applicable="That line does none of it, what it cuts off needs no gradient, it rebuilds from plain numbers, or "
    "it stands in a compiled region.",
    parameters=SiteOfCall,
    can_move=FROM_BACKWARD,
    decides=frozenset({"graph_cut"}),
)

GRAD_ENABLED = Entry(
    name="grad_enabled",
    boundary="DEPENDENCY",
    changes="Where that line of the user's code (site) switches gradients off, by a block or a decorator, or calls a "
    "module without them inside a model that was called with them, they stay on. Inference mode is what no_grad is.",
    cannot_change="Any value of the first forward: outputs and first loss stay bitwise equal. Evaluations, where "
    "gradients are off already.",
    not_applicable="That line switches no gradients off, or it stands in a compiled region.",
    parameters=SiteOfCall,
    can_move=FROM_BACKWARD,
    decides=frozenset({"graph_cut"}),
)

NON_REENTRANT_CHECKPOINT = Entry(
    name="non_reentrant_checkpoint",
    boundary="DEPENDENCY",
    changes="`torch.utils.checkpoint.checkpoint` keeps the graph (use_reentrant=False), also where nothing that it is "
    "given needs a gradient.",
    cannot_change="Any value of the first forward: outputs and first loss stay bitwise equal.",
    not_applicable="No re-entrant checkpoint is called with gradients.",
    parameters=NoParameters,
    can_move=FROM_BACKWARD,
    decides=frozenset({"graph_cut"}),
)

STOP_GRADIENT = Entry(
    name="stop_gradient",
    boundary="DEPENDENCY",
    changes="Where that line (site) compares or multiplies two tensors that both carry a history, one side is "
    "detached: the one that fewer parameters made (side fewer; the second where both have as many), first or second.",
    cannot_change="Any value of the first forward: outputs and first loss stay bitwise equal.",
    not_applicable="That line compares no two tensors of one shape that both carry a history.",
    parameters=SideOfComparison,
    can_move=FROM_BACKWARD,
    decides=frozenset({"missing_stop_gradient"}),
)

ENTRIES = (REATTACH, GRAD_ENABLED, NON_REENTRANT_CHECKPOINT, STOP_GRADIENT)
