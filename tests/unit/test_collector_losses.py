"""Losses by hand against torch's own, their floors, and what the rows make of them."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weaklink.collector.evidence import Row, Site
from weaklink.collector.losses import ByHand, reproduce, softmax_floor
from weaklink.collector.rows import objective
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.graph import walk
from weaklink.collector.watching.parameters import ParameterBook
from weaklink.collector.watching.tape import BackwardSample, GraphSample, LossCall, Tape, Window


def agree(loss_fn: Callable[..., Tensor], outputs: Tensor, targets: Tensor, **options: Any) -> ByHand:
    """The loss by hand, once it equals torch's in float64 under every reduction, and element by element."""
    outputs = outputs.double()
    targets = targets.double() if targets.is_floating_point() else targets
    options = {k: v.double() if isinstance(v, Tensor) else v for k, v in options.items()}
    found = None
    reductions = ["sum", "mean", "batchmean"] if loss_fn is F.kl_div else ["sum", "mean"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        elements = loss_fn(outputs, targets, reduction="none", **options)
        for reduction in reductions:
            call = functools.partial(loss_fn, reduction=reduction, **options)
            found = reproduce(call, outputs, targets)
            assert found is not None
            assert found.reduction == reduction
            assert found.value == pytest.approx(float(call(outputs, targets)), rel=1e-10, abs=1e-12, nan_ok=True)
        unreduced = reproduce(functools.partial(loss_fn, reduction="none", **options), outputs, targets)
    assert unreduced is not None
    assert unreduced.value is None
    if elements.numel():
        assert unreduced.first == pytest.approx(float(elements.flatten()[0]), rel=1e-10, abs=1e-12, nan_ok=True)
    else:
        assert unreduced.first is None
    assert found is not None
    return found


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def labels(classes: int, *shape: int, ignored: int | None = None) -> Tensor:
    found = torch.randint(0, classes, shape, generator=torch.Generator().manual_seed(5))
    if ignored is not None:
        found.flatten()[::3] = ignored
    return found


SHAPES = {"batch": (6, 4), "sequence": (3, 4, 5), "image": (2, 4, 3, 2), "volume": (2, 4, 2, 2, 2), "alone": (4,)}
CLASS_WEIGHT = torch.tensor([0.5, 2.0, 0.0, 1.5])


def index_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[:1] + shape[2:] if len(shape) > 1 else ()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("weight", [None, CLASS_WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("ignored", [-100, 255, 1])
def test_cross_entropy_with_indices(
    shape: tuple[int, ...], weight: Tensor | None, smoothing: float, ignored: int
) -> None:
    scores, targets = seeded(*shape), labels(4, *index_shape(shape), ignored=ignored if len(shape) > 1 else None)
    found = agree(
        F.cross_entropy, scores, targets, weight=weight, label_smoothing=smoothing, ignore_index=ignored
    )  # fmt: skip
    assert found.kind == "cross entropy"
    assert found.broadcast is None
    assert found.output_shape == shape


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("weight", [None, CLASS_WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_cross_entropy_with_probabilities(shape: tuple[int, ...], weight: Tensor | None, smoothing: float) -> None:
    targets = seeded(*shape, seed=1).softmax(0 if len(shape) == 1 else 1)
    found = agree(F.cross_entropy, seeded(*shape), targets, weight=weight, label_smoothing=smoothing)
    assert found.first_target is None


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("weight", [None, CLASS_WEIGHT], ids=["plain", "weighted"])
def test_negative_log_likelihood(shape: tuple[int, ...], weight: Tensor | None) -> None:
    logs = seeded(*shape).log_softmax(0 if len(shape) == 1 else 1)
    targets = labels(4, *index_shape(shape), ignored=3 if len(shape) > 1 else None)
    found = agree(F.nll_loss, logs, targets, weight=weight, ignore_index=3 if len(shape) > 1 else -100)
    assert found.kind == "negative log-likelihood"
    assert found.positive is False
    assert found.floor == (0.0 if math.isfinite(found.value or 0.0) else None)


@pytest.mark.parametrize("weight", [None, torch.tensor([0.2, 1.0, 3.0]), seeded(6, 1).abs()])
def test_binary_cross_entropy(weight: Tensor | None) -> None:
    probabilities = seeded(6, 3).sigmoid()
    probabilities[0, 0], probabilities[1, 1] = 0.0, 1.0
    targets = seeded(6, 3, seed=1).sigmoid()
    assert agree(F.binary_cross_entropy, probabilities, targets, weight=weight).kind == "binary cross entropy"
    hard = agree(F.binary_cross_entropy, probabilities, targets.round(), weight=weight)
    assert hard.floor == 0.0


@pytest.mark.parametrize("weight", [None, torch.tensor([0.2, 1.0, 3.0]), seeded(6, 1).abs()])
@pytest.mark.parametrize("pos_weight", [None, torch.tensor([5.0, 1.0, 0.1])])
def test_binary_cross_entropy_with_logits(weight: Tensor | None, pos_weight: Tensor | None) -> None:
    scores, targets = seeded(6, 3) * 40, seeded(6, 3, seed=1).sigmoid()
    found = agree(F.binary_cross_entropy_with_logits, scores, targets, weight=weight, pos_weight=pos_weight)
    assert found.kind == "binary cross entropy with logits"


@pytest.mark.parametrize(
    ("loss_fn", "options", "kind"),
    [
        (F.mse_loss, {}, "mean squared error"),
        (F.l1_loss, {}, "mean absolute error"),
        (F.smooth_l1_loss, {}, "smooth L1"),
        (F.smooth_l1_loss, {"beta": 0.3}, "smooth L1"),
        (F.smooth_l1_loss, {"beta": 0.0}, "smooth L1"),
        (F.huber_loss, {}, "Huber"),
        (F.huber_loss, {"delta": 0.4}, "Huber"),
    ],
)
@pytest.mark.parametrize(
    ("outputs", "targets"), [((6, 3), (6, 3)), ((), ()), ((6, 1), (6,)), ((6,), (6, 1)), ((6, 3), (3,))]
)
def test_regressions(
    loss_fn: Callable[..., Tensor],
    options: dict[str, float],
    kind: str,
    outputs: tuple[int, ...],
    targets: tuple[int, ...],
) -> None:
    found = agree(loss_fn, seeded(*outputs), seeded(*targets, seed=1), **options)
    assert found.kind == kind
    assert found.broadcast == (tuple((seeded(*outputs) + seeded(*targets)).shape) if outputs != targets else None)
    if outputs == targets:
        assert found.floor == 0.0


@pytest.mark.parametrize("loss_fn", [F.mse_loss, F.l1_loss, F.huber_loss])
def test_weighted_regressions(loss_fn: Callable[..., Tensor]) -> None:
    if "weight" not in F.mse_loss.__code__.co_varnames:
        pytest.skip("this torch has no weights for regressions")
    agree(loss_fn, seeded(6, 3), seeded(6, 3, seed=1), weight=seeded(6, 3, seed=2).abs())


@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("targets", [(6, 4), (4,)])
def test_divergence(log_target: bool, targets: tuple[int, ...]) -> None:
    logs, share = seeded(6, 4).log_softmax(1), seeded(*targets, seed=1).softmax(-1)
    found = agree(F.kl_div, logs, share.log() if log_target else share, log_target=log_target)
    assert found.kind == "Kullback-Leibler divergence"
    assert found.floor == 0.0
    assert found.positive is False


@pytest.mark.parametrize(
    ("loss_fn", "outputs", "targets"),
    [
        (F.cross_entropy, torch.empty(0, 3), torch.empty(0, dtype=torch.long)),
        (F.cross_entropy, torch.empty(0, 3), torch.empty(0, 3)),
        (F.nll_loss, torch.empty(0, 3), torch.empty(0, dtype=torch.long)),
        (F.mse_loss, torch.empty(0, 3), torch.empty(0, 3)),
        (F.kl_div, torch.empty(0, 3), torch.empty(0, 3)),
        (F.binary_cross_entropy_with_logits, torch.empty(0), torch.empty(0)),
        (F.cross_entropy, seeded(4, 3), torch.full((4,), -100)),
        (F.nll_loss, seeded(4, 3).log_softmax(1), torch.full((4,), -100)),
    ],
)
def test_nothing_to_average_is_nan_as_torch_says(
    loss_fn: Callable[..., Tensor], outputs: Tensor, targets: Tensor
) -> None:
    found = agree(loss_fn, outputs, targets)
    assert found.floor in (None, 0.0)
    assert not found.below_floor


MODULES = [
    (
        nn.CrossEntropyLoss(CLASS_WEIGHT, ignore_index=2, label_smoothing=0.2, reduction="sum"),
        seeded(6, 4),
        labels(4, 6),
    ),
    (nn.NLLLoss(CLASS_WEIGHT, ignore_index=2), seeded(6, 4).log_softmax(1), labels(4, 6)),
    (nn.BCELoss(torch.tensor([0.5, 2.0])), seeded(6, 2).sigmoid(), seeded(6, 2, seed=1).sigmoid()),
    (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([0.5, 2.0])), seeded(6, 2), seeded(6, 2, seed=1).sigmoid()),
    (nn.MSELoss(reduction="sum"), seeded(6, 2), seeded(6, 2, seed=1)),
    (nn.L1Loss(), seeded(6, 2), seeded(6, 2, seed=1)),
    (nn.SmoothL1Loss(beta=0.25), seeded(6, 2), seeded(6, 2, seed=1)),
    (nn.HuberLoss(delta=0.25), seeded(6, 2), seeded(6, 2, seed=1)),
    (
        nn.KLDivLoss(reduction="batchmean", log_target=True),
        seeded(6, 2).log_softmax(1),
        seeded(6, 2, seed=1).log_softmax(1),
    ),
]


@pytest.mark.parametrize(("module", "outputs", "targets"), MODULES, ids=[type(m).__name__ for m, _, _ in MODULES])
def test_modules_carry_their_options(module: nn.Module, outputs: Tensor, targets: Tensor) -> None:
    found = reproduce(module, outputs, targets)
    assert found is not None
    assert found.value == pytest.approx(float(module(outputs, targets)), rel=1e-5)


@pytest.mark.parametrize(
    ("legacy", "expected"),
    [
        ({"size_average": False}, "sum"),
        ({"reduce": False}, "none"),
        ({"reduce": True}, "mean"),
        ({"size_average": False, "reduce": False}, "none"),
    ],
)
def test_legacy_options_override_the_reduction(legacy: dict[str, Any], expected: str) -> None:
    found = reproduce(functools.partial(F.mse_loss, **legacy), seeded(6, 2), seeded(6, 2, seed=1))
    assert found is not None
    assert found.reduction == expected


class Doubled(nn.MSELoss):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return 2.0 * super().forward(outputs, targets)


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda outputs, targets: F.mse_loss(outputs, targets),
        Doubled(),
        F.softmax,
        F.poisson_nll_loss,
        functools.partial(F.mse_loss, seeded(6, 2)),
        None,
    ],
)
def test_any_other_callable_is_none(loss_fn: Any) -> None:
    assert reproduce(loss_fn, seeded(6, 2), seeded(6, 2, seed=1)) is None


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        (seeded(6, 4), torch.tensor([0, 1, 2, 3, 4, 0])),  # an index out of range
        (seeded(6, 4), labels(4, 5)),
        (seeded(6, 4), seeded(6)),
        ("scores", labels(4, 6)),
        (seeded(6, 4), None),
        (torch.empty(6, 4, device="meta"), labels(4, 6)),
    ],
)
def test_what_torch_refuses_is_none(outputs: Any, targets: Any) -> None:
    assert reproduce(F.cross_entropy, outputs, targets) is None


