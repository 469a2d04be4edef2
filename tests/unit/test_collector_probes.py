"""The instruments: the controlled problem's figures (torch 2.13, CPU, float32), and that nothing stays behind."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from weaklink.collector import probes
from weaklink.collector.errors import ProbeError

CE = F.cross_entropy


def split(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] + 0.75 * x[:, 1] > 0).long()


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class Detached(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).detach())


X, Y = split(2048, 0)
BATCH = X[:256], Y[:256]
TINY = X[:32], Y[:32]


def built(kind: type[Classifier] = Classifier) -> Classifier:
    torch.manual_seed(42)
    return kind()


def adamw(model: nn.Module, lr: float = 1e-2) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)


def stale() -> tuple[Classifier, torch.optim.AdamW]:
    model = built()
    model.features.requires_grad_(False)
    optimizer = adamw(model)
    torch.manual_seed(7)
    model.head = nn.Linear(32, 2)
    return model, optimizer


def dead() -> Classifier:
    model = built()
    with torch.no_grad():
        model.features[0].bias.fill_(-100.0)
    return model


def state(model: nn.Module, *optimizers: torch.optim.Optimizer) -> Any:
    tensors = {name: (id(t), t.tolist(), t.grad) for name, t in model.named_parameters()}
    buffers = {name: (id(t), t.tolist()) for name, t in model.named_buffers()}
    modes = [(m.training, len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    stepped = [
        (len(o.state), [{k: v for k, v in g.items() if k != "params"} for g in o.param_groups]) for o in optimizers
    ]
    return tensors, buffers, modes, stepped, torch.get_rng_state().tolist()


# -- the figures -------------------------------------------------------------------------------------------------------


def test_tiny_batch_healthy() -> None:
    model = built()
    found = probes.tiny_batch(model, adamw(model), X, Y, CE, rows=32)
    assert (found.rows, found.steps) == (32, 501)
    assert (round(found.fresh.first, 5), round(found.fresh.last, 5)) == (0.69209, 0.00227)
    assert found.fresh.accuracy == 1.0
    assert found.real is not None
    assert found.real.first == found.fresh.first
    assert found.real.last < 0.001
    assert [fit.name for fit in found] == ["AdamW", "fresh SGD lr 0.5"]


def test_tiny_batch_stale_head() -> None:
    found = probes.tiny_batch(*stale(), *TINY, CE)
    assert found.real is not None
    assert [round(found.real.first, 5), round(found.real.last, 5)] == [0.68758, 0.68758]
    assert found.real.first == found.real.last
    assert round(found.real.accuracy or 0.0, 4) == 0.7188
    assert [round(found.fresh.last, 5), round(found.fresh.accuracy or 0.0, 4)] == [0.14840, 0.9688]
    assert str(found).splitlines() == [
        "32 rows, 501 steps",
        "optimizer         first loss  last loss  accuracy",
        "AdamW                0.68758    0.68758    0.7188",
        "fresh SGD lr 0.5     0.68758    0.14840    0.9688",
    ]


def test_tiny_batch_detached() -> None:
    model = built(Detached)
    found = probes.tiny_batch(model, adamw(model), *TINY, CE)
    assert [round(found.fresh.last, 5), round(found.fresh.accuracy or 0.0, 4)] == [0.14906, 0.9688]


def test_activations_healthy_and_dead() -> None:
    healthy, broken = (probes.activation_statistics(model, BATCH[0]) for model in (built(), dead()))
    assert [a.name for a in healthy.layers] == ["features.0", "features.1", "features.2", "features.3", "head"]
    assert [round(a.spread, 4) for a in healthy.layers] == [0.5386, 0.3051, 0.2134, 0.0930, 0.0449]
    assert [round(a.spread, 4) for a in broken.layers] == [0.5386, 0.0, 0.0, 0.0, 0.0]
    assert round(healthy.layers[3].zeros, 3) == 0.529
    assert round(broken.layers[3].zeros, 3) == 0.531
    assert round(healthy.layers[4].mean, 4) == 0.1037
    assert round(healthy.layers[4].std, 4) == 0.0457
    assert str(broken).splitlines()[5].split()[:2] == ["features.3", "ReLU"]
    assert "53.1 %" in str(broken)


def test_update_scale_at_rate_ten_thousand() -> None:
    model = built()
    found = probes.update_scale(model, torch.optim.SGD(model.parameters(), lr=1e4), *BATCH, CE)
    rows = [line.split() for line in str(found).splitlines()[2:]]
    assert rows[0] == ["0", "6.9416e-01", "3.4720e-01", "5.3009e+00", "3.4720e+03"]
    assert rows[1] == ["1", "9.7960e+07", "5.9419e+05", "3.4720e+03", "5.9419e+09"]
    assert rows[2] == ["2", "1.2313e+26", "5.3972e+17", "5.9419e+09", "inf"]
    assert rows[3][:2] == ["3", "nan"]


def trained(model: nn.Module, lr: float, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        CE(model(BATCH[0]), BATCH[1]).backward()
        optimizer.step()
    model.zero_grad()


def test_first_nonfinite_stage_at_rate_ten_thousand() -> None:
    model = built()
    trained(model, 1e4, 3)
    found = probes.first_nonfinite(model, *BATCH, CE)
    assert found.parameters == ()
    assert found.forward is not None
    assert (found.forward.name, found.forward.nonfinite) == ("features.2", 783)
    assert {s.name: s.nonfinite for s in found.stages} == {
        "features.0": 0,
        "features.1": 0,
        "features.2": 783,
        "features.3": 0,
        "head": 208,
        "loss": 1,
    }
    assert found.forward.where is not None
    assert found.forward.where.endswith(f"test_collector_probes.py:{Classifier.forward.__code__.co_firstlineno + 1}")
    assert found.loss != found.loss
    assert "first not finite: features.2" in str(found)
    # The loss was called by the instrument: no line of the user's made it.
    assert found.backward == probes.Operation("LogSoftmaxBackward0", None)


def test_learning_rates_compared() -> None:
    found = probes.learning_rates(built(), *BATCH, CE)
    assert {round(trial.first, 4) for trial in found.trials} == {0.6942}
    assert {t.lr: round(t.last, 4) for t in found.trials} == {
        1e-5: 0.6940,
        1e-3: 0.6825,
        0.1: 0.0949,
        1: 0.0162,
        10: 1.4909,
    }


def test_sgd_equation() -> None:
    found = probes.sgd_equation(built(), *BATCH, CE)
    assert len(found.residuals) == 6
    assert all(0 <= residual < 3e-8 for residual in found.residuals.values())
    assert any(found.residuals.values())


def test_update_ratios_of_adamw() -> None:
    model = built()
    found = probes.update_ratios(model, adamw(model, lr=0.1), *BATCH, CE)
    expected = [103.260, 212.441, 108.439, 101.782, 44.170, 18.217]
    assert [p.ratio for p in found.parameters] == [pytest.approx(value, rel=1e-5, abs=5e-4) for value in expected]
    assert "features.0.weight" in str(found)
    assert "103.260" in str(found)


def test_accumulation_of_the_stale_head() -> None:
    model, _ = stale()
    weight = probes.accumulation(model, X, Y, CE, parameters=[model.head.weight])
    # The chapter's head is its weight; its sixth digit hangs on the order in which the CPU adds.
    assert weight.norms == pytest.approx([0.155525, 0.311051, 0.466576, 0.622101, 0.777627], rel=1e-5)
    bias = probes.accumulation(model, X, Y, CE, parameters=[model.head.bias])
    total = probes.accumulation(model, X, Y, CE)
    assert total.norms == pytest.approx([math.hypot(*pair) for pair in zip(weight.norms, bias.norms, strict=True)])


# -- leaving no trace ------------------------------------------------------------------------------------------------


class Dropping(nn.Module):
    """Random, with buffers, and with a gradient from before."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU())
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def dropping() -> tuple[Dropping, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Dropping()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    CE(model(BATCH[0]), BATCH[1]).backward()
    return model, optimizer


Instrument = Callable[[nn.Module, Any, Any, Any, Any], Any]
INSTRUMENTS: dict[str, Instrument] = {
    "tiny_batch": lambda m, o, x, y, f: probes.tiny_batch(m, o, x, y, f, steps=3),
    "capability": lambda m, o, x, y, f: probes.capability(m, o, x, y, f, steps=3),
    "update_scale": lambda m, o, x, y, f: probes.update_scale(m, o, x, y, f),
    "update_ratios": lambda m, o, x, y, f: probes.update_ratios(m, o, x, y, f),
    "first_nonfinite": lambda m, o, x, y, f: probes.first_nonfinite(m, x, y, f),
    "learning_rates": lambda m, o, x, y, f: probes.learning_rates(m, x, y, f, steps=2),
    "sgd_equation": lambda m, o, x, y, f: probes.sgd_equation(m, x, y, f),
    "accumulation": lambda m, o, x, y, f: probes.accumulation(m, x, y, f),
    "activation_statistics": lambda m, o, x, y, f: probes.activation_statistics(m, x),
}


@pytest.mark.parametrize("name", INSTRUMENTS)
@pytest.mark.parametrize("grad", [True, False])
def test_nothing_stays_behind_and_the_result_is_plain(name: str, grad: bool) -> None:
    model, optimizer = dropping()
    x, y = BATCH
    before, gradients = state(model, optimizer), [p.grad.clone() for p in model.parameters()]  # type: ignore[union-attr]
    with torch.set_grad_enabled(grad):
        found = INSTRUMENTS[name](model, optimizer, x, y, CE)
        assert torch.is_grad_enabled() is grad
        again = INSTRUMENTS[name](model, optimizer, x, y, CE)
    after = state(model, optimizer)
    assert [a[:2] for a in after[0].values()] == [b[:2] for b in before[0].values()]
    assert all(a[2] is b[2] for a, b in zip(after[0].values(), before[0].values(), strict=True))
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))  # type: ignore[arg-type]
    assert after[1:] == before[1:]
    assert x.grad is None
    assert asdict(again) == asdict(found)
    assert json.loads(json.dumps(asdict(found))) is not None
    assert "\n" in str(found)


