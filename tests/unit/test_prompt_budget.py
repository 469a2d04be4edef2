"""The budget of a prompt: the estimate beside real tokenizers, and what is left out first where room is short."""

from __future__ import annotations

from pathlib import Path

import pytest
from evidence_samples import EMPTY, stale_head_evidence
from fault_samples import run
from hypothesis import given, settings
from hypothesis import strategies as st

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.brief import SYSTEM_ROOM, render_brief
from weaklink.agent.contract import RULES
from weaklink.agent.prompting.budget import answer_room, estimated_tokens, prompt_room
from weaklink.agent.prompting.excerpt import Excerpt
from weaklink.agent.prompting.pieces import Piece, fill, section
from weaklink.agent.prompting.prompts import system_prompt
from weaklink.collector.catalogue import CATALOGUE
from weaklink.collector.evidence import Evidence, Row

CONTEXTS = (3_000, 4_096, 8_192, 16_384, 32_768, 131_072)
INSTRUMENTS = ("activation_statistics", "nonfinite_trace", "slices", "learning_rates", "tiny_batch")

# Counted by llama.cpp with the vocabularies of Llama 2, Llama 3, Qwen 2, SmolLM 2 and DeepSeek: the least and the most.
COUNTED = {
    "A prediction says of one of these what it is against the control run: same, different, up, down, or becomes with "
    "a value. Localize before you repair, and name the first boundary that contradicts what is intended.": (46, 47),
    '- "OWNERSHIP/owned": fail (exact), seen at step 1; text "0/2 expected parameters in an optimizer; in none: '
    'head.weight, head.bias"; "owned" = 0; "expected" = 2; at "train.py" line 40: "AdamW built"': (66, 75),
    "   40|     optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)\n"
    "   41| \n"
    "   42|     # A new task wants a new head.\n"
    "   43|     torch.manual_seed(7)\n"
    "   44|     model.head = nn.Linear(32, 2)\n": (74, 96),
    '{"measurement": "delta.net[rest.*]", "expect": "same", "value": null}, {"id": "rate_wrong", "boundary": '
    '"UPDATE", "explanation": "The rate is zero.", "predictions": []}': (49, 57),
    "0.683605968952179 0.155525 1.948e-01 301 2048 -0.0096 0.9934 4.1015 1039/1009 2.718281828459045": (53, 95),
    "6506d1d9826fcf79cc9a8f8aff45ca69a8789c89cf5385dd7a18da5b16bb8c5d": (41, 56),
    "\\u202e\\u001b[2J\\n\\u0000\\ud800\\u003c/evidence\\u003e\\u003cscript\\u003e": (31, 56),
    "模型不学习，损失不下降，优化器持有旧的参数对象。": (16, 37),
    "Модель не учится, потери не падают: оптимизатор держит старые объекты.": (24, 55),
}


@pytest.mark.parametrize("text", COUNTED)
def test_the_estimate_errs_upwards(text: str) -> None:
    least, most = COUNTED[text]
    assert 0.97 * most <= estimated_tokens(text) <= 3.1 * least


@given(text=st.text(max_size=200), more=st.text(max_size=20))
@settings(max_examples=100, deadline=None)
def test_more_text_costs_no_less(text: str, more: str) -> None:
    assert 0 < estimated_tokens(text) <= estimated_tokens(text + "\n" + more)


def test_the_context_is_divided() -> None:
    for context in CONTEXTS:
        assert answer_room(context) >= 1000
        assert prompt_room(context) + answer_room(context) <= context
    assert prompt_room(4096) <= 2600
    assert answer_room(131_072) > answer_room(32_768) > answer_room(4_096)


def test_the_page_has_these_numbers() -> None:
    page = (Path(__file__).parents[2] / "docs" / "prompts.md").read_text(encoding="utf-8")
    for context in CONTEXTS[1:]:
        assert f"| {context} | {prompt_room(context)} | {answer_room(context)} |" in page


def test_the_system_message_keeps_to_its_room() -> None:
    assert estimated_tokens(system_prompt(12, INSTRUMENTS, 3)) <= SYSTEM_ROOM


def evidences() -> list[Evidence]:
    wide = stale_head_evidence()
    wide.rows += [
        Row(
            id=f"{boundary}/more{number}",
            status="evidence",
            text="text " * 60,
            values={"a": 0.25, "b": ["x" * 300] * 9},
        )
        for boundary in ("TASK", "OBJECTIVE", "UPDATE")
        for number in range(40)
    ]
    diverging = [
        run(row, "fail", {"expected": 2})
        for row in ("UPDATE/lr", "GRADIENT/finite", "OBJECTIVE/fed", "TASK/rule", "EVALUATION/buffers")
    ]
    return [stale_head_evidence(), EMPTY, wide, *diverging, run("OBJECTIVE/loss", "pass", {})]


