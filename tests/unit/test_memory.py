"""Which tensors share memory: views do, copies do not, and what has no memory shares none."""

from __future__ import annotations

import torch

from weaklink.collector.tensors import memory_of, shares_memory


def test_a_view_shares_memory_and_a_copy_does_not():
    rows = torch.ones(4, 3)
    assert shares_memory(rows[1:].t(), memory_of(rows))
    assert not shares_memory(rows.clone(), memory_of(rows))


def test_tensors_without_memory_share_none():
    one, other = torch.eye(3).to_sparse(), torch.eye(4).to_sparse()
    assert memory_of(one) is None
    assert not shares_memory(other, memory_of(one))
    assert not shares_memory(torch.empty(0), memory_of(torch.empty(0)))
