"""Draw the first weights anew: the one change that tells initial weights from everything else."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from weaklink.collector.interventions.base import Intervention
from weaklink.collector.random_state import keep_global_streams
from weaklink.collector.watching.parameters import RootEntry, is_lazy

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


def _normal(weight: Tensor) -> Tensor:
    """Mean 0, standard deviation 0.02, as the GPT models are drawn (Radford et al. 2018)."""
    return nn.init.normal_(weight, std=0.02)


SCHEMES: dict[str, Callable[[Tensor], Tensor]] = {
    "kaiming_uniform": nn.init.kaiming_uniform_,
    "xavier_uniform": nn.init.xavier_uniform_,
    "orthogonal": nn.init.orthogonal_,
    "normal": _normal,
}


class Reinitialize(Intervention):
    """Before each model's first forward, or the first one of a module that it was given since.

    The new values are written into the same parameters.

    They are drawn into a copy of the module, which may do what it likes with its own parameters, from a random stream
    that starts at the seed; the run's own streams are put back.
    """

    name = "reinitialize"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._seen: dict[int, int] = {}
        self._drawn: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        watcher.at_first_forward.append(self._draw)

    def _draw(self, module: nn.Module) -> bool:
        """Never done: a second model may still come."""
        root = self._watcher.roots.entry(module)
        if root is None or self._seen.get(root.serial) == self._watcher.order:
            return False
        self._seen[root.serial] = self._watcher.order  # nothing was made since: no module can be new
        matching = [found for found in self._named(root, module) if found[1] not in self._drawn]
        if matching:
            mps = any(parameter.is_mps for parameter in module.parameters())
            restore = keep_global_streams(mps)
            try:
                self._seed_everything(mps)
                for name, sub, keys in matching:
                    self._drawn.add(sub)
                    self._draw_one(name, sub, keys)
            finally:
                restore()
        return False

    def _named(self, root: RootEntry, module: nn.Module) -> list[tuple[str, nn.Module, set[str]]]:
        """Modules with parameters of their own, with the name that these show, and which of these are meant."""
        prefix = self._watcher.roots.prefixes().get(root.serial)
        if prefix is None:
            return []  # part of another model, whose names it goes by
        # As long as only one model has run its names have no prefix; they get one as soon as there is a second.
        prefixes = dict.fromkeys((prefix, f"{root.class_name}."))
        found: list[tuple[str, nn.Module, set[str]]] = []
        for name, sub in module.named_modules():
            own = [key for key, _ in sub.named_parameters(recurse=False)]
            keys = {key for key in own if any(self._means((other + name).rstrip("."), key) for other in prefixes)}
            if keys:
                found.append(((prefix + name).rstrip("."), sub, keys))
        return found

    def _means(self, module: str, key: str) -> bool:
        """Whether the pattern is one for the module, or for this one of its parameters."""
        pattern = str(self.parameters["module"])
        return fnmatchcase(module, pattern) or fnmatchcase(f"{module}.{key}".lstrip("."), pattern)

    def _seed_everything(self, mps: bool) -> None:
        # Not torch.manual_seed: it would leave a seed for an accelerator that is woken later.
        seed = int(str(self.parameters["seed"]))
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.manual_seed_all(seed)
        if mps:
            torch.mps.manual_seed(seed)

    def _draw_one(self, name: str, module: nn.Module, keys: set[str]) -> None:
        try:
            drawn = copy.deepcopy(module)
            own = getattr(drawn, "reset_parameters", None) or getattr(drawn, "_reset_parameters", None)
            if own is not None:
                own()
            scheme = SCHEMES.get(str(self.parameters["scheme"]))
            if scheme is not None:
                for weight in drawn.parameters(recurse=False):
                    if weight.dim() > 1:
                        with torch.no_grad():
                            scheme(weight)
        except Exception as error:  # weights that cannot be copied, or a module that cannot draw its own
            self._watcher.problem(f"reinitialize {name}", error)
            return
        new = dict(drawn.named_parameters(recurse=False))
        for key, parameter in module.named_parameters(recurse=False):
            if key in keys:
                self._write(f"{name}.{key}".lstrip("."), parameter, new.get(key))

    def _write(self, name: str, parameter: Tensor, new: Tensor | None) -> None:
        if new is None or is_lazy(parameter) or parameter.is_meta or new.shape != parameter.shape:
            return
        if torch.equal(parameter, new):
            return
        parameter.data.copy_(new)
        self.note_changed(self._watcher, name, f"drawn anew by {self.parameters['scheme']}")