@pytest.mark.parametrize("reduction", ["batchmean", "median"])
def test_a_reduction_that_torch_refuses_is_none(reduction: str) -> None:
    assert reproduce(functools.partial(F.mse_loss, reduction=reduction), seeded(6), seeded(6)) is None


def test_reproducing_leaves_graph_and_random_state_alone() -> None:
    outputs = seeded(6, 4).requires_grad_()
    before = torch.get_rng_state()
    assert reproduce(F.cross_entropy, outputs, labels(4, 6)) is not None
    assert torch.equal(before, torch.get_rng_state())
    assert outputs.grad is None


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16, torch.float32])
def test_rounding_bounds_what_the_precision_changes(precision: torch.dtype) -> None:
    scores, targets = seeded(64, 10), labels(10, 64)
    logs = scores.to(precision).log_softmax(1)
    found = reproduce(F.nll_loss, logs, targets)
    exact = reproduce(F.nll_loss, scores.to(precision).double().log_softmax(1), targets)
    assert found is not None
    assert exact is not None
    assert 0.0 < abs((found.value or 0.0) - (exact.value or 0.0)) <= found.rounding
    assert found.positive is False


# -- floors --------------------------------------------------------------------------------------------------------


def lowest(loss_fn: Callable[..., Tensor], start: Tensor, targets: Tensor, scores: Callable[[Tensor], Tensor]) -> float:
    """What an optimizer can bring the loss down to, over raw outputs."""
    raw = start.double().clone().requires_grad_()
    optimizer = torch.optim.LBFGS([raw], max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_fn(scores(raw), targets.double() if targets.is_floating_point() else targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    for _ in range(4):
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    return float(closure().detach())


SOFT = seeded(6, 4, seed=1).softmax(1)
FLOORS = {
    "hard": (F.cross_entropy, labels(4, 6), nn.Identity()),
    "smoothed": (functools.partial(F.cross_entropy, label_smoothing=0.1), labels(4, 6), nn.Identity()),
    "smoothed and weighted": (
        functools.partial(F.cross_entropy, label_smoothing=0.1, weight=CLASS_WEIGHT.double()),
        labels(4, 6),
        nn.Identity(),
    ),
    "probabilities": (F.cross_entropy, SOFT, nn.Identity()),
    "weighted probabilities, sum": (
        functools.partial(F.cross_entropy, weight=CLASS_WEIGHT.double(), reduction="sum"),
        SOFT,
        nn.Identity(),
    ),
    "binary": (F.binary_cross_entropy, SOFT, torch.sigmoid),
    "logits, weighted": (
        functools.partial(
            F.binary_cross_entropy_with_logits,
            weight=CLASS_WEIGHT.double(),
            pos_weight=CLASS_WEIGHT.double() + 1.0,
        ),
        SOFT,
        nn.Identity(),
    ),
    "divergence": (functools.partial(F.kl_div, reduction="batchmean"), SOFT, lambda raw: raw.log_softmax(1)),
    "Huber": (F.huber_loss, SOFT, nn.Identity()),
}


@pytest.mark.parametrize(("loss_fn", "targets", "scores"), FLOORS.values(), ids=FLOORS)
def test_the_floor_is_what_an_optimizer_reaches(
    loss_fn: Callable[..., Tensor], targets: Tensor, scores: Callable[[Tensor], Tensor]
) -> None:
    start = seeded(6, 4)
    found = reproduce(loss_fn, scores(start.double()), targets.double() if targets.is_floating_point() else targets)
    assert found is not None
    assert found.floor is not None
    assert lowest(loss_fn, start, targets, scores) == pytest.approx(found.floor, abs=2e-5)
    assert not found.below_floor


def test_the_floor_of_a_squared_error_whose_outputs_were_broadcast_is_the_variance() -> None:
    targets = seeded(6, seed=1)
    found = reproduce(F.mse_loss, seeded(6, 1), targets)
    assert found is not None
    assert found.floor == pytest.approx(float(targets.double().var(correction=0)))
    absolute = reproduce(F.l1_loss, seeded(6, 1), targets)
    assert absolute is not None
    assert absolute.floor is None


def test_softmax_floor_is_the_least_that_probabilities_reach() -> None:
    assert softmax_floor(2) == pytest.approx(0.31326166, rel=1e-6)
    assert softmax_floor(10) == pytest.approx(1.46115005, rel=1e-6)
    best = torch.eye(10)[:1]
    assert float(F.cross_entropy(best, torch.tensor([0]))) == pytest.approx(softmax_floor(10), rel=1e-6)
    with pytest.raises(ValueError, match="at least one class"):
        softmax_floor(0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: reproduce(F.binary_cross_entropy_with_logits, seeded(6), torch.tensor([1.2, -0.1, 1, 0, 1, 0])),
        lambda: reproduce(functools.partial(F.nll_loss, weight=-CLASS_WEIGHT), seeded(6, 4), labels(4, 6)),
        lambda: reproduce(F.kl_div, seeded(6, 4).log_softmax(1), seeded(6, 4).abs() + 0.1),
        lambda: reproduce(F.cross_entropy, seeded(6, 4), seeded(6, 4)),
    ],
)
def test_no_floor_is_claimed_where_there_is_none(call: Callable[[], ByHand | None]) -> None:
    found = call()
    assert found is not None
    assert found.floor is None
    assert not found.below_floor


def test_scores_taken_for_log_probabilities_go_below_the_floor() -> None:
    scores, targets = seeded(6, 4) + 3.0, labels(4, 6)
    for loss_fn, wanted in (F.nll_loss, targets), (functools.partial(F.kl_div, reduction="batchmean"), SOFT):
        found = reproduce(loss_fn, scores, wanted)
        assert found is not None
        assert found.positive
        assert found.below_floor


def test_a_divergence_of_nothing_is_not_below_zero() -> None:
    logs = (seeded(64, 50) * 5).log_softmax(1)
    for precision in (torch.float32, torch.float16, torch.bfloat16):
        given = logs.to(precision)
        found = reproduce(functools.partial(F.kl_div, reduction="batchmean", log_target=True), given, given)
        assert found is not None
        assert not found.below_floor
        assert not found.positive


# -- the controlled problem ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem() -> tuple[Tensor, Tensor]:
    x = torch.randn(2048, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] + 0.75 * x[:, 1] > 0).long()
    state = torch.get_rng_state()
    torch.manual_seed(42)
    features = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
    head = nn.Linear(32, 2)
    torch.set_rng_state(state)
    return head(features(x)).detach(), y


