"""Isolated: both steps wait, and each backward reaches the parameters of its own objective alone."""

import sys

import torch
from system import RATE, batches, build
from torch.nn.functional import softplus

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
generator, critic = build(seed)
generator_optimizer = torch.optim.SGD(generator.parameters(), lr=RATE)
critic_optimizer = torch.optim.SGD(critic.parameters(), lr=RATE)

for operation, (noise, real) in enumerate(batches(seed)):
    fake = generator(noise)
    critic_loss = softplus(-critic(real)).mean() + softplus(critic(fake.detach())).mean()
    generator_loss = softplus(-critic(fake)).mean()
    generator_optimizer.zero_grad()
    critic_optimizer.zero_grad()
    critic_loss.backward(inputs=list(critic.parameters()))
    generator_loss.backward(inputs=list(generator.parameters()))
    critic_optimizer.step()
    generator_optimizer.step()
    print(f"operation {operation}  critic {critic_loss.item():.6f}  generator {generator_loss.item():.6f}")
