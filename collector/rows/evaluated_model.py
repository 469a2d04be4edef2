"""EVALUATION: is what is evaluated the model that was trained, switched to evaluation?"""

from __future__ import annotations

import re
from typing import Any

from weaklink.collector.declared import ModeGap
from weaklink.collector.evaluating.look import LOOK as PAIRS_LOOK
from weaklink.collector.evidence import Row, Site
from weaklink.collector.looking.places import sites
from weaklink.collector.rows.naming import lines_with
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.files import FilesRecord
from weaklink.collector.watching.forwards import ANOTHER, EVALUATION, ForwardsRecord
from weaklink.collector.watching.modes import ModesRecord


def rows(run: Observation) -> list[Row]:
    """Rows from the looks at the last evaluation."""
    return [_mode(run), _dropout(run), _buffers(run), _weights(run)]


def mode_gap_of(run: Observation) -> ModeGap | None:
    """The loss on training batches in both modes, where the look at the last evaluation took it."""
    found, _ = _part(run, "modes", EVALUATION)
    return None if found is None else ModeGap(found["train"], found["eval"], found["modules"])


def _part(run: Observation, name: str, *looks: str) -> tuple[dict[str, Any] | None, str]:
    """One part of the first of these looks that was taken, or None and the reason."""
    reason = "no evaluation of a model of the run was seen after its first step"
    if not run.tape.looks:
        reason = run.look(EVALUATION).problem or reason
    for look in (run.tape.looks[taken] for taken in looks if taken in run.tape.looks):
        found: dict[str, Any] = (look.values or {}).get(name) or {"problem": look.problem}
        if "problem" not in found:
            return found, ""
        reason = str(found["problem"])
    return None, reason


def _mode(run: Observation) -> Row:
    row_id, text = "EVALUATION/mode", "train or eval mode in evaluation"
    found, reason = _part(run, "mode", EVALUATION, ANOTHER)
    if found is None:
        return Row(id=row_id, status="not_measured", text=text, reason=reason)
    if not found["training"] or not found["modules"]:
        text = "train mode, no module that depends on it" if found["training"] else "eval mode"
        return Row(id=row_id, status="pass", text=text, values={"training": found["training"]})
    cost = _cost_of_mode(run)
    if cost is not None:
        return Row(
            id=row_id,
            status="fail",
            basis="controlled",
            text=f"evaluated in train mode, with {', '.join(cost['modules'])} switched on: the score is "
            f"{cost['own']:.4f}, in eval mode {cost['score']:.4f} (better in {cost['better']} rows, worse in "
            f"{cost['worse']}), in training {cost['train']:.4f}",
            values={"training": True, "score": cost["own"], "in_eval_mode": cost["score"]},
            where=_mode_sites(run),
        )
    return Row(
        id=row_id,
        # A generator's pictures, statistics that are taken anew, a mean over dropout: all are asked for in train mode.
        status="evidence",
        text=f"called without gradients in train mode, with {', '.join(found['modules'])} switched on",
        values={"training": True, "modules": list(found["modules"])},
        where=_evaluated_at(run),
    )


def _cost_of_mode(run: Observation) -> dict[str, Any] | None:
    """What train mode costs the evaluated rows, where eval mode makes them as good as training's."""
    values = run.look(PAIRS_LOOK).values or {}
    mode = values.get("mode") or {}
    return {**mode, "own": values["score"], "train": values["train_score"]} if mode.get("explains") else None


def _mode_sites(run: Observation) -> list[Site]:
    """Where the evaluation itself switched to train mode, if it did; else where it calls the model."""
    switched = run.record(ModesRecord).switched
    return [*([switched] if switched is not None else []), *_evaluated_at(run)]


