"""Which parameters an optimizer step moved, and by how much: a copy before, a comparison after.

By snapshot and not by version counter: fused optimizers do not bump it. A copy lives for one sampled step; that of the
first step lives until the dense window ends, or with `keep_initial` to the end of the run, for net movement: what one
step moves, the next may take back.
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor
from torch.optim import Optimizer

from weaklink.collector.tensors import differ, movements, norms
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.parameters import ParameterBook, is_lazy

# Frozen tensors are copied too, to prove that they stay; above this many entries only trainable ones are.
FROZEN_ENTRIES_LIMIT = 50_000_000
BY_HAND_ENTRIES_LIMIT = 10_000_000
# Counting entries reads parameter, copy and gradient once more: only at an optimizer's first sampled step, and so many.
COUNTED_ENTRIES = 65_536


class Movement:
    """Snapshots around steps."""

    def __init__(self, parameters: ParameterBook, keep_initial: bool) -> None:
        self._parameters = parameters
        self._keep_initial = keep_initial
        self._net: dict[int, float] | None = None
        self._before: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}
        self._gradient_norm: float | None = None
        self._initial: dict[int, Tensor] = {}
        self._seen: dict[int, float] = {}
        self._at_first_backward: dict[int, Tensor] = {}
        self._loose: dict[int, Tensor] = {}
        self._borrowed: dict[int, Tensor] = {}
        self._gradients: dict[int, Tensor] = {}
        self._counted: set[int] = set()
        # Inner product of the last counted step's movement and its gradient: above zero, the step went uphill.
        self.along: float | None = None

    def borrow(self, copies: dict[int, Tensor]) -> None:
        """Use these copies (by `id` of the parameter) for the first step, instead of making a second set."""
        self._borrowed = copies

    def at_first_backward(self) -> None:
        """Copy the trainable parameters, so that a loop that updates them by hand is told from one that never steps."""
        total = 0
        for entry, tensor in self._parameters.alive():
            if entry.in_model and tensor.requires_grad and tensor.device.type != "meta":
                if is_lazy(tensor):
                    continue
                total += tensor.numel()
                if total > BY_HAND_ENTRIES_LIMIT:
                    break
                self._at_first_backward[entry.serial] = tensor.detach().clone()

    def loose_leaves(self, leaves: set[int]) -> None:
        """Copy parameters that a loss reaches and no model holds: the script may update them by hand."""
        total = 0
        for entry, tensor in self._parameters.alive():
            if entry.serial in leaves and entry.is_parameter and not entry.in_model and not entry.owners:
                total += tensor.numel()
                if total <= BY_HAND_ENTRIES_LIMIT:
                    self._loose[entry.serial] = tensor.detach().clone()

    def loose_moved(self) -> set[int]:
        """Which of those have changed since, by whatever hand."""
        live = [
            (e.serial, t.detach(), self._loose[e.serial])
            for e, t in self._parameters.alive()
            if e.serial in self._loose
        ]
        pairs = [(serial, now.to(then.device), then) for serial, now, then in live if now.shape == then.shape]
        moved = differ([(now, then) for _, now, then in pairs])
        return {serial for (serial, _, _), has in zip(pairs, moved, strict=True) if has}

    def moved_without_step(self) -> bool | None:
        """Whether any of them differs now; None when none was copied."""
        live = [
            (tensor.detach(), self._at_first_backward[entry.serial])
            for entry, tensor in self._parameters.alive()
            if entry.serial in self._at_first_backward and entry.reached
        ]
        # The script may have moved its model since, as `_since_initial` says.
        pairs = [(now.to(then.device), then) for now, then in live if now.shape == then.shape]
        return any(differ(pairs)) if pairs else None

    def before(self, optimizer: Optimizer, entry: OptimizerEntry) -> None:
        """Copy everything that could move, and measure the gradient the step is about to consume."""
        self._at_first_backward.clear()
        chosen = self._candidates(set(entry.held))
        with torch.no_grad():
            self._before = {serial: (weakref.ref(t), self._copy(t)) for serial, t in chosen.items()}
            self._borrowed = {}
            if self._net is None:
                for serial, (_, copy) in self._before.items():
                    self._initial.setdefault(serial, copy)
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        # With a closure the gradients do not exist yet.
        self._gradient_norm = _joint(norms(gradients)) if gradients else None
        self._gradients = {}
        if entry.serial not in self._counted:
            self._counted.add(entry.serial)
            held = set(entry.held)
            self._gradients = {s: t.grad for s, t in chosen.items() if s in held and t.grad is not None}

    def _copy(self, tensor: Tensor) -> Tensor:
        known = self._borrowed.get(id(tensor))
        same_place = known is not None and known.device == tensor.device and known.shape == tensor.shape
        return known if known is not None and same_place else tensor.detach().clone()

    def still_entries(self) -> tuple[int, int] | None:
        """Entries of the stepping optimizer with a gradient: how many did not move, and of how many. Before `after`.

        Of each parameter the first `COUNTED_ENTRIES` are looked at.
        """
        gradients, self._gradients = self._gradients, {}
        counts: list[Tensor] = []
        along: list[Tensor] = []
        with torch.no_grad():
            for serial, gradient in gradients.items():
                ref, copy = self._before[serial]
                now = ref()
                # A sparse gradient has none for most rows; a step that changes the shape is no movement.
                if now is None or now.shape != copy.shape or gradient.layout != torch.strided:
                    continue
                now, copy, gradient = (_first_entries(tensor) for tensor in (now, copy, gradient))
                live = gradient != 0
                counts.append(torch.stack([((now == copy) & live).sum(), live.sum()]))
                along.append(_inner(now, copy, gradient))
        self.along = None
        if not counts:
            return None
        self.along = float(torch.stack([value.to(along[0].device) for value in along]).sum())
        still, total = torch.stack([count.to(counts[0].device) for count in counts]).sum(dim=0).tolist()
        return int(still), int(total)

    def _candidates(self, held: set[int]) -> dict[int, Tensor]:
        chosen: dict[int, Tensor] = {}
        frozen = 0
        for entry, tensor in self._parameters.alive():
            if not (entry.in_model or entry.serial in held) or tensor.device.type == "meta":
                continue
            if is_lazy(tensor):
                continue
            if not tensor.requires_grad:
                frozen += tensor.numel()
                if frozen > FROZEN_ENTRIES_LIMIT:
                    continue
            chosen[entry.serial] = tensor
        return chosen

    def after(self) -> tuple[dict[int, float], dict[int, float], dict[int, bool], float | None]:
        """Norms before, norms of the movement, moved or not (bitwise), norm of the consumed gradient."""
        live = [(serial, ref(), copy) for serial, (ref, copy) in self._before.items()]
        kept = [(s, t.detach(), c) for s, t, c in live if t is not None and t.shape == c.shape]
        self._before = {}
        with torch.no_grad():
            moved, deltas, lengths = movements([(now, copy) for _, now, copy in kept])
        serials = [serial for serial, _, _ in kept]
        by_serial = dict(zip(serials, deltas, strict=True))
        # At the first step the movement since the beginning is that of the step.
        first = {serial for serial, _, copy in kept if self._initial.get(serial) is copy}
        self._seen.update({serial: by_serial[serial] for serial in first})
        self._seen.update(self._since_initial([(serial, now) for serial, now, _ in kept if serial not in first]))
        return (
            dict(zip(serials, lengths, strict=True)),
            by_serial,
            dict(zip(serials, moved, strict=True)),
            self._gradient_norm,
        )

    def net_of_sampled_steps(self) -> dict[int, float]:
        """The same as `net` where nothing but sampled steps has moved anything: read from what they measured."""
        return dict(self._seen)

    def dense_window_ended(self) -> None:
        """Measure the net movement of the dense window and let its copies go, unless they are to be kept."""
        if not self._keep_initial and self._net is None:
            self._net = self.net()
            self._initial.clear()

    def net(self) -> dict[int, float]:
        """Norm of each parameter's movement since the first step, over the dense window or (`keep_initial`) the run."""
        if self._net is not None:
            return self._net
        live = [(e.serial, t.detach()) for e, t in self._parameters.alive() if e.serial in self._initial]
        # A model that lived in a function is gone at the end: what it was at its last sampled step stands.
        return {**self._seen, **self._since_initial(live)}

    def _since_initial(self, tensors: list[tuple[int, Tensor]]) -> dict[int, float]:
        """Norm of each tensor's movement since the first step, for those that were there then."""
        pairs = [
            (serial, now, self._initial[serial])
            for serial, now in tensors
            if serial in self._initial and now.shape == self._initial[serial].shape
        ]
        with torch.no_grad():
            # The script may have moved its model since, `model.cpu()` at the end being the usual way.
            lengths = norms([now.to(first.device) - first for _, now, first in pairs])
        return {serial: length for (serial, _, _), length in zip(pairs, lengths, strict=True)}


def _inner(now: Tensor, before: Tensor, gradient: Tensor) -> Tensor:
    """Movement times gradient, summed; in float32 at least."""
    wide = torch.promote_types(gradient.dtype, torch.float32)
    return ((now.to(wide) - before.to(wide)) * gradient.to(wide)).real.sum().float()


def _first_entries(tensor: Tensor) -> Tensor:
    """About the first `COUNTED_ENTRIES` of a tensor: whole rows, whatever its strides."""
    if tensor.numel() <= COUNTED_ENTRIES:
        return tensor
    return tensor[: max(1, COUNTED_ENTRIES * len(tensor) // tensor.numel())]


def _joint(lengths: list[float]) -> float:
    return float(sum(length * length for length in lengths) ** 0.5)
