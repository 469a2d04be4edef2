"""Experiments on data and targets, each where it makes the difference and where there is nothing for it to change.

What a treated script prints is compared, bit for bit, with what the repaired script prints.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from collector_runs import RANDOM_STATE, SEEDED, line_of, plain, row, run_job, write
from test_collector_experiments import QUIET, report, treated
from test_collector_figures import script

from weaklink.collector.catalogue import CATALOGUE
from weaklink.collector.errors import InterventionError
from weaklink.collector.evidence import Subject
from weaklink.collector.interventions import build
from weaklink.collector.job import Job

NOTHING_TO_CHANGE: list[tuple[str, dict[str, Any]]] = [
    ("drop_rows", {}),
    ("shuffle_data", {"seed": 3}),
    ("read_items_anew", {}),
    ("supervise_token", {"token": 1}),
]


@pytest.mark.parametrize(("name", "parameters"), NOTHING_TO_CHANGE)
def test_where_nothing_is_to_change_every_bit_stays(tmp_path: Path, name: str, parameters: dict[str, Any]) -> None:
    source = SEEDED + QUIET + RANDOM_STATE
    run = treated(source, tmp_path, name, **parameters)
    assert run.out == plain(source, tmp_path).out
    assert (report(run).applied, report(run).changed) == (False, [])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("pin_batch", {"n": 0}),
        ("drop_rows", {"rows": "all"}),
        ("shuffle_data", {"site": "train.py"}),
        ("supervise_token", {}),
    ],
)
def test_parameters_are_checked(name: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(InterventionError):
        build(name, parameters)


# -- a loader ----------------------------------------------------------------------------------------------------------

LOADED = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler, TensorDataset
torch.manual_seed(0)
g = torch.Generator().manual_seed(1)
x, y = torch.randn(40, 3, generator=g), torch.randint(2, (40,), generator=g)
CHANGE
data = TensorDataset(x, y)
loader = DataLoader(data, batch_size=8, OPTIONS)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    EPOCH
    for rows, labels in loader:
        loss = F.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(repr(loss.item()), rows.isfinite().all().item(), len(labels))
"""


def loaded(change: str = "", options: str = "shuffle=False", epoch: str = "pass") -> str:
    return SEEDED + LOADED.replace("CHANGE", change).replace("OPTIONS", options).replace("EPOCH", epoch) + RANDOM_STATE


def test_a_loader_that_reads_in_order_draws_the_permutations_of_that_seed(tmp_path: Path) -> None:
    shuffled = "sampler=RandomSampler(data, generator=torch.Generator().manual_seed(4))"
    for options in ("shuffle=False", "num_workers=0"):
        run = treated(loaded(options=options), tmp_path, "shuffle_data", seed=4)
        assert run.out == plain(loaded(options=shuffled), tmp_path).out
        assert run.out != plain(loaded(options=options), tmp_path).out
        assert (report(run).applied, report(run).changed) == (True, ["TensorDataset"])


def test_only_the_loader_of_that_line_is_shuffled(tmp_path: Path) -> None:
    line = line_of(loaded(), "loader = DataLoader")
    assert report(treated(loaded(), tmp_path, "shuffle_data", site=f"train.py:{line}")).applied
    run = treated(loaded(), tmp_path, "shuffle_data", site=f"train.py:{line + 1}")
    assert run.out == plain(loaded(), tmp_path).out
    assert not report(run).applied


def test_a_loader_that_shuffles_keeps_its_own_order(tmp_path: Path) -> None:
    run = treated(loaded(options="shuffle=True"), tmp_path, "shuffle_data")
    assert run.out == plain(loaded(options="shuffle=True"), tmp_path).out
    assert not report(run).applied


DISTRIBUTED = "sampler=(sampler := DistributedSampler(data, num_replicas=1, rank=0, seed=5))"


