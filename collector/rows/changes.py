"""UPDATE/changes: what was frozen, thawed, replaced or added while the training went on, and when."""

from __future__ import annotations

from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.observation import Observation, names
from weaklink.collector.watching.changes import Change, ChangesRecord
from weaklink.collector.watching.parameters import ParameterEntry

ID = "UPDATE/changes"
# Sampled steps with a gradient, after a thaw, that nothing answered.
SAMPLES_AFTER = 2
SHOWN = 4


def rows(run: Observation) -> list[Row]:
    """One row where anything changed after the first step; a description, which accuses nobody."""
    record = run.record(ChangesRecord)
    late = [change for change in record.changes if change.step > 0]
    if not late:
        return []
    parts = [_shown(run, change) for change in late[:SHOWN]]
    more = len(late) - len(parts) + record.more
    text = "; ".join(parts) + (f"; {more} more changes" if more else "")
    return [Row(id=ID, status="evidence", text=text, values={"changes": len(late) + record.more}, step=late[0].step)]


def _shown(run: Observation, change: Change) -> str:
    entries = [run.by_serial(serial) for serial in sorted(change.serials)]
    place = f" at {change.frames[0].place}" if change.frames else ""
    words = {
        "frozen": "frozen",
        "thawed": "made trainable",
        "group added": "given to an optimizer",
        "optimizer begins": "stepped by another optimizer",
        "parameters new": "new in the model",
    }
    return f"after step {change.step} {words[change.kind]}{place}: {names(entries, 3)}"


def thawed_and_left_out(run: Observation, entry: ParameterEntry) -> bool:
    """Whether it was frozen when steps were taken, was thawed once and for good, and received gradients since that no
    optimizer could take: thawing has no other use in training than to train.

    Networks that take turns freeze each other again and again. A thaw at the very end may be for a look at gradients:
    there must be steps after it.
    """
    record = run.record(ChangesRecord)
    flips = [c for c in record.changes if entry.serial in c.serials and c.kind in ("frozen", "thawed")]
    thaws = [change for change in flips if change.kind == "thawed" and change.step > 0]
    if len(thaws) != 1 or flips[-1] is not thaws[0] or record.more or not run.whole:
        return False
    frozen = any(w.steps and w.step <= thaws[0].step and entry.serial in w.live for w in run.tape.windows)
    if not frozen or entry.root not in run.trained_roots:
        return False
    after = [w for w in run.tape.windows if w.step > thaws[0].step and w.steps]
    received = [
        w for w in after if any(b.gradients.get(entry.serial, ("missing",))[0] == "nonzero" for b in w.backwards)
    ]
    return len(received) >= SAMPLES_AFTER


def thawed(run: Observation, entries: list[ParameterEntry]) -> Change | None:
    """The last time that any of these was made trainable after the first step."""
    serials = {entry.serial for entry in entries}
    late = [c for c in run.record(ChangesRecord).changes if c.kind == "thawed" and c.step > 0 and c.serials & serials]
    return late[-1] if late else None


def thaw_sites(run: Observation, entries: list[ParameterEntry]) -> list[Site]:
    """Where these were frozen, and where they were made trainable again: the innermost lines that differ."""
    serials = {entry.serial for entry in entries}
    flips = [change for change in run.record(ChangesRecord).changes if change.serials & serials]
    frozen = next((change for change in flips if change.kind == "frozen"), None)
    thawed = next((change for change in flips if change.kind == "thawed" and change.step > 0), None)
    if frozen is None or thawed is None:
        return [_named(c, c.frames[0]) for c in (frozen, thawed) if c is not None and c.frames]
    pairs = zip(frozen.frames, thawed.frames, strict=False)
    first, second = next(((a, b) for a, b in pairs if a.place != b.place), (None, None))
    return [_named(c, s) for c, s in ((frozen, first), (thawed, second)) if s is not None]


def _named(change: Change, site: Site) -> Site:
    what = "frozen here" if change.kind == "frozen" else f"made trainable here, after step {change.step}"
    return Site(file=site.file, line=site.line, what=what)
