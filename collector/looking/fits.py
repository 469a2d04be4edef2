"""Whether one pinned batch can be fitted by the run's own model and optimizers, and what keeps it from being fitted.

Asked only of a run that never did better than a constant output. The control changes one thing at a time: no dropout,
no weight decay, weights rescaled so that each layer passes on the differences between examples.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weaklink.collector.looking.batches import TrainingBatch, floating, fresh, quiet
from weaklink.collector.looking.places import Place, Places
from weaklink.collector.preserve import preserved

# Steps of one fit. A network that can learn at all fits a batch of some dozen rows in fewer.
STEPS = 100  # a multiple of five: every fifth is looked at
# Seconds for all fits of a run together: what takes longer was not measured.
SECONDS = 8.0
# Rows that are pinned: so few are learned by heart, whatever their targets.
ROWS = 32
_LAYERS = (nn.Linear, nn.modules.conv._ConvNd)


def look_at_fits(
    model: nn.Module, optimizers: Sequence[Optimizer], batch: TrainingBatch, places: Places
) -> dict[str, Any]:
    """Fit the batch as the run would, and with one thing changed at a time.

    Returns:
        `constant`: what the best constant output reaches; `fits`: by name, the loss in eval mode of dropout before and
        after, and the step at which it first lay below the constant (None: at none); `signal`: how much the outputs of
        each layer differ between examples, relative to their size, in order; `faintest`: where the layer was made of
        which they differ least; `dropout`: the highest rate, and `dropping`: where it is called.

    Raises:
        ValueError: The objective is not recognised, no optimizer holds the model, or it took too long.
    """
    if batch.objective is None:
        raise ValueError("the loss is none that is recognised in the graph")
    own = [optimizer for optimizer in optimizers if _holds(optimizer, model)]
    if not own or any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in own):
        raise ValueError("no optimizer that steps without a closure holds the model")
    dropouts = [m for m in model.modules() if isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 and m.training]
    decayed = [group for optimizer in own for group in optimizer.param_groups if group.get("weight_decay")]
    batch = batch.first_rows(ROWS)
    assert batch.objective is not None
    until = time.process_time() + SECONDS
    signal, faintest = _signal(model, batch)
    fits = {"as it is": _fit(model, own, batch, until)}
    if fits["as it is"]["below"] is None:
        if dropouts:
            fits["without dropout"] = _fit(model, own, batch, until, lambda: _without_dropout(dropouts))
        if decayed:
            fits["without weight decay"] = _fit(model, own, batch, until, lambda: _without_decay(decayed))
        if len(signal) > 2:
            fits["rescaled"] = _fit(model, own, batch, until, lambda: _rescale(model, batch))
    return {
        "constant": batch.objective.constant(),
        "fits": fits,
        "signal": signal,
        "faintest": places.made(faintest) if faintest is not None else [],
        "dropping": _dropping(model, batch, dropouts, places),
        "dropout": max((float(module.p) for module in dropouts), default=0.0),
        "decay": max((float(group["weight_decay"]) for group in decayed), default=0.0),
        "steps": STEPS,
    }


def _holds(optimizer: Optimizer, model: nn.Module) -> bool:
    own = {id(parameter) for parameter in model.parameters()}
    return any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"])


def _fit(
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    batch: TrainingBatch,
    until: float,
    change: Callable[[], None] | None = None,
) -> dict[str, Any]:
    assert batch.objective is not None
    constant = batch.objective.constant()
    with ExitStack() as stack:
        stack.enter_context(preserved([model], optimizers))
        if change is not None:
            change()
        first = last = _quiet_loss(model, batch)
        below: int | None = None
        for step in range(1, STEPS + 1):
            _step(model, optimizers, batch, step)
            if step % 5 == 0:
                last, before = _quiet_loss(model, batch), last
                below = step if below is None and last < constant else below
                if last < constant and before < constant:
                    break  # twice in a row: it is fitted
            if time.process_time() > until:
                raise ValueError(f"the fits of one batch took longer than {SECONDS:g} s")
    below = below if last < constant else None
    return {"first": first, "last": last if math.isfinite(last) else None, "below": below}


def _step(model: nn.Module, optimizers: Sequence[Optimizer], batch: TrainingBatch, step: int) -> None:
    assert batch.objective is not None
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    with torch.enable_grad():
        torch.manual_seed(step)
        outputs = floating(model(*fresh(batch.args), **fresh(batch.kwargs)))
        batch.objective.loss(outputs).backward()  # type: ignore[no-untyped-call]
    for optimizer in optimizers:
        optimizer.step()


def _quiet_loss(model: nn.Module, batch: TrainingBatch) -> float:
    """The loss with dropout off; normalisation by the batch's own statistics where the model trains so."""
    modes = [(module, module.training) for module in model.modules()]
    with torch.no_grad():
        for module, _ in modes:
            if isinstance(module, (nn.modules.dropout._DropoutNd, nn.RNNBase, nn.MultiheadAttention)):
                module.training = False
        loss = float(batch.loss(model))
        for module, training in modes:
            module.training = training
    return loss


