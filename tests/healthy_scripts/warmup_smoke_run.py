"""--max-steps for a smoke run: the configured schedule warms up over hundreds of steps."""

import argparse

import torch
from torch import nn

p = argparse.ArgumentParser()
p.add_argument("--max-steps", type=int, default=30)
p.add_argument("--warmup", type=int, default=500)
p.add_argument("--total", type=int, default=10000)
args = p.parse_args()
torch.manual_seed(0)
x = torch.randn(256, 8)
y = (x[:, 0] > 0).long()
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.AdamW(net.parameters(), 1e-3)
sched = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda s: min((s + 1) / args.warmup, max(0.0, (args.total - s) / args.total))
)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x[:192], y[:192]), 16, shuffle=True)
step = 0
while step < args.max_steps:
    net.train()
    for a, b in loader:
        loss = nn.functional.cross_entropy(net(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        step += 1
        if step >= args.max_steps:
            break
    net.eval()
    with torch.no_grad():
        print(step, f"{loss.item():.5f} {nn.functional.cross_entropy(net(x[192:]), y[192:]).item():.5f}")
