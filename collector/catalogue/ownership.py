"""Experiments on what the optimizers hold."""

from __future__ import annotations

from weaklink.collector.catalogue.entry import FROM_STEP, Entry, ParameterGlob

OWN_MISSING_PARAMETERS = Entry(
    name="own_missing_parameters",
    boundary="OWNERSHIP",
    changes="Right before the first optimizer step, trainable parameters of the model that match the pattern and that "
    "no optimizer holds are added to it: to the group that holds their replaced namesake, else to its first group.",
    cannot_change="Data, forward, loss and the first backward are already past; nothing is taken out of the optimizer.",
    not_applicable="No matching trainable parameter is missing from the optimizers, or the script never steps one.",
    parameters=ParameterGlob,
    can_move=FROM_STEP | {"owned"},
    decides=frozenset({"optimizer_holds_old_objects", "not_in_optimizer", "not_registered"}),
)

ENTRIES = (OWN_MISSING_PARAMETERS,)
