"""The rule the user declared, `rule(inputs) -> targets`, held against the targets that the loss really got."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.errors import WeaklinkError
from weaklink.collector.losses.by_hand import wide
from weaklink.collector.preserve import preserved
from weaklink.collector.system import held_by
from weaklink.collector.tensors import mapped
from weaklink.collector.watching.tape import RuleSample

Rule = Callable[[Any], Any]

# Permutations that show how many rows agree by chance: no better than the best of a hundred is a level of 1 %.
PERMUTATIONS = 100
# The comparison with permuted targets is taken on at most this many rows.
PERMUTED_ROWS = 4096
MISMATCHES_SHOWN = 10


class RuleReader:
    """Calls the rule on the inputs of the forward, and compares when the loss's targets are known.

    The rule is the user's code: it runs without gradients, on a copy of the inputs, which it may write to; the random
    state and its own modules are put back after it.

    Args:
        apart: Surrounds its calls: what the rule does, perhaps with a model of its own, is no part of the run.
    """

    def __init__(self, apart: Callable[[], AbstractContextManager[None]]) -> None:
        self._apart = apart
        self.rule: Rule | None = None
        self.refused: WeaklinkError | None = None
        # Why the declared rule gives no targets.
        self.problem: str | None = None
        self._load: Callable[[], Rule] | None = None
        self._expected: Tensor | None = None

    @property
    def is_declared(self) -> bool:
        """Whether the user named a rule, loaded or not."""
        return self.rule is not None or self._load is not None or self.problem is not None

    def declare(self, rule: Rule) -> None:
        """Take the rule of a system, unless one was named on the command line."""
        if self._load is None and self.rule is None:
            self.rule = rule

    def declare_later(self, load: Callable[[], Rule]) -> None:
        """Load the rule at the first forward. Where it cannot be loaded, `refused` says why."""
        self._load = load

    def forward(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """The model was called with these inputs."""
        if self._load is not None:
            self._load_now()
        if self.rule is not None and self.problem is None:
            by_keyword = dict(kwargs) if kwargs and not args else None
            self._expected = self.targets_of(by_keyword or (args[0] if len(args) == 1 else args))

    def _load_now(self) -> None:
        assert self._load is not None
        load, self._load = self._load, None
        try:
            # The module's own code runs now, amid the run: it may seed, or build models.
            with self._apart(), preserved(()), _imports_in_order():
                self.rule = load()
        except WeaklinkError as error:
            self.refused = error
        except Exception as error:  # the user's module, as it is imported
            self.problem = f"importing it raised {type(error).__name__}: {str(error)[:200]}"

    def targets_of(self, inputs: Any) -> Tensor | None:
        """The targets that belong to these inputs; None where the rule gives no tensor, and `problem` says why."""
        if self.rule is None:
            return None
        try:
            with self._apart(), preserved((), values=held_by(self.rule)), torch.no_grad():
                found = self.rule(mapped(inputs, lambda tensor: tensor.detach().clone()))
        except Exception as error:  # the user's function
            self.problem = f"it raised {type(error).__name__}: {str(error)[:200]}"
            return None
        if not isinstance(found, Tensor):
            self.problem = f"it returned a {type(found).__name__}, not a tensor of targets"
            return None
        return found.detach()

    def compare(self, targets: Tensor) -> RuleSample | None:
        """The sample for these targets; None where no rule is declared or the shapes cannot be compared."""
        expected, self._expected = self._expected, None
        if expected is None or not expected.dim() or expected.numel() != targets.numel() or not targets.numel():
            return None
        return agreement(expected, targets.detach().reshape(expected.shape))


@contextmanager
def _imports_in_order() -> Iterator[None]:
    """What the body adds to the import path is looked up last afterwards: the run's own later imports come first."""
    before = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = [*before, *(added for added in sys.path if added not in before)]


def agreement(expected: Tensor, targets: Tensor) -> RuleSample:
    """How many rows (along dimension 0) of two tensors of one shape agree in every entry, and how many by chance.

    Integers agree when they are equal, floating-point numbers within 1e-5 of their size.
    """
    expected = expected.to(targets.device)
    agrees = _agrees(expected, targets)
    rows = min(len(expected), PERMUTED_ROWS)
    generator = torch.Generator().manual_seed(0)
    some, others = expected[:rows], targets[:rows]
    # The device is said: a default one, set by the script, would not fit the generator.
    drawn = [torch.randperm(rows, generator=generator, device="cpu") for _ in range(PERMUTATIONS)]
    chance = [_agrees(some, others[order]).sum() for order in torch.stack(drawn).to(targets.device)]
    wrong = (~agrees).nonzero().flatten()[:MISMATCHES_SHOWN].tolist()
    by_chance = int(torch.stack(chance).max())
    return RuleSample(
        len(expected), int(agrees.sum()), by_chance * len(expected) // rows, [int(position) for position in wrong]
    )


def _agrees(expected: Tensor, targets: Tensor) -> Tensor:
    if expected.is_floating_point() or targets.is_floating_point():
        same = torch.isclose(wide(expected), wide(targets), rtol=1e-5, atol=1e-8)
    else:
        same = expected == targets
    return same.flatten(1).all(dim=1) if same.dim() > 1 else same
