"""Train, save everything, build everything again, load it and go on."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(600, 8)
y = (x[:, 0] > x[:, 1] * x[:, 2]).long()
data = TensorDataset(x, y)


def build():
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return model, opt, torch.optim.lr_scheduler.CosineAnnealingLR(opt, 6)


def run(model, opt, sched, epochs):
    for epoch in epochs:
        for a, b in DataLoader(data, batch_size=50, shuffle=True):
            loss = nn.functional.cross_entropy(model(a), b)
            opt.zero_grad()
            loss.backward()
            opt.step()
        sched.step()
        print(epoch, loss.item(), sched.get_last_lr())


model, opt, sched = build()
run(model, opt, sched, range(3))
torch.save(
    {"model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "rng": torch.get_rng_state()},
    "last.ckpt",
)
model, opt, sched = build()
state = torch.load("last.ckpt", weights_only=True)
model.load_state_dict(state["model"])
opt.load_state_dict(state["opt"])
sched.load_state_dict(state["sched"])
torch.set_rng_state(state["rng"])
run(model, opt, sched, range(3, 6))
