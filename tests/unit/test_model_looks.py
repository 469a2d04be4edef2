"""Looks that take forwards and fits of a script's own model: faults that only they show, beside healthy scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from collector_runs import line_of, observe_code, plain, row, with_status

from weaklink.collector.evidence import Evidence

HEAD = """
import copy
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
"""
ROWS = ("TASK/leak", "OBJECTIVE/independence", "CAPABILITY/fit", "CAPABILITY/signal", "EVALUATION/mode")
ROWS += ("EVALUATION/dropout", "EVALUATION/buffers", "EVALUATION/weights")


def looked(source: str, folder: Path) -> Evidence:
    return observe_code(HEAD + source, folder, looks="fork")


def accused(evidence: Evidence) -> list[str]:
    return [row_id for status in ("fail", "suspected") for row_id in with_status(evidence, status) if row_id in ROWS]


# -- rows in another order ---------------------------------------------------------------------------------------------

SORTED = """
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.recurrent = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens, lengths):
        lengths, order = lengths.sort(descending=True)
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(tokens[order]), lengths, batch_first=True)
        hidden = self.recurrent(packed)[1][0][-1]
        RETURN

lengths = torch.tensor([3, 7, 5, 2, 6, 4, 8, 3])
tokens = torch.randint(1, 20, (8, 8)) * (torch.arange(8) < lengths[:, None])
targets = torch.randint(0, 3, (8,))
model = Tagger()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(6):
    LOSS
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tokens, lengths, targets = tokens.roll(1, 0), lengths.roll(1), targets.roll(1)
"""


def test_rows_that_leave_in_the_order_of_their_lengths_are_compared_with_others_targets(tmp_path: Path) -> None:
    source = SORTED.replace("RETURN", "return self.head(hidden)").replace(
        "LOSS", "loss = F.cross_entropy(model(tokens, lengths), targets)"
    )
    found = row(looked(source, tmp_path), "OBJECTIVE/independence")
    assert (found.status, found.basis) == ("fail", "exact")
    assert found.where[0].line == line_of(HEAD + source, "return self.head(hidden)")


@pytest.mark.parametrize(
    ("returned", "loss"),
    [
        ("return self.head(hidden)[order.argsort()]", "F.cross_entropy(model(tokens, lengths), targets)"),
        # The script puts its targets into the order that it is told.
        ("return self.head(hidden), order", "[F.cross_entropy(o, targets[r]) for o, r in [model(tokens, lengths)]][0]"),
    ],
    ids=["unsorted", "order returned"],
)
def test_a_sort_that_is_undone_or_told_is_healthy(tmp_path: Path, returned: str, loss: str) -> None:
    source = SORTED.replace("RETURN", returned).replace("LOSS", f"loss = {loss}")
    assert accused(looked(source, tmp_path)) == []


def test_pairs_whose_order_does_not_matter_are_healthy(tmp_path: Path) -> None:
    # Every shuffled pair has the same target.
    source = """
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x):
        return self.body(x[torch.tensor([3, 2, 1, 0, 5, 4, 7, 6])])