def test_figures_of_the_controlled_problem(problem: tuple[Tensor, Tensor]) -> None:
    outputs, targets = problem
    assert outputs[0].tolist() == pytest.approx([0.091391, 0.048356], abs=5e-7)
    one = reproduce(F.cross_entropy, outputs[:1], targets[:1])
    assert one is not None
    assert one.first_target == 0
    assert one.first == pytest.approx(0.671862, rel=1e-5)
    eight = reproduce(F.cross_entropy, outputs[:8], targets[:8])
    assert eight is not None
    assert eight.value == pytest.approx(0.692137, rel=1e-5)
    smoothed = reproduce(nn.CrossEntropyLoss(label_smoothing=0.1), outputs[:8], targets[:8])
    built = reproduce(F.cross_entropy, outputs[:8], 0.9 * torch.eye(2)[targets[:8]] + 0.05)
    assert smoothed is not None
    assert built is not None
    assert smoothed.value == pytest.approx(0.692248, rel=1e-5)
    assert smoothed.value == pytest.approx(built.value, rel=1e-7)
    assert smoothed.floor == pytest.approx(-0.95 * math.log(0.95) - 0.05 * math.log(0.05))
    assert built.floor == pytest.approx(smoothed.floor, rel=1e-6)


# -- read off the graph --------------------------------------------------------------------------------------------


