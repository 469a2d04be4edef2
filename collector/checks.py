"""Whether the parts of a system are what they should be; in words, for a factory's errors and for a ledger's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from weaklink.collector.declared import Declared
from weaklink.collector.system import TrainingSystem

# Parameters named in an error, when a pattern matches none of them.
NAMES_SHOWN = 8


def shown(value: Any) -> str:
    """A value that was given in the wrong place: a number as it is, anything else by its kind."""
    if value is None or isinstance(value, (int, float)):
        return str(value)
    return "a tensor" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _is_whole(value: Any, least: int) -> bool:
    try:
        return operator.index(value) >= least
    except TypeError:
        return False


def _are_patterns(value: Any) -> bool:
    texts = value if isinstance(value, (list, tuple, set, frozenset)) else [value]
    return value is None or all(isinstance(text, str) for text in texts)


def _is_pair(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2


# What each part of a system must be, in words and as a question. The optimizers are looked at one by one.
PARTS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "model": ("a torch.nn.Module", lambda value: isinstance(value, nn.Module)),
    "loss_fn": (
        "a function or a module, not its class",
        lambda value: callable(value) and not (isinstance(value, type) and issubclass(value, nn.Module)),
    ),
    "num_classes": ("a whole number, 1 or more, or None", lambda value: value is None or _is_whole(value, 1)),
    "rule": ("a function of the inputs, or None", lambda value: value is None or callable(value)),
    "expected": ("a pattern over parameter names, a list of patterns, or None", _are_patterns),
    "task": ("a sentence, or None", lambda value: value is None or isinstance(value, str)),
    "steps": ("a whole number, 1 or more", lambda value: _is_whole(value, 1)),
    "capability_steps": ("a whole number, 0 or more", lambda value: _is_whole(value, 0)),
    "validation": ("a pair of inputs and targets, or None", lambda value: value is None or _is_pair(value)),
}


def wanted_instead(part: str, value: Any) -> str | None:
    """What that part of a system has to be, where it is something else; None where it will do."""
    wanted, fits = PARTS[part]
    return None if fits(value) else wanted


def unmatched_pattern(system: TrainingSystem) -> tuple[str, str] | None:
    """A pattern of `expected` that matches no parameter, and the names that there are; None where all match.

    A misspelt pattern would leave nothing to judge, and a chain that looks healthy.
    """
    known = [name for module in system.modules for name, _ in module.named_parameters()]
    for pattern in Declared.of(None, system.expected, None).expected:
        if not any(Declared(expected=(pattern,)).expects(name) for name in known):
            names = ", ".join(known[:NAMES_SHOWN]) + (", ..." if len(known) > NAMES_SHOWN else "")
            return pattern, names or "none"
    return None