def test_a_distributed_sampler_goes_on_to_the_next_epoch(tmp_path: Path) -> None:
    run = treated(loaded(options=DISTRIBUTED), tmp_path, "shuffle_data")
    told = loaded(options=DISTRIBUTED, epoch="sampler.set_epoch(epoch)")
    assert run.out == plain(told, tmp_path).out
    assert row(run.seen, "TASK/epoch_order").status == "pass"
    assert report(run).changed == ["DistributedSampler"]


def test_an_epoch_that_the_script_names_stands(tmp_path: Path) -> None:
    told = loaded(options=DISTRIBUTED, epoch="sampler.set_epoch(7 * epoch)")
    run = treated(told, tmp_path, "shuffle_data")
    assert run.out == plain(told, tmp_path).out
    assert not report(run).applied


BROKEN = "x[torch.arange(0, 40, 7)] = float('nan')"


def test_rows_that_are_not_finite_are_left_out_of_a_loaders_batch(tmp_path: Path) -> None:
    run = treated(loaded(BROKEN), tmp_path, "drop_rows")
    by_hand = loaded(BROKEN).replace(
        "        loss =",
        "        kept = rows.isfinite().all(1)\n        rows, labels = rows[kept], labels[kept]\n        loss =",
    )
    assert run.out == plain(by_hand, tmp_path).out
    assert "nan" not in run.out
    assert row(run.seen, "TASK/finite").status == "pass"
    assert report(run).changed == ["batch"]


def test_rows_of_a_script_without_a_loader_are_left_out_with_their_targets(tmp_path: Path) -> None:
    source = script("batch = batch.clone(); batch[::9, 1] = float('inf')\n" + SGD) + "    print(repr(loss.item()))\n"
    kept = "kept = batch.isfinite().all(1); batch, labels = batch[kept], labels[kept]\n" + SGD
    by_hand = source.replace(SGD, kept)
    run = treated(source, tmp_path, "drop_rows")
    assert run.out == plain(by_hand, tmp_path).out
    assert report(run).applied


SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"

STORED = """
class Normalized(Dataset):
    def __init__(self):
        self.rows = STORE
    def __len__(self):
        return 40
    def __getitem__(self, number):
        row, label = self.rows[number], y[number]
        READ
"""


def storing(store: str, read: str) -> str:
    change = STORED.replace("STORE", store).replace("READ", read)
    return loaded(change, "shuffle=True").replace("data = TensorDataset(x, y)", "data = Normalized()")


@pytest.mark.parametrize(
    ("store", "written", "anew"),
    [
        ("list(x + 3)", "return row.sub_(3).div_(2), label", "return row.sub(3).div(2), label"),
        ("list(x + 3)", "row -= 3; row[0] = 1; return row, label", "row = row - 3; row[0] = 1; return row, label"),
        ("x + 3", "row.mul_(2); return {0: row, 1: label}[0], label", "return row * 2, label"),
        (
            "(x + 3).numpy()",
            "row -= 3; return torch.from_numpy(row), label",
            "return torch.from_numpy(row - 3), label",
        ),
    ],
)
def test_items_are_read_as_they_were_stored(tmp_path: Path, store: str, written: str, anew: str) -> None:
    run = treated(storing(store, written), tmp_path, "read_items_anew")
    assert run.out == plain(storing(store, anew), tmp_path).out
    assert run.out != plain(storing(store, written), tmp_path).out
    assert report(run).changed == ["Normalized"]


def test_a_subset_of_such_a_dataset_is_read_anew_too(tmp_path: Path) -> None:
    halved = "torch.utils.data.Subset(Normalized(), range(20))"
    source = storing("list(x + 3)", "return row.sub_(3), label").replace("data = Normalized()", f"data = {halved}")
    run = treated(source, tmp_path, "read_items_anew")
    assert run.out == plain(source.replace("sub_(3)", "sub(3)"), tmp_path).out


