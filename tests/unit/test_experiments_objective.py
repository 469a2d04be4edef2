"""Experiments on the loss and what it is fed, each where it makes the difference and where there is nothing to change.

What a treated script prints is compared, bit for bit, with what the repaired script prints.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from collector_runs import RANDOM_STATE, SEEDED, line_of, plain, row, run_job, write
from test_collector_experiments import QUIET, losses, report, treated
from test_collector_figures import script

from weaklink.collector.errors import InterventionError
from weaklink.collector.evidence import Subject
from weaklink.collector.interventions import build
from weaklink.collector.job import Job

SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("match_target_shape", {"site": "train.py:12"}),
        ("rows_in_order", {}),
        ("set_mode", {"mode": "train"}),
        ("without_ignore_index", {}),
        ("trim_target_lengths", {}),
    ],
)
def test_where_nothing_is_to_change_every_bit_stays(tmp_path: Path, name: str, parameters: dict[str, Any]) -> None:
    source = SEEDED + QUIET + RANDOM_STATE
    run = treated(source, tmp_path, name, **parameters)
    assert run.out == plain(source, tmp_path).out
    assert (report(run).applied, report(run).changed) == (False, [])


def test_parameters_are_checked() -> None:
    for name, parameters in (
        ("match_target_shape", {"site": "12"}),
        ("set_mode", {"mode": "off"}),
        ("prior_by_class", {"order": [0, 0]}),
    ):
        with pytest.raises(InterventionError):
            build(name, parameters)


# -- scores ------------------------------------------------------------------------------------------------------------


def with_loss(loss: str) -> str:
    source = script(SGD)
    assert "F.cross_entropy(model(batch), labels)" in source
    return source.replace("F.cross_entropy(model(batch), labels)", loss)


SOFT = "F.one_hot(labels, 2).float().clamp(0.1, 0.9)"


@pytest.mark.parametrize(
    ("fed", "expected", "changed"),
    [
        (
            f"F.kl_div(model(batch).softmax(1), {SOFT})",
            f"F.kl_div(model(batch).log_softmax(1), {SOFT})",
            "kl_div",
        ),
        (
            f"F.kl_div(model(batch).sigmoid(), {SOFT})",
            f"F.kl_div(F.logsigmoid(model(batch)), {SOFT})",
            "kl_div",
        ),
        (f"F.kl_div(model(batch) + 1, {SOFT})", f"F.kl_div((model(batch) + 1).log_softmax(-1), {SOFT})", "kl_div"),
        (
            "F.nll_loss(F.softmax(model(batch), 1), labels)",
            "F.nll_loss(model(batch).log_softmax(1), labels)",
            "nll_loss",
        ),
        ("nn.NLLLoss()(model(batch), labels)", "F.nll_loss(model(batch).log_softmax(1), labels)", "nll_loss"),
        (
            "F.binary_cross_entropy_with_logits(torch.sigmoid(model(batch)[:, 0]), labels.float())",
            "F.binary_cross_entropy_with_logits(model(batch)[:, 0], labels.float())",
            "binary_cross_entropy_with_logits",
        ),
        (
            "nn.BCEWithLogitsLoss()(nn.Sigmoid()(model(batch))[:, 0], labels.float())",
            "F.binary_cross_entropy_with_logits(model(batch)[:, 0], labels.float())",
            "binary_cross_entropy_with_logits",
        ),
    ],
)
def test_each_loss_is_fed_the_scores_it_expects(tmp_path: Path, fed: str, expected: str, changed: str) -> None:
    run = treated(with_loss(fed), tmp_path, "raw_scores_to_loss")
    assert run.seen.losses.value == losses(with_loss(expected), tmp_path)
    assert run.seen.losses.value != losses(with_loss(fed), tmp_path)
    assert report(run).changed == [changed]
    assert row(run.seen, "OBJECTIVE/fed").status == "pass"


@pytest.mark.parametrize(
    "loss",
    [
        "F.nll_loss(model(batch).log_softmax(1), labels)",
        f"F.kl_div(F.log_softmax(model(batch), 1), {SOFT})",
        "F.nll_loss(torch.softmax(model(batch), 1).log(), labels)",
        "F.binary_cross_entropy(model(batch).sigmoid()[:, 0], labels.float())",
        "F.binary_cross_entropy_with_logits(model(batch)[:, 0], model(batch)[:, 1].detach().sigmoid())",
    ],
)
def test_a_loss_that_is_fed_what_it_expects_is_left_alone(tmp_path: Path, loss: str) -> None:
    run = treated(with_loss(loss), tmp_path, "raw_scores_to_loss")
    assert run.seen.losses.value == losses(with_loss(loss), tmp_path)
    assert not report(run).applied


# -- shapes ------------------------------------------------------------------------------------------------------------

HAND = """
def distance(outputs, targets):
    far = (1 - targets) * outputs.clamp(min=0.5)
    return (far + targets * outputs.square()).mean()
