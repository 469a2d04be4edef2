"""A frozen incident of the stale head, and answers to it as somebody would hand them in."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import STALE_HEAD, call

from weaklink.agent.record.check import check_record
from weaklink.agent.record.incident import Incident


@dataclass(frozen=True)
class Frozen:
    """A folder with the script and one incident that ended after freezing."""

    folder: Path
    name: str

    @property
    def path(self) -> Path:
        return self.folder / "incidents" / self.name

    @property
    def incident(self) -> Incident:
        return Incident.read(self.path)

    @property
    def intact(self) -> bool:
        return check_record(self.path).intact

    def answer(self) -> dict[str, Any]:
        """The playbook's own answer of the first round, in the form in which a model writes it."""
        proposal = self.incident.rounds[0].proposal
        assert proposal is not None
        assert proposal.experiment is not None
        body: dict[str, Any] = json.loads(proposal.model_dump_json())
        parameters = body["experiment"]["parameters"]
        body["experiment"]["parameters"] = [{"name": name, "value": value} for name, value in parameters.items()]
        return body

    def refuted_answer(self) -> dict[str, Any]:
        """The same explanation with an experiment that mends half: one of the two parameters stays in no optimizer."""
        body = self.answer()
        body["experiment"]["parameters"] = [{"name": "parameters", "value": "head.weight"}]
        return body

    def broken_answer(self) -> dict[str, Any]:
        """Another boundary than the chain's, and nothing that has to stay."""
        return {**self.answer(), "first_boundary": "UPDATE", "must_stay_unchanged": []}

    def copy(self, to: Path) -> Frozen:
        shutil.copytree(self.folder, to, dirs_exist_ok=True)
        return Frozen(to, self.name)


def diagnosed(folder: Path) -> Frozen:
    """One diagnosis that stops after freezing."""
    shutil.copy(STALE_HEAD, folder / "train.py")
    ran = call("diagnose", "train.py", "--json", "--no-rerun", "--horizon", "201", cwd=folder)
    return Frozen(folder, Path(ran.json["incident"]).name)


def in_prose(body: dict[str, Any]) -> str:
    """As a chat window shows it."""
    return f"The optimizer holds the old head.\n\n```json\n{json.dumps(body, indent=1)}\n```\n\nHope this helps!\n"
