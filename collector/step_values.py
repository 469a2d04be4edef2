"""Every number of a short run of a small system: what each optimizer step consumed and moved. Torch-free.

Made by `recording.py` for a comparison with a reference that was computed in another way.
"""

from __future__ import annotations

from weaklink.collector.evidence import Model

RECORDED = "recorded.json"
# So many values of all parameters together: a comparison number by number is for reduced systems.
LARGEST_SYSTEM = 100_000


class StepValues(Model):
    """One run, step by step.

    Attributes:
        gradients: By parameter, the gradient that each step of its optimizer consumed, row by row; a step without
            one is left out.
        movements: By parameter, what such a step added to it.
        moved: Step by step, names of all parameters that it moved, whoever holds them.
        outside: Parameters that moved between two steps.
        problem: Why nothing was recorded.
    """

    gradients: dict[str, list[list[float]]] = {}
    movements: dict[str, list[list[float]]] = {}
    moved: list[list[str]] = []
    outside: list[str] = []
    problem: str | None = None
