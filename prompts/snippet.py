"""Measure one training step by hand, with plain torch: paste this into a script or notebook, right before its loop.

report = weaklink_snippet(model, optimizer, loss_fn, inputs, targets)

It works on deep copies: parameters, gradients, buffers, optimizer state and random streams stay as they are.
FAIL cannot be meant; LOOK is a contradiction unless you mean it so (another optimizer holds these parameters, say).
"""

import copy
import random
import sys

import torch


def weaklink_snippet(model, optimizer, loss_fn, inputs, targets):
    """Print one row a question and return them: {"OWNERSHIP/owned": ("FAIL", "0 of 2 ..."), ...}.

    `inputs` is one batch (a tensor, or a tuple or dict of the model's arguments), `loss_fn(outputs, targets)` a scalar.
    """
    rows = {}
    live = [value for value in model.parameters() if value.requires_grad]  # a copy has no gradient
    earlier = sum(value.grad is not None for value in live)
    _row(rows, "GRADIENT/earlier", None, f"{earlier} of {len(live)} held a gradient when it was called")
    numpy = sys.modules.get("numpy")
    python_state, numpy_state = random.getstate(), numpy.random.get_state() if numpy else None
    cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=cuda), torch.enable_grad():
            _measure(rows, *copy.deepcopy((model, optimizer, loss_fn)), _cloned(inputs), _cloned(targets))
    except Exception as error:  # a model that cannot be copied, a loss that raises: say so, and leave the run alone
        _row(rows, "stopped", None, f"{type(error).__name__}: {error}")
    finally:
        random.setstate(python_state)
        if numpy:
            numpy.random.set_state(numpy_state)
    for name, (status, text) in rows.items():
        print(f"{name:22} {status:4}  {text}")
    return rows


def _measure(rows, model, optimizer, loss_fn, inputs, targets):
    trainable = {name: value for name, value in model.named_parameters() if value.requires_grad}
    held = [value for group in optimizer.param_groups for value in group["params"]]
    of_model = {id(value) for value in model.parameters()}
    model.zero_grad(set_to_none=True)
    for value in held:
        value.grad = None

    _finite(rows, "TASK/inputs", inputs)
    _row(rows, "TASK/targets", None, _described(targets))
    modes = [(module, module.training) for module in model.modules()]
    with torch.no_grad():
        model.eval()
        eval_loss = _number(loss_fn(_called(model, inputs), targets))
    for module, training in modes:
        module.training = training
    outputs = _called(model, inputs)
    loss = loss_fn(outputs, targets)
    evaluated = sum(not training for _, training in modes)
    _row(rows, "OBJECTIVE/mode", None, f"{evaluated} of {len(modes)} modules are in eval mode")
    _row(rows, "OBJECTIVE/shapes", None, f"outputs {_described(outputs)}; targets {_described(targets)}")
    _row(rows, "OBJECTIVE/loss", bool(torch.isfinite(loss).all()), f"{_number(loss):.6g}, {_described(loss)}")
    _by_hand(rows, loss_fn, outputs, targets, loss)

    values = list(trainable.values())
    able = loss.requires_grad and values
    # Not loss.backward(): a loss that reads the live model by itself would leave gradients there.
    found = torch.autograd.grad(loss, values, allow_unused=True) if able else [None] * len(values)
    for value, gradient in zip(values, found, strict=True):
        value.grad = gradient
    reached = [name for name, gradient in zip(trainable, found, strict=True) if gradient is not None]
    _counted(rows, "DEPENDENCY/reached", trainable, reached)
    gradients = {name: value.grad for name, value in trainable.items() if value.grad is not None}
    _counted(rows, "GRADIENT/present", trainable, gradients)
    _counted(rows, "GRADIENT/finite", gradients, [n for n, g in gradients.items() if torch.isfinite(_dense(g)).all()])
    _counted(rows, "GRADIENT/nonzero", gradients, [n for n, g in gradients.items() if _dense(g).count_nonzero() > 0])

    # By identity, never by name: a replaced layer has the old name and a new object.
    owned = [name for name, value in trainable.items() if any(value is each for each in held)]
    _counted(rows, "OWNERSHIP/owned", trainable, owned)
    stale = sum(id(value) not in of_model for value in held)
    _row(
        rows,
        "OWNERSHIP/stale",
        stale == 0 or "LOOK",
        f"{stale} of {len(held)} tensors in the optimizer are not the model's",
    )

    before = {name: value.detach().clone() for name, value in trainable.items()}
    rates = ", ".join(f"{group['lr']}" for group in optimizer.param_groups if "lr" in group)
    _row(rows, "UPDATE/lr", None, rates or "none")
    try:
        optimizer.step()
    except TypeError as error:
        _row(rows, "UPDATE/moved", None, f"not measured: this optimizer wants a closure ({error})")
    else:
        moved = [name for name, value in trainable.items() if not torch.equal(before[name], value.detach())]
        _counted(rows, "UPDATE/moved", trainable, moved)
    _row(rows, "EVALUATION/mode_gap", None, f"loss {_number(loss):.6g} as it is, {eval_loss:.6g} in eval mode")


