"""Experiments on what is evaluated, and in which state."""

from __future__ import annotations

from weaklink.collector.catalogue.entry import Entry

ENTRIES: tuple[Entry, ...] = ()
