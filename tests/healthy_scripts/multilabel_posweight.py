import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
w = torch.randn(12, 5)
x = torch.randn(900, 12)
y = ((x @ w) > torch.tensor([3.0, 0.0, 4.0, -1.0, 5.0])).float()
pos = y.mean(0)
model = nn.Sequential(nn.Linear(12, 48), nn.LayerNorm(48), nn.GELU(), nn.Dropout(0.1), nn.Linear(48, 5))
nn.init.constant_(model[-1].bias, -2.0)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
criterion = nn.BCEWithLogitsLoss(pos_weight=(1 - pos) / pos)
for epoch in range(5):
    model.train()
    for a, b in DataLoader(TensorDataset(x[:700], y[:700]), batch_size=35, shuffle=True):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = criterion(model(a), b)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
    model.eval()
    with torch.no_grad():
        guess = model(x[700:]) > 0
        tp = (guess & (y[700:] > 0)).sum(0).float()
        f1 = 2 * tp / (guess.sum(0) + y[700:].sum(0)).clamp(min=1)
    print(epoch, loss.item(), f1.mean().item())
