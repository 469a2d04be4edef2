"""Any loop that people write: what the script prints is bit for bit what it prints unwatched, and nobody is accused.

Each script is whole and healthy; it prints its losses and what it ends with in every bit.
"""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path

import pytest
from collector_runs import RANDOM_STATE, SEEDED, observe, plain, with_status

from weaklink.collector.evidence import Evidence, Subject

COMMON = """
import copy, math, os
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(64, 6)
y = (x[:, 0] + 0.5 * x[:, 1] > 0).long()


def mlp(inputs=6, outputs=2, hidden=16):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def shown(*models):
    for model in models:
        for name, tensor in model.state_dict().items():
            print(name, tensor.double().sum().item().hex(), tensor.double().abs().max().item().hex())


"""

LOOPS = {
    "closure_passed_to_sgd": """
        model = mlp(); optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss
        for step in range(12):
            print(float(optimizer.step(closure)).hex())
        shown(model)
    """,
    "lbfgs_with_line_search": """
        model = mlp(); optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5, line_search_fn="strong_wolfe")
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y) + 1e-3 * sum(p.square().sum() for p in model.parameters())
            loss.backward()
            return loss
        for step in range(7):
            print(float(optimizer.step(closure)).hex())
        shown(model)
    """,
    "accumulation_over_four_micro_batches": """
        model = mlp(); optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        for step in range(12):
            optimizer.zero_grad()
            for part in range(4):
                rows = slice(16 * part, 16 * part + 16)
                loss = F.cross_entropy(model(x[rows]), y[rows]) / 4
                loss.backward()
            print(loss.item().hex())
            optimizer.step()
        shown(model)
    """,
    "torch_autograd_backward_of_two_losses": """
        model = mlp(); optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for step in range(12):
            out = model(x)
            losses = [F.cross_entropy(out, y), 1e-3 * out.square().mean()]
            optimizer.zero_grad()
            torch.autograd.backward(losses)
            optimizer.step()
            print(losses[0].item().hex(), losses[1].item().hex())
        shown(model)
    """,
    "gradients_by_autograd_grad_set_by_hand": """
        model = mlp(); optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for step in range(12):
            loss = F.cross_entropy(model(x), y)
            for p, g in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):
                p.grad = g
            optimizer.step()
            print(loss.item().hex())
        shown(model)
    """,
    "update_by_hand_without_an_optimizer": """
        model = mlp()
        for step in range(12):
            loss = F.cross_entropy(model(x), y)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for p, g in zip(model.parameters(), gradients):
                    p -= 0.1 * g
            print(loss.item().hex())
        shown(model)
    """,
    "model_zero_grad_at_the_end": """
        model = mlp(); optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
        for step in range(12):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            model.zero_grad()
            print(loss.item().hex())
        shown(model)
    """,
    "backward_for_some_inputs_only": """
        model = mlp(); optimizer = torch.optim.SGD(model[2].parameters(), 0.1)
        for step in range(12):
            optimizer.zero_grad(set_to_none=False)
            loss = F.cross_entropy(model(x), y)
            loss.backward(inputs=list(model[2].parameters()))
            optimizer.step()
            print(loss.item().hex())
        shown(model)
    """,
    "an_optimizer_for_each_parameter_in_a_hook": """
        model = mlp()
        own = {p: torch.optim.Adam([p], 1e-2, foreach=False) for p in model.parameters()}
        def update(parameter):
            own[parameter].step()
            own[parameter].zero_grad()
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(update)
        for step in range(12):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            print(loss.item().hex())
        shown(model)
    """,
    "gradient_scaler_on_the_cpu": """
        model = mlp(); optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        for step in range(12):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            print(loss.item().hex(), scaler.get_scale())
        shown(model)
    """,
    "bfloat16_weights": """
        model = mlp().to(torch.bfloat16); optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for step in range(12):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.bfloat16()).float(), y)
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
        shown(model)
    """,
    "running_average_of_the_weights": """
        model = mlp(); average = torch.optim.swa_utils.AveragedModel(model)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        for step in range(12):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
        with torch.no_grad():
            print(F.cross_entropy(average.eval()(x), y).item().hex())
        shown(model, average)
    """,
    "weight_normalisation_and_parametrisation": """
        model = nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(6, 16)), nn.Tanh(),
            nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16)), nn.Tanh(),
            nn.utils.parametrizations.orthogonal(nn.Linear(16, 2)),
        )
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for step in range(12):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
    """,
    "tied_embedding_and_head": """
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.mix, self.head = nn.Embedding(7, 12), nn.Linear(12, 12), nn.Linear(12, 7, False)
                self.head.weight = self.embedding.weight
            def forward(self, tokens):
                return self.head(torch.tanh(self.mix(self.embedding(tokens))))
        model = Tied(); optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        tokens = torch.arange(64) % 7
        for step in range(12):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(tokens), (tokens * 3 + 1) % 7)
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
        shown(model)
    """,
    "low_rank_adapters": """
        class Adapted(nn.Module):
            def __init__(self, base, rank=2):
                super().__init__()
                self.base = base.requires_grad_(False)
                self.down = nn.Parameter(0.1 * torch.randn(rank, base.in_features))
                self.up = nn.Parameter(torch.zeros(base.out_features, rank))
            def forward(self, x):
                return self.base(x) + x @ self.down.t() @ self.up.t()
        model = mlp()
        model[0], model[2] = Adapted(model[0]), Adapted(model[2])
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
        for step in range(12):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
        shown(model)
    """,
    "mixture_of_experts": """
        class Mixture(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.experts = nn.Linear(6, 4), nn.ModuleList(mlp(6, 2) for _ in range(4))
            def forward(self, x):
                weight, chosen = self.gate(x).softmax(-1).max(-1)
                out = torch.zeros(len(x), 2)
                for number, expert in enumerate(self.experts):
                    rows = (chosen == number).nonzero().squeeze(1)
                    if len(rows):
                        out = out.index_add(0, rows, weight[rows, None] * expert(x[rows]))
                return out
        model = Mixture(); optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for step in range(12):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
        shown(model)
    """,
    "a_function_with_its_own_backward": """
        class Rounded(torch.autograd.Function):
            @staticmethod
            def forward(ctx, value):
                ctx.save_for_backward(value)
                return torch.round(value * 8) / 8
            @staticmethod
            def backward(ctx, gradient):
                (value,) = ctx.saved_tensors
                return gradient * (value.abs() <= 1)
        class Quantised(nn.Linear):
            def forward(self, x):
                return F.linear(x, Rounded.apply(self.weight), self.bias)
        model = nn.Sequential(Quantised(6, 16), nn.Tanh(), Quantised(16, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(12):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
        shown(model)
    """,
    "checkpointing_re_entrant": """
        from torch.utils.checkpoint import checkpoint
        model = nn.ModuleList([mlp(6, 6), mlp(6, 2)]); optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        start = x.clone().requires_grad_()
        for step in range(12):
            optimizer.zero_grad()
            loss = F.cross_entropy(model[1](checkpoint(model[0], start, use_reentrant=True)), y)
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
        shown(model)
    """,
    "checkpointing_not_re_entrant": """
        from torch.utils.checkpoint import checkpoint
        class Deep(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks, self.head = nn.ModuleList(mlp(6, 6) for _ in range(3)), nn.Linear(6, 2)
            def forward(self, x):
                for block in self.blocks:
                    x = x + checkpoint(block, x, use_reentrant=False)
                return self.head(x)
        model = Deep(); optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for step in range(12):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
        shown(model)
    """,
    "adversarial_with_the_critic_cleared_before_its_step": """
        maker, critic = mlp(3, 6), mlp(6, 1)
        first, second = torch.optim.Adam(maker.parameters(), 2e-3), torch.optim.Adam(critic.parameters(), 2e-3)
        one, zero = torch.ones(64, 1), torch.zeros(64, 1)
        for step in range(12):
            first.zero_grad()
            made = maker(torch.randn(64, 3))
            wanted = F.binary_cross_entropy_with_logits(critic(made), one)
            wanted.backward()
            first.step()
            second.zero_grad()
            scores = F.binary_cross_entropy_with_logits(critic(x), one)
            scores = scores + F.binary_cross_entropy_with_logits(critic(made.detach()), zero)
            scores.backward()
            second.step()
            print(wanted.item().hex(), scores.item().hex())
        shown(maker, critic)
    """,
    "critic_with_a_gradient_penalty": """
        maker, critic = mlp(3, 6), mlp(6, 1)
        first, second = torch.optim.Adam(maker.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
        for step in range(4):
            for _ in range(3):
                made = maker(torch.randn(64, 3)).detach()
                between = (x + torch.rand(64, 1) * (made - x)).requires_grad_()
                slope, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
                loss = critic(made).mean() - critic(x).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()
                second.zero_grad()
                loss.backward()
                second.step()
            for p in critic.parameters():
                p.requires_grad_(False)
            first.zero_grad()
            wanted = -critic(maker(torch.randn(64, 3))).mean()
            wanted.backward()
            first.step()
            for p in critic.parameters():
                p.requires_grad_(True)
            print(loss.item().hex(), wanted.item().hex())
        shown(maker, critic)
    """,
    "actor_and_critic_with_a_target_network": """
        actor, critic = mlp(6, 2), mlp(8, 1)
        target = copy.deepcopy(critic)
        first, second = torch.optim.Adam(actor.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
        for step in range(12):
            action = torch.tanh(actor(x)).detach()
            reward = -(action - x[:, :2]).square().mean(1, keepdim=True)
            with torch.no_grad():
                value = reward + 0.9 * target(torch.cat([x, torch.tanh(actor(x))], 1))
            loss = F.mse_loss(critic(torch.cat([x, action], 1)), value)
            second.zero_grad()
            loss.backward()
            second.step()
            policy = -critic(torch.cat([x, torch.tanh(actor(x))], 1)).mean()
            first.zero_grad()
            policy.backward()
            first.step()
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), critic.parameters()):
                    slow.lerp_(fast, 0.05)
            print(loss.item().hex(), policy.item().hex())
        shown(actor, critic, target)
    """,
    "two_tasks_with_a_shared_trunk": """
        trunk, one, two = mlp(6, 8), nn.Linear(8, 2), nn.Linear(8, 1)
        optimizer = torch.optim.Adam([*trunk.parameters(), *one.parameters(), *two.parameters()], 1e-2)
        for step in range(12):
            optimizer.zero_grad()
            hidden = trunk(x)
            a = F.cross_entropy(one(hidden), y)
            a.backward(retain_graph=True)
            b = F.mse_loss(two(hidden).squeeze(1), x[:, 2])
            b.backward()
            optimizer.step()
            print(a.item().hex(), b.item().hex())
        shown(trunk, one, two)
    """,
    "alternating_optimizers": """
        model = mlp()
        halves = [torch.optim.SGD(model[0].parameters(), 0.1), torch.optim.SGD(model[2].parameters(), 0.1)]
        for step in range(14):
            model.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            halves[step % 2].step()
            print(loss.item().hex())
        shown(model)
    """,
    "sparse_and_dense_optimizers_after_one_backward": """
        table, head = nn.Embedding(20, 8, sparse=True), mlp(8, 2)
        optimizers = [torch.optim.SparseAdam(table.parameters(), 1e-2), torch.optim.Adam(head.parameters(), 1e-2)]
        tokens = torch.randint(20, (64, 3))
        for step in range(12):
            loss = F.cross_entropy(head(table(tokens).mean(1)), y)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            print(loss.item().hex())
        shown(table, head)
    """,
    "projected_gradients_of_two_losses": """
        trunk, one, two = mlp(6, 8), nn.Linear(8, 2), nn.Linear(8, 1)
        optimizer = torch.optim.SGD([*trunk.parameters(), *one.parameters(), *two.parameters()], 0.1)
        for step in range(12):
            found = []
            for loss in (F.cross_entropy(one(trunk(x)), y), F.mse_loss(two(trunk(x)).squeeze(1), x[:, 2])):
                optimizer.zero_grad()
                loss.backward()
                found.append([p.grad.clone() if p.grad is not None else None for g in optimizer.param_groups
                              for p in g["params"]])
            for p, a, b in zip(optimizer.param_groups[0]["params"], *found):
                if a is None or b is None:
                    p.grad = a if b is None else b
                else:
                    inner = (a * b).sum()
                    p.grad = a + b - (inner / b.square().sum() * b if inner < 0 else 0)
            optimizer.step()
            print(loss.item().hex())
        shown(trunk, one, two)
    """,
    "inner_and_outer_loop_of_meta_learning": """
        model = mlp(); outer = torch.optim.Adam(model.parameters(), 1e-2)
        for step in range(12):
            weights = dict(model.named_parameters())
            call = lambda w: torch.func.functional_call(model, w, (x,))
            inner = F.cross_entropy(call(weights), y)
            gradients = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            fast = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), gradients)}
            loss = F.cross_entropy(call(fast), y)
            outer.zero_grad()
            loss.backward()
            outer.step()
            print(loss.item().hex())
        shown(model)
    """,
    "sharpness_aware_in_two_backwards": """
        model = mlp(); optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(12):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            with torch.no_grad():
                length = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
                moves = [0.05 * p.grad / length for p in model.parameters()]
                for p, move in zip(model.parameters(), moves):
                    p.add_(move)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for p, move in zip(model.parameters(), moves):
                    p.sub_(move)
            optimizer.step()
            optimizer.zero_grad()
            print(loss.item().hex())
        shown(model)
    """,
    "head_first_then_all_of_it": """
        model = mlp()
        for p in model[0].parameters():
            p.requires_grad = False
        optimizer = torch.optim.SGD(model[2].parameters(), 0.1)
        for step in range(31):
            if step == 24:
                for p in model[0].parameters():
                    p.requires_grad = True
                optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.05})
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
        shown(model)
    """,
    "three_steps_with_a_warmup": """
        model = mlp(); optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 3)
        for step in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y, weight=torch.tensor([1.0, 9.0]))
            loss.backward()
            optimizer.step()
            warmup.step()
            print(loss.item().hex())
        shown(model)
    """,
    "compiled_with_the_eager_backend": """
        model = mlp(); compiled = torch.compile(model, backend="eager")
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for step in range(6):
            optimizer.zero_grad()
            loss = F.cross_entropy(compiled(x), y)
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
        shown(model)
    """,
    "compiled_with_the_ahead_of_time_backend": """
        model = mlp(); compiled = torch.compile(model, backend="aot_eager")
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for step in range(6):
            optimizer.zero_grad()
            loss = F.cross_entropy(compiled(x), y)
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
        shown(model)
    """,
}

