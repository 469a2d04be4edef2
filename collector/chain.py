"""The learning chain as an object in a notebook: rows, the first divergence, a table."""

from __future__ import annotations

import functools
import html
import json
import shutil

from weaklink.collector.assembly import Reading
from weaklink.collector.evidence import Evidence, ParameterRecord, Row, Site, evidence_text, first_divergence
from weaklink.collector.table.columns import chain_text
from weaklink.collector.table.lines import ChainLine, table_lines
from weaklink.collector.table.text import PROSE_LIMIT, printable

_COLORS = {"pass": "#1a7f37", "fail": "#cf222e", "suspected": "#9a6700", "not_measured": "#6e7781"}


class LearningChain:
    """What a ledger or a watched loop measured. Holds no tensor: it may outlive the model."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    @property
    def rows(self) -> list[Row]:
        """All rows, in chain order."""
        return list(self._reading.rows)

    def row(self, row_id: str) -> Row:
        """The row of that id, such as `"GRADIENT/present"`.

        Raises:
            KeyError: There is no such row; names those of its boundary. On a clean chain `first_divergence` is None,
                which is no row.
        """
        for row in self._reading.rows:
            if row.id == row_id:
                return row
        boundary = str(row_id).partition("/")[0]
        known = [row.id for row in self._reading.rows]
        near = [known_id for known_id in known if known_id.startswith(boundary + "/")]
        raise KeyError(f"no row {row_id!r}; rows of this chain: {', '.join(near or known)}")

    @property
    def first_divergence(self) -> str | None:
        """Id of the first row that fails; None where none does. Suspicions accuse nobody: see `suspected`."""
        first = first_divergence(self._reading.rows)
        return first.id if first is not None and first.status == "fail" else None

    @property
    def suspected(self) -> list[str]:
        """Ids of the rows that an experiment would have to settle, in chain order."""
        return [row.id for row in self._reading.rows if row.status == "suspected"]

    @property
    def parameters(self) -> list[ParameterRecord]:
        """One record a parameter object, with its gradient's state: missing, nonfinite, zero or nonzero."""
        return list(self.evidence.parameters)

    @functools.cached_property
    def evidence(self) -> Evidence:
        """Everything measured. Written to a file, it is a subject for `weaklink diagnose evidence.json`."""
        return self._reading.evidence()

    def to_json(self) -> str:
        """The evidence as JSON text (schema `weaklink.evidence/1`)."""
        return evidence_text(self.evidence)

    def to_dict(self) -> dict[str, object]:
        """The same as plain dictionaries; NaN and infinity as words."""
        return dict(json.loads(self.to_json()))

    def __str__(self) -> str:
        return chain_text(table_lines(self._reading.rows), _width()) + "\n\n" + "\n".join(self._last_lines())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        lines = "".join(map(_html_line, table_lines(self._reading.rows)))
        said = "<br>".join(html.escape(line) for line in self._last_lines())
        return f"<table>{lines}</table><p>{said}</p>"

    def _last_lines(self) -> list[str]:
        """What the table comes to, and the places in the user's code it points at."""
        return [*self._raised(), *self._found()]

    def _raised(self) -> list[str]:
        """An exception that stands in no row: from the data, say, between a step and the next forward."""
        raised = self._reading.outcome.raised
        if raised is None or any(row.label == "raised" for row in self._reading.rows):
            return []
        text = f"It raised {printable(raised.type)}: {printable(raised.message, PROSE_LIMIT)}"
        return [text, *([_place(raised.where)] if raised.where else []), "What had been measured by then:"]

    def _found(self) -> list[str]:
        row = first_divergence(self._reading.rows)
        if row is None and not any(row.status == "pass" for row in self._reading.rows):
            return ["Nothing was measured: no training step was seen."]
        if row is None and self._nothing_matches():
            return ["No parameter has a name that was declared to be trained: nothing was judged."]
        if row is None:
            return ["No row diverges: nothing measured contradicts the intended system."]
        fails = row.status == "fail"
        said = f"First divergence: {row.id} fails ({row.basis})" if fails else f"No row fails. Suspected: {row.id}"
        return [f"{said}: {printable(row.text, PROSE_LIMIT)}", *map(_place, row.where)]

    def _nothing_matches(self) -> bool:
        """Whether patterns were declared, and no parameter has such a name: a misspelt one, most likely."""
        declared = self._reading.observation.declared
        names = [entry.name for entry in self._reading.observation.parameters if entry.name is not None]
        return bool(declared.expected and names) and not any(map(declared.expects, names))


def _place(site: Site) -> str:
    return f"{printable(site.place)}: {printable(site.what)}"


def _width() -> int:
    return max(60, min(120, shutil.get_terminal_size((100, 24)).columns))


def _html_line(line: ChainLine) -> str:
    color = _COLORS.get(line.kind, "inherit")
    note = f" <b>{html.escape(line.note)}</b>" if line.note else ""
    cells = (
        f"<b>{html.escape(line.section)}</b>",
        html.escape(printable(line.label)),
        f'<span style="color:{color}">{html.escape(line.word)}</span>',
        html.escape(printable(line.text, PROSE_LIMIT)) + note,
    )
    return "<tr>" + "".join(f'<td style="text-align:left;vertical-align:top">{cell}</td>' for cell in cells) + "</tr>"
