"""Evaluation against training, supervision by class and token, files: faulty scripts beside healthy ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from collector_runs import line_of, observe_code, plain, row, with_status

from weaklink.collector.evaluating.inputs import moments, preparations
from weaklink.collector.evaluating.labels import renumbering
from weaklink.collector.evaluating.prior import fit_prior
from weaklink.collector.evaluating.scoring import sign_test
from weaklink.collector.evidence import Evidence

OURS = (
    "TASK/files",
    "TASK/views",
    "TASK/mirrored",
    "OBJECTIVE/supervised",
    "OBJECTIVE/prior",
    "EVALUATION/inputs",
    "EVALUATION/labels",
    "EVALUATION/overlap",
)


def seen(source: str, folder: Path) -> Evidence:
    return observe_code(source, folder, looks="fork")


def accused(evidence: Evidence) -> dict[str, str]:
    """Our rows that fail or are suspected."""
    found = with_status(evidence, "fail") | with_status(evidence, "suspected")
    return {row_id: text for row_id, text in found.items() if row_id in OURS}


# -- evaluation --------------------------------------------------------------------------------------------------------

CLASSIFIER = """
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    CENTERS = 4.0 * torch.eye(4)

    def rows(count, seed, offset=10.0, scale=1.0):
        generator = torch.Generator().manual_seed(seed)
        y = torch.randint(0, 4, (count,), generator=generator)
        x = CENTERS[y] + torch.randn(count, 4, generator=generator)
        return (x + offset) * scale, y

    x, y = rows(512, 1)
    vx, vy = rows(200, 2)
    mean, std = x.mean(0), x.std(0)
    x = (x - mean) / std
    {evaluated}
    train = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    val = DataLoader(TensorDataset(vx, vy), batch_size=50)
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for epoch in range(4):
        model.train()
        for bx, by in train:
            optimizer.zero_grad()
            F.cross_entropy(model(bx), by).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(bx).argmax(1) == by).sum().item() for bx, by in val)
        print(right / len(vy))
