"""Healthy training loops of the kinds that people write: no row fails, and every suspicion is a decision with a reason.

Each script trains; the unusual thing in it (a stop-gradient, a frozen part, a loss below zero) is meant.
"""

from __future__ import annotations

import runpy
import textwrap
from pathlib import Path

import pytest
import torch
from collector_runs import observe_code, with_status, write

from weaklink.collector.evidence import Subject
from weaklink.collector.ledger import learning_ledger

COMMON = """
import copy, math
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(32, 4)
y = (x[:, 0] + x[:, 1] > 0).long()
noise = lambda: x + 0.1 * torch.randn_like(x)


def mlp(inputs, outputs, hidden=16):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def fit(loss_of, optimizer, steps=20):
    for step in range(steps):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss
"""

# -- losses that stop or estimate gradients on purpose -----------------------------------------------------------------

ESTIMATED = {
    "gumbel_softmax_hard": """
        encoder, decoder = mlp(4, 8), nn.Linear(8, 4)
        optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-2)
        fit(lambda: F.mse_loss(decoder(F.gumbel_softmax(encoder(x), tau=0.7, hard=True)), x), optimizer)
    """,
    "straight_through_by_hand": """
        encoder, decoder = mlp(4, 8), nn.Linear(8, 4)
        optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-2)
        def loss():
            soft = encoder(x).softmax(-1)
            hard = F.one_hot(soft.argmax(-1), 8).float()
            return F.mse_loss(decoder(hard + soft - soft.detach()), x)
        fit(loss, optimizer)
    """,
    "vector_quantised_autoencoder": """
        class Quantised(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.decoder, self.codes = mlp(4, 3), mlp(3, 4), nn.Embedding(16, 3)
            def forward(self, x):
                z = self.encoder(x)
                q = self.codes(torch.cdist(z, self.codes.weight).argmin(1))
                self.extra = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
                return self.decoder(z + (q - z).detach())
        model = Quantised()
        fit(lambda: F.mse_loss(model(x), x) + model.extra, torch.optim.Adam(model.parameters(), 1e-2))
    """,
    # The code book follows a running average: its parameter is made anew in every forward, as the usual code does it.
    "vector_quantised_with_a_running_average": """
        class Quantised(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.decoder, self.codes = mlp(4, 3), mlp(3, 4), nn.Embedding(8, 3)
                self.register_buffer("sizes", torch.ones(8))
                self.sums = nn.Parameter(self.codes.weight.detach().clone())
            def forward(self, x):
                z = self.encoder(x)
                hot = F.one_hot(torch.cdist(z, self.codes.weight).argmin(1), 8).float()
                q = hot @ self.codes.weight
                if self.training:
                    self.sizes = self.sizes * 0.9 + 0.1 * hot.sum(0)
                    self.sums = nn.Parameter(self.sums * 0.9 + 0.1 * hot.t() @ z)
                    self.codes.weight = nn.Parameter(self.sums / self.sizes.unsqueeze(1))
                self.extra = 0.25 * F.mse_loss(q.detach(), z)
                return self.decoder(z + (q - z).detach())
        model = Quantised()
        fit(lambda: F.mse_loss(model(x), x) + model.extra, torch.optim.Adam(model.parameters(), 1e-2))
    """,
    "policy_gradient_with_a_detached_advantage": """
        policy, value = mlp(4, 3), mlp(4, 1)
        optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], 1e-2)
        def loss():
            chosen = torch.distributions.Categorical(logits=policy(x))
            action = chosen.sample()
            reward = (action == y).float()
            baseline = value(x).squeeze(-1)
            advantage = (reward - baseline).detach()
            return -(chosen.log_prob(action) * advantage).mean() + F.mse_loss(baseline, reward)
        fit(loss, optimizer)
    """,
    "policy_gradient_by_cross_entropy": """
        policy = mlp(4, 3)
        def loss():
            scores = policy(x)
            action = torch.multinomial(scores.detach().softmax(-1), 1).squeeze(1)
            reward = (action == y).float()
            return (F.cross_entropy(scores, action, reduction="none") * (reward - reward.mean())).mean()
        fit(loss, torch.optim.Adam(policy.parameters(), 1e-2))
    """,
    "actor_critic_with_a_shared_trunk": """
        class Agent(nn.Module):
            def __init__(self):
                super().__init__()
                self.trunk, self.actor, self.critic = nn.Linear(4, 16), nn.Linear(16, 3), nn.Linear(16, 1)
            def forward(self, x):
                h = torch.tanh(self.trunk(x))
                return self.actor(h).log_softmax(-1), self.critic(h.detach()).squeeze(-1)
        agent = Agent()
        def loss():
            logs, value = agent(x)
            action = logs.exp().multinomial(1)
            reward = (action.squeeze(1) == y).float()
            chosen, entropy = logs.gather(1, action).squeeze(1), -(logs.exp() * logs).sum(-1).mean()
            return -(chosen * (reward - value.detach())).mean() + F.smooth_l1_loss(value, reward) - 0.01 * entropy
        fit(loss, torch.optim.Adam(agent.parameters(), 1e-2))
    """,
    "clipped_surrogate_objective": """
        agent = mlp(4, 3)
        optimizer = torch.optim.Adam(agent.parameters(), 1e-2)
        for _ in range(5):
            with torch.no_grad():
                before = torch.distributions.Categorical(logits=agent(x))
                action = before.sample()
                old, advantage = before.log_prob(action), (action == y).float() - 0.5
            for _ in range(4):
                now = torch.distributions.Categorical(logits=agent(x))
                ratio = (now.log_prob(action) - old).exp()
                loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
                loss = loss - 0.01 * now.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
    """,
    "q_learning_with_a_target_network": """
        online = mlp(4, 3)
        target = copy.deepcopy(online)
        optimizer = torch.optim.Adam(online.parameters(), 1e-2)
        for step in range(20):
            action, reward, following = torch.randint(3, (32, 1)), torch.randn(32), noise()
            best = reward + 0.9 * target(following).max(1).values.detach()
            loss = F.smooth_l1_loss(online(x).gather(1, action).squeeze(1), best)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 5 == 4:
                target.load_state_dict(online.state_dict())
    """,
    "continuous_control_with_two_optimizers": """
        actor, critic = nn.Sequential(mlp(4, 1), nn.Tanh()), mlp(5, 1)
        slow = copy.deepcopy(critic).requires_grad_(False)
        of_actor, of_critic = torch.optim.Adam(actor.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
        for _ in range(20):
            action = (actor(x) + 0.1 * torch.randn(32, 1)).detach()
            reward = -(action - x[:, :1]).pow(2)
            with torch.no_grad():
                best = reward + 0.9 * slow(torch.cat([x, actor(x)], 1))
            of_critic.zero_grad()
            F.mse_loss(critic(torch.cat([x, action], 1)), best).backward()
            of_critic.step()
            of_actor.zero_grad()
            (-critic(torch.cat([x, actor(x)], 1)).mean()).backward()
            of_actor.step()
            with torch.no_grad():
                for s, f in zip(slow.parameters(), critic.parameters()):
                    s.lerp_(f, 0.05)
    """,
    "quantile_regression_of_all_pairs": """
        net = mlp(4, 8)
        levels = (torch.arange(8) + 0.5) / 8
        def loss():
            theta = net(x)
            goal = (theta.detach() * 0.9 + torch.randn(32, 1))
            error = goal.unsqueeze(1) - theta.unsqueeze(2)
            huber = F.smooth_l1_loss(theta.unsqueeze(2), goal.unsqueeze(1), reduction="none")
            return (huber * (levels[:, None] - (error.detach() < 0).float()).abs()).mean()
        fit(loss, torch.optim.Adam(net.parameters(), 1e-2))
    """,
    # The samples of one state: every quantile against every sample, reduced by the loss itself.
    "quantiles_of_one_state_against_all_its_samples": """
        net = mlp(4, 16)
        samples = torch.randn(16)
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        fit(lambda: F.smooth_l1_loss(net(x[0]).unsqueeze(1), samples.unsqueeze(0)), optimizer)
    """,
    "scores_against_each_other_as_a_matrix": """
        net = mlp(4, 1)
        goal = x[:, 0]
        def loss():
            score = net(x).squeeze(1)
            return F.mse_loss(score[:, None] - score, goal[:, None] - goal) + F.mse_loss(score[:, None], goal)
        fit(loss, torch.optim.Adam(net.parameters(), 1e-2))
    """,
}

# -- teachers, targets and two views -----------------------------------------------------------------------------------