model = Critic()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(8, 4)
for _ in range(4):
    loss = F.binary_cross_entropy_with_logits(model(x), torch.zeros(8, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    evidence = looked(source, tmp_path)
    assert row(evidence, "OBJECTIVE/independence").status == "evidence"


# -- the next token ----------------------------------------------------------------------------------------------------

LANGUAGE = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.mixing = MIXING
        self.head = nn.Linear(WIDTH, 11)

    def forward(self, tokens, mask=None):
        hidden = self.embedding(tokens)
        CALL
        return self.head(hidden)

sequences = torch.randint(0, 11, (6, 9))
inputs, targets = TARGETS
model = Model()
optimizer = torch.optim.Adam(model.parameters())
causal = nn.Transformer.generate_square_subsequent_mask(inputs.shape[1])
for _ in range(4):
    outputs = model(inputsGIVEN)
    loss = F.cross_entropy(outputs.reshape(-1, 11), targets.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ATTENTION = (
    "nn.MultiheadAttention(16, 2, batch_first=True)",
    "16",
    "hidden = self.mixing(hidden, hidden, hidden, attn_mask=mask)[0]",
)
SHIFTED = "sequences[:, :-1], sequences[:, 1:]"


def language(mixing: str, width: str, call: str, targets: str = SHIFTED, given: str = "") -> str:
    source = LANGUAGE.replace("MIXING", mixing).replace("WIDTH", width).replace("CALL", call)
    return source.replace("TARGETS", targets).replace("GIVEN", given)


def test_attention_without_its_mask_reads_the_answer(tmp_path: Path) -> None:
    source = language(*ATTENTION)
    found = row(looked(source, tmp_path), "TASK/leak")
    assert (found.status, found.basis) == ("fail", "exact")
    assert found.where[0].line == line_of(HEAD + source, "outputs = model(inputs")


def test_a_network_that_reads_both_ways_reads_the_answer(tmp_path: Path) -> None:
    source = language("nn.GRU(16, 8, batch_first=True, bidirectional=True)", "16", "hidden = self.mixing(hidden)[0]")
    found = row(looked(source, tmp_path), "TASK/leak")
    assert found.status == "fail"
    assert found.where[0].line == line_of(HEAD + source, "self.mixing = ")


FOURIER = (
    "nn.Linear(16, 16)",
    "16",
    "wave = torch.fft.rfft(self.mixing.weight[:8], 16, 0)\n"
    "        hidden = torch.fft.irfft(torch.fft.rfft(hidden, 16, 1) * wave, 16, 1)[:, :8]",
)


@pytest.mark.parametrize(
    "source",
    [
        language(*ATTENTION, given=", causal"),
        language("nn.GRU(16, 16, batch_first=True)", "16", "hidden = self.mixing(hidden)[0]"),
        # Masked words are to be guessed from both sides.
        language(*ATTENTION, targets="sequences, torch.where(torch.rand(6, 9) < 0.3, sequences, -100)"),
        language(*ATTENTION, targets="sequences, sequences.roll(1, 0)"),
        # A causal convolution by Fourier transform spreads its rounding over all positions.
        language(*FOURIER),
    ],
    ids=["causal", "recurrent", "masked words", "other targets", "fourier"],
)
def test_a_model_that_does_not_see_its_answers_is_healthy(tmp_path: Path, source: str) -> None:
    assert accused(looked(source, tmp_path)) == []


# -- evaluation --------------------------------------------------------------------------------------------------------

CLASSES = """
centers = 2.0 * torch.randn(3, 8)
y = torch.randint(0, 3, (240,))
x = centers[y] + torch.randn(240, 8) + 3.0

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.norm = nn.BatchNorm1d(32, momentum=MOMENTUM)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        hidden = torch.relu(self.norm(self.first(x)))
        DROPOUT
        return self.head(hidden)

def evaluate(model):
    model.eval()
    with torch.no_grad():
        answers = [F.cross_entropy(model(x[:80]), y[:80]).item() for _ in range(REPEATS)]
    model.train()
    return sum(answers) / len(answers)

model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(EPOCHS):
    for rows in torch.randperm(240).split(24):
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(evaluate(model))
"""


def classes(momentum: str = "0.1", dropout: str = "pass", repeats: int = 1, epochs: int = 4) -> str:
    source = CLASSES.replace("MOMENTUM", momentum).replace("DROPOUT", dropout)
    return source.replace("REPEATS", str(repeats)).replace("EPOCHS", str(epochs))


def test_a_functional_dropout_drops_in_evaluation(tmp_path: Path) -> None:
    source = classes(dropout="hidden = F.dropout(hidden, 0.4)")
    found = row(looked(source, tmp_path), "EVALUATION/dropout")
    assert (found.status, found.basis) == ("fail", "exact")
    assert found.where[0].line == line_of(HEAD + source, "F.dropout(hidden")


def test_attention_takes_its_dropout_into_evaluation(tmp_path: Path) -> None:
    call = "hidden = F.scaled_dot_product_attention(*3 * [hidden[:, None]], dropout_p=0.3)[:, 0]"
    assert row(looked(classes(dropout=call), tmp_path), "EVALUATION/dropout").status == "fail"


@pytest.mark.parametrize(
    ("dropout", "repeats"),
    [
        ("hidden = F.dropout(hidden, 0.4, self.training)", 1),
        ("hidden = nn.Dropout(0.4).train(self.training)(hidden)", 1),
        ("hidden = F.dropout(hidden, 0.0)", 1),
        ("hidden = F.dropout(hidden, 0.4)", 20),  # a mean over dropout, on purpose
        ("hidden = hidden + 0.1 * torch.randn_like(hidden)", 1),
    ],
    ids=["by mode", "module", "nothing dropped", "mean over dropout", "noise"],
)
def test_what_does_not_drop_in_evaluation_or_does_on_purpose_is_healthy(
    tmp_path: Path, dropout: str, repeats: int
) -> None:
    assert accused(looked(classes(dropout=dropout, repeats=repeats), tmp_path)) == []


def test_statistics_that_never_move_are_found_exactly(tmp_path: Path) -> None:
    source = classes("0.0")
    found = row(looked(source, tmp_path), "EVALUATION/buffers")
    assert (found.status, found.basis) == ("fail", "exact")
    assert found.where[0].line == line_of(HEAD + source, "nn.BatchNorm1d")


def test_statistics_that_lag_are_found_by_taking_them_anew(tmp_path: Path) -> None:
    found = row(looked(classes("0.0005", epochs=6), tmp_path), "EVALUATION/buffers")
    assert (found.status, found.basis) == ("fail", "controlled")
    assert found.values["recomputed"] < found.values["kept"]


@pytest.mark.parametrize(
    "source",
    [
        classes(),
        classes("0.01", epochs=30),
        classes("None"),
        classes(epochs=1).replace("torch.randperm(240)", "torch.randperm(240)[:72]"),
        classes("0.0").replace("        answers", "        model.train()\n        answers"),
    ],
    ids=["plain", "slow and long", "plain average", "three steps", "batch statistics in evaluation"],
)
def test_statistics_that_follow_or_are_not_used_are_healthy(tmp_path: Path, source: str) -> None:
    assert accused(looked(source, tmp_path)) == []


AVERAGED = """
centers = 2.0 * torch.randn(3, 8)
y = torch.randint(0, 3, (240,))
x = centers[y] + torch.randn(240, 8)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(6):
    for rows in torch.randperm(240).split(24):
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters()):
                slow.lerp_(fast, RATE)
    with torch.no_grad():
        print(F.cross_entropy(average(x), y).item())
        EXTRA
"""


def averaged(rate: str, extra: str = "pass") -> str:
    return AVERAGED.replace("RATE", rate).replace("EXTRA", extra)


def test_an_average_that_is_another_runs_is_evaluated(tmp_path: Path) -> None:
    start = "for slow in average.parameters():\n    slow.add_(0.05 * torch.randn_like(slow))\noptimizer ="
    source = averaged("0.0001").replace("optimizer =", start, 1)
    found = row(looked(source, tmp_path), "EVALUATION/weights")
    assert (found.status, found.basis) == ("fail", "controlled")
    assert found.where[0].line == line_of(HEAD + source, "F.cross_entropy(average(x)")


@pytest.mark.parametrize(
    "source",
    [
        averaged("0.1"),
        # So slow that a short run says nothing of it.
        averaged("0.0001"),
        # A baseline beside the trained model.
        averaged("0.0", "print(F.cross_entropy(model(x), y).item())"),
        averaged("1.0"),
        averaged("0.0001").replace("range(6)", "range(1)").replace("torch.randperm(240)", "torch.randperm(240)[:72]"),
    ],
    ids=["follows", "slow", "baseline", "the same weights", "three steps"],
)
def test_averages_that_follow_and_baselines_are_healthy(tmp_path: Path, source: str) -> None:
    assert accused(looked(source, tmp_path)) == []


# -- capability --------------------------------------------------------------------------------------------------------

FITTED = """
centers = 2.0 * torch.randn(4, 16)
y = torch.randint(0, 4, (320,))
x = centers[y] + torch.randn(320, 16)
model = MODEL
optimizer = OPTIMIZER
for step in range(STEPS):
    rows = torch.randint(0, 320, (32,))
    loss = F.cross_entropy(model(x[rows]), TARGETS)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ADAM = "torch.optim.Adam(model.parameters(), lr=3e-3)"
SGD = "torch.optim.SGD(model.parameters(), lr=0.01)"


def fitted(model: str, optimizer: str = ADAM, steps: int = 120, targets: str = "y[rows]") -> str:
    source = FITTED.replace("MODEL", model).replace("OPTIMIZER", optimizer)
    return source.replace("STEPS", str(steps)).replace("TARGETS", targets)


def dropping(rate: float) -> str:
    hidden = f"nn.Linear(32, 32), nn.ReLU(), nn.Dropout({rate})"
    return f"nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout({rate}), {hidden}, nn.Linear(32, 4))"


def plainly(depth: int) -> str:
    return f"nn.Sequential(*[m for _ in range({depth}) for m in (nn.Linear(16, 16), nn.ReLU())], nn.Linear(16, 4))"


def test_dropout_that_leaves_nothing_to_learn_from_is_found_by_doing_without(tmp_path: Path) -> None:
    found = row(looked(fitted(dropping(0.995)), tmp_path), "CAPABILITY/fit")
    assert (found.status, found.basis) == ("fail", "controlled")
    assert found.values["cure"] == "without dropout"


def test_a_deep_plain_network_passes_no_differences_on(tmp_path: Path) -> None:
    evidence = looked(fitted(plainly(12), SGD), tmp_path)
    found = row(evidence, "CAPABILITY/signal")
    assert (found.status, found.basis) == ("fail", "controlled")
    assert found.values["last"] < found.values["first"]


@pytest.mark.parametrize(
    "source",
    [
        fitted(dropping(0.5)),
        fitted(dropping(0.5), targets="torch.randint(0, 4, (32,))"),  # nothing to learn: no fault of the dropout
        fitted(dropping(0.3), steps=3),
        fitted(plainly(2), SGD),
        fitted(plainly(2), "torch.optim.SGD(model.parameters(), lr=1e-7)"),  # too slow, and told examples apart
        fitted(plainly(12), SGD, steps=3),
        fitted("nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))", targets="torch.zeros(32).long()"),
    ],
    ids=["dropout", "coin flips", "three steps", "shallow", "slow", "deep, three steps", "one class"],
)
def test_runs_that_learn_or_had_nothing_to_learn_are_healthy(tmp_path: Path, source: str) -> None:
    assert accused(looked(source, tmp_path)) == []


# -- the run itself ----------------------------------------------------------------------------------------------------


def test_the_run_prints_what_it_prints_alone(tmp_path: Path) -> None:
    source = HEAD + classes("0.01", "hidden = F.dropout(hidden, 0.2)") + "print(torch.rand(2))\n"
    evidence = tmp_path / "seen"
    evidence.mkdir()
    observe_code(source, evidence, looks="fork")
    assert (evidence / "stdout.txt").read_text(encoding="utf-8") == plain(source, tmp_path).out


def test_without_looks_the_rows_say_so(tmp_path: Path) -> None:
    evidence = observe_code(HEAD + classes(epochs=1), tmp_path)
    assert {row(evidence, row_id).status for row_id in ROWS if row_id != "CAPABILITY/signal"} == {"not_measured"}


def test_looks_in_the_process_itself_leave_the_model_as_it_was(tmp_path: Path) -> None:
    source = HEAD + classes("0.01", epochs=2) + "print([p.sum().item() for p in model.parameters()])\n"
    inside = tmp_path / "inside"
    inside.mkdir()
    evidence = observe_code(source, inside, looks="in_place")
    assert row(evidence, "OBJECTIVE/independence").status == "pass"
    assert (inside / "stdout.txt").read_text(encoding="utf-8") == plain(source, tmp_path).out
