"""One tensor object: where its values lie, and what autograd knows of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy


class TensorState:
    """What has to be put back around the values of a tensor; of one that is not strided, the values too.

    Restoring goes in three rounds over all tensors: places, values, roles. A gradient fits its tensor only when the
    tensor has its shape again.

    Attributes:
        tensor: The object itself.
        strided: Its values lie in plain memory, and are kept with those of its neighbours.
        clone: Its values, where they do not (sparse, quantized).
        leads_to: Objects that hang on it: its gradient, its hooks, its own attributes, the tensors it is made of.
    """

    __slots__ = ("_class", "_geometry", "_grad", "_home", "_hooks", "_leaf", "_requires_grad", "clone", "leads_to",
                 "strided", "tensor")  # fmt: skip

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._class = type(tensor)
        self._home = tensor.data
        foreign = self._class.__torch_dispatch__ is not Tensor.__torch_dispatch__
        parts = tensor.__tensor_flatten__()[0] if foreign and hasattr(tensor, "__tensor_flatten__") else ()
        # Neither a meta tensor nor an uninitialized parameter has values.
        empty = tensor.device.type == "meta" or is_lazy(tensor)
        self.strided = not (empty or foreign or tensor.is_quantized) and tensor.layout is torch.strided
        self._geometry = _geometry(tensor) if self.strided else None
        self.clone = None if self.strided or empty or parts else self._home.clone()
        self._leaf, self._requires_grad = tensor.is_leaf, tensor.requires_grad
        # Asking a tensor that is no leaf for its gradient warns.
        self._grad = tensor.grad if self._leaf or tensor.retains_grad else None
        self._hooks = _hooks(tensor)
        found = [self._grad, *self._hooks, tensor.__dict__ or None, *(getattr(tensor, name) for name in parts)]
        self.leads_to = [thing for thing in found if thing is not None]

    def restore_place(self) -> None:
        """Let it lie where it lay: same memory, shape and type."""
        moved = self.strided and _geometry(self.tensor) != self._geometry
        if type(self.tensor) is not self._class:  # a lazy parameter that met data
            self.tensor.__class__ = self._class
            moved = True
        if moved or self.clone is not None:
            self.tensor.data = self._home

    def restore_values(self) -> None:
        """Write the values of a tensor that is not strided."""
        if self.clone is not None:
            self.tensor.data.copy_(self.clone)

    def restore_role(self) -> None:
        """Be a leaf that wants a gradient, have that gradient and those hooks, as before."""
        tensor = self.tensor
        if self._leaf and not tensor.is_leaf:  # a buffer that a graph was written into
            tensor.detach_()
        if tensor.is_leaf and tensor.requires_grad is not self._requires_grad:
            tensor.requires_grad_(self._requires_grad)
        if (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not self._grad:
            tensor.grad = self._grad
        after_backward, after_accumulation = _hooks(tensor)
        if after_backward is not self._hooks[0]:
            tensor._backward_hooks = self._hooks[0]
        if after_accumulation is not self._hooks[1]:
            tensor._post_accumulate_grad_hooks = self._hooks[1]
        if tensor.__dict__ and not any(tensor.__dict__ is thing for thing in self.leads_to):
            tensor.__dict__.clear()  # it had no attributes of its own


def _hooks(tensor: Tensor) -> tuple[Any, Any]:
    # No public way to list a tensor's hooks; without these names hooks are left as the body left them.
    return getattr(tensor, "_backward_hooks", None), getattr(tensor, "_post_accumulate_grad_hooks", None)


def _geometry(tensor: Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        return ()
    place = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.device)
    return (*place, tensor.dtype, tensor.size(), tensor.stride())
