"""Reading tensors without touching them, and the small pieces beside it: sampling, series, branches, names."""

from __future__ import annotations

import math
from collections import UserDict
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import nn

from weaklink.collector import tensors as under_test
from weaklink.collector.branch import name_branch
from weaklink.collector.evidence import Row
from weaklink.collector.tensors import (
    dense,
    differ,
    digest,
    digest_all,
    exactly_zero,
    mapped,
    nonfinite,
    norms,
    tensors_in,
)
from weaklink.collector.watching.parameters import ParameterBook, RootBook, name_parameters
from weaklink.collector.watching.sampling import is_sampled
from weaklink.collector.watching.summaries import summarize
from weaklink.collector.watching.tape import SERIES_LIMIT, LossSeries

torch.set_num_threads(1)
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.tensor([3.0, 4.0]), 5.0),
        (torch.tensor([3.0, 4.0], dtype=torch.float64), 5.0),
        (torch.full((4,), 1e-4, dtype=torch.float16), 2e-4),
        (torch.full((4,), 300.0, dtype=torch.float16), 600.0),
        (torch.full((4,), 1e-30, dtype=torch.bfloat16), 2e-30),
        (torch.tensor([3, 4]), 5.0),
        (torch.tensor([True, False]), 1.0),
        (torch.tensor([3 + 4j]), 5.0),
        (torch.tensor([]), 0.0),
        (torch.tensor(7.0), 7.0),
        (torch.tensor([NAN, 1.0]), NAN),
        (torch.tensor([INF, 1.0]), INF),
        (torch.eye(3).to_sparse(), math.sqrt(3)),
        (torch.eye(3).t()[::2], math.sqrt(2)),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, torch.Tensor) else "",
)
def test_norm_of_one(tensor: torch.Tensor, expected: float) -> None:
    (found,) = norms([tensor])
    assert found == pytest.approx(expected, rel=1e-3, nan_ok=True)


def test_norms_keep_their_order_over_mixed_kinds() -> None:
    mixed = [torch.ones(1, dtype=torch.float64), torch.ones(4), torch.ones(9, dtype=torch.float16), torch.ones(16)]
    assert norms(mixed) == [1.0, 2.0, 3.0, 4.0]


def test_norms_without_the_private_foreach_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "_foreach_norm")
    assert norms([torch.tensor([3.0, 4.0]), torch.tensor([1j])]) == [5.0, 1.0]


def test_norms_where_torch_sums_no_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    small = [torch.tensor([3.0, 4.0]), torch.full((4,), 1e-30), torch.zeros(2)]
    found = norms(small)
    monkeypatch.setattr(under_test, "_SEGMENTED", frozenset())
    assert norms(small) == pytest.approx(found, rel=1e-6)
    assert under_test.zeros_by_norm(small, norms(small)) == [False, False, True]
    assert under_test.movements([(small[1], torch.zeros(4))])[0] == [True]


def test_large_tensors_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    large = [torch.full((5000,), float(number), dtype=torch.bfloat16) for number in range(5)]
    pairs = [(tensor, tensor + (number % 2)) for number, tensor in enumerate(large)]
    whole = norms(large), under_test.movements(pairs)
    widened: list[int] = []
    of_one_kind = under_test._norms_of_one_kind
    monkeypatch.setattr(under_test, "HOST_PART_BYTES", 20_000)
    monkeypatch.setattr(under_test, "_norms_of_one_kind", lambda part: widened.append(len(part)) or of_one_kind(part))
    assert (norms(large), under_test.movements(pairs)) == whole
    assert widened == [2, 2, 1] * 3
    assert whole[1][0] == [False, True, False, True, False]


def test_a_nest_keeps_its_kinds() -> None:
    class Pair(NamedTuple):
        left: torch.Tensor
        right: list[object]

    one = torch.ones(1)
    found = mapped({"pair": Pair(one, [one, "name"]), "more": (one, UserDict(x=one))}, lambda tensor: tensor + 1)
    assert found == {"pair": Pair(one + 1, [one + 1, "name"]), "more": (one + 1, {"x": one + 1})}
    assert isinstance(found["pair"], Pair)
    assert len(list(tensors_in({"batch": UserDict(x=one)}))) == 1


def test_norms_of_none() -> None:
    assert norms([]) == []
    assert exactly_zero([]) == []
    assert digest_all([]) is None


def test_uncoalesced_duplicates_are_added_up() -> None:
    twice = torch.sparse_coo_tensor(torch.tensor([[0, 0]]), torch.tensor([1.0, -1.0]), (3,), check_invariants=True)
    assert exactly_zero([twice]) == [True]
    assert norms([twice]) == [0.0]
    assert not twice.is_coalesced()


