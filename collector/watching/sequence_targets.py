"""What a connectionist temporal classification was given: targets, lengths and the blank (Graves et al., 2006).

torch documents that no target may be the blank: it stands for "no label here", and a sequence that holds one asks the
model to say nothing as if it were a letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weaklink.collector.evidence import Site
from weaklink.collector.watching.nodes import name_of
from weaklink.collector.watching.sites import UserCode
from weaklink.collector.watching.stacks import site_of

# Beyond, the targets are not brought to the host.
ENTRIES_LIMIT = 1_000_000


@dataclass
class SequenceTargets:
    """One batch as the loss scored it.

    Attributes:
        rows: Sequences.
        with_blank: Sequences that have the blank among the labels that their length says count.
        scored, blanks: Labels that count, and how many of them are the blank.
        full: Whether every length is the width of the padded targets.
        impossible: Sequences with more labels, and blanks between equal ones, than frames: their loss is infinite.
    """

    rows: int
    with_blank: int
    scored: int
    blanks: int
    full: bool
    impossible: int
    site: Site | None


def read_sequence_targets(node: Any, code: UserCode) -> SequenceTargets | None:
    """The loss of this node; None for any other node."""
    if not name_of(node).startswith("CtcLossBackward"):
        return None
    targets, blank = node._saved_targets, int(node._saved_blank)
    if not isinstance(targets, Tensor) or targets.numel() > ENTRIES_LIMIT:
        return None
    lengths, frames = _numbers(node._saved_target_lengths), _numbers(node._saved_input_lengths)
    sequences = _sequences(targets.detach().cpu(), lengths)
    blanks = [int((sequence == blank).sum()) for sequence in sequences]
    needed = [len(s) + int((s[1:] == s[:-1]).sum()) for s in sequences]
    return SequenceTargets(
        len(lengths),
        sum(count > 0 for count in blanks),
        sum(lengths),
        sum(blanks),
        targets.dim() == 2 and all(length == targets.shape[1] for length in lengths),
        sum(want > have for want, have in zip(needed, frames, strict=False)),
        site_of(node, code, "CTC loss called"),
    )


def _numbers(lengths: Any) -> list[int]:
    if isinstance(lengths, Tensor):
        return [int(length) for length in lengths.detach().cpu().flatten().tolist()]
    return [int(length) for length in lengths]


def _sequences(targets: Tensor, lengths: list[int]) -> list[Tensor]:
    """The labels of each sequence: rows of padded targets, or pieces of those that stand one behind the other."""
    if targets.dim() == 2:
        return [row[:length] for row, length in zip(targets, lengths, strict=False)]
    return list(torch.split(targets[: sum(lengths)], lengths))
