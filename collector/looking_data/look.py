"""The look at the data, taken after the first step: everything that takes the script's own datasets and tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from weaklink.collector.looking_data.alignment import pairing
from weaklink.collector.looking_data.beside import records
from weaklink.collector.looking_data.blocks import conventions
from weaklink.collector.looking_data.items import reread
from weaklink.collector.looking_data.source import Source, base_of, from_dataset, from_memory
from weaklink.collector.looking_data.stored import repeated, still_inputs
from weaklink.collector.watching.loaders import LoaderEntry
from weaklink.collector.watching.pairs import Chunk
from weaklink.collector.watching.sites import UserCode

NAME = "data"


def look_at_data(loader: LoaderEntry | None, chunk: Chunk, code: UserCode) -> dict[str, Any]:
    """Everything about the rows that the last call was given.

    Args:
        loader: Whose batch it was, or None.
        chunk: Copies of its rows.
        code: Tells the user's lines.

    Returns:
        What each part found, by its name; a part that raised says so under `raised`.
    """
    found: dict[str, Any] = {}
    with torch.no_grad():
        alive = loader.parts() if loader is not None else None
        if alive is not None:
            found["item"] = _guarded(lambda: reread(base_of(alive[0]), code))
        sources: list[Source] = []
        found["source"] = _guarded(lambda: _find(sources, loader, chunk))
        if sources:
            source = sources[0]
            found["pairing"] = _guarded(lambda: pairing(source))
            if alive is not None and source.kind == "dataset" and found["pairing"].get("readable") is False:
                found["beside"] = _guarded(lambda: records(base_of(alive[0]), code))
            found["conventions"] = _guarded(lambda: conventions(source))
            found["still"] = _guarded(lambda: still_inputs(source))
            found["repeated"] = _guarded(lambda: repeated(source, loader))
    return found


def _find(sources: list[Source], loader: LoaderEntry | None, chunk: Chunk) -> dict[str, Any]:
    source = from_dataset(loader, chunk) if loader is not None and chunk.loader is not None else None
    source = source or from_memory(chunk)
    if source is None:
        return {"kind": None}
    sources.append(source)
    return {"kind": source.kind, "rows": len(source.numbers), "total": source.total, "in_order": source.in_order}


def _guarded(part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return part()
    except Exception as error:  # the user's dataset, read in another way than it is made for
        return {"raised": f"{type(error).__name__}: {str(error)[:200]}"}
