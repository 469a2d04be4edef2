"""Names of autograd nodes, and what stands before one. Reads `next_functions` and the sizes a node keeps, no tensor."""

from __future__ import annotations

from typing import Any

from torch.autograd.function import FunctionCtx

# Key in a node's metadata, which torch keeps for whoever wants it: where the user's code called the operation.
SITE = "weaklink.site"
# Operations that change shape or place and no value.
_SHAPE_ONLY = frozenset(
    {
        "ViewBackward0",
        "UnsafeViewBackward0",
        "ReshapeAliasBackward0",
        "TransposeBackward0",
        "TBackward0",
        "PermuteBackward0",
        "SqueezeBackward0",
        "SqueezeBackward1",
        "UnsqueezeBackward0",
        "CloneBackward0",
        "SelectBackward0",
        "SliceBackward0",
        "IndexBackward0",
        "ToCopyBackward0",
        "AliasBackward0",
        "ExpandBackward0",
    }
)
# Arithmetic between what a layer gives and a loss that takes it: biases, temperatures, sums over features.
_ARITHMETIC = frozenset(
    {
        "AddBackward0",
        "SubBackward0",
        "RsubBackward1",
        "NegBackward0",
        "MulBackward0",
        "DivBackward0",
        "SumBackward0",
        "SumBackward1",
        "MeanBackward0",
        "MeanBackward1",
        "StackBackward0",
        "CatBackward0",
    }
)
# Layers and activations: what they give is a raw score, unless something else follows.
_LAYERS = frozenset(
    {
        "AddmmBackward0",
        "MmBackward0",
        "MvBackward0",
        "BmmBackward0",
        "BaddbmmBackward0",
        "ConvolutionBackward0",
        "ReluBackward0",
        "LeakyReluBackward0",
        "GeluBackward0",
        "SiluBackward0",
        "EluBackward0",
        "HardtanhBackward0",
        "TanhBackward0",
        "SigmoidBackward0",
        "SoftmaxBackward0",
        "NativeBatchNormBackward0",
        "CudnnBatchNormBackward0",
        "NativeLayerNormBackward0",
        "NativeDropoutBackward0",
        "MaxPool2DWithIndicesBackward0",
        "AvgPool2DBackward0",
        "EmbeddingBackward0",
        "torch::autograd::AccumulateGrad",
    }
)
# What turns unreduced losses into one number.
_WEIGHED = ("MulBackward", "DivBackward", "AddBackward", "SumBackward", "MeanBackward", "DotBackward")
# A log-density has a distance in it, and may exceed zero by right.
_DISTANCES = frozenset({"PowBackward0", "AbsBackward0"})
# What log-probabilities are made with. Scaled or shifted afterwards they may exceed zero.
_LOGARITHMS = frozenset(
    {"LogSoftmaxBackward0", "LogBackward0", "Log1PBackward0", "LogsumexpBackward0", "LogSigmoidBackward0"}
)


def name_of(node: Any) -> str:
    """The node's name; empty for a custom Function whose user put a `name` of their own on its `ctx`."""
    return str(node.name()) if node is not None and callable(node.name) else ""


def before(node: Any, position: int = 0) -> Any:
    """The node that an input comes from, None at an end."""
    following = node.next_functions if node is not None else ()
    return following[position][0] if position < len(following) else None


def feeding(node: Any, position: int = 0) -> Any:
    """The node an input comes from, past at most eight operations that only change shape or place."""
    inner = before(node, position)
    for _ in range(8):
        if name_of(inner) not in _SHAPE_ONLY:
            break
        inner = before(inner)
    return inner


def axis_of(node: Any, dimensions: int) -> int:
    """The dimension of a softmax or log-softmax, counted from the front; the node keeps -1 without its sign."""
    kept = int(node._saved_dim)
    return (kept - 2**64 if kept >= 2**63 else kept) % max(dimensions, 1)


def sources(node: Any) -> set[str]:
    """Names of what stands before a node, past arithmetic and changes of shape; a square counts as a power."""
    found: set[str] = set()
    queue, seen = [before(node)], {node}
    while queue and len(seen) < 64:
        inner = queue.pop()
        if inner is None or inner in seen:
            continue
        seen.add(inner)
        following = [following for following, _ in inner.next_functions]
        if _is_square(inner):
            found.add("PowBackward0")
        elif name_of(inner) in _ARITHMETIC or name_of(inner) in _SHAPE_ONLY:
            queue += following
        else:
            found.add(name_of(inner))
    return found


def _is_square(node: Any) -> bool:
    """Whether it multiplies something by itself, a constant factor aside."""
    if name_of(node) != "MulBackward0" or before(node, 0) is None or before(node, 1) is None:
        return False
    return _unscaled(before(node, 0)) is _unscaled(before(node, 1))


def _unscaled(node: Any) -> Any:
    for _ in range(8):
        scaled = name_of(node) in ("MulBackward0", "DivBackward0") and before(node, 1) is None
        if not scaled and name_of(node) != "NegBackward0":
            break
        node = before(node)
    return node


def gives_raw_scores(node: Any) -> bool:
    """Whether nothing but layers stands before a loss over classes: what it takes are no logarithms."""
    found = sources(node)
    return bool(found) and found <= _LAYERS


def may_take_densities(node: Any) -> bool:
    """Whether a distance stands before a loss over classes, as it does in a log-density."""
    return bool(sources(node) & _DISTANCES)


def is_gathered(path: list[str]) -> bool:
    """Whether what is done with an unreduced loss is more than weighing and adding up: then it was no loss yet.

    `-F.nll_loss(scores, y, reduction="none")` picks each row's score; margins and temporal differences are made of it.
    """
    return any(not name.startswith(_WEIGHED) and name not in _SHAPE_ONLY for name in path)


def makes_logarithms(node: Any) -> bool:
    """Whether a node takes a logarithm, or is written in Python (a custom Function, a compiled graph) and may."""
    return name_of(node) in _LOGARITHMS or isinstance(node, FunctionCtx)
