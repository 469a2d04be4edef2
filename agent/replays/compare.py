"""Two receipts of one replay, field by field. Pure functions: nothing is run and nothing is read here."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from weaklink.agent.drill.shapes import Drill
from weaklink.agent.record.canonical import digest
from weaklink.agent.replays.receipt import Receipt
from weaklink.agent.replays.story_receipt import StoryReceipt
from weaklink.agent.reporters.json_report import plain
from weaklink.agent.reporters.text import is_digest
from weaklink.collector.evidence import Environment
from weaklink.collector.table.text import printable

# Relative. Another torch build sums in another order and moves the last digits of float32; a fault moves the first.
TOLERANCE = 1e-4
# With these alike a run is the same bits; where one differs, none of the numbers has to be.
_BITS = ("torch", "platform", "devices", "threads", "deterministic")
# With these alike too the context is the same.
_CONTEXT = ("python", "pins")
_VALUE_LIMIT = 120


@dataclass
class Comparison:
    """What differs and what was not compared, one sentence each; `exact` says whether numbers had to agree in bits."""

    exact: bool
    differences: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not self.differences


def compare(stored: Receipt, now: Receipt) -> Comparison:
    """Everything in which a new run differs from the stored receipt.

    Numbers, and SHA-256 over them, are compared bit for bit on the same torch, platform, devices and threads. Elsewhere
    floats may differ by `TOLERANCE`, and neither noise floors (which are rounding) nor those SHA-256 are compared. The
    claim is the same on every machine and compared in every case, the context where the environment is the same.
    """
    moved = _moved(stored.environment, now.environment, _BITS)
    found = Comparison(exact=not moved)
    if moved:
        found.skipped.append(f"bits, so floats may differ by {TOLERANCE:g} relative: {'; '.join(moved)}")
        found.skipped.append("noise floors, and SHA-256 over measured values: they have nothing but bits")
    found.differences += _edited(stored)
    found.differences += _frozen(stored, now)
    if stored.frozen is not None and now.frozen is not None:
        if others := _moved(stored.environment, now.environment, (*_BITS, *_CONTEXT)):
            found.skipped.append(f"context: {'; '.join(others)}")
        else:
            found.differences += _differ("context", stored.frozen.context, now.frozen.context, True)
    before, after = _sections(stored), _sections(now)
    for label in dict.fromkeys([*before, *after]):
        found.differences += _differ(label, before.get(label, _MISSING), after.get(label, _MISSING), found.exact)
    return found


def compare_stories(stored: StoryReceipt, now: StoryReceipt) -> Comparison:
    """Everything in which a story that was told again differs from its stored receipt, each diagnosis in it compared
    as `compare` does."""
    found = compare(stored.first, now.first)
    for script in dict.fromkeys([*stored.diagnosed, *now.diagnosed]):
        if script not in stored.diagnosed or script not in now.diagnosed:
            which = "receipt" if script in stored.diagnosed else "now"
            found.differences.append(f"{script}: only {which} has a diagnosis of it")
            continue
        inner = compare(stored.diagnosed[script], now.diagnosed[script])
        found.differences += [f"{script}: {text}" for text in inner.differences]
    if stored.first_prediction.get("claim_sha256") != _claim_of(stored.first):
        found.differences.append("first_prediction: the receipt's digest is not that of its own claim; it was edited")
    before, after = plain(stored), plain(now)
    if not found.exact:
        for body in (before, after):  # the same values as the receipts of the diagnoses: of this machine
            body["first_prediction"].pop("context_sha256", None)
    for label in ("first_prediction", "facts", "declared", "went_on", "reference", "attempts", "events", "check"):
        found.differences += _differ(label, before[label], after[label], found.exact)
    return found


def compare_drills(stored: Drill, now: Drill) -> Comparison:
    """Everything in which a drill differs from its stored receipt; not the words around the numbers."""
    moved = _moved(stored.environment, now.environment, _BITS)
    found = Comparison(exact=not moved)
    if moved:
        found.skipped.append(f"bits, so floats may differ by {TOLERANCE:g} relative: {'; '.join(moved)}")
    before, after = (_without_words(plain(drill, exclude={"environment"})) for drill in (stored, now))
    for label in dict.fromkeys([*before, *after]):
        exact = found.exact or label == "sources"
        found.differences += _differ(label, before.get(label, _MISSING), after.get(label, _MISSING), exact)
    return found


def _without_words(body: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in body.items() if name not in ("reasons", "limits", "advice", "over_seeds")}
    for part in ("measurement", "control"):
        if kept[part] is not None:
            kept[part] = {name: value for name, value in kept[part].items() if name not in ("text", "question")}
    return kept


class _Missing:
    """Stands for what one of the two does not have."""


_MISSING = _Missing()


def _moved(stored: Environment, now: Environment, names: tuple[str, ...]) -> list[str]:
    """What differs between two environments, of these fields."""
    pairs = [(name, getattr(stored, name), getattr(now, name)) for name in names]
    return [f"{name} was {_text(before)}, is {_text(after)}" for name, before, after in pairs if before != after]


def _edited(stored: Receipt) -> Iterator[str]:
    """Digests that are not those of the claim and the context beside them: somebody edited the receipt."""
    if stored.frozen is None:
        return
    frozen = stored.frozen
    for name, kept, body in (
        ("claim", frozen.claim_sha256, frozen.claim),
        ("context", frozen.context_sha256, frozen.context),
    ):
        try:
            real = digest(body)
        except ValueError as error:
            yield f"{name} digest: the receipt's {name} has no canonical form ({printable(str(error))}); it was edited"
            continue
        if real != kept:
            yield f"{name} digest: receipt {kept}, but its own {name} gives {real}; it was edited"


def _frozen(stored: Receipt, now: Receipt) -> list[str]:
    """Whether anything was frozen, and the claim, digest and body: the same on every machine."""
    if stored.frozen is None or now.frozen is None:
        before, after = _claim_of(stored), _claim_of(now)
        return [] if before == after else [f"claim: receipt {before}, now {after}"]
    differences = list(_differ("claim", stored.frozen.claim, now.frozen.claim, True))
    if stored.frozen.claim_sha256 != now.frozen.claim_sha256:
        differences.append(f"claim digest: receipt {stored.frozen.claim_sha256}, now {now.frozen.claim_sha256}")
    return differences


def _claim_of(receipt: Receipt) -> str:
    return "none frozen" if receipt.frozen is None else receipt.frozen.claim_sha256


def _sections(receipt: Receipt) -> dict[str, Any]:
    """The receipt as labelled parts: rows by their id, predictions by mechanism and measurement, the rest by name."""
    body = plain(receipt, exclude={"schema_", "environment", "frozen"})
    parts: dict[str, Any] = {name: body[name] for name in ("subject", "branch", "outcome", "losses", "fingerprint")}
    parts["first divergence"] = body["first_divergence"]
    parts |= body["rows"]
    parts |= {"answer": body["answer"], "experiment": body["experiment"], "lead mechanism": body["lead"]}
    parts |= {f"mechanism {name}": status for name, status in body["mechanisms"].items()}
    for mechanism, predictions in body["predictions"].items():
        parts |= {f"prediction {mechanism} {name}": outcome for name, outcome in predictions.items()}
    parts |= {f"stay {name}": outcome for name, outcome in body["stays"].items()}
    parts |= {f"rerun {role}": rerun for role, rerun in body["reruns"].items()}
    return parts | {"verdict": body["verdict"], "status": body["status"]}


def _differ(label: str, before: Any, after: Any, exact: bool, path: str = "") -> Iterator[str]:
    """One sentence for every leaf in which two values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            inner = f"{path}.{name}" if path else str(name)
            yield from _differ(label, before.get(name, _MISSING), after.get(name, _MISSING), exact, inner)
    elif _entries(before) and _entries(after) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differ(label, one, other, exact, f"{path}[{index}]")
    elif not _same(before, after, exact, path):
        name = printable(f"{label} {path}".rstrip())
        yield f"{name}: receipt {_text(before)}, now {_text(after)}"


def _entries(value: Any) -> bool:
    """Whether this is a list of things that have parts of their own; a list of numbers or names is one value."""
    return isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value)


def _same(before: Any, after: Any, exact: bool, path: str) -> bool:
    if isinstance(before, _Missing) or isinstance(after, _Missing):
        return before is after
    # As text, because Python takes 0, -0.0 and False for equal.
    if json.dumps(before) == json.dumps(after):
        return True
    if exact:
        return False
    if path == "floor" or path.endswith((".worst", ".worst_at")) or (_is_digest(before) and _is_digest(after)):
        return True
    if isinstance(before, float) and isinstance(after, float):
        return math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=0.0)
    return False


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and is_digest(value)


def _text(value: Any) -> str:
    if isinstance(value, _Missing):
        return "has none"
    return printable(json.dumps(value, ensure_ascii=False), _VALUE_LIMIT)
