"""Another random start of the same script: the seeds of the global streams are moved by an offset. No torch here.

Moved are `torch.manual_seed`, `random.seed` and `numpy.random.seed`, wherever they are called, and where a stream that
nobody seeds begins. Generators of the script's own are left alone: they deal out its data, which is to stay the same.
"""

from __future__ import annotations

import functools
import operator
import random
import sys
from collections.abc import Callable
from typing import Any

from weaklink.collector.postimport import after_import

Told = Callable[[str, str], None]

# torch and numpy refuse seeds outside these.
_TORCH_SEEDS = 2**63
_NUMPY_SEEDS = 2**32


def shift_seeds(offset: int, told: Told | None = None) -> None:
    """Move the seeds of this process, from now on to its end.

    Args:
        offset: What is added to each seed; not negative.
        told: Told of each call of the script's own: the function, and what became of the seed.
    """
    moved = _Moved(offset, told or (lambda what, how: None))
    random.seed(random.getrandbits(62) + offset)
    moved.stand_in(random, "seed", "random.seed", None)
    after_import("numpy", moved.numpy)
    after_import("torch", moved.torch)


class _Moved:
    def __init__(self, offset: int, told: Told) -> None:
        self._offset, self._told = offset, told
        # torch.manual_seed seeds the accelerators by functions that a script may call as well.
        self._inside = False

    def numpy(self) -> None:
        streams = sys.modules["numpy"].random
        streams.seed((int(streams.randint(2**31)) + self._offset) % _NUMPY_SEEDS)
        self.stand_in(streams, "seed", "numpy.random.seed", _NUMPY_SEEDS)

    def torch(self) -> None:
        torch = sys.modules["torch"]
        torch.manual_seed((torch.initial_seed() + self._offset) % _TORCH_SEEDS)
        for owner, name in ((torch, "torch"), (torch.random, "torch.random"), (torch.cuda, "torch.cuda")):
            self.stand_in(owner, "manual_seed", f"{name}.manual_seed", _TORCH_SEEDS)
        self.stand_in(torch.cuda, "manual_seed_all", "torch.cuda.manual_seed_all", _TORCH_SEEDS)

    def stand_in(self, owner: Any, attribute: str, name: str, below: int | None) -> None:
        """Let a seeding function move the integer that it is given; any other seed is taken as it is."""
        original = getattr(owner, attribute)

        @functools.wraps(original)
        def seeding(*args: Any, **kwargs: Any) -> Any:
            word = next(iter(kwargs), "")
            given = _integer(args[0] if args else kwargs.get(word))
            if given is None or self._inside:
                return original(*args, **kwargs)
            seed = given + self._offset
            seed = seed if below is None or seed < 0 else seed % below
            self._told(name, f"seed {given} became {seed}")
            self._inside = True
            try:
                return original(seed, *args[1:], **kwargs) if args else original(**{**kwargs, word: seed})
            finally:
                self._inside = False

        setattr(owner, attribute, seeding)


def _integer(value: Any) -> int | None:
    """The seed as a number; None for what is none: nothing, a text, an array of several."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None