def walked(loss: Tensor) -> GraphSample:
    return walk(loss, ParameterBook(), read_saved=True)


def quietly(loss_fn: Callable[..., Tensor], *args: Any, **options: Any) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return loss_fn(*args, **options)


GRAPHS: dict[str, tuple[Callable[..., Tensor], Tensor, Tensor, dict[str, Any]]] = {
    "indices": (F.cross_entropy, seeded(6, 4), labels(4, 6), {}),
    "indices alone": (F.cross_entropy, seeded(4), labels(4), {}),
    "indices, image": (F.cross_entropy, seeded(2, 4, 3, 2), labels(4, 2, 3, 2, ignored=9), {"ignore_index": 9}),
    "indices, sequence, weighted": (F.cross_entropy, seeded(3, 4, 5), labels(4, 3, 5), {"weight": CLASS_WEIGHT}),
    "smoothed": (F.cross_entropy, seeded(6, 4), labels(4, 6, ignored=-100), {"label_smoothing": 0.1}),
    "smoothed, weighted": (
        F.cross_entropy,
        seeded(6, 4),
        labels(4, 6),
        {"label_smoothing": 0.3, "weight": CLASS_WEIGHT},
    ),
    "smoothed, sequence": (F.cross_entropy, seeded(3, 4, 5), labels(4, 3, 5), {"label_smoothing": 0.1}),
    "probabilities": (F.cross_entropy, seeded(6, 4), SOFT, {}),
    "probabilities, weighted": (F.cross_entropy, seeded(6, 4), SOFT, {"weight": CLASS_WEIGHT}),
    "probabilities, smoothed": (F.cross_entropy, seeded(6, 4), SOFT, {"label_smoothing": 0.2}),
    "probabilities, image": (
        F.cross_entropy,
        seeded(2, 4, 3, 2),
        seeded(2, 4, 3, 2, seed=1).softmax(1),
        {"weight": CLASS_WEIGHT},
    ),
    "binary": (F.binary_cross_entropy, seeded(6, 4).sigmoid(), SOFT, {"weight": CLASS_WEIGHT}),
    "logits": (
        F.binary_cross_entropy_with_logits,
        seeded(6, 4),
        SOFT,
        {"weight": CLASS_WEIGHT, "pos_weight": CLASS_WEIGHT},
    ),
    "squared": (F.mse_loss, seeded(6, 4), SOFT, {}),
    "smooth L1": (F.smooth_l1_loss, seeded(6, 4), SOFT, {"beta": 0.2}),
    "Huber": (F.huber_loss, seeded(6, 4), SOFT, {"delta": 0.2}),
    "broadcast": (F.mse_loss, seeded(6, 1), seeded(6, seed=1), {}),
    "broadcast, the other way": (F.huber_loss, seeded(6), seeded(6, 1, seed=1), {}),
    "broadcast, one target": (F.mse_loss, seeded(6, 4), seeded(4, seed=1), {}),
}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(("loss_fn", "outputs", "targets", "options"), GRAPHS.values(), ids=GRAPHS)
def test_the_graph_tells_what_the_callable_tells(
    loss_fn: Callable[..., Tensor], outputs: Tensor, targets: Tensor, options: dict[str, Any], reduction: str
) -> None:
    outputs = outputs.clone().requires_grad_()
    call = functools.partial(loss_fn, reduction=reduction, **options)
    known = reproduce(call, outputs, targets)
    assert known is not None
    (found,) = walked(quietly(call, outputs, targets) * 1.0).losses
    assert found.hand is not None
    assert (found.kind, found.reduction) == (known.kind, reduction)
    assert found.hand.value == pytest.approx(known.value, rel=1e-5)
    assert found.hand.first == pytest.approx(known.first, rel=1e-5)
    assert found.hand.floor == pytest.approx(known.floor, rel=1e-5) if known.floor is not None else True
    assert (found.hand.output_shape, found.hand.target_shape) == (known.output_shape, known.target_shape)
    assert found.broadcast == known.broadcast
    assert found.indexed == (not targets.is_floating_point())
    assert found.output_shape == known.output_shape


