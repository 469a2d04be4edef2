"""Which targets receive supervision: read from the derivative of the loss by what it scored, in sampled steps.

A position whose scores have a derivative of exactly zero is not supervised, whether an ignored index, a mask that
multiplies, or a slice left it out. The hooks on tensors answer nothing, so that no gradient changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weaklink.collector.evidence import Site
from weaklink.collector.tensors import tensors_in
from weaklink.collector.watching.part import RootCall

if TYPE_CHECKING:
    from weaklink.collector.watching.loss_calls import CalledLoss
    from weaklink.collector.watching.watcher import Watcher

# Samples kept, rows of token ids in each, and entries of one target or output that are looked at.
SAMPLES = 24
TOKEN_ROWS = 256
TOKEN_ENTRIES = 131_072
ENTRY_LIMIT = 16_000_000
LABEL_LIMIT = 2_000_000
CLASS_LIMIT = 4096
RAISED_LABELS = 300


@dataclass
class ClassSupervision:
    """One loss over class indices: how often each label stood in the target, and how often it was supervised.

    Attributes:
        classes: Outputs there are for classes.
        ignored: The label that the loss was told to ignore; None for the targets that a module of the user's own was
            given, which may number them otherwise.
        dense: Whether there are several targets a row.
        tokens: Whether the model was given token ids.
        raised: The class that the gradient raises most at most supervised positions of a label.
        predicted: Labels whose score is the largest one somewhere where they stand in the target.
    """

    step: int
    classes: int
    ignored: int | None
    dense: bool
    tokens: bool
    site: Site | None
    seen: dict[int, int] = field(default_factory=dict)
    supervised: dict[int, int] = field(default_factory=dict)
    raised: dict[int, int] = field(default_factory=dict)
    predicted: list[int] = field(default_factory=list)


@dataclass
class TokenSupervision:
    """Token ids that a model was given, (rows, length), and at which positions its answer had a derivative.

    Attributes:
        next_tokens: Whether what was supervised are the tokens that follow, wherever the loss took the answers.
        predicted: Tokens whose score is the largest one somewhere right before they come.
    """

    step: int
    site: Site | None
    ids: Tensor
    supervised: Tensor
    next_tokens: bool = False
    predicted: list[int] = field(default_factory=list)


@dataclass
class SupervisionRecord:
    """All samples, in order."""

    classes: list[ClassSupervision] = field(default_factory=list)
    tokens: list[TokenSupervision] = field(default_factory=list)


@dataclass
class _Called:
    """The last call of a model that was given token ids, (rows, length), copied."""

    ids: Tensor
    length: int
    rows: int
    targets: Tensor | None = None


class SupervisionReader:
    """Puts the hooks, and writes down what they see. Tensors of the user's are held by nothing but their own graph."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._record = watcher.tape.record(SupervisionRecord)
        self._called: _Called | None = None

    def root_called(self, call: RootCall) -> None:
        """A model answered with gradients."""
        self._called = None
        ids = next((tensor for tensor in tensors_in((call.args, call.kwargs)) if _are_tokens(tensor)), None)
        output = next((tensor for tensor in tensors_in(call.output) if tensor.is_floating_point()), None)
        if ids is None or output is None or output.dim() != 3 or output.shape[:2] != ids.shape:
            return
        if not output.requires_grad or output.numel() > ENTRY_LIMIT or len(self._record.tokens) >= SAMPLES:
            return
        rows = min(len(ids), TOKEN_ROWS, max(1, TOKEN_ENTRIES // ids.shape[1]))
        called = self._called = _Called(ids[:rows].detach().cpu().to(torch.int64, copy=True), ids.shape[1], len(ids))
        step, site = self._watcher.tape.steps + 1, self._watcher.code.site("model called")
        best = output.detach()[:rows, :-1].argmax(-1).cpu()
        predicted = _labels(best[best == called.ids[:, 1:]])

        def arrived(gradient: Tensor) -> None:
            self._watcher.guarded(self._tokens)(called, gradient, step, site, predicted)

        output.register_hook(arrived)  # type: ignore[no-untyped-call]

    def called(self, loss: CalledLoss) -> None:
        """A loss was called with gradients."""
        if not loss.indexed or loss.target.numel() > LABEL_LIMIT:
            return
        called = self._called
        if called is not None and called.targets is None and loss.target.numel() % called.rows == 0:
            called.targets = loss.target.detach().reshape(called.rows, -1)[: len(called.ids)].cpu().to(torch.int64)
        self._watch(loss.scores, loss.target, loss.ignored)

    def criterion_called(self, args: tuple[Any, ...]) -> None:
        """A loss of the user's own was called: its targets before it renumbers or masks them."""
        found = list(tensors_in(args))
        target = next((tensor for tensor in found if _are_labels(tensor)), None)
        if target is None:
            return
        scores = next((tensor for tensor in found if tensor.is_floating_point() and _score(tensor, target)), None)
        if scores is not None:
            self._watch(scores, target, None)

    def _watch(self, scores: Tensor, target: Tensor, ignored: int | None) -> None:
        classes = scores.shape[1] if scores.dim() > 1 else scores.shape[0]
        full = sum((sample.ignored is None) == (ignored is None) for sample in self._record.classes) >= SAMPLES
        if not scores.requires_grad or classes > CLASS_LIMIT or full or target.numel() > LABEL_LIMIT:
            return
        sample = ClassSupervision(
            self._watcher.tape.steps + 1,
            classes,
            ignored,
            target.dim() > 1,
            self._called is not None,
            self._watcher.code.site("loss called"),
        )
        labels = target.detach().clone()  # a loss may write over its targets
        best = scores.detach().argmax(1 if scores.dim() > 1 else 0)
        if best.shape == labels.shape:
            sample.predicted = _labels(best[best == labels])

        def arrived(gradient: Tensor) -> None:
            self._watcher.guarded(self._classes)(sample, labels, gradient)

        scores.register_hook(arrived)  # type: ignore[no-untyped-call]

    def backward_ended(self) -> None:
        """What was called before is done with."""
        self._called = None

    def _tokens(self, called: _Called, gradient: Tensor, step: int, site: Site | None, predicted: list[int]) -> None:
        supervised = (gradient.detach()[: len(called.ids)] != 0).any(-1).cpu()
        sample = TokenSupervision(step, site, called.ids, supervised, predicted=predicted)
        sample.next_tokens = called.targets is not None and _follow(called.ids, called.targets, supervised)
        self._record.tokens.append(sample)

    def _classes(self, sample: ClassSupervision, labels: Tensor, gradient: Tensor) -> None:
        reached = (gradient.detach() != 0).any(1 if gradient.dim() > 1 else 0)
        if reached.shape != labels.shape:
            return
        sample.seen, sample.supervised = _counts(labels), _counts(labels[reached])
        if gradient.dim() > 1 and len(sample.seen) <= RAISED_LABELS:
            raised = gradient.detach().argmin(1)
            for label in sample.supervised:
                sample.raised[label] = int(raised[reached & (labels == label)].mode().values)
        self._record.classes.append(sample)


def _are_tokens(tensor: Tensor) -> bool:
    return tensor.dim() == 2 and tensor.dtype in (torch.int64, torch.int32) and tensor.shape[1] > 1


def _are_labels(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.int64, torch.int32, torch.uint8) and tensor.dim() > 0


def _score(scores: Tensor, target: Tensor) -> bool:
    """Whether scores are of (rows, classes, ...) for targets of (rows, ...)."""
    return scores.dim() == target.dim() + 1 and scores.shape[:1] + scores.shape[2:] == target.shape


def _follow(ids: Tensor, targets: Tensor, supervised: Tensor) -> bool:
    """Whether every supervised target is the token that stands next in the input, as far as the input goes."""
    length = ids.shape[1]
    if targets.shape[1] not in (length, length - 1):
        return False
    reached = supervised[:, : length - 1]
    return bool(reached.any()) and bool((targets[:, : length - 1] == ids[:, 1:])[reached].all())


def _labels(found: Tensor) -> list[int]:
    return [int(label) for label in torch.unique(found).tolist()[:RAISED_LABELS]]


def _counts(labels: Tensor) -> dict[int, int]:
    values, counts = torch.unique(labels, return_counts=True)
    return {int(value): int(count) for value, count in zip(values.tolist(), counts.tolist(), strict=True)}