"""


def classifier(evaluated: str) -> str:
    return CLASSIFIER.replace("{evaluated}", evaluated)


def test_a_missing_normalisation_is_undone_and_named(tmp_path: Path) -> None:
    source = classifier("pass")
    found = row(seen(source, tmp_path), "EVALUATION/inputs")
    assert (found.status, found.basis) == ("fail", "controlled")
    assert found.values["prepared"] > found.values["score"]  # type: ignore[operator]
    assert found.where[0].line == line_of(source, "val = DataLoader")


def test_columns_in_another_order_are_found(tmp_path: Path) -> None:
    found = row(seen(classifier("vx = ((vx - mean) / std)[:, [2, 0, 1, 3]] + 1.5"), tmp_path), "EVALUATION/inputs")
    assert found.status == "fail"
    assert str(found.values["preparation"]).startswith("channels in the order 1, 2, 0, 3")


def test_classes_in_another_order_are_found(tmp_path: Path) -> None:
    evidence = seen(classifier("vx, vy = (vx - mean) / std, torch.tensor([0, 2, 1, 3])[vy]"), tmp_path)
    found = row(evidence, "EVALUATION/labels")
    assert (found.status, found.basis) == ("fail", "controlled")
    assert found.values["numbers"] == ["1 -> 2", "2 -> 1"]
    assert row(evidence, "EVALUATION/inputs").status == "evidence"


@pytest.mark.parametrize(
    "evaluated",
    [
        pytest.param("vx = (vx - mean) / std", id="as_in_training"),
        pytest.param("vx = (vx - mean) / std + 3.0 * torch.randn(len(vx), 4)", id="noisy_domain"),
        pytest.param("vx, vy = (vx - mean) / std, torch.randint(0, 4, vy.shape)", id="labels_of_chance"),
        pytest.param("vx = ((vx - mean) / std)[vy < 2]; vy = vy[vy < 2]", id="two_classes_only"),
        pytest.param("vx, vy = ((vx - mean) / std)[:6], vy[:6]", id="six_rows"),
        pytest.param("vx = 0.8 * (vx - mean) / std + 0.3", id="slightly_shifted"),
    ],
)
def test_an_evaluation_that_is_prepared_like_training_is_not_accused(evaluated: str, tmp_path: Path) -> None:
    evidence = seen(classifier(evaluated), tmp_path)
    assert accused(evidence) == {}
    assert row(evidence, "EVALUATION/inputs").status == "evidence"


def test_an_overconfident_model_is_not_accused_of_its_inputs(tmp_path: Path) -> None:
    """Shrinking inputs lowers its loss, and makes no prediction right."""
    source = """
        import torch
        from torch import nn
        from torch.nn import functional as F
        torch.manual_seed(0)
        x, y = torch.randn(64, 20), torch.randint(0, 2, (64,))
        vx, vy = 1.5 * torch.randn(128, 20), torch.randint(0, 2, (128,))
        model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for step in range(120):
            for part in range(0, 64, 16):
                optimizer.zero_grad()
                F.cross_entropy(model(x[part:part + 16]), y[part:part + 16]).backward()
                optimizer.step()
            with torch.no_grad():
                loss = F.cross_entropy(model(vx), vy)
    """
    evidence = seen(source, tmp_path)
    assert accused(evidence) == {}
    assert row(evidence, "EVALUATION/labels").status != "not_measured"


def test_a_regression_on_shifted_inputs_that_it_answers_as_well_is_not_accused(tmp_path: Path) -> None:
    source = """
        import torch
        from torch import nn
        from torch.nn import functional as F
        torch.manual_seed(0)
        w = torch.randn(3, 1)
        x = torch.randn(256, 3)
        vx = torch.randn(100, 3) + 4.0
        model = nn.Linear(3, 1)
        optimizer = torch.optim.Adam(model.parameters(), 5e-2)
        for epoch in range(40):
            for part in x.split(32):
                optimizer.zero_grad()
                F.mse_loss(model(part), part @ w).backward()
                optimizer.step()
            with torch.no_grad():
                F.mse_loss(model(vx), vx @ w)
    """
    evidence = seen(source, tmp_path)
    assert accused(evidence) == {}
    assert row(evidence, "EVALUATION/inputs").values["outside"] == 3


def test_rows_that_were_trained_on_are_counted_and_accuse_nobody(tmp_path: Path) -> None:
    evidence = seen(classifier("vx, vy = x[:200], y[:200]"), tmp_path)
    found = row(evidence, "EVALUATION/overlap")
    assert (found.status, found.values["both"]) == ("evidence", 200)
    assert accused(evidence) == {}


def test_without_looks_evaluation_is_not_measured(tmp_path: Path) -> None:
    evidence = observe_code(classifier("vx = (vx - mean) / std"), tmp_path)
    assert row(evidence, "EVALUATION/inputs").status == "not_measured"
    assert row(evidence, "EVALUATION/labels").status == "not_measured"


def test_an_evaluation_without_loader_or_loss_is_read_from_its_comparison(tmp_path: Path) -> None:
    source = """
        import torch
        from torch import nn
        from torch.nn import functional as F
        torch.manual_seed(0)
        y, vy = torch.randint(0, 3, (240,)), torch.randint(0, 3, (90,))
        x, vx = (4 * F.one_hot(part, 3) + torch.randn(len(part), 3) for part in (y, vy))
        vy = torch.tensor([0, 2, 1])[vy]
        model = nn.Linear(3, 3)
        optimizer = torch.optim.Adam(model.parameters(), 5e-2)
        for epoch in range(4):
            for part in torch.arange(240).split(24):
                optimizer.zero_grad()
                F.cross_entropy(model(x[part]), y[part]).backward()
                optimizer.step()
            with torch.no_grad():
                right = (model(vx).argmax(1) == vy).float().mean()
    """
    assert row(seen(source, tmp_path), "EVALUATION/labels").status == "fail"
    healthy = source.replace("vy = torch.tensor([0, 2, 1])[vy]", "raw = torch.tensor([0, 2, 1])[vy]")
    assert row(seen(healthy, tmp_path), "EVALUATION/labels").status == "pass"


def test_a_second_task_with_other_numbers_is_not_held_against_the_first(tmp_path: Path) -> None:
    source = """
        import torch
        from torch import nn
        from torch.nn import functional as F
        torch.manual_seed(0)
        y = torch.randint(0, 3, (240,))
        x = 4 * F.one_hot(y, 3) + torch.randn(240, 3)
        model = nn.Linear(3, 3)
        def fit(targets, steps, rate):
            optimizer = torch.optim.Adam(model.parameters(), rate)
            for step in range(steps):
                part = torch.randint(0, 160, (32,))
                optimizer.zero_grad()
                F.cross_entropy(model(x[part]), targets[part]).backward()
                optimizer.step()
        def evaluate(targets):
            with torch.no_grad():
                return (model(x[160:]).argmax(1) == targets[160:]).float().mean()
        fit(y, 60, 5e-2)
        other = (y + 1) % 3
        {evaluations}
    """
    for evaluations in ("evaluate(other)\n        fit(other, 60, 5e-2)", "fit(other, 25, 1e-6); evaluate(other)"):
        evidence = seen(source.replace("{evaluations}", evaluations), tmp_path)
        assert row(evidence, "EVALUATION/labels").status != "fail", evaluations


# -- supervision -------------------------------------------------------------------------------------------------------

SEGMENTATION = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    masks = torch.zeros(48, 10, 10, dtype=torch.long)
    for index in range(48):
        masks[index, 2:6, 2:6] = 1 + index % 2
    {labels}
    images = masks.clamp(max=2).float()[:, None] + 0.1 * torch.randn(48, 1, 10, 10)
    model = nn.Conv2d(1, 3, 3, padding=1)
    criterion = nn.CrossEntropyLoss(ignore_index={ignored})
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for epoch in range(3):
        for part in torch.arange(40).split(8):
            optimizer.zero_grad()
            criterion(model(images[part]), masks[part]).backward()
            optimizer.step()
        with torch.no_grad():
            guess = model(images[40:]).argmax(1)
        scores = [((guess == c) & (masks[40:] == c)).sum().item() for c in {scored}]
"""