def test_reading_builds_no_graph_and_changes_nothing() -> None:
    leaf = torch.ones(3, requires_grad=True)
    inner = leaf * 2
    version = inner._version
    assert norms([inner]) == [pytest.approx(math.sqrt(12))]
    assert dense(inner).grad_fn is None
    digest(inner)
    summarize(inner)
    assert inner._version == version
    assert leaf.grad is None


@pytest.mark.parametrize(
    ("tensor", "zero", "broken"),
    [
        (torch.zeros(3), True, False),
        (torch.tensor([0.0, -0.0]), True, False),
        (torch.tensor([0.0, 1e-45]), False, False),
        (torch.tensor([NAN]), False, True),
        (torch.tensor([0.0, -INF]), False, True),
        (torch.zeros(0), True, False),
        (torch.zeros(2, dtype=torch.bfloat16), True, False),
    ],
)
def test_zero_and_nonfinite(tensor: torch.Tensor, zero: bool, broken: bool) -> None:
    assert exactly_zero([tensor]) == [zero]
    assert nonfinite([tensor]) == [broken]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1.0, NAN], [1.0, NAN], False),
        ([1.0, NAN], [1.0, 2.0], True),
        ([1.0, 2.0], [1.0, 2.0], False),
        ([1.0, 2.0], [1.0, 2.0000002], True),
        ([0.0], [-0.0], False),
        ([INF], [INF], False),
        ([], [], False),
    ],
)
def test_differ_treats_nan_as_equal_to_itself(a: list[float], b: list[float], expected: bool) -> None:
    assert differ([(torch.tensor(a), torch.tensor(b))]) == [expected]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.5, NAN, -INF]),
        torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
        torch.tensor([1, 2], dtype=torch.int64),
        torch.zeros(0, 3),
        torch.arange(6.0).reshape(2, 3).t(),
        torch.tensor([1 + 2j]),
        torch.tensor(True),
        torch.ones(1, 3).expand(4, 3),
    ],
    ids=str,
)
def test_digest_reads_values_not_memory(tensor: torch.Tensor) -> None:
    same = tensor.clone(memory_format=torch.contiguous_format)
    assert digest(tensor) == digest(same)
    assert digest(tensor) is not None


def test_digest_tells_dtype_shape_and_one_bit_apart() -> None:
    variants = [
        torch.zeros(4),
        torch.zeros(2, 2),
        torch.zeros(4, dtype=torch.int32),
        torch.zeros(0),
        torch.zeros(0, 4),
        torch.tensor([0.0, 0.0, 0.0, 1e-45]),
    ]
    assert len({digest(tensor) for tensor in variants}) == len(variants)


def test_digest_gives_up_on_what_has_no_bytes_or_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert digest(torch.zeros(3, device="meta")) is None
    monkeypatch.setattr(under_test, "DIGEST_LIMIT_BYTES", 8)
    assert digest(torch.zeros(3)) is None
    assert digest_all([torch.zeros(1), torch.zeros(3)]) is None


def test_digest_all_depends_on_the_order() -> None:
    a, b = torch.zeros(2), torch.ones(2)
    assert digest_all([a, b]) != digest_all([b, a])


@dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...]
    note: str = ""


def test_tensors_are_found_in_nested_outputs_in_order() -> None:
    a, b, c, d = (torch.tensor(float(i)) for i in range(4))
    assert [t.item() for t in tensors_in({"x": a, "y": [b, (c, "text", None)], "z": Output(d, ())})] == [0, 1, 2, 3]
    assert list(tensors_in("text")) == []
    too_deep: list[object] = [a]
    for _ in range(5):
        too_deep = [too_deep]
    assert list(tensors_in(too_deep)) == []


@pytest.mark.parametrize(
    ("tensor", "finite", "constant"),
    [
        (torch.tensor([[1.0, 2.0], [1.0, 3.0]]), True, 1),
        (torch.tensor([[1.0, NAN], [1.0, NAN]]), False, 1),
        (torch.tensor([[1.0, 2.0]]), True, None),
        (torch.tensor([1, 2]), True, None),
        (torch.zeros(0, 2), True, None),
    ],
)
def test_summary(tensor: torch.Tensor, finite: bool, constant: int | None) -> None:
    summary = summarize(tensor)
    assert summary.finite is finite
    assert summary.constant_columns == constant
    assert summary.shape == tuple(tensor.shape)


def test_summary_moments_survive_half_precision() -> None:
    summary = summarize(torch.full((1000,), 60000.0, dtype=torch.float16))
    assert summary.mean == pytest.approx(60000.0, rel=1e-3)
    assert summary.std == pytest.approx(0.0, abs=1e-6)
    assert summary.dtype == "float16"


