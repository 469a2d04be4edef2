"""TASK, by the script's own data: items that change when they are read, rows that repeat or stay empty, batches of one
class, workers that give the same rows.

What takes the datasets themselves is looked at once, after the first step, in a copy of the process.
"""

from __future__ import annotations

import itertools
from typing import Any

from weaklink.collector.evidence import Row, Site
from weaklink.collector.looking_data import scale
from weaklink.collector.looking_data.look import NAME
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.data import DataRecord
from weaklink.collector.watching.files import FilesRecord
from weaklink.collector.watching.forwards import ForwardsRecord
from weaklink.collector.watching.loaders import LoaderEntry, WorkerBatch
from weaklink.collector.watching.pairs import Chunk


def rows(run: Observation) -> list[Row]:
    """Rows about the data; those that take a data loader are there only where the script has one."""
    record = run.record(DataRecord)
    if run.given or run.in_process:
        return []
    found = [_empty(run, record), _scale(run)]
    if any(loader.trains for loader in record.loaders):
        found += [_item(run, record), _coverage(run, record), _order(run, record), _workers(record)]
    return [row for row in found if row is not None]


def looked(run: Observation, part: str) -> tuple[dict[str, Any], str | None]:
    """What one part of the look found, or why it found nothing."""
    look = run.look(NAME)
    if look.values is None:
        return {}, look.problem or "no step was executed"
    found = look.values.get(part)
    if found is None:
        return {}, "the stored rows were not found: no dataset that is read by number, no tensor that is indexed"
    return found, found.get("raised") or found.get("unread")


def files_or_loader(run: Observation) -> list[Site]:
    """Where data come from: the files that were read, else the loaders that a model was trained with."""
    files = run.record(FilesRecord).data()
    made = [loader.made for loader in run.record(DataRecord).loaders if loader.trains and loader.made is not None]
    return (files or made)[:3]


def _scale(run: Observation) -> Row:
    """Inputs that are nearly one constant row to the model, where standardising them is what lets it learn."""
    look, text = run.look(scale.NAME), "whether the model tells the rows of its inputs apart"
    if look.values is None:
        reason = look.problem or ""
        if run.look(NAME).values is not None and scale.NAME not in run.tape.looks:
            reason = "no batch whose columns all lie farther from zero than their values lie apart"
            if run.record(DataRecord).centred:
                near = "some column of each batch lies no farther from zero than its values lie apart"
                return Row(id="TASK/scale", status="pass", text=near)
        return Row(id="TASK/scale", status="not_measured", text=text, reason=reason)
    plain, standard, constant = (look.values[name] for name in ("plain", "standardised", "constant"))
    mean = {name: sum(look.values[name]) / len(plain) for name in ("plain", "standardised", "constant")}
    late = [loss for _, loss, _ in run.record(ForwardsRecord).losses[-3:]]
    # The run itself may have come as far by the end, only more slowly.
    behind = bool(late) and min(late) > max(standard)
    better = all(one < other and one < least for one, other, least in zip(standard, plain, constant, strict=True))
    blind = mean["plain"] >= mean["constant"]
    fails = better and behind and blind
    files = run.record(FilesRecord)
    return Row(
        id="TASK/scale",
        status="fail" if fails else "evidence",
        basis="controlled" if fails else None,
        text=f"every column lies farther from zero than its values lie apart; {scale.STEPS} further steps reach "
        f"{mean['plain']:.4f} on unseen batches, with each column standardised {mean['standardised']:.4f} "
        f"(a constant output {mean['constant']:.4f})",
        values={**mean},
        where=[*files.configuration(), *files_or_loader(run)][:3] if fails else [],
        step=1 if fails else None,
    )


