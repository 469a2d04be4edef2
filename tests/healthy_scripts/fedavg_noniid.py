import copy

import torch
from torch import nn

torch.manual_seed(0)
centers = torch.randn(6, 10) * 2


def draw(n, classes):
    y = torch.tensor(classes)[torch.randint(0, len(classes), (n,))]
    return centers[y] + torch.randn(n, 10), y


clients = [draw(120, [2 * k, 2 * k + 1]) for k in range(3)]
test = draw(300, list(range(6)))
server = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 6))
for round_ in range(4):
    states = []
    for x, y in clients:
        local = copy.deepcopy(server)
        opt = torch.optim.SGD(local.parameters(), lr=0.1)
        for _ in range(3):
            for i in torch.randperm(120).split(20):
                loss = nn.functional.cross_entropy(local(x[i]), y[i])
                opt.zero_grad()
                loss.backward()
                opt.step()
        states.append(local.state_dict())
    server.load_state_dict({k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]})
    server.eval()
    with torch.no_grad():
        print(round_, loss.item(), (server(test[0]).argmax(1) == test[1]).float().mean().item())
