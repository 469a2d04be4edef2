"""What worked with an endpoint, kept in the user's cache folder so that the next command asks that way at once.

The file holds addresses, names of models and rungs: no key, and nothing that was said. It is only a cache: a damaged
file, a folder that cannot be written or a home that does not exist cost a few refused requests, no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from weaklink.agent.endpoint.ladder import OPTIONAL, RUNGS, Way
from weaklink.agent.endpoint.settings import OPENAI_URL, Endpoint

SCHEMA = "weaklink.endpoints/1"
FORGET_AFTER = 30 * 86400.0  # seconds; a server may have been updated, and can do more
MOST = 200  # endpoints
LARGEST = 2**20  # bytes


def remembered_way(endpoint: Endpoint) -> Way:
    """The way that worked, or the strictest one."""
    entry = _read().get(_name(endpoint))
    if not isinstance(entry, dict):
        return _first_way(endpoint)
    rung, left_out, since = entry.get("rung"), entry.get("left_out"), entry.get("since")
    if rung not in RUNGS or not isinstance(left_out, list) or not isinstance(since, int | float):
        return _first_way(endpoint)
    if not 0 <= time.time() - since <= FORGET_AFTER:
        return _first_way(endpoint)
    return Way(rung, frozenset(name for name in left_out if name in OPTIONAL))


def _first_way(endpoint: Endpoint) -> Way:
    """The strictest way. Servers other than OpenAI's know a limit by its older name; some drop the newer one unread."""
    return Way() if endpoint.base_url == OPENAI_URL else Way(left_out=frozenset(("max_completion_tokens",)))


def remember(endpoint: Endpoint, way: Way) -> None:
    """Keep what worked; without a word where that is not possible."""
    path = _path()
    if path is None:
        return
    entries = _read()
    entries.pop(_name(endpoint), None)
    entries[_name(endpoint)] = {"rung": way.rung, "left_out": sorted(way.left_out), "since": int(time.time())}
    kept = dict(list(entries.items())[-MOST:])
    with contextlib.suppress(OSError, ValueError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, json.dumps({"schema": SCHEMA, "endpoints": kept}, indent=1) + "\n")


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".endpoints-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _read() -> dict[str, Any]:
    path = _path()
    if path is None:
        return {}
    try:
        if path.stat().st_size > LARGEST:
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    entries = found.get("endpoints") if isinstance(found, dict) and found.get("schema") == SCHEMA else None
    return entries if isinstance(entries, dict) else {}


def _name(endpoint: Endpoint) -> str:
    return f"{endpoint.base_url} {endpoint.model}"


def _path() -> Path | None:
    own = os.environ.get("WEAKLINK_CACHE_DIR")
    if own:
        return Path(own) / "endpoints.json"
    shared = os.environ.get("XDG_CACHE_HOME")
    if shared and Path(shared).is_absolute():
        return Path(shared) / "weaklink" / "endpoints.json"
    try:
        return Path.home() / ".cache" / "weaklink" / "endpoints.json"
    except RuntimeError:
        return None
