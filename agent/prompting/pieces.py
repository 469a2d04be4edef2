"""Filling a budget: pieces of a text by how much they matter, each with shorter and longer versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from weaklink.agent.prompting.budget import estimated_tokens


@dataclass(frozen=True)
class Piece:
    """One version of one place in a text. `place` is the section and the position in it."""

    place: tuple[str, int]
    text: str


def fill(pieces: Iterable[Piece], room: int) -> dict[tuple[str, int], str]:
    """The pieces that fit, in order of importance.

    Args:
        pieces: The most important first. A later piece of a place that is taken is a longer version of it, and replaces
            it where the difference fits.
        room: Tokens.

    Returns:
        Text by place.
    """
    chosen: dict[tuple[str, int], str] = {}
    costs: dict[tuple[str, int], int] = {}
    for piece in pieces:
        cost = estimated_tokens(piece.text)
        more = cost - costs.get(piece.place, 0)
        if more <= room:
            room -= more
            chosen[piece.place], costs[piece.place] = piece.text, cost
    return chosen


def section(chosen: Mapping[tuple[str, int], str], name: str) -> list[str]:
    """The texts of one section, in order of their positions."""
    return [text for (of, _), text in sorted(chosen.items()) if of == name]
