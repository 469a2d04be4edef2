"""How much is asked of a model, and how much it may look at."""

from __future__ import annotations

from dataclasses import dataclass

ATTEMPTS = 3  # answers, until one meets the contract
DEFAULT_CONTEXT = 32768  # tokens that a model reads at once, its answer included; `--context` says otherwise

SMALLEST_CONTEXT = 4000  # below it no chain, experiment and contract fit together
LOOKS_FROM_CONTEXT = 8000  # below it no look fits beside the brief: the model answers with what it was sent


@dataclass(frozen=True)
class Limits:
    """How much a model may look at before it answers: files (list, search, read), and instruments."""

    reads: int = 12
    instruments: int = 3