def segmentation(ignored: int, labels: str = "pass", scored: str = "range(3)") -> str:
    return (
        SEGMENTATION.replace("{ignored}", str(ignored)).replace("{labels}", labels).replace("{scored}", scored)
    )  # fmt: skip


def test_an_ignored_class_that_the_evaluation_counts_is_suspected(tmp_path: Path) -> None:
    source = segmentation(0)
    found = row(seen(source, tmp_path), "OBJECTIVE/supervised")
    assert (found.status, found.values["label"]) == ("suspected", 0)
    assert found.where[0].line == line_of(source, "ignore_index=0")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(segmentation(255), id="nothing_ignored"),
        pytest.param(segmentation(255, "masks[:, 0] = 255"), id="a_border"),
        pytest.param(segmentation(0, scored="range(1, 3)"), id="unlabelled_is_zero_and_not_scored"),
        pytest.param(segmentation(-100, "masks[torch.rand(masks.shape) < 0.3] = -100"), id="sparse_labels"),
    ],
)
def test_labels_that_are_left_out_by_right_accuse_nobody(source: str, tmp_path: Path) -> None:
    assert accused(seen(source, tmp_path)) == {}


CRITERION = """
    import torch
    from torch import nn
    from torch.nn import functional as F
    torch.manual_seed(0)
    masks = torch.zeros(48, 10, 10, dtype=torch.long)
    for index in range(48):
        masks[index, 2:6, 2:6] = 1 + index % 2
    images = masks.float()[:, None] + 0.1 * torch.randn(48, 1, 10, 10)
    {labels}
    class Loss(nn.Module):
        def forward(self, scores, target):
            {renumbered}
            return F.cross_entropy(scores, known, ignore_index=-100)
    model, criterion = nn.Conv2d(1, 3, 3, padding=1), Loss()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for epoch in range(3):
        for part in torch.arange(48).split(8):
            optimizer.zero_grad()
            criterion(model(images[part]), masks[part]).backward()
            optimizer.step()
"""


def criterion(labels: str, renumbered: str) -> str:
    return CRITERION.replace("{labels}", labels).replace("{renumbered}", renumbered)


