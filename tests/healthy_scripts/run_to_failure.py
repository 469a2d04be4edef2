"""One machine from new to broken, read in order by a stateful model: states come one after the other."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
n = 1200
state = torch.arange(n) // 400
signal = torch.randn(n, 3) + state.unsqueeze(1) * torch.tensor([1.0, -1.0, 0.5])
loader = DataLoader(TensorDataset(signal, state), batch_size=40)


class Tracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(3, 16), nn.Linear(16, 3)

    def forward(self, x, state=None):
        o, state = self.rnn(x, state)
        return self.out(o), state


net = Tracker()
opt = torch.optim.Adam(net.parameters(), 1e-2)
for epoch in range(8):
    hidden, correct = None, 0
    for x, y in loader:
        out, hidden = net(x, hidden)
        hidden = tuple(h.detach() for h in hidden)
        loss = nn.functional.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        correct += (out.argmax(1) == y).sum().item()
    print(epoch, f"{loss.item():.4f} {correct / n:.4f}")
