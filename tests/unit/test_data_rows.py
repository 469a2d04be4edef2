"""TASK rows about a script's own data: each fault beside healthy scripts that look like it."""

from __future__ import annotations

from pathlib import Path

import pytest
from collector_runs import line_of, observe_code, row, with_status

from weaklink.collector.evidence import Evidence

COMMON = """
import random
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, WeightedRandomSampler

torch.manual_seed(0)


def rows(n, d=8, classes=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    return torch.randn(classes, d, generator=torch.Generator().manual_seed(9))[y] + torch.randn(n, d, generator=g), y


def fit(loader, classes=3, epochs=2, d=8, loss=F.cross_entropy, model=None):
    model = model or nn.Sequential(nn.Flatten(), nn.Linear(d, classes))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(epochs):
        for *inputs, target in loader:
            value = loss(model(*inputs), target)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    return model


class Items(Dataset):
    def __init__(self, x, y, transform=lambda item: item):
        self.x, self.y, self.transform = x, y, transform

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.transform(self.x[index]), self.y[index]
"""


def seen(body: str, folder: Path) -> Evidence:
    return observe_code(COMMON + body, folder, looks="fork")


# -- an item that changes when it is read ------------------------------------------------------------------------------

IN_PLACE = {
    "tensor": """
def normalize(item):
    return item.sub_(0.5).div_(0.3)  # here

fit(DataLoader(Items(*rows(64), normalize), batch_size=16, shuffle=True))
""",
    "array_in_a_list": """
def normalize(item):
    item -= 0.5  # here
    return torch.from_numpy(item)

x, y = rows(64)
fit(DataLoader(Items([one.numpy().copy() for one in x], y, normalize), batch_size=16, shuffle=True))
""",
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_transform_in_place_is_accused_at_its_line(name: str, tmp_path: Path) -> None:
    found = row(seen(IN_PLACE[name], tmp_path), "TASK/item")
    assert (found.status, found.basis) == ("fail", "exact")
    assert found.where[0].line == line_of(COMMON + IN_PLACE[name], "# here")


REREAD = {
    "global_augmentation": """
fit(DataLoader(Items(*rows(64), lambda item: item + 0.1 * torch.randn(8)), batch_size=16, shuffle=True))
""",
    "a_generator_of_its_own": """
class Noisy(Items):
    def __init__(self, *given):
        super().__init__(*given)
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index):
        return self.x[index] + float(self.rng.normal()), self.y[index]

fit(DataLoader(Noisy(*rows(64)), batch_size=16, shuffle=True))
""",
    "a_cache_filled_on_reading": """
class Cached(Items):
    def __init__(self, *given):
        super().__init__(*given)
        self.cache, self.known = torch.zeros(len(self.y), 8, dtype=torch.float16), set()

    def __getitem__(self, index):
        if index in self.known:
            return self.cache[index].float(), self.y[index]
        self.cache[index] = self.x[index]
        self.known.add(index)
        return self.x[index], self.y[index]

fit(DataLoader(Cached(*rows(64)), batch_size=16, shuffle=True))
""",
    "running_statistics": """
class Running(Items):
    def __init__(self, *given):
        super().__init__(*given)
        self.mean = torch.zeros(8)

    def __getitem__(self, index):
        self.mean.mul_(0.9).add_(self.x[index], alpha=0.1)
        return self.x[index] - self.mean, self.y[index]

fit(DataLoader(Running(*rows(64)), batch_size=16, shuffle=True))
""",
    "in_place_on_a_copy": """
fit(DataLoader(Items(*rows(64), lambda item: item.clone().sub_(0.5)), batch_size=16, shuffle=True))
""",
}


@pytest.mark.parametrize("name", REREAD)
def test_items_that_draw_numbers_or_keep_a_state_are_not_accused(name: str, tmp_path: Path) -> None:
    assert row(seen(REREAD[name], tmp_path), "TASK/item").status in ("pass", "evidence")


def test_a_single_pass_reads_no_item_again(tmp_path: Path) -> None:
    body = IN_PLACE["tensor"].replace("shuffle=True)", "shuffle=True), epochs=1")
    assert row(seen(body, tmp_path), "TASK/item").status == "evidence"


# -- targets beside the wrong rows -------------------------------------------------------------------------------------

BROKEN_PAIRS = {
    "one_row_late": "x, y = rows(601)\nfit(DataLoader(TensorDataset(x[:-1], y[1:]), batch_size=50, shuffle=True))",
    "reversed": "x, y = rows(600)\nfit(DataLoader(TensorDataset(x, y.flip(0)), batch_size=50, shuffle=True))",
    "listed_as_text": """
x, y = rows(600)
order = sorted(range(600), key=lambda i: str(i + 1))
fit(DataLoader(Subset(TensorDataset(x, y[order]), torch.randperm(600)[:500].tolist()), batch_size=50))
""",
    "numbers_indexed_by_hand": """
x = torch.randn(601, 8)
y = x[1:] @ torch.randn(8, 1)
x = x[:-1].clone()
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(20):
    idx = torch.randint(0, 600, (50,))
    loss = F.mse_loss(model(x[idx]), y[idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "labels_taken_before_the_shuffle": """
class FromRecords(Dataset):
    def __init__(self, records):
        records = list(records)
        self.labels = [record["label"] for record in records]
        random.Random(1).shuffle(records)
        self.x = [record["x"] for record in records]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], "abc".index(self.labels[index])

kept = [{"x": a, "label": "abc"[b]} for a, b in zip(*rows(400))]
fit(DataLoader(FromRecords(kept), batch_size=50, shuffle=True))
""",
}


@pytest.mark.parametrize("name", BROKEN_PAIRS)
def test_targets_in_another_order_are_accused_where_that_order_reverses_it(name: str, tmp_path: Path) -> None:
    found = row(seen(BROKEN_PAIRS[name], tmp_path), "TASK/pairing")
    assert (found.status, found.basis) == ("fail", "controlled"), found.text


HEALTHY_PAIRS = {
    "readable": ("x, y = rows(600)\nfit(DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True))", "pass"),
    "a_rare_class": (
        """
x = torch.randn(1500, 8)
y = (x[:, 0] > 2).long()
fit(DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True), classes=2)
""",
        "pass",
    ),
    "random_labels_to_learn_by_heart": (
        """