def _dropout(run: Observation) -> Row:
    row_id, text = "EVALUATION/dropout", "whether dropout is switched off in evaluation"
    found, reason = _part(run, "dropout", EVALUATION, ANOTHER)
    if found is None:
        return Row(id=row_id, status="not_measured", text=text, reason=reason)
    calls = found["calls"]
    if not calls:
        return Row(id=row_id, status="pass", text="no dropout drops anything in eval mode")
    record = run.record(ForwardsRecord)
    shown = ", ".join(f"{call['name']} with p {call['p']:g}" for call in calls)
    where = sites([place for call in calls for place in call["where"]])
    if not found["differs"]:
        text = f"two forwards of the same inputs agree bit for bit in eval mode, past {shown}"
        return Row(id=row_id, status="pass", text=text)
    proven = found["silenced"]
    numbers = {
        "p": max(call["p"] for call in calls),
        "differs": found["differs"],
        "single_passes": record.single_passes,
    }
    # Averaging many forwards of one input is what dropout is left on for (Gal and Ghahramani, 2016), and who switches
    # it on in so many words wants it: a generator's noise.
    averaged = record.most_shown > record.single_passes
    asked = all(call["asked"] for call in calls)
    if not proven or averaged or asked or not where or found["denoises"]:
        text = f"drops in eval mode: {shown}" + ("; inputs are shown several times" if averaged else "")
        text += "; the call says training=True" if asked else ""
        return Row(id=row_id, status="evidence", text=text, values=numbers, where=where)
    return Row(
        id=row_id,
        status="fail",
        basis="exact",
        text=f"drops in eval mode, whatever the model's mode: {shown}; two forwards of the same inputs differ, and "
        "agree bit for bit once it is switched off",
        values=numbers,
        where=where[:3],
    )


def _buffers(run: Observation) -> Row:
    row_id, text = "EVALUATION/buffers", "whether running statistics follow the data"
    found, reason = _part(run, "buffers", EVALUATION, ANOTHER)
    if found is None:
        return Row(id=row_id, status="not_measured", text=text, reason=reason)
    if not found["modules"]:
        return _left_behind(run, found)
    named = settings_with(run, "momentum", found.get("momentum"))
    where = (named + sites(found["where"]) + _evaluated_at(run) + configuration(run))[:3]
    numbers: dict[str, Any] = {
        name: found[name] for name in ("modules", "batches", "untouched_count", "momentum", "left") if name in found
    }
    if found["frozen"] and found["eval_mode"]:
        return Row(
            id=row_id,
            status="fail",
            basis="exact",
            text=f"{found['untouched_count']}/{found['modules']} normalisations are evaluated with mean 0 and variance "
            f"1, bit for bit as they began, after {found['batches']} batches in train mode: their momentum is 0",
            values=numbers,
            where=where,
        )
    numbers |= {
        name: sum(found[name]) / len(found[name]) for name in ("kept", "recomputed", "constant") if name in found
    }
    text = (
        f"{found['modules']} normalisations, {found['batches']} batches, {found['left']:.3f} of the initial value left"
    )
    if _lags(found):
        return Row(
            id=row_id,
            status="fail",
            basis="controlled",
            text=f"{text} at momentum {found['momentum']:g}: with them the loss on {len(found['kept'])} training "
            f"batches is {numbers['kept']:.4f} in eval mode, with the plain average over other batches "
            f"{numbers['recomputed']:.4f}",
            values=numbers,
            where=where,
        )
    settled = found["left"] == 0.0 or _keeps_up(found)
    return Row(id=row_id, status="pass" if settled else "evidence", text=text, values=numbers)


def _left_behind(run: Observation, found: dict[str, Any]) -> Row:
    """Statistics of a copy whose parameters follow the training: an average of the weights, most often."""
    row_id = "EVALUATION/buffers"
    if "behind" not in found or not found["initial"]:
        return Row(id=row_id, status="pass", text="no running statistics that training was to move")
    kept, given, constant = found["kept"], found["given"], found["constant"]
    numbers = {"modules": found["behind"], "kept": sum(kept) / len(kept), "given": sum(given) / len(given)}
    learned = all(now < best for now, best in zip(given, constant, strict=True))
    fails = learned and min(kept) > max(given)
    text = (
        f"a copy of the trained model is evaluated, its parameters followed the training and its {found['behind']} "
        f"normalisations did not: mean 0 and variance 1, bit for bit as they began; on {len(kept)} training batches "
        f"its loss is {numbers['kept']:.4f}, with the trained model's statistics {numbers['given']:.4f}"
    )
    return Row(
        id=row_id,
        status="fail" if fails else "evidence",
        basis="controlled" if fails else None,
        text=text,
        values=numbers,
        where=(_evaluated_at(run) + sites(found["where"]))[:3] if fails else [],
    )


def _keeps_up(found: dict[str, Any]) -> bool:
    """Whether no batch is beyond what the statistics of the training give: a plain average, or the trained model's."""
    kept, other = found.get("kept"), found.get("recomputed", found.get("given"))
    if not kept or not other or not found["eval_mode"]:
        return False
    return bool(min(kept) <= max(other))


