"""What is evaluated: is it in evaluation, are its statistics those of the data, are its weights the trained ones?

Each question is put to batches that the run trained on, whose targets are known: there a trained model is at its best.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from weaklink.collector.looking.batches import TrainingBatch, floating, fresh, in_mode, quiet
from weaklink.collector.looking.places import Places
from weaklink.collector.preserve import preserved
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.context import mode_matters

# The user's side of them: who says `training=True` there wants numbers that differ at each call.
_FUNCTIONAL = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
# torch's own functions below all of its dropouts, and the arguments that switch them on: (input, p, training).
_DROPOUTS = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
_MODULES = (nn.modules.dropout.__file__, nn.modules.activation.__file__, nn.modules.rnn.__file__)


@dataclass
class Trained:
    """The model that the run trains, batches that it saw, and its parameters at the first of them."""

    model: nn.Module
    batches: Sequence[TrainingBatch]
    initial: dict[str, Tensor] | None = None


def look_at_evaluation(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], trained: Trained | None, places: Places
) -> dict[str, Any]:
    """Everything about one model that is being evaluated.

    Args:
        model: What was called, without gradients or in eval mode.
        args: What it was called with.
        kwargs: The same by keyword.
        trained: What is trained; the same object, one of the same shape, or None.
        places: Tells where the user's code calls a dropout, or made a normalisation.
    """
    kinds = sorted({type(module).__name__ for module in model.modules() if mode_matters(module) and module.training})
    found: dict[str, Any] = {"mode": {"training": model.training, "modules": kinds}}
    looks: dict[str, Callable[[], dict[str, Any]]] = {
        "dropout": lambda: _dropout(model, args, kwargs, trained, places),
        "modes": lambda: _modes(model, trained),
        "buffers": lambda: _buffers(model, trained, places),
        "weights": lambda: _weights(model, trained),
    }
    for name, look in looks.items():
        try:
            found[name] = look()
        except Exception as error:  # the user's model, called in another way than it is made for
            found[name] = {"problem": f"it raised {type(error).__name__}: {str(error)[:160]}"}
    return found


# -- dropout ----------------------------------------------------------------------------------------------------------


def _dropout(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], trained: Trained | None, places: Places
) -> dict[str, Any]:
    """Two forwards of the same inputs in eval mode that draw other numbers, and the dropouts that dropped meanwhile.

    `differs` says whether the outputs do; `silenced` whether they agree once those dropouts are switched off;
    `denoises` whether the model is trained to give back its inputs.
    """
    if model.training:
        return {"problem": "the model is evaluated in train mode"}
    calls: list[dict[str, Any]] = []
    silent = [False]
    with preserved([model]), torch.no_grad(), _heard(calls, silent, places):
        first = _answer(model, args, kwargs, 1)
        if not calls:
            return {"calls": []}
        heard = list(calls)
        differs = not _equal(first, _answer(model, args, kwargs, 2))
        silent[0] = True
        silenced = _equal(_answer(model, args, kwargs, 1), _answer(model, args, kwargs, 2))
    denoises = trained is not None and any(_is_reconstruction(batch) for batch in trained.batches)
    return {"calls": heard[:3], "differs": differs, "silenced": silenced, "denoises": denoises}


def _is_reconstruction(batch: TrainingBatch) -> bool:
    """Whether the targets are the inputs: then what drops may be the corruption that the model is to undo."""
    targets = batch.objective.targets if batch.objective is not None else None
    inputs = tensors_in([batch.args, batch.kwargs])
    return targets is not None and any(
        tensor.numel() == targets.numel() and torch.equal(tensor.flatten().float(), targets.flatten().float())
        for tensor in inputs
    )


def _answer(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int) -> list[Tensor]:
    torch.manual_seed(seed)
    return floating(model(*fresh(args), **fresh(kwargs)))


def _equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@contextmanager
def _heard(calls: list[dict[str, Any]], silent: list[bool], places: Places) -> Iterator[None]:
    """Functional dropouts that drop are written down, with whether the call itself says that they shall (`asked`).

    They are switched off while `silent` holds.
    """
    undo: list[Callable[[], None]] = []
    asked: list[str] = []

    def asking(name: str) -> None:
        original = getattr(functional, name)

        def told(*given: Any, **named: Any) -> Any:
            if len(given) < 3 and "training" not in named:
                return original(*given, **named)
            asked.append(name)
            try:
                return original(*given, **named)
            finally:
                asked.pop()

        undo.append(lambda: setattr(functional, name, original))
        setattr(functional, name, told)

    def around(owner: Any, name: str, position: int, training: int | None) -> None:
        original = getattr(owner, name, None)
        if original is None:
            return

        def heard(*given: Any, **named: Any) -> Any:
            rate = _argument(given, named, position, ("p", "dropout_p"))
            on = training is None or bool(_argument(given, named, training, ("train", "training")))
            if not on or not rate or not float(rate) > 0.0 or _below_a_module():
                return original(*given, **named)
            if not any(call["name"] == name and call["p"] == float(rate) for call in calls):
                where = places.called(f"{name} called, switched on")
                calls.append({"name": name, "p": float(rate), "where": where, "asked": bool(asked)})
            if not silent[0]:
                return original(*given, **named)
            if training is None:
                given, named = given[:position], {**named, "dropout_p": 0.0}
                return original(*given, **named)
            return given[0] if given else named["input"]

        undo.append(lambda: setattr(owner, name, original))
        setattr(owner, name, heard)

    for owner in (torch._VF, torch):
        for name in _DROPOUTS:
            around(owner, name, 1, 2)
            around(owner, f"{name}_", 1, 2)
    for name in _FUNCTIONAL:
        asking(name)
    around(functional, "scaled_dot_product_attention", 4, None)
    try:
        yield
    finally:
        for give_back in reversed(undo):
            give_back()


def _argument(given: tuple[Any, ...], named: dict[str, Any], position: int, names: tuple[str, ...]) -> Any:
    if len(given) > position:
        return given[position]
    return next((named[name] for name in names if name in named), 0)


def _below_a_module() -> bool:
    """Whether a module of torch's own calls: its mode says what it does, and somebody may have set that on purpose."""
    frame: Any = sys._getframe(2)
    for _ in range(4):
        if frame is None:
            return False
        if frame.f_code.co_filename in _MODULES:
            return True
        frame = frame.f_back
    return False


