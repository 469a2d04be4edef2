"""Several processes of one run, by the evidence that each of them left: what should be equal, and what should not.

Torch-free. Ranks are compared where they say themselves that they are replicas: a live `DistributedDataParallel` over
all of them, or a `DistributedSampler` that deals one data set out to them. Without either, ranks may well be an
ensemble, the folds of a cross-validation, or parts of one model: what differs then is told, and accuses nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from weaklink.collector.errors import EvidenceError
from weaklink.collector.evidence import (
    Evidence,
    Replica,
    ReplicaStep,
    Row,
    Site,
    Status,
    mark_downstream,
    read_evidence,
)

# Steps that must agree before it is said that ranks share their data: a first batch may be a warm-up.
STEPS_FOR_SAME_DATA = 3
_SEVERITY: dict[Status, int] = {"fail": 2, "suspected": 1, "pass": 0, "evidence": 0, "not_measured": 0}
_NAMES_SHOWN = 4


def is_run_folder(path: Path) -> bool:
    """Whether it is a folder in which several ranks left their evidence."""
    return path.is_dir() and any(path.glob("rank-*.json"))


def read_stored(path: Path) -> Evidence:
    """An evidence file, or the folder in which the ranks of one run left theirs.

    Raises:
        EvidenceError: It cannot be read.
    """
    return read_run(path) if path.is_dir() else read_evidence(path)


def read_run(folder: Path) -> Evidence:
    """The evidence of a whole run: that of its first rank, the other ranks' divergences, and the ranks compared.

    A file that cannot be read, or belongs to another launch, is left out and named in `problems`, as a rank without a
    file is.

    Raises:
        EvidenceError: None of the files can be read.
    """
    found: list[tuple[Path, Evidence]] = []
    problems: list[str] = []
    for path in sorted(folder.glob("rank-*.json"), key=lambda path: (len(path.name), path.name)):
        try:
            found.append((path, read_evidence(path)))
        except EvidenceError as error:
            problems.append(f"{path.name} was left out: {error.message}")
    if not found:
        raise EvidenceError(
            "No evidence of any rank can be read.",
            about=str(folder),
            hint=problems[0],
        )
    run = _launch(max(found, key=lambda item: item[0].stat().st_mtime_ns)[1])
    problems += [f"{path.name} was left out: it is of another launch" for path, one in found if _launch(one) != run]
    return merged([one for _, one in found if _launch(one) == run], problems)


def merged(ranks: Sequence[Evidence], problems: Sequence[str] = ()) -> Evidence:
    """One evidence of several ranks': rows of the first, with what diverges on others, and the rows that compare them.

    Args:
        ranks: At least one, each with its `replica`, of one launch.
        problems: What to say besides.
    """
    replicas = [one.replica for one in ranks if one.replica is not None]
    missing = _missing(replicas)
    said = [f"rank {number} left no evidence" for number in missing]
    said += [f"rank {_number(one)}: {problem}" for one in ranks for problem in one.problems]
    first = ranks[0]
    lost = [f"rank {number}" for number in missing]
    lost += [f"rank {_number(one)}" for one in ranks if _broke_off(one)]
    return first.model_copy(
        update={
            "rows": mark_downstream([*(_excused(row, lost) for row in _worst_rows(ranks)), *compare(ranks)]),
            "problems": [*problems, *said],
            "outcome": first.outcome.model_copy(update={"note": _how_they_ended(ranks, missing)}),
        }
    )


def compare(ranks: Sequence[Evidence]) -> list[Row]:
    """TASK/replicas, GRADIENT/replicas and UPDATE/replicas: data, gradients and parameters of the ranks."""
    replicas = [one.replica for one in ranks if one.replica is not None]
    reason = _cannot_compare(replicas)
    if reason is not None:
        said = (("TASK", "data of the ranks"), ("GRADIENT", "gradients of the ranks"), ("UPDATE", "parameters"))
        return [Row(id=f"{name}/replicas", status="not_measured", text=text, reason=reason) for name, text in said]
    comparison = _Comparison(replicas, list(ranks))
    return [comparison.data(), comparison.gradients(), comparison.parameters()]


class _Comparison:
    """Sampled steps that all ranks have in common, held against each other."""

    def __init__(self, replicas: list[Replica], ranks: list[Evidence]) -> None:
        self._replicas, self._ranks = replicas, ranks
        by_step = [{(step.step, step.optimizer): step for step in replica.steps} for replica in replicas]
        common = sorted(set.intersection(*(set(steps) for steps in by_step)))
        self._steps: list[list[ReplicaStep]] = [[steps[key] for steps in by_step] for key in common]
        everyone = list(range(replicas[0].world_size))
        whole = all(replica.process_group == replica.world_size for replica in replicas)
        own = any(replica.sharded or replica.hooked for replica in replicas)
        exchanged = any(replica.exchanged >= max(1, replica.trainable) for replica in replicas)
        same_names = len({tuple(replica.names) for replica in replicas}) == 1
        self._wrapped = whole and not own and same_names and all(r.wrapped == everyone for r in replicas)
        dealt = all(replica.sampler for replica in replicas) and not any(replica.wrapped for replica in replicas)
        self._replicated = self._wrapped or (whole and not own and same_names and dealt)
        # Whoever sends as many numbers as the model has may average parameters, now and then or at the end.
        self._exchanged = exchanged
        self._same_names = same_names
        absent = _missing(replicas)
        self._absent = f"; no evidence of rank {', '.join(map(str, absent))}" if absent else ""

    def data(self) -> Row:
        """Whether the ranks see different data."""
        steps = [ranks for ranks in self._steps if all(any(step.inputs) for step in ranks)]
        if not steps:
            return _unread("TASK", "data of the ranks", "no inputs were read at a step that the ranks have in common")
        batches = [[(tuple(step.inputs), step.targets) for step in ranks] for ranks in steps]
        alike = self._always_alike(batches)
        if not alike:
            text = f"the ranks saw different data at {sum(len(set(b)) > 1 for b in batches)} of {len(batches)} steps"
            return self._row("TASK", "pass", text, {"steps": len(batches)})
        # The same batch at every step is no sign: it may be all the data there is.
        changing = len({batch[0] for batch in batches}) >= STEPS_FOR_SAME_DATA
        text = f"ranks {_listed(alike)} saw the same inputs and targets at all {len(batches)} sampled steps"
        status: Status = "fail" if self._wrapped and changing else "evidence"
        where = self._sites("loader", "called") if status == "fail" else []
        return self._row("TASK", status, text, {"steps": len(batches), "alike": alike}, where, steps[0][0].step)

    def gradients(self) -> Row:
        """Whether the ranks step the same gradients."""
        steps = [ranks for ranks in self._steps if all(step.gradients for step in ranks)]
        if not steps:
            return _unread("GRADIENT", "gradients of the ranks", "no gradient at a step that the ranks have in common")
        differing = [ranks for ranks in steps if _differ(ranks, lambda step: step.gradients)]
        if not differing:
            text = f"equal on all {len(self._replicas)} ranks at {len(steps)} sampled steps"
            return self._row("GRADIENT", "pass", text, {"steps": len(steps), "differing": 0})
        names = self._names(differing, lambda step: step.gradients_by_parameter)
        text = f"the ranks stepped different gradients at {len(differing)} of {len(steps)} sampled steps"
        status: Status = "fail" if self._drifted_apart() else "evidence"
        values: dict[str, int | list[str] | str] = {
            "steps": len(steps),
            "differing": len(differing),
            "parameters": names,
            "wrapped": "yes" if self._wrapped else "no",
        }
        if status == "fail":
            text += "; nothing reduced them" if not self._wrapped else "; DistributedDataParallel did not reduce them"
        else:
            text += f"; {self._why_not()}"
        where = self._sites("no_sync", "called", "stepped") if status == "fail" else []
        return self._row("GRADIENT", status, text + _some(names), values, where, differing[0][0].step)

    def parameters(self) -> Row:
        """Whether the ranks hold the same parameters."""
        steps = [ranks for ranks in self._steps if all(step.before and step.after for step in ranks)]
        executed = [one.outcome.steps for one in self._ranks]
        if not steps:
            return _unread("UPDATE", "parameters of the ranks", "no sampled step that the ranks have in common")
        differing = [ranks for ranks in steps if _differ(ranks, lambda step: step.after)]
        values: dict[str, int | list[str] | list[int] | str] = {
            "steps": len(steps),
            "differing": len(differing),
            "executed": executed,
        }
        counts = "" if len(set(executed)) == 1 else f"; steps executed: {_listed(executed)}"
        if not differing:
            text = f"equal on all {len(self._replicas)} ranks after {len(steps)} sampled steps{counts}"
            return self._row("UPDATE", "pass", text, values)
        values["parameters"] = names = self._names(differing, lambda step: step.after_by_parameter)
        text = f"the ranks differ after {len(differing)} of {len(steps)} sampled steps"
        from_the_start = _differ(steps[0], lambda step: step.before)
        apart = self._drifted_apart() or self._unlike_under_one_gradient(from_the_start)
        text += " and did before the first one" if from_the_start else ""
        text += "" if apart else f"; {self._why_not()}"
        where = self._sites("no_sync", "wrapped", "stepped") if apart else []
        status: Status = "fail" if apart else "evidence"
        return self._row("UPDATE", status, text + _some(names) + counts, values, where, differing[0][0].step)

    def _drifted_apart(self) -> bool:
        """Replicas by their own word that began equal, stepped different gradients, and were never brought together."""
        steps = [ranks for ranks in self._steps if all(step.before and step.after for step in ranks)]
        if not self._replicated or self._exchanged or not steps or _differ(steps[0], lambda step: step.before):
            return False
        differing = [index for index, ranks in enumerate(steps) if _differ(ranks, lambda step: step.gradients)]
        if not differing or not all(step.gradients for step in steps[differing[0]]):
            return False
        # Averaging now and then (local SGD) makes them equal again before a later step.
        later = steps[differing[0] + 1 :]
        return bool(later) and all(_differ(ranks, lambda step: step.before) for ranks in later)

    def _unlike_under_one_gradient(self, from_the_start: bool) -> bool:
        """Replicas by their own word, one reduced gradient at every step, and parameters that are never equal.

        Ranks that began alike may part by their devices' last digits: then the devices must be of one kind.
        """
        steps = [ranks for ranks in self._steps if all(step.gradients for step in ranks)]
        if (
            not self._replicated
            or len(steps) < 2
            or any(_differ(ranks, lambda step: step.gradients) for ranks in steps)
        ):
            return False
        if any(not _differ(ranks, lambda step: step.after) for ranks in steps):
            return False
        devices = {(tuple(sorted(set(one.environment.devices))), one.environment.torch) for one in self._ranks}
        return from_the_start or len(devices) == 1

    def _always_alike(self, batches: list[list[tuple[tuple[str, ...], str]]]) -> list[int]:
        """The first ranks that had equal data at every step, by their numbers."""
        histories: dict[tuple[object, ...], list[int]] = {}
        for position, replica in enumerate(self._replicas):
            histories.setdefault(tuple(batch[position] for batch in batches), []).append(replica.rank)
        return next((alike for alike in histories.values() if len(alike) > 1), [])

    def _why_not(self) -> str:
        if not self._same_names:
            return "they hold other parameters each"
        if any(replica.hooked for replica in self._replicas):
            return "a communication hook decides what is reduced"
        if any(replica.sharded for replica in self._replicas):
            return "parameters are sharded"
        if self._replicated and self._exchanged:
            return "the script sends tensors between the ranks itself"
        if self._replicated:
            return "they did not begin equal, or became equal again, or too few steps were seen"
        return "neither DistributedDataParallel over all ranks nor a DistributedSampler says that they are replicas"

    def _names(self, differing: list[list[ReplicaStep]], part: Callable[[ReplicaStep], list[str]]) -> list[str]:
        """Parameters that differ at the first of these steps of which single ones were kept."""
        for ranks in differing:
            lists = [part(step) for step in ranks]
            if all(lists) and len({len(one) for one in lists}) == 1:
                named = zip(self._replicas[0].names, *lists, strict=False)
                return [name.partition(".")[2] for name, *found in named if len(set(found)) > 1]
        return []

    def _sites(self, *keys: str) -> list[Site]:
        sites = [replica.sites[key] for key in keys for replica in self._replicas if key in replica.sites]
        return list({(site.file, site.line): site for site in sites}.values())[:3]

    def _row(
        self,
        boundary: str,
        status: Status,
        text: str,
        values: Mapping[str, int | str | list[str] | list[int]],
        where: Sequence[Site] = (),
        step: int | None = None,
    ) -> Row:
        return Row(
            id=f"{boundary}/replicas",
            status=status,
            basis="exact" if status == "fail" else None,
            text=text + self._absent,
            values={**values},
            where=list(where),
            step=step if status == "fail" else None,
        )


def _unread(boundary: str, text: str, reason: str) -> Row:
    return Row(id=f"{boundary}/replicas", status="not_measured", text=text, reason=reason)


def _differ(ranks: list[ReplicaStep], part: Callable[[ReplicaStep], str]) -> bool:
    return len({part(step) for step in ranks}) > 1


def _cannot_compare(replicas: list[Replica]) -> str | None:
    if len(replicas) > 1:
        return None
    if not replicas:
        return "no rank says that it is one of several"
    missing = _missing(replicas)
    return f"only rank {replicas[0].rank} left evidence, not rank {', '.join(map(str, missing))}"


def _missing(replicas: list[Replica]) -> list[int]:
    present = {replica.rank for replica in replicas}
    return [number for number in range(replicas[0].world_size) if number not in present] if replicas else []


def _launch(evidence: Evidence) -> str | None:
    return None if evidence.replica is None else f"{evidence.replica.run} {evidence.replica.world_size}"


def _broke_off(evidence: Evidence) -> bool:
    """Whether a rank was killed, or left in the middle without a word."""
    outcome = evidence.outcome
    return outcome.ended == "killed" or (outcome.ended == "exited" and bool(outcome.exit_code))


def _number(evidence: Evidence) -> int | str:
    return evidence.replica.rank if evidence.replica is not None else "?"


def _how_they_ended(ranks: Sequence[Evidence], missing: list[int]) -> str:
    ends = [f"rank {_number(one)} {one.outcome.ended} after {one.outcome.steps} steps" for one in ranks]
    return "; ".join([*ends, *(f"rank {number} left no evidence" for number in missing)])


def _worst_rows(ranks: Sequence[Evidence]) -> list[Row]:
    """Each row as the first rank has it, or, where it diverges on another one only or more, as that one has it."""
    worst: dict[str, Row] = {}
    for one in ranks:
        for row in one.rows:
            known = worst.get(row.id)
            if known is None or _SEVERITY[row.status] > _SEVERITY[known.status]:
                text = row.text if one is ranks[0] else f"rank {_number(one)}: {row.text}"
                worst[row.id] = row.model_copy(update={"text": text})
    return list(worst.values())


def _excused(row: Row, lost: list[str]) -> Row:
    """A rank whose peer is gone raises in its next collective: that is no fault of its own."""
    if row.label != "raised" or not lost:
        return row
    text = f"{row.text}; {', '.join(lost)} ended before its time, of which this may be the consequence"
    return row.model_copy(update={"status": "evidence", "basis": None, "text": text})


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _some(names: list[str]) -> str:
    if not names:
        return ""
    return f": {', '.join(names[:_NAMES_SHOWN])}" + (", ..." if len(names) > _NAMES_SHOWN else "")
