"""Loss curves as one inline SVG made of numbers and fixed words only. No user's text enters it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weaklink.agent.reporters.curves import Curve
from weaklink.agent.reporters.scale import Scale, count_scale, value_scale
from weaklink.agent.reporters.text import number

WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 84, 16, 34, 48
MAX_POINTS = 1_000
LEGEND, LEGEND_STEP = 150, 114


def loss_figure(curves: Sequence[Curve]) -> str:
    """The figure, or an empty text where no loss was recorded. Non-finite values are gaps, named by `gap_notes`."""
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return ""
    values = [value for curve in curves for _, value in curve.points if math.isfinite(value)]
    counts = [index for curve in curves for index, _ in curve.points]
    x = count_scale(counts, LEFT, WIDTH - RIGHT)
    y = value_scale(values, HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg class="figure" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="loss-title loss-desc">',
        '<title id="loss-title">Loss against backward calls</title>',
        f'<desc id="loss-desc">{description(curves)}</desc>',
        *_axes(x, y, empty=not values),
        *(part for curve in curves for part in _curve(curve, x, y)),
        *(part for position, curve in enumerate(curves) for part in _legend(curve, position)),
        "</svg>",
    ]
    return "\n".join(parts)


def description(curves: Sequence[Curve]) -> str:
    """The figure in words: where each curve begins and ends."""
    return " ".join(
        f"{curve.name}: {number(curve.points[0][1])} at call {curve.points[0][0]}, "
        f"{number(curve.points[-1][1])} at call {curve.points[-1][0]}."
        for curve in curves
    )


def gap_notes(curves: Sequence[Curve]) -> list[str]:
    """When each curve stops being finite, and for how many calls."""
    notes = []
    for curve in curves:
        gaps = [index for index, value in curve.points if not math.isfinite(value)]
        if gaps:
            notes.append(f"{curve.name}: {len(gaps)} not finite, the first at backward call {gaps[0]}; shown as gaps.")
    return notes


def _axes(x: Scale, y: Scale, empty: bool) -> list[str]:
    bottom = HEIGHT - BOTTOM
    parts = [f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}"/>']
    ticks = [] if empty else y.ticks()
    for value, label in zip(ticks, tick_labels(ticks), strict=True):
        at = _px(y(value))
        parts.append(f'<path class="grid" d="M{LEFT} {at}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{at}" dy="0.32em" text-anchor="end">{label}</text>')
    for value in x.ticks():
        if value != int(value):
            continue
        at = _px(x(value))
        parts.append(f'<path class="axis" d="M{at} {bottom}v5"/>')
        parts.append(f'<text class="tick" x="{at}" y="{bottom + 19}" text-anchor="middle">{int(value)}</text>')
    middle = (LEFT + WIDTH - RIGHT) // 2
    parts.append(f'<text class="tick" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">backward call</text>')
    unit = "no finite loss" if empty else ("loss (log)" if y.log else "loss")
    parts.append(f'<text class="tick" x="{LEFT - 8}" y="{TOP - 18}" text-anchor="end">{unit}</text>')
    return parts


def _curve(curve: Curve, x: Scale, y: Scale) -> list[str]:
    parts = []
    for run in _finite_runs(_thinned(curve.points)):
        pixels = [(_px(x(index)), _px(y(value))) for index, value in run]
        if len(pixels) == 1:
            parts.append(f'<circle class="point {curve.role}" cx="{pixels[0][0]}" cy="{pixels[0][1]}" r="3"/>')
        else:
            path = "L".join(f"{left} {top}" for left, top in pixels)
            parts.append(f'<path class="curve {curve.role}" d="M{path}"/>')
    return parts


def _legend(curve: Curve, position: int) -> list[str]:
    left, top = LEGEND + position * LEGEND_STEP, 12
    return [
        f'<path class="curve {curve.role}" d="M{left} {top}h26"/>',
        f'<text class="tick" x="{left + 32}" y="{top}" dy="0.32em">{curve.name}</text>',
    ]


def _finite_runs(points: Sequence[tuple[int, float]]) -> list[list[tuple[int, float]]]:
    runs: list[list[tuple[int, float]]] = [[]]
    for point in points:
        if math.isfinite(point[1]):
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _thinned(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    step = math.ceil(len(points) / MAX_POINTS)
    # The last point stays: where a curve ends is what it is read for.
    return points if step <= 1 else [*points[:-1:step], points[-1]]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Labels as short as they can be and still differ."""
    labels: list[str] = []
    for digits in range(3, 17):
        labels = [f"{value:.{digits}g}" for value in values]
        if len(set(labels)) == len(labels):
            break
    return labels


def _px(pixels: float) -> str:
    return f"{pixels:.1f}"
