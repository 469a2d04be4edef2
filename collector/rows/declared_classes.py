"""OBJECTIVE/classes: the declared number of classes against the targets and the outputs of a loss over classes."""

from __future__ import annotations

from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.tape import LossSample

ROW = "OBJECTIVE/classes"
TEXT = "declared classes against targets and outputs"


def rows(run: Observation) -> list[Row]:
    """Fewer outputs than classes, or a target beyond them. More outputs than classes are common: padded, kept."""
    declared = run.declared.num_classes
    if declared is None:
        return [Row(id=ROW, status="not_measured", text=TEXT, reason="no number was declared (--classes)")]
    losses = [loss for b in run.backwards if b.graph for loss in b.graph.losses if loss.indexed]
    if not losses:
        reason = "no sampled loss takes class indices"
        return [Row(id=ROW, status="not_measured", text=TEXT, reason=reason)]
    return [_judged(run, declared, losses)]


def _judged(run: Observation, declared: int, losses: list[LossSample]) -> Row:
    widths = sorted({_width(loss) for loss in losses})
    beyond = sorted({index for loss in losses for index in loss.class_counts or {} if index >= declared})
    # Several heads: the number is that of one of them, which may well be the one that fits.
    alone = len(widths) == 1
    narrow, strange = alone and widths[0] < declared, alone and bool(beyond)
    text = f"{declared} classes declared, {'/'.join(str(width) for width in widths)} outputs"
    if strange:
        text += f"; targets {', '.join(str(index) for index in beyond[:5])} lie beyond class {declared - 1}"
    status = "fail" if narrow or strange else "pass" if declared in widths else "evidence"
    return Row(
        id=ROW,
        status=status,  # type: ignore[arg-type]
        basis="declared" if status == "fail" else None,
        text=text,
        values={"declared": declared, "outputs": widths, "beyond": beyond[:20]},
        where=_sites(run, widths[0], narrow) if status == "fail" else [],
        step=1 if status == "fail" else None,
    )


def _width(loss: LossSample) -> int:
    return loss.output_shape[1 if len(loss.output_shape) > 1 else 0]


def _sites(run: Observation, width: int, narrow: bool) -> list[Site]:
    """The layer that makes so few outputs, the last one registered; else where backward was called."""
    made = [e for e in run.learning() if e.shape and e.shape[0] == width and e.created is not None]
    last = max(made, key=lambda e: e.order or 0, default=None)
    layer = [site for site in (last.created_by, last.created) if site is not None] if narrow and last else []
    called = [b.site for b in run.backwards if b.site is not None][:1]
    return list({site.place: site for site in [*layer, *called]}.values())[:3]
