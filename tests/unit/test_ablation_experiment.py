"""What the ablation takes for the model's own in a diagnosis: never what the playbook said in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import evidence_samples
import pytest
from ablation.experiment import Diagnosed, NoReplyError, diagnose, diagnosed, read_diagnosed
from ablation.kept import Kept
from ablation.observed import ObservationError, Observed, observe
from ablation.subjects import Subject as CaseVariant
from score.cases import Case

from weaklink.agent.proposal import Mechanism, Proposal, SourceCitation
from weaklink.agent.record.bodies import Answered, Opened
from weaklink.agent.record.incident import Incident
from weaklink.collector.evidence import Subject


def proposal(**more: Any) -> Proposal:
    mechanism = Mechanism(id="optimizer_holds_old_objects", boundary="OWNERSHIP", explanation="it is so")
    given: dict[str, Any] = {"outcome": "experiment", "first_boundary": "OWNERSHIP", "mechanisms": [mechanism]}
    return Proposal(**{**given, **more})


def answered(advisor: str, proposed: Proposal | None, *violations: str) -> Answered:
    return Answered(advisor=advisor, attempt=1, proposal=proposed, violations=list(violations))


def incident(*answers: Answered) -> Incident:
    opened = Opened(
        id="x",
        created="2026-12-01T00:00:00+00:00",
        weaklink="0",
        subject=Subject(kind="script", name="train.py"),
        source="script",
        folder="/",
        python="python",
        advisor="openai",
    )
    return Incident(Path("x"), opened, answered=list(answers))


def printed(family: str = "optimizer_holds_old_objects", status: str = "supported") -> dict[str, Any]:
    return {
        "mechanism": {"id": family, "status": status},
        "where": [{"file": "train.py", "line": 40, "what": "AdamW built"}],
        "advisor": "openai",
    }


def test_an_accepted_answer_is_the_models_with_its_verdict() -> None:
    found = diagnosed(incident(answered("openai", proposal())), printed())
    expected = Diagnosed("OWNERSHIP", "train.py", 40, "optimizer_holds_old_objects", "supported", 1, 0, False)
    assert found == expected
    assert found.answer is not None


def test_the_line_is_the_one_that_the_model_cites() -> None:
    cited = proposal(sources=[SourceCitation(file="model.py", line=7)])
    found = diagnosed(incident(answered("openai", cited)), printed())
    assert (found.file, found.line) == ("model.py", 7)


def test_what_the_playbook_says_in_its_place_is_not_the_models() -> None:
    refused = [answered("openai", proposal(), "lists: nothing stays") for _ in range(3)]
    found = diagnosed(incident(*refused, answered("playbook", proposal())), printed())
    assert (found.boundary, found.verdict, found.answer) == ("", None, None)
    assert (found.attempts, found.violations, found.first_refused) == (3, 3, True)


def test_an_unreadable_answer_and_a_second_one_that_holds() -> None:
    found = diagnosed(incident(answered("openai", None, "answer: no JSON"), answered("openai", proposal())), printed())
    assert (found.boundary, found.attempts, found.violations, found.first_refused) == ("OWNERSHIP", 2, 1, True)


def test_a_verdict_on_another_mechanism_is_not_its_own() -> None:
    found = diagnosed(incident(answered("openai", proposal())), printed(family="rate_wrong"))
    assert found.verdict is None


def test_a_run_that_is_left_alone_names_no_fault() -> None:
    alone = proposal(outcome="nothing_to_repair", first_boundary="NONE", mechanisms=[])
    found = diagnosed(incident(answered("openai", alone)), {"mechanism": None, "where": []})
    assert (found.boundary, found.family, found.verdict) == ("NONE", "none", None)


def test_no_answer_at_all_and_no_printed_object() -> None:
    assert diagnosed(incident(), {}) == Diagnosed("", None, None, None, None, 0, 0, False)


def test_what_was_kept_of_something_else_is_no_diagnosis() -> None:
    assert read_diagnosed(Kept(prompt_sha256="", text="", model="")) is None
    assert read_diagnosed(Kept(prompt_sha256="", text="", model="", diagnosis={"boundary": 3})) is None


# -- processes that come to nothing ------------------------------------------------------------------------------------


def command(folder: Path, body: str) -> str:
    path = folder / "weaklink"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def case(folder: Path) -> CaseVariant:
    (folder / "cases" / "scripts" / "some").mkdir(parents=True, exist_ok=True)

    def lay(variant: str, to: Path) -> None:
        (to / "train.py").write_text("print()\n")

    return CaseVariant(
        Case("scripts", "some", {"first_boundary": "NONE"}, lay, ["train.py"], frozenset(), False), "broken"
    )


ERROR = """echo '{"schema": "weaklink.error/1", "message": "There is no such file."}'; exit 2"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (ERROR, "There is no such file."),
        ("echo first >&2; echo last >&2; exit 70", "last"),
        ("exit 0", "nothing was printed"),
        ("exec sleep 30", "after 1 s"),
    ],
)
def test_a_run_without_evidence_says_why_and_leaves_nothing_half(tmp_path: Path, body: str, said: str) -> None:
    for _ in range(2):
        with pytest.raises(ObservationError, match=said):
            observe(command(tmp_path, body), tmp_path / "cases", case(tmp_path), tmp_path / "store", 1.0)
    assert not list((tmp_path / "store").rglob("key.txt"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (ERROR, "There is no such file."),
        ("echo '[1]'; echo why >&2", "why"),
        ("exit 0", "no incident"),
        ("exec sleep 30", "after 1 s"),
    ],
)
def test_a_diagnosis_without_a_record_is_no_answer(tmp_path: Path, body: str, said: str) -> None:
    folder = tmp_path / "seen"
    folder.mkdir()
    observed = Observed(folder, evidence_samples.stale_head_evidence(), "")
    with pytest.raises(NoReplyError, match=said):
        diagnose(command(tmp_path, body), case(tmp_path), observed, ["--model", "m"], "key", 1.0)
