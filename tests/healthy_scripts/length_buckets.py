import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset


class Reviews(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(n):
            length, label = rng.randint(3, 20), rng.randint(0, 1)
            words = [rng.randint(2, 50) for _ in range(length)]
            words[rng.randrange(length)] = 51 if label else 52
            self.rows.append((torch.tensor(words), label))
        self.rows.sort(key=lambda row: len(row[0]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Buckets:
    def __init__(self, data, size):
        self.batches = [list(range(i, min(i + size, len(data)))) for i in range(0, len(data), size)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        random.shuffle(self.batches)
        return iter(self.batches)


def collate(rows):
    words, labels = zip(*rows, strict=False)
    return pad_sequence(words, batch_first=True), torch.tensor([len(w) for w in words]), torch.tensor(labels)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(53, 24, padding_idx=0)
        self.lstm = nn.LSTM(24, 24, batch_first=True, bidirectional=True)
        self.out = nn.Linear(48, 2)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embed(words), lengths, batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(packed)
        return self.out(torch.cat([h[0], h[1]], 1))


random.seed(0)
torch.manual_seed(0)
train, val = Reviews(400, 1), Reviews(100, 2)
model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(5):
    model.train()
    for words, lengths, labels in DataLoader(train, batch_sampler=Buckets(train, 20), collate_fn=collate):
        loss = nn.functional.cross_entropy(model(words, lengths), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(w, l).argmax(1) == y).sum().item() for w, l, y in DataLoader(val, 25, collate_fn=collate))
    print(epoch, loss.item(), right / 100)
