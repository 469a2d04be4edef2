"""OWNERSHIP/isolation: whose gradients did each optimizer step consume?"""

from __future__ import annotations

from weaklink.collector.declared import Objective
from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.intended import matching, nearest, unmatched
from weaklink.collector.rows.observation import Observation, names, names_of
from weaklink.collector.watching.isolation import IsolationRecord

ROW = "OWNERSHIP/isolation"
TEXT = "gradients by the backward line they came from"
UNDECLARED = "what each may touch is not declared ([objectives] in weaklink.toml)"


def rows(run: Observation) -> list[Row]:
    """Declared objectives are judged; without a declaration it is only said who fed what."""
    record = run.record(IsolationRecord)
    if not record.feeds:
        reason = "backward was never called" if not run.tape.backwards else "needs a script's own loop"
        return [Row(id=ROW, status="not_measured", text=TEXT, reason=reason)]
    return [_judged(run, record) if run.declared.objectives else _described(run, record)]


def _described(run: Observation, record: IsolationRecord) -> Row:
    feeds = list(record.feeds.values())
    if len(feeds) == 1:
        text = "every gradient comes from one backward line"
        return Row(id=ROW, status="pass", text=text, values={"lines": 1, "mixed": 0})
    mixed = _mixed(record)
    parts = [f"{place} feeds {len(feed.fed)}" for place, feed in list(record.feeds.items())[:4]]
    text = f"{len(feeds)} backward lines; {', '.join(parts)}; {len(mixed)} parameters were stepped with more than one's"
    return Row(
        id=ROW,
        status="evidence",
        text=f"{text}; {UNDECLARED}",
        values={"lines": len(feeds), "mixed": len(mixed), "uses": _uses(run, record)},
    )


def _mixed(record: IsolationRecord) -> set[int]:
    """Parameters that one optimizer stepped with gradients of several lines. A shared trunk is meant to be."""
    seen: dict[tuple[int, int], set[str]] = {}
    for (optimizer, place), use in record.uses.items():
        for serial in use.parameters:
            seen.setdefault((optimizer, serial), set()).add(place)
    return {serial for (_, serial), places in seen.items() if len(places) > 1}


def _uses(run: Observation, record: IsolationRecord) -> list[str]:
    return [
        f"{place} -> {run.optimizers[optimizer].class_name}#{optimizer}: {len(use.parameters)}"
        for (optimizer, place), use in list(record.uses.items())[:20]
    ]


def _judged(run: Observation, record: IsolationRecord) -> Row:
    found: list[str] = []
    where: list[Site] = []
    steps: list[int] = []
    unseen: list[str] = []
    for name, objective in run.declared.objectives.items():
        reason = _not_seen(run, record, name, objective)
        if reason is not None:
            unseen.append(reason)
            continue
        for (optimizer, place), use in record.uses.items():
            if run.declared.objective_at(record.feeds[place].site) != name:
                continue
            touched = [run.by_serial(serial) for serial in sorted(use.parameters)]
            wrong = [e for e in touched if names_of(e) and not matching(e, objective.parameters)]
            if wrong:
                held = run.optimizers[optimizer]
                found.append(f"{held.class_name} stepped {names(wrong, 3)} with the gradient of {name} ({place})")
                where += [site for site in (record.feeds[place].site, use.site, held.built) if site is not None]
                steps.append(use.step)
    if not record.uses:
        unseen.append("no sampled step used a gradient as a backward had left it")
    if not found and unseen:
        return Row(id=ROW, status="not_measured", text=TEXT, reason="; ".join(unseen))
    text = "; ".join([*found[:3], *unseen]) if found else _kept(run, record)
    return Row(
        id=ROW,
        status="fail" if found else "pass",
        basis="declared" if found else None,
        text=text,
        values={"objectives": len(run.declared.objectives), "trespasses": found[:20], "uses": _uses(run, record)},
        where=_once(where)[:3],
        step=min(steps, default=None),
    )


def _kept(run: Observation, record: IsolationRecord) -> str:
    objectives = len(run.declared.objectives)
    count = len({serial for use in record.uses.values() for serial in use.parameters})
    return f"{objectives} declared objectives; {count} parameters were stepped with none but their own gradients"


def _not_seen(run: Observation, record: IsolationRecord, name: str, objective: Objective) -> str | None:
    """Why nothing can be said about an objective: its line called no backward, or a pattern names no parameter."""
    missing = unmatched(run, objective.parameters)
    if missing:
        return f"{name}: {missing[0]!r} matches no parameter; nearest: {nearest(run, missing[0])}"
    if not any(run.declared.objective_at(feed.site) == name for feed in record.feeds.values()):
        seen = ", ".join(list(record.feeds)[:4])
        return f"{name}: no backward at {' or '.join(objective.sites) or 'any other line'}; seen: {seen}"
    return None


def _once(sites: list[Site]) -> list[Site]:
    return list({site.place: site for site in reversed(sites)}.values())[::-1]
