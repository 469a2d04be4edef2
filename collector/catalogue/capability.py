"""Experiments on what the model could learn: its first weights, and what holds it back on purpose."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from weaklink.collector.catalogue.entry import FROM_FORWARD, Entry, NoParameters
from weaklink.collector.evidence import Model


class Redrawing(Model):
    """Which modules, how, and the seed of a random stream of its own.

    `module` is a shell-style pattern over the names of modules that hold parameters themselves: `features.0` is the
    module of `features.0.weight`. A parameter's own name, such as `*.lora_A`, means it alone.
    """

    module: str = Field(default="*", min_length=1, max_length=200)
    scheme: Literal["default", "kaiming_uniform", "xavier_uniform", "orthogonal", "normal"] = "default"
    seed: int = Field(default=0, ge=0, lt=2**63)


REINITIALIZE = Entry(
    name="reinitialize",
    boundary="CAPABILITY",
    changes="Before a model's first forward the parameters of matching modules (or the parameters that match "
    "themselves) are drawn anew: as the module itself "
    "does when it is built (scheme default), or its weights of two or more dimensions by the scheme: kaiming_uniform, "
    "xavier_uniform, orthogonal, normal.",
    cannot_change="Inputs, targets, buffers, which objects the optimizer holds, and the run's random streams.",
    not_applicable="No module that matches holds parameters and knows how to draw them.",
    parameters=Redrawing,
    can_move=FROM_FORWARD | {"parameters.first"},
    decides=frozenset({"initial_weights_wrong", "zero_gradient", "signal_vanishes"}),
)

WITHOUT_DROPOUT = Entry(
    name="without_dropout",
    boundary="CAPABILITY",
    changes="Dropout, also inside attention and recurrent layers, drops nothing. It still draws its random numbers, so "
    "that everything else in the run draws the ones it drew.",
    cannot_change="Inputs, targets and first parameters; noise that the script makes by hand.",
    not_applicable="No dropout is active in train mode, or it runs in a compiled region.",
    parameters=NoParameters,
    can_move=FROM_FORWARD,
    decides=frozenset({"regularization_wrong"}),
)

ENTRIES = (REINITIALIZE, WITHOUT_DROPOUT)
