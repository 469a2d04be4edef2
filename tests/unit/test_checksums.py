"""Checksums tell that tensors differ: by value, by place, by type; equal values have equal ones."""

from __future__ import annotations

import pytest
import torch

from weaklink.collector.checksums import EMPTY, checksums, joint


def one(tensor: torch.Tensor | None) -> str:
    return checksums([tensor])[0]


def test_equal_values_have_equal_checksums_whatever_their_layout() -> None:
    values = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    assert one(values) == one(values.clone()) == one(values.t().contiguous().t())
    assert one(torch.tensor([0.0, 1.0])) == one(torch.tensor([-0.0, 1.0]))


def test_any_difference_of_a_value_a_place_or_a_type_shows() -> None:
    values = torch.randn(64, generator=torch.Generator().manual_seed(0))
    changed = values.clone()
    changed[17] = torch.nextafter(changed[17], torch.tensor(9.0))
    assert len({one(values), one(changed), one(values.flip(0)), one(values.double()), one(values[:-1])}) == 5
    # Two that changed places: the plain sum is the same, the weighted one is not.
    apart = torch.zeros(70_000)
    apart[0], apart[1] = 1.0, 2.0
    swapped = torch.zeros(70_000)
    swapped[0], swapped[1] = 2.0, 1.0
    assert one(apart) != one(swapped)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64]
)
def test_every_type_is_read(dtype: torch.dtype) -> None:
    first, second = torch.tensor([1, 0, 1]).to(dtype), torch.tensor([0, 1, 1]).to(dtype)
    assert one(first) == one(first.clone()) != one(second)


def test_many_tensors_are_read_together_as_they_are_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(size, generator=generator) for size in (1, 3, 0, 1000, 2)]
    assert checksums(tensors) == [one(tensor) for tensor in tensors]


def test_what_has_no_values_to_read_is_told() -> None:
    assert checksums([None, torch.empty(3, device="meta")]) == [EMPTY, EMPTY]
    assert joint([]) == ""
    assert joint(["a", "b"]) != joint(["b", "a"])
