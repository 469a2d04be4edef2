"""The chain alone, without advisor, experiment and record: what `weaklink ledger` prints."""

from __future__ import annotations

from typing import Any

from weaklink.agent.reporters.content import ending, failing, no_row_fails, suspecting, worth
from weaklink.agent.reporters.json_report import plain
from weaklink.agent.reporters.next_step import diagnose_command
from weaklink.agent.reporters.terminal import MIN_WIDTH, render_chain
from weaklink.collector.declared import Intent
from weaklink.collector.evidence import Evidence, in_chain_order
from weaklink.collector.table.layout import wrap
from weaklink.collector.table.text import PROSE_LIMIT, printable

CHAIN_SCHEMA = "weaklink.chain/1"


def render_ledger(evidence: Evidence, width: int = 100, color: bool = False) -> str:
    """The learning chain as a table, and sentences on it; the last one names the first divergence."""
    width = max(width, MIN_WIDTH)
    texts = [*ending(evidence), *_conclusion(evidence)]
    lines = [line for text in texts for line in wrap(printable(text, PROSE_LIMIT), width)]
    return render_chain(evidence, width, color) + "\n" + "\n".join(lines) + "\n"


def ledger_json(evidence: Evidence) -> dict[str, Any]:
    """The one object `weaklink ledger --json` prints. `first_divergence` may be a suspected row: read its status."""
    first = evidence.first_divergence
    rows = in_chain_order(evidence.rows)
    return {
        "schema": CHAIN_SCHEMA,
        "subject": plain(evidence.subject),
        "branch": evidence.branch,
        "outcome": plain(evidence.outcome),
        "first_divergence": None if first is None else {"row": first.id, "status": first.status, "basis": first.basis},
        "suspected": [row.id for row in rows if row.status == "suspected"],
        "rows": [plain(row) for row in rows],
        "parameters": [plain(parameter) for parameter in evidence.parameters],
    }


def _conclusion(evidence: Evidence) -> list[str]:
    first = evidence.first_divergence
    if first is None:
        return [no_row_fails(evidence), worth(evidence), "First divergence: none."]
    if first.status == "fail":
        return [failing(first)]
    declared = Intent.model_validate(evidence.declared)
    settle = f"Only an experiment can settle it: {diagnose_command(evidence.subject, evidence.rule, declared)}"
    return [suspecting(first), settle, f"First divergence: none; {first.id} is suspected."]
