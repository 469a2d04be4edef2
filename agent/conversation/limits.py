"""How much is asked of a model, and how much it may look at."""

from __future__ import annotations

from dataclasses import dataclass

ATTEMPTS = 3  # answers, until one meets the contract
DEFAULT_CONTEXT = 32768  # tokens that a model reads at once, its answer included; `--context` says otherwise


@dataclass(frozen=True)
class Limits:
    """How much a model may look at before it answers: files (list, search, read), and instruments."""

    reads: int = 12
    instruments: int = 3
