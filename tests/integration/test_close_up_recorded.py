"""`weaklink diagnose` with a close-up: what it adds stands in the chain, and the record says how it came there."""

from __future__ import annotations

import hashlib
from pathlib import Path

from conftest import Weaklink

from weaklink.agent.record.check import check_record
from weaklink.agent.record.incident import Incident

SCRIPT = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(64, 4)
y = x.sum(1, keepdim=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    size = model(x).abs().mean()
    loss = F.mse_loss(model(x), y) + torch.tensor([size]).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_term_that_only_the_close_up_sees_is_the_first_divergence(tmp_path: Path, weaklink: Weaklink) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    answer = weaklink("diagnose", "train.py", "--json").json
    assert answer["first_divergence"]["row"] == "DEPENDENCY/terms"
    assert answer["where"][0]["line"] == 13

    folder = next((tmp_path / "incidents").iterdir())
    incident = Incident.read(folder)
    kinds = [kind for _, kind, _ in incident.events]
    assert kinds[:3] == ["incident.opened", "evidence.observed", "baseline.kept"]
    assert kinds[3:6] == ["rerun.started", "rerun.finished", "evidence.observed"]
    # What only a close-up shows is looked at closely again: the copied term is let through, and the row passes.
    assert answer["mechanism"]["status"] == "supported"
    assert [rerun.role for rerun in incident.reruns] == ["control", "control_again", "placebo", "treatment"]
    assert incident.reruns[0].evidence is not None
    assert incident.reruns[0].evidence.row("DEPENDENCY/terms") is not None
    assert incident.observed is not None
    kept = hashlib.sha256((folder / "evidence.json").read_bytes()).hexdigest()
    assert incident.observed.evidence_sha256 == kept
    assert incident.observed.evidence.row("DEPENDENCY/terms") is not None
    assert (folder / "logs" / "close_up.log").exists()
    assert check_record(folder).intact