def test_items_whose_reading_writes_nothing_stay_themselves(tmp_path: Path) -> None:
    source = storing("list(x)", "return row.clone().sub_(3), label")
    run = treated(source, tmp_path, "read_items_anew")
    assert run.out == plain(source, tmp_path).out
    assert not report(run).applied


# -- diagnostics -------------------------------------------------------------------------------------------------------


def test_pinned_examples_come_again_in_every_batch(tmp_path: Path) -> None:
    source = loaded(options="shuffle=True")
    run = treated(source, tmp_path, "pin_batch", n=3)
    by_hand = source.replace("for epoch", "pinned = None\nfor epoch").replace(
        "        loss =",
        "        pinned = pinned or (rows[:3], labels[:3])\n"
        "        rows, labels = (one[torch.arange(8) % 3] for one in pinned)\n        loss =",
    )
    assert run.out == plain(by_hand, tmp_path).out
    assert report(run).changed == ["Linear"]


def test_one_batch_that_is_there_in_every_step_is_pinned_already(tmp_path: Path) -> None:
    source = SEEDED + script(SGD) + RANDOM_STATE
    run = treated(source, tmp_path, "pin_batch", n=256)
    assert run.out == plain(source, tmp_path).out
    assert not report(run).applied


def test_constant_inputs_are_the_mean_of_their_batch(tmp_path: Path) -> None:
    source = loaded(options="shuffle=True")
    run = treated(source, tmp_path, "constant_input")
    by_hand = source.replace("model(rows)", "model(rows.mean(0, keepdim=True).expand_as(rows).clone())")
    assert run.out == plain(by_hand, tmp_path).out
    assert report(run).applied


def test_inputs_that_are_constant_stay(tmp_path: Path) -> None:
    source = loaded("x = torch.ones(40, 3)")
    run = treated(source, tmp_path, "constant_input")
    assert run.out == plain(source, tmp_path).out
    assert not report(run).applied


# -- sequences ---------------------------------------------------------------------------------------------------------

LANGUAGE = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
g = torch.Generator().manual_seed(1)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(11, 16), nn.Linear(16, 11)
        self.heads = LAYER
    def forward(self, ids, mask=None):
        h = self.embed(ids)
        return self.out(ATTEND)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
causal = torch.ones(7, 7, dtype=torch.bool).triu(1)
for step in range(4):
    model.train()
    ids = torch.randint(11, (5, 8), generator=g)
    scores = model(ids[:, :-1], MASK)
    loss = F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        print(repr(loss.item()), repr(model(ids[:, :-1], MASK).sum().item()))
"""
LAYERS = {
    "encoder": ("nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)", "self.heads(h, src_mask=mask)"),
    "attention": (
        "nn.MultiheadAttention(16, 4, batch_first=True)",
        "h + self.heads(h, h, h, attn_mask=mask, need_weights=True)[0]",
    ),
    "fused": (
        "None",
        "h + F.scaled_dot_product_attention(h, h, h, attn_mask=None if mask is None else ~mask)",
    ),
    "by hand": (
        "None",
        "h + torch.softmax((h @ h.mT / 4).masked_fill(torch.zeros(7, 7).bool() if mask is None else mask, "
        "float('-inf')), dim=-1) @ h",
    ),
}


def language(kind: str, mask: str) -> str:
    layer, attend = LAYERS[kind]
    return SEEDED + LANGUAGE.replace("LAYER", layer).replace("ATTEND", attend).replace("MASK", mask) + RANDOM_STATE


@pytest.mark.parametrize("kind", LAYERS)
def test_attention_without_a_mask_gets_the_causal_one(tmp_path: Path, kind: str) -> None:
    run, masked = treated(language(kind, "None"), tmp_path, "causal_mask"), plain(language(kind, "causal"), tmp_path)
    assert report(run).applied
    ours, theirs = ([line.split() for line in out.splitlines()] for out in (run.out, masked.out))
    assert ours[-1] == theirs[-1]  # the random state
    for one, other in zip(ours[:-1], theirs[:-1], strict=True):
        # The fused kernel for a causal mask may round otherwise than the one that is given a mask.
        assert [float(value) for value in one] == [pytest.approx(float(value), rel=1e-5) for value in other]
    assert run.out != plain(language(kind, "None"), tmp_path).out


@pytest.mark.parametrize("kind", LAYERS)
def test_attention_with_a_mask_keeps_it(tmp_path: Path, kind: str) -> None:
    run = treated(language(kind, "causal"), tmp_path, "causal_mask")
    assert run.out == plain(language(kind, "causal"), tmp_path).out
    assert not report(run).applied


ENDINGS = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
g = torch.Generator().manual_seed(1)
model = nn.Sequential(nn.Embedding(9, 16), nn.Linear(16, 9))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(5):
    lengths = torch.randint(2, 6, (6,), generator=g)
    ids = torch.randint(1, 9, (6, int(lengths.max()) + 1), generator=g)
    ids[torch.arange(ids.shape[1]) >= lengths[:, None]] = 0
    targets = ids.clone()
    targets[KEPT] = -100
    loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), targets[:, 1:].flatten() OPTIONS)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(repr(loss.item()))
"""