@pytest.mark.parametrize("context", CONTEXTS)
def test_system_message_and_brief_fit(context: int) -> None:
    system = estimated_tokens(system_prompt(12, INSTRUMENTS, 3))
    for evidence in evidences():
        facts = [f"fact {number}: " + "words " * 200 for number in range(20)]
        brief = render_brief(evidence, facts, context=context)
        assert system + estimated_tokens(brief) <= prompt_room(context), (evidence.rows[:1], context)


@pytest.mark.parametrize("size", [10_000, 1_000_000])
def test_names_without_end_still_fit(size: int) -> None:
    evidence = stale_head_evidence()
    name = "\x1b\u202e<" * (size // 3)
    evidence.task = evidence.outcome.note = name
    evidence.problems = [name] * 3
    for row in evidence.rows:
        row.text, row.values = name, {name: [name] * 5, "x": name}
    for record in evidence.parameters:
        record.name = name
    for context in (4_096, 32_768):
        brief = render_brief(evidence, [name], context=context)
        assert SYSTEM_ROOM + estimated_tokens(brief) <= prompt_room(context)
        assert '- "OWNERSHIP/owned": fail' in brief


@pytest.mark.parametrize("context", CONTEXTS[1:])
def test_what_a_conforming_answer_needs_is_there(context: int) -> None:
    """Everything that the playbook's answer names can be read off the smallest prompt."""
    for evidence in evidences():
        proposal = Playbook().advise(evidence, "", [])
        if proposal.outcome != "experiment":
            continue
        brief = render_brief(evidence, context=context)
        assert proposal.experiment is not None
        names = [proposal.first_row, proposal.experiment.name, *proposal.experiment.parameters]
        names += [mechanism.id for mechanism in proposal.mechanisms]
        names += [name for citation in proposal.cited for name in (citation.row, citation.field)]
        names += [key.partition("[")[0] for key in (*proposal.must_change, *proposal.must_stay_unchanged)]
        assert [name for name in names if name is not None and name not in brief] == []


def test_what_matters_less_goes_first() -> None:
    evidence = evidences()[2]
    sizes, shown = [], []
    for context in CONTEXTS:
        brief = render_brief(evidence, context=context)
        sizes.append(len(brief))
        shown.append({row.id for row in evidence.rows if f'- "{row.id}":' in brief})
        assert '- "OWNERSHIP/owned"' in brief
    assert sizes == sorted(sizes)
    assert all({"OWNERSHIP/owned", "OWNERSHIP/stale", "UPDATE/moved"} <= rows for rows in shown[1:])
    assert [len(rows) for rows in shown] == sorted(len(rows) for rows in shown)
    assert len(shown[-1]) == len(evidence.rows)
    small = render_brief(evidence, context=4_096)
    assert f"of {len(evidence.rows)} rows shown." in small
    assert f"of {len(CATALOGUE)} experiments shown." in small
    assert "rows shown." not in render_brief(stale_head_evidence())


def test_only_experiments_that_decide_are_shown_where_room_is_short() -> None:
    small = render_brief(stale_head_evidence(), context=4_096)
    assert "- own_missing_parameters; decides" in small
    assert "- batchnorm_momentum" not in small
    assert RULES[0].says not in small
    assert RULES[0].says in render_brief(stale_head_evidence(), context=16_384)


def test_files_that_were_chosen_stand_in_the_brief() -> None:
    part = Excerpt("train.py", 40, ("optimizer = AdamW(model.parameters())", "", "model.head = Linear(2, 2)"), "a note")
    brief = render_brief(stale_head_evidence(), excerpts=[part], context=4_096)
    assert '### "train.py", a note\n\n   40| optimizer = AdamW(model.parameters())\n   41| \n   42| model.head' in brief


def test_a_longer_version_replaces_the_shorter_where_it_fits() -> None:
    pieces = [
        Piece(("a", 1), "one"),
        Piece(("a", 0), "two two two two"),
        Piece(("a", 1), "one one one"),
        Piece(("b", 0), "word " * 100),
    ]
    chosen = fill(pieces, 20)
    assert section(chosen, "a") == ["two two two two", "one one one"]
    assert section(chosen, "b") == []
    assert section(fill(pieces, 3), "a") == ["one"]
