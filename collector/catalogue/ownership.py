"""Experiments on what the optimizers hold."""

from __future__ import annotations

from pydantic import Field

from weaklink.collector.catalogue.entry import FROM_BACKWARD, FROM_STEP, Entry, NoParameters, ParameterGlob
from weaklink.collector.evidence import Model


class Missing(ParameterGlob):
    """Which parameters of the models; or, in their place, those that a loss reaches and that no model has."""

    unregistered: bool = False


class Freezing(ParameterGlob):
    """`after`: from the first forward after so many optimizer steps on, for what is frozen in between."""

    after: int = Field(default=0, ge=0)


class Container(Model):
    """Shell-style pattern over paths of containers, such as `decoder.layers`; the model itself is ``."""

    container: str = Field(default="*", max_length=200)


OWN_MISSING_PARAMETERS = Entry(
    name="own_missing_parameters",
    boundary="OWNERSHIP",
    changes="Right before the first optimizer step, trainable parameters of the model that match the pattern and that "
    "no optimizer holds are added to it: to the group that holds their replaced namesake, else to its first group. "
    "With unregistered, those that a loss reaches and that no model has, in place of the model's.",
    cannot_change="Data, forward, loss and the first backward are already past; nothing is taken out of the optimizer.",
    not_applicable="No matching trainable parameter is missing from the optimizers, or the script never steps one.",
    parameters=Missing,
    can_move=FROM_STEP | {"owned"},
    decides=frozenset({"optimizer_holds_old_objects", "not_in_optimizer", "not_registered"}),
)

UNFREEZE = Entry(
    name="unfreeze",
    boundary="OWNERSHIP",
    changes="Before each forward of a model, its parameters that match the pattern and are frozen require a gradient; "
    "right before the next step the optimizer comes to hold those that none holds.",
    cannot_change="Inputs, targets, first parameters, first outputs and first loss.",
    not_applicable="No parameter that matches is frozen when a model is called.",
    parameters=Freezing,
    can_move=FROM_BACKWARD | {"owned"},
    decides=frozenset({"frozen_by_accident", "not_in_optimizer"}),
)

UNTIE_MODULES = Entry(
    name="untie_modules",
    boundary="OWNERSHIP",
    changes="Before a model's first forward, a module that stands several times in one of its containers becomes as "
    "many modules: copies with the same values, held by the optimizers that hold the original.",
    cannot_change="Inputs, targets, first outputs and first loss; parameters tied in any other way.",
    not_applicable="No container that matches holds a module with trainable parameters more than once.",
    parameters=Container,
    can_move=FROM_BACKWARD | {"owned"},
    decides=frozenset({"shared_by_mistake"}),
)

ISOLATE_OBJECTIVES = Entry(
    name="isolate_objectives",
    boundary="OWNERSHIP",
    changes="The backward of each declared objective leaves a gradient only in the parameters that it may touch.",
    cannot_change="Data, first forward and first loss; what each objective gives to its own parameters.",
    not_applicable="No objectives are declared, or none reaches a parameter that it may not touch.",
    parameters=NoParameters,
    can_move=FROM_BACKWARD,
    decides=frozenset({"objective_mixed", "missing_stop_gradient"}),
)

ENTRIES = (OWN_MISSING_PARAMETERS, UNFREEZE, UNTIE_MODULES, ISOLATE_OBJECTIVES)
