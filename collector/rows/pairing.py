"""TASK/pairing and TASK/convention: whether targets belong to the rows they stand beside, and mean the same throughout.

Both are read off the script's stored rows by probes in a copy of the process, and accuse only where another order of
the same targets, or the opposite labels in one part of the rows, reverse the measurement.
"""

from __future__ import annotations

import re
from collections import defaultdict

from weaklink.collector.evidence import Row, Site, Value
from weaklink.collector.looking_data import batches
from weaklink.collector.rows.data import files_or_loader, looked
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.data import DataRecord
from weaklink.collector.watching.files import FilesRecord


def rows(run: Observation) -> list[Row]:
    """The two rows of a script; where a batch is in hand, TASK/pairing stands in `rows/task.py`."""
    return [] if run.given or run.in_process else [_pairing(run), _convention(run)]


def _pairing(run: Observation) -> Row:
    if (layout := _layout(run)) is not None:
        return layout
    found, reason = looked(run, "pairing")
    text = "whether each target belongs to its input"
    if reason is not None or not found:
        return Row(id="TASK/pairing", status="not_measured", text=text, reason=reason or "no stored rows were read")
    best = max((one for ways in found["scores"].values() for one in ways), key=lambda one: float(one["given"]))
    values: dict[str, Value] = {"score": best["given"], "by_chance": best["best_permuted"], "rows": found["rows"]}
    shown = f"{best['given']:.3f}, the best permutation's {best['best_permuted']:.3f}"
    if found["readable"]:
        text = f"targets can be read off their inputs: a probe's score is {shown}"
        return Row(id="TASK/pairing", status="pass", text=text, values=values)
    text = f"targets can be read off their inputs no better than permuted ones: a probe's score is {shown}"
    beside, _ = looked(run, "beside")
    record, order = beside.get("record"), found["order"]
    # Where rows follow each other in time, a target of the next row is a forecast, and a hard one looks like this; that
    # of a row before is what a model that carries a state is to remember.
    in_time = found["serial"] or found["in_order"]
    if record is None and (order is None or (order["name"].startswith("offset") and in_time)):
        return Row(id="TASK/pairing", status="evidence", text=text, values=values)
    other = record if record is not None else order
    name = f"the {record['field']!r} of the same records" if record is not None else f"the order {order['name']}"
    site = Site(**record["site"]) if record is not None and record["site"] is not None else None
    return Row(
        id="TASK/pairing",
        status="fail",
        basis="controlled",
        text=f"{text}; with {name} it is {other['scores'][0]['given']:.3f}",
        values={**values, "realigned": other["scores"][0]["given"], "order": name},
        where=([site] if site is not None else []) + files_or_loader(run)[: 3 - (site is not None)],
        step=1,
    )


def _layout(run: Observation) -> Row | None:
    """Targets that are laid out along the other dimension of a batch of several views."""
    found = run.look(batches.NAME).values or {}
    if "scores" not in found:
        return None
    best = max((one for ways in found["scores"].values() for one in ways), key=lambda one: float(one["given"]))
    if found["layout"] is None:
        return _of_batches(best) if found["readable"] and looked(run, "pairing")[1] is not None else None
    record = run.record(DataRecord)
    across, along = found["layout"]
    sites = [site for loader in record.loaders if loader.trains for site in (loader.collated, loader.made)]
    trained = record.trained()
    sites += [trained.site] if trained is not None else []
    return Row(
        id="TASK/pairing",
        status="fail",
        basis="controlled",
        text=f"targets of a batch can be read off its inputs no better than permuted ones ({best['given']:.3f}); taken "
        f"as a grid of {across} by {along} and read by columns they can ({found['moved'][0]['given']:.3f})",
        values={"score": best["given"], "realigned": found["moved"][0]["given"], "across": across, "along": along},
        where=[site for site in sites if site is not None][:3],
        step=1,
    )


def _of_batches(best: dict[str, float]) -> Row:
    """Where the stored rows could not be read, the batches themselves may show it."""
    return Row(
        id="TASK/pairing",
        status="pass",
        text=f"targets can be read off their inputs in the batches: a probe's score is {best['given']:.3f}, the best "
        f"permutation's {best['best_permuted']:.3f}",
        values={"score": best["given"], "by_chance": best["best_permuted"]},
    )


def _convention(run: Observation) -> Row:
    found, reason = looked(run, "conventions")
    text = "whether labels mean the same in every part of the rows"
    if reason is not None or not found:
        return Row(id="TASK/convention", status="not_measured", text=text, reason=reason or "no stored rows were read")
    groups = found["groups"]
    told = [group for group in groups if group is not None]
    values: dict[str, Value] = {"blocks": len(groups), "told": len(told), "opposite": told.count(1)}
    if "across" not in found:
        agree = len(told) == len(groups) and not told.count(1)
        text = f"a probe of one block of rows reads the labels of {len(told) - 1} of {len(groups) - 1} others"
        return Row(id="TASK/convention", status="pass" if agree else "evidence", text=text, values=values)
    # Read one after the other, rows are a stream whose concept may drift, and a learner that follows it has both.
    stream = found["in_order"]
    apart = found["inverted"] and found["mended"] and not found["visible"] and not stream
    text = (
        f"in {told.count(1)} of {len(groups)} blocks of rows a probe of the others reads the opposite labels "
        f"({found['across'][0]:.3f}); with those turned around a probe over all reads {found['turned'][0]:.3f}, "
        f"as they are {found['pooled'][0]:.3f}"
    )
    return Row(
        id="TASK/convention",
        status="fail" if apart else "evidence",
        basis="controlled" if apart else None,
        text=text
        + (", though an input tells which blocks it is from" if found["visible"] else "")
        + (", in rows that are read one after the other" if stream else ""),
        values={
            **values,
            "across": max(found["across"]),
            "turned": min(found["turned"]),
            "pooled": max(found["pooled"]),
            "visible": found["visible"],
        },
        where=_shards(run, groups, found["starts"]) if apart else [],
        step=1 if apart else None,
    )


def _shards(run: Observation, groups: list[int | None], starts: list[int]) -> list[Site]:
    """Files of the opposite blocks: where several have one name but for a number, and as many rows each."""
    files = run.record(FilesRecord).data()
    alike: dict[str, list[Site]] = defaultdict(list)
    for site in files:
        alike[re.sub(r"\d+", "#", site.file)].append(site)
    shards = max(alike.values(), key=len, default=[])
    if len(shards) < 2:
        return files_or_loader(run)
    total = starts[-1] + (starts[-1] - starts[-2])
    opposite = [start for start, group in zip(starts, groups, strict=True) if group == 1]
    named = dict.fromkeys(min(start * len(shards) // total, len(shards) - 1) for start in opposite)
    return [shards[shard] for shard in named][:3]
