"""Experiments on inputs, targets and their pairing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from weaklink.collector.catalogue.entry import FROM_FORWARD, FROM_LOSS, Entry, NoParameters
from weaklink.collector.evidence import Model


class Permutation(Model):
    """The seed of a generator of its own: the run's random streams do not notice."""

    seed: int = Field(default=0, ge=0, lt=2**63)


class SeedOffset(Model):
    """What is added to every seed of the global streams."""

    k: int = Field(ge=1, lt=2**31)


class PinnedExamples(Model):
    """How many examples of the first batch."""

    n: int = Field(default=32, ge=1, le=65536)


class BrokenRows(Model):
    """Which rows are left out."""

    rows: Literal["nonfinite"] = "nonfinite"


class Shuffling(Model):
    """The seed of a generator of its own, and the line on which the loader is made; empty: each of them."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    site: str = Field(default="", pattern=r"^(.+:[1-9][0-9]*)?$", max_length=1000)


class Token(Model):
    """The id of the token that ends a text."""

    token: int = Field(ge=0, lt=2**31)


REALIGN_TARGETS = Entry(
    name="realign_targets",
    boundary="TASK",
    changes="Wherever a loss that torch ships is called, its targets are those that the declared rule gives for the "
    "inputs of the last forward of a model.",
    cannot_change="Inputs, first outputs and first parameters; targets that already follow the rule.",
    not_applicable="No rule is declared, the rule's targets have another number of entries, or all agree already.",
    parameters=NoParameters,
    can_move=FROM_LOSS | {"target.first"},
    decides=frozenset({"pairing_broken", "label_convention"}),
)

PERMUTE_TARGETS = Entry(
    name="permute_targets",
    boundary="TASK",
    changes="Wherever a loss that torch ships is called, its targets are permuted along dimension 0: the pairing with "
    "the inputs is broken on purpose. The same permutation at every call with as many rows.",
    cannot_change="Inputs, first outputs and first parameters; how often each target occurs in a batch.",
    not_applicable="The script calls no such loss, or its targets are one row or all alike.",
    parameters=Permutation,
    can_move=FROM_LOSS | {"target.first"},
    decides=frozenset(),
)

SEED = Entry(
    name="seed",
    boundary="TASK",
    changes="Every seed that the script sets for the global streams of Python, numpy and torch is larger by k; a "
    "stream that it does not seed begins elsewhere. Data that is drawn from these streams changes with them.",
    cannot_change="Data from files, and from generators of the script's own.",
    not_applicable="The script neither seeds nor draws from a global stream before its first forward.",
    parameters=SeedOffset,
    can_move=FROM_FORWARD | {"input.first", "target.first", "parameters.first"},
    decides=frozenset(),
)

PIN_BATCH = Entry(
    name="pin_batch",
    boundary="TASK",
    changes="Every forward with gradients is given the first n examples of the model's first batch, again and again up "
    "to the batch's own number of rows, and losses that torch ships are given their targets. A diagnostic: what cannot "
    "be fitted so is not held up by its data.",
    cannot_change="First parameters, shapes, evaluation; targets of a loss that the script computes by hand.",
    not_applicable="The script trains on that batch alone anyway, or calls no model.",
    parameters=PinnedExamples,
    can_move=FROM_FORWARD | {"target.first"},
    decides=frozenset(),
)

CONSTANT_INPUT = Entry(
    name="constant_input",
    boundary="TASK",
    changes="Every forward with gradients is given the mean of its batch in each row, of whole numbers the first row. "
    "A diagnostic: what is learned so is not learned from the inputs.",
    cannot_change="Targets, first parameters, evaluation.",
    not_applicable="The rows of each batch are alike anyway, or the script calls no model.",
    parameters=NoParameters,
    can_move=FROM_FORWARD | {"input.first"},
    decides=frozenset(),
)

DROP_ROWS = Entry(
    name="drop_rows",
    boundary="TASK",
    changes="Rows of a batch that hold a value that is not finite are left out: of a loader's batch in all its "
    "tensors, else of what a model is given with gradients, and of the targets of losses that torch ships.",
    cannot_change="Rows whose values are all finite, and first parameters; a batch of nothing but such rows.",
    not_applicable="No batch mixes finite rows with others.",
    parameters=BrokenRows,
    can_move=FROM_FORWARD | {"input.first", "target.first"},
    decides=frozenset({"input_corrupted"}),
)

SHUFFLE_DATA = Entry(
    name="shuffle_data",
    boundary="TASK",
    changes="A DataLoader that reads a dataset in its order (made on the line `site`, or each of them) draws its rows "
    "in a new permutation every pass; a DistributedSampler that shuffles goes on to the next epoch where the script "
    "does not say which one begins. The permutations come from a generator of their own.",
    cannot_change="First parameters, which rows there are, the run's random streams; the first pass of a sampler.",
    not_applicable="No such loader reads in order, and each pass of a sampler has an epoch of its own.",
    parameters=Shuffling,
    can_move=FROM_FORWARD | {"input.first", "target.first"},
    decides=frozenset({"data_not_mixed"}),
)

READ_ITEMS_ANEW = Entry(
    name="read_items_anew",
    boundary="TASK",
    changes="What reading an item writes into the tensors and arrays that the dataset of a DataLoader holds is undone "
    "before the next item is read; the item that was read keeps its values.",
    cannot_change="First parameters, targets, the order of the rows, and what an item is at its first reading.",
    not_applicable="Reading an item changes nothing that is stored, or the script makes no DataLoader.",
    parameters=NoParameters,
    can_move=FROM_FORWARD | {"input.first"},
    decides=frozenset({"input_corrupted"}),
)

CAUSAL_MASK = Entry(
    name="causal_mask",
    boundary="TASK",
    changes="Attention of a sequence to itself that has no mask over its positions gets the causal one: in torch's "
    "attention, and in a softmax over (..., length, length) in a model of token ids.",
    cannot_change="Inputs, targets, first parameters; layers that look ahead by another means than attention.",
    not_applicable="Every attention has a mask already, or the model has none.",
    parameters=NoParameters,
    can_move=FROM_FORWARD,
    decides=frozenset({"target_leak"}),
)

SUPERVISE_TOKEN = Entry(
    name="supervise_token",
    boundary="TASK",
    changes="In a cross entropy or likelihood whose targets are the token ids moved by one position, the first `token` "
    "of those that end a row is a target again where it is ignored.",
    cannot_change="Inputs, first outputs and first parameters; padding behind that token.",
    not_applicable="No such targets, or that token is a target already.",
    parameters=Token,
    can_move=FROM_LOSS | {"target.first"},
    decides=frozenset({"supervision_missing"}),
)

ENTRIES = (
    SEED,
    REALIGN_TARGETS,
    PERMUTE_TARGETS,
    PIN_BATCH,
    CONSTANT_INPUT,
    DROP_ROWS,
    SHUFFLE_DATA,
    READ_ITEMS_ANEW,
    CAUSAL_MASK,
    SUPERVISE_TOKEN,
)
