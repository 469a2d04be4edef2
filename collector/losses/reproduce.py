"""From a callable, outputs and targets to the loss by hand."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from weaklink.collector.losses.by_hand import ByHand, Unreduced, reduce
from weaklink.collector.losses.classes import ClassOptions, index_loss, log_probabilities, probability_loss
from weaklink.collector.losses.elementwise import (
    binary_from_probabilities,
    binary_from_scores,
    divergence,
    regression,
)

# The module class beside the function that it calls: its attributes carry the function's own argument names.
_FUNCTION_OF: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.CrossEntropyLoss: functional.cross_entropy,
    nn.NLLLoss: functional.nll_loss,
    nn.BCELoss: functional.binary_cross_entropy,
    nn.BCEWithLogitsLoss: functional.binary_cross_entropy_with_logits,
    nn.MSELoss: functional.mse_loss,
    nn.L1Loss: functional.l1_loss,
    nn.SmoothL1Loss: functional.smooth_l1_loss,
    nn.HuberLoss: functional.huber_loss,
    nn.KLDivLoss: functional.kl_div,
}
_REGRESSIONS: dict[Callable[..., Tensor], str] = {
    functional.mse_loss: "mean squared error",
    functional.l1_loss: "mean absolute error",
    functional.smooth_l1_loss: "smooth L1",
    functional.huber_loss: "Huber",
}


def reproduce(loss_fn: Any, outputs: Any, targets: Any) -> ByHand | None:
    """Compute a loss again by hand.

    Args:
        loss_fn: A loss of `torch.nn.functional`, a `functools.partial` of one, or an instance of exactly its module
            class: cross entropy, negative log-likelihood, binary cross entropy with or without logits, mean squared
            and absolute error, smooth L1, Huber, Kullback-Leibler divergence.
        outputs: What the loss was given first.
        targets: What it was given second.

    Returns:
        The loss by hand, or None: any other callable, or arguments that torch's own loss refuses. Makes no graph and
        draws no random number.
    """
    known = _recognise(loss_fn)
    if known is None or not _plain(outputs) or not _plain(targets) or not outputs.is_floating_point():
        return None
    function, options = known
    reduction = _reduction(options)
    if reduction not in ("mean", "sum", "none") and not (reduction == "batchmean" and function is functional.kl_div):
        return None
    with torch.no_grad():
        try:
            unreduced = _unreduced(function, options, outputs, targets.to(outputs.device))
        except RuntimeError:  # shapes that do not broadcast, a device without room: torch's own loss will say so
            return None
        return None if unreduced is None else reduce(unreduced, reduction, outputs, targets)


def _recognise(loss_fn: Any) -> tuple[Callable[..., Tensor], Mapping[str, Any]] | None:
    """The function of `torch.nn.functional` behind a callable, and every option it runs with."""
    if (function := _FUNCTION_OF.get(type(loss_fn))) is not None and "forward" not in vars(loss_fn):
        given = {name: getattr(loss_fn, name, None) for name in _defaults(function)}
        # A module has no legacy options of its own: it turned them into its reduction.
        return function, {**_defaults(function), **{name: value for name, value in given.items() if value is not None}}
    given = {}
    if isinstance(loss_fn, functools.partial) and not loss_fn.args:
        loss_fn, given = loss_fn.func, loss_fn.keywords
    if not inspect.isfunction(loss_fn) or loss_fn not in _FUNCTION_OF.values():
        return None
    defaults = _defaults(loss_fn)
    return (loss_fn, {**defaults, **given}) if given.keys() <= defaults.keys() else None


@functools.cache
def _defaults(function: Callable[..., Tensor]) -> dict[str, Any]:
    # Read from the installed torch: a weight for regressions, for one, came with later versions.
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def _plain(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.is_meta or value.is_nested or value.is_complex():
        return False
    return value.layout == torch.strided


def _reduction(options: Mapping[str, Any]) -> str:
    average, whole = options.get("size_average"), options.get("reduce")
    if average is None and whole is None:
        return str(options["reduction"])
    if whole is False:
        return "none"
    return "sum" if average is False else "mean"


def _unreduced(
    function: Callable[..., Tensor], options: Mapping[str, Any], outputs: Tensor, targets: Tensor
) -> Unreduced | None:
    weight: Tensor | None = options.get("weight")
    if function in (functional.cross_entropy, functional.nll_loss):
        return _over_classes(function, options, outputs, targets)
    if function in _REGRESSIONS:
        width = options.get("beta", options.get("delta", 1.0))
        return regression(_REGRESSIONS[function], outputs, targets, float(width), weight)
    if function is functional.kl_div:
        return divergence(outputs, targets, bool(options["log_target"]))
    if outputs.shape != targets.shape:
        return None
    if function is functional.binary_cross_entropy:
        return binary_from_probabilities(outputs, targets, weight)
    return binary_from_scores(outputs, targets, weight, options["pos_weight"])


def _over_classes(
    function: Callable[..., Tensor], options: Mapping[str, Any], outputs: Tensor, targets: Tensor
) -> Unreduced | None:
    chosen = ClassOptions(options["weight"], int(options["ignore_index"]), float(options.get("label_smoothing", 0.0)))
    if not outputs.dim():
        return None
    if function is functional.nll_loss:
        return index_loss(outputs, targets, chosen, "negative log-likelihood")
    logs = log_probabilities(outputs)
    if targets.shape == outputs.shape:
        return probability_loss(logs, targets, chosen)
    return index_loss(logs, targets, chosen, "cross entropy")