def _lags(found: dict[str, Any]) -> bool:
    """Whether slower statistics than torch's own cost the model what it learned, on every batch.

    A run of a few steps has statistics that lag by right: there the model has not learned more than a constant either.
    """
    kept, fresh, constant = found.get("kept"), found.get("recomputed"), found.get("constant")
    if (
        not kept
        or not fresh
        or not constant
        or found["momentum"] is None
        or found["momentum"] >= 0.1
        or not found["eval_mode"]
    ):
        return False
    learned = all(now < best for now, best in zip(fresh, constant, strict=True))
    worse = all(now < old for now, old in zip(fresh, kept, strict=True))
    # Beyond the spread over batches: the best batch with the old statistics is worse than the worst with the new.
    return learned and worse and min(kept) > max(fresh)


def _evaluated_at(run: Observation) -> list[Site]:
    record = run.record(ForwardsRecord)
    site = record.evaluation_site or record.other_site
    return [site] if site is not None else []


def configuration(run: Observation) -> list[Site]:
    """The settings that the script read, where they are recorded."""
    return run.record(FilesRecord).configuration()[:2]


def settings_with(run: Observation, word: str, value: float | None) -> list[Site]:
    """Lines of the settings that give this number under a name with this word in it: the code passes it on."""
    record = run.record(FilesRecord)
    if value is None:
        return []
    settings = {file.name for file in record.settings()}
    number = "|".join({re.escape(repr(value)), re.escape(f"{value:g}"), re.escape(repr(value).removeprefix("0"))})
    pattern = rf"{word}\w*[\"']?\s*[:= ]\s*[\"']?({number})\b"
    found = lines_with(record, pattern, f"{word} {value:g} set")
    return [site for site in found if site.file in settings]


def _checkpoints(run: Observation) -> list[Site]:
    return [file.place() for file in run.record(FilesRecord).files if file.kind == "checkpoint"][:2]


def _weights(run: Observation) -> Row:
    row_id, text = "EVALUATION/weights", "whether what is evaluated is what was trained"
    found, reason = _part(run, "weights", ANOTHER, EVALUATION)
    if found is None:
        return Row(id=row_id, status="not_measured", text=text, reason=reason)
    record = run.record(ForwardsRecord)
    if found["same"]:
        if record.trained_root is None:
            reason = "no trained model of the layout of the one that is evaluated is known"
            return Row(id=row_id, status="not_measured", text=text, reason=reason)
        return Row(id=row_id, status="pass", text="the model that is evaluated is the object that is trained")
    numbers = {name: sum(found[name]) / len(found[name]) for name in ("trained", "evaluated", "initial", "constant")}
    numbers |= {"distance": found["distance"], "moved": found["moved"]}
    text = (
        f"another object is evaluated, {found['distance']:.3g} from the trained weights, which moved by "
        f"{found['moved']:.3g}; on {len(found['trained'])} training batches its loss is {numbers['evaluated']:.4f}, "
        f"theirs {numbers['trained']:.4f}, at the beginning {numbers['initial']:.4f}"
    )
    if _stayed_behind(found, numbers) and _is_evaluated_alone(run, record):
        return Row(
            id=row_id,
            status="fail",
            basis="controlled",
            text=text,
            values=numbers,
            where=(([record.other_site] if record.other_site else []) + _checkpoints(run) + configuration(run))[:3],
        )
    kept_up = _learned(found) and min(found["evaluated"]) <= max(found["trained"])
    return Row(id=row_id, status="pass" if kept_up else "evidence", text=text, values=numbers)


def _learned(found: dict[str, Any]) -> bool:
    return all(loss < best for loss, best in zip(found["trained"], found["constant"], strict=True))


def _stayed_behind(found: dict[str, Any], means: dict[str, float]) -> bool:
    """Whether the trained weights learned, and the evaluated ones are nearer to where these began."""
    trained, evaluated = found["trained"], found["evaluated"]
    worse = all(loss > best for loss, best in zip(evaluated, trained, strict=True)) and min(evaluated) > max(trained)
    nearer = means["initial"] - means["evaluated"] < means["evaluated"] - means["trained"]
    # A slow average of the trained weights is on its way in a short run: it has come nearer to them than they began.
    return _learned(found) and worse and nearer and found["distance"] >= found["moved"]


def _is_evaluated_alone(run: Observation, record: ForwardsRecord) -> bool:
    """Whether nobody evaluates the trained model itself, and what is evaluated is not trained.

    A baseline is evaluated beside the trained model; its best weights are chosen by evaluating it.
    """
    if record.trained_root is None or record.trained_root in record.evaluated_roots or record.other_root is None:
        return False
    return not any(e.root == record.other_root and e.owners for e in run.parameters)
