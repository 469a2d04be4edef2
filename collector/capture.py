"""The step that turned non-finite, kept: what is in `captured/` of an incident, and whether it is still that. No torch.

`step.pt` holds plain data and tensors alone, so that it can be read without running anything that is in it;
`manifest.json` says what it is of, with its hash.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from weaklink.collector.errors import EvidenceError
from weaklink.collector.evidence import Model

MANIFEST, STEP, RECREATED = "manifest.json", "step.pt", "recreated.json"


class Outcomes(Model):
    """What came of a step: the losses that backward was called on, and the parameters with a non-finite gradient."""

    losses: list[str] = []
    nonfinite_gradients: list[str] = []
    problem: str | None = None

    def agrees(self, other: Outcomes) -> bool:
        """Whether the other one, that may have gone on, saw the same losses to the last digit and gradients break."""
        same = other.losses[: len(self.losses)] == self.losses
        return same and set(self.nonfinite_gradients) <= set(other.nonfinite_gradients)


class Manifest(Model):
    """What was kept of one step.

    Attributes:
        step: The optimizer step, from 1.
        calls: Class names of the models that were called with gradients, in order.
        complete: Whether the step can be taken again from it; else `outcomes.problem` says why not.
        sha256: Hash of `step.pt`; None where nothing was written.
        bytes: Its tensors together.
    """

    schema_: Literal["weaklink.capture/1"] = Field(default="weaklink.capture/1", alias="schema")
    step: int
    calls: list[str] = []
    complete: bool
    sha256: str | None = None
    bytes: int = 0
    outcomes: Outcomes = Outcomes()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a captured step, its file checked against its hash.

    Raises:
        EvidenceError: There is none, it is damaged, or `step.pt` is not the file that it is of.
    """
    hint = "a step is captured by `weaklink diagnose SCRIPT` where a loss or gradient turns non-finite."
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError as error:
        raise EvidenceError("This incident holds no captured step.", about=str(folder), hint=hint) from error
    except (ValidationError, ValueError) as error:
        raise EvidenceError("The manifest of the captured step is damaged.", about=str(folder), hint=hint) from error
    if not manifest.complete:
        raise EvidenceError(
            f"The captured step cannot be taken again: {manifest.outcomes.problem}.", about=str(folder), hint=hint
        )
    try:
        found = sha256_of(folder / STEP)
    except OSError:
        found = None
    if found != manifest.sha256:
        raise EvidenceError("The captured step is not the one that was recorded.", about=str(folder / STEP), hint=hint)
    return manifest


def sha256_of(path: Path) -> str:
    """The hash of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