fit(DataLoader(TensorDataset(torch.randn(600, 8), torch.randint(0, 3, (600,))), batch_size=50, shuffle=True))
""",
        "evidence",
    ),
    "an_unpredictable_forecast": (
        """
steps = torch.randn(640)
walk = steps.cumsum(0)
x = torch.stack([walk[i : i + 8] for i in range(600)])
y = (steps[8:608] > 0).long()
fit(DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True), classes=2)
""",
        "evidence",
    ),
    "parity_no_probe_reads": (
        """
x = torch.randint(0, 2, (600, 8)).float()
y = x.sum(1).long() % 2
fit(DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True), classes=2)
""",
        "evidence",
    ),
    "records_whose_other_field_is_read_better": (
        """
kept = [{"x": a, "source": int(b)} for a, b in zip(*rows(400))]
fit(DataLoader(Items([k["x"] for k in kept], [k["source"] for k in kept]), batch_size=50, shuffle=True))
""",
        "pass",
    ),
}


@pytest.mark.parametrize("name", HEALTHY_PAIRS)
def test_unreadable_targets_alone_accuse_nobody(name: str, tmp_path: Path) -> None:
    body, status = HEALTHY_PAIRS[name]
    evidence = seen(body, tmp_path)
    assert row(evidence, "TASK/pairing").status == status
    assert not [r for r in (*with_status(evidence, "fail"), *with_status(evidence, "suspected")) if r[:4] == "TASK"]


# -- labels of the opposite convention ---------------------------------------------------------------------------------

SHARDS = """
x = torch.randn(1600, 8)
y = (x[:, 0] + 0.3 * torch.randn(1600) > 0).float()
half = torch.arange(1600) // 400 % 2 == 1
{change}
model = nn.Linear(x.shape[1], 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for idx in torch.randperm(1600).split(50):
    loss = F.binary_cross_entropy_with_logits(model(x[idx]).squeeze(1), y[idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_shards_with_turned_labels_are_accused(tmp_path: Path) -> None:
    found = row(seen(SHARDS.format(change="y = torch.where(half, 1 - y, y)"), tmp_path), "TASK/convention")
    assert (found.status, found.basis) == ("fail", "controlled")


CONVENTIONS = {
    "one_convention": ("", "pass"),
    "a_column_says_which_task_it_is": (
        "y = torch.where(half, 1 - y, y); x = torch.cat([x, half[:, None].float()], 1)",
        "evidence",
    ),
    "half_of_the_labels_are_noise": ("y = torch.where(half, torch.randint(0, 2, (1600,)).float(), y)", "evidence"),
}


@pytest.mark.parametrize("name", CONVENTIONS)
def test_blocks_that_agree_or_that_an_input_tells_apart_are_not_accused(name: str, tmp_path: Path) -> None:
    change, status = CONVENTIONS[name]
    assert row(seen(SHARDS.format(change=change), tmp_path), "TASK/convention").status == status


# -- rows that repeat, stay empty, come sorted -------------------------------------------------------------------------

INDEXED = """
class Indexed(Dataset):
    def __init__(self, x, y, index):
        self.x, self.y, self.index = x, y, index

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        return self.x[self.index[i]], self.y[self.index[i]]
"""


def test_an_order_made_for_fewer_rows_is_suspected(tmp_path: Path) -> None:
    body = INDEXED + "fit(DataLoader(Indexed(*rows(600), [i % 24 for i in range(1200)]), batch_size=32), epochs=1)"
    found = row(seen(body, tmp_path), "TASK/coverage")
    assert found.status == "suspected"
    assert (found.values["distinct"], found.values["held"]) == (24, 600)


COVERED = {
    "whole_permutations": INDEXED
    + "fit(DataLoader(Indexed(*rows(600), [i % 600 for i in range(1200)]), batch_size=32), epochs=1)",
    "the_training_part_of_an_array": INDEXED
    + "fit(DataLoader(Indexed(*rows(600), [i % 480 for i in range(1200)]), batch_size=32), epochs=1)",
    "a_subset_on_purpose": "fit(DataLoader(Subset(TensorDataset(*rows(600)), range(24)), batch_size=32), epochs=9)",
    "drawn_with_replacement": """
x, y = rows(600)
sampler = WeightedRandomSampler(torch.where(y == 0, 10.0, 1.0), 600)
fit(DataLoader(TensorDataset(x, y), batch_size=32, sampler=sampler))
""",
    "oversampled_minority": INDEXED
    + "x, y = rows(600)\nrare = [i for i in range(600) if y[i] == 0][:20]\n"
    + "fit(DataLoader(Indexed(x, y, list(range(300)) + rare * 20), batch_size=32, shuffle=True), epochs=1)",
}


@pytest.mark.parametrize("name", COVERED)
def test_repetition_that_is_meant_is_not_suspected(name: str, tmp_path: Path) -> None:
    assert row(seen(COVERED[name], tmp_path), "TASK/coverage").status in ("pass", "evidence")


TWO_INPUTS = """
class Fusion(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 3), nn.Linear(4, 3)

    def forward(self, a, b):
        return self.a(a) + self.b(b)

x, y = rows(400)
extra = torch.randn(400, 4)
{change}
fit(DataLoader(TensorDataset(x, extra, y), batch_size=32, shuffle=True), model=Fusion())
"""


def test_an_export_that_stopped_in_its_first_rows_is_accused(tmp_path: Path) -> None:
    found = row(seen(TWO_INPUTS.format(change="extra[5:] = 0"), tmp_path), "TASK/empty")
    assert (found.status, found.basis) == ("fail", "exact")
    assert found.values["zero_from"] == [5] or found.values["zero_from"] == ["5"]


@pytest.mark.parametrize(
    "change", ["", "extra[:] = 0", "extra[torch.rand(400) < 0.7] = 0", "extra[200:] = 0", "x[0, 0] = 0"]
)
def test_a_state_of_zeros_or_a_missing_modality_is_not_accused(change: str, tmp_path: Path) -> None:
    assert row(seen(TWO_INPUTS.format(change=change), tmp_path), "TASK/empty").status in ("pass", "evidence")


def test_rows_sorted_by_class_without_a_shuffle_are_suspected(tmp_path: Path) -> None:
    body = "x, y = rows(600)\no = y.argsort()\nfit(DataLoader(TensorDataset(x[o], y[o]), batch_size=32))"
    assert row(seen(body, tmp_path), "TASK/order").status == "suspected"


@pytest.mark.parametrize(
    "body",
    [
        "x, y = rows(600)\no = y.argsort()\nfit(DataLoader(TensorDataset(x[o], y[o]), batch_size=32, shuffle=True))",
        "x, y = rows(600)\nfit(DataLoader(TensorDataset(x, y), batch_size=32))",
        "x, y = rows(64)\nfit(DataLoader(TensorDataset(x, y * 0), batch_size=32))",
    ],
)
def test_shuffled_mixed_or_single_class_rows_are_not_suspected(body: str, tmp_path: Path) -> None:
    assert row(seen(body, tmp_path), "TASK/order").status in ("pass", "evidence")


# -- workers -----------------------------------------------------------------------------------------------------------

STREAM = """
class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        g = torch.Generator().manual_seed({seed})
        for _ in range(64):
            x = torch.randn(8, generator=g)
            yield x, int(x[0] > 0)

fit(DataLoader(Stream(), batch_size=16, num_workers=2), classes=2, epochs=1)
"""


def test_workers_that_give_one_stream_twice_are_accused(tmp_path: Path) -> None:
    found = row(seen(STREAM.format(seed="0"), tmp_path), "TASK/workers")
    assert (found.status, found.basis) == ("fail", "exact")


def test_workers_that_share_a_stream_are_not_accused(tmp_path: Path) -> None:
    assert row(seen(STREAM.format(seed="info.id"), tmp_path), "TASK/workers").status == "pass"


def test_loops_without_loader_or_target_accuse_nobody(tmp_path: Path) -> None:
    body = """
generator, judge = nn.Linear(4, 8), nn.Linear(8, 1)
first, second = torch.optim.Adam(judge.parameters(), 1e-3), torch.optim.Adam(generator.parameters(), 1e-3)
real = torch.randn(640, 8) + 1
for step in range(12):
    batch = real[torch.randint(0, 640, (64,))]
    fake = generator(torch.randn(64, 4))
    loss = F.binary_cross_entropy_with_logits(judge(batch), torch.ones(64, 1))
    loss = loss + F.binary_cross_entropy_with_logits(judge(fake.detach()), torch.zeros(64, 1))
    first.zero_grad(); loss.backward(); first.step()
    loss = F.binary_cross_entropy_with_logits(judge(fake), torch.ones(64, 1))
    second.zero_grad(); loss.backward(); second.step()
"""
    evidence = seen(body, tmp_path)
    assert not [name for name in with_status(evidence, "fail") if name.startswith("TASK")]
    assert not [name for name in with_status(evidence, "suspected") if name.startswith("TASK")]


# -- several views of an example in one batch --------------------------------------------------------------------------

VIEWS = """
def collate(items):
    labels = torch.tensor([int(y) for _, y in items])
    images = torch.stack([view for x, _ in items for view in (x, x + 0.1 * torch.randn(8))])
    labels = labels.{repeat}(2)  # here
    return images, labels

fit(DataLoader(TensorDataset(*rows(640)), batch_size=32, shuffle=True, collate_fn=collate))
"""


def test_labels_tiled_beside_interleaved_views_are_accused_where_they_are_put_together(tmp_path: Path) -> None:
    body = VIEWS.format(repeat="repeat")
    found = row(seen(body, tmp_path), "TASK/pairing")
    assert (found.status, found.basis) == ("fail", "controlled")
    assert found.where[0].line == line_of(COMMON + body, "# here")


def test_labels_repeated_as_the_views_are_pass(tmp_path: Path) -> None:
    assert row(seen(VIEWS.format(repeat="repeat_interleave"), tmp_path), "TASK/pairing").status == "pass"


# -- inputs that are nearly one constant row ---------------------------------------------------------------------------

SCALED = """
z = torch.randn(1600, 6)
y = torch.sin(2 * z @ torch.randn(6, 2) / 2)
x = {inputs}
model = {model}
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range({steps}):
    idx = torch.randint(0, 1600, (64,))
    loss = F.mse_loss(model(x[idx]), y[idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MLP = "nn.Sequential({first}nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 2))"


def test_inputs_normalised_by_the_wrong_statistics_are_accused(tmp_path: Path) -> None:
    body = SCALED.format(inputs="2.0 + 0.02 * z", model=MLP.format(first=""), steps=300)
    found = row(seen(body, tmp_path), "TASK/scale")
    assert (found.status, found.basis) == ("fail", "controlled"), found.text


@pytest.mark.parametrize(
    ("inputs", "first", "steps"),
    [
        ("z", "", 100),
        ("torch.cat([1e6 + z[:, :1], z[:, 1:]], 1)", "nn.BatchNorm1d(6), ", 100),
        ("2.0 + 0.02 * z", "nn.BatchNorm1d(6), ", 100),
        ("torch.rand(1600, 6)", "", 100),
        ("10.0 + z", "", 3),
        ("10.0 + z", "", 300),
    ],
)
def test_inputs_that_the_model_tells_apart_are_not_accused(inputs: str, first: str, steps: int, tmp_path: Path) -> None:
    body = SCALED.format(inputs=inputs, model=MLP.format(first=first), steps=steps)
    assert row(seen(body, tmp_path), "TASK/scale").status in ("pass", "evidence", "not_measured")
