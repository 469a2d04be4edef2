"""Hooks around a run that change nothing in it, and what they write down."""
