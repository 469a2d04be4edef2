"""A generator and a critic: the critic steps while the generator's backward still needs its weights."""

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
    critic_loss.backward()
    critic_optimizer.step()
    generator_loss.backward()
    generator_optimizer.step()
    print(f"operation {operation}  critic {critic_loss.item():.6f}  generator {generator_loss.item():.6f}")