def test_a_label_without_an_output_that_takes_the_place_of_a_class_is_suspected(tmp_path: Path) -> None:
    source = criterion(
        "masks[:, 0] = 255", "known = target.clamp(max=2).masked_fill(target == 0, -100)"
    )  # fmt: skip
    found = row(seen(source, tmp_path), "OBJECTIVE/supervised")
    assert (found.status, found.values["label"]) == ("suspected", 0)


def test_labels_moved_down_by_one_with_zero_unlabelled_accuse_nobody(tmp_path: Path) -> None:
    """Label 3 has no output of its number, and one of its own all the same."""
    source = criterion(
        "masks[:, 7:, 7:] = 3", "known = (target - 1).masked_fill(target == 0, -100)"
    )  # fmt: skip
    assert accused(seen(source, tmp_path)) == {}


LANGUAGE = """
    import torch
    from torch import nn
    from torch.nn import functional as F
    torch.manual_seed(0)
    END = 0
    PAD = {padding}
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(2, 12, (200,), generator=generator).tolist()
    texts = [[1 + (start + position) % 9 for position in range(length)] + [END] for start, length in enumerate(lengths)]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(12, 16)
            self.recurrent = nn.GRU(16, 16, batch_first=True)
            self.head = nn.Linear(16, 12)

        def forward(self, ids):
            return self.head(self.recurrent(self.embedding(ids))[0])

    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for start in range(0, 200, {batch}):
        batch = texts[start:start + {batch}]
        width = {width}
        ids = torch.full((len(batch), width), PAD)
        for number, text in enumerate(batch):
            ids[number, :len(text)] = torch.tensor(text)
        {labels}
        optimizer.zero_grad()
        {loss}.backward()
        optimizer.step()
"""
SHIFTED = "F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)"
MASKED = "labels = ids.masked_fill(ids == PAD, -100)"


def language(
    padding: str = "11", width: str = "max(map(len, batch))", labels: str = MASKED, loss: str = SHIFTED
) -> str:
    source = LANGUAGE.replace("{padding}", padding).replace("{width}", width).replace("{batch}", "4")
    return source.replace("{labels}", labels).replace("{loss}", loss)


def test_an_end_token_that_is_taken_for_padding_is_suspected(tmp_path: Path) -> None:
    found = row(seen(language(padding="END"), tmp_path), "OBJECTIVE/supervised")
    assert (found.status, found.values["token"], found.values["supervised"]) == ("suspected", 0, 0)


BY_LENGTH = (
    "labels = ids.clone(); [labels.__setitem__((n, slice(len(t), None)), -100) for n, t in enumerate(batch)]"
)  # fmt: skip
PROMPTS = "labels = ids.masked_fill(ids == PAD, -100); labels[:, :2] = -100"
ROLLED = (
    "F.cross_entropy(model(ids).flatten(0, 1), torch.cat([labels[:, 1:], labels.new_full((len(ids), 1), -100)], 1)"
    ".flatten(), ignore_index=-100)"
)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(language(), id="padding_of_its_own"),
        pytest.param(language(width="13"), id="one_length"),
        pytest.param(language(padding="END", labels=BY_LENGTH), id="end_is_padding_masked_by_length"),
        pytest.param(language(labels=PROMPTS), id="prompts_masked"),
        pytest.param(language(loss=ROLLED), id="labels_rolled"),
        pytest.param(language(padding="END", labels="labels = ids.clone()"), id="padding_learned_as_the_end"),
        pytest.param(
            language(loss="F.cross_entropy(model(ids).flatten(0, 1), (ids.flatten() + 1) % 12)"), id="tagging"
        ),
    ],
)
def test_language_models_that_mask_by_right_are_not_accused(source: str, tmp_path: Path) -> None:
    assert accused(seen(source, tmp_path)) == {}


MASK = """
    import torch
    from torch import nn
    from torch.nn import functional as F
    torch.manual_seed(0)
    ids = torch.zeros(64, 12, dtype=torch.long)
    ids[:, 0] = 1
    ids[:, 1:5] = torch.randint(3, 9, (64, 4))
    ids[:, 5] = 2
    ids[:, 6] = ids[:, 1]
    ids[:, 7] = 9
    mask = torch.zeros(64, 12)
    mask[:, 6:8] = 1
    {polarity}
    model = nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 10))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for part in torch.arange(64).split(8):
        logits = model(ids[part][:, :-1])
        losses = F.cross_entropy(logits.flatten(0, 1), ids[part][:, 1:].flatten(), reduction="none")
        weight = mask[part][:, 1:].flatten()
        optimizer.zero_grad()
        ((losses * weight).sum() / weight.sum()).backward()
        optimizer.step()
"""


