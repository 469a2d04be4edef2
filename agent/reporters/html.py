"""An incident as one offline HTML file: no script, no network reference, nothing but inline style and numbers.

The template is a fixed file. Data reaches it only through autoescaped expressions, and every one of them passes through
`printable` first, so that control characters are visible and names cannot reorder the page.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from weaklink.agent.reporters.chain import chain_lines, headline, reading_of, remarks
from weaklink.agent.reporters.content import result, sections
from weaklink.agent.reporters.curves import curves
from weaklink.agent.reporters.limits import limits
from weaklink.agent.reporters.outcome import stay_table
from weaklink.agent.reporters.reading import digest_facts, status_of
from weaklink.agent.reporters.svg import gap_notes, loss_figure
from weaklink.agent.reporters.text import is_digest, printable_lines
from weaklink.agent.reporters.view import IncidentView
from weaklink.collector.evidence import Environment as RunEnvironment
from weaklink.collector.table.text import PROSE_LIMIT, printable

TEMPLATE = "incident.html.j2"


def render_html(incident: IncidentView) -> str:
    """The whole incident as one file. Any part after the opening may be missing."""
    drawn = curves(incident)
    lines = chain_lines(incident.evidence, reading_of(incident)) if incident.evidence else []
    return (
        _templates()
        .get_template(TEMPLATE)
        .render(
            incident=incident,
            subject=incident.opened.subject.command,
            ended=headline(incident.evidence)[1] if incident.evidence else "",
            result=result(incident),
            remarks=remarks(incident.evidence) if incident.evidence else [],
            status=status_of(incident),
            tone=next((line.kind for line in lines if line.first), "clean"),
            chain=[(boundary, list(group)) for boundary, group in groupby(lines, key=lambda line: line.boundary)],
            stays=stay_table(incident),
            # Numbers and fixed words only: see svg.py.
            figure=Markup(loss_figure(drawn)),
            gaps=gap_notes(drawn),
            sections=sections(incident),
            environment=_environment(incident.evidence.environment) if incident.evidence else [],
            digests=[(name, value) for name, value in digest_facts(incident) if value],
            limits=limits(incident),
        )
    )


@lru_cache(maxsize=1)
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("weaklink.agent.reporters"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["block"] = _block_text
    environment.filters["is_digest"] = is_digest
    environment.filters["kind"] = lambda block: type(block).__name__
    return environment


def _shown(value: Any) -> Any:
    """Last stop of every expression: markup we built passes, everything else becomes visible text."""
    return value if isinstance(value, Markup) else printable(str(value), PROSE_LIMIT)


def _block_text(text: str) -> Markup:
    return escape(printable_lines(text))


def _environment(environment: RunEnvironment) -> list[tuple[str, str]]:
    return [
        ("torch", environment.torch),
        ("python", environment.python),
        ("platform", environment.platform),
        ("devices", ", ".join(environment.devices) or "CPU"),
        ("threads", str(environment.threads)),
        ("deterministic", "yes" if environment.deterministic else "no"),
        *(("pin " + name, value) for name, value in environment.pins.items()),
    ]
