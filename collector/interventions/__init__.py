"""What each experiment of the catalogue does to a running script: one file each, attached to the watcher's events."""

from __future__ import annotations

from weaklink.collector.catalogue import checked_parameters
from weaklink.collector.evidence import Value
from weaklink.collector.interventions.at_site import AtSite
from weaklink.collector.interventions.base import Intervention
from weaklink.collector.interventions.batchnorm_momentum import BatchnormMomentum
from weaklink.collector.interventions.causal_mask import CausalMask
from weaklink.collector.interventions.clip_grad_norm import ClipGradNorm
from weaklink.collector.interventions.constant_input import ConstantInput
from weaklink.collector.interventions.copy_states import CopyStates
from weaklink.collector.interventions.defer_step_until_backward import DeferStepUntilBackward
from weaklink.collector.interventions.drop_rows import DropRows
from weaklink.collector.interventions.dropout_follows_mode import DropoutFollowsMode
from weaklink.collector.interventions.evaluate_in_eval_mode import EvaluateInEvalMode
from weaklink.collector.interventions.evaluate_trained_weights import EvaluateTrainedWeights
from weaklink.collector.interventions.float32_steps import Float32Steps
from weaklink.collector.interventions.fresh_optimizer import FreshOptimizer
from weaklink.collector.interventions.grad_enabled import GradEnabled
from weaklink.collector.interventions.hold_scheduler import HoldScheduler
from weaklink.collector.interventions.isolate_objectives import IsolateObjectives
from weaklink.collector.interventions.keep_grad_until_step import KeepGradUntilStep
from weaklink.collector.interventions.keep_stepped import KeepStepped
from weaklink.collector.interventions.match_target_shape import MatchTargetShape
from weaklink.collector.interventions.minimize import Minimize
from weaklink.collector.interventions.non_reentrant_checkpoint import NonReentrantCheckpoint
from weaklink.collector.interventions.own_missing_parameters import OwnMissingParameters
from weaklink.collector.interventions.permute_targets import PermuteTargets
from weaklink.collector.interventions.pin_batch import PinBatch
from weaklink.collector.interventions.placebo import Placebo
from weaklink.collector.interventions.prior_by_class import PriorByClass
from weaklink.collector.interventions.raw_scores_to_loss import RawScoresToLoss
from weaklink.collector.interventions.read_items_anew import ReadItemsAnew
from weaklink.collector.interventions.realign_targets import RealignTargets
from weaklink.collector.interventions.reattach import Reattach
from weaklink.collector.interventions.reinitialize import Reinitialize
from weaklink.collector.interventions.reset_optimizer_state import ResetOptimizerState
from weaklink.collector.interventions.rows_in_order import RowsInOrder
from weaklink.collector.interventions.scale_lr import ScaleLr
from weaklink.collector.interventions.seed import Seed
from weaklink.collector.interventions.set_lr import SetLr
from weaklink.collector.interventions.set_mode import SetMode
from weaklink.collector.interventions.shuffle_data import ShuffleData
from weaklink.collector.interventions.step_after_backward import StepAfterBackward
from weaklink.collector.interventions.step_scheduler_per_step import StepSchedulerPerStep
from weaklink.collector.interventions.stop_gradient import StopGradient
from weaklink.collector.interventions.supervise_token import SuperviseToken
from weaklink.collector.interventions.trim_target_lengths import TrimTargetLengths
from weaklink.collector.interventions.unfreeze import Unfreeze
from weaklink.collector.interventions.unscale_before_clipping import UnscaleBeforeClipping
from weaklink.collector.interventions.untie_modules import UntieModules
from weaklink.collector.interventions.update_buffers import UpdateBuffers
from weaklink.collector.interventions.without_clipping import WithoutClipping
from weaklink.collector.interventions.without_dropout import WithoutDropout
from weaklink.collector.interventions.without_ignore_index import WithoutIgnoreIndex
from weaklink.collector.interventions.without_label_smoothing import WithoutLabelSmoothing
from weaklink.collector.interventions.without_scaler import WithoutScaler
from weaklink.collector.interventions.without_weight_decay import WithoutWeightDecay
from weaklink.collector.interventions.zero_grad_before_backward import ZeroGradBeforeBackward

_KINDS: dict[str, type[Intervention]] = {
    kind.name: kind
    for kind in (
        OwnMissingParameters,
        Unfreeze,
        UntieModules,
        IsolateObjectives,
        ZeroGradBeforeBackward,
        KeepGradUntilStep,
        AtSite,
        Reattach,
        RealignTargets,
        PermuteTargets,
        RawScoresToLoss,
        WithoutLabelSmoothing,
        CausalMask,
        ConstantInput,
        DropRows,
        MatchTargetShape,
        PinBatch,
        PriorByClass,
        ReadItemsAnew,
        RowsInOrder,
        SetMode,
        ShuffleData,
        SuperviseToken,
        TrimTargetLengths,
        WithoutIgnoreIndex,
        ScaleLr,
        FreshOptimizer,
        WithoutWeightDecay,
        WithoutClipping,
        HoldScheduler,
        SetLr,
        StepSchedulerPerStep,
        UnscaleBeforeClipping,
        ClipGradNorm,
        WithoutScaler,
        Float32Steps,
        ResetOptimizerState,
        StepAfterBackward,
        Minimize,
        KeepStepped,
        CopyStates,
        DeferStepUntilBackward,
        Reinitialize,
        WithoutDropout,
        Seed,
        BatchnormMomentum,
        DropoutFollowsMode,
        EvaluateInEvalMode,
        EvaluateTrainedWeights,
        GradEnabled,
        NonReentrantCheckpoint,
        StopGradient,
        UpdateBuffers,
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
