"""Parameters by identity: who made them where, which module holds them, which optimizer ever held them.

Only weak references are kept: a strong one to a replaced head would hide exactly the fault that is looked for.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from weaklink.collector.evidence import GradientState, Site

# Digests of first gradients stop here in total; a run of billions of parameters must not wait for SHA-256.
FIRST_GRADIENT_DIGEST_BYTES = 512 * 1024 * 1024


# A dotted path, and the serial number of the outermost module it starts from: one place in one model.
Place = tuple[str, int]


@dataclass
class ParameterEntry:
    """One parameter object. `order` counts creations of parameters and optimizers on one clock."""

    serial: int
    ref: weakref.ref[Tensor]
    shape: tuple[int, ...]
    dtype: str
    is_parameter: bool
    created: Site | None = None
    created_by: Site | None = None
    order: int | None = None
    name: str | None = None
    root: int | None = None
    places: frozenset[Place] = frozenset()
    places_at_optimizer: frozenset[Place] = frozenset()
    requires_grad: bool = True
    in_model: bool = False
    ever_in_model: bool = False
    owners: list[int] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    gradient: GradientState | None = None
    gradient_norm_first: float | None = None
    gradient_digest_first: str | None = None
    digest_first: str | None = None
    states: list[GradientState] = field(default_factory=list)
    reached: bool | None = None
    forward_ran: bool = False


@dataclass
class Slot:
    """Where a module hangs in its parent."""

    parent: weakref.ref[nn.Module]
    name: str


class ParameterBook:
    """Serial numbers, names and history of every parameter the run registered."""

    def __init__(self) -> None:
        self.entries: list[ParameterEntry] = []
        self._by_id: dict[int, ParameterEntry] = {}
        self._module_slots: dict[int, tuple[weakref.ref[nn.Module], Slot]] = {}
        self._module_serials: dict[int, tuple[weakref.ref[nn.Module], int]] = {}
        self._parameter_slots: dict[int, list[Slot]] = {}

    def entry(self, tensor: Tensor) -> ParameterEntry:
        """The entry of exactly this object; made now when it is new."""
        known = self._by_id.get(id(tensor))
        if known is not None and known.ref() is tensor:
            return known
        made = ParameterEntry(
            serial=len(self.entries),
            ref=weakref.ref(tensor),
            shape=tuple(tensor.shape) if not is_lazy(tensor) else (),
            dtype=str(tensor.dtype).removeprefix("torch."),
            is_parameter=isinstance(tensor, nn.Parameter),
            requires_grad=tensor.requires_grad,
        )
        self.entries.append(made)
        self._by_id[id(tensor)] = made
        return made

    def registered(self, module: nn.Module, name: str, tensor: Tensor) -> ParameterEntry:
        """A parameter was put into a module."""
        made = self.entry(tensor)
        self._parameter_slots.setdefault(made.serial, []).append(Slot(weakref.ref(module), name))
        return made

    def module_registered(self, parent: nn.Module, name: str, child: nn.Module) -> None:
        """A module was put into another."""
        self._module_slots[id(child)] = (weakref.ref(child), Slot(weakref.ref(parent), name))

    def places(self, serial: int) -> frozenset[Place]:
        """Where a parameter hangs now, by what registration showed; several places when it is tied."""
        found = (self._place(slot) for slot in self._parameter_slots.get(serial, []))
        return frozenset(place for place in found if place is not None)

    def _place(self, slot: Slot) -> Place | None:
        parts, module = [slot.name], slot.parent()
        # A module that registers itself below itself would never end.
        while module is not None and len(parts) < 64:
            known = self._module_slots.get(id(module))
            above = known[1].parent() if known is not None and known[0]() is module else None
            if known is None or above is None:
                return ".".join(reversed(parts)), self._module_serial(module)
            parts.append(known[1].name)
            module = above
        return None

    def _module_serial(self, module: nn.Module) -> int:
        known = self._module_serials.get(id(module))
        if known is None or known[0]() is not module:
            known = (weakref.ref(module), len(self._module_serials))
            self._module_serials[id(module)] = known
        return known[1]

    def alive(self) -> list[tuple[ParameterEntry, Tensor]]:
        """Entries whose object still exists."""
        return [(entry, tensor) for entry in self.entries if (tensor := entry.ref()) is not None]


@dataclass
class RootEntry:
    """A module the script itself called, by identity."""

    serial: int
    ref: weakref.ref[nn.Module]
    class_name: str
    name: str = ""


class RootBook:
    """The script's own models: modules called at depth 0 with gradients enabled, that hold parameters."""

    def __init__(self) -> None:
        self.entries: list[RootEntry] = []
        self._by_id: dict[int, RootEntry] = {}

    def entry(self, module: nn.Module) -> RootEntry | None:
        """The entry of this root; None for a module without parameters (a loss)."""
        known = self._by_id.get(id(module))
        if known is not None and known.ref() is module:
            return known
        if next(module.parameters(), None) is None:
            return None
        made = RootEntry(len(self.entries), weakref.ref(module), type(module).__name__)
        self.entries.append(made)
        self._by_id[id(module)] = made
        return made

    def alive(self) -> list[tuple[RootEntry, nn.Module]]:
        return [(entry, module) for entry in self.entries if (module := entry.ref()) is not None]

    def trainable(self) -> int:
        """How many parameters of the live roots are trainable now."""
        return sum(tensor.requires_grad for _, module in self.alive() for tensor in module.parameters())

    def prefixes(self) -> dict[int, str]:
        """Prefix of parameter names by root: none where there is one root, else the class name, numbered when repeated.

        A root inside another one (a submodule also called directly) takes the outer one's names.
        """
        alive = self.alive()
        inner = {id(sub) for _, module in alive for sub in module.modules() if sub is not module}
        outer = [(entry, module) for entry, module in alive if id(module) not in inner]
        if len(outer) <= 1:
            return {entry.serial: "" for entry, _ in outer}
        counts: dict[str, int] = {}
        names: dict[int, str] = {}
        for entry, _ in outer:
            counts[entry.class_name] = counts.get(entry.class_name, 0) + 1
            number = counts[entry.class_name]
            names[entry.serial] = f"{entry.class_name}{number if number > 1 else ''}."
        return names


def name_parameters(parameters: ParameterBook, roots: RootBook) -> None:
    """Give every parameter in a live root its name, and say which ones are in a model now."""
    if not roots.alive():
        return  # the script is past its end and its models are gone: what they were last stands
    for entry in parameters.entries:
        entry.in_model = False
    prefixes = roots.prefixes()
    for root, module in roots.alive():
        if root.serial not in prefixes:
            continue
        for name, tensor in module.named_parameters():
            entry = parameters.entry(tensor)
            entry.name = prefixes[root.serial] + name
            entry.root = root.serial
            entry.in_model = entry.ever_in_model = True
            entry.requires_grad = tensor.requires_grad
            entry.places = parameters.places(entry.serial)
            if entry.shape == () and not is_lazy(tensor):
                entry.shape = tuple(tensor.shape)


def is_lazy(tensor: Any) -> bool:
    """Whether it is a parameter or buffer of a lazy module that has not run yet: it has no shape to read."""
    return bool(nn.parameter.is_lazy(tensor))
