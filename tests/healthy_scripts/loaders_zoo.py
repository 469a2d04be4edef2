import numpy as np
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    RandomSampler,
    StackDataset,
    SubsetRandomSampler,
    TensorDataset,
)
from torch.utils.data.distributed import DistributedSampler


class Table(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitems__(self, indices):
        return [(self.x[i], self.y[i]) for i in indices]

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def seed_worker(worker_id):
    np.random.seed(torch.initial_seed() % 2**32)


if __name__ == "__main__":
    torch.manual_seed(0)
    w = torch.randn(6, 3)
    x = torch.randn(480, 6)
    y = (x @ w).argmax(1)
    data = ConcatDataset([Table(x[:200], y[:200]), TensorDataset(x[200:400], y[200:400])])
    generator = torch.Generator().manual_seed(1)
    ranks = DistributedSampler(data, num_replicas=2, rank=0, shuffle=True)
    loaders = {
        "workers": DataLoader(
            data,
            40,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
            worker_init_fn=seed_worker,
            generator=generator,
            prefetch_factor=4,
        ),
        "batches": DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 40, False)),
        "part": DataLoader(data, 20, sampler=SubsetRandomSampler(range(100, 300)), drop_last=True),
        "rank": DataLoader(data, 20, sampler=ranks),
    }
    paired = DataLoader(StackDataset(a=x[400:], b=y[400:]), 40)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(2):
        ranks.set_epoch(epoch)
        for name, loader in loaders.items():
            for a, b in loader:
                loss = nn.functional.cross_entropy(model(a), b)
                opt.zero_grad()
                loss.backward()
                opt.step()
            print(epoch, name, loss.item())
        with torch.inference_mode():
            print(sum((model(batch["a"]).argmax(1) == batch["b"]).sum().item() for batch in paired) / 80)