def refusing(x: Tensor) -> Tensor:
    raise ZeroDivisionError("the model's own")


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_the_models_own_error_passes_through_after_restoration(name: str) -> None:
    model, optimizer = dropping()
    before = state(model, optimizer)[1:]
    model.head.register_forward_pre_hook(lambda module, args: refusing(args[0]))
    hooked = state(model, optimizer)[1:]
    with pytest.raises(ZeroDivisionError, match="the model's own"):
        INSTRUMENTS[name](model, optimizer, *BATCH, CE)
    assert state(model, optimizer)[1:] == hooked != before


@pytest.mark.parametrize("name", [name for name in INSTRUMENTS if name != "activation_statistics"])
@pytest.mark.parametrize(
    ("loss_fn", "message"),
    [
        (functools.partial(CE, reduction="none"), "scalar outputs"),
        (lambda outputs, targets: torch.ones(()), "does not require grad"),
    ],
)
def test_a_loss_that_is_no_scalar_or_has_no_graph_is_torchs_own_error(name: str, loss_fn: Any, message: str) -> None:
    model, optimizer = dropping()
    before = state(model, optimizer)[1:]
    if name == "first_nonfinite" and message == "does not require grad":
        assert probes.first_nonfinite(model, *BATCH, loss_fn).backward is None
    else:
        with pytest.raises(RuntimeError, match=message):
            INSTRUMENTS[name](model, optimizer, *BATCH, loss_fn)
    assert state(model, optimizer)[1:] == before


