"""The mechanism families a proposal may name, by the boundary each belongs to, and the order of the boundaries."""

from __future__ import annotations

from weaklink.agent.proposal import MechanismFamily
from weaklink.collector.evidence import BOUNDARIES

NONE = "NONE"  # what a proposal names where the chain has no divergence
FAMILIES: dict[str, tuple[MechanismFamily, ...]] = {
    "TASK": (
        "pairing_broken",
        "target_leak",
        "supervision_missing",
        "data_not_mixed",
        "input_corrupted",
        "input_scale",
        "label_convention",
    ),
    "OBJECTIVE": (
        "wrong_scores_to_loss",
        "shape_misread",
        "wrong_term_or_sign",
        "wrong_reduction",
        "wrong_mode_in_training",
        "objective_mixed",
    ),
    "DEPENDENCY": ("graph_cut", "frozen_by_accident", "missing_stop_gradient"),
    "GRADIENT": ("zero_gradient", "nonfinite", "stale_gradient", "gradient_cleared_early", "not_reduced_across_ranks"),
    "OWNERSHIP": ("not_in_optimizer", "optimizer_holds_old_objects", "not_registered", "shared_by_mistake"),
    "UPDATE": (
        "step_missing_or_skipped",
        "step_before_backward",
        "rate_wrong",
        "regularization_wrong",
        "update_lost",
        "clipping_misordered",
        "optimizer_state_wrong",
    ),
    "CAPABILITY": ("signal_vanishes", "capacity", "initial_weights_wrong"),
    "EVALUATION": ("stale_buffers", "evaluation_mismatch", "wrong_weights_evaluated", "metric_wrong"),
}
ANY_BOUNDARY: tuple[MechanismFamily, ...] = ("none", "other")
BOUNDARY_OF: dict[str, str] = {family: boundary for boundary, families in FAMILIES.items() for family in families}


def order(boundary: str) -> int:
    """Its place in the chain. NONE and anything unknown come last: on a clean chain every dissent is an earlier one."""
    return BOUNDARIES.index(boundary) if boundary in BOUNDARIES else len(BOUNDARIES)
