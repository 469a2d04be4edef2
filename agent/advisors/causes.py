"""What each row's divergence can mean, what to ask about it, and what would mend it. Plain data."""

from __future__ import annotations

from weaklink.agent.proposal import MechanismFamily, Repair

CAUSES: dict[str, tuple[tuple[MechanismFamily, str], ...]] = {
    "TASK/replicas": (
        ("data_not_mixed", "Every rank draws the same batches: no DistributedSampler, or one told the wrong rank."),
        ("other", "The ranks are meant to see one batch."),
    ),
    "TASK/epoch_order": (
        ("data_not_mixed", "Every epoch has the order of the first: the sampler is not told which epoch begins."),
        ("other", "One order for all epochs is intended."),
    ),
    "GRADIENT/replicas": (
        (
            "not_reduced_across_ranks",
            "Each rank steps its own gradient: the model is called past DistributedDataParallel, or inside no_sync.",
        ),
        ("other", "The ranks are meant to train models of their own."),
    ),
    "UPDATE/replicas": (
        ("not_reduced_across_ranks", "The ranks apply their steps to models that are not equal."),
        ("optimizer_state_wrong", "One rank alone loaded weights or optimizer state, or has settings of its own."),
    ),
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
    "TASK/scale": (
        ("input_scale", "The inputs are normalised by statistics of another unit or data set, or not at all."),
        ("other", "The model is meant to see them as they are."),
    ),
    "TASK/rows": (
        ("shape_misread", "Inputs and targets do not have one row each: one of them was cut, repeated or reshaped."),
        ("pairing_broken", "Rows were left out of one of them and not of the other."),
    ),
    "TASK/classes": (
        (
            "label_convention",
            "The targets number the classes otherwise than the outputs: from one, or with more of them.",
        ),
        ("input_corrupted", "A target is no class at all: a missing value, or another column."),
    ),
    "CAPABILITY/gap": (
        ("update_lost", "The real optimizer steps and changes nothing, where a plain one makes the loss fall."),
        ("not_in_optimizer", "The real optimizer holds other objects than the model's parameters."),
    ),
    "TASK/item": (
        ("input_corrupted", "A transform works in place on what the dataset stores: each reading applies it again."),
        ("other", "The dataset counts its readings on purpose: a curriculum, a cache that fills."),
    ),
    "TASK/empty": (
        ("input_corrupted", "What wrote this input stopped after its first rows, or wrote zeros."),
        ("other", "The input is meant to be zero in these rows."),
    ),
    "TASK/coverage": (
        ("data_not_mixed", "The order in which rows are drawn belongs to another, smaller set of rows."),
        ("other", "The run is meant to see a few of the rows only."),
    ),
    "TASK/order": (
        ("data_not_mixed", "The rows are stored sorted by class, and nothing shuffles them."),
        ("other", "The order is a curriculum."),
    ),
    "TASK/workers": (
        ("data_not_mixed", "Each worker gives the same rows: a generator copied into all of them, a stream not split."),
        ("other", "Every worker is meant to give the same rows."),
    ),
    "TASK/pairing": (
        ("pairing_broken", "Inputs and targets were brought out of order against each other."),
        ("other", "The targets are meant to follow from nothing in their own input."),
    ),
    "TASK/convention": (
        ("label_convention", "One part of the data was labelled by the opposite convention."),
        ("other", "The parts are labelled differently on purpose."),
    ),
    "TASK/views": (
        (
            "pairing_broken",
            "The views of an item stand next to each other, its labels do not: one was tiled, the other repeated.",
        ),
        ("other", "Neighbours look alike for another reason, and the labels are in their place."),
    ),
    "TASK/mirrored": (
        ("pairing_broken", "Some inputs are turned by an augmentation that leaves their targets as they were."),
        ("other", "The targets are meant to lie on the turned input."),
    ),
    "OBJECTIVE/prior": (
        ("label_convention", "Class weights or class priors are listed in another order than the classes."),
        ("other", "These weights are chosen by other means than the counts."),
    ),
    "OBJECTIVE/supervised": (
        (
            "supervision_missing",
            "A mask or an ignored index leaves out targets that are meant to be learned: an end token taken for "
            "padding, a class taken for unlabelled, a mask of the other polarity.",
        ),
        ("other", "These targets are left out on purpose, and the evaluation counts them all the same."),
    ),
    "TASK/values": (
        (
            "label_convention",
            "The targets are written in another convention than this loss has: 0 and 1 for -1 and 1, 255 for 1.",
        ),
        ("other", "These targets are meant to contribute nothing, or a slope without end."),
    ),
    "OBJECTIVE/axes": (
        ("shape_misread", "The scores are reshaped where their dimensions should be exchanged."),
        ("other", "The scores are laid out that way on purpose."),
    ),
    "OBJECTIVE/sequence_axis": (
        ("shape_misread", "The layers take the rows of the batch for the steps of a sequence: batch_first is not set."),
        ("other", "The examples of a batch are meant to hear each other."),
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
    "OBJECTIVE/broadcast": (
        ("shape_misread", "Outputs and targets differ by one dimension, so that each output meets every target."),
        ("other", "Every pair of them is meant to be compared."),
    ),
    "OBJECTIVE/terms": (
        ("wrong_term_or_sign", "A term of the loss compares a tensor with itself, so that nothing learns from it."),
        ("other", "The term is there to be printed only."),
    ),
    "OBJECTIVE/floor": (
        ("wrong_scores_to_loss", "The loss is given values that are no log-probabilities, and falls below its floor."),
        ("wrong_term_or_sign", "A sign is turned around, so that the loss has no floor."),
    ),
    "OBJECTIVE/classes": (
        ("shape_misread", "The model's last layer was built for another number of classes than the data has."),
        ("label_convention", "The targets are numbered otherwise: from one on, or by another list of classes."),
    ),
    "DEPENDENCY/declared": (
        ("frozen_by_accident", "They are meant to be trained, and their requires_grad is off."),
        ("other", "They are frozen on purpose, and the declaration is older than that."),
    ),
    "OBJECTIVE/factor": (
        ("wrong_term_or_sign", "A weight of the loss is exactly zero: a setting that is not read, a default, a mask."),
        ("supervision_missing", "A mask leaves out every position that should be supervised."),
    ),
    "OBJECTIVE/sequence": (
        ("wrong_reduction", "Padding is scored as labels: the lengths given are those of the padded targets."),
        ("label_convention", "A label of the data has the index that the loss takes for the blank."),
    ),
    "OBJECTIVE/reduction": (
        ("wrong_reduction", "One term is averaged where the other is summed, so that it hardly counts."),
        ("other", "The weights are meant, and the model needs longer."),
    ),
    "DEPENDENCY/stop_gradient": (
        ("missing_stop_gradient", "Both sides of the similarity are trained, so that a constant output satisfies it."),
        ("other", "The outputs are alike because the inputs are."),
    ),
    "DEPENDENCY/graph": (
        ("graph_cut", "The loss was built from values that carry no history (detach, .item(), numpy, no_grad)."),
        ("frozen_by_accident", "Every parameter is frozen, so that nothing can receive a gradient."),
    ),
    "DEPENDENCY/reached": (
        ("graph_cut", "A detach, a no_grad block or a copied value cuts the path from the loss to these parameters."),
        ("other", "Their output is computed and used by nobody, as intended."),
    ),
    "DEPENDENCY/terms": (
        ("graph_cut", "A term of the loss was rebuilt from its value, without the history that it was computed with."),
        ("other", "The term is there to be printed only."),
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
    "GRADIENT/cleared": (
        (
            "gradient_cleared_early",
            "The gradients are cleared before each backward instead of once before the window: of several backward "
            "calls before a step, only the last one's gradients reach it.",
        ),
        ("other", "Only the last backward's gradients are meant to be used."),
    ),
    "UPDATE/clipping": (
        (
            "clipping_misordered",
            "The gradients are clipped at the wrong moment or against the wrong limit: while they are still scaled, "
            "after the step that used them, or down to nothing where the parameter itself is zero.",
        ),
        ("rate_wrong", "The limit leaves too little of the gradients for this learning rate."),
    ),
    "UPDATE/schedule": (
        (
            "rate_wrong",
            "The schedule counts something other than the steps it was made for, so that the rate is gone long before "
            "the run is over, or its peak is never reached.",
        ),
        ("step_missing_or_skipped", "The run made fewer optimizer steps than the schedule was made for."),
    ),
    "UPDATE/resolution": (
        (
            "update_lost",
            "Rate times gradient is below the resolution of the parameters' 16-bit type, and no float32 copy keeps it.",
        ),
        ("rate_wrong", "The learning rate is too small for this type."),
    ),
    "UPDATE/returned": (
        (
            "update_lost",
            "Something writes old values back into the parameters after the steps, so that nothing they learn stays.",
        ),
        ("other", "The parameters are set back on purpose, to begin again."),
    ),
    "UPDATE/raised": (("other", "The optimizer refused to step."),),
    "TASK/leak": (
        ("target_leak", "The model sees the tokens it is to predict: attention without a causal mask, or both ways."),
        ("other", "The later positions are meant to be seen."),
    ),
    "OBJECTIVE/independence": (
        ("shape_misread", "The rows leave the model in another order than the targets have (sorted by length, say)."),
        ("pairing_broken", "The rows of the inputs were put into another order before the model saw them."),
    ),
    "CAPABILITY/fit": (
        ("regularization_wrong", "The regularization is so strong that even one pinned batch cannot be fitted."),
        ("rate_wrong", "The steps are too small to fit a batch in this time."),
    ),
    "CAPABILITY/signal": (
        ("signal_vanishes", "Each layer passes on less of what tells the examples apart, until nothing is left."),
        ("initial_weights_wrong", "The initial weights are too small for the depth of the network."),
    ),
    "UPDATE/restored": (
        (
            "update_lost",
            "The weights that are put back were never copied: they have followed every step, and nothing is put back.",
        ),
        ("other", "The state is loaded for another reason, and the weights are meant to stay as they are."),
    ),
    "EVALUATION/restored": (
        (
            "wrong_weights_evaluated",
            "What is evaluated are not the weights that were meant to be loaded: these were never copied, or their "
            "names match none of the model's.",
        ),
        ("other", "The weights are meant to stay as they are."),
    ),
    "EVALUATION/mode": (
        ("evaluation_mismatch", "The model is evaluated in train mode, by the statistics of each evaluated batch."),
        ("other", "The batch's own statistics are part of the evaluated method."),
    ),
    "EVALUATION/metric": (
        (
            "metric_wrong",
            "The score compares answers and targets that do not belong together: shapes that broadcast, "
            "or the largest entry along the wrong dimension.",
        ),
        ("other", "Every answer is meant to be compared with every target."),
    ),
    "EVALUATION/dropout": (
        ("evaluation_mismatch", "A functional dropout does not know the model's mode: it drops in evaluation too."),
        ("other", "Dropout is left on in evaluation on purpose, to average over many forwards."),
    ),
    "EVALUATION/buffers": (
        ("stale_buffers", "The running statistics that evaluation normalises with do not follow the data."),
        ("evaluation_mismatch", "What is evaluated is of another scale than what was trained on."),
    ),
    "EVALUATION/weights": (
        ("wrong_weights_evaluated", "The evaluated weights are not the trained ones, and did not follow them."),
        ("other", "Another model is evaluated on purpose."),
    ),
    "EVALUATION/raised": (("other", "The evaluation does not accept what it was given."),),
    "OWNERSHIP/owned": (
        ("not_in_optimizer", "The optimizer was never given these parameters."),
        ("other", "They are kept out of the optimizer on purpose."),
    ),
    "OWNERSHIP/stale": (
        ("optimizer_holds_old_objects", "Modules were replaced after the optimizer was built; it holds the old ones."),
        ("not_in_optimizer", "The optimizer was never given the new parameters."),
    ),
    "OWNERSHIP/shared": (
        ("shared_by_mistake", "One module object was put into the container several times, where several were meant."),
        ("other", "The places share their weights on purpose."),
    ),
    "OWNERSHIP/unregistered": (
        ("not_registered", "Modules are kept in a plain list or dict, so that parameters() does not find them."),
        ("not_in_optimizer", "They are registered elsewhere and the optimizer was not given them."),
    ),
    "OWNERSHIP/isolation": (
        ("other", "An optimizer steps parameters with the gradient of an objective that may not touch them."),
        ("stale_gradient", "That gradient was left there by an earlier backward and not cleared before the step."),
        ("missing_stop_gradient", "The objective reaches these parameters where a stop-gradient was meant."),
    ),
    "UPDATE/declared": (
        ("update_lost", "The step is executed and changes nothing, bit for bit, in what is meant to be trained."),
        ("rate_wrong", "Their group's rate is zero, or rate times gradient is below the resolution of their type."),
    ),
    "UPDATE/frozen": (
        ("other", "An optimizer holds what is meant to rest, and moves it by its gradient."),
        ("regularization_wrong", "Weight decay or momentum moves it, although its gradient is zero."),
    ),
    "DEPENDENCY/carried": (
        (
            "missing_stop_gradient",
            "A state is carried from one step to the next with its graph: backward goes on into steps whose parameters "
            "have changed since.",
        ),
        ("step_before_backward", "The steps are meant to wait until the whole sequence went backward."),
    ),
    "UPDATE/pending": (
        (
            "step_before_backward",
            "An optimizer stepped between a forward and its backward, which needs the parameters as they were.",
        ),
        ("other", "Something else than the step changed what the backward needs."),
    ),
    "UPDATE/steps": (
        ("step_missing_or_skipped", "backward runs, and optimizer.step() is never reached."),
        ("update_lost", "The update is written to something other than the parameters."),
    ),
    "UPDATE/lr": (
        ("rate_wrong", "The learning rate is zero or next to it: a schedule that never warms up, or a wrong unit."),
        ("step_missing_or_skipped", "The scheduler is stepped at the wrong place."),
    ),
    "UPDATE/moved": (
        ("update_lost", "The step is executed and changes nothing, bit for bit, although the gradients are not zero."),
        ("rate_wrong", "Rate times gradient is below the resolution of the parameters' type."),
        ("step_before_backward", "The step comes where no gradient is: before backward, or after it was cleared."),
    ),
    "UPDATE/direction": (
        (
            "wrong_term_or_sign",
            "The optimizer climbs a loss that is meant to fall: maximize=True, a negative rate, a sign.",
        ),
        ("rate_wrong", "The rate has the wrong sign."),
    ),
    "UPDATE/state": (
        (
            "optimizer_state_wrong",
            "The optimizer began with a state that does not belong to these parameters and gradients: of another run, "
            "of another scale of the loss.",
        ),
        ("rate_wrong", "The rate that belongs to this state is another one."),
    ),
    "UPDATE/scale": (
        ("rate_wrong", "The learning rate is too large: its steps outgrow the parameters, or kill units for good."),
        ("optimizer_state_wrong", "The optimizer's state multiplies the step."),
    ),
    "EVALUATION/inputs": (
        (
            "evaluation_mismatch",
            "The evaluated inputs are prepared otherwise than those of training: another normalisation, another scale, "
            "channels in another order.",
        ),
        ("other", "The evaluation is meant to be of another kind of data than training."),
    ),
    "EVALUATION/labels": (
        ("label_convention", "The classes of the evaluated data are numbered otherwise than those of training."),
        ("metric_wrong", "The predictions are renumbered on their way to the score."),
    ),
}

QUESTIONS: dict[str, str] = {
    "GRADIENT/cleared": "Should these backward calls share one step?",
    "UPDATE/clipping": "Which gradients was the limit meant for?",
    "UPDATE/schedule": "What was the schedule meant to count: steps, micro-batches or epochs?",
    "UPDATE/resolution": "Are the parameters meant to be kept in a 16-bit type?",
    "UPDATE/returned": "What is meant to be written back into the parameters, and when?",
    "TASK/values": "Which numbers does this loss expect for its targets?",
    "OBJECTIVE/axes": "Which dimension of the model's output holds the classes?",
    "OBJECTIVE/sequence_axis": "Which dimension of this layer's input are its steps?",
    "UPDATE/restored": "Which moment's weights were meant to be put back?",
    "EVALUATION/restored": "Which weights were meant to be evaluated?",
    "EVALUATION/mode": "Is the model meant to be evaluated by the statistics of each batch?",
    "EVALUATION/metric": "Which answer belongs to which target?",
    "TASK/replicas": "Which part of the data is each rank meant to see?",
    "TASK/epoch_order": "Is every epoch meant to see the data in one order?",
    "GRADIENT/replicas": "Where should the gradients of the ranks be brought together?",
    "UPDATE/replicas": "What brings the ranks' parameters to equal values before the first step?",
    "TASK/finite": "Which file do the first non-finite inputs come from?",
    "TASK/supervised": "Which label marks positions that should not be supervised?",
    "TASK/rule": "Are the targets numbered as the rule numbers them?",
    "TASK/scale": "Which data do the statistics of the normalisation belong to?",
    "TASK/item": "Is the stored data meant to change when it is read?",
    "TASK/empty": "Which job wrote this input, and did it come to its end?",
    "TASK/coverage": "How many rows is this run meant to see?",
    "TASK/order": "Is the data meant to come class after class?",
    "TASK/workers": "Which part of the data is each worker meant to give?",
    "TASK/pairing": "In which order were inputs and targets written?",
    "TASK/convention": "Which of these parts is labelled as it was meant?",
    "TASK/views": "In which order do the views of one item stand in a batch?",
    "TASK/mirrored": "Should the targets be turned with their inputs?",
    "OBJECTIVE/prior": "Which class does each of these numbers belong to?",
    "OBJECTIVE/supervised": "Are these targets meant to be learned?",
    "OBJECTIVE/mode": "Is the model meant to train in eval mode?",
    "OBJECTIVE/fed": "Are these scores meant for this loss?",
    "OBJECTIVE/shapes": "Which shapes were outputs and targets meant to have?",
    "OBJECTIVE/broadcast": "Which shapes were outputs and targets meant to have?",
    "OBJECTIVE/terms": "Which two tensors was this term meant to compare?",
    "OBJECTIVE/floor": "Which kind of scores does the model give: raw ones, probabilities or log-probabilities?",
    "OBJECTIVE/classes": "How many classes do the targets have, and from which number on?",
    "DEPENDENCY/declared": "Are these parameters meant to be trained?",
    "OWNERSHIP/isolation": "Where should these gradients be cleared, or cut off?",
    "UPDATE/declared": "Are these parameters meant to be trained, or is the declaration older than the script?",
    "UPDATE/frozen": "Are these parameters meant to rest?",
    "OBJECTIVE/factor": "Which value was this weight meant to have?",
    "OBJECTIVE/sequence": "How long is each target without its padding?",
    "OBJECTIVE/reduction": "Are both terms meant to be reduced over the elements of an example in the same way?",
    "DEPENDENCY/stop_gradient": "Which side of the similarity was meant to be a fixed target?",
    "DEPENDENCY/reached": "Are these parameters meant to be trained by this loss?",
    "DEPENDENCY/terms": "Is this term of the loss meant to train anything?",
    "GRADIENT/pre_existing": "Where should the gradients be cleared?",
    "GRADIENT/nonzero": "Is this part of the model meant to start with a gradient of zero?",
    "OWNERSHIP/owned": (
        "Are these parameters meant to be trained? The optimizer was built when they existed and left them out."
    ),
    "OWNERSHIP/shared": "Are these places meant to share one set of weights?",
    "OWNERSHIP/unregistered": "Should these modules be part of the model?",
    "UPDATE/steps": "Where should the optimizer step?",
    "UPDATE/pending": "Which backward calls belong before this step?",
    "DEPENDENCY/carried": "How far back is the gradient meant to go through what is carried from step to step?",
    "UPDATE/lr": "Which learning rate was meant at the first step?",
    "UPDATE/direction": "Is this loss meant to rise?",
    "UPDATE/state": "Which run does the optimizer's state come from?",
    "UPDATE/scale": "Does the run stay finite with a learning rate ten times smaller?",
    "TASK/leak": "May an output depend on the token that it predicts?",
    "OBJECTIVE/independence": "In which order are the rows meant to leave the model?",
    "CAPABILITY/fit": "Which strength of regularization was meant: is a share to keep taken for a share to drop?",
    "CAPABILITY/signal": "Which initialization or normalisation was meant for this depth?",
    "EVALUATION/dropout": "Is dropout meant to be active in evaluation?",
    "EVALUATION/buffers": "Which momentum was meant? In PyTorch it is the weight of the new batch.",
    "EVALUATION/weights": "Which weights are meant to be evaluated?",
    "EVALUATION/inputs": "Which preparation were the evaluated inputs meant to have?",
    "EVALUATION/labels": "Which class does each number stand for, in training and in evaluation?",
}

REPAIRS: dict[str, Repair] = {
    "GRADIENT/cleared": Repair(text="Clear the gradients once before the first backward of each step.", kind="wiring"),
    "UPDATE/clipping": Repair(
        text="Clip between backward and step, after scaler.unscale_(optimizer) where there is a scaler.",
        kind="clipping",
    ),
    "UPDATE/schedule": Repair(
        text="Step the scheduler once for each of what it counts, and give it as many as the run has.",
        kind="learning_rate",
    ),
    "UPDATE/resolution": Repair(
        text="Keep the parameters in float32 and use autocast for the forward.", kind="precision"
    ),
    "UPDATE/direction": Repair(
        text="Let the optimizer minimize: no maximize=True, a rate above zero.", kind="objective"
    ),
    "UPDATE/state": Repair(
        text="Let the optimizer begin without that state, or load the one that this run saved.", kind="wiring"
    ),
    "UPDATE/returned": Repair(text="Keep what the steps have moved: interpolate the copy in place.", kind="wiring"),
    "TASK/item": Repair(text="Transform a copy of the item, or out of place.", kind="data"),
    "TASK/order": Repair(text="Shuffle the training rows (shuffle=True).", kind="data"),
    "TASK/pairing": Repair(
        text="Reorder, filter and index inputs and targets together, by the same indices.", kind="data"
    ),
    "TASK/replicas": Repair(
        text="Give the loader a DistributedSampler, with this process's own rank where it is told one.", kind="wiring"
    ),
    "TASK/epoch_order": Repair(text="Call sampler.set_epoch(epoch) before each epoch.", kind="wiring"),
    "GRADIENT/replicas": Repair(
        text="Call the DistributedDataParallel module itself, and let the last backward before each step run outside "
        "no_sync.",
        kind="wiring",
    ),
    "UPDATE/replicas": Repair(
        text="Load and change weights and optimizer state on every rank, before the model is wrapped.", kind="wiring"
    ),
    "DEPENDENCY/declared": Repair(text="Set requires_grad to True where these parameters are made.", kind="wiring"),
    "OWNERSHIP/isolation": Repair(
        text="Clear the gradients of what this objective may not touch before its optimizer steps.", kind="wiring"
    ),
    "UPDATE/frozen": Repair(text="Leave these parameters out of the optimizer, or freeze them.", kind="wiring"),
    "OBJECTIVE/fed": Repair(
        text="Give the loss the scores it expects: raw ones to a cross entropy and to a binary cross entropy with "
        "logits, log-probabilities to a negative log-likelihood.",
        kind="objective",
    ),
    "OBJECTIVE/shapes": Repair(text="Give outputs and targets the same shape before the loss.", kind="objective"),
    "OBJECTIVE/broadcast": Repair(text="Give outputs and targets the same shape before they meet.", kind="objective"),
    "DEPENDENCY/terms": Repair(
        text="Build the term from the tensors themselves: torch.stack keeps their history, torch.tensor and .item() "
        "do not.",
        kind="wiring",
    ),
    "OBJECTIVE/sequence": Repair(text="Give the loss the length of each target without its padding.", kind="objective"),
    "OBJECTIVE/reduction": Repair(
        text="Sum both terms over the elements of an example and average over the batch.", kind="objective"
    ),
    "DEPENDENCY/stop_gradient": Repair(text="Detach the side of the similarity that is the target.", kind="wiring"),
    "OWNERSHIP/shared": Repair(text="Make a module of its own for each place.", kind="wiring"),
    "GRADIENT/pre_existing": Repair(text="Call optimizer.zero_grad() once before each backward.", kind="wiring"),
    "OWNERSHIP/unregistered": Repair(text="Keep the modules in nn.ModuleList or nn.ModuleDict.", kind="wiring"),
    "DEPENDENCY/carried": Repair(text="Detach what is carried over a step before it is used again.", kind="wiring"),
    "UPDATE/pending": Repair(text="Step after the backward that needs the parameters as they were.", kind="wiring"),
    "UPDATE/steps": Repair(text="Call optimizer.step() after backward.", kind="wiring"),
    "TASK/leak": Repair(
        text="Hide the later tokens from the model: give it its causal mask in training as well.", kind="data"
    ),
    "OBJECTIVE/independence": Repair(
        text="Undo the sorting before the outputs are returned, or pack with enforce_sorted=False.", kind="objective"
    ),
    "EVALUATION/dropout": Repair(
        text="Pass training=self.training to the functional dropout, or use nn.Dropout.", kind="architecture"
    ),
    "EVALUATION/buffers": Repair(
        text="Use PyTorch's convention for the momentum: the weight of the new batch (0.1).", kind="architecture"
    ),
    "TASK/views": Repair(text="Repeat labels as the views are stacked (repeat_interleave, or repeat).", kind="data"),
    "TASK/mirrored": Repair(text="Turn targets together with their inputs.", kind="data"),
    "OBJECTIVE/prior": Repair(text="List counts by class index before weights are made of them.", kind="objective"),
    "OBJECTIVE/supervised": Repair(
        text="Mask by length or by an attention mask, and ignore a label that no class has.", kind="objective"
    ),
    "EVALUATION/inputs": Repair(
        text="Prepare evaluated inputs as training's are: the same normalisation, scale and order of channels.",
        kind="data",
    ),
    "EVALUATION/labels": Repair(
        text="Number the classes of the evaluated data by the list that training was numbered by.", kind="data"
    ),
}