@pytest.mark.parametrize("name", ["tiny_batch", "update_scale", "learning_rates", "capability"])
def test_values_that_are_not_finite_and_empty_batches_are_measured_as_they_are(name: str) -> None:
    model = built()
    x = torch.full((4, 2), float("nan"))
    found = INSTRUMENTS[name](model, adamw(model), x, Y[:4], CE)
    assert "nan" in str(found)
    empty = INSTRUMENTS[name](model, adamw(model), X[:0], Y[:0], CE)
    assert "nan" in str(empty)
    assert not any(parameter.isnan().any() for parameter in model.parameters())


# -- one instrument at a time ------------------------------------------------------------------------------------------


class Opaque(torch.optim.SGD):
    """Keeps what nobody can put back."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.remote = object()


def test_an_optimizer_that_cannot_be_undone_is_not_run() -> None:
    model = built()
    optimizer = Opaque(model.parameters())
    found = probes.tiny_batch(model, optimizer, *TINY, CE, steps=3)
    assert found.real is None
    assert found.refused == "Opaque keeps state that cannot be put back: remote"
    assert [fit.name for fit in found] == ["fresh SGD lr 0.5"]
    assert str(found).endswith("real optimizer not run: Opaque keeps state that cannot be put back: remote")
    for instrument in ("update_scale", "update_ratios"):
        with pytest.raises(ProbeError, match="remote"):
            INSTRUMENTS[instrument](model, optimizer, *BATCH, CE)


@pytest.mark.parametrize(
    ("name", "argument"), [("tiny_batch", "steps"), ("update_scale", "steps"), ("learning_rates", "steps")]
)
def test_no_steps_measure_nothing(name: str, argument: str) -> None:
    model = built()
    function = getattr(probes, name)
    arguments = BATCH if name == "learning_rates" else (adamw(model), *BATCH)
    with pytest.raises(ProbeError) as caught:
        function(model, *arguments, CE, **{argument: 0})
    assert caught.value.about == argument


def test_an_optimizer_that_needs_a_closure_gets_it() -> None:
    model = built()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
    found = probes.tiny_batch(model, optimizer, *TINY, CE, steps=6)
    assert found.real is not None
    assert found.real.last < 0.1 < found.real.first
    assert not optimizer.state


def test_several_optimizers_step_together() -> None:
    model = built()
    several = [torch.optim.SGD(model.features.parameters(), lr=0.5), torch.optim.SGD(model.head.parameters(), lr=0.5)]
    found = probes.tiny_batch(model, several, *TINY, CE, steps=20)
    assert found.real is not None
    assert found.real.name == "SGD + SGD"
    assert found.real.last == found.fresh.last


class Named(nn.Module):
    """Called by keyword, two inputs, answers a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, *, x: Tensor, scale: Tensor) -> dict[str, Tensor]:
        return {"scores": self.inner(x) * scale}


