"""What of the evidence and of the catalogue matters most for the first divergence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from weaklink.agent.advisors.causes import CAUSES
from weaklink.agent.contract.families import ANY_BOUNDARY, BOUNDARY_OF, FAMILIES, order
from weaklink.agent.contract.first_boundary import OPEN
from weaklink.agent.measurements import MEASUREMENTS
from weaklink.collector.catalogue import CATALOGUE, Entry
from weaklink.collector.evidence import BOUNDARIES, Evidence, Row, in_chain_order


def known_families(row: Row | None) -> list[str]:
    """The families that a divergence of that row is known to mean."""
    return [family for family, _ in CAUSES.get(row.id, ()) if family not in ANY_BOUNDARY] if row is not None else []


def rows_by_weight(evidence: Evidence) -> list[list[Row]]:
    """All rows, in groups that matter less and less; chain order within each.

    The first divergence, other diverging rows, its neighbours (rows of its boundary, and rows that the same causes can
    bring about), open rows of earlier boundaries, the rest.
    """
    first = evidence.first_divergence
    families = set(known_families(first))
    left = [row for row in in_chain_order(evidence.rows) if row is not first]
    groups: list[list[Row]] = [[first] if first is not None else []]
    for wanted in (
        lambda row: row.diverges,
        lambda row: first is not None and (row.boundary == first.boundary or families & set(known_families(row))),
        lambda row: row.status in OPEN and (first is None or order(row.boundary) < order(first.boundary)),
        lambda row: True,
    ):
        groups.append([row for row in left if wanted(row)])
        left = [row for row in left if not wanted(row)]
    return groups


def experiments_by_weight(evidence: Evidence) -> list[list[Entry]]:
    """The catalogue: what decides a family that the first row is known for, what acts at its boundary, the rest."""
    first = evidence.first_divergence
    families = set(known_families(first))
    deciding = [entry for entry in CATALOGUE.values() if families & entry.decides]
    near = [entry for entry in CATALOGUE.values() if first is not None and entry.boundary == first.boundary]
    near = [entry for entry in near if entry not in deciding]
    rest = [entry for entry in CATALOGUE.values() if entry not in deciding and entry not in near]
    return [deciding, near, rest]


def families_near(evidence: Evidence) -> dict[str, list[str]]:
    """The families of the first boundary, and those that a diverging row is known for, by boundary."""
    first = evidence.first_divergence
    names: set[str] = set(FAMILIES.get(first.boundary, ())) if first is not None else set()
    names |= {name for row in evidence.rows if row.diverges for name in known_families(row)}
    shown: dict[str, list[str]] = {}
    for boundary in BOUNDARIES:
        shown[boundary] = [name for name in FAMILIES[boundary] if name in names]
    return {boundary: kept for boundary, kept in shown.items() if kept}


def measurements_moved_by(entries: Iterable[Entry]) -> Iterator[str]:
    """Names of measurements that one of the experiments can move."""
    movable = {name for entry in entries for name in entry.can_move}
    yield from (name for name in MEASUREMENTS if name in movable)


def families_of(entry: Entry) -> list[str]:
    """What it decides, in the order of the chain."""
    return sorted(entry.decides, key=lambda name: (order(BOUNDARY_OF.get(name, "")), name))
