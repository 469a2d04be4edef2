"""Replays: stored runs with the receipt that a new diagnosis of them must reproduce (docs/replays.md)."""
