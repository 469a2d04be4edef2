"""Experiments on what is evaluated, and in which state.

They act right before an evaluation; what training does, it does as before, bit for bit.
"""

from __future__ import annotations

from pydantic import Field

from weaklink.collector.catalogue.entry import FROM_STEP, Entry, NoParameters
from weaklink.collector.evidence import Model


class Momentum(Model):
    """The weight of the new batch in running statistics, as PyTorch counts it."""

    momentum: float = Field(default=0.1, gt=0, le=1, allow_inf_nan=False)


DROPOUT_FOLLOWS_MODE = Entry(
    name="dropout_follows_mode",
    boundary="EVALUATION",
    changes="Inside a module that is in eval mode dropout drops nothing, however it is called. It still draws its "
    "random numbers.",
    cannot_change="Anything in train mode: training goes on as it was, and draws the random numbers that it drew.",
    not_applicable="No dropout is active in eval mode.",
    parameters=NoParameters,
    can_move=FROM_STEP,
    decides=frozenset({"evaluation_mismatch"}),
)

BATCHNORM_MOMENTUM = Entry(
    name="batchnorm_momentum",
    boundary="EVALUATION",
    changes="Batch normalisations in train mode update their running statistics with this weight of the new batch.",
    cannot_change="Anything in train mode, which normalises by the batch itself; normalisations that keep a plain "
    "average.",
    not_applicable="None runs in train mode with another momentum.",
    parameters=Momentum,
    can_move=FROM_STEP,
    decides=frozenset({"stale_buffers"}),
)

UPDATE_BUFFERS = Entry(
    name="update_buffers",
    boundary="EVALUATION",
    changes="Before a copy of the trained model is evaluated, its buffers become the trained model's.",
    cannot_change="The trained model, and any parameter.",
    not_applicable="No other object of the trained model's layout is evaluated without gradients, or its buffers are "
    "equal already.",
    parameters=NoParameters,
    can_move=FROM_STEP,
    decides=frozenset({"stale_buffers"}),
)

EVALUATE_TRAINED_WEIGHTS = Entry(
    name="evaluate_trained_weights",
    boundary="EVALUATION",
    changes="Before a copy of the trained model is evaluated, the trained parameters are written into it.",
    cannot_change="The trained model, and any buffer.",
    not_applicable="No other object of the trained model's layout is evaluated without gradients, or its parameters "
    "are equal already.",
    parameters=NoParameters,
    can_move=FROM_STEP,
    decides=frozenset({"wrong_weights_evaluated"}),
)

EVALUATE_IN_EVAL_MODE = Entry(
    name="evaluate_in_eval_mode",
    boundary="EVALUATION",
    changes="A model that is called without gradients after the first step is in eval mode for as long as that takes. "
    "Dropout still draws its random numbers.",
    cannot_change="Anything that is called with gradients.",
    not_applicable="Every model is evaluated in eval mode already.",
    parameters=NoParameters,
    can_move=FROM_STEP,
    decides=frozenset({"evaluation_mismatch"}),
)

ENTRIES = (
    DROPOUT_FOLLOWS_MODE,
    BATCHNORM_MOMENTUM,
    UPDATE_BUFFERS,
    EVALUATE_TRAINED_WEIGHTS,
    EVALUATE_IN_EVAL_MODE,
)
