"""The controlled problem's figures (torch 2.13, CPU, float32), read off what the watcher saw of a script."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from collector_runs import Run, observe, observe_code, plain, row

from weaklink.collector.evidence import Evidence

REPLAY = Path(__file__).parents[2] / "replays" / "stale_head" / "train.py"

PROBLEM = """
import torch
from torch import nn
from torch.nn import functional as F

def split(rows, seed):
    x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] + 0.75 * x[:, 1] > 0).long()

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 2)

    def forward(self, x):
        return self.head(self.features(x))

x, y = split(2048, 0)
batch, labels = x[:256], y[:256]
torch.manual_seed(42)
model = Classifier()
"""

LOOP = """
for step in range({steps}):
    loss = F.cross_entropy({scores}, {targets})
    {clear}
    loss.backward()
    optimizer.step()
"""


def script(
    before: str = "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)",
    steps: int = 6,
    scores: str = "model(batch)",
    targets: str = "labels",
    clear: str = "optimizer.zero_grad()",
) -> str:
    return PROBLEM + textwrap.dedent(before) + LOOP.format(steps=steps, scores=scores, targets=targets, clear=clear)


STALE = """
model.features.requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
torch.manual_seed(7)
model.head = nn.Linear(32, 2)
"""


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return observe(REPLAY.read_text(encoding="utf-8"), tmp_path_factory.mktemp("replay"))


@pytest.fixture(scope="module")
def treated(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    source = REPLAY.read_text(encoding="utf-8")
    return observe_code(
        source,
        tmp_path_factory.mktemp("treated"),
        role="treatment",
        horizon=201,
        keep_initial=True,
        intervention="own_missing_parameters",
        intervention_parameters={"parameters": "*"},
    )


def test_stale_head_full_batch_loss_never_changes(replay: Run) -> None:
    losses = replay.seen.losses.value
    assert len(losses) == 301
    assert set(losses) == {losses[0]}
    assert losses[0] == pytest.approx(0.683606, abs=5e-7)


def test_stale_head_counts_of_the_chain(replay: Run) -> None:
    evidence = replay.seen
    assert row(evidence, "TASK/classes").values == {
        "classes": 2,
        "counts": [1039, 1009],
        "majority": pytest.approx(0.5073, abs=5e-5),
    }
    assert row(evidence, "OWNERSHIP/owned").values["owned"] == 0
    assert row(evidence, "OWNERSHIP/owned").values["expected"] == 2
    assert row(evidence, "OWNERSHIP/stale").values == {"stale": 2, "held": 6, "replaced": 2}
    assert row(evidence, "UPDATE/moved").values["moved"] == 0
    assert row(evidence, "UPDATE/frozen").values == {"still": 4, "frozen": 4}
    assert evidence.branch == "flat"
    assert evidence.first_divergence is not None
    assert evidence.first_divergence.id == "OWNERSHIP/owned"


def test_stale_head_points_at_the_optimizer_and_the_new_head(replay: Run) -> None:
    lines = REPLAY.read_text(encoding="utf-8").splitlines()
    built = next(n for n, line in enumerate(lines, 1) if "torch.optim.AdamW" in line)
    made = next(n for n, line in enumerate(lines, 1) if "model.head = " in line)
    where = [(s.file, s.line) for s in row(replay.seen, "OWNERSHIP/owned").where]
    # In this order, and nothing else ahead of them.
    assert where[0] == ("train.py", built)
    assert ("train.py", made) in where


def test_stale_head_batch_of_256(tmp_path: Path) -> None:
    evidence = observe_code(script(STALE), tmp_path)
    assert evidence.losses.value[0] == pytest.approx(0.685485, abs=5e-7)
    assert row(evidence, "GRADIENT/norm").values["norm"] == pytest.approx(1.9480e-01, abs=5e-6)


def test_stale_head_gradients_pile_up_where_nobody_clears_them(tmp_path: Path) -> None:
    """The old head is what zero_grad reaches; the new one's gradient grows by itself at every backward."""
    watched = """
        import json, pathlib
        from weaklink.collector.watching.sites import UserCode
        from weaklink.collector.watching.watcher import Watcher
        watcher = Watcher(UserCode(pathlib.Path.cwd()))
        watcher.install()
    """
    told = """
head = watcher.parameters.entry(model.head.weight).serial
print(json.dumps([w.backwards[0].gradients[head][1] for w in watcher.tape.windows if w.backwards]))
"""
    run = plain(textwrap.dedent(watched) + script(STALE, steps=5, scores="model(x)", targets="y") + told, tmp_path)
    assert run.code == 0, run.err
    expected = [0.155525, 0.311051, 0.466576, 0.622101, 0.777627]
    assert json.loads(run.out) == [pytest.approx(value, abs=1e-6) for value in expected]