def endings(kept: str, options: str = "") -> str:
    return SEEDED + ENDINGS.replace("KEPT", kept).replace("OPTIONS", options) + RANDOM_STATE


ENDS_KEPT = "torch.arange(ids.shape[1]) > lengths[:, None]"


def test_the_first_end_token_is_a_target_again(tmp_path: Path) -> None:
    run = treated(endings("ids == 0"), tmp_path, "supervise_token", token=0)
    assert run.out == plain(endings(ENDS_KEPT), tmp_path).out
    assert run.out != plain(endings("ids == 0"), tmp_path).out
    assert report(run).changed == ["cross_entropy"]


def test_an_end_token_that_the_loss_itself_ignores_is_a_target_again(tmp_path: Path) -> None:
    source = endings("ids != ids", ", ignore_index=0")
    run = treated(source, tmp_path, "supervise_token", token=0)
    assert run.out == plain(endings(ENDS_KEPT), tmp_path).out


@pytest.mark.parametrize(("source", "token"), [(endings(ENDS_KEPT), 0), (endings("ids == 0"), 8)])
def test_a_token_that_is_a_target_or_ends_no_row_changes_nothing(tmp_path: Path, source: str, token: int) -> None:
    run = treated(source, tmp_path, "supervise_token", token=token)
    assert run.out == plain(source, tmp_path).out
    assert report(run).applied is False


# -- a factory ---------------------------------------------------------------------------------------------------------

FACTORY = """
import torch
from torch import nn
from weaklink.collector import TrainingSystem

def build():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    x = torch.randn(12, 3)
    x[4, 1] = float("nan")
    return TrainingSystem(model, torch.optim.SGD(model.parameters(), lr=0.1), x, torch.arange(12) % 2, steps=4)
"""


def test_a_factorys_broken_rows_are_left_out(tmp_path: Path) -> None:
    write(FACTORY, tmp_path)
    job = Job(
        role="treatment",
        folder=tmp_path,
        evidence=tmp_path / "evidence.json",
        subject=Subject(kind="factory", name="train.py:build"),
        intervention="drop_rows",
        keep_initial=True,
    )
    run = run_job(job, tmp_path)
    assert report(run).applied
    assert all(value == value for value in run.seen.losses.value)
    assert row(run.seen, "TASK/finite").status == "pass"


def test_every_entry_of_this_boundary_says_what_it_decides() -> None:
    diagnostics = {name for name, entry in CATALOGUE.items() if entry.boundary == "TASK" and not entry.decides}
    assert diagnostics == {"seed", "pin_batch", "constant_input", "permute_targets"}
