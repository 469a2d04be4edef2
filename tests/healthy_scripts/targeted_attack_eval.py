"""A classifier is trained, then attacked towards the next class: the accuracy under attack is told."""

import torch
from torch import nn

torch.manual_seed(0)
proto = torch.randn(4, 10) * 1.5
y = torch.randint(0, 4, (800,))
x = proto[y] + torch.randn(800, 10)
net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.Adam(net.parameters(), 1e-2)
for epoch in range(5):
    for i in torch.randperm(600).split(50):
        loss = nn.functional.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, f"{loss.item():.4f}")
net.eval()
xv, yv = x[600:], y[600:]
with torch.no_grad():
    print(f"clean {(net(xv).argmax(1) == yv).float().mean():.4f}")
adv = xv.clone()
goal = (yv + 1) % 4
for _ in range(20):
    adv.requires_grad_(True)
    (g,) = torch.autograd.grad(nn.functional.cross_entropy(net(adv), goal), adv)
    adv = (adv - 0.3 * g.sign()).detach()
with torch.no_grad():
    out = net(adv)
    print(
        f"robust {(out.argmax(1) == yv).float().mean():.4f} "
        f"reached {(out.argmax(1) == goal).float().mean():.4f} "
        f"loss {nn.functional.cross_entropy(out, yv):.4f}"
    )