def test_treated_run_reaches_the_repaired_losses(treated: Evidence) -> None:
    assert treated.outcome.ended == "stopped"
    assert treated.outcome.steps == 201
    assert treated.intervention is not None
    assert treated.intervention.applied
    assert treated.intervention.changed == ["head.weight", "head.bias"]
    losses = dict(zip(treated.losses.index, treated.losses.value, strict=True))
    assert losses[1] == pytest.approx(0.6836, abs=5e-5)
    assert losses[51] == pytest.approx(0.4099, abs=5e-5)
    assert losses[201] == pytest.approx(0.2115, abs=5e-5)
    assert row(treated, "OWNERSHIP/owned").status == "pass"


def test_treated_run_shares_what_precedes_the_intervention(replay: Run, treated: Evidence) -> None:
    assert replay.seen.fingerprint == treated.fingerprint
    first = {p.name: p.gradient_digest_first for p in replay.seen.parameters if p.in_model}
    assert first == {p.name: p.gradient_digest_first for p in treated.parameters if p.in_model}
    assert all(first[name] for name in ("head.weight", "head.bias"))


def test_healthy_batch(tmp_path: Path) -> None:
    evidence = observe_code(script(), tmp_path)
    assert evidence.first_divergence is None
    assert evidence.losses.value[0] == pytest.approx(0.694159, abs=5e-7)
    outputs = row(evidence, "OBJECTIVE/outputs").values
    assert outputs["mean"] == pytest.approx(0.1037, abs=5e-5)
    # The figure is torch's own std, with Bessel's correction: the row's may differ by half a thousandth of itself.
    assert outputs["std"] == pytest.approx(0.0457, rel=2e-3)
    assert outputs["max_abs"] == pytest.approx(0.3531, abs=5e-5)
    assert row(evidence, "TASK/classes").values["counts"] == [115, 141]
    assert row(evidence, "TASK/classes").values["majority"] == pytest.approx(0.551, abs=5e-4)
    assert row(evidence, "GRADIENT/norm").values["norm"] == pytest.approx(3.4720e-01, abs=5e-6)
    delta = row(evidence, "UPDATE/delta").values
    assert delta["smallest"] == pytest.approx(1.414e-02, abs=5e-6)
    assert delta["largest"] == pytest.approx(2.931e-01, abs=5e-5)
    assert delta["count"] == 6
    assert "target 0, loss 0.671862" in row(evidence, "OBJECTIVE/by_hand").text


def test_healthy_full_batch_curve(tmp_path: Path) -> None:
    evidence = observe_code(script(steps=301, scores="model(x)", targets="y"), tmp_path)
    losses = evidence.losses.value
    assert [round(losses[i], 4) for i in (0, 50, 100, 300)] == [0.6933, 0.0158, 0.0079, 0.0014]
    assert evidence.branch == "learning"


def test_healthy_adamw_first_step_against_lr_times_gradient(tmp_path: Path) -> None:
    evidence = observe_code(
        script("optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.0)"), tmp_path
    )
    ratios = [p.delta_first / (0.1 * p.gradient_norm_first) for p in evidence.parameters]  # type: ignore[operator]
    expected = [103.260, 212.441, 108.439, 101.782, 44.170, 18.217]
    assert ratios == [pytest.approx(value, rel=1e-5, abs=5e-4) for value in expected]


