"""A reference that was computed in another way, and what a repair's runs are held against it.

The reference is a script of the replay's folder that prints numbers; nothing of it comes from weaklink or from the
repair. What is compared is every loss, every gradient that a step consumed, and every movement, number by number.
"""

from __future__ import annotations

import hashlib
import math
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from weaklink.agent.replays.outcome import RecordedRun
from weaklink.collector.declared import Objective, matches
from weaklink.collector.errors import SubjectError
from weaklink.collector.evidence import Model
from weaklink.collector.workers import base_environment


class ReferenceRun(Model):
    """One run of the reference: losses in the order of the backward calls; by parameter, its gradient and its movement
    in every operation, row by row."""

    seed: int
    losses: list[float]
    gradients: dict[str, list[list[float]]]
    movements: dict[str, list[list[float]]]


class Reference(Model):
    """What the reference script prints: one run a seed."""

    runs: list[ReferenceRun]


@dataclass(frozen=True)
class Comparison:
    """The answers to the questions that were put to an attempt, and where it is farthest from the reference.

    `worst` is a difference relative to the largest number of the reference there; None where the two cannot be laid
    side by side.
    """

    checks: dict[str, bool]
    worst: float | None
    worst_at: str | None

    @property
    def complete(self) -> bool:
        return all(self.checks.values())

    @property
    def text(self) -> str:
        """One sentence."""
        if self.complete:
            return f"every loss, gradient and movement is the reference's (at most {self.worst or 0.0:.1e} apart)"
        failed = ", ".join(name.replace("_", " ") for name, held in self.checks.items() if not held)
        how = "of another number" if self.worst is None else f"{self.worst:.1e} apart"
        return f"incomplete: not so: {failed}" + (f"; {self.worst_at}: {how}" if self.worst_at else "")


def compute_reference(script: Path, seeds: Sequence[int], python: str, deadline: float) -> Reference:
    """Run the reference script with the seeds as its arguments, and read the JSON object that it prints.

    Raises:
        SubjectError: It fails, takes longer than `deadline` seconds, or prints something else.
    """
    command = [python, script.name, *map(str, seeds)]
    try:
        done = subprocess.run(
            command, cwd=script.parent, env=base_environment("0"), capture_output=True, timeout=deadline, check=True
        )
        return Reference.model_validate_json(done.stdout)
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        problem = f"it failed: {last[0][:200] if last else f'exit code {error.returncode}'}"
    except subprocess.TimeoutExpired:
        problem = f"it took longer than {deadline:g} s"
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"it printed something else: {'.'.join(map(str, first['loc'])) or 'the whole output'}: {first['msg']}"
    raise SubjectError("The reference cannot be computed.", about=str(script), hint=f"{problem}.")


def sha256_of(path: Path) -> str:
    """Of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hold_against(
    reference: Reference, runs: Sequence[RecordedRun], objectives: Mapping[str, Objective], tolerance: float
) -> Comparison:
    """Put the questions to an attempt's runs, one for each of the reference's.

    Args:
        reference: As it was sealed.
        runs: What the attempt did, in the reference's order.
        objectives: Which parameters each objective may move: a step moves those of one of them, all of them, no others.
        tolerance: Largest difference in any number, relative to the largest number of the reference there.
    """
    pairs = list(zip(reference.runs, runs, strict=True))
    apart = [found for expected, run in pairs for found in _apart(expected, run)]
    worst = max(apart, key=lambda found: math.inf if found[0] is None else found[0], default=None)
    losses = [loss for run in runs for loss in run.losses]
    gradients = [value for run in runs for series in run.values.gradients.values() for one in series for value in one]
    checks = {
        "finite_losses": bool(losses) and all(map(math.isfinite, losses)),
        "finite_gradients": bool(gradients) and all(map(math.isfinite, gradients)),
        "moves_only_what_is_intended": all(_moves_as_intended(run, objectives) for run in runs),
        "equal_to_the_reference": bool(apart) and all(one is not None and one <= tolerance for one, _ in apart),
    }
    return Comparison(checks, worst[0] if worst else None, worst[1] if worst else None)


def _apart(expected: ReferenceRun, run: RecordedRun) -> Iterator[tuple[float | None, str]]:
    """How far each series of numbers is from the reference's, and what it is."""
    yield _distance(expected.losses, run.losses), f"seed {expected.seed}, losses"
    parts = (
        ("gradient", expected.gradients, run.values.gradients),
        ("movement", expected.movements, run.values.movements),
    )
    for what, wanted, found in parts:
        for name in dict.fromkeys([*wanted, *found]):
            ours, theirs = found.get(name, []), wanted.get(name, [])
            if len(ours) != len(theirs):
                yield None, f"seed {expected.seed}, {what} of {name}"
            for number, (one, other) in enumerate(zip(theirs, ours, strict=False), 1):
                yield _distance(one, other), f"seed {expected.seed}, operation {number}, {what} of {name}"


def _distance(expected: Sequence[float], found: Sequence[float]) -> float | None:
    if len(expected) != len(found):
        return None
    largest = max(map(abs, expected), default=0.0)
    differences = [abs(a - b) for a, b in zip(expected, found, strict=True)]
    if not all(map(math.isfinite, differences)):  # a maximum may pass over nan
        return math.inf
    apart = max(differences, default=0.0)
    return apart / largest if largest else (0.0 if apart == 0.0 else math.inf)


def _moves_as_intended(run: RecordedRun, objectives: Mapping[str, Objective]) -> bool:
    """Whether each step moved all parameters of exactly one objective, and nothing moved between steps."""
    every = dict.fromkeys([*run.values.gradients, *run.values.movements])
    own = [{name for name in every if matches([name], objective.parameters)} for objective in objectives.values()]
    stepped = [set(moved) for moved in run.values.moved]
    return (
        bool(stepped)
        and not run.values.outside
        and all(moved in own for moved in stepped)
        and all(group in stepped for group in own)
    )