# -- sampling and series -----------------------------------------------------------------------------------------------


def test_steps_are_sampled_densely_first_and_then_by_one_two_five() -> None:
    assert [n for n in range(1, 12001) if is_sampled(n)] == [
        1, 2, 3, 4, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000,
    ]  # fmt: skip


def test_a_longer_dense_window() -> None:
    assert [n for n in range(1, 30) if is_sampled(n, 8)] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 20]


def test_series_is_thinned_evenly_and_keeps_the_first() -> None:
    series = LossSeries()
    total = 4 * SERIES_LIMIT + 3
    for index in range(1, total + 1):
        series.add(index, float(index))
    kept = series.series()
    assert len(kept.index) <= SERIES_LIMIT
    assert kept.index[0] == 1
    assert kept.value == [float(index) for index in kept.index]
    steps = {b - a for a, b in zip(kept.index, kept.index[1:], strict=False)}
    assert steps == {series.stride}
    assert total - kept.index[-1] < series.stride


def test_series_below_the_limit_keeps_everything() -> None:
    series = LossSeries()
    for index in range(1, SERIES_LIMIT + 1):
        series.add(index, NAN)
    assert series.series().index == list(range(1, SERIES_LIMIT + 1))


# -- branches ----------------------------------------------------------------------------------------------------------

FAIL = Row(id="UPDATE/lr", status="fail", basis="exact", text="")
ASKS = Row(id="UPDATE/scale", status="suspected", text="")
GAP = Row(id="EVALUATION/buffers", status="fail", basis="exact", text="")


@pytest.mark.parametrize(
    ("losses", "raised", "rows", "branch"),
    [
        ([1.0] * 10, True, [], "raised"),
        ([1.0, NAN], False, [], "nonfinite"),
        ([1.0, 1.0, 1.0, -INF], False, [], "nonfinite"),
        ([], False, [], "not_measured"),
        ([1.0, 0.5, 0.2], False, [], "not_measured"),
        ([0.69] * 300, False, [FAIL], "flat"),
        ([0.0] * 300, False, [], "flat"),
        ([1.0 - i / 400 for i in range(300)], False, [], "learning"),
        ([1.0 - i / 400 for i in range(300)], False, [FAIL], "silently_wrong"),
        ([1.0 - i / 400 for i in range(300)], False, [ASKS], "learning"),
        ([1.0 - i / 3000 for i in range(300)], False, [], "slow"),
        ([1.0 + i / 100 for i in range(300)], False, [], "diverging"),
        ([-1.0 - i / 100 for i in range(300)], False, [], "learning"),
        ([1.0, 3.0] * 100 + [0.9, 2.9] * 5, False, [], "noisy_plateau"),
        ([1.0, 1.01] * 150, False, [], "flat"),
        ([3.0**i for i in range(40)], False, [], "diverging"),
        ([3.0**-i for i in range(40)], False, [], "learning"),
        ([1.0 - i / 400 for i in range(300)], False, [GAP], "eval_gap"),
        ([0.69] * 300, False, [GAP], "flat"),
    ],
)
def test_branch(losses: list[float], raised: bool, rows: list[Row], branch: str) -> None:
    assert name_branch(losses, raised, rows) == branch


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_reused_address_is_another_parameter() -> None:
    book = ParameterBook()
    serials = set()
    for _ in range(50):
        serials.add(book.entry(nn.Parameter(torch.zeros(1))).serial)
    assert len(serials) == 50
    assert book.alive() == []


def test_no_strong_reference_is_kept() -> None:
    book, roots = ParameterBook(), RootBook()
    model = nn.Linear(2, 2)
    assert roots.entry(model) is not None
    name_parameters(book, roots)
    assert [entry.name for entry in book.entries] == ["weight", "bias"]
    del model
    assert roots.alive() == []
    assert book.alive() == []
    name_parameters(book, roots)
    assert [entry.in_model for entry in book.entries] == [True, True]


def test_names_of_several_roots_are_told_apart_and_inner_roots_take_the_outer_names() -> None:
    book, roots = ParameterBook(), RootBook()
    inner = nn.Linear(2, 2)
    outer = nn.Sequential(inner)
    other, twin = nn.Linear(2, 2), nn.Linear(2, 2)
    assert roots.entry(nn.ReLU()) is None
    for module in (inner, outer, other, twin):
        roots.entry(module)
    name_parameters(book, roots)
    assert book.entry(inner.weight).name == "Sequential.0.weight"
    assert book.entry(other.weight).name == "Linear.weight"
    assert book.entry(twin.bias).name == "Linear2.bias"
