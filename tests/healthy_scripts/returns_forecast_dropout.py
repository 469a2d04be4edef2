"""Predict tomorrow's return: there is next to nothing to learn, and the script's answer is that there is not."""

import torch
from torch import nn

torch.manual_seed(0)
returns = torch.randn(2500) * 0.01
window = 20
x = returns.unfold(0, window, 1)[:-1] * 100
y = returns[window:].unsqueeze(1) * 100
split = 2000
model = nn.Sequential(
    nn.Linear(window, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 1)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x[:split], y[:split]), batch_size=64, shuffle=True)
for epoch in range(8):
    model.train()
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(xb), yb)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        val = nn.functional.mse_loss(model(x[split:]), y[split:]).item()
        naive = y[split:].pow(2).mean().item()
    print(f"epoch {epoch} val {val:.4f} naive {naive:.4f}")
