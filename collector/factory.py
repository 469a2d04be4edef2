"""A factory subject: call it, check what it returns, and train the system for a few steps under the watcher.

The loop is the plain one (forward, loss, zero_grad, backward, step), on the system's one fixed batch. To the watcher it
is a script like any other, so that rows, experiments and records are those of a script.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from weaklink.collector.checks import PARTS, shown, unmatched_pattern, wanted_instead
from weaklink.collector.declared import Declared
from weaklink.collector.errors import SubjectError
from weaklink.collector.examination import examine
from weaklink.collector.functions import load_function
from weaklink.collector.step import StepRefused, train_step
from weaklink.collector.system import TrainingSystem
from weaklink.collector.watching.watcher import Watcher

_HINT = "return a weaklink.collector.TrainingSystem(model=..., optimizer=..., inputs=..., targets=...)."


def build_system(name: str, folder: Path) -> TrainingSystem:
    """Call the factory of that name; the user's own exceptions pass through.

    Raises:
        SubjectError: There is no such factory, it takes arguments, or it returns something else than a system.
    """
    factory = load_function(name, folder)
    if isinstance(factory, type) and issubclass(factory, nn.Module):
        raise SubjectError(f"{factory.__name__} is a model, not a factory.", about=name, hint=_HINT)
    needed = _needed_arguments(factory)
    if needed:
        raise SubjectError(
            f"The factory needs arguments: {', '.join(needed)}.",
            about=name,
            hint="a factory takes none; close over them.",
        )
    return checked(factory(), name)


def checked(system: Any, name: str) -> TrainingSystem:
    """The system, if its parts are what they should be.

    Raises:
        SubjectError: Names the part that is not, and what belongs there.
    """
    if not isinstance(system, TrainingSystem):
        raise SubjectError(f"The factory returned {shown(system)}, not a TrainingSystem.", about=name, hint=_HINT)
    for part in PARTS:
        value = getattr(system, part)
        if (wanted := wanted_instead(part, value)) is not None:
            raise SubjectError(
                f"The system's {part} cannot be {shown(value)}.", about=f"{name} {part}", hint=f"give it {wanted}."
            )
    wrong = [one for one in system.optimizers if not isinstance(one, Optimizer)]
    if wrong or not system.optimizers:
        raise SubjectError(
            f"The system's optimizer cannot be {shown(wrong[0])}." if wrong else "The system has no optimizer.",
            about=f"{name} optimizer",
            hint="give it a torch.optim.Optimizer, or a list of them.",
        )
    if (stray := unmatched_pattern(system)) is not None:
        pattern, names = stray
        raise SubjectError(
            f"No parameter's name matches {pattern!r}.", about=f"{name} expected", hint=f"its parameters: {names}."
        )
    return system


def run_factory(name: str, folder: Path, watcher: Watcher, probe: bool) -> None:
    """Build the system and train it; exceptions and stops pass through, as from a script.

    Args:
        name: `module:function` or `file.py:function`.
        folder: The working folder.
        watcher: Already installed.
        probe: Also take the looks that need forwards and fits of our own, after the last step.
    """
    sys.argv = [name.rpartition(":")[0]]  # no arguments: a module that parses some finds none
    system = build_system(name, folder)
    declare(system, watcher)
    for _ in range(system.steps):
        try:
            train_step(system, watcher)
        except StepRefused:
            break
    if probe:
        examine(system, watcher)


def declare(system: TrainingSystem, watcher: Watcher) -> None:
    """Tell the watcher what the system says about itself; what the command line said stands."""
    said = watcher.declared
    patterns = Declared.of(None, system.expected, None).expected
    # Beside a loss that holds parameters, the names of both begin with their class.
    prefixed = [f"{type(module).__name__}.{pattern}" for module in system.modules for pattern in patterns]
    watcher.declared = replace(
        said,
        task=said.task or system.task,
        expected=said.expected or (*patterns, *prefixed),
        num_classes=said.num_classes or system.num_classes,
    )
    watcher.given = True
    if system.rule is not None:
        watcher.rules.declare(system.rule)


def _needed_arguments(factory: Any) -> list[str]:
    import inspect

    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return []  # of C: it will say itself what it needs
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in variadic]
