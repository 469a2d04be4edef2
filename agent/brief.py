"""The brief: everything an advisor is shown, as one text, within a budget of tokens.

The templates in `prompts/` are ours and fixed. Whatever comes from the run, from files or from the operator (names,
texts, messages, facts, lines) enters only through their filters, which quote it: data, never instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

from weaklink.agent.contract import FAMILIES, RULES
from weaklink.agent.conversation.limits import DEFAULT_CONTEXT
from weaklink.agent.measurements import MEASUREMENTS, Measured, take
from weaklink.agent.prompting.budget import estimated_tokens, prompt_room
from weaklink.agent.prompting.excerpt import Excerpt
from weaklink.agent.prompting.parameters import parameters_of
from weaklink.agent.prompting.pieces import Piece, fill, section
from weaklink.agent.prompting.selection import (
    experiments_by_weight,
    families_near,
    families_of,
    measurements_moved_by,
    rows_by_weight,
)
from weaklink.agent.prompting.templates import MAX_TEXT, environment
from weaklink.agent.proposal import Repair
from weaklink.agent.reporters.text import is_digest
from weaklink.collector.catalogue import CATALOGUE, Entry
from weaklink.collector.evidence import Evidence, ParameterRecord, Row, in_chain_order

MAX_GROUPS = 40  # a small local model drowns in a line a module
STATES = ("nonzero", "zero", "missing", "nonfinite")
SYSTEM_ROOM = 790  # tokens of the system message with all looks on; a test holds it
# Characters of one quoted text, by the context; fewer where even what cannot be left out does not fit.
_TEXT_LIMITS = ((6_000, 160), (12_000, 400), (24_000, 1000))
_SHORTEST_TEXT = 5


@dataclass(frozen=True)
class Group:
    """The parameters of one module, counted. `in_model` is False for objects the model has replaced or dropped."""

    prefix: str
    in_model: bool
    names: list[str]
    trainable: int
    owned: int
    moved: int
    moved_measured: int
    gradients: str

    @property
    def telling(self) -> bool:
        """Whether it says more than that all is as in most runs."""
        still = self.moved < min(self.moved_measured, self.trainable)
        return not self.in_model or self.owned < self.trainable or still


def render_brief(
    evidence: Evidence,
    facts: Sequence[str] = (),
    *,
    excerpts: Sequence[Excerpt] = (),
    context: int | None = None,
) -> str:
    """The text shown to an advisor: task, run, chain, parameters, files, facts, catalogue, measurements, rules.

    Args:
        evidence: The observed run.
        facts: What the operator said.
        excerpts: Stretches of files, the most important first; already within their share (`excerpts.excerpts`).
        context: Tokens that the advisor reads at once, its answer included; by default `DEFAULT_CONTEXT`. System
            message and brief together take at most `prompt_room(context)` of them, by our estimate. What does not fit
            is left out, the least important first, and counted in the text.
    """
    context = DEFAULT_CONTEXT if context is None else context
    room = prompt_room(context) - SYSTEM_ROOM
    limit = next((limit for most, limit in _TEXT_LIMITS if context < most), MAX_TEXT)
    while True:
        text, first_shown = _Draft(evidence, facts, excerpts, limit).fitted(room)
        if (first_shown and estimated_tokens(text) <= room) or limit <= _SHORTEST_TEXT:
            return text
        limit //= 2  # texts without end: each is cut shorter, before a row that matters is left out


class _Draft:
    """One brief in the making: its pieces, the most important first, and the text that a choice of them gives."""

    def __init__(self, evidence: Evidence, facts: Sequence[str], excerpts: Sequence[Excerpt], limit: int) -> None:
        self.evidence, self.facts, self.excerpts, self.limit = evidence, facts, excerpts, limit
        self.environment = environment(limit)
        self.macros: Any = self.environment.get_template("pieces.md.j2").module
        self.positions = {id(row): index for index, row in enumerate(in_chain_order(evidence.rows))}
        self.groups = parameter_groups(evidence.parameters)

    def fitted(self, room: int) -> tuple[str, bool]:
        """The text with all pieces that fit, and whether the first divergence, if there is one, is among them."""
        pieces = list(self.pieces())
        left = room - estimated_tokens(self.text({}))
        while True:
            chosen = fill(pieces, left)
            text = self.text(chosen)
            over = estimated_tokens(text) - room  # headings and counts differ by what was chosen
            if over <= 0 or not chosen:
                return text, self.evidence.first_divergence is None or not pieces or pieces[0].place in chosen
            left -= over

    def pieces(self) -> Iterator[Piece]:
        """Later pieces of a place are longer versions of it."""
        first, diverging, near, earlier, rest = rows_by_weight(self.evidence)
        deciding, acting, others = self.experiments
        yield from self._rows(first, "row_tiny")
        yield from self._rows(first, "row_short")
        yield from self._excerpts()
        yield from self._experiments(deciding, "experiment_short")
        yield from self._rows(diverging, "row_tiny")
        yield from self._groups("group_short", telling=True)
        yield Piece(("families", 0), ", ".join(name for names in FAMILIES.values() for name in names))
        yield from self._measurements(measurements_moved_by(deciding))
        yield from self._facts()
        yield Piece(("example", 0), self.environment.get_template("example.md.j2").render())
        yield from self._experiments(deciding, "experiment_line")
        yield from self._rows(first, "row_whole")
        yield from self._rows(diverging, "row_short")
        yield from self._measurements(MEASUREMENTS)
        yield from self._rows(near, "row_tiny")
        yield from self._experiments(acting, "experiment_short")
        yield from self._groups("group_short", telling=False)
        yield from self._rows(earlier, "row_tiny")
        yield from self._rows(near, "row_short")
        yield from self._experiments(deciding, "experiment_whole")
        yield from self._experiments(acting, "experiment_line")
        yield from self._rows(rest, "row_tiny")
        yield Piece(("rules", 0), "\n".join(f"{rule.name}: {rule.says}" for rule in RULES))
        yield from self._rows([*diverging, *near, *earlier, *rest], "row_whole")
        yield from self._groups("group_whole", telling=True)
        yield from self._groups("group_whole", telling=False)
        yield from self._experiments(others, "experiment_short")
        yield from self._experiments([*acting, *others], "experiment_whole")
        yield from self._problems()

    def text(self, chosen: Mapping[tuple[str, int], str]) -> str:
        """The brief with these pieces and no other."""
        movable = list(measurements_moved_by(self.experiments[0]))
        left_out = [name for place, name in enumerate(MEASUREMENTS) if ("measurements", place) not in chosen]
        groups = section(chosen, "groups")
        facts = section(chosen, "facts")
        return self.environment.get_template("brief.md.j2").render(
            evidence=self.evidence,
            pieces=self.macros,
            first=self.evidence.first_divergence,
            rows=section(chosen, "rows"),
            groups=groups,
            groups_left_out=len(self.groups) - len(groups),
            excerpts=section(chosen, "excerpts"),
            facts=facts,
            facts_left_out=len(self.facts) - len(facts),
            families=FAMILIES if ("families", 0) in chosen else families_near(self.evidence),
            catalogue=section(chosen, "catalogue"),
            catalogue_size=len(CATALOGUE),
            movable=[_usage(name) for name in movable],
            unmoved=[_usage(name) for name in left_out if name not in movable],
            measurements=section(chosen, "measurements"),
            repair_kinds=[kind for kind in get_args(Repair.model_fields["kind"].annotation) if kind != "optimizer"],
            example=section(chosen, "example"),
            rules=RULES if ("rules", 0) in chosen else (),
            problems=section(chosen, "problems"),
        )

    @cached_property
    def experiments(self) -> list[list[Entry]]:
        """The catalogue, by weight."""
        return experiments_by_weight(self.evidence)

    def _rows(self, rows: Sequence[Row], macro: str) -> Iterator[Piece]:
        for row in rows:
            yield Piece(("rows", self.positions[id(row)]), getattr(self.macros, macro)(row))

    def _experiments(self, entries: Sequence[Entry], macro: str) -> Iterator[Piece]:
        order = [entry for group in self.experiments for entry in group]
        for entry in entries:
            text = getattr(self.macros, macro)(entry, parameters_of(entry), families_of(entry))
            yield Piece(("catalogue", order.index(entry)), text)

    def _measurements(self, names: Iterator[str] | Mapping[str, Any]) -> Iterator[Piece]:
        order = list(MEASUREMENTS)
        for name in names:
            entry = MEASUREMENTS[name]
            observed = _short_digest(take(self.evidence, name)) if entry.argument is None else Measured()
            yield Piece(("measurements", order.index(name)), self.macros.measurement(entry, observed))

    def _groups(self, macro: str, telling: bool) -> Iterator[Piece]:
        for position, group in enumerate(self.groups[:MAX_GROUPS]):
            if group.telling == telling:
                yield Piece(("groups", position), getattr(self.macros, macro)(group))

    def _excerpts(self) -> Iterator[Piece]:
        for position, part in enumerate(self.excerpts):
            macro = self.macros.summary if part.first is None else self.macros.excerpt
            yield Piece(("excerpts", position), macro(part))

    def _facts(self) -> Iterator[Piece]:
        for position, fact in enumerate(self.facts):
            yield Piece(("facts", position), f"- {self.environment.filters['q'](fact)}\n")

    def _problems(self) -> Iterator[Piece]:
        for position, problem in enumerate(self.evidence.problems):
            yield Piece(
                ("problems", position), f"- problem while measuring: {self.environment.filters['q'](problem)}\n"
            )


def _usage(name: str) -> str:
    argument = MEASUREMENTS[name].argument
    return name if argument is None else f"{name}[{argument}]"


def _short_digest(measured: Measured) -> Measured:
    """A SHA-256 by its first digits: nobody predicts one, and each costs as much as two rows."""
    value = measured.value
    return Measured(f"{value[:12]}...") if isinstance(value, str) and is_digest(value) else measured


def parameter_groups(parameters: Sequence[ParameterRecord]) -> list[Group]:
    """Parameters counted by module, in order of appearance; by outer modules where there are too many inner ones."""
    prefixes = [record.name.rpartition(".")[0] for record in parameters]
    depth = max((prefix.count(".") + 1 for prefix in prefixes), default=1)
    while depth > 1 and len(_by_prefix(parameters, depth)) > MAX_GROUPS:
        depth -= 1
    return [_group(key, records) for key, records in _by_prefix(parameters, depth).items()]


def _by_prefix(parameters: Sequence[ParameterRecord], depth: int) -> dict[tuple[str, bool], list[ParameterRecord]]:
    groups: dict[tuple[str, bool], list[ParameterRecord]] = {}
    for record in parameters:
        prefix = ".".join(record.name.split(".")[:-1][:depth])
        groups.setdefault((prefix, record.in_model), []).append(record)
    return groups


def _group(key: tuple[str, bool], records: list[ParameterRecord]) -> Group:
    states: Counter[str] = Counter(record.gradient or "not sampled" for record in records)
    return Group(
        prefix=key[0],
        in_model=key[1],
        names=[record.name for record in records],
        trainable=sum(record.requires_grad for record in records),
        owned=sum(record.owned for record in records),
        moved=sum(bool(record.moved) for record in records),
        moved_measured=sum(record.moved is not None for record in records),
        gradients=", ".join(f"{states[state]} {state}" for state in (*STATES, "not sampled") if states[state]),
    )