def test_inputs_and_outputs_may_be_of_any_kind() -> None:
    torch.manual_seed(0)
    model = Named()
    inputs = {"x": X[:64], "scale": torch.ones(())}
    targets = (Y[:64],)
    loss_fn: Any = lambda outputs, targets: CE(outputs["scores"], targets[0])  # noqa: E731
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    found = probes.tiny_batch(model, optimizer, inputs, targets, loss_fn, steps=5, rows=8)
    assert found.rows == 8
    assert found.fresh.accuracy is None
    assert found.real is not None
    assert found.real.last == found.fresh.last < found.fresh.first
    assert probes.activation_statistics(model, inputs).layers[0].shape == (64, 2)
    pair = nn.Bilinear(2, 2, 2)
    assert probes.activation_statistics(pair, (X[:4], X[:4])).layers[0].name == "Bilinear"


def test_a_batch_that_cannot_be_cut_alike_stays_whole() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(0, 1))
    tokens = torch.randint(0, 5, (4, 6))
    found = probes.tiny_batch(
        model, torch.optim.SGD(model.parameters(), lr=0.1), tokens, torch.ones(24).long(), CE, 2, rows=2
    )
    assert found.rows == 4


def test_ignored_targets_do_not_count_in_the_accuracy() -> None:
    scores = nn.Linear(2, 2)
    ignored = torch.where(torch.arange(32) < 16, Y[:32], -100)
    whole = probes.tiny_batch(scores, torch.optim.SGD(scores.parameters(), lr=0.5), X[:32], ignored, CE, steps=50)
    half = probes.tiny_batch(scores, torch.optim.SGD(scores.parameters(), lr=0.5), X[:16], Y[:16], CE, steps=50)
    assert whole.fresh.accuracy == half.fresh.accuracy
    targets = F.one_hot(Y[:32], 2).float()
    assert probes.tiny_batch(scores, adamw(scores), X[:32], targets, CE, steps=2).fresh.accuracy is None


