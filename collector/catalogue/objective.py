"""Experiments on the loss function and what it is fed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from weaklink.collector.catalogue.entry import FROM_FORWARD, FROM_LOSS, Entry, NoParameters
from weaklink.collector.evidence import Model


class SiteOfArithmetic(Model):
    """A line of a loss written by hand, as rows name it: `train.py:31`; empty: the losses that torch ships alone."""

    site: str = Field(default="", pattern=r"^(.+:[1-9][0-9]*)?$", max_length=1000)


class ClassOrder(Model):
    """For each class the place at which its number stands; each place once."""

    order: list[int] = Field(min_length=2, max_length=1000)

    @field_validator("order")
    @classmethod
    def _is_a_permutation(cls, order: list[int]) -> list[int]:
        if sorted(order) != list(range(len(order))):
            raise ValueError("each place from 0 on must stand there once")
        return order


class Mode(Model):
    """The mode, and a pattern over the names of modules inside the model that is called; itself it has none."""

    mode: Literal["train", "eval"] = "train"
    modules: str = Field(default="*", min_length=1, max_length=200)


RAW_SCORES_TO_LOSS = Entry(
    name="raw_scores_to_loss",
    boundary="OBJECTIVE",
    changes="Where the result of a softmax, reshaped or not, is fed to cross entropy or a log-softmax, the raw scores "
    "that went into the softmax take its place; likewise a sigmoid's in a binary cross entropy with logits. Where a "
    "likelihood or a divergence wants log-probabilities it is given the logarithm of that softmax, or the log-softmax "
    "of scores that cannot be logarithms, being above zero.",
    cannot_change="Inputs, targets, first parameters, and what the model returns.",
    not_applicable="They are fed what they expect, it was worked on in between, or it happens in a compiled region.",
    parameters=NoParameters,
    can_move=FROM_LOSS,
    decides=frozenset({"wrong_scores_to_loss"}),
)

WITHOUT_LABEL_SMOOTHING = Entry(
    name="without_label_smoothing",
    boundary="OBJECTIVE",
    changes="Cross entropy is called with label smoothing 0.",
    cannot_change="Inputs, targets, first parameters and first outputs; smoothing that the script does by hand.",
    not_applicable="No cross entropy is called with label smoothing.",
    parameters=NoParameters,
    can_move=FROM_LOSS,
    decides=frozenset({"regularization_wrong", "wrong_term_or_sign"}),
)

MATCH_TARGET_SHAPE = Entry(
    name="match_target_shape",
    boundary="OBJECTIVE",
    changes="Where targets have as many entries as the outputs and another number of dimensions, so that the two would "
    "be broadcast, they take the outputs' shape: in losses that torch ships, and in the arithmetic of the function "
    "that holds the line `site`, where the operand without a history is the target.",
    cannot_change="Inputs, first outputs, first parameters, and the targets' values.",
    not_applicable="No such shapes meet there, or only in a compiled region.",
    parameters=SiteOfArithmetic,
    can_move=FROM_LOSS,
    decides=frozenset({"shape_misread"}),
)

ROWS_IN_ORDER = Entry(
    name="rows_in_order",
    boundary="OBJECTIVE",
    changes="Inside a model, one number a row (its length) is not sorted: values and positions stay as they came, and "
    "packing is told that they are not sorted.",
    cannot_change="Inputs, targets, first parameters; an order that is made before the model is called.",
    not_applicable="The model does not sort one number a row by torch, or all came sorted.",
    parameters=NoParameters,
    can_move=FROM_FORWARD,
    decides=frozenset({"shape_misread"}),
)

SET_MODE = Entry(
    name="set_mode",
    boundary="OBJECTIVE",
    changes="For as long as a forward with gradients takes, modules that match, of a model of which an optimizer holds "
    "something, are in train or in eval mode.",
    cannot_change="Inputs, targets, first parameters; forwards without gradients.",
    not_applicable="They are in that mode already, or their mode does not matter.",
    parameters=Mode,
    can_move=FROM_FORWARD,
    decides=frozenset({"wrong_mode_in_training"}),
)

WITHOUT_IGNORE_INDEX = Entry(
    name="without_ignore_index",
    boundary="OBJECTIVE",
    changes="A cross entropy or likelihood over classes does not ignore a label for which its scores have a place: its "
    "ignore_index is -100.",
    cannot_change="Inputs, targets, first outputs, first parameters; labels that are no class, masks made by hand.",
    not_applicable="No loss ignores a class, or that class is never a target.",
    parameters=NoParameters,
    can_move=FROM_LOSS,
    decides=frozenset({"supervision_missing"}),
)

TRIM_TARGET_LENGTHS = Entry(
    name="trim_target_lengths",
    boundary="OBJECTIVE",
    changes="The lengths of a CTC loss's padded targets, (rows, width), end before the blanks that end each target.",
    cannot_change="Inputs, targets, first outputs, first parameters; blanks between labels.",
    not_applicable="No target ends in blanks that its length counts, or the script calls no CTC loss.",
    parameters=NoParameters,
    can_move=FROM_LOSS,
    decides=frozenset({"wrong_reduction"}),
)

PRIOR_BY_CLASS = Entry(
    name="prior_by_class",
    boundary="OBJECTIVE",
    changes="In a cross entropy or likelihood over classes, class c takes the number at place order[c]: of the class "
    "weights, or of what was added to every row of a model's scores alike.",
    cannot_change="Inputs, targets, first outputs, first parameters; vectors of another length, weights made by hand.",
    not_applicable="No loss has class weights of that length, and nothing constant was added to the scores.",
    parameters=ClassOrder,
    can_move=FROM_LOSS,
    decides=frozenset({"label_convention"}),
)

ENTRIES = (
    RAW_SCORES_TO_LOSS,
    WITHOUT_LABEL_SMOOTHING,
    MATCH_TARGET_SHAPE,
    ROWS_IN_ORDER,
    SET_MODE,
    WITHOUT_IGNORE_INDEX,
    TRIM_TARGET_LENGTHS,
    PRIOR_BY_CLASS,
)