def test_a_mask_of_the_other_polarity_is_suspected(tmp_path: Path) -> None:
    found = row(seen(MASK.replace("{polarity}", "mask = 1 - mask"), tmp_path), "OBJECTIVE/supervised")
    assert (found.status, found.values["token"]) == ("suspected", 0)


@pytest.mark.parametrize("polarity", ["pass", "mask = torch.ones(64, 12)", "mask[:, 1:6] = 1"])
def test_masks_that_leave_padding_out_or_everything_in_are_not_accused(polarity: str, tmp_path: Path) -> None:
    assert accused(seen(MASK.replace("{polarity}", polarity), tmp_path)) == {}


HEALTHY_LOSSES = {
    "hinge": "F.multi_margin_loss(model(x[part]), y[part])",
    "focal": "((1 - F.cross_entropy(model(x[part]), y[part], reduction='none').neg().exp()) ** 2).mean()",
    "hardest_rows": "F.cross_entropy(model(x[part]), y[part], reduction='none').topk(3).values.mean()",
    "weights_chosen_by_hand": "F.cross_entropy(model(x[part]), y[part], weight=torch.tensor([1., 5., 1., 2., 1.]))",
    "confident_rows": "(lambda s: F.cross_entropy(s[s.softmax(1).amax(1) > 0.2], y[part][s.softmax(1).amax(1) > 0.2]))(model(x[part]))",  # noqa: E501
    "distilled": "F.kl_div(model(x[part]).log_softmax(1), teacher(x[part]).softmax(1).detach(), reduction='batchmean')",
}


@pytest.mark.parametrize("loss", HEALTHY_LOSSES.values(), ids=HEALTHY_LOSSES.keys())
def test_losses_that_leave_rows_out_by_right_are_not_accused(loss: str, tmp_path: Path) -> None:
    source = f"""
        import torch
        from torch import nn
        from torch.nn import functional as F
        torch.manual_seed(0)
        x = torch.randn(80, 6)
        y = (x[:, 0] * 2).round().long().clamp(-2, 2) + 2
        model, teacher = nn.Linear(6, 5), nn.Linear(6, 5)
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for part in list(torch.arange(80).split(8)) * 3:
            optimizer.zero_grad()
            {loss}.backward()
            optimizer.step()
            with torch.no_grad():
                guess = model(x).argmax(1)
            [((guess == c) & (y == c)).sum().item() for c in range(5)]
    """
    assert accused(seen(source, tmp_path)) == {}


# -- class priors ------------------------------------------------------------------------------------------------------

PRIOR = """
    import torch
    from collections import Counter
    from torch import nn
    from torch.nn import functional as F
    torch.manual_seed(0)
    y = torch.repeat_interleave(torch.arange(5), torch.tensor([40, 400, 100, 20, 240]))
    x = F.one_hot(y, 5).float() + 0.3 * torch.randn(len(y), 5)
    order = torch.randperm(len(y))
    counts = {counts}
    vector = torch.tensor(counts, dtype=torch.float)
    model = nn.Linear(5, 5)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for part in order.split(32):
        optimizer.zero_grad()
        {loss}.backward()
        optimizer.step()
"""
BY_INDEX = "[n for _, n in sorted(Counter(y.tolist()).items())]"
BY_SIZE = "[n for _, n in Counter(y.tolist()).most_common()]"
ADJUSTED = "F.cross_entropy(model(x[part]) + (vector / vector.sum()).log(), y[part])"
WEIGHED = "F.cross_entropy(model(x[part]), y[part], weight=vector.sum() / vector)"


@pytest.mark.parametrize("loss", [ADJUSTED, WEIGHED])
def test_counts_in_the_order_of_size_are_suspected(loss: str, tmp_path: Path) -> None:
    source = PRIOR.replace("{counts}", BY_SIZE).replace("{loss}", loss)
    found = row(seen(source, tmp_path), "OBJECTIVE/prior")
    assert found.status == "suspected"
    assert found.where[0].line == line_of(source, "most_common")