TEACHERS = {
    "two_views_with_a_stopped_gradient": """
        class Siamese(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.predictor = mlp(4, 8), mlp(8, 8)
            def forward(self, a, b):
                za, zb = self.encoder(a), self.encoder(b)
                return self.predictor(za), self.predictor(zb), za.detach(), zb.detach()
        model = Siamese()
        def loss():
            pa, pb, za, zb = model(noise(), noise())
            return -(F.cosine_similarity(pa, zb).mean() + F.cosine_similarity(pb, za).mean()) / 2
        fit(loss, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9))
    """,
    # Teacher and student in one module, the optimizer over all of it, the average taken in the forward.
    "teacher_inside_the_model_averaged_in_its_forward": """
        class Bootstrap(nn.Module):
            def __init__(self):
                super().__init__()
                self.online, self.predictor = mlp(4, 8), mlp(8, 8)
                self.target = copy.deepcopy(self.online)
            def forward(self, a, b):
                with torch.no_grad():
                    for t, o in zip(self.target.parameters(), self.online.parameters()):
                        t.lerp_(o, 0.1)
                    goal = self.target(b)
                return 2 - 2 * F.cosine_similarity(self.predictor(self.online(a)), goal).mean()
        model = Bootstrap()
        fit(lambda: model(noise(), noise()), torch.optim.Adam(model.parameters(), 1e-2))
    """,
    "mean_teacher_consistency": """
        student = nn.Sequential(mlp(4, 8), nn.Dropout(0.1), nn.Linear(8, 2))
        teacher = copy.deepcopy(student)
        optimizer = torch.optim.SGD(student.parameters(), 0.1)
        for step in range(20):
            with torch.no_grad():
                goal = teacher(noise()).softmax(-1)
            scores = student(noise())
            loss = F.cross_entropy(scores[:8], y[:8]) + min(1.0, step / 10) * F.mse_loss(scores.softmax(-1), goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for t, s in zip(teacher.parameters(), student.parameters()):
                t.data.mul_(0.9).add_(s.data, alpha=0.1)
    """,
    "distillation_with_a_temperature": """
        teacher, student = mlp(4, 3).eval(), mlp(4, 3, 8)
        optimizer = torch.optim.Adam(student.parameters(), 1e-2)
        def loss():
            with torch.no_grad():
                goal = F.softmax(teacher(x) / 2.0, dim=-1)
            scores = student(x)
            soft = F.kl_div(F.log_softmax(scores / 2.0, dim=-1), goal, reduction="batchmean") * 4.0
            return 0.5 * F.cross_entropy(scores, y) + 0.5 * soft
        fit(loss, optimizer)
    """,
    "distillation_with_detached_outputs_of_a_trainable_teacher": """
        teacher, student = mlp(4, 3), mlp(4, 3, 8)
        def loss():
            goal = teacher(x).detach().log_softmax(1)
            return F.kl_div(student(x).log_softmax(1), goal, log_target=True, reduction="batchmean")
        fit(loss, torch.optim.Adam(student.parameters(), 1e-2))
    """,
    "centred_teacher_without_labels": """
        student = mlp(4, 8)
        teacher = copy.deepcopy(student).requires_grad_(False)
        optimizer, centre = torch.optim.AdamW(student.parameters(), 1e-2), torch.zeros(8)
        for _ in range(20):
            goal = teacher(noise())
            shares = ((goal - centre) / 0.04).softmax(-1).detach()
            loss = -(shares * F.log_softmax(student(noise()) / 0.1, dim=-1)).sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            centre = centre * 0.9 + 0.1 * goal.mean(0)
            with torch.no_grad():
                for t, s in zip(teacher.parameters(), student.parameters()):
                    t.mul_(0.99).add_(s, alpha=0.01)
    """,
    "momentum_contrast_with_a_queue": """
        query, key = mlp(4, 8), mlp(4, 8).requires_grad_(False)
        key.load_state_dict(query.state_dict())
        queue = F.normalize(torch.randn(64, 8), dim=1)
        optimizer = torch.optim.SGD(query.parameters(), 0.05)
        for _ in range(20):
            q = F.normalize(query(noise()), dim=1)
            with torch.no_grad():
                for k, o in zip(key.parameters(), query.parameters()):
                    k.mul_(0.9).add_(o, alpha=0.1)
                k = F.normalize(key(noise()), dim=1)
            scores = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.t()], 1) / 0.2
            loss = F.cross_entropy(scores, torch.zeros(32, dtype=torch.long))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            queue = torch.cat([k, queue])[:64]
    """,
    "pairs_of_views_by_cross_entropy": """
        net = mlp(4, 8)
        def loss():
            z = F.normalize(torch.cat([net(noise()), net(noise())]), dim=1)
            scores = (z @ z.t() / 0.5).masked_fill(torch.eye(64, dtype=torch.bool), float("-inf"))
            return F.cross_entropy(scores, torch.arange(64).roll(32))
        fit(loss, torch.optim.Adam(net.parameters(), 1e-2))
    """,
    "preferences_against_a_frozen_reference": """
        policy = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10))
        reference = copy.deepcopy(policy).eval()
        good, bad = torch.randint(10, (8, 6)), torch.randint(10, (8, 6))
        def likelihood(model, tokens):
            logs = model(tokens[:, :-1]).log_softmax(-1)
            return logs.gather(2, tokens[:, 1:, None]).squeeze(2).sum(1)
        def loss():
            with torch.no_grad():
                base = likelihood(reference, good) - likelihood(reference, bad)
            return -F.logsigmoid(0.1 * (likelihood(policy, good) - likelihood(policy, bad) - base)).mean()
        fit(loss, torch.optim.Adam(policy.parameters(), 1e-2))
    """,
    "pseudo_labels_above_a_threshold": """
        net = mlp(4, 2)
        def loss():
            with torch.no_grad():
                sure, label = net(noise()).softmax(1).max(1)
            unlabelled = F.cross_entropy(net(noise()), label, reduction="none") * (sure > 0.95)
            return F.cross_entropy(net(x[:8]), y[:8]) + unlabelled.mean()
        fit(loss, torch.optim.SGD(net.parameters(), 0.1))
    """,
    # An auxiliary task none of whose labels are there: the loss that is meant carries the run.
    "one_of_two_tasks_without_a_label": """
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.trunk, self.depth, self.parts = mlp(4, 8), nn.Linear(8, 1), nn.Linear(8, 3)
            def forward(self, x):
                h = self.trunk(x)
                return self.depth(h).squeeze(1), self.parts(h)
        model = Two()
        parts = torch.full((32,), 255)
        def loss():
            depth, scores = model(x)
            of_parts = F.cross_entropy(scores, parts, ignore_index=255, reduction="sum") / 32
            return (depth - x[:, 0]).abs().mean() + of_parts
        fit(loss, torch.optim.Adam(model.parameters(), 1e-2))
    """,
    "attention_of_a_teacher_followed": """
        teacher, student = nn.Linear(4, 5), nn.Linear(4, 5)
        sequence = torch.randn(8, 5, 4)
        def loss():
            goal = F.softmax(teacher(sequence), -1).detach()
            return F.kl_div(F.log_softmax(student(sequence), -1), goal, reduction="mean")
        fit(loss, torch.optim.Adam(student.parameters(), 1e-2))
    """,
}

# -- densities, divergences and other losses below zero ----------------------------------------------------------------