def _item(run: Observation, record: DataRecord) -> Row:
    found, reason = looked(run, "item")
    text = "an item of the dataset, read twice with the same random numbers"
    if reason is not None or not found:
        return Row(id="TASK/item", status="not_measured", text=text, reason=reason or "no dataset was seen")
    if found["equal"]:
        return Row(id="TASK/item", status="pass", text=f"{text}, is the same", values={"equal": True})
    if not found["corrupted"]:
        text += ", differs: it draws numbers of its own, or keeps a state"
        return Row(id="TASK/item", status="evidence", text=text, values={"equal": False})
    again = [loader for loader in record.loaders if loader.trains and _rereads(loader)]
    site = [Site(**found["site"])] if found["site"] is not None else []
    made = [loader.made for loader in again if loader.made is not None]
    return Row(
        id="TASK/item",
        status="fail" if again else "evidence",
        basis="exact" if again else None,
        text="reading an item changes what is stored: each further read gives another value, and with the memory put "
        "back the first one comes again",
        values={"equal": False, "reads": max((max(loader.drawn.values()) for loader in again), default=1)},
        where=[*site, *made][:3],
        step=1 if again else None,
    )


def _rereads(loader: LoaderEntry) -> bool:
    """Whether this process reads an item more than once: workers change copies of their own."""
    return loader.workers == 0 and bool(loader.drawn) and max(loader.drawn.values()) > 1


def _coverage(run: Observation, record: DataRecord) -> Row:
    found, reason = looked(run, "repeated")
    text = "how many different rows the dataset's items are"
    if reason is not None or not found:
        return Row(id="TASK/coverage", status="not_measured", text=text, reason=reason or "no dataset was read")
    items, total, distinct, held = found["items"], found["total"], found["distinct"], found["held"]
    text = f"{distinct} different rows in {items} of {total} items"
    values = {"items": items, "total": total, "distinct": distinct, "held": held}
    batch = max((loader.batch_size or 0 for loader in record.loaders if loader.trains), default=0)
    evaluated = record.evaluated() or next(iter(record.evaluation.values()), None)
    more = evaluated is not None and evaluated.rows > distinct
    # A dataset may repeat its rows by right (oversampling, a fixed number of steps). One whose items, more than it
    # holds rows, are fewer different ones than a single batch or the evaluation has, leaves the others out by accident.
    few = held is not None and total > held and items >= held and (distinct < batch or more) and 2 * distinct < held
    return Row(
        id="TASK/coverage",
        status="suspected" if few else "evidence" if distinct < items else "pass",
        text=text + (f", of {held} that it holds" if held is not None else ""),
        values=values,
        where=_index_files(run) if few else [],
        step=1 if few else None,
    )


def _index_files(run: Observation) -> list[Site]:
    """Files that hold an order rather than rows cannot be told from others: the smallest first."""
    files = [file for file in run.record(FilesRecord).files if file.kind not in ("configuration", "image")]
    smallest = sorted(files, key=lambda file: file.size if file.size >= 0 else 1 << 62)
    return [file.place() for file in smallest[:3]] or files_or_loader(run)


def _empty(run: Observation, record: DataRecord) -> Row | None:
    found, reason = looked(run, "still")
    text = "stored rows of an input that are all zero"
    if reason is not None or not found:
        return Row(id="TASK/empty", status="not_measured", text=text, reason=reason or "no stored rows were read")
    trained = record.trained()
    chunks = trained.chunks if trained is not None else []
    total, batch = found["total"], max((chunk.rows for chunk in chunks), default=0)
    started = [start for start in found["zero_from"] if start is not None]
    # An export that stopped in its first rows. An input that is zero in every row, or in some of them here and there,
    # may be a state that starts at zero, a modality that not every example has.
    stopped = [start for start in started if 0 < start < min(batch, total - 1)]
    fed = any(_all_zero(chunk) for chunk in chunks)
    if not stopped or not fed:
        zero = sum(total - start for start in started)
        return Row(
            id="TASK/empty",
            status="evidence" if zero else "pass",
            text=f"{zero} of {total} stored rows of an input are zero up to the last one" if zero else f"no {text}",
            values={"zero_from": started, "rows": total},
        )
    return Row(
        id="TASK/empty",
        status="fail",
        basis="exact",
        text=f"an input is exactly zero in every stored row from row {stopped[0]} on ({total} rows), and whole batches "
        "of it were trained on",
        values={"zero_from": stopped, "rows": total},
        where=files_or_loader(run),
        step=1,
    )


