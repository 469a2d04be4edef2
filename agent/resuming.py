"""Whether a frozen experiment can be run now: the same claim, the same sources, never judged before."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from weaklink.agent.horizons import Horizon
from weaklink.agent.proposal import Proposal
from weaklink.agent.record.bodies import Frozen
from weaklink.agent.record.incident import Incident
from weaklink.collector.errors import UsageError
from weaklink.collector.evidence import Evidence

if TYPE_CHECKING:
    from weaklink.agent.session import Options


def check_resumable(incident: Incident, options: Options) -> tuple[Evidence, Proposal, Frozen, list[Horizon]]:
    """Evidence, proposal, frozen prediction and horizons of an incident whose experiment was never judged.

    Raises:
        UsageError: There is nothing to run, it was judged already, or a source differs from the frozen claim.
    """
    about = str(incident.folder)
    evidence, proposal, frozen = incident.evidence, incident.proposal, incident.frozen
    if evidence is None or proposal is None or frozen is None:
        raise UsageError(
            "This incident has no frozen experiment.", about=about, hint=f"read it with `weaklink show {about}`."
        )
    if evidence.subject.kind == "process":
        raise UsageError(
            "This was measured inside a process of your own; there is nothing here to run again.",
            about=evidence.subject.name,
            hint="put the system into a function that returns it: `weaklink diagnose train.py:build`.",
        )
    if incident.verdict is not None:
        raise UsageError(
            "This incident was judged already; a prediction is tested once.",
            about=about,
            hint=f"read it with `weaklink show {about}`, or diagnose again for a new one.",
        )
    if not (frozen.claim["sources"] or frozen.context["outside_sources"]):
        raise UsageError(
            "The frozen claim names no source, so nothing says that this is the same script.",
            about=about,
            hint="diagnose again where the script is.",
        )
    changed = changed_sources(frozen, options.folder)
    if changed:
        raise UsageError(
            f"The sources are not those of the frozen claim: {', '.join(changed[:5])}.",
            about=str(options.folder),
            hint="run it where the sources are as they were (--in DIR), or diagnose again.",
        )
    return evidence, proposal, frozen, list(frozen.claim["horizons"])


def changed_sources(frozen: Frozen, folder: Path) -> list[str]:
    """Files of the claim, and those outside its folder, that are missing or have other bytes now."""
    changed = []
    for source in (*frozen.claim["sources"], *frozen.context["outside_sources"]):
        try:
            now = hashlib.sha256((folder / source["path"]).read_bytes()).hexdigest()
        except OSError:
            now = ""
        if now != source["sha256"]:
            changed.append(str(source["path"]))
    return changed
