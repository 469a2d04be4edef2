"""Parameters by the names that a declaration can call them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from weaklink.collector.declared import matches
from weaklink.collector.rows.observation import Observation, names_of
from weaklink.collector.watching.parameters import ParameterEntry


def matching(entry: ParameterEntry, patterns: Iterable[str]) -> bool:
    """Whether a pattern means this parameter."""
    return matches(names_of(entry), patterns)


def trainable(run: Observation) -> list[ParameterEntry]:
    """Parameters declared to be trained: of both patterns, that of what must rest wins."""
    declared = run.declared
    return [e for e in _named(run) if matching(e, declared.expected) and not matching(e, declared.frozen)]


def frozen(run: Observation) -> list[ParameterEntry]:
    """Parameters declared to rest."""
    return [e for e in _named(run) if matching(e, run.declared.frozen)]


def unmatched(run: Observation, patterns: Iterable[str]) -> list[str]:
    """Patterns that mean no parameter of the run: a misspelt one would leave nothing to judge."""
    return [pattern for pattern in patterns if not any(matching(entry, [pattern]) for entry in _named(run))]


def nearest(run: Observation, pattern: str) -> str:
    """Names that a pattern without a match may have meant."""
    known = list(dict.fromkeys(name for entry in _named(run) for name in names_of(entry)))
    return ", ".join(difflib.get_close_matches(pattern, known, n=3, cutoff=0.0)) or "there is none"


def _named(run: Observation) -> list[ParameterEntry]:
    """What is or was part of a model, and what hangs in a module that never ran."""
    return [e for e in run.parameters if names_of(e) and (e.ever_in_model or e.is_parameter)]
