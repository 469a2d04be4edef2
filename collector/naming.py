"""Names of parameters: whether two dotted paths mean one place in the model."""

from __future__ import annotations


def same_slot(paths: list[str], name: str | None) -> bool:
    """Whether one of the paths from registration and a name from a root are the same place: equal, or one ends with the
    other.

    A root may be a submodule of what registration saw as outermost, or carry a prefix of its own.
    """
    if not name:
        return False
    return any(path == name or path.endswith("." + name) or name.endswith("." + path) for path in paths)
