"""OBJECTIVE/supervised: which classes and which tokens the loss supervises, by the derivative it sends back."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from weaklink.collector.evidence import Row, Site, Value
from weaklink.collector.rows.naming import lines_with
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.compared import ComparedRecord
from weaklink.collector.watching.files import FilesRecord
from weaklink.collector.watching.supervision import ClassSupervision, SupervisionRecord, TokenSupervision

ROW = "OBJECTIVE/supervised"
TEXT = "which targets have a derivative"
# So many batches of different lengths must show the same.
BATCHES = 3
PADDING_IS_END = r"\bpad\w*\s*=[^=\n]*\beos"


def rows(run: Observation) -> list[Row]:
    """One row; of what can be read, the contradiction, else the counts."""
    record = run.record(SupervisionRecord)
    tokens = [sample for sample in record.tokens if sample.next_tokens]
    for found in (_end_ignored(run, tokens), _padding_supervised(run, tokens), *_classes(run, record.classes)):
        if found is not None:
            return [found.model_copy(update={"values": {**found.values, "predicted": _predicted(record, tokens)}})]
    if not record.classes and not tokens:
        reason = "no sampled step scored classes by torch's own losses"
        return [Row(id=ROW, status="not_measured", text=TEXT, reason=reason)]
    counted = _counted(record.classes, tokens)
    return [counted.model_copy(update={"values": {**counted.values, "predicted": _predicted(record, tokens)}})]


def _predicted(record: SupervisionRecord, tokens: list[TokenSupervision]) -> list[Value]:
    """The labels that are the largest score somewhere where they are due, in the last sample."""
    if tokens:
        return list(tokens[-1].predicted)
    samples = [sample for sample in record.classes if sample.ignored is not None] or record.classes
    return list(samples[-1].predicted) if samples else []


def _counted(scored: list[ClassSupervision], tokens: list[TokenSupervision]) -> Row:
    if not scored:
        total = sum(sample.supervised.numel() for sample in tokens)
        reached = sum(int(sample.supervised.sum()) for sample in tokens)
        text = f"{reached} of {total} positions have a derivative"
        return Row(id=ROW, status="evidence", text=text, values={"positions": total, "supervised": reached})
    samples = [sample for sample in scored if sample.ignored is not None] or scored
    seen, supervised = _sums(samples)
    never = [label for label in sorted(seen) if not supervised[label]]
    # A hinge that is satisfied has none by right: pass says that each label had some, not that each position did.
    text = f"{len(seen) - len(never)} of {len(seen)} labels are supervised"
    if never:
        text += "; never: " + ", ".join(f"{label} (0 of {seen[label]})" for label in never[:8])
    values: dict[str, Value] = {"labels": len(seen), "never": never[:50]}
    # A label that the outputs have no place for marks a gap; where nothing but gaps was seen, nothing passes.
    classes = min(sample.classes for sample in samples)
    left_out = [label for label in never if 0 <= label < classes]
    passes = not left_out and len(never) < len(seen)
    return Row(id=ROW, status="pass" if passes else "evidence", text=text, values=values)


def _sums(samples: list[ClassSupervision]) -> tuple[Counter[int], Counter[int]]:
    seen: Counter[int] = Counter()
    supervised: Counter[int] = Counter()
    for sample in samples:
        seen.update(sample.seen)
        supervised.update(sample.supervised)
    return seen, supervised


# -- classes -----------------------------------------------------------------------------------------------------------


def _classes(run: Observation, samples: list[ClassSupervision]) -> list[Row | None]:
    told = [sample for sample in samples if sample.ignored is not None]
    given = [sample for sample in samples if sample.ignored is None]
    return [_asked_for(run, told), _asked_for(run, given), _merged(run, given)]


def _asked_for(run: Observation, samples: list[ClassSupervision]) -> Row | None:
    """A class that is never supervised, while every other one always is, and the evaluation counts it like the others.

    Only where the model's outputs have a place for it: 255, or a padding of -100, has none.
    """
    samples = [sample for sample in samples if not sample.tokens]
    if not samples or len({sample.classes for sample in samples}) > 1:
        return None
    classes = samples[0].classes
    seen, supervised = _sums(samples)
    never = [label for label in seen if 0 <= label < classes and not supervised[label]]
    always = [label for label in seen if label not in never and 0 <= label < classes]
    if len(never) != 1 or not always or any(supervised[label] < seen[label] for label in always):
        return None
    compared, label = run.record(ComparedRecord), never[0]
    counted = compared.with_all_of(set(range(classes)))
    # An evaluation that masks the label out asks for it as little as the loss does.
    if counted is None or classes < 2 or label in compared.apart:
        return None
    text = (
        f"label {label} is never supervised (0 of {seen[label]} sampled), every other one always; the model has an "
        f"output for it, and the evaluation counts it like the others"
    )
    return _suspected(run, samples[0], text, label, seen[label], [counted])


def _merged(run: Observation, samples: list[ClassSupervision]) -> Row | None:
    """Labels without a place in the outputs are trained as another class, while one that has a place is left out."""
    samples = [sample for sample in samples if not sample.tokens]
    if not samples or len({sample.classes for sample in samples}) > 1:
        return None
    classes = samples[0].classes
    seen, supervised = _sums(samples)
    never = [label for label in seen if 0 <= label < classes and not supervised[label]]
    outside = [label for label in seen if not 0 <= label < classes and supervised[label] == seen[label]]
    raised = {label: {sample.raised[label] for sample in samples if label in sample.raised} for label in seen}
    shared = [
        (stranger, label)
        for stranger in outside
        for label in seen
        if label != stranger and len(raised[label]) == 1 and raised[label] == raised[stranger]
    ]
    served = {cls for found in raised.values() for cls in found}
    if len(never) != 1 or not shared or never[0] in served:
        return None
    stranger, label = shared[0]
    text = (
        f"label {never[0]} is never supervised (0 of {seen[never[0]]} sampled) and the output at its place never "
        f"raised, while label {stranger}, for which the model has no output, is trained as {label}"
    )
    return _suspected(run, samples[0], text, never[0], seen[never[0]], [])


def _suspected(
    run: Observation, sample: ClassSupervision, text: str, label: int, seen: int, more: list[Site]
) -> Row:  # fmt: skip
    pattern = rf"ignore_?(index|label|id|value)?[\"']?\s*[:=]\s*{label}\b"
    set_at = lines_with(run.record(FilesRecord), pattern, f"label {label} is set to be ignored")
    loss = [sample.site] if sample.site is not None else []
    return Row(
        id=ROW,
        status="suspected",
        text=text,
        values={"label": label, "seen": seen, "supervised": 0, "ignore_index": sample.ignored},
        where=[*set_at, *loss, *more][:3],
        step=sample.step,
    )


# -- tokens ------------------------------------------------------------------------------------------------------------


def _end_ignored(run: Observation, samples: list[TokenSupervision]) -> Row | None:
    """A token that ends every row is never a target, for it is taken for padding.

    Rows are padded to the longest of their batch: padding begins where that row ends, and a batch's shortest tail is
    empty. Where the shortest tail is exactly one token in each of them, whatever their lengths, the token belongs to
    the text. Batches of one length may have been padded to it: then a line must say that padding is the end token.
    """
    shared = lines_with(run.record(FilesRecord), PADDING_IS_END, "padding is given the end token")
    lengths = {sample.ids.shape[1] for sample in samples}
    if len(samples) < BATCHES or (len(lengths) < BATCHES and not shared):
        return None
    last = {int(token) for sample in samples for token in sample.ids[:, -1].tolist()}
    if len(last) != 1:
        return None
    token = last.pop()
    tails = [_tail(sample.ids, token) for sample in samples]
    if any(int(tail.min()) != 1 for tail in tails):
        return None
    total = 0
    for sample, tail in zip(samples, tails, strict=True):
        following, reached = sample.ids[:, 1:], sample.supervised[:, :-1]
        if bool(reached[following == token].any()) or not bool(reached[following != token].any()):
            return None
        if not bool(_before_tail(reached, tail).all()):
            return None  # what stands before the tail is not supervised either: another mask is at work
        total += int((following == token).sum())
    text = (
        f"token {token} ends every row and is never a target (0 of {total}); in each of {len(samples)} batches the "
        f"longest row ends with exactly one, as an end token does and padding does not"
    )
    return Row(
        id=ROW,
        status="suspected",
        text=text,
        values={"token": token, "seen": total, "supervised": 0},
        where=[*shared, *_called(samples)][:3],
        step=samples[0].step,
    )


def _padding_supervised(run: Observation, samples: list[TokenSupervision]) -> Row | None:
    """One token fills the end of every row and is always a target, while what stands right before it never is."""
    if not samples:
        return None
    last = {int(token) for sample in samples for token in sample.ids[:, -1].tolist()}
    if len(last) != 1:
        return None
    token, padded, content = last.pop(), 0, 0
    for sample in samples:
        tail, length = _tail(sample.ids, token), sample.ids.shape[1]
        if int(tail.min()) < 2 or int(tail.max()) >= length - 1:
            return None
        reached = sample.supervised[:, :-1]
        in_tail = torch.arange(1, length) >= (length - tail)[:, None]
        before = _before_tail(reached, tail)
        if not bool(reached[in_tail].all()) or bool(before.any()) or not bool(reached[~in_tail].any()):
            return None
        padded, content = padded + int(in_tail.sum()), content + len(before)
    files = run.record(FilesRecord).data()
    text = (
        f"token {token} fills the end of every row and is always a target ({padded} of {padded}), while the token "
        f"before it never is (0 of {content})"
    )
    return Row(
        id=ROW,
        status="suspected",
        text=text,
        values={"token": token, "padding": padded, "content": content},
        where=[*files[:2], *_called(samples)][:3],
        step=samples[0].step,
    )


def _tail(ids: Tensor, token: int) -> Tensor:
    """How many of that token end each row."""
    return (ids.flip(1) == token).long().cumprod(1).sum(1)


def _before_tail(reached: Tensor, tail: Tensor) -> Tensor:
    """Whether the last token before the tail is a target, by row; rows without such a token are left out."""
    length = reached.shape[1] + 1
    position = length - tail - 2
    rows_there = (position >= 0).nonzero().flatten()
    return reached[rows_there, position[rows_there]]


def _called(samples: list[TokenSupervision]) -> list[Site]:
    return [sample.site for sample in samples if sample.site is not None][:1]
