"""Give each place of a container a module of its own: the one change that tells shared weights from separate ones."""

from __future__ import annotations

import copy
import weakref
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.interventions.base import Intervention

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


class UntieModules(Intervention):
    """Copies with the values of the original, so that the first forward is bit for bit what it was.

    Optimizers hold the copies where they hold the original, from their next step on.
    """

    name = "untie_modules"

    def attach(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._seen: set[int] = set()
        self._pairs: list[tuple[weakref.ref[Tensor], weakref.ref[Tensor]]] = []
        self._held: dict[int, int] = {}
        watcher.at_first_forward.append(self._untie)
        watcher.before_step.append(self._own)

    def _untie(self, root: nn.Module) -> bool:
        """Never done: a second model may still come."""
        entry = self._watcher.roots.entry(root)
        if entry is None or entry.serial in self._seen:
            return False
        self._seen.add(entry.serial)
        pattern = str(self.parameters["container"])
        for path, container in list(root.named_modules()):
            if isinstance(container, CONTAINERS) and fnmatchcase(path, pattern):
                self._untie_in(path, container)
        return False

    def _untie_in(self, path: str, container: nn.Module) -> None:
        children = {key: child for key, child in container._modules.items() if child is not None}
        times, met = Counter(map(id, children.values())), set()
        for key, child in children.items():
            first = id(child) not in met
            met.add(id(child))
            if first or times[id(child)] < 2 or not any(p.requires_grad for p in child.parameters()):
                continue
            try:
                own = copy.deepcopy(child)
            except Exception as error:  # weights that cannot be copied
                self._watcher.problem(f"untie {path}.{key}", error)
                continue
            container.register_module(key, own)
            self._register(own)
            pairs = zip(child.parameters(), own.parameters(), strict=True)
            self._pairs += [(weakref.ref(original), weakref.ref(made)) for original, made in pairs]
            self.note_changed(
                self._watcher, f"{path}.{key}".lstrip("."), "a module of its own in place of a shared one"
            )

    def _register(self, module: nn.Module) -> None:
        """A copy is made without the calls by which the watcher knows where parameters hang."""
        book = self._watcher.parameters
        for parent in module.modules():
            for name, parameter in parent.named_parameters(recurse=False):
                book.registered(parent, name, parameter)
            for name, child in parent.named_children():
                book.module_registered(parent, name, child)

    def _own(self, optimizer: Optimizer) -> None:
        entry, _ = self._watcher.optimizers.entry(optimizer, None, self._watcher.order)
        if self._held.get(entry.serial) == len(self._pairs):
            return
        self._held[entry.serial] = len(self._pairs)
        held = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
        for group in optimizer.param_groups:
            inside = {id(tensor) for tensor in group["params"]}
            for original, made in [(original(), made()) for original, made in self._pairs]:
                if original is not None and made is not None and id(original) in inside and id(made) not in held:
                    group["params"].append(made)
        self._watcher.optimizers.read_groups(entry, optimizer.param_groups)
