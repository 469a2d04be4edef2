"""How the functions of torch that an experiment can change are spelled, and the range in which each is finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

OWNERS = (torch, Tensor, functional, torch.special, torch.linalg)
# Besides the name itself and the one with an underscore behind it.
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "add": ("__add__", "__radd__", "__iadd__"),
    "sub": ("__sub__", "__rsub__", "__isub__", "subtract", "rsub"),
    "mul": ("__mul__", "__rmul__", "__imul__", "multiply"),
    "div": ("__truediv__", "__rtruediv__", "__itruediv__", "divide", "true_divide"),
    "pow": ("__pow__", "__rpow__", "__ipow__", "float_power"),
    "abs": ("__abs__", "absolute"),
    "matmul": ("__matmul__", "__rmatmul__", "mm", "bmm"),
    "clamp": ("clip", "clamp_min", "clamp_max"),
    "norm": ("vector_norm", "matrix_norm"),
    "acos": ("arccos",),
    "asin": ("arcsin",),
    "atanh": ("arctanh",),
    "hardtanh": ("relu6",),
}
# Where a small number is wanted that no square root or quotient turns into an infinity.
SMALL = 1e-12
_REFLECTED = ("__rtruediv__", "__rpow__", "rsub", "__rsub__")


def spellings(function: str) -> list[str]:
    """Every attribute of `OWNERS` that carries the function out, its forms that write in place included."""
    names = (function, *_SPELLINGS.get(function, ()))
    return [spelled for name in names for spelled in (name, *([] if name.endswith("__") else [f"{name}_"]))]


def ranged_argument(function: str, spelled: str) -> int:
    """Position of the argument whose range matters: the denominator of a quotient, the base of a power, else the first.

    A reflected operator is found on what stands right of it.
    """
    second = function == "div" if spelled not in _REFLECTED else function == "pow"
    return 1 if second else 0


def writes_in_place(spelled: str) -> bool:
    """Whether the spelling writes into its first argument."""
    return spelled.startswith("__i") or (spelled.endswith("_") and not spelled.endswith("__"))


def second_operand(spelled: str) -> int:
    """Position of what stands right of the operator: of a reflected one that is the tensor it was found on."""
    return 0 if spelled in _REFLECTED else 1


def small(dtype: torch.dtype) -> float:
    """`SMALL`, or the smallest normal number of a type that does not reach it."""
    return max(SMALL, torch.finfo(dtype).tiny)


def within_range(function: str, argument: Tensor, exponent: Any = None) -> Tensor:
    """The argument, its entries beyond the range moved to the nearest end. Values within it stay bit for bit.

    Moved entries pass no gradient on, as `torch.clamp` has it.
    """
    if function == "pow" and not _singular(exponent):
        return argument
    keep = _RANGES.get(function)
    return argument if keep is None else keep(argument)


def _singular(exponent: Any) -> bool:
    """Whether a power has an infinite value or derivative at zero."""
    return isinstance(exponent, Tensor) or not isinstance(exponent, (int, float)) or (exponent < 1 and exponent != 0)


def _positive(argument: Tensor) -> Tensor:
    return argument.clamp(min=small(argument.dtype))


def _away_from_zero(argument: Tensor) -> Tensor:
    least = small(argument.dtype)
    replaced = torch.where(argument < 0, -least, least).to(argument.dtype)
    return torch.where(argument.abs() < least, replaced, argument)


def _exponent(argument: Tensor) -> Tensor:
    return argument.clamp(max=math.floor(math.log(torch.finfo(argument.dtype).max)))


def _inside_one(argument: Tensor) -> Tensor:
    most = 1 - torch.finfo(argument.dtype).eps
    return argument.clamp(-most, most)


def _above_minus_one(argument: Tensor) -> Tensor:
    return argument.clamp(min=-1 + torch.finfo(argument.dtype).eps)


def _finite(argument: Tensor) -> Tensor:
    limits = torch.finfo(argument.dtype)
    return argument.clamp(limits.min, limits.max)


_RANGES: dict[str, Callable[[Tensor], Tensor]] = {
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10"), _positive),
    **dict.fromkeys(("pow", "div", "reciprocal"), _away_from_zero),
    **dict.fromkeys(("exp", "expm1"), _exponent),
    **dict.fromkeys(("acos", "asin", "atanh"), _inside_one),
    "log1p": _above_minus_one,
    **dict.fromkeys(("softmax", "log_softmax", "logsumexp"), _finite),
}
