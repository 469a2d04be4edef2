"""Pages for EVALUATION: in which state what was trained is evaluated. The training itself must stay as it is."""

from __future__ import annotations

from weaklink.agent.advisors.page import PASSES, Candidate, Expected, experiment, nothing
from weaklink.agent.proposal import ExperimentChoice, MechanismFamily, Proposal, Repair
from weaklink.collector.evidence import Evidence, Row

# An evaluation comes after steps: from the first loss to the last nothing of the training may move.
TRAINING = ("output.first", "loss.first", "losses", "delta.net[*]")
_RIVALS: dict[MechanismFamily, str] = {
    "stale_buffers": "The running statistics are not those of the data, and this changes none of them.",
    "evaluation_mismatch": "What is evaluated is of another kind than what was trained on, in whatever state.",
    "wrong_weights_evaluated": "The weights that are evaluated are others than the trained ones, and stay so.",
    "metric_wrong": "The score compares what does not belong together, whatever the model answers.",
}


def dropping(evidence: Evidence, row: Row) -> Proposal | None:
    """Let dropout follow the mode of the module that calls it."""
    return _evaluated(
        evidence,
        row,
        ExperimentChoice(name="dropout_follows_mode"),
        ("evaluation_mismatch", "A functional dropout does not know the model's mode: it drops in evaluation too."),
        ("stale_buffers", "wrong_weights_evaluated"),
        "Give functional dropout training=self.training, or use nn.Dropout.",
    )


def stale_statistics(evidence: Evidence, row: Row) -> Proposal | None:
    """Let running statistics follow the data as torch's own do, or give a copy those of the trained model."""
    if "given" in row.values:
        return _evaluated(
            evidence,
            row,
            ExperimentChoice(name="update_buffers"),
            ("stale_buffers", "The copy's parameters followed the training, its running statistics did not."),
            ("evaluation_mismatch", "metric_wrong"),
            "Copy the buffers as well when the averaged copy is updated, or recompute them before it is evaluated.",
        )
    return _evaluated(
        evidence,
        row,
        ExperimentChoice(name="batchnorm_momentum", parameters={"momentum": 0.1}),
        ("stale_buffers", "The running statistics that evaluation normalises with do not follow the data."),
        ("evaluation_mismatch", "wrong_weights_evaluated"),
        "Raise the momentum: in PyTorch it is the weight of the new batch, 0.1 by default.",
    )


def other_weights(evidence: Evidence, row: Row) -> Proposal | None:
    """Evaluate the trained weights in place of those of the copy."""
    return _evaluated(
        evidence,
        row,
        ExperimentChoice(name="evaluate_trained_weights"),
        ("wrong_weights_evaluated", "The evaluated weights are not the trained ones, and did not follow them."),
        ("stale_buffers", "evaluation_mismatch"),
        "Evaluate the trained model, or let the evaluated copy follow it.",
    )


def train_mode(evidence: Evidence, row: Row) -> Proposal | None:
    """Evaluate in eval mode."""
    return _evaluated(
        evidence,
        row,
        ExperimentChoice(name="evaluate_in_eval_mode"),
        ("evaluation_mismatch", "The model is evaluated in train mode, by the statistics of each evaluated batch."),
        ("metric_wrong", "wrong_weights_evaluated"),
        "Switch the model to eval mode before it is evaluated.",
    )


def never_kept(evidence: Evidence, row: Row) -> Proposal | None:
    """Copy each state as it is taken. None where another state was loaded, of which no name matched."""
    if "taken" not in row.values:
        return None
    return _evaluated(
        evidence,
        row,
        ExperimentChoice(name="copy_states"),
        ("wrong_weights_evaluated", "The weights that are put back were never copied: they have followed every step."),
        ("stale_buffers", "evaluation_mismatch"),
        "Copy the state when it is taken: copy.deepcopy(model.state_dict()).",
    )


def _evaluated(
    evidence: Evidence,
    row: Row,
    choice: ExperimentChoice,
    cause: tuple[MechanismFamily, str],
    rivals: tuple[MechanismFamily, ...],
    repair: str,
) -> Proposal:
    lead: dict[str, Expected] = {f"row[{row.id}]": PASSES}
    candidates = [Candidate(*cause, lead), *(Candidate(rival, _RIVALS[rival], nothing(lead)) for rival in rivals)]
    return experiment(evidence, row, choice, candidates, TRAINING, Repair(text=repair, kind="wiring"))