@pytest.mark.parametrize("reduction", ["mean", "sum", "batchmean"])
@pytest.mark.parametrize("log_target", [False, True])
def test_a_divergence_is_read_off_the_graph(reduction: str, log_target: bool) -> None:
    scores = seeded(6, 4).requires_grad_()
    targets = SOFT.log() if log_target else SOFT
    loss = quietly(F.kl_div, scores.log_softmax(1), targets, reduction=reduction, log_target=log_target)
    (found,) = walked(loss).losses
    assert (found.kind, found.reduction) == ("Kullback-Leibler divergence", reduction)
    assert found.hand is not None
    assert found.hand.value == pytest.approx(float(loss.detach()), rel=1e-5)
    assert found.floor == 0.0


LOOKALIKES = {
    "policy gradient": lambda logs, _: -(logs * seeded(6, 4, seed=3)).sum() / 6,
    "entropy": lambda logs, raw: -(logs * raw.softmax(1)).sum() / 6,
    "unnormalised": lambda logs, _: -(logs * (SOFT + 0.5)).sum(),
    "difference of logarithms": lambda logs, _: (SOFT * (logs - SOFT.log())).sum(),
    "mixture that is no smoothing": lambda logs, _: F.nll_loss(logs, labels(4, 6)) * 0.5 - logs.sum(1).mean() * 0.01,
}


