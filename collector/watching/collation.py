"""Where the user's own code puts the items of a batch together."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from typing import Any

from weaklink.collector.evidence import Site
from weaklink.collector.watching.loaders import Path
from weaklink.collector.watching.sites import UserCode


def collation_site(collate: Any, target_path: Path | None, code: UserCode) -> Site | None:
    """The line of a collate function of the user's that assigns the targets last, else the function itself.

    Which name holds the targets is read off the mapping or tuple that the function returns.
    """
    while isinstance(collate, functools.partial):
        collate = collate.func
    function = collate if inspect.isroutine(collate) else type(collate).__dict__.get("__call__")
    return _site_in(function, target_path, code, "a batch is put together")


def item_site(dataset: Any, path: Path | None, code: UserCode) -> Site | None:
    """The line of the user's own `__getitem__` that assigns what stands at this place of an item, else its first one.

    Args:
        dataset: Of the user's own class; None is answered for one of a library's.
        path: The place, as it is in a batch: torch's own collation keeps it. The last place where it is None.
        code: Tells the user's lines.
    """
    return _site_in(type(dataset).__dict__.get("__getitem__"), path or (-1,), code, "an item is read")


def _site_in(function: Any, path: Path | None, code: UserCode, what: str) -> Site | None:
    try:
        file = code.relative(inspect.getsourcefile(function) or "") if function is not None else None
        lines, start = inspect.getsourcelines(function) if file is not None else ([], 0)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    if file is None:
        return None
    names = [found for node in ast.walk(tree) for found in _returned(node, path)]
    name = next((each for each in names if any(_assigned(node, each) for node in ast.walk(tree))), None)
    assigned = [line for node in ast.walk(tree) if name is not None and (line := _assigned(node, name))]
    line = start + (max(assigned) if assigned else 1) - 1
    return Site(file=file, line=line, what=what)


def _returned(node: ast.AST, path: Path | None) -> list[str]:
    """The names in what stands at this place of a returned dictionary or tuple."""
    if not isinstance(node, ast.Return) or not path:
        return []
    part: ast.expr | None = None
    if isinstance(node.value, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.value.keys]
        part = node.value.values[keys.index(path[0])] if path[0] in keys else None
    elif isinstance(node.value, ast.Tuple) and isinstance(path[0], int) and path[0] < len(node.value.elts):
        part = node.value.elts[path[0]]
    return [inner.id for inner in ast.walk(part) if isinstance(inner, ast.Name)] if part is not None else []


def _assigned(node: ast.AST, name: str) -> int:
    """The line of an assignment to this name; 0 for anything else."""
    if not isinstance(node, ast.Assign):
        return 0
    return node.lineno if any(isinstance(t, ast.Name) and t.id == name for t in node.targets) else 0
