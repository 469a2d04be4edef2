"""The random streams that a training step can draw from: read, and put back."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable
from typing import Any

import torch


def keep_global_streams(mps: bool) -> Callable[[], None]:
    """Read the global streams of Python, numpy and torch; answers a function that puts them back.

    numpy only where something has loaded it, CUDA only where something has initialized it: neither is woken here.

    Args:
        mps: Whether Apple's device is in use; torch cannot be asked.
    """
    put_back: list[Callable[[], None]] = []
    state = random.getstate()
    put_back.append(lambda: random.setstate(state))
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_state = numpy_random.get_state()
        put_back.append(lambda: numpy_random.set_state(numpy_state))
    torch_state = torch.get_rng_state()
    put_back.append(lambda: torch.set_rng_state(torch_state))
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        cuda_states = torch.cuda.get_rng_state_all()
        put_back.append(lambda: torch.cuda.set_rng_state_all(cuda_states))
    if mps:
        mps_state = torch.mps.get_rng_state()
        put_back.append(lambda: torch.mps.set_rng_state(mps_state))

    def restore() -> None:
        for function in put_back:
            function()

    return restore


def keep_generator(generator: Any) -> Callable[[], None] | None:
    """The same for a generator of the user's own; None where `generator` is none of Python's, numpy's or torch's."""
    if isinstance(generator, torch.Generator):
        return functools.partial(_set_torch, generator, generator.get_state())
    if isinstance(generator, random.Random) and not isinstance(generator, random.SystemRandom):
        state = generator.getstate()
        return lambda: generator.setstate(state)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None and isinstance(generator, numpy_random.RandomState):
        legacy = generator.get_state()
        return lambda: generator.set_state(legacy)
    if numpy_random is not None and isinstance(generator, numpy_random.Generator):
        bits, modern = generator.bit_generator, generator.bit_generator.state
        return lambda: setattr(bits, "state", modern)
    return None


def _set_torch(generator: torch.Generator, state: torch.Tensor) -> None:
    generator.set_state(state)
