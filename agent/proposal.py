"""What an advisor hands in: mechanisms, one discriminating experiment, and what each mechanism predicts.

Shapes only. Whether a proposal is acceptable is judged in `contract`, never by the advisor itself.
"""

from __future__ import annotations

from typing import Literal

from weaklink.collector.evidence import Model, Value

MechanismFamily = Literal[
    "pairing_broken",
    "target_leak",
    "supervision_missing",
    "data_not_mixed",
    "input_corrupted",
    "input_scale",
    "label_convention",
    "wrong_scores_to_loss",
    "shape_misread",
    "wrong_term_or_sign",
    "wrong_reduction",
    "wrong_mode_in_training",
    "objective_mixed",
    "graph_cut",
    "frozen_by_accident",
    "missing_stop_gradient",
    "zero_gradient",
    "nonfinite",
    "stale_gradient",
    "gradient_cleared_early",
    "not_reduced_across_ranks",
    "not_in_optimizer",
    "optimizer_holds_old_objects",
    "not_registered",
    "shared_by_mistake",
    "step_missing_or_skipped",
    "step_before_backward",
    "rate_wrong",
    "regularization_wrong",
    "update_lost",
    "clipping_misordered",
    "optimizer_state_wrong",
    "signal_vanishes",
    "capacity",
    "initial_weights_wrong",
    "stale_buffers",
    "evaluation_mismatch",
    "wrong_weights_evaluated",
    "metric_wrong",
    "none",
    "other",
]

Direction = Literal["same", "different", "up", "down", "becomes"]


class Prediction(Model):
    """What one measurement of the treated rerun will be, against the control.

    `same` is bitwise; `different`, `up` and `down` must exceed ten times the noise floor; `becomes` names the value.
    `measurement` is a key such as `moved[head.*]` or `row[UPDATE/moved]` (see `measurements.py`).
    """

    measurement: str
    expect: Direction
    value: Value = None


class Mechanism(Model):
    """A candidate cause, and its prediction for every measurement of the experiment."""

    id: MechanismFamily
    boundary: str
    explanation: str
    predictions: list[Prediction] = []


class Citation(Model):
    """A row the advisor relies on, with the value it read there."""

    row: str
    field: str
    value: Value


class SourceCitation(Model):
    """A line of a file that the advisor was shown and relies on, as it stands there; `text` may leave out its ends."""

    file: str
    line: int
    text: str = ""


class ExperimentChoice(Model):
    """One entry of the catalogue, with its parameters."""

    name: str
    parameters: dict[str, Value] = {}


class Repair(Model):
    """The change to the user's code that the advisor would make if the experiment supports its first mechanism."""

    text: str
    kind: Literal[
        "wiring",
        "data",
        "objective",
        "learning_rate",
        "architecture",
        "clipping",
        "precision",
        "more_data",
        "optimizer",
    ]


class Proposal(Model):
    """One complete answer of an advisor.

    `outcome` is *experiment* (mechanisms, one experiment, both lists), *ask_operator* (a question, mechanisms if any),
    *inconclusive*, or *nothing_to_repair* (the right answer on a healthy run).
    """

    outcome: Literal["experiment", "ask_operator", "inconclusive", "nothing_to_repair"]
    first_boundary: str
    first_row: str | None = None
    dissent: str | None = None
    cited: list[Citation] = []
    sources: list[SourceCitation] = []
    mechanisms: list[Mechanism] = []
    experiment: ExperimentChoice | None = None
    must_change: list[str] = []
    must_stay_unchanged: list[str] = []
    question: str | None = None
    repair: Repair | None = None