def test_a_gradient_of_the_inputs_stays_the_users() -> None:
    x = X[:64].clone().requires_grad_()
    model = built()
    probes.tiny_batch(model, adamw(model), x, Y[:64], CE, steps=2, rows=8)
    probes.accumulation(model, x, Y[:64], CE)
    assert x.grad is None
    assert x.requires_grad


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_what_the_batch_was_computed_from_is_left_alone(name: str) -> None:
    encoder, model = nn.Linear(2, 2), built()
    x = encoder(X[:16])
    INSTRUMENTS[name](model, adamw(model), x, Y[:16], CE)
    assert encoder.weight.grad is None
    CE(model(x), Y[:16]).backward()  # the graph is still there


def test_each_regularizer_is_removed_alone_and_only_where_it_is() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.8), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=3.0)
    losses = (nn.CrossEntropyLoss(label_smoothing=0.2), functools.partial(CE, label_smoothing=0.2))
    found = [probes.capability(model, optimizer, *TINY, loss_fn, steps=60) for loss_fn in losses]
    assert asdict(found[0])["tiny"] == asdict(found[1])["tiny"]
    for one in found:
        real = one.tiny.real
        assert real is not None
        assert [removal.regularizer for removal in one.without] == ["dropout", "weight decay", "label smoothing"]
        assert all(removal.fit.last < real.last for removal in one.without)
        assert one.without[0].removed == ("2",)
        assert one.without[1].removed == ("AdamW group 0: 3",)
    assert losses[0].label_smoothing == 0.2  # type: ignore[union-attr]
    assert model[2].p == 0.8
    assert optimizer.param_groups[0]["weight_decay"] == 3.0
    assert "AdamW without weight decay" in str(found[0])
    assert "without dropout: 2" in str(found[0])

    plain = built()
    assert probes.capability(plain, adamw(plain), *TINY, CE, steps=2).without == ()
    model.eval()
    left = probes.capability(model, Opaque(model.parameters()), *TINY, losses[0], steps=2)
    assert [(r.regularizer, r.fit.name) for r in left.without] == [
        ("label smoothing", "fresh SGD lr 0.5 without label smoothing")
    ]


def test_dropout_inside_recurrent_and_attention_layers_is_removed() -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(2, 4, num_layers=2, dropout=0.5, batch_first=True)
            self.attention = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.rnn(x.unsqueeze(1))[0]
            return self.attention(hidden, hidden, hidden)[0][:, 0, :2]

    model = Attending()
    found = probes.capability(model, adamw(model), *TINY, CE, steps=2)
    assert found.without[0].removed == ("rnn", "attention")
    layers = probes.activation_statistics(model, TINY[0]).layers
    assert [layer.name for layer in layers] == ["rnn", "attention"]


def test_a_layer_called_twice_stands_twice_and_a_parametrized_one_once() -> None:
    act = nn.ReLU()
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 4)), act, nn.Linear(4, 4), act)
    layers = probes.activation_statistics(model, BATCH[0]).layers
    assert [layer.name for layer in layers] == ["0", "1", "2", "1"]
    one_row = probes.activation_statistics(model, BATCH[0][:1]).layers[0]
    assert one_row.spread != one_row.spread
    assert one_row.std == one_row.std


def test_half_precision_and_integers_have_statistics() -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Identity()).to(torch.bfloat16)
    layers = probes.activation_statistics(model, torch.arange(5)).layers
    assert all(layer.spread > 0 for layer in layers)
    counting = probes.activation_statistics(nn.Identity(), torch.arange(5)).layers[0]
    assert (counting.mean, round(counting.zeros, 6)) == (2.0, 0.2)


