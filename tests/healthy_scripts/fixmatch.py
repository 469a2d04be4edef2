import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
centers = torch.randn(4, 12) * 1.5


def draw(n):
    y = torch.randint(0, 4, (n,))
    return centers[y] + torch.randn(n, 12), y


lx, ly = draw(40)
ux, _ = draw(2000)
vx, vy = draw(300)
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True)
for step in range(120):
    i, j = torch.randint(0, 40, (16,)), torch.randint(0, 2000, (64,))
    weak, strong = ux[j] + 0.05 * torch.randn(64, 12), ux[j] + 0.5 * torch.randn(64, 12)
    logits = model(torch.cat([lx[i], weak, strong]))
    known, w, s = logits[:16], logits[16:80], logits[80:]
    confidence, pseudo = w.detach().softmax(-1).max(-1)
    mask = (confidence > 0.95).float()
    loss = F.cross_entropy(known, ly[i]) + (F.cross_entropy(s, pseudo, reduction="none") * mask).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 29:
        with torch.no_grad():
            print(step, loss.item(), mask.mean().item(), (model(vx).argmax(1) == vy).float().mean().item())
