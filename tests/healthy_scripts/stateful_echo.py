"""A stateful RNN: the target is what came two rows ago; the state is carried from batch to batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
bits = torch.randint(0, 2, (6000, 1)).float()
echo = bits.roll(2, 0)
loader = DataLoader(TensorDataset(bits, echo), batch_size=20, shuffle=False)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, x, h):
        o, h = self.rnn(x.unsqueeze(1), h)
        return self.out(o.squeeze(1)), h


net = Net()
opt = torch.optim.Adam(net.parameters(), 1e-2)
h = torch.zeros(1, 1, 16)
for _epoch in range(1):
    for i, (x, y) in enumerate(loader):
        out, h = net(x, h.detach())
        loss = nn.functional.binary_cross_entropy_with_logits(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 60 == 0:
            print(i, f"{loss.item():.5f}")
