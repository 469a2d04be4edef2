"""`weaklink experiments`: the closed catalogue, or some entries of it. Needs no run and no torch."""

from __future__ import annotations

import difflib

from weaklink.agent.cli.output import print_json, width, write
from weaklink.agent.reporters.experiments import experiments_json, render_experiments
from weaklink.collector.catalogue import CATALOGUE
from weaklink.collector.errors import UsageError


def run(names: list[str], json: bool) -> None:
    """Print the entries.

    Raises:
        UsageError: There is no experiment of that name; the nearest ones are named.
    """
    for name in names:
        if name not in CATALOGUE:
            near = difflib.get_close_matches(name, CATALOGUE, n=3, cutoff=0.4)
            hint = f"nearest: {', '.join(near)}." if near else "`weaklink experiments` lists all of them."
            raise UsageError("There is no such experiment.", about=name, hint=hint)
    entries = [CATALOGUE[name] for name in dict.fromkeys(names)] or list(CATALOGUE.values())
    if json:
        print_json(experiments_json(entries))
    else:
        write(render_experiments(entries, width()))
