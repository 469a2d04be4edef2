"""The shape of an intervention: attach once, act on events, report what really changed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from weaklink.collector.evidence import InterventionReport, Value

if TYPE_CHECKING:
    from weaklink.collector.watching.watcher import Watcher


class Intervention(ABC):
    """One change to a rerun. `report` says whether it applied: firing alone proves nothing."""

    name: ClassVar[str]

    def __init__(self, parameters: dict[str, Value]) -> None:
        self.parameters = parameters
        self.report = InterventionReport(name=self.name, parameters=parameters)

    @abstractmethod
    def attach(self, watcher: Watcher) -> None:
        """Hang the change on the watcher's events, before the script starts."""

    def note_changed(self, watcher: Watcher, what: str, how: str) -> None:
        """Something really was changed. `detail` tells of the first time, with the user's line."""
        if not self.report.applied:
            self.report.applied = True
            site = watcher.code.site(how)
            self.report.detail = f"{how}, first at {site.file}:{site.line}" if site else how
        if what not in self.report.changed:
            self.report.changed.append(what)