"""


@pytest.mark.parametrize(
    ("crossed", "matched"),
    [
        ("F.mse_loss(model(batch)[:, :1], labels.float())", "F.mse_loss(model(batch)[:, :1], labels.float()[:, None])"),
        (
            "nn.MSELoss()(model(batch)[:, 0], labels.float()[:, None])",
            "nn.MSELoss()(model(batch)[:, 0], labels.float())",
        ),
        (
            "F.huber_loss(model(batch)[:, :1], labels.float())",
            "F.huber_loss(model(batch)[:, :1], labels.float()[:, None])",
        ),
    ],
)
def test_targets_of_a_loss_take_the_shape_of_the_outputs(tmp_path: Path, crossed: str, matched: str) -> None:
    run = treated(with_loss(crossed), tmp_path, "match_target_shape")
    assert run.seen.losses.value == losses(with_loss(matched), tmp_path)
    assert run.seen.losses.value != losses(with_loss(crossed), tmp_path)
    assert report(run).applied
    assert row(run.seen, "OBJECTIVE/shapes").status == "pass"


def by_hand(targets: str) -> str:
    return with_loss(f"distance(model(batch)[:, 0], {targets})").replace(
        "class Classifier", HAND + "\nclass Classifier"
    )


def test_all_lines_of_the_function_that_holds_the_site_meet_entry_by_entry(tmp_path: Path) -> None:
    source = by_hand("labels[:, None]")
    for text in ("far = (1", "return (far"):
        run = treated(source, tmp_path, "match_target_shape", site=f"train.py:{line_of(source, text)}")
        assert run.seen.losses.value == losses(by_hand("labels"), tmp_path)
        assert run.seen.losses.value != losses(source, tmp_path)
        assert report(run).applied


@pytest.mark.parametrize(
    ("site", "targets"), [("train.py:2", "labels[:, None]"), ("", "labels[:, None]"), (None, "labels")]
)
def test_arithmetic_elsewhere_and_shapes_that_fit_are_left_alone(
    tmp_path: Path, site: str | None, targets: str
) -> None:
    source = by_hand(targets)
    where = f"train.py:{line_of(source, 'far = (1')}" if site is None else site
    run = treated(source, tmp_path, "match_target_shape", site=where)
    assert run.seen.losses.value == losses(source, tmp_path)
    assert not report(run).applied


def test_all_pairs_of_two_outputs_are_meant(tmp_path: Path) -> None:
    source = with_loss("(model(batch)[:, :1] - model(batch)[:, 0]).square().mean()")
    run = treated(source, tmp_path, "match_target_shape", site=f"train.py:{line_of(source, 'square')}")
    assert run.seen.losses.value == losses(source, tmp_path)
    assert not report(run).applied


# -- modes -------------------------------------------------------------------------------------------------------------

MODES = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
g = torch.Generator().manual_seed(1)
x, y = torch.randn(32, 3, generator=g), torch.randint(2, (32,), generator=g)
model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
teacher = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
MODE
for step in range(4):
    loss = F.cross_entropy(model(x), y) + F.mse_loss(model(x), teacher(x).detach())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(repr(loss.item()), teacher[1].running_mean.tolist())
    with torch.no_grad():
        print(repr(EVALUATED(x).sum().item()))
"""


def modes(mode: str, evaluated: str) -> str:
    return SEEDED + MODES.replace("MODE", mode).replace("EVALUATED", evaluated) + RANDOM_STATE


