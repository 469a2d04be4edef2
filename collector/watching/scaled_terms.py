"""A loss as a sum of terms, each with the number that it is multiplied by."""

from __future__ import annotations

from typing import Any

from weaklink.collector.watching.node_shapes import number, shape_of
from weaklink.collector.watching.nodes import before, name_of

TERMS_LIMIT = 16


def terms_of(root: Any) -> list[tuple[float, Any]] | None:
    """The terms that a scalar is added up from, and their factors; None where a factor is not known or there are many.

    Split where scalars are added, subtracted, negated, or scaled by a number. A term without a history is left out.
    """
    found: list[tuple[float, Any]] = []
    todo: list[tuple[float, Any]] = [(1.0, root)]
    while todo:
        factor, node = todo.pop()
        name, following = name_of(node), [inner for inner, _ in node.next_functions]
        if shape_of(node) not in ((), (1,)) or len(found) + len(todo) > TERMS_LIMIT:
            if len(found) + len(todo) > TERMS_LIMIT:
                return None
            found.append((factor, node))
        elif name in ("AddBackward0", "SubBackward0"):
            alpha = float(getattr(node, "_saved_alpha", 1)) * (-1.0 if name == "SubBackward0" else 1.0)
            todo += [(factor * (alpha if i else 1.0), inner) for i, inner in enumerate(following) if inner is not None]
        elif name.startswith("RsubBackward"):
            todo.append((-factor * float(getattr(node, "_saved_alpha", 1)), before(node)))
        elif name == "NegBackward0":
            todo.append((-factor, before(node)))
        elif name in ("MulBackward0", "DivBackward0") and (by := number(node)) is not None and len(following) <= 2:
            scaled = next((inner for inner in following if inner is not None), None)
            turned = name == "DivBackward0" and following[0] is None
            if scaled is None or turned or (name == "DivBackward0" and by == 0.0):
                return None
            todo.append((factor * by if name == "MulBackward0" else factor / by, scaled))
        else:
            found.append((factor, node))
    return list(reversed(found))
