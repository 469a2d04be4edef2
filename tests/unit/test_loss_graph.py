"""The objective read off the graph: what losses are given, how operands meet, how terms are reduced; and gradients that
end. Faulty scripts beside healthy ones that look alike.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from collector_runs import line_of, observe_code, row, with_status

from weaklink.collector.evidence import Evidence

COMMON = """
import math
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(32, 4)
y = (x[:, 0] + x[:, 1] > 0).long()


def mlp(inputs, outputs, hidden=16):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def fit(loss_of, parameters, steps=20, rate=1e-2):
    optimizer = torch.optim.Adam(parameters, rate)
    for step in range(steps):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def seen(body: str, folder: Path) -> tuple[Evidence, str]:
    """The evidence of a script with looks, and the script's text."""
    source = COMMON + "\n".join(line.removeprefix("        ") for line in body.strip("\n").splitlines())
    return observe_code(source, folder, looks="fork"), source


FAULTY = {
    "probabilities_to_a_divergence": (
        """
        model, target = mlp(4, 3), torch.randn(32, 3).softmax(-1)
        fit(lambda: F.kl_div(model(x).softmax(-1), target, reduction="batchmean"), model.parameters())
        """,
        "OBJECTIVE/fed", "fail", "F.kl_div",
    ),
    "probabilities_given_as_logarithms": (
        """
        model, target = mlp(4, 3), torch.randn(32, 3).softmax(-1)
        fit(lambda: F.kl_div(model(x).log_softmax(-1), target, reduction="batchmean", log_target=True),
            model.parameters())
        """,
        "OBJECTIVE/fed", "fail", "F.kl_div",
    ),
    "divergence_along_two_dimensions": (
        """
        model, target = mlp(4, 3), torch.randn(32, 3).softmax(-1)
        fit(lambda: F.kl_div(model(x).log_softmax(0), target, reduction="batchmean"), model.parameters())
        """,
        "OBJECTIVE/fed", "fail", "F.kl_div",
    ),
    "softmax_by_function": (
        """
        model = mlp(4, 3)
        def loss():
            scores = torch.softmax(model(x), -1)
            return F.cross_entropy(scores, y)
        fit(loss, model.parameters())
        """,
        "OBJECTIVE/fed", "fail", "torch.softmax",
    ),
    "padding_scored_by_ctc": (
        """
        model = mlp(4, 5)
        frames = torch.randn(12, 8, 4)
        targets = torch.tensor([[1, 2, 0, 0]] * 8)
        def loss():
            logs = model(frames).log_softmax(-1)
            return F.ctc_loss(logs, targets, torch.full((8,), 12), torch.full((8,), 4))
        fit(loss, model.parameters())
        """,
        "OBJECTIVE/sequence", "fail", "F.ctc_loss",
    ),
    "ctc_without_an_alignment": (
        """
        model = mlp(4, 5)
        frames = torch.randn(3, 8, 4)
        targets = torch.tensor([[1, 2, 3, 4]] * 8)
        def loss():
            logs = model(frames).log_softmax(-1)
            return F.ctc_loss(logs, targets, torch.full((8,), 3), torch.full((8,), 4), zero_infinity=True)
        fit(loss, model.parameters())
        """,
        "OBJECTIVE/sequence", "fail", "F.ctc_loss",
    ),
    "weights_of_another_shape": (
        """
        model, weight = mlp(4, 2), torch.rand(32, 1)
        def loss():
            errors = F.cross_entropy(model(x), y, reduction="none")
            return (errors * weight).mean()
        fit(loss, model.parameters())
        """,
        "OBJECTIVE/shapes", "fail", "F.cross_entropy",
    ),
    "factor_of_zero": (
        """
        model, beta = mlp(4, 2), 0.0
        def loss():
            margin = beta * model(x)[:, 0]
            return -F.logsigmoid(margin).mean()
        fit(loss, model.parameters())
        """,
        "OBJECTIVE/factor", "fail", "beta * model",
    ),
    "mask_of_zeros": (
        """
        model, mask = mlp(4, 2), torch.zeros(32)
        fit(lambda: (F.cross_entropy(model(x), y, reduction="none") * mask).sum() + 1.0, model.parameters())
        """,
        "OBJECTIVE/factor", "fail", "* mask",
    ),
    "both_factors_zero": (
        """
        base = mlp(4, 2).requires_grad_(False)
        class Adapter(nn.Module):
            def __init__(self):
                super().__init__()
                self.down, self.up = nn.Parameter(torch.empty(2, 4)), nn.Parameter(torch.empty(2, 2))
                for factor in (self.down, self.up):
                    nn.init.zeros_(factor)
            def forward(self, x):
                return base(x) + x @ self.down.t() @ self.up.t()
        model = Adapter()
        fit(lambda: F.cross_entropy(model(x), y), model.parameters())
        """,
        "GRADIENT/nonzero", "fail", "nn.init.zeros_",
    ),
    "both_factors_zero_beside_a_bias": (
        """
        class Adapter(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("base", torch.randn(4, 2))
                self.bias = nn.Parameter(torch.randn(2))
                self.down, self.up = nn.Parameter(torch.zeros(4, 2)), nn.Parameter(torch.zeros(2, 2))
            def forward(self, x):
                return x @ self.base + self.bias + x @ self.down @ self.up
        model = Adapter()
        fit(lambda: F.cross_entropy(model(x), y), model.parameters())
        """,
        "GRADIENT/nonzero", "fail", "self.down, self.up",
    ),
    "ends_in_a_dead_relu": (
        """
        model = mlp(4, 1)
        with torch.no_grad():
            model[2].bias.fill_(-50.0)
        def loss():
            outputs = model(x)
            outputs = torch.relu(outputs)
            return F.mse_loss(outputs.squeeze(-1), x[:, 0])
        fit(loss, model.parameters())
        """,
        "GRADIENT/nonzero", "suspected", "torch.relu",
    ),
    "ratio_of_the_same_policy": (
        """
        model, advantage = mlp(4, 3), torch.randn(32)
        def log_probability():
            return model(x).log_softmax(-1).gather(1, y.unsqueeze(1)).squeeze(1)
        def loss():
            new = log_probability()
            old = log_probability()
            ratio = torch.exp(new - old)
            return 1.0 - (ratio * advantage).mean()
        fit(loss, model.parameters())
        """,
        "GRADIENT/nonzero", "suspected", "old = log_probability",
    ),
    "one_module_in_all_places": (
        """
        class Heads(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(4, 8)
                self.heads = nn.ModuleList([nn.Linear(8, 2)] * 3)
            def forward(self, x):
                return [head(self.body(x).tanh()) for head in self.heads]
        model = Heads()
        fit(lambda: sum(F.cross_entropy(out, y) for out in model(x)), model.parameters())
        """,
        "OWNERSHIP/shared", "fail", "nn.ModuleList",
    ),
    "both_sides_trained": (
        """
        model = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
        head = nn.Linear(8, 8)
        views = lambda: x + 0.3 * torch.randn_like(x)
        def loss():
            one, other = model(views()), model(views())
            return -F.cosine_similarity(head(one), other, dim=-1).mean()
        fit(loss, [*model.parameters(), *head.parameters()], 400)
        """,
        "DEPENDENCY/stop_gradient", "suspected", "F.cosine_similarity",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FAULTY, ids=str)
def test_a_fault_is_found_at_its_line(case: str, tmp_path: Path) -> None:
    body, row_id, status, line = FAULTY[case]
    evidence, source = seen(body, tmp_path)
    found = row(evidence, row_id)
    assert found.status == status, found.text
    assert found.where[0].line == line_of(source, line)
    wrong = {r.id for r in evidence.rows if r.status in ("fail", "suspected") and not r.downstream}
    assert wrong == {row_id}


HEALTHY = {
    "divergence_as_documented": """
        model, target = mlp(4, 3), torch.randn(32, 3).softmax(-1)
        fit(lambda: F.kl_div(model(x).log_softmax(-1), target, reduction="batchmean"), model.parameters())
        """,
    "divergence_of_logarithms": """
        model, target = mlp(4, 3), torch.randn(32, 3).log_softmax(-1)
        fit(lambda: F.kl_div(model(x).log_softmax(-1), target, reduction="batchmean", log_target=True),
            model.parameters())
        """,
    "expected_error_of_a_softmax": """
        model, target = mlp(4, 2), F.one_hot(y, 2).float()
        fit(lambda: (target - target * model(x).softmax(-1)).sum(-1).mean(), model.parameters())
        """,
    "ctc_with_its_lengths": """
        model = mlp(4, 5)
        frames = torch.randn(12, 8, 4)
        targets = torch.tensor([[1, 2, 0, 0]] * 8)
        fit(lambda: F.ctc_loss(model(frames).log_softmax(-1), targets, torch.full((8,), 12), torch.full((8,), 2)),
            model.parameters())
        """,
    "ctc_with_the_blank_last": """
        model = mlp(4, 5)
        frames = torch.randn(12, 8, 4)
        targets = torch.tensor([0, 1, 3] * 8)
        fit(lambda: F.ctc_loss(model(frames).log_softmax(-1), targets, torch.full((8,), 12), torch.full((8,), 3),
                               blank=4), model.parameters())
        """,
    "pairs_ranked_against_each_other": """
        model, relevance = mlp(4, 1), torch.rand(32)
        def loss():
            scores = model(x).squeeze(-1)
            better = (relevance[:, None] > relevance).float()
            return (F.softplus(scores - scores[:, None]) * better).sum() / better.sum()
        fit(loss, model.parameters())
        """,
    "kernel_over_all_pairs": """
        model, kernel = mlp(4, 1), torch.exp(-torch.cdist(x, x))
        def loss():
            scores = model(x).squeeze(-1)
            return (x[:, :1] * scores * kernel).mean() + scores.pow(2).mean()
        fit(loss, model.parameters())
        """,
    "weights_of_the_same_shape": """
        model, weight = mlp(4, 2), torch.rand(32)
        fit(lambda: (F.cross_entropy(model(x), y, reduction="none") * weight).mean(), model.parameters())
        """,
    "as_many_features_as_rows": """
        model, scale = mlp(4, 32), nn.Parameter(torch.randn(32))
        fit(lambda: F.cross_entropy(model(x) * scale + x[:, :1] * scale, y), [*model.parameters(), scale])
        """,
    "term_left_out_by_its_weight": """
        model, entropy_weight = mlp(4, 2), 0.0
        def loss():
            logs = model(x).log_softmax(-1)
            return F.nll_loss(logs, y) - entropy_weight * -(logs.exp() * logs).sum(-1).mean()
        fit(loss, model.parameters())
        """,
    "adapter_with_one_factor_zero": """
        base = mlp(4, 2).requires_grad_(False)
        class Adapter(nn.Module):
            def __init__(self):
                super().__init__()
                self.down, self.up = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.zeros(2, 2))
            def forward(self, x):
                return base(x) + x @ self.down.t() @ self.up.t()
        model = Adapter()
        fit(lambda: F.cross_entropy(model(x), y), model.parameters())
        """,
    "expert_that_nothing_is_sent_to": """
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.experts = nn.ModuleList(mlp(4, 2) for _ in range(3))
            def forward(self, x):
                choice = (x[:, 0] > 0).long()
                out = torch.zeros(len(x), 2)
                for index, expert in enumerate(self.experts):
                    rows = (choice == index).nonzero().squeeze(1)
                    out = out.index_add(0, rows, expert(x[rows]))
                return out
        model = Experts()
        fit(lambda: F.cross_entropy(model(x), y), model.parameters())
        """,
    "expert_under_a_mask": """
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.experts = nn.ModuleList(mlp(4, 2) for _ in range(3))
            def forward(self, x):
                choice = F.one_hot((x[:, 0] > 0).long(), 3).float()
                return sum(choice[:, i : i + 1] * expert(x) for i, expert in enumerate(self.experts))
        model = Experts()
        fit(lambda: F.cross_entropy(model(x), y), model.parameters())
        """,
    # Without a hidden state to multiply, the recurrent weight learns nothing beside a bias that does.
    "recurrent_layer_over_one_step": """
        layer, head = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 2)
        fit(lambda: F.cross_entropy(head(layer(x.unsqueeze(1))[0][:, -1]), y),
            [*layer.parameters(), *head.parameters()])
        """,
    "hinge_that_is_satisfied": """
        model = mlp(4, 1)
        sign = 2.0 * y - 1.0
        fit(lambda: F.relu(0.01 - sign * (model(x).squeeze(-1) + 10 * sign)).mean(), model.parameters())
        """,
    "offset_of_both_sides": """
        class Scorer(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.offset = mlp(4, 1), nn.Parameter(torch.zeros(1))
            def forward(self, x):
                return (self.body(x) + self.offset).squeeze(-1)
        model = Scorer()
        fit(lambda: F.softplus(-(model(x[:16]) - model(x[16:])) * torch.sign(x[:16, 0] - x[16:, 0])).mean(),
            model.parameters())
        """,
    "ratio_against_the_old_policy": """
        model, advantage = mlp(4, 3), torch.randn(32)
        log_probability = lambda: model(x).log_softmax(-1).gather(1, y.unsqueeze(1)).squeeze(1)
        old = log_probability().detach()
        fit(lambda: 1.0 - (torch.exp(log_probability() - old).clamp(0.8, 1.2) * advantage).mean(), model.parameters())
        """,
    "one_activation_in_all_places": """
        act = nn.ReLU()
        model = nn.Sequential(nn.Linear(4, 8), act, nn.Linear(8, 8), act, nn.Linear(8, 2))
        fit(lambda: F.cross_entropy(model(x), y), model.parameters())
        """,
    "one_layer_called_in_a_loop": """
        class Shared(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 2)
            def forward(self, x):
                for _ in range(3):
                    x = torch.tanh(self.layer(x))
                return self.head(x)
        model = Shared()
        fit(lambda: F.cross_entropy(model(x), y), model.parameters())
        """,
    "stop_gradient_on_one_side": """
        model = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8), nn.BatchNorm1d(8))
        head = nn.Linear(8, 8)
        views = lambda: x + 0.3 * torch.randn_like(x)
        fit(lambda: -F.cosine_similarity(head(model(views())), model(views()).detach(), dim=-1).mean(),
            [*model.parameters(), *head.parameters()], 120)
        """,
    "contrastive_with_negatives": """
        model = mlp(4, 8)
        views = lambda: F.normalize(model(x + 0.3 * torch.randn_like(x)), dim=-1)
        fit(lambda: F.cross_entropy(views() @ views().t() / 0.2, torch.arange(32)), model.parameters(), 120)
        """,
    "similarity_beside_a_spread_term": """
        model = mlp(4, 8)
        views = lambda: model(x + 0.3 * torch.randn_like(x))
        def loss():
            one, other = views(), views()
            return F.relu(1 - one.std(0)).mean() - F.cosine_similarity(one, other, dim=-1).mean()
        fit(loss, model.parameters(), 120)
        """,
    "two_towers_for_pairs": """
        left, right = mlp(4, 8), mlp(4, 8)
        fit(lambda: F.cosine_embedding_loss(left(x), right(x.flip(0)), 2.0 * y - 1.0),
            [*left.parameters(), *right.parameters()], 60)
        """,
    "autoencoder_summed_on_both_sides": """
        class Variational(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.decoder = mlp(4, 4), mlp(2, 4)
            def forward(self, x):
                mean, log_variance = self.encoder(x).chunk(2, -1)
                return self.decoder(mean + torch.randn_like(mean) * (0.5 * log_variance).exp()), mean, log_variance
        model = Variational()
        def loss():
            out, mean, log_variance = model(x)
            divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1).mean()
            return F.mse_loss(out, x, reduction="sum") / len(x) + divergence
        fit(loss, model.parameters(), 120)
        """,
    "autoencoder_with_a_small_weight": """
        class Variational(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.decoder = mlp(4, 4), mlp(2, 4)
            def forward(self, x):
                mean, log_variance = self.encoder(x).chunk(2, -1)
                return self.decoder(mean + torch.randn_like(mean) * (0.5 * log_variance).exp()), mean, log_variance
        model = Variational()
        def loss():
            out, mean, log_variance = model(x)
            divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp()) / len(x)
            return F.mse_loss(out, x) + 0.001 * divergence
        fit(loss, model.parameters(), 200)
        """,
    "three_steps_alone": """
        model = mlp(4, 2)
        fit(lambda: F.cross_entropy(model(x), y), model.parameters(), 3)
        """,
}


@pytest.mark.parametrize("case", HEALTHY, ids=str)
def test_a_healthy_script_that_looks_alike_is_left_alone(case: str, tmp_path: Path) -> None:
    evidence, _ = seen(HEALTHY[case], tmp_path)
    assert with_status(evidence, "fail") == {}
    assert with_status(evidence, "suspected") == {}
