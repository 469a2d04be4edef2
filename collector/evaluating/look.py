"""The look itself: training pairs and evaluated pairs, answered by the model as it is now."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weaklink.collector.evaluating.inputs import Preparation, moments, outside, preparations
from weaklink.collector.evaluating.labels import CLASS_LIMIT, renumbered, renumbering
from weaklink.collector.evaluating.scoring import CHANCE, Caller, Comparison, compare, predicted, row_scores
from weaklink.collector.watching.pairs import Chunk

LOOK = "evaluated pairs"
ROWS = 1024
# Preparations are tried for so long; the first ones are the likeliest.
SECONDS = 6.0


@dataclass
class EvaluationLook:
    """Compares how a model answers training pairs and evaluated ones, and what would change that.

    Attributes:
        certain: Whether the targets are known to be what the script scores its evaluation against.
    """

    module: nn.Module
    template: tuple[Any, dict[str, Any]]
    train: list[Chunk]
    evaluation: list[Chunk]
    certain: bool

    def __call__(self) -> dict[str, Any]:
        caller = Caller(self.module, self.template)
        train, evaluation = _some(self.train), _some(self.evaluation)
        if not train or not evaluation:
            return {"unknown": "no targets of both training and evaluation are known"}
        started = time.process_time()
        answers = [(caller.outputs(chunk.inputs), _target(chunk)) for chunk in evaluation]
        seconds = time.process_time() - started
        learned = [(caller.outputs(chunk.inputs), _target(chunk)) for chunk in train]
        own, known = _scores(answers), _scores(learned)
        if own is None or known is None or _by_class(answers) != _by_class(learned):
            return {"unknown": "outputs and targets are none that can be compared here"}
        values: dict[str, Any] = {
            "rows": len(own),
            "train_rows": len(known),
            "by_class": _by_class(answers),
            "train_score": float(known.mean()),
            "score": float(own.mean()),
            "certain": self.certain,
        }
        room = max(1, int(SECONDS / max(seconds, 1e-3)))
        inputs = self._inputs(caller, train, evaluation, own, float(known.mean()), room)
        labels = _labels(answers, learned, own, float(known.mean()))
        _settle(inputs, labels)
        return values | {"inputs": inputs, "labels": labels}

    def _inputs(
        self, caller: Caller, train: list[Chunk], evaluation: list[Chunk], own: Tensor, trained: float, room: int
    ) -> dict[str, Any]:
        """What the evaluated inputs look like, and the preparation that answers them best."""
        place = _numbers(train, evaluation)
        if place is None:
            return {"unknown": "no input of numbers, of one shape in training and evaluation"}
        theirs = moments([chunk.inputs[place] for chunk in train])
        ours = moments([chunk.inputs[place] for chunk in evaluation])
        apart = outside(theirs, ours)
        found: dict[str, Any] = {
            "channels": len(theirs.mean),
            "outside": len(apart),
            "train_batches": len(train),
            "mean": [float(theirs.mean.mean()), float(ours.mean.mean())],
            "std": [float(theirs.std.mean()), float(ours.std.mean())],
        }
        best: tuple[Comparison, Preparation] | None = None
        tried = preparations(theirs, ours)[:room]
        for preparation in tried:
            if preparation.moves and not apart:
                continue  # the inputs lie within training's: there is nothing to bring anywhere
            other = _prepared(caller, evaluation, place, preparation)
            if other is None:
                continue
            comparison = compare(own, other)
            if best is None or comparison.other > best[0].other:
                best = comparison, preparation
        if best is not None:
            comparison, preparation = best
            found |= {
                "preparation": preparation.name,
                "prepared": comparison.other,
                "better": comparison.better,
                "worse": comparison.worse,
                "explains": comparison.chance * len(tried) < CHANCE and comparison.closes_gap_to(trained),
            }
        return found


def _settle(inputs: dict[str, Any], labels: dict[str, Any]) -> None:
    """Channels in another order can look like classes in another order, and the other way round: the better one stands.

    Where both are as good, inputs that lie elsewhere than training's say which.
    """
    if not inputs.get("explains") or not labels.get("explains"):
        return
    prepared, numbered = inputs["prepared"], labels["renumbered_score"]
    by_inputs = prepared > numbered or (prepared == numbered and inputs["outside"] > 0)
    (labels if by_inputs else inputs)["explains"] = False


def _prepared(caller: Caller, chunks: list[Chunk], place: int, preparation: Preparation) -> Tensor | None:
    answers = []
    for chunk in chunks:
        inputs = list(chunk.inputs)
        inputs[place] = preparation(inputs[place])
        answers.append((caller.outputs(inputs), _target(chunk)))
    return _scores(answers)


def _labels(
    answers: list[tuple[Tensor, Tensor]], learned: list[tuple[Tensor, Tensor]], own: Tensor, trained: float
) -> dict[str, Any]:
    """Whether predictions fit the labels after renumbering: learned on every other row, scored on the rest."""
    guess, target, rows, classes = _classes_of(answers)
    if guess is None or target is None or rows is None:
        return {"unknown": "the targets are no class indices"}
    if classes > CLASS_LIMIT:
        return {"unknown": f"more than {CLASS_LIMIT} classes"}
    halves = [renumbering(guess[rows % 2 == half], target[rows % 2 == half], classes) for half in (0, 1)]
    if halves[0] is None or halves[0] != halves[1]:
        return {"renumbered": 0}
    numbers = halves[0]
    theirs, right, _, _ = _classes_of(learned)
    if theirs is None or right is None:
        return {"renumbered": 0}
    touched = torch.isin(theirs, torch.tensor(list(numbers)))
    as_trained = int((theirs == right)[touched].sum())
    otherwise = int((renumbered(theirs, numbers) == right)[touched].sum())
    count = int(rows.max()) + 1
    other = torch.zeros(count).double().index_add_(0, rows, (renumbered(guess, numbers) == target).double())
    known = torch.zeros(count).double().index_add_(0, rows, ((target >= 0) & (target < classes)).double())
    comparison = compare(own, other / known.clamp(min=1))
    return {
        "renumbered": len(numbers),
        "numbers": [f"{old} -> {new}" for old, new in sorted(numbers.items())],
        "renumbered_score": comparison.other,
        "better": comparison.better,
        "worse": comparison.worse,
        "explains": comparison.chance < CHANCE and comparison.closes_gap_to(trained) and as_trained > otherwise,
    }


def _classes_of(answers: list[tuple[Tensor, Tensor]]) -> tuple[Tensor | None, Tensor | None, Tensor | None, int]:
    """Flat predictions and targets, the row that each stands in, and the number of classes."""
    guesses, targets, rows, count, classes = [], [], [], 0, 0
    for output, target in answers:
        guess = predicted(output, target)
        if guess is None:
            return None, None, None, 0
        guesses.append(guess.flatten())
        targets.append(target.flatten().long())
        rows.append((torch.arange(len(target)) + count).repeat_interleave(target[:1].numel()))
        count += len(target)
        classes = output.shape[-1] if output.shape[:-1] == target.shape else output.shape[1]
    return torch.cat(guesses), torch.cat(targets), torch.cat(rows), classes


def _scores(answers: list[tuple[Tensor, Tensor]]) -> Tensor | None:
    found = [row_scores(output, target) for output, target in answers]
    known = [scores for scores in found if scores is not None]
    return torch.cat(known) if known and len(known) == len(found) else None


def _by_class(answers: list[tuple[Tensor, Tensor]]) -> bool:
    return all(predicted(output, target) is not None for output, target in answers)


def _target(chunk: Chunk) -> Tensor:
    """The chunk's target; of mixed or smoothed classes, which add up to one, the largest."""
    target = chunk.target
    assert target is not None
    shares = target.is_floating_point() and target.dim() == 2 and chunk.output is not None
    if shares and chunk.output is not None and target.shape == chunk.output.shape and target.shape[1] > 1:
        ones = torch.ones(len(target))
        if bool((target >= 0).all()) and torch.allclose(target.sum(1), ones, atol=1e-3):
            return target.argmax(1)
    return target


def _some(chunks: list[Chunk]) -> list[Chunk]:
    """Chunks with a target, spread over all there are, of so many rows together."""
    known = [chunk for chunk in chunks if chunk.target is not None]
    known = [chunk for chunk in known if _shape(chunk) == _shape(known[0])]
    total = sum(chunk.rows for chunk in known)
    stride = max(1, -(-total // ROWS))
    return known[::stride]


def _shape(chunk: Chunk) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape[1:]) for tensor in chunk.inputs]


def _numbers(train: list[Chunk], evaluation: list[Chunk]) -> int | None:
    """Which input holds numbers, in rows of one shape in both."""
    for place, tensor in enumerate(train[0].inputs):
        if tensor.is_floating_point() and tensor.dim() > 1 and place < len(evaluation[0].inputs):
            other = evaluation[0].inputs[place]
            if other.is_floating_point() and tensor.shape[1:] == other.shape[1:]:
                return place
    return None