def test_train_mode_for_as_long_as_a_forward_takes(tmp_path: Path) -> None:
    run = treated(modes("model.eval()", "model"), tmp_path, "set_mode", mode="train")
    assert run.out == plain(modes("model.train()", "(lambda x: model.eval()(x))").replace(
        "    loss =", "    model.train()\n    loss ="), tmp_path).out  # fmt: skip
    assert report(run).changed == ["1", "2"]
    assert row(run.seen, "OBJECTIVE/mode").status == "pass"


def test_modules_by_pattern_and_the_other_mode(tmp_path: Path) -> None:
    run = treated(modes("pass", "teacher"), tmp_path, "set_mode", mode="eval", modules="2")
    assert run.out == plain(modes("model[2].eval()", "teacher"), tmp_path).out
    assert report(run).changed == ["2"]


def test_a_model_that_is_in_that_mode_stays(tmp_path: Path) -> None:
    run = treated(modes("pass", "model"), tmp_path, "set_mode", mode="train")
    assert run.out == plain(modes("pass", "model"), tmp_path).out
    assert not report(run).applied


# -- what is supervised ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("F.cross_entropy(model(batch), labels, ignore_index=1)", "F.cross_entropy(model(batch), labels)"),
        (
            "nn.NLLLoss(ignore_index=0)(model(batch).log_softmax(1), labels)",
            "nn.NLLLoss()(model(batch).log_softmax(1), labels)",
        ),
    ],
)
def test_a_class_is_ignored_no_longer(tmp_path: Path, loss: str, expected: str) -> None:
    run = treated(with_loss(loss), tmp_path, "without_ignore_index")
    assert run.seen.losses.value == losses(with_loss(expected), tmp_path)
    assert run.seen.losses.value != losses(with_loss(loss), tmp_path)
    assert report(run).applied


@pytest.mark.parametrize("ignored", ["-100", "2", "255"])
def test_a_label_that_is_no_class_stays_ignored(tmp_path: Path, ignored: str) -> None:
    gaps = f"torch.where(torch.arange(256) % 5 > 0, labels, {ignored})"
    source = with_loss(f"F.cross_entropy(model(batch), {gaps}, ignore_index={ignored})")
    run = treated(source, tmp_path, "without_ignore_index")
    assert run.seen.losses.value == losses(source, tmp_path)
    assert not report(run).applied


