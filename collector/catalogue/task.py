"""Experiments on the pairing of inputs and targets."""

from __future__ import annotations

from pydantic import Field

from weaklink.collector.catalogue.entry import FROM_FORWARD, FROM_LOSS, Entry, NoParameters
from weaklink.collector.evidence import Model


class Permutation(Model):
    """The seed of a generator of its own: the run's random streams do not notice."""

    seed: int = Field(default=0, ge=0, lt=2**63)


class SeedOffset(Model):
    """What is added to every seed of the global streams."""

    k: int = Field(ge=1, lt=2**31)


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
    decides=frozenset({"pairing_broken", "target_leak"}),
)

SEED = Entry(
    name="seed",
    boundary="TASK",
    changes="Every seed that the script sets for the global streams of Python, numpy and torch is larger by k; a stream "
    "that it does not seed begins elsewhere. Data that is drawn from these streams changes with them.",
    cannot_change="Data from files, and from generators of the script's own.",
    not_applicable="The script neither seeds nor draws from a global stream before its first forward.",
    parameters=SeedOffset,
    can_move=FROM_FORWARD | {"input.first", "target.first", "parameters.first"},
    decides=frozenset(),
)

ENTRIES = (SEED, REALIGN_TARGETS, PERMUTE_TARGETS)