# -- modes and buffers ------------------------------------------------------------------------------------------------


def _modes(model: nn.Module, trained: Trained | None) -> dict[str, Any]:
    """The loss of the trained model in train and in eval mode, means over the batches."""
    if trained is None or not trained.batches or trained.model is not model:
        return {"problem": "no batch is known that this very model trains on, with a loss that is recognised"}
    kinds = sorted({type(module).__name__ for module in model.modules() if mode_matters(module)})
    with in_mode(model, True):
        train = _losses(model, trained.batches)
    with in_mode(model, False):
        evaluation = _losses(model, trained.batches)
    return {"train": _mean(train), "eval": _mean(evaluation), "modules": kinds}


def _losses(model: nn.Module, batches: Sequence[TrainingBatch]) -> list[float]:
    return [float(batch.loss(model)) for batch in batches]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _buffers(model: nn.Module, trained: Trained | None, places: Places) -> dict[str, Any]:
    """Running statistics: how often they were to move, which are bitwise initial, what they cost.

    The control puts statistics in their place that are the plain average over half of the batches, and takes the loss
    on the other half.
    """
    norms = [(path, module) for path, module in model.named_modules() if _has_statistics(module)]
    seen = [(path, module) for path, module in norms if int(module.num_batches_tracked) > 0]
    if not seen:
        return {"modules": 0} | _copied(model, [module for _, module in norms], trained, places)
    untouched = [path for path, module in seen if _is_initial(module)]
    lazy = [module for _, module in seen if module.momentum is not None]
    # The share of the initial value that is left after n batches of momentum m is (1 - m)^n.
    left = max(((1.0 - float(m.momentum)) ** int(m.num_batches_tracked) for m in lazy), default=0.0)
    found: dict[str, Any] = {
        "modules": len(seen),
        "batches": max(int(module.num_batches_tracked) for _, module in seen),
        "untouched": untouched[:8],
        "untouched_count": len(untouched),
        "frozen": [path for path, m in seen if _is_initial(m) and m.momentum == 0.0 and not m.training][:8],
        "momentum": min((float(m.momentum) for m in lazy), default=None),
        "left": left,
        "where": places.made(next((m for _, m in seen if _is_initial(m)), seen[0][1])),
        "eval_mode": [path for path, module in seen if not module.training][:1] != [],
    }
    if trained is not None and trained.model is model and len(trained.batches) >= 4:
        found.update(_recomputed(model, [module for _, module in seen], trained.batches))
    elif len(seen) == len(norms):
        found.update(_copied(model, [module for _, module in norms], trained, places))
    return found


