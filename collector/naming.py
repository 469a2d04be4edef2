"""Names of parameters: whether two dotted paths mean one place in the model."""

from __future__ import annotations


def same_slot(path: str | None, name: str | None) -> bool:
    """Whether a path from registration and a name from a root are the same place: equal, or one ends with the other.

    A root may be a submodule of what registration saw as outermost, or carry a prefix of its own.
    """
    if not path or not name:
        return False
    return path == name or path.endswith("." + name) or name.endswith("." + path)