DENSITIES = {
    "variational_autoencoder_with_the_divergence_by_hand": """
        class Variational(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.decoder = mlp(4, 4), mlp(2, 4)
            def forward(self, x):
                mean, log_variance = self.encoder(x).chunk(2, 1)
                z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
                return self.decoder(z), mean, log_variance
        model = Variational()
        def loss():
            out, mean, log_variance = model(x)
            divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1).mean()
            return F.binary_cross_entropy_with_logits(out, x.sigmoid(), reduction="sum") / 32 + divergence
        fit(loss, torch.optim.Adam(model.parameters(), 1e-2))
    """,
    "divergence_from_logarithms_of_targets": """
        net = mlp(4, 5)
        goal = torch.randn(32, 5).log_softmax(1)
        fit(lambda: F.kl_div(net(x).log_softmax(1), goal, reduction="batchmean", log_target=True),
            torch.optim.Adam(net.parameters(), 1e-2))
    """,
    # The mixture's shares are clamped at the end: log(0) never meets the divergence.
    "targets_that_are_no_distribution_in_a_divergence": """
        net = mlp(4, 6)
        counts = torch.randint(0, 5, (32, 6)).float()
        fit(lambda: F.kl_div(F.logsigmoid(net(x)), counts, reduction="mean"), torch.optim.Adam(net.parameters(), 1e-2))
    """,
    "log_density_above_zero": """
        net = mlp(3, 2)
        def loss():
            mean, log_scale = net(x[:, :3]).unbind(1)
            return -torch.distributions.Normal(mean, log_scale.clamp(-6, 2).exp()).log_prob(x[:, 0] * 0.5).mean()
        fit(loss, torch.optim.Adam(net.parameters(), 5e-2), 60)
    """,
    # A class-conditional density: positive by right, no logarithm anywhere, and nll_loss as the shortest gather.
    "generative_classifier_of_narrow_gaussians": """
        class Gaussians(nn.Module):
            def __init__(self):
                super().__init__()
                self.mean = nn.Parameter(torch.randn(2, 4) * 0.1)
                self.log_scale = nn.Parameter(torch.full((2, 4), -2.0))
            def forward(self, x):
                standard = (x[:, None] - self.mean) * (-self.log_scale).exp()
                return (-0.5 * standard.pow(2) - self.log_scale - 0.9189385).sum(-1)
        model = Gaussians()
        narrow = torch.where(y[:, None] == 1, 1.0, -1.0) + 0.02 * x
        fit(lambda: F.nll_loss(model(narrow), y), torch.optim.Adam(model.parameters(), 5e-2), 60)
    """,
    "normalising_flow": """
        class Coupling(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = mlp(2, 4)
            def forward(self, x):
                a, b = x.chunk(2, 1)
                shift, log_scale = self.net(a).chunk(2, 1)
                log_scale = torch.tanh(log_scale)
                return torch.cat([b * log_scale.exp() + shift, a], 1), log_scale.sum(1)
        class Flow(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([Coupling() for _ in range(4)])
            def forward(self, x):
                total = 0.0
                for layer in self.layers:
                    x, log_det = layer(x)
                    total = total + log_det
                return x, total
        model, base = Flow(), torch.distributions.Normal(0.0, 1.0)
        def loss():
            z, log_det = model(x * 0.05)
            return -(base.log_prob(z).sum(1) + log_det).mean()
        fit(loss, torch.optim.Adam(model.parameters(), 1e-2), 60)
    """,
    "mixture_density": """
        net = mlp(4, 9)
        def loss():
            share, mean, log_scale = net(x).chunk(3, 1)
            kernel = torch.distributions.Normal(mean, log_scale.exp())
            return -torch.logsumexp(share.log_softmax(1) + kernel.log_prob(x[:, :1] * 0.01), 1).mean()
        fit(loss, torch.optim.Adam(net.parameters(), 1e-2))
    """,
    "reward_that_is_maximised": """
        net = mlp(4, 1)
        fit(lambda: -(net(x).tanh().squeeze(1) * x[:, 0]).mean(), torch.optim.Adam(net.parameters(), 1e-2))
    """,
    "critics_without_a_sigmoid": """
        maker, critic = mlp(3, 4), mlp(4, 1)
        a, b = torch.optim.RMSprop(maker.parameters(), 1e-3), torch.optim.RMSprop(critic.parameters(), 1e-3)
        for step in range(20):
            fake = maker(torch.randn(32, 3))
            loss = critic(fake.detach()).mean() - critic(x).mean()
            b.zero_grad()
            loss.backward()
            b.step()
            for p in critic.parameters():
                p.data.clamp_(-0.1, 0.1)
            if step % 2:
                a.zero_grad()
                (-critic(maker(torch.randn(32, 3))).mean()).backward()
                a.step()
    """,
    "gradient_penalty": """
        maker, critic = mlp(3, 4), mlp(4, 1)
        a, b = torch.optim.Adam(maker.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
        for _ in range(10):
            fake = maker(torch.randn(32, 3)).detach()
            between = torch.lerp(x, fake, torch.rand(32, 1)).requires_grad_(True)
            slope, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
            loss = critic(fake).mean() - critic(x).mean() + 10 * (slope.norm(dim=1) - 1).pow(2).mean()
            b.zero_grad(); loss.backward(); b.step()
            a.zero_grad(); (-critic(maker(torch.randn(32, 3))).mean()).backward(); a.step()
    """,
    "adversarial_pair_with_soft_labels": """
        maker, critic = mlp(3, 4), nn.Sequential(mlp(4, 1), nn.Sigmoid())
        a, b = torch.optim.Adam(maker.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
        real, made = torch.full((32, 1), 0.9), torch.zeros(32, 1)
        for _ in range(10):
            fake = maker(torch.randn(32, 3))
            loss = F.binary_cross_entropy(critic(x), real) + F.binary_cross_entropy(critic(fake.detach()), made)
            b.zero_grad(); loss.backward(); b.step()
            wanted = F.binary_cross_entropy(critic(fake), torch.ones(32, 1))
            a.zero_grad(); wanted.backward(); a.step()
    """,
    "soft_labels_at_every_position": """
        net = mlp(4, 3)
        sequence = torch.randn(8, 5, 4)
        goal = torch.randn(8, 5, 3).softmax(-1)
        def loss():
            logs = net(sequence).log_softmax(-1)
            return -(logs * goal).sum() / 40 + F.kl_div(logs, goal, reduction="sum") / 40
        fit(loss, torch.optim.Adam(net.parameters(), 1e-2))
    """,
    "likelihood_ratios_above_zero": """
        net = mlp(4, 2)
        prior = torch.tensor([0.05, 0.95]).log()
        fit(lambda: F.nll_loss(net(x).log_softmax(1) - prior, y), torch.optim.Adam(net.parameters(), 3e-2), 60)
    """,
}

# -- losses over classes, pairs and sequences --------------------------------------------------------------------------