def _copied(model: nn.Module, norms: Sequence[Any], trained: Trained | None, places: Places) -> dict[str, Any]:
    """Of a copy of the trained model whose parameters followed the training: what its own statistics cost.

    `initial` says whether they are, bit for bit, what they were made with. The control gives the copy the trained
    model's statistics, and takes the loss on training batches.
    """
    if trained is None or trained.model is model or trained.initial is None or model.training:
        return {}
    twins = [module for module in trained.model.modules() if _has_statistics(module)]
    followed = any(
        not torch.equal(own.detach(), first)
        for own, first in zip(model.parameters(), trained.initial.values(), strict=True)
    )
    moved = [twin for twin in twins if not _is_initial(twin) and _batches_seen(twin) > 0]
    alike = 0 < len(twins) == len(norms) == len(moved)
    if not followed or not alike or len(trained.batches) < 4:
        return {}
    found: dict[str, Any] = {"behind": len(norms), "constant": _constants(trained.batches)}
    found["initial"] = all(_is_initial(module) for module in norms)
    found["where"] = places.made(twins[0])
    with preserved([model]), torch.no_grad():
        found["kept"] = _losses(model, trained.batches)
        for module, twin in zip(norms, twins, strict=True):
            module.running_mean.copy_(twin.running_mean)
            module.running_var.copy_(twin.running_var)
        found["given"] = _losses(model, trained.batches)
    return found


def _batches_seen(module: Any) -> int:
    return int(module.num_batches_tracked)


def _has_statistics(module: nn.Module) -> bool:
    return (
        isinstance(module, nn.modules.batchnorm._BatchNorm)
        and module.track_running_stats
        and module.running_mean is not None
        and module.num_batches_tracked is not None
    )


def _is_initial(module: Any) -> bool:
    return bool((module.running_mean == 0).all() and (module.running_var == 1).all())


def _recomputed(model: nn.Module, modules: Sequence[Any], batches: Sequence[TrainingBatch]) -> dict[str, Any]:
    half = len(batches) // 2
    early, late = batches[:half], batches[half:]
    with in_mode(model, False):
        kept = _losses(model, late)
    found: dict[str, Any] = {"kept": kept, "constant": _constants(late)}
    with preserved([model]), torch.no_grad():
        for module in modules:
            module.reset_running_stats()
            module.momentum = None  # the plain average
        model.eval()
        for module in modules:
            module.training = True
        for batch in early:
            batch.outputs(model)
        for module in modules:
            module.training = False
        found["recomputed"] = _losses(model, late)
    return found


def _constants(batches: Sequence[TrainingBatch]) -> list[float]:
    return [batch.objective.constant() for batch in batches if batch.objective is not None]


# -- weights ----------------------------------------------------------------------------------------------------------


def _weights(model: nn.Module, trained: Trained | None) -> dict[str, Any]:
    """Losses on training batches with the weights that are evaluated, the trained ones and the initial ones.

    The control is one and the same model that is given the three sets of weights in turn.
    """
    if trained is None or trained.model is model:
        return {"same": True}
    own: dict[str, Tensor] = dict(trained.model.named_parameters())
    if trained.initial is None or len(trained.batches) < 4:
        return {"same": False, "problem": "too few batches, or too large a model, to compare the weights"}
    names = list(own)
    others: dict[str, Tensor] = dict(zip(names, model.parameters(), strict=True))
    with quiet(model, trained.model):
        now = _losses(trained.model, trained.batches)
        result = {
            "same": False,
            "trained": now,
            "constant": _constants(trained.batches),
            "distance": _distance(others, own),
            "moved": _distance(trained.initial, own),
        }
        result["initial"] = _with_weights(trained, trained.initial)
        result["evaluated"] = _with_weights(trained, others)
    return result


def _with_weights(trained: Trained, weights: dict[str, Tensor]) -> list[float]:
    own = {name: tensor.detach().clone() for name, tensor in trained.model.named_parameters()}
    try:
        for name, tensor in trained.model.named_parameters():
            tensor.copy_(weights[name])
        return _losses(trained.model, trained.batches)
    finally:
        for name, tensor in trained.model.named_parameters():
            tensor.copy_(own[name])


def _distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    squares = [float(((one[name].detach() - other[name].detach()).double() ** 2).sum()) for name in other]
    return float(sum(squares) ** 0.5)
