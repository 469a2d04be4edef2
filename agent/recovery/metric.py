"""The declared metric, read from what a run printed: the last number that stands after its name."""

from __future__ import annotations

import re

from weaklink.agent.record.recoveries import UsedMetric
from weaklink.collector.declared import Metric
from weaklink.collector.errors import UsageError

_NUMBER = r"[-+]?(?:(?:\d+(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)\b"
# Between a name and its number: quotes, a colon, an arrow, a table's bar; `tensor(` around the number itself.
_BETWEEN = r"[\s\"'`]*(?:[:=|>~(\[]|->|is\b)*[\s\"'`(\[|]*(?:tensor\()?"
_SEPARATORS = re.compile(r"[\s_\-./]+")
_CELLS = re.compile(r"[,;\t|]")


def metric_of(option: str | None, declared: Metric | None) -> UsedMetric | None:
    """The metric of `--metric NAME:max`, else the one that `weaklink.toml` declares, else none.

    Raises:
        UsageError: The option names no direction, or no name.
    """
    if option is None:
        if declared is None:
            return None
        return UsedMetric(name=declared.name, direction=declared.direction, declared="weaklink.toml")
    name, _, direction = option.rpartition(":")
    if direction not in ("max", "min") or not _SEPARATORS.sub("", name):
        raise UsageError(
            f"{option!r} says not which way is better.",
            about="--metric",
            hint="give a word that the script prints and its direction: `--metric val_accuracy:max`.",
        )
    return UsedMetric.model_validate({"name": name, "direction": direction, "declared": "command line"})


def read_metric(output: str, name: str) -> float | None:
    """The last number that stands after the name in a run's output; None where there is none.

    The name is matched as a whole word, in any case, with spaces, `_`, `-`, `.` and `/` between its parts alike:
    `val_acc` finds `val acc: 0.91`, `"val_acc": 0.91` and `val/acc=0.91`, but not `best_val_acc 0.93`. In comma
    separated lines it is the column of that name.
    """
    found = re.compile(rf"(?<![\w.])(?<![\w][-/]){_spelled(name)}(?!\w){_BETWEEN}({_NUMBER})(\s?%)?", re.IGNORECASE)
    last: float | None = None
    columns: tuple[int, int] | None = None
    for line in output.replace("\r", "\n").split("\n"):
        for match in found.finditer(line):
            last = _number(match.group(1)) / (100 if match.group(2) else 1)
        cells = [cell.strip().strip("\"'") for cell in _CELLS.split(line)]
        if len(cells) > 1 and (index := _column(cells, name)) is not None:
            columns = index, len(cells)
        elif columns is not None and len(cells) == columns[1] and re.fullmatch(_NUMBER, cells[columns[0]], re.I):
            last = _number(cells[columns[0]])
    return last


def _spelled(name: str) -> str:
    return r"[\s_\-./]*".join(re.escape(part) for part in _SEPARATORS.split(name.strip()) if part)


def _column(cells: list[str], name: str) -> int | None:
    wanted = _SEPARATORS.sub("", name).lower()
    return next((i for i, cell in enumerate(cells) if _SEPARATORS.sub("", cell).lower() == wanted), None)


def _number(text: str) -> float:
    return float(text.replace(",", ""))
