"""What each experiment of the catalogue does to a running script: one file each, attached to the watcher's events."""

from __future__ import annotations

from weaklink.collector.catalogue import checked_parameters
from weaklink.collector.evidence import Value
from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.fresh_optimizer import FreshOptimizer
from weaklink.collector.interventions.own_missing_parameters import OwnMissingParameters
from weaklink.collector.interventions.permute_targets import PermuteTargets
from weaklink.collector.interventions.placebo import Placebo
from weaklink.collector.interventions.raw_scores_to_loss import RawScoresToLoss
from weaklink.collector.interventions.realign_targets import RealignTargets
from weaklink.collector.interventions.reattach import Reattach
from weaklink.collector.interventions.reinitialize import Reinitialize
from weaklink.collector.interventions.scale_lr import ScaleLr
from weaklink.collector.interventions.without_clipping import WithoutClipping
from weaklink.collector.interventions.without_dropout import WithoutDropout
from weaklink.collector.interventions.without_label_smoothing import WithoutLabelSmoothing
from weaklink.collector.interventions.without_weight_decay import WithoutWeightDecay

_KINDS: dict[str, type[Intervention]] = {
    kind.name: kind
    for kind in (
        OwnMissingParameters,
        Reattach,
        RealignTargets,
        PermuteTargets,
        RawScoresToLoss,
        WithoutLabelSmoothing,
        ScaleLr,
        FreshOptimizer,
        WithoutWeightDecay,
        WithoutClipping,
        Reinitialize,
        WithoutDropout,
    )
}


def build(name: str, parameters: dict[str, Value]) -> Intervention:
    """The intervention of that name, its parameters checked.

    Raises:
        InterventionError: Unknown name, or parameters of the wrong name or type.
    """
    if name == Placebo.name:
        return Placebo({})
    checked = checked_parameters(name, parameters)
    return _KINDS[name](checked.model_dump())