def _all_zero(chunk: Chunk) -> bool:
    return any(tensor.is_floating_point() and not bool(tensor.any()) for tensor in chunk.inputs)


def _order(run: Observation, record: DataRecord) -> Row | None:
    """Batches of one class each, class after class, from a loader that does not shuffle."""
    pairs = record.trained()
    text = "classes in the order in which the rows come"
    if pairs is None:
        return None
    loaders = {loader.serial: loader for loader in record.loaders if not loader.shuffles and not loader.workers}
    chunks = [chunk for chunk in pairs.chunks if chunk.loader in loaders]
    if not chunks:
        return Row(id="TASK/order", status="pass", text="the loader says that it shuffles", values={"shuffles": True})
    first = [chunk for chunk in chunks if chunk.loader == chunks[0].loader]
    labels = [chunk.target for chunk in first]
    if any(label is None or label.dim() != 1 or label.is_floating_point() for label in labels):
        return Row(id="TASK/order", status="not_measured", text=text, reason="the targets are no class indices")
    whole = [int(label[0]) for label in labels if label is not None and bool((label == label[0]).all())]
    flat = [int(value) for label in labels if label is not None for value in label.tolist()]
    loader = loaders[first[0].loader or 0]
    flat = flat[: loader.length] if loader.length else flat
    changes = sum(one != other for one, other in itertools.pairwise(flat))
    classes = len(set(flat))
    runs = sum(whole.count(label) > 1 for label in set(whole))
    # Passed through once, they may be a stream whose order is what is studied.
    again = loader.passes > 1 and loader.sampler == "SequentialSampler"
    sorted_rows = classes > 1 and changes == classes - 1 and runs > 1 and again and not _are_steps(run)
    return Row(
        id="TASK/order",
        status="suspected" if sorted_rows else "evidence",
        text=f"{len(whole)} of {len(labels)} batches hold one class"
        + (
            f": the rows come sorted by class ({classes} so far), and the loader does not shuffle"
            if sorted_rows
            else ""
        ),
        values={"one_class": len(whole), "batches": len(labels), "classes": classes},
        where=[loader.made] if sorted_rows and loader.made is not None else [],
        step=1 if sorted_rows else None,
    )


def _are_steps(run: Observation) -> bool:
    """Whether rows move the answers to other rows: they are steps of one series, read in the order of time."""
    look = run.look("rows").values
    return look is not None and any(len(moved) > 1 for moved in look["moved"])


def _repeats_itself(loader: LoaderEntry, batch: WorkerBatch) -> bool:
    """Whether the worker that gave this batch gave the same contents once more."""
    own = [one for one in loader.shared if (one.position - batch.position) % loader.workers == 0]
    return sum(one.content == batch.content for one in own) > 1


def _workers(record: DataRecord) -> Row | None:
    """Two workers of one pass that gave the same batch for different row numbers, or from a stream."""
    shared = [loader for loader in record.loaders if loader.trains and loader.shared]
    if not shared:
        return None
    for loader in shared:
        for place, batch in enumerate(loader.shared):
            for other in loader.shared[place + 1 :]:
                same_worker = (other.position - batch.position) % loader.workers == 0
                asked_alike = batch.indices is not None and batch.indices == other.indices
                alike = batch.content == other.content and not same_worker and not asked_alike
                # A dataset that gives one row again and again does so in one worker, too.
                if alike and not _repeats_itself(loader, batch):
                    return Row(
                        id="TASK/workers",
                        status="fail",
                        basis="exact",
                        text=f"batches {batch.position} and {other.position} of two workers are equal, bit for bit, "
                        + ("for different rows" if batch.indices is not None else "from one stream"),
                        values={"workers": loader.workers, "batches": [batch.position, other.position]},
                        where=[site for site in (loader.made, loader.iterated) if site is not None],
                        step=1,
                    )
    return Row(
        id="TASK/workers",
        status="pass",
        text=f"the first batches of {shared[0].workers} workers differ",
        values={"workers": shared[0].workers},
    )
