"""Experiments on the gradients between a backward and the step that uses them, and on single operations."""

from __future__ import annotations

from weaklink.collector.catalogue.entry import Entry

ENTRIES: tuple[Entry, ...] = ()
