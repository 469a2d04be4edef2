"""Passivity and innocence: healthy scripts print bit for bit what they print without us, and nobody is accused.

Every script ends by printing a digest of torch's and Python's random state. Its losses are printed with all digits.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from collector_runs import RANDOM_STATE, Run, observe, plain, row, with_status

COMMON = """
import copy, random, warnings
import torch
from torch import nn
from torch.nn import functional as F

random.seed(0)
torch.manual_seed(0)
x = torch.randn(64, 4)
y = (x[:, 0] + x[:, 1] > 0).long()

class Net(nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        self.features = nn.Linear(4, hidden)
        self.head = nn.Linear(hidden, 2)

    def forward(self, x):
        return self.head(torch.relu(self.features(x)))

def fit(model, optimizer, steps=12, x=x, y=y):
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(repr(loss.item()))
"""

# Name -> what comes after COMMON. None of them is broken; `SUSPECTED` lists the rows that may still ask a question.
SCRIPTS = {
    "dropout": """
        model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 2))
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
    """,
    "batch_norm_after_a_bias": """
        model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
        fit(model, torch.optim.Adam(model.parameters(), 1e-2))
        model.eval()
        with torch.no_grad():
            print(repr(model(x).sum().item()), model[1].running_mean.tolist())
    """,
    "transformer_fused_evaluation": """
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2)
        head = nn.Linear(4, 2)
        optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], 1e-3)
        mask = torch.zeros(64, 3, dtype=torch.bool)
        mask[:, 2] = True
        sequence = torch.stack([x, x, x], 1)
        for _ in range(7):
            loss = F.cross_entropy(head(model(sequence, src_key_padding_mask=mask)[:, 0]), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                print(repr(loss.item()), repr(model(sequence, src_key_padding_mask=mask).sum().item()))
            with torch.inference_mode():
                print(repr(model(sequence).sum().item()))
            model.train()
    """,
    "autocast_bfloat16": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(12):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(repr(loss.item()))
    """,
    "scaler_finds_its_scale": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-50)
        for _ in range(12):
            loss = F.cross_entropy(model(x), y) * 64
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            print(repr(loss.item()), scaler.get_scale())
    """,
    "scaler_switched_off": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        for _ in range(12):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            print(repr(loss.item()))
    """,
    "loader_with_workers_and_augmentation": """
        class Rows(torch.utils.data.Dataset):
            def __len__(self):
                return 32
            def __getitem__(self, i):
                return x[i] + 0.1 * torch.randn(4) + random.random(), y[i]
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        if __name__ == "__main__":
            for _ in range(2):
                for a, b in torch.utils.data.DataLoader(Rows(), 8, shuffle=True, num_workers=2):
                    fit(model, optimizer, 1, a, b)
    """,
    "closure_lbfgs": """
        model = Net()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss
        for _ in range(8):
            print(repr(optimizer.step(closure).item()))
    """,
    "closure_adam": """
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss
        for _ in range(8):
            print(repr(optimizer.step(closure).item()))
    """,
    "checkpoint_reentrant": """
        from torch.utils.checkpoint import checkpoint
        class Checkpointed(nn.Module):
            def __init__(self):
                super().__init__()
                self.stem = nn.Linear(4, 8)
                self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.2))
                self.head = nn.Linear(8, 2)
            def forward(self, x):
                return self.head(checkpoint(self.block, self.stem(x), use_reentrant=True))
        model = Checkpointed()
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
    """,
    "checkpoint_without_reentry": """
        from torch.utils.checkpoint import checkpoint
        class Checkpointed(nn.Module):
            def __init__(self):
                super().__init__()
                self.stem = nn.Linear(4, 8)
                self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.2))
                self.head = nn.Linear(8, 2)
            def forward(self, x):
                return self.head(checkpoint(self.block, self.stem(x), use_reentrant=False))
        model = Checkpointed()
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
    """,
    "loss_inside_a_checkpoint": """
        from torch.utils.checkpoint import checkpoint
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        calls = 0
        def body(x, y):
            global calls
            calls += 1
            return F.cross_entropy(model(x), y)
        for _ in range(8):
            loss = checkpoint(body, x, y, use_reentrant=False)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(repr(loss.item()), calls)
    """,
    "last_bias_of_a_distance_loss": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(8):
            loss = (1 - (model(x[:32]) - model(x[32:])).pow(2).sum(1)).clamp(min=0).mean()
            optimizer.zero_grad()
            loss.backward()
            print(repr(loss.item()), model.head.bias.grad.tolist())
            optimizer.step()
    """,
    "gradients_by_autograd_grad": """
        model = Net()
        for _ in range(12):
            loss = F.cross_entropy(model(x), y)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients):
                    parameter -= 0.1 * gradient
            print(repr(loss.item()))
    """,
    "two_models_two_optimizers": """
        first, second = Net(), Net(6)
        a, b = torch.optim.SGD(first.parameters(), 0.1), torch.optim.Adam(second.parameters(), 1e-2)
        for _ in range(8):
            fit(first, a, 1)
            fit(second, b, 1)
    """,
    "two_optimizers_of_one_model": """
        model = Net()
        a, b = torch.optim.SGD(model.features.parameters(), 0.1), torch.optim.Adam(model.head.parameters(), 1e-2)
        for _ in range(8):
            loss = F.cross_entropy(model(x), y)
            a.zero_grad()
            b.zero_grad()
            loss.backward()
            a.step()
            b.step()
            print(repr(loss.item()))
    """,
    "weight_norm_parametrized": """
        from torch.nn.utils.parametrizations import spectral_norm, weight_norm
        model = nn.Sequential(weight_norm(nn.Linear(4, 8)), nn.ReLU(), spectral_norm(nn.Linear(8, 2)))
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
    """,
    "tied_weights": """
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = nn.Embedding(6, 8)
                self.out = nn.Linear(8, 6, bias=False)
                self.out.weight = self.embedding.weight
            def forward(self, ids):
                return self.out(self.embedding(ids))
        model = Tied()
        ids = torch.arange(64) % 6
        fit(model, torch.optim.SGD(model.parameters(), 0.1), x=ids, y=(ids + 1) % 6)
    """,
    "sparse_embedding_gradients": """
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = nn.EmbeddingBag(20, 8, sparse=True)
                self.head = nn.Linear(8, 2)
            def forward(self, ids):
                return self.head(self.embedding(ids))
        model = Words()
        a = torch.optim.SparseAdam(model.embedding.parameters(), 1e-2)
        b = torch.optim.SGD(model.head.parameters(), 0.1)
        ids = torch.arange(64 * 3).reshape(64, 3) % 7
        for _ in range(8):
            loss = F.cross_entropy(model(ids), y)
            a.zero_grad()
            b.zero_grad()
            loss.backward()
            a.step()
            b.step()
            print(repr(loss.item()))
    """,
    "lazy_layers": """
        model = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(2))
        model(x)
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
    """,
    "complex_parameters": """
        class Waves(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(4, 2, dtype=torch.complex64))
            def forward(self, x):
                return (x.to(torch.complex64) @ self.weight).abs()
        model = Waves()
        fit(model, torch.optim.Adam(model.parameters(), 1e-2))
    """,
    "custom_function": """
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x
            @staticmethod
            def backward(ctx, gradient):
                return 2 * ctx.saved_tensors[0] * gradient
        class Model(Net):
            def forward(self, x):
                return super().forward(Square.apply(self.features(x))[:, :4])
        model = Model()
        fit(model, torch.optim.SGD(model.parameters(), 0.05))
    """,
    "custom_optimizer_without_a_rate": """
        class Signs(torch.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, {"amount": 1e-2})
            @torch.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for parameter in group["params"]:
                        if parameter.grad is not None:
                            parameter -= group["amount"] * parameter.grad.sign()
        model = Net()
        fit(model, Signs(model.parameters()))
    """,
    "optimizer_around_another": """
        class Lookahead(torch.optim.Optimizer):
            def __init__(self, inner):
                self.inner = inner
                super().__init__(inner.param_groups, {})
                self.slow = [p.detach().clone() for g in self.param_groups for p in g["params"]]
                self.count = 0
            def step(self, closure=None):
                self.inner.step()
                self.count += 1
                if self.count % 3 == 0:
                    with torch.no_grad():
                        for slow, p in zip(self.slow, (p for g in self.param_groups for p in g["params"])):
                            slow += 0.5 * (p - slow)
                            p.copy_(slow)
        model = Net()
        fit(model, Lookahead(torch.optim.SGD(model.parameters(), 0.1)))
    """,
    "step_inside_backward": """
        model = Net()
        optimizers = {p: torch.optim.SGD([p], 0.1) for p in model.parameters()}
        def step(p):
            optimizers[p].step()
            optimizers[p].zero_grad()
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(step)
        for _ in range(8):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            print(repr(loss.item()))
    """,
    "average_by_deepcopy": """
        model = Net()
        average = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(8):
            fit(model, optimizer, 1)
            with torch.no_grad():
                for slow, fast in zip(average.parameters(), model.parameters()):
                    slow.lerp_(fast, 0.1)
                print(repr(F.cross_entropy(average(x), y).item()))
    """,
    "scripted_module": """
        model = torch.jit.script(Net())
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
    """,
    "exported_module": """
        model = torch.export.export(Net(), (x,)).module()
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
    """,
    "anomaly_mode_and_double_backward": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with torch.autograd.set_detect_anomaly(True, check_nan=True), warnings.catch_warnings():
            for _ in range(8):
                inputs = x.clone().requires_grad_(True)
                loss = F.cross_entropy(model(inputs), y)
                (slope,) = torch.autograd.grad(loss, inputs, create_graph=True)
                loss = loss + slope.pow(2).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                print(repr(loss.item()))
    """,
    "head_over_frozen_features": """
        model = Net()
        model.features.requires_grad_(False)
        fit(model, torch.optim.SGD(model.head.parameters(), 0.1))
    """,
    "frozen_tensors_inside_the_optimizer": """
        model = Net()
        model.features.requires_grad_(False)
        fit(model, torch.optim.AdamW(model.parameters(), 1e-2))
    """,
    "lora_zero_start": """
        class Low(nn.Module):
            def __init__(self):
                super().__init__()
                self.base = nn.Linear(4, 2).requires_grad_(False)
                self.down, self.up = nn.Linear(4, 2, bias=False), nn.Linear(2, 2, bias=False)
                nn.init.zeros_(self.up.weight)
            def forward(self, x):
                return self.base(x) + self.up(self.down(x))
        model = Low()
        fit(model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1))
    """,
    "warmup_from_rate_zero": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 8, 1.0))
        for _ in range(12):
            fit(model, optimizer, 1)
            scheduler.step()
    """,
    "plateau_scheduler_and_clipping": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
        for _ in range(12):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            print(repr(nn.utils.clip_grad_norm_(model.parameters(), 0.01).item()))
            optimizer.step()
            scheduler.step(loss.detach())
    """,
    "accumulation_over_four": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(8):
            for part in range(4):
                loss = F.cross_entropy(model(x[part::4]), y[part::4]) / 4
                loss.backward()
                print(repr(loss.item()))
            optimizer.step()
            optimizer.zero_grad()
    """,
    "gan_clears_before_each_backward": """
        maker = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(), nn.Linear(8, 1))
        a, b = torch.optim.Adam(maker.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
        one, zero, loss = torch.ones(64, 1), torch.zeros(64, 1), nn.BCEWithLogitsLoss()
        for _ in range(12):
            fake = maker(torch.randn(64, 4))
            b.zero_grad()
            of_critic = loss(critic(x), one) + loss(critic(fake.detach()), zero)
            of_critic.backward()
            b.step()
            a.zero_grad()
            of_maker = loss(critic(fake), one)
            of_maker.backward()
            a.step()
            print(repr(of_critic.item()), repr(of_maker.item()))
    """,
    "perceptual_loss_frozen": """
        judge = nn.Sequential(nn.Linear(2, 8), nn.Tanh()).requires_grad_(False)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        target = torch.randn(64, 2)
        for _ in range(8):
            loss = F.mse_loss(judge(model(x)), judge(target))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(repr(loss.item()))
    """,
    "validation_without_gradients": """
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(8):
            model.train()
            fit(model, optimizer, 1)
            model.eval()
            with torch.no_grad():
                print(repr(F.cross_entropy(model(x), y).item()))
    """,
    "second_stage_after_unfreezing": """
        model = Net()
        model.features.requires_grad_(False)
        fit(model, torch.optim.SGD(model.head.parameters(), 0.1), 6)
        model.features.requires_grad_(True)
        fit(model, torch.optim.SGD(model.parameters(), 0.01), 6)
    """,
    "group_added_after_unfreezing": """
        model = Net()
        model.features.requires_grad_(False)
        optimizer = torch.optim.SGD(model.head.parameters(), 0.1)
        fit(model, optimizer, 3)
        model.features.requires_grad_(True)
        optimizer.add_param_group({"params": model.features.parameters(), "lr": 0.01})
        fit(model, optimizer, 6)
    """,
    "updates_by_hand_without_an_optimizer": """
        model = Net()
        for _ in range(8):
            loss = F.cross_entropy(model(x), y)
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
            print(repr(loss.item()))
    """,
    "fast_weights_of_meta_learning": """
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(8):
            slow = dict(model.named_parameters())
            loss = F.cross_entropy(torch.func.functional_call(model, slow, (x[:32],)), y[:32])
            gradients = torch.autograd.grad(loss, list(slow.values()), create_graph=True)
            fast = {k: v - 0.1 * g for (k, v), g in zip(slow.items(), gradients)}
            loss = F.cross_entropy(torch.func.functional_call(model, fast, (x[32:],)), y[32:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(repr(loss.item()))
    """,
    "input_gradients_after_training": """
        model = Net()
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
        for _ in range(3):
            inputs = x.clone().requires_grad_(True)
            model(inputs)[:, 0].sum().backward()
            print(repr(inputs.grad.abs().sum().item()))
    """,
    "image_optimized_through_a_frozen_network": """
        model = Net().requires_grad_(False)
        image = torch.zeros(1, 4, requires_grad=True)
        optimizer = torch.optim.Adam([image], 0.1)
        for _ in range(8):
            loss = F.cross_entropy(model(image), y[:1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(repr(loss.item()))
    """,
    "embedding_with_a_padding_row": """
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = nn.Embedding(6, 8, padding_idx=0)
                self.head = nn.Linear(8, 2)
            def forward(self, ids):
                return self.head(self.embedding(ids).mean(1))
        model = Words()
        fit(model, torch.optim.SGD(model.parameters(), 0.1), x=torch.arange(64 * 3).reshape(64, 3) % 6)
    """,
    "a_gate_that_starts_at_zero": """
        class Gated(Net):
            def __init__(self):
                super().__init__()
                self.gate, self.branch = nn.Parameter(torch.zeros(1)), nn.Linear(4, 2)
            def forward(self, x):
                return super().forward(x) + self.gate * self.branch(x)
        model = Gated()
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
    """,
    "loss_of_zero_at_the_floor": """
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with torch.no_grad():
            model.weight.copy_(torch.eye(4))
            model.bias.zero_()
        for _ in range(8):
            loss = F.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(repr(loss.item()))
    """,
    "an_error_that_the_script_expects": """
        model = Net()
        fit(model, torch.optim.SGD(model.parameters(), 0.1))
        try:
            model(torch.zeros(2, 3))
        except RuntimeError:
            print("wrong width, as expected")
    """,
    "mean_teacher_without_gradients": """
        model, teacher = Net(), Net().requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(8):
            loss = F.cross_entropy(model(x), y) + F.mse_loss(model(x + 0.1), teacher(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(teacher.parameters(), model.parameters()):
                    slow.lerp_(fast, 0.1)
            print(repr(loss.item()))
    """,
}

# A question, not an accusation: what the run alone cannot decide. An entry here is a decision, and a reason.
SUSPECTED: dict[str, set[str]] = {}

Observed = Callable[[str], tuple[Run, Run]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """Runs a script of `SCRIPTS` once with and once without the watcher."""
    done: dict[str, tuple[Run, Run]] = {}

    def run(name: str) -> tuple[Run, Run]:
        if name not in done:
            folder = tmp_path_factory.mktemp(name)
            source = COMMON + _dedented(SCRIPTS[name]) + RANDOM_STATE
            done[name] = observe(source, folder), plain(source, folder)
        return done[name]

    return run


def _dedented(text: str) -> str:
    import textwrap

    return textwrap.dedent(text)


@pytest.mark.parametrize("name", SCRIPTS)
def test_prints_bitwise_what_it_prints_without_us(both: Observed, name: str) -> None:
    watched, alone = both(name)
    assert alone.code == 0, alone.err
    assert len(alone.out.splitlines()) > 1
    assert (watched.code, watched.out, watched.err) == (alone.code, alone.out, alone.err)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_watcher_had_no_problem(both: Observed, name: str) -> None:
    assert both(name)[0].seen.problems == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_healthy_script_is_not_accused(both: Observed, name: str) -> None:
    evidence = both(name)[0].seen
    assert with_status(evidence, "fail") == {}
    assert set(with_status(evidence, "suspected")) == SUSPECTED.get(name, set()), with_status(evidence, "suspected")


@pytest.mark.parametrize(
    ("name", "backwards", "steps", "forwards"),
    [
        ("dropout", 12, 12, 12),
        ("checkpoint_reentrant", 12, 12, None),  # the recomputed block is a call of its own
        ("closure_adam", 8, 8, 8),
        ("accumulation_over_four", 32, 8, 32),
        ("gan_clears_before_each_backward", 24, 24, None),
        ("gradients_by_autograd_grad", 0, 0, 12),
        ("updates_by_hand_without_an_optimizer", 8, 0, 8),
        ("validation_without_gradients", 8, 8, 16),
    ],
)
def test_calls_are_counted(both: Observed, name: str, backwards: int, steps: int, forwards: int | None) -> None:
    outcome = both(name)[0].seen.outcome
    assert (outcome.backwards, outcome.steps, outcome.steps_asked) == (backwards, steps, steps)
    assert forwards is None or outcome.forwards == forwards


def test_the_losses_on_the_tape_are_those_the_script_prints(both: Observed) -> None:
    for name in ("dropout", "batch_norm_after_a_bias", "scaler_switched_off", "closure_adam", "complex_parameters"):
        watched, _ = both(name)
        printed = [float(line) for line in watched.out.splitlines() if line[0].isdigit() and " " not in line]
        assert watched.seen.losses.value == printed


RULE_WITH_A_MODULE_OF_ITS_OWN = """
import torch
torch.manual_seed(5)
teacher = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Dropout(0.5))
optimizer = torch.optim.SGD(teacher.parameters(), 0.1)

def rule(x):
    targets = (x[:, 0] + x[:, 1] > 0).long()
    teacher(x.zero_())
    return targets
"""


def test_a_declared_rule_changes_nothing_whatever_its_module_does(tmp_path: Path) -> None:
    # Beside the rule lies another module of a name that the script imports late.
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "late.py").write_text("print('late, of the rule')")
    (folder / "rules.py").write_text(RULE_WITH_A_MODULE_OF_ITS_OWN)
    (tmp_path / "late.py").write_text("print('late, of the script')")
    source = COMMON + textwrap.dedent(SCRIPTS["dropout"]) + "import late\n" + RANDOM_STATE
    watched = observe(source, tmp_path, rule="rules/rules.py:rule")
    assert watched.out == plain(source, tmp_path).out
    assert "late, of the script" in watched.out
    evidence = watched.seen
    assert row(evidence, "TASK/rule").status == "pass"
    assert [record.name for record in evidence.parameters] == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert row(evidence, "OWNERSHIP/groups").values["optimizers"] == 1