LOSSES = {
    "smoothed_labels_with_class_weights": """
        net = mlp(4, 2)
        lossf = nn.CrossEntropyLoss(weight=torch.tensor([0.2, 3.0]), label_smoothing=0.1)
        fit(lambda: lossf(net(x), y), torch.optim.SGD(net.parameters(), 0.1))
    """,
    "padded_sequences_with_an_ignored_index": """
        class Tagger(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.rnn, self.out = nn.Embedding(12, 8, padding_idx=0), nn.LSTM(8, 8), nn.Linear(8, 5)
            def forward(self, tokens):
                return self.out(self.rnn(self.embed(tokens))[0])
        model = Tagger()
        tokens = torch.randint(1, 12, (7, 16)); tokens[5:, 8:] = 0
        tags = (tokens % 5).masked_fill(tokens == 0, -100)
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        fit(lambda: F.cross_entropy(model(tokens).flatten(0, 1), tags.flatten()), optimizer)
    """,
    "mixed_inputs_and_targets": """
        net = mlp(4, 2)
        def loss():
            share, order = float(torch.distributions.Beta(0.4, 0.4).sample()), torch.randperm(32)
            hot = F.one_hot(y, 2).float()
            return F.cross_entropy(net(share * x + (1 - share) * x[order]), share * hot + (1 - share) * hot[order])
        fit(loss, torch.optim.SGD(net.parameters(), 0.1))
    """,
    "several_labels_each": """
        net = mlp(4, 3)
        labels = (x[:, :3] > 0).float()
        lossf = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 5.0, 0.5]))
        fit(lambda: lossf(net(x), labels), torch.optim.Adam(net.parameters(), 1e-2))
    """,
    "focal_loss_on_probabilities": """
        net = mlp(4, 1)
        def loss():
            p = net(x).squeeze(1).sigmoid()
            right = torch.where(y == 1, p, 1 - p)
            return (0.25 * (1 - right) ** 2 * F.binary_cross_entropy(p, y.float(), reduction="none")).mean()
        fit(loss, torch.optim.Adam(net.parameters(), 1e-2))
    """,
    "attention_before_a_head": """
        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                self.q, self.k, self.v, self.head = (nn.Linear(4, n) for n in (8, 8, 8, 2))
                self.head = nn.Linear(8, 2)
            def forward(self, x):
                shares = (self.q(x) @ self.k(x).transpose(1, 2) / 8**0.5).softmax(-1)
                return self.head((shares @ self.v(x)).mean(1)), shares
        model = Attention()
        sequence = torch.randn(32, 5, 4)
        def loss():
            scores, shares = model(sequence)
            return F.cross_entropy(scores, y) - 0.01 * -(shares * shares.clamp(min=1e-9).log()).sum(-1).mean()
        fit(loss, torch.optim.Adam(model.parameters(), 1e-2))
    """,
    # Normalised over the rows first and over the columns then: a matching, not probabilities taken for raw scores.
    "matching_normalised_both_ways": """
        a, b = mlp(4, 8), mlp(4, 8)
        optimizer = torch.optim.Adam([*a.parameters(), *b.parameters()], 1e-2)
        def loss():
            scores = F.normalize(a(x), dim=1) @ F.normalize(b(x), dim=1).t() * 10
            return F.nll_loss((scores.softmax(0)).log_softmax(1), torch.arange(32))
        fit(loss, optimizer)
    """,
    "margins_of_triplets_that_reach_zero": """
        net = mlp(4, 8)
        far = torch.where(y[:, None] == 1, 3.0, -3.0) + x
        a, b = far[y == 1], far[y == 0]
        n = min(len(a), len(b))
        fit(lambda: F.triplet_margin_loss(net(a[:n]), net(a[:n].roll(1, 0)), net(b[:n]), margin=0.2),
            torch.optim.Adam(net.parameters(), 3e-2), 60)
    """,
    "hinge_that_reaches_zero": """
        net = nn.Linear(4, 1)
        sign = torch.where(x[:, 0] > 0, 1.0, -1.0)
        apart = x + sign[:, None]
        fit(lambda: (1 - sign * net(apart).squeeze(1)).clamp(min=0).mean(), torch.optim.SGD(net.parameters(), 1.0), 60)
    """,
    # The first steps meet only pairs outside of the margin: no loss, no gradient, and nothing wrong.
    "contrastive_pairs_that_start_outside_the_margin": """
        net = nn.Linear(4, 8)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(20):
            apart = 100.0 if step < 12 else 0.01
            distance = (net(x) - net(x + apart)).norm(dim=1)
            loss = (1.0 - distance).clamp(min=0).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "connectionist_temporal": """
        net = nn.LSTM(4, 6)
        frames = torch.randn(20, 4, 4)
        labels, lengths = torch.randint(1, 6, (4, 5)), torch.full((4,), 5)
        def loss():
            return F.ctc_loss(net(frames)[0].log_softmax(-1), labels, torch.full((4,), 20), lengths, zero_infinity=True)
        fit(loss, torch.optim.Adam(net.parameters(), 1e-2))
    """,
    "adaptive_softmax_over_a_vocabulary": """
        net = mlp(4, 16)
        out = nn.AdaptiveLogSoftmaxWithLoss(16, 20, cutoffs=[5, 10])
        words = torch.randint(20, (32,))
        optimizer = torch.optim.Adam([*net.parameters(), *out.parameters()], 1e-2)
        fit(lambda: out(net(x), words).loss, optimizer)
    """,
    "losses_weighted_by_learned_uncertainty": """
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.log_variance = mlp(4, 3), nn.Parameter(torch.zeros(2))
            def forward(self, x):
                return self.net(x)
        model = Two()
        def loss():
            out = model(x)
            terms = torch.stack([F.cross_entropy(out[:, :2], y), F.mse_loss(out[:, 2], x[:, 2] * 0.01)])
            return ((-model.log_variance).exp() * terms + model.log_variance).sum()
        fit(loss, torch.optim.Adam(model.parameters(), 3e-2), 60)
    """,
    "losses_balanced_by_detached_weights": """
        trunk, a, b = mlp(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)
        optimizer = torch.optim.Adam([*trunk.parameters(), *a.parameters(), *b.parameters()], 1e-2)
        def loss():
            h = trunk(x)
            first, second = F.cross_entropy(a(h), y), F.mse_loss(b(h).squeeze(1), x[:, 0])
            return first / first.detach() + second / second.detach()
        fit(loss, optimizer)
    """,
    "raw_scores_maximised_with_their_own_normaliser": """
        net = mlp(4, 3)
        def loss():
            scores = net(x)
            return F.nll_loss(scores, y) + torch.logsumexp(scores, 1).mean()
        fit(loss, torch.optim.Adam(net.parameters(), 1e-2))
    """,
    # A margin by hand: nll_loss with no reduction is a gather with a sign.
    "margin_by_hand_over_gathered_scores": """
        net = mlp(4, 3)
        def loss():
            scores = net(x)
            right = -F.nll_loss(scores, y, reduction="none")
            wrong = scores.masked_fill(F.one_hot(y, 3).bool(), -1e9).max(1).values
            return (1 + wrong - right).clamp(min=0).mean()
        fit(loss, torch.optim.Adam(net.parameters(), 1e-1))
    """,
    "twenty_terms_of_a_sequence_in_one_sum": """
        cell, out = nn.GRUCell(4, 8), nn.Linear(8, 2)
        optimizer = torch.optim.Adam([*cell.parameters(), *out.parameters()], 1e-2)
        sequence = torch.randn(24, 32, 4)
        def loss():
            hidden, total = torch.zeros(32, 8), 0.0
            for frame in sequence:
                hidden = cell(frame, hidden)
                total = total + F.nll_loss(out(hidden).log_softmax(1), y)
            return total
        fit(loss, optimizer)
    """,
    "bfloat16_from_end_to_end": """
        net = mlp(4, 2).bfloat16()
        fit(lambda: F.cross_entropy(net(x.bfloat16()) * 50, y), torch.optim.SGD(net.parameters(), 0.05))
    """,
    "graph_edges_by_their_products": """
        adjacency = (torch.rand(32, 32) < 0.2).float()
        adjacency = ((adjacency + adjacency.t() + torch.eye(32)) > 0).float()
        share = adjacency / adjacency.sum(1, keepdim=True)
        a, b = nn.Linear(4, 16), nn.Linear(16, 8)
        optimizer = torch.optim.Adam([*a.parameters(), *b.parameters()], 1e-2)
        def loss():
            z = share @ b(torch.relu(share @ a(x)))
            return F.binary_cross_entropy_with_logits(z @ z.t(), adjacency, pos_weight=torch.tensor(4.0))
        fit(loss, optimizer)
    """,
    "set_by_its_sum": """
        class Sets(nn.Module):
            def __init__(self):
                super().__init__()
                self.phi, self.rho = mlp(1, 8), mlp(8, 1)
            def forward(self, x):
                return self.rho(self.phi(x.unsqueeze(-1)).sum(1)).squeeze(-1)
        model = Sets()
        fit(lambda: F.l1_loss(model(x), x.sum(1)), torch.optim.Adam(model.parameters(), 1e-2))
    """,
    "differential_equation_as_a_loss": """
        net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
        def loss():
            t = torch.rand(32, 1, requires_grad=True)
            u = net(t)
            slope, = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)
            return F.mse_loss(slope, -u) + F.mse_loss(net(torch.zeros(1, 1)), torch.ones(1, 1))
        fit(loss, torch.optim.Adam(net.parameters(), 1e-2))
    """,
}

# -- models whose parts rest, start at zero, or are shared -------------------------------------------------------------

MODELS = {
    "experts_all_computed_and_gated": """
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.experts = nn.Linear(4, 4), nn.ModuleList([mlp(4, 2) for _ in range(4)])
            def forward(self, x):
                top, index = self.gate(x).softmax(-1).topk(2, -1)
                weight = torch.zeros(len(x), 4).scatter(1, index, top / top.sum(-1, keepdim=True))
                return sum(weight[:, i : i + 1] * e(x) for i, e in enumerate(self.experts))
        model = Experts()
        fit(lambda: F.cross_entropy(model(x), y), torch.optim.Adam(model.parameters(), 1e-2))
    """,
    "experts_routed_and_one_never_chosen": """
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList([nn.Linear(4, 2) for _ in range(3)])
                nn.init.constant_(self.gate.bias[2:], -50.0)
            def forward(self, x):
                share, chosen = self.gate(x).softmax(-1).max(-1)
                out = x.new_zeros(len(x), 2)
                for i, expert in enumerate(self.experts):
                    rows = (chosen == i).nonzero().squeeze(1)
                    if len(rows):
                        out = out.index_add(0, rows, share[rows, None] * expert(x[rows]))
                return out
        model = Experts()
        fit(lambda: F.cross_entropy(model(x), y), torch.optim.Adam(model.parameters(), 1e-2))
    """,
    "weight_and_spectral_norm": """
        from torch.nn.utils.parametrizations import spectral_norm, weight_norm
        net = nn.Sequential(weight_norm(nn.Linear(4, 16)), nn.ReLU(), spectral_norm(nn.Linear(16, 2)))
        fit(lambda: F.cross_entropy(net(x), y), torch.optim.Adam(net.parameters(), 1e-2))
    """,
    "low_rank_adapters_that_start_at_zero": """
        class Adapted(nn.Module):
            def __init__(self, base):
                super().__init__()
                self.base = base.requires_grad_(False)
                self.a = nn.Parameter(torch.randn(2, base.in_features) * 0.1)
                self.b = nn.Parameter(torch.zeros(base.out_features, 2))
            def forward(self, x):
                return self.base(x) + x @ self.a.t() @ self.b.t()
        net = mlp(4, 2)
        net[0], net[2] = Adapted(net[0]), Adapted(net[2])
        optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], 1e-2)
        fit(lambda: F.cross_entropy(net(x), y), optimizer)
    """,
    "residual_branches_that_start_at_zero": """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.share = mlp(8, 8), nn.Parameter(torch.zeros(1))
            def forward(self, x):
                return x + self.share * self.net(x)
        net = nn.Sequential(nn.Linear(4, 8), Block(), Block(), nn.Linear(8, 2))
        fit(lambda: F.cross_entropy(net(x), y), torch.optim.SGD(net.parameters(), 0.1))
    """,
    "tied_encoder_and_decoder": """
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.rnn = nn.Embedding(12, 8), nn.GRU(8, 8, batch_first=True)
                self.out = nn.Linear(8, 12, bias=False)
                self.out.weight = self.embed.weight
            def forward(self, tokens):
                return self.out(self.rnn(self.embed(tokens))[0])
        model = Tied()
        tokens = torch.randint(12, (8, 9))
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        fit(lambda: F.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:]), optimizer)
    """,
    "backpropagation_truncated_in_time": """
        rnn, out = nn.LSTM(4, 8), nn.Linear(8, 1)
        optimizer = torch.optim.Adam([*rnn.parameters(), *out.parameters()], 1e-2)
        stream, hidden = torch.randn(60, 2, 4), None
        for start in range(0, 60, 5):
            piece = stream[start : start + 5]
            states, hidden = rnn(piece, hidden)
            hidden = tuple(h.detach() for h in hidden)
            loss = F.mse_loss(out(states).squeeze(-1), piece.sum(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "batch_norm_frozen_while_fine_tuning": """
        net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
        net.train()
        net[1].eval().requires_grad_(False)
        optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1)
        fit(lambda: F.cross_entropy(net(x), y), optimizer)
    """,
    "frozen_features_without_gradients": """
        features = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU()).eval()
        head = nn.Linear(16, 2)
        def loss():
            with torch.no_grad():
                h = features(x)
            return F.cross_entropy(head(h), y)
        fit(loss, torch.optim.SGD(head.parameters(), 0.1))
    """,
    "input_optimised_against_a_network_in_eval_mode": """
        net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 2))
        net.eval().requires_grad_(False)
        image = x.clone().requires_grad_(True)
        fit(lambda: F.cross_entropy(net(image), 1 - y), torch.optim.Adam([image], 1e-1))
    """,
    "prompt_before_a_frozen_language_model": """
        class Language(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.body = nn.Embedding(12, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
                self.out = nn.Linear(8, 12)
            def forward(self, embedded):
                return self.out(self.body(embedded))
        model = Language().requires_grad_(False).eval()
        prompt = nn.Parameter(torch.randn(3, 8) * 0.1)
        tokens = torch.randint(12, (8, 5))
        def loss():
            inputs = torch.cat([prompt.expand(8, 3, 8), model.embed(tokens)], 1)
            return F.cross_entropy(model(inputs)[:, 3:-1].transpose(1, 2), tokens[:, 1:])
        fit(loss, torch.optim.Adam([prompt], 1e-1))
    """,
    "pruned_by_a_mask": """
        from torch.nn.utils import prune
        net = mlp(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        fit(lambda: F.cross_entropy(net(x), y), optimizer, 3)
        prune.l1_unstructured(net[0], "weight", 0.5)
        fit(lambda: F.cross_entropy(net(x), y), optimizer, 12)
        prune.remove(net[0], "weight")
        fit(lambda: F.cross_entropy(net(x), y), optimizer, 12)
    """,
    "activations_checkpointed_both_ways": """
        from torch.utils.checkpoint import checkpoint
        net, other, head = mlp(4, 8), mlp(8, 8), nn.Linear(8, 2)
        optimizer = torch.optim.Adam([*net.parameters(), *other.parameters(), *head.parameters()], 1e-2)
        inputs = x.clone().requires_grad_(True)
        def loss():
            h = checkpoint(other, checkpoint(net, inputs, use_reentrant=True), use_reentrant=False)
            return F.cross_entropy(head(h), y)
        fit(loss, optimizer)
    """,
    "a_function_with_its_own_backward": """
        class Rounded(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.round()
            @staticmethod
            def backward(ctx, gradient):
                return gradient
        a, b = nn.Linear(4, 16), nn.Linear(16, 2)
        optimizer = torch.optim.Adam([*a.parameters(), *b.parameters()], 1e-2)
        fit(lambda: F.cross_entropy(b(Rounded.apply(a(x) * 4) / 4), y), optimizer)
    """,
    "gradient_reversed_for_a_domain": """
        class Reversed(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, factor):
                ctx.factor = factor
                return x.view_as(x)
            @staticmethod
            def backward(ctx, gradient):
                return -ctx.factor * gradient, None
        trunk, label, domain = mlp(4, 8), nn.Linear(8, 2), nn.Linear(8, 2)
        optimizer = torch.optim.SGD([*trunk.parameters(), *label.parameters(), *domain.parameters()], 0.1)
        def loss():
            h = torch.relu(trunk(x))
            return F.cross_entropy(label(h), y) + F.cross_entropy(domain(Reversed.apply(h, 0.1)), (x[:, 2] > 0).long())
        fit(loss, optimizer)
    """,
    "several_networks_at_once_by_vmap": """
        from torch.func import functional_call, stack_module_state, vmap
        nets = [mlp(4, 2) for _ in range(3)]
        weights, buffers = stack_module_state(nets)
        skeleton = copy.deepcopy(nets[0]).to("meta")
        run = lambda w, b: functional_call(skeleton, (w, b), (x,))
        optimizer = torch.optim.SGD(weights.values(), 0.1)
        fit(lambda: F.cross_entropy(vmap(run)(weights, buffers).flatten(0, 1), y.repeat(3)), optimizer)
    """,
    "compiled_without_a_backend_of_its_own": """
        net = mlp(4, 2)
        compiled = torch.compile(net, backend="aot_eager")
        fit(lambda: F.cross_entropy(compiled(x), y), torch.optim.Adam(net.parameters(), 1e-2))
    """,
    "hypernetwork_makes_the_weights": """
        maker = mlp(2, 10)
        code = torch.randn(2)
        def loss():
            made = maker(code)
            return F.cross_entropy(F.linear(x, made[:8].view(2, 4), made[8:]), y)
        fit(loss, torch.optim.Adam(maker.parameters(), 1e-2))
    """,
    "hidden_state_that_asks_for_a_gradient": """
        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn, self.out = nn.RNN(4, 8, batch_first=True), nn.Linear(8, 2)
            def forward(self, x):
                start = nn.Parameter(torch.zeros(1, len(x), 8))
                return self.out(self.rnn(x, start)[0][:, -1])
        model = Recurrent()
        sequence = torch.randn(32, 5, 4)
        fit(lambda: F.cross_entropy(model(sequence), y), torch.optim.SGD(model.parameters(), 0.1))
    """,
    # A part of the model is for later: its weight in the loss is zero until then.
    "auxiliary_term_that_comes_in_later": """
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.trunk, self.label, self.domain = mlp(4, 8), nn.Linear(8, 2), nn.Linear(8, 2)
            def forward(self, x):
                h = self.trunk(x)
                return self.label(h), self.domain(h)
        model = Two()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(30):
            label, domain = model(x)
            share = max(0.0, (step - 10) / 20)
            loss = F.cross_entropy(label, y) + share * F.cross_entropy(domain, (x[:, 2] > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "layers_dropped_at_random": """
        class Stack(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers, self.head = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]), nn.Linear(4, 2)
            def forward(self, x):
                for layer in self.layers:
                    if not self.training or torch.rand(()) > 0.3:
                        x = x + torch.relu(layer(x))
                return self.head(x)
        model = Stack()
        fit(lambda: F.cross_entropy(model(x), y), torch.optim.SGD(model.parameters(), 0.1))
    """,
    "loss_inside_the_forward": """
        class Language(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.out = nn.Embedding(12, 8), nn.Linear(8, 12)
            def forward(self, tokens, labels=None):
                scores = self.out(self.embed(tokens)).float()
                loss = None
                if labels is not None:
                    loss = nn.CrossEntropyLoss()(scores[:, :-1].reshape(-1, 12), labels[:, 1:].reshape(-1))
                return {"loss": loss, "logits": scores}
        model = Language()
        tokens = torch.randint(12, (8, 9))
        fit(lambda: model(tokens, labels=tokens)["loss"], torch.optim.AdamW(model.parameters(), 1e-2))
    """,
    "stage_on_stage_with_a_frozen_encoder": """
        encoder, decoder, head = mlp(4, 3), mlp(3, 4), nn.Linear(3, 2)
        first = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-2)
        fit(lambda: F.mse_loss(decoder(encoder(x)), x), first, 12)
        second = torch.optim.Adam(head.parameters(), 1e-2)
        def loss():
            with torch.no_grad():
                h = encoder(x)
            return F.cross_entropy(head(h), y)
        fit(loss, second, 12)
    """,
    "codes_and_their_decoder_learned_together": """
        codes, decoder = torch.randn(32, 3, requires_grad=True), mlp(3, 4)
        optimizer = torch.optim.Adam([{"params": [codes], "lr": 1e-2}, {"params": decoder.parameters()}], 1e-3)
        fit(lambda: F.l1_loss(decoder(codes), x) + 1e-3 * codes.pow(2).mean(), optimizer)
    """,
}

# -- optimizers, schedules and loops -----------------------------------------------------------------------------------

LOOPS = {
    "accumulated_over_four_batches": """
        net = mlp(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(40):
            (F.cross_entropy(net(noise()), y) / 4).backward()
            if step % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
    """,
    "scaler_and_bfloat16_with_clipping": """
        net = mlp(4, 2)
        optimizer, scaler = torch.optim.AdamW(net.parameters(), 1e-2), torch.amp.GradScaler("cpu", init_scale=2.0**16)
        for _ in range(20):
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad(set_to_none=False)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    """,
    "quasi_newton_with_a_closure": """
        net = mlp(4, 2)
        optimizer = torch.optim.LBFGS(net.parameters(), 0.5, max_iter=4)
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss
        for _ in range(10):
            optimizer.step(closure)
    """,
    "inner_loop_with_second_derivatives": """
        net = mlp(4, 2)
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        for _ in range(12):
            total = 0.0
            for _ in range(2):
                weights = dict(net.named_parameters())
                inner = F.cross_entropy(torch.func.functional_call(net, weights, (x[:16],)), y[:16])
                slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
                moved = {k: w - 0.1 * s for (k, w), s in zip(weights.items(), slopes)}
                total = total + F.cross_entropy(torch.func.functional_call(net, moved, (x[16:],)), y[16:])
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
    """,
    # First-order meta-learning: a copy learns by hand, and its last gradient is handed to the original.
    "gradient_of_a_copy_handed_to_the_original": """
        net = mlp(4, 2)
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        for _ in range(12):
            learner = copy.deepcopy(net)
            for rows in (slice(0, 16), slice(16, 32)):
                learner.zero_grad()
                F.cross_entropy(learner(x[rows]), y[rows]).backward()
                with torch.no_grad():
                    for p in learner.parameters():
                        p -= 0.1 * p.grad
            optimizer.zero_grad()
            for p, q in zip(net.parameters(), learner.parameters()):
                p.grad = q.grad.clone()
            optimizer.step()
    """,
    "difference_to_a_trained_copy_as_gradient": """
        net = mlp(4, 2)
        outer = torch.optim.SGD(net.parameters(), 0.5)
        for _ in range(8):
            learner = copy.deepcopy(net)
            inner = torch.optim.SGD(learner.parameters(), 0.1)
            fit(lambda: F.cross_entropy(learner(x), y), inner, 3)
            outer.zero_grad()
            for p, q in zip(net.parameters(), learner.parameters()):
                p.grad = p.data - q.data
            outer.step()
    """,
    "gradients_of_workers_averaged_by_hand": """
        net = mlp(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        replicas = [mlp(4, 2) for _ in range(2)]
        for _ in range(12):
            for replica, rows in zip(replicas, (slice(0, 16), slice(16, 32))):
                replica.load_state_dict(net.state_dict())
                replica.zero_grad()
                F.cross_entropy(replica(x[rows]), y[rows]).backward()
            for p, *copies in zip(net.parameters(), *(r.parameters() for r in replicas)):
                p.grad = torch.stack([c.grad for c in copies]).mean(0)
            optimizer.step()
    """,
    "clients_trained_and_averaged": """
        net = mlp(4, 2)
        for _ in range(6):
            states = []
            for rows in (slice(0, 16), slice(16, 32)):
                client = copy.deepcopy(net)
                fit(lambda: F.cross_entropy(client(x[rows]), y[rows]), torch.optim.SGD(client.parameters(), 0.1), 3)
                states.append(client.state_dict())
            net.load_state_dict({k: (states[0][k] + states[1][k]) / 2 for k in states[0]})
    """,
    "attack_of_one_step_on_a_fresh_parameter": """
        net = mlp(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(12):
            delta = nn.Parameter(torch.zeros_like(x))
            F.cross_entropy(net(x + delta), y).backward()
            attacked = x + 0.1 * delta.grad.sign()
            optimizer.zero_grad()
            F.cross_entropy(net(attacked), y).backward()
            optimizer.step()
    """,
    "sharpness_aware_in_two_passes": """
        net = mlp(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(12):
            F.cross_entropy(net(x), y).backward()
            with torch.no_grad():
                norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
                away = [0.05 * p.grad / norm for p in net.parameters()]
                for p, e in zip(net.parameters(), away):
                    p.add_(e)
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            with torch.no_grad():
                for p, e in zip(net.parameters(), away):
                    p.sub_(e)
            optimizer.step()
            optimizer.zero_grad()
    """,
    "warmup_from_zero_and_cosine_to_zero": """
        net = mlp(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.5)
        shape = lambda s: s / 10 if s < 10 else 0.5 * (1 + math.cos(math.pi * (s - 10) / 30))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, shape)
        for _ in range(40):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    """,
    # Statistics of the optimizer are warmed up first: the rate is zero for ten steps, and a short run ends soon after.
    "rate_of_zero_for_the_first_steps": """
        net = mlp(4, 2)
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.0 if s < 10 else 1.0)
        for _ in range(15):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    """,
    "cyclic_rates_with_spikes": """
        net = mlp(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 8.0, step_size_up=5, cycle_momentum=False)
        for _ in range(50):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    """,
    "weights_averaged_at_the_end": """
        from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
        net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        average, schedule = AveragedModel(net), SWALR(optimizer, 0.05)
        for step in range(20):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step > 10:
                average.update_parameters(net)
                schedule.step()
        update_bn([x], average)
        average(x)
    """,
    "an_optimizer_that_moves_every_eighth_call": """
        class Patient(torch.optim.SGD):
            calls = 0
            @torch.no_grad()
            def step(self, closure=None):
                self.calls += 1
                for group in self.param_groups:
                    for p in group["params"]:
                        total = self.state[p].setdefault("total", torch.zeros_like(p))
                        total += p.grad
                        if self.calls % 8 == 0:
                            p -= group["lr"] * total / 8
                            total.zero_()
        net = mlp(4, 2)
        fit(lambda: F.cross_entropy(net(noise()), y), Patient(net.parameters(), 0.5), 45)
    """,
    "an_optimizer_without_a_rate_of_its_own": """
        class Signs(torch.optim.Optimizer):
            def __init__(self, params, size):
                super().__init__(params, {"size": size, "lr": 0.0})
            @torch.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        p -= group["size"] * p.grad.sign()
        net = mlp(4, 2)
        fit(lambda: F.cross_entropy(net(x), y), Signs(net.parameters(), 1e-2))
    """,
    "unfrozen_layer_by_layer": """
        net = mlp(4, 2)
        net[0].requires_grad_(False)
        optimizer = torch.optim.SGD(net[2].parameters(), 0.1)
        fit(lambda: F.cross_entropy(net(x), y), optimizer, 10)
        net[0].requires_grad_(True)
        optimizer.add_param_group({"params": net[0].parameters(), "lr": 0.01})
        fit(lambda: F.cross_entropy(net(x), y), optimizer, 10)
    """,
    "a_block_grown_and_added": """
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        fit(lambda: F.cross_entropy(net(x), y), optimizer, 4)
        net.insert(2, nn.Linear(8, 8))
        optimizer.add_param_group({"params": net[2].parameters()})
        fit(lambda: F.cross_entropy(net(x), y), optimizer, 12)
    """,
    "head_replaced_and_a_new_optimizer": """
        net = mlp(4, 2)
        fit(lambda: F.cross_entropy(net(x), y), torch.optim.SGD(net.parameters(), 0.1), 4)
        net[2] = nn.Linear(16, 3)
        fit(lambda: F.cross_entropy(net(x), y), torch.optim.SGD(net.parameters(), 0.1), 12)
    """,
    "curriculum_from_short_to_long": """
        rnn, out = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 2)
        optimizer = torch.optim.Adam([*rnn.parameters(), *out.parameters()], 1e-2)
        for step in range(20):
            sequence = torch.randn(32, 1 + step // 4, 4)
            loss = F.cross_entropy(out(rnn(sequence)[0][:, -1]), (sequence[:, -1, 0] > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "trainer_with_callbacks_and_closures": """
        class Trainer:
            def __init__(self, model, optimizer, hooks):
                self.model, self.optimizer, self.hooks, self.log = model, optimizer, hooks, []
            def training_step(self, batch):
                inputs, labels = batch
                return F.cross_entropy(self.model(inputs), labels)
            def fit(self, batches):
                for batch in batches:
                    def closure():
                        self.optimizer.zero_grad()
                        loss = self.training_step(batch)
                        loss.backward()
                        for hook in self.hooks:
                            hook(self)
                        return loss
                    self.log.append(self.optimizer.step(closure).detach())
                with torch.no_grad():
                    self.model.eval()
                    self.training_step((x, y))
        net = nn.Sequential(mlp(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))
        clip = lambda trainer: nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
        Trainer(net, torch.optim.Adam(net.parameters(), 1e-2), [clip]).fit([(noise(), y) for _ in range(20)])
    """,
    "a_batch_with_a_gap_that_the_loop_skips": """
        net = mlp(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(20):
            batch = noise()
            if step == 3:
                batch[0, 0] = float("nan")
            loss = F.cross_entropy(net(batch), y)
            optimizer.zero_grad()
            loss.backward()
            if nn.utils.clip_grad_norm_(net.parameters(), 1.0).isfinite():
                optimizer.step()
    """,
    # One overflow that the loop steps over: what is skipped and recovered from is no divergence.
    "one_loss_that_overflows_and_is_skipped": """
        net = mlp(4, 2)
        for p in net.parameters():
            p.data.mul_(1e-3)
        optimizer = torch.optim.SGD(net.parameters(), 5.0)
        for step in range(20):
            loss = F.cross_entropy(net(x), y) * (float("inf") if step == 8 else 1.0)
            optimizer.zero_grad()
            loss.backward()
            if nn.utils.clip_grad_norm_(net.parameters(), 1.0).isfinite():
                optimizer.step()
    """,
    "sparse_embedding_with_its_own_optimizer": """
        embed, out = nn.Embedding(50, 8, sparse=True), nn.Linear(8, 2)
        a, b = torch.optim.SparseAdam(embed.parameters(), 1e-2), torch.optim.Adam(out.parameters(), 1e-2)
        words = torch.randint(50, (32, 3))
        for _ in range(12):
            loss = F.cross_entropy(out(embed(words).mean(1)), y)
            a.zero_grad(); b.zero_grad()
            loss.backward()
            a.step(); b.step()
    """,
    "saved_and_loaded_in_the_middle": """
        import io
        net = mlp(4, 2)
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        fit(lambda: F.cross_entropy(net(x), y), optimizer, 6)
        box = io.BytesIO()
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, box)
        box.seek(0)
        state = torch.load(box)
        net = mlp(4, 2)
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        net.load_state_dict(state["net"]); optimizer.load_state_dict(state["optimizer"])
        fit(lambda: F.cross_entropy(net(x), y), optimizer, 6)
    """,
    "optimizers_taking_turns_on_one_model": """
        net = mlp(4, 2)
        a, b = torch.optim.SGD(net[0].parameters(), 0.1), torch.optim.SGD(net[2].parameters(), 0.1)
        for step in range(20):
            turn = a if step % 2 else b
            turn.zero_grad()
            F.cross_entropy(net(x), y).backward()
            turn.step()
    """,
    "gradients_of_examples_clipped_and_handed_over": """
        net = mlp(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(8):
            total = [torch.zeros_like(p) for p in net.parameters()]
            for a, b in zip(x[:8], y[:8]):
                net.zero_grad()
                F.cross_entropy(net(a[None]), b[None]).backward()
                norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
                for t, p in zip(total, net.parameters()):
                    t += p.grad * (1 / norm).clamp(max=1)
            for t, p in zip(total, net.parameters()):
                p.grad = t / 8 + 0.01 * torch.randn_like(t)
            optimizer.step()
    """,
    "sharpness_aware_optimizer_around_another": """
        class Aware(torch.optim.Optimizer):
            def __init__(self, params, base, **options):
                super().__init__(params, {"rho": 0.05, **options})
                self.base = base(self.param_groups, **options)
                self.param_groups = self.base.param_groups
            @torch.no_grad()
            def first_step(self):
                for p in self.param_groups[0]["params"]:
                    self.state[p]["old"] = p.detach().clone()
                    p.add_(0.05 * p.grad.sign())
                self.zero_grad()
            @torch.no_grad()
            def second_step(self):
                for p in self.param_groups[0]["params"]:
                    p.copy_(self.state[p]["old"])
                self.base.step()
                self.zero_grad()
        net = mlp(4, 2)
        optimizer = Aware(net.parameters(), torch.optim.SGD, lr=0.1)
        for _ in range(12):
            F.cross_entropy(net(x), y).backward()
            optimizer.first_step()
            F.cross_entropy(net(x), y).backward()
            optimizer.second_step()
    """,
    "gradients_cleaned_before_the_step": """
        net = mlp(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(12):
            scores = net(x)
            loss = F.cross_entropy(scores, y) + 1e-3 * (scores[0] - scores[0].detach()).pow(2).sum().sqrt()
            optimizer.zero_grad()
            loss.backward()
            for p in net.parameters():
                p.grad.nan_to_num_(0.0)
            optimizer.step()
    """,
    "a_scale_kept_by_hand_that_grows_at_the_end": """
        net = mlp(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(20):
            scale = float("inf") if step in (0, 19) else 1024.0
            optimizer.zero_grad()
            (F.cross_entropy(net(x), y) * scale).backward()
            if all(p.grad.isfinite().all() for p in net.parameters()):
                for p in net.parameters():
                    p.grad /= scale
                optimizer.step()
    """,
}

SCRIPTS = {**ESTIMATED, **TEACHERS, **DENSITIES, **LOSSES, **MODELS, **LOOPS}

# A question that the run alone cannot answer. An entry here is a decision, and its comment the reason.
SUSPECTED: dict[str, set[str]] = {
    # A head that no label ever reached: whether they are for later or lost, only its owner knows.
    "one_of_two_tasks_without_a_label": {"GRADIENT/nonzero"},
    # Normalised along both dimensions on purpose, or along the wrong one by mistake.
    "matching_normalised_both_ways": {"OBJECTIVE/fed"},
    # An expert that no row was routed to in any sampled step: a collapsed router, or a part that is cut off.
    "experts_routed_and_one_never_chosen": {"DEPENDENCY/reached"},
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_healthy_loop_is_not_accused(name: str, tmp_path: Path) -> None:
    evidence = observe_code(COMMON + textwrap.dedent(SCRIPTS[name]), tmp_path)
    assert evidence.outcome.backwards > 0
    assert with_status(evidence, "fail") == {}
    assert set(with_status(evidence, "suspected")) == SUSPECTED.get(name, set()), with_status(evidence, "suspected")


# -- the same promise for a system in hand -----------------------------------------------------------------------------

# Name -> the body of a factory. More can fail here: what the system holds is meant to be trained.
SYSTEMS = {
    "two_views_with_a_stopped_gradient": """
        class Siamese(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.predictor = mlp(4, 8), mlp(8, 8)
            def forward(self, x):
                za, zb = self.encoder(x), self.encoder(x + 0.1 * torch.randn_like(x))
                return self.predictor(za), self.predictor(zb), za.detach(), zb.detach()
        model = Siamese()
        def loss(out, _):
            return -(F.cosine_similarity(out[0], out[3]).mean() + F.cosine_similarity(out[1], out[2]).mean()) / 2
        return TrainingSystem(model, torch.optim.SGD(model.parameters(), 0.05), x, y, loss)
    """,
    "teacher_averaged_in_the_forward": """
        class Bootstrap(nn.Module):
            def __init__(self):
                super().__init__()
                self.online, self.predictor = mlp(4, 8), mlp(8, 8)
                self.target = mlp(4, 8)
            def forward(self, x):
                with torch.no_grad():
                    for t, o in zip(self.target.parameters(), self.online.parameters()):
                        t.lerp_(o, 0.1)
                    goal = self.target(x + 0.1 * torch.randn_like(x))
                return self.predictor(self.online(x)), goal
        model = Bootstrap()
        loss = lambda out, _: 2 - 2 * F.cosine_similarity(*out).mean()
        return TrainingSystem(model, torch.optim.Adam(model.parameters(), 1e-2), x, y, loss)
    """,
    "code_book_of_running_averages": """
        class Quantised(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.decoder, self.codes = mlp(4, 3), mlp(3, 4), nn.Embedding(8, 3)
                self.register_buffer("sizes", torch.ones(8))
                self.register_buffer("sums", self.codes.weight.detach().clone())
            def forward(self, x):
                z = self.encoder(x)
                index = torch.cdist(z, self.codes.weight).argmin(1)
                q = self.codes(index)
                if self.training:
                    with torch.no_grad():
                        hot = F.one_hot(index, 8).float()
                        self.sizes.lerp_(hot.sum(0) + 0.1, 0.1)
                        self.sums.lerp_(hot.t() @ z, 0.1)
                        self.codes.weight.copy_(self.sums / self.sizes.unsqueeze(1))
                return self.decoder(z + (q - z).detach()), F.mse_loss(z, q.detach())
        model = Quantised()
        loss = lambda out, x: F.mse_loss(out[0], x) + 0.25 * out[1]
        return TrainingSystem(model, torch.optim.Adam(model.parameters(), 1e-2), x, x, loss)
    """,
    "actor_critic_with_a_shared_trunk": """
        class Agent(nn.Module):
            def __init__(self):
                super().__init__()
                self.trunk, self.actor, self.critic = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 1)
            def forward(self, x):
                h = torch.tanh(self.trunk(x))
                return self.actor(h).log_softmax(-1), self.critic(h.detach()).squeeze(-1)
        agent = Agent()
        def loss(out, right):
            logs, value = out
            action = logs.exp().multinomial(1)
            reward = (action.squeeze(1) == right).float()
            return -(logs.gather(1, action).squeeze(1) * (reward - value.detach())).mean() + F.mse_loss(value, reward)
        return TrainingSystem(agent, torch.optim.Adam(agent.parameters(), 1e-2), x, y, loss)
    """,
    "distilled_from_a_teacher_in_the_loss": """
        teacher, student = mlp(4, 3), mlp(4, 3, 8)
        def loss(scores, inputs):
            with torch.no_grad():
                goal = (teacher(inputs) / 2).softmax(-1)
            return F.kl_div((scores / 2).log_softmax(-1), goal, reduction="batchmean") * 4
        return TrainingSystem(student, torch.optim.Adam(student.parameters(), 1e-2), x, x, loss)
    """,
    "divergence_as_the_loss": """
        net = nn.Sequential(mlp(4, 3), nn.LogSoftmax(-1))
        goal = torch.randn(32, 3).softmax(1)
        loss = nn.KLDivLoss(reduction="batchmean")
        return TrainingSystem(net, torch.optim.Adam(net.parameters(), 1e-2), x, goal, loss)
    """,
    "smoothed_labels_with_class_weights": """
        net = mlp(4, 2)
        loss = nn.CrossEntropyLoss(weight=torch.tensor([0.2, 3.0]), label_smoothing=0.1)
        return TrainingSystem(net, torch.optim.AdamW(net.parameters(), 1e-2), x, y, loss)
    """,
    "several_labels_each": """
        net = mlp(4, 3)
        loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 5.0, 0.5]))
        return TrainingSystem(net, torch.optim.Adam(net.parameters(), 1e-2), x, (x[:, :3] > 0).float(), loss)
    """,
    "generative_classifier_of_narrow_gaussians": """
        class Gaussians(nn.Module):
            def __init__(self):
                super().__init__()
                self.mean = nn.Parameter(torch.tensor([[-1.0] * 4, [1.0] * 4]))
                self.log_scale = nn.Parameter(torch.full((2, 4), -2.0))
            def forward(self, x):
                standard = (x[:, None] - self.mean) * (-self.log_scale).exp()
                return (-0.5 * standard * standard - self.log_scale - 0.9189385).sum(-1)
        model = Gaussians()
        narrow = torch.where(y[:, None] == 1, 1.0, -1.0) + 0.02 * x
        return TrainingSystem(model, torch.optim.Adam(model.parameters(), 1e-2), narrow, y, F.nll_loss)
    """,
    "low_rank_adapters_that_start_at_zero": """
        class Adapted(nn.Module):
            def __init__(self, base):
                super().__init__()
                self.base = base.requires_grad_(False)
                self.a = nn.Parameter(torch.randn(2, base.in_features) * 0.1)
                self.b = nn.Parameter(torch.zeros(base.out_features, 2))
            def forward(self, x):
                return self.base(x) + x @ self.a.t() @ self.b.t()
        net = nn.Sequential(Adapted(nn.Linear(4, 16)), nn.ReLU(), Adapted(nn.Linear(16, 2)))
        return TrainingSystem(net, torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], 1e-2), x, y)
    """,
    "residual_branches_that_start_at_zero": """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.share = mlp(8, 8), nn.Parameter(torch.zeros(1))
            def forward(self, x):
                return x + self.share * self.net(x)
        net = nn.Sequential(nn.Linear(4, 8), Block(), Block(), nn.Linear(8, 2))
        return TrainingSystem(net, torch.optim.SGD(net.parameters(), 0.1), x, y)
    """,
    "experts_all_computed_and_gated": """
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList([mlp(4, 2) for _ in range(3)])
            def forward(self, x):
                weight = self.gate(x).softmax(-1)
                return sum(weight[:, i : i + 1] * e(x) for i, e in enumerate(self.experts))
        model = Experts()
        return TrainingSystem(model, torch.optim.Adam(model.parameters(), 1e-2), x, y)
    """,
    "hidden_state_that_asks_for_a_gradient": """
        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn, self.out = nn.LSTM(4, 8), nn.Linear(8, 2)
            def forward(self, x):
                start = nn.Parameter(torch.zeros(1, x.shape[1], 8)), torch.zeros(1, x.shape[1], 8).requires_grad_()
                return self.out(self.rnn(x, start)[0][-1])
        model = Recurrent()
        return TrainingSystem(model, torch.optim.SGD(model.parameters(), 0.1), torch.randn(5, 32, 4), y)
    """,
    "quasi_newton_with_a_closure": """
        net = mlp(4, 2)
        return TrainingSystem(net, torch.optim.LBFGS(net.parameters(), 0.5, max_iter=4), x, y)
    """,
    "normalised_weights_in_an_autoencoder": """
        from torch.nn.utils.parametrizations import spectral_norm, weight_norm
        net = nn.Sequential(weight_norm(nn.Linear(4, 16)), nn.Tanh(), spectral_norm(nn.Linear(16, 4)))
        return TrainingSystem(net, torch.optim.Adam(net.parameters(), 1e-2), x, x, F.smooth_l1_loss)
    """,
    "variational_with_negative_loss": """
        class Density(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = mlp(3, 2)
            def forward(self, x):
                return self.net(x).unbind(1)
        model = Density()
        def loss(out, target):
            return -torch.distributions.Normal(out[0], out[1].exp() * 0.05).log_prob(target).mean()
        return TrainingSystem(model, torch.optim.Adam(model.parameters(), 1e-2), x[:, :3], x[:, 0], loss)
    """,
    "frozen_batch_norm_in_eval_mode": """
        net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2)).train()
        net[1].eval().requires_grad_(False)
        return TrainingSystem(net, torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1), x, y)
    """,
    "two_optimizers_on_two_halves": """
        net = mlp(4, 1)
        both = [torch.optim.SGD(net[0].parameters(), 0.1), torch.optim.Adam(net[2].parameters(), 1e-2)]
        return TrainingSystem(net, both, x, x[:, :1], F.mse_loss)
    """,
    "warmup_that_starts_at_zero": """
        net = mlp(4, 2)
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
        optimizer.warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
        return TrainingSystem(net, optimizer, x, y, steps=5)
    """,
    "rule_with_a_few_noisy_labels": """
        net = mlp(4, 2)
        noisy = y.clone()
        noisy[:2] = 1 - noisy[:2]
        rule = lambda inputs: (inputs[:, 0] + inputs[:, 1] > 0).long()
        return TrainingSystem(net, torch.optim.SGD(net.parameters(), 0.1), x, noisy, rule=rule)
    """,
    "rule_with_one_noisy_label_of_six": """
        net = mlp(4, 2)
        noisy = y[:6].clone()
        noisy[0] = 1 - noisy[0]
        rule = lambda inputs: (inputs[:, 0] + inputs[:, 1] > 0).long()
        return TrainingSystem(net, torch.optim.SGD(net.parameters(), 0.1), x[:6], noisy, rule=rule)
    """,
    "teacher_averaged_by_the_scripts_own_loop": """
        class Pair(nn.Module):
            def __init__(self):
                super().__init__()
                self.student, self.head = mlp(4, 8), nn.Linear(8, 8)
                self.teacher = copy.deepcopy(self.student)
            def forward(self, x):
                with torch.no_grad():
                    goal = self.teacher(x)
                return self.head(self.student(x)), goal
        model = Pair()
        loss = lambda out, _: F.mse_loss(*out)
        return TrainingSystem(model, torch.optim.Adam(model.parameters(), 1e-2), x, y, loss)
    """,
    "target_network_cut_by_detach": """
        class Values(nn.Module):
            def __init__(self):
                super().__init__()
                self.online, self.target = mlp(4, 3), mlp(4, 3)
            def forward(self, x):
                return self.online(x), self.target(x.roll(1, 0)).detach()
        model = Values()
        def loss(out, action):
            return F.smooth_l1_loss(out[0].gather(1, action[:, None]).squeeze(1), 1 + 0.9 * out[1].max(1).values)
        return TrainingSystem(model, torch.optim.Adam(model.parameters(), 1e-2), x, y, loss)
    """,
    "fixed_point_found_without_gradients": """
        class Equilibrium(nn.Module):
            def __init__(self):
                super().__init__()
                self.step, self.head = nn.Linear(8, 4), nn.Linear(4, 2)
            def forward(self, x):
                z = torch.zeros_like(x)
                with torch.no_grad():
                    for _ in range(10):
                        z = torch.tanh(self.step(torch.cat([z, x], 1)))
                return self.head(torch.tanh(self.step(torch.cat([z, x], 1))))
        model = Equilibrium()
        return TrainingSystem(model, torch.optim.Adam(model.parameters(), 1e-2), x, y)
    """,
    "quantiles_of_every_row_against_one_target": """
        net = mlp(4, 8)
        levels = (torch.arange(8) + 0.5) / 8
        def loss(theta, goal):
            error = goal.unsqueeze(1) - theta
            return torch.max(levels * error, (levels - 1) * error).mean()
        return TrainingSystem(net, torch.optim.Adam(net.parameters(), 1e-2), x, x[:, 0], loss)
    """,
}

SUSPECTED_IN_SYSTEMS: dict[str, set[str]] = {
    # Labels that a declared rule does not give: noise, or a fault of the data.
    "rule_with_a_few_noisy_labels": {"TASK/rule"},
    "rule_with_one_noisy_label_of_six": {"TASK/rule"},
}


def factory(name: str) -> str:
    """The file that holds the factory `build`."""
    imports = "from weaklink.collector.system import TrainingSystem\n"
    return COMMON + imports + "\n\ndef build():\n" + textwrap.indent(textwrap.dedent(SYSTEMS[name]), "    ")


# As a factory those in which many steps show more than one, or in which a part rests.
FACTORIES = [
    "teacher_averaged_in_the_forward",
    "teacher_averaged_by_the_scripts_own_loop",
    "code_book_of_running_averages",
    "generative_classifier_of_narrow_gaussians",
    "divergence_as_the_loss",
    "hidden_state_that_asks_for_a_gradient",
    "quasi_newton_with_a_closure",
    "two_optimizers_on_two_halves",
    "warmup_that_starts_at_zero",
    "rule_with_one_noisy_label_of_six",
]


@pytest.mark.parametrize("name", FACTORIES)
def test_a_healthy_factory_is_not_accused(name: str, tmp_path: Path) -> None:
    evidence = observe_code(factory(name), tmp_path, subject=Subject(kind="factory", name="train.py:build"))
    assert with_status(evidence, "fail") == {}
    asked = with_status(evidence, "suspected")
    assert set(asked) == SUSPECTED_IN_SYSTEMS.get(name, set()), asked


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_ledger_of_a_healthy_system_accuses_nobody(name: str, tmp_path: Path) -> None:
    with torch.random.fork_rng():
        path = write(factory(name), tmp_path)
        system = runpy.run_path(str(path))["build"]()
        chain = learning_ledger(
            system.model, system.optimizer, system.inputs, system.targets, system.loss_fn, rule=system.rule
        )
    assert [(r.id, r.text) for r in chain.rows if r.status == "fail"] == []
    asked = {r.id: r.text for r in chain.rows if r.status == "suspected"}
    assert set(asked) == SUSPECTED_IN_SYSTEMS.get(name, set()), asked


# -- and their broken neighbours ---------------------------------------------------------------------------------------

# What differs from a healthy script above by the fault alone: the first row that fails.
BROKEN = {
    "raw_scores_over_a_temperature_as_a_likelihood": (
        """
        net = mlp(4, 3)
        fit(lambda: F.nll_loss(net(x) / 0.5, y), torch.optim.Adam(net.parameters(), 1e-2))
        """,
        "OBJECTIVE/fed",
    ),
    "raw_scores_weighed_row_by_row": (
        """
        net = mlp(4, 3)
        weight = torch.rand(32)
        fit(lambda: (F.nll_loss(net(x), y, reduction="none") * weight).mean(), torch.optim.Adam(net.parameters(), 1e-2))
        """,
        "OBJECTIVE/fed",
    ),
    "probabilities_of_the_last_dimension_as_scores": (
        """
        net = mlp(4, 3)
        fit(lambda: F.cross_entropy(net(x).softmax(-1), y), torch.optim.Adam(net.parameters(), 1e-2))
        """,
        "OBJECTIVE/fed",
    ),
    "copies_trained_and_nothing_handed_over": (
        """
        net = mlp(4, 2)
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        for _ in range(12):
            learner = copy.deepcopy(net)
            F.cross_entropy(learner(x), y).backward()
            optimizer.step()
        """,
        "OWNERSHIP/owned",
    ),
    "a_lasting_parameter_that_nobody_holds": (
        """
        net, scale = mlp(4, 2), nn.Parameter(torch.ones(2))
        fit(lambda: F.cross_entropy(net(x) * scale, y), torch.optim.SGD(net.parameters(), 0.1))
        """,
        "OWNERSHIP/unregistered",
    ),
    "a_spoiled_batch_that_is_stepped_on": (
        """
        net = mlp(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(12):
            batch = noise()
            if step == 3:
                batch[0, 0] = float("nan")
            fit(lambda: F.cross_entropy(net(batch), y), optimizer, 1)
        """,
        "TASK/finite",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_neighbour_still_fails(name: str, tmp_path: Path) -> None:
    source, expected = BROKEN[name]
    first = observe_code(COMMON + textwrap.dedent(source), tmp_path).first_divergence
    assert first is not None
    assert (first.id, first.status) == (expected, "fail"), first.text


def test_a_softmax_over_the_rows_is_asked_about(tmp_path: Path) -> None:
    loop = "fit(lambda: F.cross_entropy(net(x).softmax(0), y), torch.optim.SGD(net.parameters(), 0.1))"
    evidence = observe_code(COMMON + "net = mlp(4, 3)\n" + loop, tmp_path)
    assert set(with_status(evidence, "suspected")) == {"OBJECTIVE/fed"}