def _by_hand(rows, loss_fn, outputs, targets, loss):
    """Cross entropy and mean squared error once more, in float64, where the loss is plainly one of the two."""
    name = getattr(loss_fn, "__name__", type(loss_fn).__name__)
    special = getattr(loss_fn, "weight", None) is not None or getattr(loss_fn, "label_smoothing", 0.0) != 0.0
    value = None
    if isinstance(outputs, torch.Tensor) and isinstance(targets, torch.Tensor) and loss.dim() == 0 and not special:
        scores = outputs.detach().double()
        plain = getattr(loss_fn, "reduction", "mean") == "mean"
        if name in ("CrossEntropyLoss", "cross_entropy") and scores.dim() == 2 and targets.dim() == 1 and plain:
            kept = targets != getattr(loss_fn, "ignore_index", -100)
            chosen = scores[kept].gather(1, targets[kept, None])[:, 0]
            value = float((scores[kept].logsumexp(1) - chosen).mean())
        elif name in ("MSELoss", "mse_loss") and scores.shape == targets.shape and plain:
            value = float((scores - targets.double()).square().mean())
    if value is None:
        _row(rows, "OBJECTIVE/by_hand", None, f"not measured: {name} is not computed here")
    else:
        close = abs(value - _number(loss)) <= 1e-3 * max(1.0, abs(value))
        _row(rows, "OBJECTIVE/by_hand", close, f"{value:.6g} by hand, {_number(loss):.6g} reported")


def _number(loss):
    return float(loss.detach().double().mean())


def _called(model, inputs):
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def _cloned(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _cloned(each) for key, each in value.items()}
    return type(value)(map(_cloned, value)) if type(value) in (tuple, list) else value


def _dense(value):
    return value.coalesce().values() if value.is_sparse else value


def _described(value):
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {list(value.shape)}".replace("torch.", "")
    return type(value).__name__


def _finite(rows, name, value):
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else [value]
    tensors = [each for each in parts if isinstance(each, torch.Tensor)]
    good = all(bool(torch.isfinite(each).all()) for each in tensors)
    _row(rows, name, good if tensors else None, "; ".join(map(_described, tensors)) + ("" if good else ": NOT finite"))


def _counted(rows, name, wanted, found):
    missing = [each for each in wanted if each not in found]
    text = f"{len(wanted) - len(missing)} of {len(wanted)}" + (f"; not: {', '.join(missing[:6])}" if missing else "")
    wrong = False if name.endswith("/finite") else "LOOK"
    _row(rows, name, (not missing or wrong) if wanted else None, text)


def _row(rows, name, good, text):
    rows[name] = ({None: "-", True: "ok", False: "FAIL"}.get(good, good), text)