def test_update_ratios_name_what_no_optimizer_holds() -> None:
    model, optimizer = stale()
    found = {p.name: p for p in probes.update_ratios(model, optimizer, *BATCH, CE).parameters}
    assert list(found) == ["head.weight", "head.bias"]
    assert found["head.weight"].lr is None
    assert found["head.weight"].ratio is None
    assert found["head.weight"].delta_norm == 0.0
    healthy = built(Detached)
    sgd = torch.optim.SGD(healthy.parameters(), lr=0.1)
    ratios = {p.name: p for p in probes.update_ratios(healthy, sgd, *BATCH, CE).parameters}
    assert ratios["head.weight"].ratio == pytest.approx(1.0, rel=1e-5)
    assert ratios["features.0.weight"].gradient_norm is None


class LogInside(nn.Module):
    """Makes its infinity beside its layers, in its own forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(torch.zeros_like(self.inner(x)))


def test_a_module_around_finite_layers_is_named_itself() -> None:
    found = probes.first_nonfinite(nn.Sequential(LogInside(), nn.Identity()), *TINY, CE)
    assert found.forward is not None
    assert (found.forward.name, found.forward.nonfinite) == ("0", 64)
    assert [stage.name for stage in found.stages] == ["0.inner", "0", "1", "loss"]


class Rooted(nn.Module):
    """Finite forward; the square root's derivative at zero is not."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.inner(x)
        distance = (scores - scores.detach()).square().sum(1)
        return scores * torch.sqrt(distance).unsqueeze(1)


def test_the_operation_whose_backward_makes_the_first_nan_is_named_with_its_line() -> None:
    model = Rooted()
    found = probes.first_nonfinite(model, *TINY, CE)
    assert found.forward is None
    assert found.backward is not None
    assert found.backward.name == "SqrtBackward0"
    line = Rooted.forward.__code__.co_firstlineno + 3
    assert found.backward.where is not None
    assert found.backward.where.endswith(f"test_collector_probes.py:{line}")
    assert "first made by SqrtBackward0" in str(found)
    assert "every stage is finite" in str(found)
    healthy = probes.first_nonfinite(built(), *TINY, CE)
    assert healthy.backward is None
    assert healthy.forward is None


def test_bad_inputs_and_parameters_are_named() -> None:
    model = built()
    x = TINY[0].clone()
    x[3, 1] = float("inf")
    found = probes.first_nonfinite(model, x, TINY[1], CE)
    assert found.inputs == 1
    assert found.forward is not None
    assert found.forward.name == "features.0"
    with torch.no_grad():
        model.head.bias[0] = float("nan")
    found = probes.first_nonfinite(model, *TINY, nn.CrossEntropyLoss())
    assert found.parameters == ("head.bias",)
    assert found.forward is not None
    assert found.forward.name == "head"
    assert found.stages[-1].kind == "CrossEntropyLoss"


def test_hooks_on_the_graph_do_not_outlive_the_look() -> None:
    model = built()
    probes.first_nonfinite(model, *TINY, CE)
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    leaf = CE(model(TINY[0]), TINY[1]).grad_fn
    assert leaf is not None
    handle = leaf.register_hook(count)
    handle.remove()
    CE(model(TINY[0]), TINY[1]).backward()
    assert calls == 0
    assert not torch.is_anomaly_enabled()


def test_a_name_cannot_move_the_cursor() -> None:
    model = nn.Module()
    model.add_module("a\x1b[2J", nn.Linear(2, 2))
    model.forward = lambda x: model.get_submodule("a\x1b[2J")(x)  # type: ignore[method-assign]
    assert "\x1b" not in str(probes.activation_statistics(model, X[:4]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", INSTRUMENTS)
def test_on_a_cuda_device(name: str) -> None:
    model = built().cuda()
    x, y = (tensor.cuda() for tensor in BATCH)
    before = [p.detach().clone() for p in model.parameters()]
    found = INSTRUMENTS[name](model, adamw(model), x, y, CE)
    assert "nan" not in str(found)
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
