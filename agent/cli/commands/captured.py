"""`weaklink diagnose INCIDENT --captured`: the step that turned non-finite, taken again."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from weaklink.agent.captured import TakenAgain, take_again
from weaklink.agent.cli.output import color, print_json, width, write
from weaklink.agent.progress import Progress
from weaklink.agent.record.incident import Incident
from weaklink.agent.reporters.ledger import ledger_json, render_ledger
from weaklink.collector.errors import UsageError
from weaklink.collector.workers import this_python

SCHEMA = "weaklink.captured/1"


def run(words: list[str], python: str | None, deadline: float, json: bool) -> NoReturn:
    """Take the captured step again and show its chain; leaves with 1, or with 0 where it did not show the same.

    Raises:
        WeaklinkError: There is no captured step, or it cannot be taken again here.
    """
    if len(words) != 1:
        raise UsageError("One incident is to be named.", about="--captured", hint="give the folder of an incident.")
    incident = Incident.read(Path(words[0]))
    taken = take_again(incident, Path(incident.opened.folder), python or this_python(), deadline, Progress())
    if json:
        print_json(_body(taken))
    else:
        write(render_ledger(taken.evidence, width(), color()) + _said(taken))
    raise SystemExit(1 if taken.reproduced else 0)


def _body(taken: TakenAgain) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "step": taken.manifest.step,
        "reproduced": taken.reproduced,
        "captured": taken.manifest.outcomes.model_dump(exclude={"problem"}),
        "now": taken.now.model_dump(exclude={"problem"}),
        "chain": ledger_json(taken.evidence),
    }


def _said(taken: TakenAgain) -> str:
    then, now = taken.manifest.outcomes, taken.now
    lines = [
        f"Captured step {taken.manifest.step}: loss {', '.join(then.losses)}; non-finite gradients: "
        f"{', '.join(then.nonfinite_gradients) or 'none'}.",
        f"Taken again: loss {', '.join(now.losses)}; non-finite gradients: "
        f"{', '.join(now.nonfinite_gradients) or 'none'}.",
    ]
    if taken.reproduced:
        lines.append("The step shows the same: models, optimizers, batch and random streams decide it.")
    else:
        lines.append("It shows something else: a value that the script keeps in a variable of its own decides it too.")
    return "\n".join(lines) + "\n"
