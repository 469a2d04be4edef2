"""The look itself: training pairs and evaluated pairs, answered by the model as it is now."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from weaklink.collector.evaluating.inputs import Preparation, moments, outside, preparations
from weaklink.collector.evaluating.labels import CLASS_LIMIT, renumbered, renumbering
from weaklink.collector.evaluating.scoring import CHANCE, Caller, Comparison, compare, predicted, row_scores, sign_test
from weaklink.collector.watching.context import mode_matters
from weaklink.collector.watching.pairs import Chunk

LOOK = "evaluated pairs"
ROWS = 1024
# One evaluation in a hundred would look so by chance.
DOUBT = 1e-2
# Preparations are tried for so long; the first ones are the likeliest.
SECONDS = 6.0


@dataclass
class Trained:
    """Scores and targets of one call of a loss in training: as training answered at that step."""

    step: int
    scores: Tensor
    target: Tensor


@dataclass
class EvaluationLook:
    """Compares how a model answers training pairs and evaluated ones, and what would change that.

    Attributes:
        certain: Whether the targets are known to be what the script scores its evaluation against.
        lately: Calls of a loss in the stage of training that is under way.
        beside: Pairs of other evaluations of the model as it is; those of rows that it was trained on are left out.
    """

    module: nn.Module
    template: tuple[Any, dict[str, Any]]
    train: list[Chunk]
    evaluation: list[Chunk]
    certain: bool
    lately: list[Trained] = field(default_factory=list)
    beside: list[Chunk] = field(default_factory=list)

    def __call__(self) -> dict[str, Any]:
        caller = Caller(self.module, self.template)
        train, evaluation = _some(self.train), _some(self.evaluation)
        if not train or not evaluation:
            return {"unknown": "no targets of both training and evaluation are known, of the stage under way"}
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
        if not self._still_answers(float(known.mean()), float(own.mean()), labels):
            inputs["explains"] = labels["explains"] = False
        _settle(inputs, labels)
        if labels.get("explains"):
            labels["explains"] = not self._fits_as_it_is(caller, evaluation, labels["map"])
        labels.pop("map", None)
        mode = self._mode(caller, train, evaluation, own, float(known.mean()))
        return values | {"inputs": inputs, "labels": labels, "mode": mode}

    def _mode(
        self, caller: Caller, train: list[Chunk], evaluation: list[Chunk], own: Tensor, trained: float
    ) -> dict[str, Any]:
        """An evaluation in train mode, answered in eval mode. Taken last: running statistics are taken anew.

        Those of the model have seen the evaluated rows by now, in train mode.
        """
        switched = sorted({type(module).__name__ for module in self.module.modules() if _is_switched_on(module)})
        if not self.module.training or not switched:
            return {}
        for chunk in train:
            caller.outputs(chunk.inputs)
        modes = [(module, module.training) for module in self.module.modules()]
        self.module.eval()
        other = _scores([(caller.outputs(chunk.inputs), _target(chunk)) for chunk in evaluation])
        for module, training in modes:
            module.training = training
        if other is None:
            return {}
        comparison = compare(own, other)
        explains = comparison.chance < CHANCE and comparison.closes_gap_to(trained)
        return {
            "modules": switched,
            "score": comparison.other,
            "better": comparison.better,
            "worse": comparison.worse,
            "explains": explains and self._still_answers(trained, comparison.own, {}),
        }

    def _still_answers(self, trained: float, own: float, labels: dict[str, Any]) -> bool:
        """Whether training's last answers were like those to the kept pairs, and in training's own numbers.

        The pairs are of the beginning. Where the task has changed since, what differs from them is no fault.
        """
        found = [row_scores(one.scores, one.target) for one in self.lately]
        known = [scores for scores in found if scores is not None]
        if not known:
            return False
        late = float(torch.cat(known).mean())
        if abs(late - trained) >= abs(late - own):
            return False
        pairs = [(one.scores, one.target) for one in self.lately]
        guess, target, _, _ = _classes_of(pairs)
        numbers = labels.get("map")
        if guess is None or target is None or not numbers:
            return True
        return int((renumbered(guess, numbers) == target).sum()) < int((guess == target).sum())

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
                "explains": comparison.chance * len(tried) < CHANCE
                and comparison.closes_gap_to(trained)
                and not self._answered_as_it_is(caller, evaluation, place, preparation),
            }
        return found

    def _passes(self, evaluation: list[Chunk]) -> list[list[Chunk]]:
        """The evaluation call by call, then what was evaluated beside it, loader by loader.

        Training rows that were looked at again are left out.
        """
        trained = {row for chunk in self.train for row in chunk.contents()} if self.beside else set()
        by_loader: dict[int | None, list[Chunk]] = {}
        for chunk in self.beside:
            rows = chunk.contents()
            if 2 * sum(row in trained for row in rows) <= len(rows):
                by_loader.setdefault(chunk.loader, []).append(chunk)
        return [[chunk] for chunk in evaluation] + [_some(chunks) for chunks in by_loader.values()]

    def _answered_as_it_is(self, caller: Caller, evaluation: list[Chunk], place: int, preparation: Preparation) -> bool:
        """Whether some evaluated rows need no such preparation, and are answered worse with it.

        Then there is an evaluation that is prepared like training, and what was found is another test on purpose: under
        corruptions, from another source.
        """
        for chunks in self._passes(evaluation):
            own = _scores([(caller.outputs(chunk.inputs), _target(chunk)) for chunk in chunks])
            other = _prepared(caller, chunks, place, preparation)
            if own is not None and other is not None and _is_worse(compare(own, other)):
                return True
        return False

    def _fits_as_it_is(self, caller: Caller, evaluation: list[Chunk], numbers: dict[int, int]) -> bool:
        """Whether some evaluated rows fit their labels as they are, and worse once the classes are renumbered."""
        for chunks in self._passes(evaluation):
            guess, target, rows, _ = _classes_of([(caller.outputs(chunk.inputs), _target(chunk)) for chunk in chunks])
            if guess is None or target is None or rows is None:
                continue
            own, other = (_right(given, target, rows) for given in (guess, renumbered(guess, numbers)))
            if _is_worse(compare(own, other)):
                return True
        return False


def _is_switched_on(module: nn.Module) -> bool:
    return module.training and mode_matters(module)


def _right(guess: Tensor, target: Tensor, rows: Tensor) -> Tensor:
    """How many positions of each row are right, (rows,)."""
    return torch.zeros(int(rows.max()) + 1).double().index_add_(0, rows, (guess == target).double())


def _is_worse(comparison: Comparison) -> bool:
    """Whether the other reading is worse. Doubt is enough to accuse nobody."""
    return sign_test(comparison.worse, comparison.better) < DOUBT


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
    known = torch.zeros(len(own)).double().index_add_(0, rows, ((target >= 0) & (target < classes)).double())
    comparison = compare(own, _right(renumbered(guess, numbers), target, rows) / known.clamp(min=1))
    return {
        "renumbered": len(numbers),
        "map": numbers,
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
