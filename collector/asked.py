"""The instruments that can be asked for by name, and what one that ran has found. No torch here.

An advisor asks, before it proposes, for one of these on a disposable rerun; `collector/measuring/` runs it there.
"""

from __future__ import annotations

from dataclasses import dataclass

from weaklink.collector.evidence import Model, Value

# Lines of one table; what lies between the first and the last ones is counted.
TABLE_LINES = 50
RESULT = "instrument.json"


@dataclass(frozen=True)
class Instrument:
    """One entry of the closed list.

    Attributes:
        name: What it is asked for by.
        question: What it answers.
        does: What it takes, and at which moment.
        step: What the optimizer step (from 1) means to it, and its own choice where none is given.
        not_where: When it measures nothing, and says so.
    """

    name: str
    question: str
    does: str
    step: str
    not_where: str


_ALL = (
    Instrument(
        "activation_statistics",
        "Which layer stops telling the inputs apart, and where do scale or zeros go wrong?",
        "every layer's output in the forward of one step: shape, mean, spread, exact zeros, values not finite, and "
        "how much it differs between the rows of the batch",
        "the step whose forward is looked at; by itself the one before the first that is not finite, else the "
        "first divergence's, else the first",
        "no module is called, or a compiler hides the calls",
    ),
    Instrument(
        "nonfinite_trace",
        "Which operation makes the first NaN or infinity, forward or backward, and on which line?",
        "every operation of six steps, with its line, and every layer's count of values that are not finite",
        "the first of the six steps; by itself two before the first that is not finite, else the first",
        "a compiler or another thread hides the operations",
    ),
    Instrument(
        "slices",
        "For which rows is the loss high: for one class, for one declared slice?",
        "the loss of each example of one step's batch, by class of its target and by the slices that weaklink.toml "
        "declares: number, share, mean loss, accuracy",
        "the step whose batch is taken; by itself the last one that is reached in half a minute",
        "the loss is not a mean over examples that can be found in what the script computes",
    ),
    Instrument(
        "learning_rates",
        "Is it the learning rate?",
        "50 steps of the run's own optimizer on one step's batch, from one and the same state, at 0.01, 0.1, 1 and 10 "
        "times its own rate",
        "the step that is taken again; by itself the first",
        "the loss cannot be computed again from the recorded operations, or the optimizer cannot be put back",
    ),
    Instrument(
        "tiny_batch",
        "Can model and optimizer fit a few rows at all?",
        "100 steps on a few rows of one step's batch with the run's own optimizer, and with plain SGD over every "
        "parameter that requires a gradient",
        "the step that is taken again; by itself the first",
        "the loss cannot be computed again from the recorded operations",
    ),
)
INSTRUMENTS: dict[str, Instrument] = {each.name: each for each in _ALL}


class InstrumentResult(Model):
    """What one instrument found, in plain values and as a table of text in which names are made printable.

    `reason` says why nothing was measured; `rows` and `table` are empty then. `step` is the optimizer step (from 1) it
    looked at. `notes` are said with the figures: what they leave out.
    """

    name: str
    step: int
    reason: str | None = None
    rows: list[dict[str, Value]] = []
    table: str = ""
    notes: list[str] = []

    @property
    def text(self) -> str:
        """Table and notes, or the reason."""
        if self.reason is not None:
            return f"not measured: {self.reason}"
        return "\n".join([self.table, *self.notes])
