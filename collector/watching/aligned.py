"""After the run: whether the training pairs that were copied still lie on each other."""

from __future__ import annotations

from dataclasses import dataclass

from weaklink.collector.evaluating.alignment import Mirror, Views, mirror_of, views_of
from weaklink.collector.evidence import Site
from weaklink.collector.watching.data import DataRecord
from weaklink.collector.watching.part import Part


@dataclass
class AlignmentRecord:
    """What was found; None where there is nothing of the kind."""

    views: Views | None = None
    mirror: Mirror | None = None
    site: Site | None = None


class AlignmentPart(Part):
    """Reads the copies once, when the script is over."""

    def finish(self) -> None:
        """Look at the model with most training rows."""
        trained = self.tape.record(DataRecord).trained()
        if trained is None:
            return
        record = self.tape.record(AlignmentRecord)
        record.site = trained.site
        record.views = views_of(trained.chunks)
        record.mirror = mirror_of(trained.chunks)
