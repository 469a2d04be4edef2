"""Each rule of the contract broken together with another one: both are named, neither hides the other."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from test_contract import CASES, STALE_HEAD, changed

from weaklink.agent.contract import RULES, violations
from weaklink.agent.conversation.shown import Shown
from weaklink.agent.proposal import Proposal
from weaklink.collector.evidence import Evidence

ALONE = {name: case for name, case in CASES.items() if len(case[2]) == 1}


def false_citation(made: dict[str, Any]) -> None:
    made["cited"] = [*made.get("cited", []), {"row": "OBJECTIVE/value", "field": "first", "value": 0.9}]


def line_nobody_showed(made: dict[str, Any]) -> None:
    made["sources"] = [{"file": "train.py", "line": 3, "text": "optimizer.step()"}]


def premature_repair(made: dict[str, Any]) -> None:
    made["repair"] = {"text": "make it wider", "kind": "architecture"}


ADDED = {"citations": false_citation, "sources": line_nobody_showed, "repair": premature_repair}


def pairs() -> list[tuple[str, str]]:
    """Every case that breaks one rule, with each of the additions that breaks another one on the same evidence."""
    found = []
    for name, (evidence, made, broken) in ALONE.items():
        first = evidence.first_divergence
        for added in ADDED:
            settled = added == "repair" and (first is None or first.status != "fail" or "nothing" in made["outcome"])
            # Where a repair is the offence, another repair would take its place.
            if added not in broken and not settled:
                found.append((name, added))
    return found


@pytest.mark.parametrize(("name", "added"), pairs())
def test_both_rules_are_named(name: str, added: str) -> None:
    evidence, made, broken = CASES[name]
    made = copy.deepcopy(made)
    ADDED[added](made)
    found = violations(Proposal.model_validate(made), evidence)
    assert {violation.rule for violation in found} == broken | {added}, "\n".join(map(str, found))


def test_every_rule_stands_alone_and_in_pairs() -> None:
    names = {rule.name for rule in RULES}
    assert {rule for _, _, broken in ALONE.values() for rule in broken} == names
    assert {rule for name, added in pairs() for rule in (*CASES[name][2], added)} == names
    assert len(CASES) >= 40


def judged(shown: Shown, evidence: Evidence = STALE_HEAD, **fields: Any) -> list[str]:
    return [str(each) for each in violations(Proposal.model_validate(changed(**fields)), evidence, shown)]


def shown(asked: bool = False) -> Shown:
    found = Shown()
    found.add(
        "train.py", 40, ["    optimizer = AdamW(model.parameters(),  lr=1e-2)", "", "    model.head = new"], asked
    )
    return found


def cited(line: int, text: str, file: str = "train.py") -> list[dict[str, Any]]:
    return [{"file": file, "line": line, "text": text}]


@pytest.mark.parametrize("text", ["optimizer = AdamW(model.parameters(), lr=1e-2)", "AdamW(", ""])
def test_a_line_that_was_shown_may_be_cited_in_part_and_with_other_blanks(text: str) -> None:
    assert judged(shown(), sources=cited(40, text)) == []


@pytest.mark.parametrize(
    ("sources", "says"),
    [
        (cited(40, "SGD("), "line 40 reads"),
        (cited(40, "model.head"), 'not "model.head"; that stands in line 42.'),
        (cited(39, ""), "shown were lines 40 to 42"),
        (cited(40, "AdamW", "model.py"), 'The file "model.py" was not shown; shown were: "train.py".'),
        (cited(40, "AdamW", "../train.py"), "was not shown"),
    ],
)
def test_a_line_that_does_not_stand_there_is_no_ground(sources: list[dict[str, Any]], says: str) -> None:
    (sentence,) = judged(shown(), sources=sources)
    assert says in sentence


def test_who_asked_to_read_cites_what_was_read() -> None:
    (sentence,) = judged(shown(asked=True))
    assert "cite in sources" in sentence
    assert judged(shown(asked=True), sources=cited(42, "model.head")) == []


def test_of_an_empty_file_nothing_need_be_cited() -> None:
    empty = Shown()
    empty.add("__init__.py", 1, [], asked=True)
    assert judged(empty) == []


def test_who_was_only_shown_lines_need_not_cite_them() -> None:
    assert judged(shown()) == []


def test_the_page_names_every_rule() -> None:
    page = (Path(__file__).parents[2] / "docs" / "contract.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [rule.name for rule in RULES]
