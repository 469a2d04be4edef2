"""Which loss curves an incident has to show."""

from __future__ import annotations

from dataclasses import dataclass

from weaklink.agent.reporters.view import IncidentView
from weaklink.collector.evidence import Series

# Thickest and first drawn is the run that later curves cover where they are equal.
ROLES = ("observed", "control", "control_again", "placebo", "treatment")
NAMES = {"control_again": "control 2"}


@dataclass(frozen=True)
class Curve:
    """One named series; the role decides stroke and dash."""

    role: str
    points: tuple[tuple[int, float], ...]

    @property
    def name(self) -> str:
        """The role in words."""
        return NAMES.get(self.role, self.role)


def curves(incident: IncidentView) -> list[Curve]:
    """The loss of every rerun, and of the observed run as far as the reruns went."""
    found: dict[str, tuple[tuple[int, float], ...]] = {
        rerun.role: _points(rerun.evidence.losses)
        for rerun in incident.reruns
        if rerun.evidence and rerun.role in ROLES
    }
    horizon = max((index for points in found.values() for index, _ in points), default=None)
    if incident.evidence is not None:
        points = _points(incident.evidence.losses)
        found["observed"] = tuple(point for point in points if horizon is None or point[0] <= horizon)
    if found.get("control_again") == found.get("control"):
        found.pop("control_again", None)
    return [Curve(role, found[role]) for role in ROLES if found.get(role)]


def _points(series: Series) -> tuple[tuple[int, float], ...]:
    # Not strict: a record written by hand may hold series of unequal length, and is shown as far as it goes.
    return tuple(zip(series.index, series.value, strict=False))