@pytest.mark.parametrize("build", LOOKALIKES.values(), ids=LOOKALIKES)
def test_what_looks_like_a_composite_is_none(build: Callable[[Tensor, Tensor], Tensor]) -> None:
    raw = seeded(6, 4).requires_grad_()
    for loss in walked(build(raw.log_softmax(1), raw)).losses:
        assert loss.reduction == "mean"
        assert loss.hand is not None
        assert loss.hand.value == pytest.approx(float(F.cross_entropy(raw, labels(4, 6)).detach()), rel=1e-5)


def test_targets_of_every_readable_loss_are_handed_on() -> None:
    for loss_fn, outputs, targets, options in GRAPHS.values():
        seen: list[Tensor] = []
        loss = quietly(loss_fn, outputs.clone().requires_grad_(), targets, **options)
        walk(loss, ParameterBook(), True, seen.append)
        assert len(seen) == 1
        assert seen[0].numel() >= targets.numel()


def test_packed_tensors_are_not_read() -> None:
    scores = seeded(6, 4).requires_grad_()
    loss = F.cross_entropy(scores.softmax(1), labels(4, 6), label_smoothing=0.1)
    sample = walk(loss, ParameterBook(), read_saved=False)
    assert sample.losses == []
    assert sample.softmax_into_log_softmax


# -- rows ----------------------------------------------------------------------------------------------------------


def rows_of(loss: Tensor, call: LossCall | None = None) -> dict[str, Row]:
    """The OBJECTIVE rows of a run whose only backward starts at this loss."""
    graph = walked(loss)
    tape = Tape(backwards=1)
    site = Site(file="train.py", line=7, what="backward called")
    value = float(loss.detach()) if loss.numel() == 1 else None
    tape.windows.append(Window(1, backwards=[BackwardSample(1, site, value, True, graph, {})]))
    if value is not None:
        tape.losses.add(1, value)
    if call is not None:
        tape.loss_calls.append(call)
    return {row.label: row for row in objective.rows(Observation(tape, [], []))}


def failing(found: dict[str, Row]) -> list[str]:
    return [label for label, row in found.items() if row.status in ("fail", "suspected")]


raw = seeded(8, 4, seed=2)
column = seeded(8, 1, seed=2)
classes = labels(4, 8)
share = seeded(8, 4, seed=1).softmax(1)