def _without_dropout(dropouts: Sequence[Any]) -> None:
    for module in dropouts:
        module.p = 0.0


def _without_decay(groups: Sequence[dict[str, Any]]) -> None:
    for group in groups:
        group["weight_decay"] = 0.0


def _dropping(model: nn.Module, batch: TrainingBatch, dropouts: Sequence[Any], places: Places) -> list[Place]:
    if not dropouts:
        return []
    with quiet(model):
        calls = places.of_calls(model, lambda: batch.outputs(model))
    highest = max(float(module.p) for module in dropouts)
    return next((place for module, place in calls if getattr(module, "p", None) == highest and place), [])


def _signal(model: nn.Module, batch: TrainingBatch) -> tuple[list[float], nn.Module | None]:
    """Per layer with weights, in the order of their calls: spread over the examples relative to the size of its output.

    The spread is the root mean square of what is left when the mean over the examples is taken off.
    """
    found: list[float] = []
    layers: list[nn.Module] = []

    def seen(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() > 1 and len(output) > 1:
            size = float(output.float().pow(2).mean().sqrt())
            found.append(_spread(output) / size if size > 0 else 0.0)
            layers.append(module)

    with quiet(model):
        handles = [module.register_forward_hook(seen) for module in model.modules() if isinstance(module, _LAYERS)]
        try:
            batch.outputs(model)
        finally:
            for handle in handles:
                handle.remove()
    return found, layers[found.index(min(found))] if found else None


def _spread(output: Tensor) -> float:
    values = output.detach().float()
    return float((values - values.mean(dim=0, keepdim=True)).pow(2).mean().sqrt())


def _rescale(model: nn.Module, batch: TrainingBatch) -> None:
    """Layer by layer, weights so large that the output's spread over the examples is 1, and no biases.

    Mishkin and Matas, "All you need is a good init" (2016), with the spread over examples in place of the variance.
    """

    def scaled(module: Any, args: Any, output: Any) -> Any:
        if not isinstance(output, Tensor) or output.dim() < 2 or len(output) < 2:
            return None
        spread = _spread(output)
        if not 0.0 < spread < float("inf"):
            return None
        module.weight.div_(spread)
        bias = module.bias
        shape = [1, -1, *[1] * (output.dim() - 2)] if isinstance(module, nn.modules.conv._ConvNd) else [-1]
        without = output - bias.reshape(shape) if bias is not None else output
        if bias is not None:
            bias.zero_()
        return without / spread

    handles = [module.register_forward_hook(scaled) for module in model.modules() if isinstance(module, _LAYERS)]
    try:
        with torch.no_grad():
            modes = [(module, module.training) for module in model.modules()]
            batch.outputs(model)
            for module, training in modes:
                module.training = training
    finally:
        for handle in handles:
            handle.remove()
