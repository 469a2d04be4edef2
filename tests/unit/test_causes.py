"""Every row that can diverge has a page whose answer the contract accepts: else a finding would end in exit code 3."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from evidence_samples import stale_head_evidence

from weaklink.agent.advisors.causes import CAUSES, QUESTIONS, REPAIRS
from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.contract import violations
from weaklink.collector.evidence import Row

ROWS = Path(__file__).parents[2] / "collector" / "rows"


def evidence_with(row: Row):
    return stale_head_evidence().model_copy(update={"rows": [row], "parameters": [], "steps": []})


@pytest.mark.parametrize("row_id", sorted(CAUSES))
@pytest.mark.parametrize("status", ["fail", "suspected"])
def test_the_answer_to_a_diverging_row_meets_the_contract(row_id, status):
    row = Row(id=row_id, status=status, basis="exact" if status == "fail" else None, text="found", values={})
    evidence = evidence_with(row)
    proposal = Playbook().advise(evidence, "", [])
    assert not violations(proposal, evidence)
    assert proposal.first_row == row_id
    assert 2 <= len(proposal.mechanisms) <= 3 or row_id.endswith("/raised")


def test_questions_and_repairs_speak_of_known_rows():
    assert set(QUESTIONS) | set(REPAIRS) <= set(CAUSES)


def test_every_row_that_can_diverge_has_causes():
    text = "".join(path.read_text(encoding="utf-8") for path in ROWS.glob("*.py"))
    named = set(
        re.findall(r'"((?:TASK|OBJECTIVE|DEPENDENCY|GRADIENT|OWNERSHIP|UPDATE|CAPABILITY|EVALUATION)/\w+)"', text)
    )
    missing = {row for row in named - set(CAUSES) if _may_diverge(row)}
    assert not missing


def _may_diverge(row_id: str) -> bool:
    """Whether the file that makes the row knows a fail or a suspicion next to its id."""
    for path in ROWS.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(re.escape(f'"{row_id}"'), text):
            made = text[found.start() : found.start() + 400].partition("Row(")[0]
            if re.search(r'"(fail|suspected)"', made):
                return True
    return False
