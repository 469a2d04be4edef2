"""Placeholder until instruments are wired."""

from __future__ import annotations

from weaklink.agent.conversation.looks import Looked
from weaklink.agent.runner import Runner
from weaklink.collector.evidence import Evidence


def run_instrument(runner: Runner, observed: Evidence, name: str, step: int | None = None) -> Looked:
    return Looked(do="instrument", request={"name": name, "step": step}, ok=False, text="not available")
