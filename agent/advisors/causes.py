"""What each row's divergence can mean, what to ask about it, and what would mend it. Plain data."""

from __future__ import annotations

from weaklink.agent.proposal import MechanismFamily, Repair

CAUSES: dict[str, tuple[tuple[MechanismFamily, str], ...]] = {
    "TASK/finite": (
        ("input_corrupted", "The inputs already hold non-finite values, and the model passes them on."),
        ("input_scale", "A normalisation divides by zero or overflows before the model sees the input."),
    ),
    "TASK/supervised": (
        ("supervision_missing", "Every target carries the ignored label, so the loss supervises nothing."),
        ("label_convention", "The label that the data uses for a class is the one that the loss ignores."),
    ),
    "TASK/rule": (
        ("pairing_broken", "Inputs and targets were brought out of order against each other."),
        ("label_convention", "The targets follow the rule in another convention: classes numbered otherwise, a sign."),
    ),
    "OBJECTIVE/mode": (
        ("wrong_mode_in_training", "The model was left in eval mode, so dropout and normalisation do not train."),
        ("other", "The mode is intended: statistics are kept fixed on purpose."),
    ),
    "OBJECTIVE/loss": (
        (
            "nonfinite",
            "The loss is not finite before any update: an operation of the forward overflows or divides by zero.",
        ),
        ("input_corrupted", "An input the rows do not show is not finite."),
    ),
    "OBJECTIVE/fed": (
        (
            "wrong_scores_to_loss",
            "The loss is given other scores than it expects: probabilities where it applies the softmax or the sigmoid "
            "itself, raw scores where it expects log-probabilities.",
        ),
        ("other", "The scores are intended: a second softmax as a temperature of its own, a density of one's own."),
    ),
    "OBJECTIVE/shapes": (
        ("shape_misread", "Outputs and targets of different shapes are broadcast: each output meets every target."),
        ("other", "Every pair of them is meant to be compared."),
    ),
    "OBJECTIVE/floor": (
        ("wrong_scores_to_loss", "The loss is given values that are no log-probabilities, and falls below its floor."),
        ("wrong_term_or_sign", "A sign is turned around, so that the loss has no floor."),
    ),
    "DEPENDENCY/graph": (
        ("graph_cut", "The loss was built from values that carry no history (detach, .item(), numpy, no_grad)."),
        ("frozen_by_accident", "Every parameter is frozen, so that nothing can receive a gradient."),
    ),
    "DEPENDENCY/reached": (
        ("graph_cut", "A detach, a no_grad block or a copied value cuts the path from the loss to these parameters."),
        ("other", "Their output is computed and used by nobody, as intended."),
    ),
    "GRADIENT/pre_existing": (
        ("stale_gradient", "The gradients are never cleared: each step repeats all earlier ones."),
        ("other", "A running sum of gradients is intended."),
    ),
    "GRADIENT/finite": (
        (
            "nonfinite",
            "An operation has an infinite derivative where its value is finite (a square root or a norm at zero).",
        ),
        ("rate_wrong", "The parameters had already grown out of range."),
    ),
    "GRADIENT/nonzero": (
        ("zero_gradient", "A saturated or dead unit, or a factor of zero, multiplies the gradient away."),
        ("initial_weights_wrong", "The initial weights make the path's product exactly zero."),
    ),
    "GRADIENT/raised": (
        ("other", "Backward met a tensor that was changed after it was saved, or a graph that was already used."),
        ("step_before_backward", "An optimizer stepped between a forward and its backward."),
    ),
    "OBJECTIVE/raised": (
        ("other", "The forward or the loss does not accept what it was given."),
        ("shape_misread", "Outputs and targets do not have the shapes that the loss expects."),
    ),
    "UPDATE/raised": (("other", "The optimizer refused to step."),),
    "EVALUATION/raised": (("other", "The evaluation does not accept what it was given."),),
    "OWNERSHIP/owned": (
        ("not_in_optimizer", "The optimizer was never given these parameters."),
        ("other", "They are kept out of the optimizer on purpose."),
    ),
    "OWNERSHIP/stale": (
        ("optimizer_holds_old_objects", "Modules were replaced after the optimizer was built; it holds the old ones."),
        ("not_in_optimizer", "The optimizer was never given the new parameters."),
    ),
    "OWNERSHIP/unregistered": (
        ("not_registered", "Modules are kept in a plain list or dict, so that parameters() does not find them."),
        ("not_in_optimizer", "They are registered elsewhere and the optimizer was not given them."),
    ),
    "UPDATE/steps": (
        ("step_missing_or_skipped", "backward runs, and optimizer.step() is never reached."),
        ("update_lost", "The update is written to something other than the parameters."),
    ),
    "UPDATE/lr": (
        ("rate_wrong", "The learning rate is zero at every step: a schedule that never warms up, or a wrong unit."),
        ("step_missing_or_skipped", "The scheduler is stepped at the wrong place."),
    ),
    "UPDATE/moved": (
        ("update_lost", "The step is executed and changes nothing, bit for bit, although the gradients are not zero."),
        ("rate_wrong", "Rate times gradient is below the resolution of the parameters' type."),
        ("step_before_backward", "The step comes where no gradient is: before backward, or after it was cleared."),
    ),
    "UPDATE/scale": (
        ("rate_wrong", "The step is longer than the parameters it moves: the learning rate is too large."),
        ("optimizer_state_wrong", "The optimizer's state multiplies the step."),
    ),
}

QUESTIONS: dict[str, str] = {
    "TASK/finite": "Which file do the first non-finite inputs come from?",
    "TASK/supervised": "Which label marks positions that should not be supervised?",
    "TASK/rule": "Are the targets numbered as the rule numbers them?",
    "OBJECTIVE/mode": "Is the model meant to train in eval mode?",
    "OBJECTIVE/fed": "Are these scores meant for this loss?",
    "OBJECTIVE/shapes": "Which shapes were outputs and targets meant to have?",
    "OBJECTIVE/floor": "Which kind of scores does the model give: raw ones, probabilities or log-probabilities?",
    "DEPENDENCY/reached": "Are these parameters meant to be trained by this loss?",
    "GRADIENT/pre_existing": "Where should the gradients be cleared?",
    "GRADIENT/nonzero": "Is this part of the model meant to start with a gradient of zero?",
    "OWNERSHIP/owned": (
        "Are these parameters meant to be trained? The optimizer was built when they existed and left them out."
    ),
    "OWNERSHIP/unregistered": "Should these modules be part of the model?",
    "UPDATE/steps": "Where should the optimizer step?",
    "UPDATE/lr": "Which learning rate was meant at the first step?",
    "UPDATE/scale": "Does the run stay finite with a learning rate ten times smaller?",
}

REPAIRS: dict[str, Repair] = {
    "OBJECTIVE/fed": Repair(
        text="Give the loss the scores it expects: raw ones to a cross entropy and to a binary cross entropy with "
        "logits, log-probabilities to a negative log-likelihood.",
        kind="objective",
    ),
    "OBJECTIVE/shapes": Repair(text="Give outputs and targets the same shape before the loss.", kind="objective"),
    "GRADIENT/pre_existing": Repair(text="Call optimizer.zero_grad() once before each backward.", kind="wiring"),
    "OWNERSHIP/unregistered": Repair(text="Keep the modules in nn.ModuleList or nn.ModuleDict.", kind="wiring"),
    "UPDATE/steps": Repair(text="Call optimizer.step() after backward.", kind="wiring"),
}