@pytest.mark.parametrize(
    ("counts", "loss"),
    [
        (BY_INDEX, ADJUSTED),
        (BY_INDEX, WEIGHED),
        (BY_INDEX, "F.cross_entropy(model(x[part]), y[part], weight=(1 - 0.99) / (1 - 0.99 ** vector))"),
        ("[1, 2, 1, 5, 1]", "F.cross_entropy(model(x[part]), y[part], weight=vector)"),
        ("[3, 1, 2, 1, 2]", ADJUSTED),
        ("[1, 1, 1, 1, 1]", WEIGHED),
    ],
)
def test_vectors_in_the_order_of_classes_or_of_nobody_s_counts_are_not_accused(
    counts: str, loss: str, tmp_path: Path
) -> None:
    source = PRIOR.replace("{counts}", counts).replace("{loss}", loss)
    evidence = seen(source, tmp_path)
    assert accused(evidence) == {}
    assert row(evidence, "OBJECTIVE/prior").status in ("pass", "evidence", "not_measured")


def test_a_balanced_sampler_beside_weights_is_not_accused() -> None:
    assert not fit_prior(torch.tensor([5.0, 1.0, 3.0, 2.0]).log(), torch.tensor([100, 99, 101, 100]), True).misplaced  # type: ignore[union-attr]


# -- augmentation ------------------------------------------------------------------------------------------------------

TURNED = """
    import torch
    from torch import nn
    from torch.nn import functional as F
    torch.manual_seed(0)
    masks = torch.zeros(160, 16, 16, dtype=torch.long)
    for index in range(160):
        top, left = torch.randint(0, 5, (2,)).tolist()
        masks[index, top:top + 9, left:left + 3] = 1
        masks[index, top + 6:top + 9, left:left + 8] = 1
    images = masks.float()[:, None] + 0.2 * torch.randn(160, 1, 16, 16)
    model = nn.Conv2d(1, 2, 3, padding=1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for part in torch.arange(160).split(16):
        bx, by = images[part].clone(), masks[part].clone()
        turned = torch.rand(16) < 0.5
        {turn}
        optimizer.zero_grad()
        F.cross_entropy(model(bx), by).backward()
        optimizer.step()
"""


def test_images_that_are_turned_without_their_masks_are_suspected(tmp_path: Path) -> None:
    source = TURNED.replace("{turn}", "bx[turned] = bx[turned].flip(-1)")
    found = row(seen(source, tmp_path), "TASK/mirrored")
    assert (found.status, found.basis) == ("fail", "controlled")
    assert "left to right" in found.text


@pytest.mark.parametrize(
    "turn",
    [
        "bx[turned] = bx[turned].flip(-1); by[turned] = by[turned].flip(-1)",
        "bx = bx.roll(3, -1); by = by.roll(3, -1)",
        "bx = bx + 3 * torch.randn_like(bx)",
        "bx, by = (bx + bx.flip(-1)) / 2, torch.maximum(by, by.flip(-1))",
        "by = torch.randint(0, 2, by.shape)",
        "by = by.flip(-1)",
    ],
    ids=["both_turned", "both_moved", "noise", "symmetric", "labels_of_chance", "a_task_of_turning"],
)
def test_images_and_masks_that_belong_together_or_cannot_tell_are_not_accused(turn: str, tmp_path: Path) -> None:
    assert accused(seen(TURNED.replace("{turn}", turn), tmp_path)) == {}


VIEWS = """
    import torch
    from torch import nn
    from torch.nn import functional as F
    torch.manual_seed(0)
    y = torch.randint(0, 4, (96,))
    x = torch.randn(96, 12) + 2 * F.one_hot(y, 12)
    model = nn.Linear(12, 4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for part in torch.randperm(96).split(12):
        one, other = (x[part] + 0.05 * torch.randn(12, 12) for _ in range(2))
        {batch}
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
"""
STACKED, JOINED = "torch.stack([one, other], 1).flatten(0, 1)", "torch.cat([one, other])"