WORKERS = """
    from torch.utils.data import DataLoader, TensorDataset

    def main():
        loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, num_workers=2,
                            multiprocessing_context="{method}", persistent_workers=True)
        model = mlp(); optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for epoch in range(3):
            for rows, targets in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(rows), targets)
                loss.backward()
                optimizer.step()
                print(loss.item().hex())
        shown(model)

    if __name__ == "__main__":
        main()
"""
LOOPS |= {f"two_workers_by_{method}": WORKERS.format(method=method) for method in ("fork", "spawn")}

LIGHTNING = """
    import warnings, logging
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    import lightning as L
    from torch.utils.data import DataLoader, TensorDataset

    {module}

    trainer = L.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    model = Module()
    trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True))
    shown(model)
"""
AUTOMATIC = """
    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = mlp()
        def training_step(self, batch, number):
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            print(loss.item().hex())
            return loss
        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 1e-2)
"""
MANUAL = """
    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.maker, self.critic = mlp(3, 6), mlp(6, 1)
        def training_step(self, batch, number):
            first, second = self.optimizers()
            one, zero = torch.ones(len(batch[0]), 1), torch.zeros(len(batch[0]), 1)
            self.toggle_optimizer(first)
            made = self.maker(torch.randn(len(batch[0]), 3))
            wanted = F.binary_cross_entropy_with_logits(self.critic(made), one)
            first.zero_grad()
            self.manual_backward(wanted)
            first.step()
            self.untoggle_optimizer(first)
            self.toggle_optimizer(second)
            scores = F.binary_cross_entropy_with_logits(self.critic(batch[0]), one)
            scores = scores + F.binary_cross_entropy_with_logits(self.critic(made.detach()), zero)
            second.zero_grad()
            self.manual_backward(scores)
            second.step()
            self.untoggle_optimizer(second)
            print(wanted.item().hex(), scores.item().hex())
        def configure_optimizers(self):
            return torch.optim.Adam(self.maker.parameters(), 1e-3), torch.optim.Adam(self.critic.parameters(), 1e-3)
"""