def test_accuracy_may_fall_while_the_loss_falls_and_nobody_is_accused(tmp_path: Path) -> None:
    evidence = observe_code(script("optimizer = torch.optim.SGD(model.parameters(), lr=0.01)", steps=41), tmp_path)
    losses = evidence.losses.value
    expected = [0.69416, 0.68821, 0.68253, 0.67173, 0.66136, 0.65142]
    assert [round(losses[i], 5) for i in (0, 5, 10, 20, 30, 40)] == expected
    assert evidence.first_divergence is None


def test_detached_hidden_state(tmp_path: Path) -> None:
    evidence = observe_code(script(scores="model.head(model.features(batch).detach())"), tmp_path)
    assert evidence.losses.value[0] == pytest.approx(0.694159, abs=5e-7)
    assert row(evidence, "GRADIENT/norm").values["norm"] == pytest.approx(1.9444e-01, abs=5e-6)
    inside = PROBLEM.replace("self.features(x))", "self.features(x).detach())") + script()[len(PROBLEM) :]
    evidence = observe_code(inside, tmp_path)
    first = evidence.first_divergence
    assert first is not None
    assert (first.id, first.status) == ("DEPENDENCY/reached", "suspected")
    assert first.values["reached"] == 2
    assert first.values["expected"] == 6
    assert row(evidence, "UPDATE/moved").values["moved"] == 2


def test_softmax_before_cross_entropy(tmp_path: Path) -> None:
    evidence = observe_code(script(scores="torch.softmax(model(batch), 1)"), tmp_path)
    assert evidence.losses.value[0] == pytest.approx(0.693597, abs=5e-7)
    assert row(evidence, "GRADIENT/norm").values["norm"] == pytest.approx(1.7188e-01, abs=5e-6)
    assert evidence.first_divergence is not None
    assert evidence.first_divergence.id == "OBJECTIVE/fed"


def test_shuffled_pairs_look_healthy_to_an_observed_run(tmp_path: Path) -> None:
    shuffle = """
        x = x[torch.randperm(2048, generator=torch.Generator().manual_seed(3))]
        batch = x[:256]
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    """
    evidence = observe_code(script(shuffle), tmp_path)
    assert evidence.losses.value[0] == pytest.approx(0.695320, abs=5e-7)
    assert row(evidence, "GRADIENT/norm").values["norm"] == pytest.approx(1.1394e-01, abs=5e-6)
    assert evidence.first_divergence is None
    assert row(evidence, "TASK/pairing").status == "not_measured"


def test_dead_first_layer(tmp_path: Path) -> None:
    kill = """
        with torch.no_grad():
            model.features[0].bias.fill_(-100.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """
    evidence = observe_code(script(kill), tmp_path)
    first = evidence.first_divergence
    assert first is not None
    assert (first.id, first.status) == ("GRADIENT/nonzero", "suspected")
    assert first.values["zero"] == ["features.0.weight", "features.0.bias", "features.2.weight"]


def test_rate_ten_thousand_step_by_step(tmp_path: Path) -> None:
    evidence = observe_code(script("optimizer = torch.optim.SGD(model.parameters(), lr=1e4)"), tmp_path)
    losses, steps = evidence.losses.value, evidence.steps
    assert losses[:3] == [pytest.approx(v, rel=5e-5) for v in (6.9416e-01, 9.7960e07, 1.2313e26)]
    assert losses[3] != losses[3]
    assert [s.gradient_norm for s in steps[:3]] == [pytest.approx(v, rel=5e-5) for v in (0.34720, 5.9419e05, 5.3972e17)]
    assert [s.parameter_norm for s in steps[:3]] == [pytest.approx(v, rel=5e-5) for v in (5.3009, 3472.0, 5.9419e09)]
    assert [s.delta_norm for s in steps[:2]] == [pytest.approx(v, rel=5e-5) for v in (3472.0, 5.9419e09)]
    assert steps[2].delta_norm == float("inf")  # its square is beyond float32
    first = evidence.first_divergence
    assert first is not None
    assert (first.id, first.status) == ("UPDATE/scale", "suspected")
    assert first.values == {
        "nonfinite_from_step": 4,
        "outgrown_steps": 3,
        "ratio": pytest.approx(3.4720e03 / 5.3009, rel=5e-5),
    }