SPEECH = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
g = torch.Generator().manual_seed(1)
model = nn.Linear(4, 6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    frames = torch.randn(12, 5, 4, generator=g)
    lengths = torch.randint(1, 6, (5,), generator=g)
    targets = torch.randint(1, 6, (5, int(lengths.max())), generator=g)
    targets[torch.arange(targets.shape[1]) >= lengths[:, None]] = 0
    loss = F.ctc_loss(model(frames).log_softmax(2), targets, LENGTHS)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(repr(loss.item()))
"""


def speech(lengths: str) -> str:
    return SEEDED + SPEECH.replace("LENGTHS", lengths) + RANDOM_STATE


@pytest.mark.parametrize(
    ("padded", "true"),
    [
        ("(12,) * 5, (targets.shape[1],) * 5", "(12,) * 5, tuple(lengths.tolist())"),
        ("torch.full((5,), 12), torch.full((5,), targets.shape[1])", "torch.full((5,), 12), lengths"),
    ],
)
def test_lengths_end_before_the_padding(tmp_path: Path, padded: str, true: str) -> None:
    run = treated(speech(padded), tmp_path, "trim_target_lengths")
    assert run.out == plain(speech(true), tmp_path).out
    assert run.out != plain(speech(padded), tmp_path).out
    assert row(run.seen, "OBJECTIVE/sequence").status == "pass"
    again = treated(speech(true), tmp_path, "trim_target_lengths")
    assert again.out == run.out
    assert not report(again).applied


WEIGHTED = "F.cross_entropy(model(batch), labels, weight=torch.tensor({}))"
SHIFTED = "F.cross_entropy(model(batch) + torch.tensor({}), labels)"


@pytest.mark.parametrize("loss", [WEIGHTED, SHIFTED])
def test_each_class_takes_the_number_at_its_place(tmp_path: Path, loss: str) -> None:
    crossed, placed = with_loss(loss.format("[0.5, 2.0]")), with_loss(loss.format("[2.0, 0.5]"))
    run = treated(crossed, tmp_path, "prior_by_class", order=[1, 0])
    assert run.seen.losses.value == pytest.approx(losses(placed, tmp_path), rel=1e-6)
    assert run.seen.losses.value != losses(crossed, tmp_path)
    assert report(run).changed == ["cross_entropy"]


@pytest.mark.parametrize("order", [[0, 1], [2, 0, 1]])
def test_numbers_in_their_place_or_of_other_classes_stay(tmp_path: Path, order: list[int]) -> None:
    source = with_loss(WEIGHTED.format("[0.5, 2.0]"))
    run = treated(source, tmp_path, "prior_by_class", order=order)
    assert run.seen.losses.value == losses(source, tmp_path)
    assert not report(run).applied


# -- the order of rows -------------------------------------------------------------------------------------------------

PACKED = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
torch.manual_seed(0)
g = torch.Generator().manual_seed(1)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(3, 8, batch_first=True), nn.Linear(8, 2)
    def forward(self, x, lengths):
        SORT
        packed = pack_padded_sequence(x, lengths, batch_first=True ENFORCE)
        return self.out(self.lstm(packed)[1][0][-1])
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x, lengths = torch.randn(6, 5, 3, generator=g), torch.randint(1, 6, (6,), generator=g)
    loss = F.cross_entropy(model(x, lengths), torch.arange(6) % 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(repr(loss.item()))
"""


def packed(sort: str, enforce: str = "") -> str:
    return SEEDED + PACKED.replace("SORT", sort).replace("ENFORCE", enforce) + RANDOM_STATE


@pytest.mark.parametrize(
    "sort",
    [
        "lengths, order = lengths.sort(descending=True); x = x[order]",
        "order = torch.argsort(lengths, descending=True); x, lengths = x[order], lengths[order]",
        "lengths, order = torch.sort(lengths, 0, True); x = x.index_select(0, order)",
    ],
)
def test_rows_leave_a_model_as_they_came(tmp_path: Path, sort: str) -> None:
    run = treated(packed(sort), tmp_path, "rows_in_order")
    assert run.out == plain(packed("pass", ", enforce_sorted=False"), tmp_path).out
    assert run.out != plain(packed(sort), tmp_path).out
    assert report(run).applied


def test_a_sort_outside_of_a_model_is_the_scripts_own(tmp_path: Path) -> None:
    source = packed("pass").replace("    loss =", "    lengths = lengths.sort(descending=True)[0]\n    loss =")
    run = treated(source, tmp_path, "rows_in_order")
    assert run.out == plain(source, tmp_path).out
    assert not report(run).applied


# -- a factory ---------------------------------------------------------------------------------------------------------

FACTORY = """
import torch
from torch import nn
from weaklink.collector import TrainingSystem

def build():
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    x = torch.randn(12, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return TrainingSystem(model, optimizer, x, x[:, 0] TARGETS, nn.MSELoss(), steps=4)
"""


def test_a_factorys_targets_take_the_shape_of_the_outputs(tmp_path: Path) -> None:
    def losses_of(targets: str, **job: Any) -> list[float]:
        write(FACTORY.replace("TARGETS", targets), tmp_path)
        subject = Subject(kind="factory", name="train.py:build")
        run = run_job(Job(folder=tmp_path, evidence=tmp_path / "evidence.json", subject=subject, **job), tmp_path)
        if "intervention" in job:
            assert report(run).applied is (targets == "")
        return run.seen.losses.value

    def changed(targets: str) -> list[float]:
        return losses_of(targets, role="treatment", intervention="match_target_shape", keep_initial=True)

    repaired = losses_of("[:, None]", role="control")
    assert changed("") == repaired != losses_of("", role="control")
    assert changed("[:, None]") == repaired


def test_a_loss_written_by_hand_shows_that_its_shapes_meet(tmp_path: Path) -> None:
    source = by_hand("labels[:, None]")
    site = f"train.py:{line_of(source, 'far = (1')}"
    run = treated(source, tmp_path, "match_target_shape", site=site)
    assert row(run.seen, "OBJECTIVE/shapes").status == "pass"
    assert row(run.seen, "OBJECTIVE/shapes").values["outputs"] == [256]
    untreated = treated(source, tmp_path, "match_target_shape", site="")
    assert row(untreated.seen, "OBJECTIVE/shapes").status == "fail"
