"""Names of torch's operations by what they do to a history. Names, as the function mode hands them over."""

from __future__ import annotations

ADDITION = frozenset({"add", "add_", "__add__", "__radd__", "__iadd__", "sub", "sub_", "__sub__", "__isub__"})
ADDITION |= {"subtract", "rsub", "__rsub__"}
SCALING = frozenset({"mul", "mul_", "multiply", "__mul__", "__rmul__", "__imul__", "div", "div_", "true_divide"})
SCALING |= {"__truediv__", "__itruediv__", "divide", "neg", "__neg__", "negative"}
# What hands a number, or several numbers side by side, on: nothing of the value is new.
GATHERING = frozenset({"sum", "mean", "stack", "cat", "concat", "squeeze", "squeeze_", "unsqueeze", "reshape", "view"})
GATHERING |= {"flatten", "clone", "contiguous", "to", "float", "double", "half", "bfloat16", "type", "cuda", "cpu"}
# Same entries, another shape, type or place.
SAME_ENTRIES = frozenset({"squeeze", "unsqueeze", "reshape", "view", "flatten", "clone", "contiguous", "to", "float"})
SAME_ENTRIES |= {"double", "cuda", "cpu", "detach", "data", "view_as", "reshape_as", "tensor", "as_tensor", "type_as"}

DETACHING = frozenset({"detach", "detach_", "data"})
COPYING = frozenset({"tensor", "as_tensor", "asarray", "from_numpy", "item", "numpy", "tolist", "__float__"})
# Where two operands of unlike shape are broadcast against each other, entry by entry.
ELEMENTWISE = frozenset({"add", "add_", "__add__", "__radd__", "sub", "sub_", "__sub__", "rsub", "__rsub__", "mul"})
ELEMENTWISE |= {"mul_", "__mul__", "__rmul__", "div", "div_", "true_divide", "__truediv__", "pow", "__pow__", "where"}
ELEMENTWISE |= {"subtract", "multiply", "divide", "maximum", "minimum"}
# What changes a shape because the user asked for it.
RESHAPING = frozenset({"unsqueeze", "view", "reshape", "__getitem__", "expand", "flatten", "unflatten", "T", "mT"})

LOSSES = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "cross_entropy", "nll_loss"})
LOSSES |= {"binary_cross_entropy", "binary_cross_entropy_with_logits", "poisson_nll_loss", "cosine_embedding_loss"}
# Losses that take an input and a target of the same kind, and are least where the two are equal.
DISTANCES = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})
# Losses whose input and target broadcast against each other.
BROADCASTING = DISTANCES | {"poisson_nll_loss"}

# Makes a tensor of nothing but numbers that stand in the code.
CONSTANT = frozenset({"zeros", "ones", "full", "eye", "arange", "linspace", "logspace", "empty", "zeros_like"})
CONSTANT |= {"ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty"}
_WRITING = frozenset({"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__"})


def name_of(function: object) -> str:
    """The name of a function that a mode was handed; that of the attribute, where one is read or written."""
    name = str(getattr(function, "__name__", ""))
    if name in ("__get__", "__set__"):
        return str(getattr(getattr(function, "__self__", None), "__name__", "")) + ("=" if name == "__set__" else "")
    return name


def writes_in_place(name: str) -> bool:
    """Whether its first operand is changed."""
    return name in _WRITING or (name.endswith("_") and not name.endswith("__"))