BROKEN: dict[str, tuple[Callable[[Tensor], Tensor], Tensor, list[str], dict[str, Any]]] = {
    "column against row": (
        lambda s: F.mse_loss(s, seeded(8)),
        column,
        ["shapes"],
        {"outputs": [8, 1], "targets": [8], "broadcast": [8, 8]},
    ),
    "row against column": (
        lambda s: F.smooth_l1_loss(s.squeeze(1), seeded(8, 1)),
        column,
        ["shapes"],
        {"outputs": [8], "targets": [8, 1], "broadcast": [8, 8]},
    ),
    "column against row, sum, weighted": (
        lambda s: 3.0 * F.huber_loss(s, seeded(8), reduction="sum") + s.pow(2).sum(),
        column,
        ["shapes"],
        {"outputs": [8, 1], "targets": [8], "broadcast": [8, 8]},
    ),
    "softmax": (lambda s: F.cross_entropy(s.softmax(1), classes), raw, ["fed"], {"softmax_into_log_softmax": True}),
    "sigmoid": (
        lambda s: F.binary_cross_entropy_with_logits(s.sigmoid().squeeze(1), share[:, 0]),
        column,
        ["fed"],
        {"sigmoid_into_logits": True},
    ),
    "scores to nll, large": (
        lambda s: F.nll_loss(s + 5.0, classes),
        raw,
        ["fed", "floor"],
        {"positive_log_probabilities": True},
    ),
    "scores to nll, small": (
        lambda s: F.nll_loss(s * 0.1 - 0.05, classes) * 2.0,
        raw,
        ["fed"],
        {"positive_log_probabilities": True},
    ),
}


@pytest.mark.parametrize(("build", "outputs", "rows", "values"), BROKEN.values(), ids=BROKEN)
def test_broken_objectives_fail_exactly(
    build: Callable[[Tensor], Tensor], outputs: Tensor, rows: list[str], values: dict[str, Any]
) -> None:
    found = rows_of(quietly(build, outputs.clone().requires_grad_()))
    assert failing(found) == rows
    first = found[rows[0]]
    assert (first.status, first.basis, first.step) == ("fail", "exact", 1)
    assert first.where == [Site(file="train.py", line=7, what="backward called")]
    assert {key: first.values.get(key) for key in values} == values


HEALTHY: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "cross entropy": (lambda s: F.cross_entropy(s, classes), raw),
    "times a constant": (lambda s: 10.0 * F.cross_entropy(s, classes), raw),
    "two terms": (lambda s: F.cross_entropy(s, classes) + 0.1 * F.mse_loss(s, share), raw),
    "minus a bonus": (lambda s: F.cross_entropy(s, classes) - 10.0, raw),
    "log-softmax twice": (lambda s: F.cross_entropy(s.log_softmax(1), classes), raw),
    "log of softmax": (lambda s: F.nll_loss(torch.log(s.softmax(1) + 1e-3), classes), 30 * torch.eye(4)[classes]),
    "log-probabilities scaled by rewards": (
        lambda s: F.nll_loss(s.log_softmax(1) * -seeded(8, 1).abs(), classes),
        raw,
    ),
    "logit adjustment": (lambda s: F.nll_loss(s.log_softmax(1) + 2.0, classes), raw),
    "pairs of quantiles": (
        lambda s: F.smooth_l1_loss(s.view(2, 4, 1), seeded(2, 1, 4)),
        column,
    ),
    "pairs of quantiles, unreduced": (
        lambda s: (F.huber_loss(s, seeded(1, 8), reduction="none") * share[:, :1]).mean(),
        column,
    ),
    "one target for all": (lambda s: F.mse_loss(s, torch.ones(1).expand_as(s)), column),
    "targets beyond one": (lambda s: F.binary_cross_entropy_with_logits(s, torch.full_like(s, 1.2)), column + 30.0),
    "negative weights": (
        lambda s: F.binary_cross_entropy_with_logits(s, share[:, :1].round(), weight=-torch.ones(8, 1)),
        column,
    ),
    "self-distillation": (
        lambda s: F.kl_div(s.log_softmax(1), s.detach().softmax(1), reduction="batchmean"),
        raw,
    ),
    "distillation through eps": (
        lambda s: F.kl_div((s.softmax(1) + 1e-5).log(), s.detach().softmax(1), reduction="batchmean"),
        raw,
    ),
    "sigmoid to its own loss": (lambda s: F.binary_cross_entropy(s.sigmoid(), share[:, :1]), column),
    "absolute error": (lambda s: F.l1_loss(s, seeded(8, 1)), column),
    "half precision": (lambda s: F.nll_loss(s.bfloat16().log_softmax(1).float(), classes), raw * 20),
}


@pytest.mark.parametrize(("build", "outputs"), HEALTHY.values(), ids=HEALTHY)
def test_healthy_objectives_are_not_accused(build: Callable[[Tensor], Tensor], outputs: Tensor) -> None:
    assert failing(rows_of(quietly(build, outputs.clone().requires_grad_()))) == []


