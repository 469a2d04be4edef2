"""Experiments on the loss function and what it is fed."""

from __future__ import annotations

from weaklink.collector.catalogue.entry import FROM_LOSS, Entry, NoParameters

RAW_SCORES_TO_LOSS = Entry(
    name="raw_scores_to_loss",
    boundary="OBJECTIVE",
    changes="Where the result of a softmax, reshaped or not, is fed to cross entropy or a log-softmax, the raw scores "
    "that went into the softmax take its place.",
    cannot_change="Inputs, targets, first parameters, and what the model returns.",
    not_applicable="No softmax is fed to them, it was worked on in between, or it happens in a compiled region.",
    parameters=NoParameters,
    can_move=FROM_LOSS,
    decides=frozenset({"wrong_scores_to_loss"}),
)

WITHOUT_LABEL_SMOOTHING = Entry(
    name="without_label_smoothing",
    boundary="OBJECTIVE",
    changes="Cross entropy is called with label smoothing 0.",
    cannot_change="Inputs, targets, first parameters and first outputs; smoothing that the script does by hand.",
    not_applicable="No cross entropy is called with label smoothing.",
    parameters=NoParameters,
    can_move=FROM_LOSS,
    decides=frozenset({"regularization_wrong", "wrong_term_or_sign"}),
)

ENTRIES = (RAW_SCORES_TO_LOSS, WITHOUT_LABEL_SMOOTHING)