@pytest.mark.parametrize(
    ("inputs", "labels"), [(STACKED, "y[part].repeat(2)"), (JOINED, "y[part].repeat_interleave(2)")]
)
def test_labels_repeated_otherwise_than_views_are_suspected(inputs: str, labels: str, tmp_path: Path) -> None:
    source = VIEWS.replace("{batch}", f"inputs = {inputs}; labels = {labels}")
    found = row(seen(source, tmp_path), "TASK/views")
    assert (found.status, found.basis) == ("fail", "controlled")
    assert found.where[0].line == line_of(source, "labels = ")


@pytest.mark.parametrize(
    "batch",
    [
        f"inputs = {STACKED}; labels = y[part].repeat_interleave(2)",
        f"inputs = {JOINED}; labels = y[part].repeat(2)",
        "inputs = x[:24]; labels = torch.arange(4).repeat(6)",
        "inputs = torch.randn(24, 12).cumsum(0); labels = torch.arange(12).remainder(4).repeat(2)",
        "inputs = x[torch.arange(24) // 2]; labels = y[torch.arange(24) // 2]",
    ],
)
def test_labels_that_belong_to_their_views_are_not_accused(batch: str, tmp_path: Path) -> None:
    assert accused(seen(VIEWS.replace("{batch}", batch), tmp_path)) == {}


# -- files -------------------------------------------------------------------------------------------------------------

READING = """
    import json, os, tempfile
    import torch
    from torch import nn
    with open("settings.json") as file:
        settings = json.load(file)
    rows = [line.split(",") for line in open("data/rows.csv")]
    torch.save({"a": 1}, "made.pt")
    torch.load("made.pt")
    with open("log.txt", "w") as file:
        file.write("1")
    open("log.txt").read()
    with tempfile.NamedTemporaryFile() as file:
        open(file.name).read()
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), settings["lr"])
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 2)).square().mean().backward()
        optimizer.step()
    base = torch.load("base.pt")
"""


def test_files_are_listed_as_settings_and_data_and_what_the_run_wrote_is_not(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "settings.json").write_text('{"lr": 0.1}')
    (tmp_path / "data/rows.csv").write_text("1,2\n3,4\n")
    torch.save({"w": torch.zeros(2)}, tmp_path / "base.pt")
    found = row(observe_code(READING, tmp_path), "TASK/files")
    assert found.values["configuration"] == ["settings.json"]
    assert found.values["data"] == ["data/rows.csv", "base.pt"]
    assert found.values["files"] == 3


def test_a_run_that_reads_compares_and_scores_prints_what_it_prints_alone(tmp_path: Path) -> None:
    source = classifier("vx = (vx - mean) / std") + "\n    print([p.sum().item() for p in model.parameters()])\n"
    evidence = seen(source, tmp_path)
    watched = (tmp_path / "stdout.txt").read_text()
    assert watched == plain(source, tmp_path).out
    assert row(evidence, "EVALUATION/labels").status == "pass"


# -- arithmetic --------------------------------------------------------------------------------------------------------


def test_the_sign_test_is_the_binomial_tail() -> None:
    assert sign_test(3, 0) == pytest.approx(1 / 8)
    assert sign_test(1, 1) == pytest.approx(3 / 4)
    assert sign_test(0, 0) == 1.0


def test_only_classes_that_change_places_count_as_renumbered() -> None:
    target = torch.tensor([0, 0, 1, 1, 2, 2])
    assert renumbering(torch.tensor([1, 1, 0, 0, 2, 2]), target, 3) == {0: 1, 1: 0}
    assert renumbering(torch.tensor([1, 1, 1, 1, 2, 2]), target, 3) is None
    assert renumbering(target, target, 3) is None


def test_a_preparation_brings_inputs_to_training_s_moments() -> None:
    train, other = torch.randn(64, 3, 4, 4) * 2 + 1, torch.randn(64, 3, 4, 4)
    brought = preparations(moments([train]), moments([other]))[0](other)
    assert torch.allclose(brought.mean((0, 2, 3)), train.mean((0, 2, 3)), atol=1e-5)
    assert torch.allclose(brought.std((0, 2, 3)), train.std((0, 2, 3)), rtol=1e-3)