# Rows that are suspected in such a loop, and why that is a decision; nothing else may be, and nothing may fail.
SUSPECTED: dict[str, set[str]] = {}


def whole(body: str) -> str:
    return SEEDED + COMMON + textwrap.dedent(body) + RANDOM_STATE


def watched(source: str, folder: Path) -> Evidence:
    """Evidence of a script that printed the same, bit for bit, without the watcher."""
    (folder / "plain").mkdir()
    (folder / "watched").mkdir()
    alone, seen = plain(source, folder / "plain"), observe(source, folder / "watched")
    assert (seen.code, seen.out) == (alone.code, alone.out), seen.err
    assert alone.code == 0, alone.err
    assert seen.seen.problems == []
    return seen.seen


@pytest.mark.parametrize("name", LOOPS)
def test_a_healthy_loop_prints_the_same_and_is_not_accused(name: str, tmp_path: Path) -> None:
    evidence = watched(whole(LOOPS[name]), tmp_path)
    assert with_status(evidence, "fail") == {}
    assert set(with_status(evidence, "suspected")) == SUSPECTED.get(name, set())


@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="lightning is not installed")
@pytest.mark.parametrize("module", [AUTOMATIC, MANUAL], ids=["automatic", "manual"])
def test_a_lightning_module_prints_the_same_and_is_not_accused(module: str, tmp_path: Path) -> None:
    source = LIGHTNING.format(module=textwrap.indent(textwrap.dedent(module), "    ").strip())
    evidence = watched(whole(source), tmp_path)
    assert with_status(evidence, "fail") == {}
    assert with_status(evidence, "suspected") == {}


def test_a_module_of_a_package_is_run_as_python_does(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text(COMMON)
    (package / "train.py").write_text("from .parts import *\n" + textwrap.dedent(LOOPS["closure_passed_to_sgd"]))
    run = observe("", tmp_path, name="unused.py", subject=Subject(kind="module", name="package.train"))
    assert run.code == 0, run.err
    assert with_status(run.seen, "fail") == {}
    assert with_status(run.seen, "suspected") == {}
