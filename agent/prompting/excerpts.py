"""Which stretches of which files stand in the brief: source around the diverging rows, and heads of what the run read.

A short script is shown whole, of a long one the functions around the rows' sites. Everything comes through the library,
which masks secrets and keeps to its root; every line that is shown is noted there, and only those can be cited.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from weaklink.agent.conversation.looks import Looked
from weaklink.agent.prompting.budget import estimated_tokens, prompt_room
from weaklink.agent.prompting.excerpt import Excerpt
from weaklink.agent.prompting.templates import inert_line
from weaklink.agent.reading.library import Library
from weaklink.collector.evidence import Evidence, Row, Site, in_chain_order

SPARED = 1600  # tokens of a prompt before files get any: chain, experiments, measurements and the form come first
WHOLE = 150  # lines of a script that is shown whole, where it fits
AROUND = 12  # lines before and after a site outside any function
LONGEST_FUNCTION = 80  # lines of a function that is shown whole
LONGEST_PARSED = 20_000  # lines of a file that is searched for functions
HEAD = 20  # lines of a configuration, or of a table
_OF_A_FILE = 30  # tokens for its heading
CHANGED = "changed since the run: its lines may not be those that ran"


def excerpts(evidence: Evidence, library: Library, context: int) -> list[Excerpt]:
    """Stretches of files for the brief, the most important first.

    Args:
        evidence: The observed run.
        library: Reads the project's files; the lines that are returned here are entered into its `shown`.
        context: Tokens that the model reads at once. Files get a quarter of what a prompt may take, less where that
            leaves little else; of it a quarter is kept for heads of configuration and data, if the run opened any.
    """
    room = prompt_room(context)
    left = _Budget(max(0, min(room // 4, (room - SPARED) // 3)))
    sites = _sites(evidence)
    opened = _opened(evidence, known=sites)
    kept = left.left // 4 if opened else 0
    left.take(kept)
    found: list[Excerpt] = []
    hashes = {source.path: source.sha256 for source in evidence.sources}
    for file, lines in sites.items():
        found += _of_source(library, file, lines, hashes.get(file), left)
    left.left += kept
    for file in opened:
        found += _head(library, file, left)
    return found


class _Budget:
    """Tokens that are left, spent line by line."""

    def __init__(self, tokens: int) -> None:
        self.left = tokens

    def take(self, tokens: int) -> bool:
        """Spend them, if they are there."""
        if tokens > self.left:
            return False
        self.left -= tokens
        return True


def _sites(evidence: Evidence) -> dict[str, list[int]]:
    """Lines that the diverging rows name, by file, those of the first divergence first; else of what raised."""
    first = evidence.first_divergence
    rows = [row for row in in_chain_order(evidence.rows) if row.diverges and row is not first]
    ordered: list[Row] = [first, *rows] if first is not None else rows
    sites: list[Site] = [site for row in ordered for site in row.where]
    raised = evidence.outcome.raised
    sites += [raised.where] if raised is not None and raised.where is not None else []
    lines: dict[str, list[int]] = {}
    for site in sites:
        if site.line is not None and site.line not in lines.setdefault(site.file, []):
            lines[site.file].append(site.line)
    for source in evidence.sources:  # a row without a site, a clean chain: the script all the same
        lines.setdefault(source.path, [])
    return {file: found for file, found in lines.items() if file.endswith(".py") or found}


def _opened(evidence: Evidence, known: Iterable[str]) -> list[str]:
    row = evidence.row("TASK/files")
    kinds = [row.values.get(kind) for kind in ("configuration", "data")] if row is not None else []
    names = [str(name) for listed in kinds if isinstance(listed, list) for name in listed]
    return [name for name in dict.fromkeys(names) if name not in set(known)]


def _of_source(library: Library, file: str, sites: Sequence[int], sha256: str | None, left: _Budget) -> list[Excerpt]:
    text = library.text(file)
    if text is None or not text.lines:
        return []
    changed = sha256 is not None and text.sha256 is not None and text.sha256 != sha256
    wanted = _wanted(text.lines, [line for line in sites if 0 < line <= len(text.lines)])
    kept = _affordable(text.lines, wanted, left)
    notes = [CHANGED] if changed else []
    found = []
    for start, end in _runs(kept):
        place = f"lines {start} to {end} of {len(text.lines)}"
        found += _shown(library, file, start, end, ", ".join([place, *notes]))
    return found


def _wanted(lines: Sequence[str], sites: Sequence[int]) -> list[int]:
    """Line numbers, the most important first: outwards from each site, then the rest of the functions around them."""
    functions = _functions(lines) if sites else []
    spans = [_span(lines, functions, site) for site in sites]
    near = [line for site, span in zip(sites, spans, strict=True) for line in _outwards(site, span, AROUND)]
    further = [line for site, span in zip(sites, spans, strict=True) for line in _outwards(site, span, len(lines))]
    whole = range(1, len(lines) + 1) if len(lines) <= WHOLE or not sites else ()
    return list(dict.fromkeys([*near, *further, *whole]))


def _outwards(site: int, span: tuple[int, int], most: int) -> Iterator[int]:
    """A site, then its neighbours, one step further each time, within the span."""
    yield site
    for distance in range(1, most + 1):
        if site + distance > span[1] and site - distance < span[0]:
            return
        yield from (line for line in (site - distance, site + distance) if span[0] <= line <= span[1])


def _span(lines: Sequence[str], functions: Sequence[tuple[int, int]], site: int) -> tuple[int, int]:
    """First and last line of the innermost function around a line; else some lines around it."""
    around = (max(1, site - AROUND), min(len(lines), site + AROUND))
    holding = [span for span in functions if span[0] <= site <= span[1]]
    if not holding:
        return around
    start, end = max(holding)
    return (start, end) if end - start < LONGEST_FUNCTION else (max(start, around[0]), min(end, around[1]))


def _functions(lines: Sequence[str]) -> list[tuple[int, int]]:
    """First and last line of every function, decorators included; none where the text is no Python, or too long."""
    if len(lines) > LONGEST_PARSED:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in the user's strings, which are not ours to report
            tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a masked line, another language, a hostile file
        return []
    return [
        (min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def _affordable(lines: Sequence[str], wanted: Sequence[int], left: _Budget) -> list[int]:
    """The first of the wanted lines, as far as the tokens go."""
    kept: list[int] = []
    if not left.take(_OF_A_FILE):
        return kept
    for number in wanted:
        if not left.take(estimated_tokens(f"{number:5}| {inert_line(lines[number - 1])}\n")):
            break
        kept.append(number)
    return kept


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Stretches of numbers that follow each other, in the order of the file."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _shown(library: Library, file: str, start: int, end: int, note: str) -> list[Excerpt]:
    """The stretch as the library shows it, in as many answers as it needs."""
    found: list[Excerpt] = []
    while start <= end:
        looked = library.excerpt(file, start, end)
        if not looked.ok or looked.last is None or looked.file is None:
            break
        lines = [library.shown.lines[looked.file][number] for number in range(start, looked.last + 1)]
        found.append(Excerpt(looked.file, start, tuple(lines), note))
        start = looked.last + 1
    return found


def _head(library: Library, file: str, left: _Budget) -> list[Excerpt]:
    text = library.text(file)
    if text is not None:
        kept = _affordable(text.lines, range(1, min(HEAD, len(text.lines)) + 1), left)
        return _shown(library, file, 1, len(kept), f"the first lines of {len(text.lines)}") if kept else []
    looked: Looked = library.head(file, 1)
    if not looked.ok:
        return []
    lines = looked.text.split("\n")
    kept = _affordable(lines, range(1, min(HEAD, len(lines)) + 1), left)
    name = looked.file or str(PurePath(file))
    return [Excerpt(name, None, tuple(lines[: len(kept)]), "a summary: no text file")] if kept else []
