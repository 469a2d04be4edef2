"""Optimise an image, not a network."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
vgg = (
    nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)
    )
    .eval()
    .requires_grad_(False)
)


def gram(x):
    _b, c, h, w = x.shape
    f = x.view(c, h * w)
    return f @ f.t() / (c * h * w)


def features(x):
    found = []
    for layer in vgg:
        x = layer(x)
        if isinstance(layer, nn.Conv2d):
            found.append(x)
    return found


content, style = torch.rand(1, 3, 24, 24), torch.rand(1, 3, 24, 24)
content_target = [f.detach() for f in features(content)]
style_target = [gram(f).detach() for f in features(style)]
image = content.clone().requires_grad_(True)
optimizer = torch.optim.LBFGS([image], max_iter=5)
for run in range(15):

    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        optimizer.zero_grad()
        found = features(image)
        style_loss = sum(F.mse_loss(gram(a), b) for a, b in zip(found, style_target, strict=False))
        loss = 1e6 * style_loss + F.mse_loss(found[-1], content_target[-1])
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    if run % 5 == 0:
        print(run, loss.item())
print(image.detach().clamp(0, 1).mean().item())
