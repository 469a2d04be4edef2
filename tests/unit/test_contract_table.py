"""The contract on one run a kind of fault: the playbook's whole proposal, every rule broken alone, every two together.

Each breach is written once and holds on every run that allows it; exactly the broken rules are named, no rule hides
another, and none is named for company.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest
from evidence_samples import stale_head_evidence
from fault_samples import climbing, dead, detached, doubled, exploding, motionless, run, shuffled

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.contract import BOUNDARY_OF, RULES, violations
from weaklink.agent.contract.grounds import grounds
from weaklink.agent.measurements import parse_key, take
from weaklink.agent.proposal import Proposal
from weaklink.collector.catalogue import CATALOGUE
from weaklink.collector.evidence import Evidence

Body = dict[str, Any]
RUNS: dict[str, Evidence] = {
    "stale head": stale_head_evidence(),
    "detached": detached(),
    "shuffled": shuffled(),
    "doubled": doubled(),
    "exploding": exploding(),
    "climbing": climbing(),
    "dead": dead(),
    "motionless": motionless(),
}
HEALTHY = run("UPDATE/scale", "pass", {"ratio": 0.1})


def good(evidence: Evidence) -> Body:
    body: Body = Playbook().advise(evidence, "", []).model_dump(mode="json")
    return body | {"question": None}


def broken(body: Body, evidence: Evidence) -> set[str]:
    return {violation.rule for violation in violations(Proposal.model_validate(body), evidence)}


# --- One breach a rule: it changes the proposal in place, and answers whether this run allows it ----------------------


def no_experiment(body: Body, evidence: Evidence) -> bool:
    body["experiment"] = None
    return True


def no_first_row(body: Body, evidence: Evidence) -> bool:
    body["first_row"] = None
    return True


def false_value(body: Body, evidence: Evidence) -> bool:
    body["cited"].append({"row": body["first_row"] or evidence.rows[0].id, "field": "status", "value": "pass"})
    return True


def nothing_cited(body: Body, evidence: Evidence) -> bool:
    body["cited"] = []
    return True


def rival_at_no_boundary(body: Body, evidence: Evidence) -> bool:
    body["mechanisms"][-1]["boundary"] = "HEAD"
    return True


def lead_moves_what_must_stay(body: Body, evidence: Evidence) -> bool:
    lead, *rivals = body["mechanisms"]
    predict(lead, body["must_stay_unchanged"][0], "different")
    for rival in rivals:
        if body["must_stay_unchanged"][0] not in {each["measurement"] for each in rival["predictions"]}:
            predict(rival, body["must_stay_unchanged"][0], "same")
    return True


def rival_agrees_everywhere(body: Body, evidence: Evidence) -> bool:
    lead, *_, rival = body["mechanisms"]
    rival["predictions"] = [dict(each) for each in lead["predictions"]]
    return True


def rival_says_something_twice(body: Body, evidence: Evidence) -> bool:
    rival = body["mechanisms"][-1]
    rival["predictions"].append(dict(rival["predictions"][-1]))
    return True


def nothing_must_change(body: Body, evidence: Evidence) -> bool:
    body["must_change"] = []
    return True


def no_measurement(body: Body, evidence: Evidence) -> bool:
    body["must_stay_unchanged"].append("gradient.noise")
    return True


def steps_become_what_they_are(body: Body, evidence: Evidence) -> bool:
    for mechanism in body["mechanisms"]:
        predict(mechanism, "steps", "becomes", evidence.outcome.steps)
    return "steps" not in body["must_stay_unchanged"]


def loss_alone(body: Body, evidence: Evidence) -> bool:
    body["must_change"] = ["loss.last"]
    for mechanism in body["mechanisms"]:
        if "loss.last" not in {each["measurement"] for each in mechanism["predictions"]}:
            predict(mechanism, "loss.last", "different")
    return True


def stays_out_of_reach(body: Body, evidence: Evidence) -> bool:
    entry = CATALOGUE[body["experiment"]["name"]]
    first = {each["measurement"]: each["expect"] for each in body["mechanisms"][0]["predictions"]}
    keys = ("input.first", "target.first", "output.first", "loss.first", "gradient.first[*]", "steps")
    parsed = {key: parse_key(key) for key in keys if take(evidence, key).taken and first.get(key, "same") == "same"}
    beyond = [key for key, name in parsed.items() if name is not None and name.name not in entry.can_move]
    body["must_stay_unchanged"] = beyond[:1]
    return bool(beyond)


def another_optimizer(body: Body, evidence: Evidence) -> bool:
    body["repair"] = {"text": "try SGD", "kind": "optimizer"}
    return True


def unknown_parameter(body: Body, evidence: Evidence) -> bool:
    body["experiment"]["parameters"] = {"strength": 2}
    return True


def healthy_as_the_lead(body: Body, evidence: Evidence) -> bool:
    body["mechanisms"][0]["id"] = "none"
    return all(each["id"] != "none" for each in body["mechanisms"][1:])


def excluded_lead(body: Body, evidence: Evidence) -> bool:
    lead, *rivals = body["mechanisms"]
    for family in sorted(CATALOGUE[body["experiment"]["name"]].decides - {each["id"] for each in rivals}):
        lead["id"] = family
        if BOUNDARY_OF[family] == lead["boundary"] and any(grounds(Proposal.model_validate(body), evidence)):
            return True
    return False


def line_nobody_showed(body: Body, evidence: Evidence) -> bool:
    body["sources"] = [{"file": "train.py", "line": 1, "text": "import torch"}]
    return True


def predict(mechanism: Body, measurement: str, expect: str, value: Any = None) -> None:
    others = [each for each in mechanism["predictions"] if each["measurement"] != measurement]
    mechanism["predictions"] = [*others, {"measurement": measurement, "expect": expect, "value": value}]


# In the order in which two of them can be put into one proposal.
BREACHES: dict[str, Callable[[Body, Evidence], bool]] = {
    "stay_could_move": stays_out_of_reach,
    "loss_alone": loss_alone,
    "foregone": steps_become_what_they_are,
    "lead": lead_moves_what_must_stay,
    "grounds": excluded_lead,
    "decides": healthy_as_the_lead,
    "discrimination": rival_agrees_everywhere,
    "predictions": rival_says_something_twice,
    "mechanisms": rival_at_no_boundary,
    "measurements": no_measurement,
    "first_row_cited": nothing_cited,
    "citations": false_value,
    "first_boundary": no_first_row,
    "lists": nothing_must_change,
    "repair": another_optimizer,
    "experiment": unknown_parameter,
    "shape": no_experiment,
    "sources": line_nobody_showed,
}
# Two that would have to say different things in the same place, or where one leaves the other nothing to be judged on.
APART = [
    {"grounds", "decides"},
    {"lists", "loss_alone"},
    {"citations", "first_row_cited"},
    {"shape", "experiment"},
    {"shape", "decides"},
    {"shape", "stay_could_move"},
]


def alone(evidence: Evidence) -> Iterator[str]:
    """The rules that can be broken on this run."""
    for rule, breach in BREACHES.items():
        if breach(good(evidence), evidence):
            yield rule


@pytest.mark.parametrize("name", RUNS)
def test_the_playbooks_proposal_meets_every_rule(name: str) -> None:
    body = good(RUNS[name])
    assert body["outcome"] == "experiment"
    assert broken(body, RUNS[name]) == set()


@pytest.mark.parametrize("name", RUNS)
def test_each_rule_alone(name: str) -> None:
    for rule in alone(RUNS[name]):
        body = good(RUNS[name])
        BREACHES[rule](body, RUNS[name])
        assert broken(body, RUNS[name]) == {rule}


@pytest.mark.parametrize("name", RUNS)
def test_every_two_rules_together(name: str) -> None:
    wrong = []
    for one, other in combinations(alone(RUNS[name]), 2):
        body = good(RUNS[name])
        together = {one, other} not in APART and BREACHES[one](body, RUNS[name]) and BREACHES[other](body, RUNS[name])
        if together and (found := broken(body, RUNS[name])) != {one, other}:
            wrong.append((one, other, found))
    assert not wrong


def test_every_rule_for_experiments_is_broken_on_some_run() -> None:
    names = {rule.name for rule in RULES} - {"nothing_to_repair"}
    assert set(BREACHES) == names
    assert {rule for evidence in RUNS.values() for rule in alone(evidence)} == names


@pytest.mark.parametrize("name", [*RUNS, "healthy"])
@pytest.mark.parametrize("outcome", ["ask_operator", "inconclusive", "nothing_to_repair"])
def test_answers_without_an_experiment(name: str, outcome: str) -> None:
    evidence = RUNS.get(name, HEALTHY)
    first = evidence.first_divergence
    body: Body = {"outcome": outcome, "first_boundary": "NONE", "first_row": None}
    if first is not None and outcome != "nothing_to_repair":
        body |= {"first_boundary": first.boundary, "first_row": first.id}
    body["question"] = "Is that meant?" if outcome == "ask_operator" else None
    refused = {"nothing_to_repair"} if outcome == "nothing_to_repair" and first is not None else set()
    assert broken(body, evidence) == refused
    # A reason takes a suspicion back, and no fail.
    fails = first is not None and first.status == "fail"
    assert broken(body | {"dissent": "It is meant."}, evidence) == (refused if fails else set())