@pytest.mark.parametrize(
    ("loss_fn", "build", "targets"),
    [
        (F.kl_div, lambda s: (s.softmax(1) + 1e-4).log(), raw.softmax(1)),
        (F.nll_loss, lambda s: (s.softmax(1) + 1e-4).log(), (30 * torch.eye(4)[classes]).argmax(1)),
        (F.l1_loss, nn.Identity(), raw + 1.0),
    ],
)
def test_a_known_call_with_an_epsilon_is_not_accused(
    loss_fn: Callable[..., Tensor], build: Callable[[Tensor], Tensor], targets: Tensor
) -> None:
    scores = (raw if targets.is_floating_point() else 30 * torch.eye(4)[classes]).clone().requires_grad_()
    outputs = build(scores)
    loss = quietly(loss_fn, outputs, targets)
    found = rows_of(loss, LossCall(1, reproduce(loss_fn, outputs, targets), float(loss.detach()), None))
    assert failing(found) == []
    assert found["by_hand"].status == "pass"


def test_a_known_call_outranks_the_graph() -> None:
    scores = seeded(8, 4).requires_grad_()
    loss = F.l1_loss(scores, seeded(8, 4, seed=1))
    assert rows_of(loss)["by_hand"].status == "not_measured"
    site = Site(file="train.py", line=5, what="loss called")
    call = LossCall(1, reproduce(F.l1_loss, scores, seeded(8, 4, seed=1)), float(loss.detach()), site)
    found = rows_of(loss, call)
    assert found["by_hand"].status == "pass"
    assert found["by_hand"].text.startswith("mean absolute error: ")
    target, first = float(seeded(8, 4, seed=1)[0, 0]), float((scores.detach() - seeded(8, 4, seed=1)).abs()[0, 0])
    assert found["by_hand"].text.endswith(f"; element 0: target {target:.4f}, loss {first:.6f}")
    assert found["floor"].values == {"loss": pytest.approx(float(loss.detach())), "floor": 0.0}
    assert found["shapes"].text == "outputs [8, 4], targets [8, 4]"
    custom = rows_of(F.mse_loss(scores, seeded(8, 4)), LossCall(1, None, 1.0, site))
    assert custom["by_hand"].text.startswith("mean squared error: ")


def test_a_divergence_of_raw_scores_lies_below_its_floor() -> None:
    scores = (raw + 5.0).requires_grad_()
    call = functools.partial(F.kl_div, reduction="batchmean")
    loss = call(scores, share)
    found = rows_of(loss, LossCall(1, reproduce(call, scores, share), float(loss.detach()), None))
    assert failing(found) == ["floor"]
    assert found["fed"].status == "evidence"
    assert found["floor"].basis == "exact"


def test_the_floor_behind_a_softmax_is_named(problem: tuple[Tensor, Tensor]) -> None:
    outputs, targets = problem
    found = rows_of(F.cross_entropy(outputs[:256].clone().requires_grad_().softmax(1), targets[:256]))
    assert found["floor"].values["loss"] == pytest.approx(0.693597, rel=1e-5)
    assert found["floor"].values["softmax_floor"] == pytest.approx(0.31326166, rel=1e-6)
    assert found["floor"].status == "pass"
    assert "probabilities taken for raw scores it is 0.313262" in found["floor"].text


def test_rows_of_label_smoothing(problem: tuple[Tensor, Tensor]) -> None:
    outputs, targets = problem
    found = rows_of(F.cross_entropy(outputs[:8].clone().requires_grad_(), targets[:8], label_smoothing=0.1))
    assert found["by_hand"].status == "pass"
    assert found["by_hand"].values["by_hand"] == pytest.approx(0.692248, rel=1e-5)
    assert found["floor"].values["floor"] == pytest.approx(0.198515, abs=1e-6)


def test_unreduced_and_unreadable_losses_say_so() -> None:
    scores = seeded(8, 4).requires_grad_()
    unreduced = rows_of((F.cross_entropy(scores, classes, reduction="none") * share[:, 0]).mean())
    assert unreduced["by_hand"].status == "not_measured"
    assert "example 0: target" in (unreduced["by_hand"].reason or "")
    assert unreduced["floor"].reason == "the loss does not reduce to one number itself"
    assert unreduced["shapes"].status == "pass"
    unread = rows_of(scores.abs().mean())
    for label in ("shapes", "by_hand", "floor"):
        assert unread[label].status == "not_measured"
        assert "none of cross entropy" in (unread[label].reason or "")
    assert rows_of(F.cross_entropy(scores, torch.full((8,), -100)))["floor"].reason == "the loss is not finite"


def test_a_log_softmax_twice_is_said_and_accuses_nobody() -> None:
    found = rows_of(F.cross_entropy(raw.clone().requires_grad_().log_softmax(1), classes))
    assert found["fed"].status == "evidence"
    assert "changes nothing" in found["fed"].text
    assert found["by_hand"].status == "pass"
