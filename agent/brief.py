"""The brief: everything an advisor is shown, as one text.

The template in `prompts/brief.md.j2` is ours and fixed. Whatever comes from the run or the operator (names, texts,
messages, facts) enters only through the `q` filter, which turns it into quoted JSON: data, never instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

from weaklink.agent.contract import FAMILIES, RULES, quoted
from weaklink.agent.measurements import MEASUREMENTS, take
from weaklink.agent.proposal import Repair
from weaklink.collector.catalogue import CATALOGUE, Entry
from weaklink.collector.evidence import Evidence, ParameterRecord, in_chain_order

MAX_TEXT = 2000
MAX_GROUPS = 40  # a small local model drowns in a line a module
STATES = ("nonzero", "zero", "missing", "nonfinite")


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


def render_brief(evidence: Evidence, facts: Sequence[str] = ()) -> str:
    """The text shown to an advisor: task, run, chain, parameters, operator's facts, catalogue, measurements, rules."""
    import jinja2  # lazily: the other commands need no template

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("weaklink.prompts", package_path=""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # plain text; `q` quotes what is not ours
    )
    environment.filters["q"] = partial(quoted, limit=MAX_TEXT)
    groups = parameter_groups(evidence.parameters)
    return environment.get_template("brief.md.j2").render(
        evidence=evidence,
        rows=in_chain_order(evidence.rows),
        first=evidence.first_divergence,
        facts=list(facts),
        groups=groups[:MAX_GROUPS],
        groups_left_out=len(groups) - len(groups[:MAX_GROUPS]),
        catalogue=list(CATALOGUE.values()),
        parameters_of=_parameters_of,
        families=FAMILIES,
        measurements=MEASUREMENTS.values(),
        observed={name: take(evidence, name) for name, entry in MEASUREMENTS.items() if entry.argument is None},
        repair_kinds=[kind for kind in get_args(Repair.model_fields["kind"].annotation) if kind != "optimizer"],
        rules=RULES,
    )


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


def _parameters_of(entry: Entry) -> list[str]:
    return [
        f"{name} ({'required' if field.is_required() else 'default ' + quoted(field.get_default())})"
        for name, field in entry.parameters.model_fields.items()
    ]
