"""`weaklink recover`, as a user runs it: real repairs recover, repairs of the symptom do not, whatever they print."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Ran, call

from weaklink.agent.record.check import check_record
from weaklink.agent.record.incident import Incident

# The gradients of all steps so far are taken at every step. What it reads stands in a file of its own.
SCRIPT = """
import json
import torch
from torch import nn

settings = json.load(open("settings.json"))
torch.manual_seed(0)
data = torch.Generator().manual_seed(1)
x = torch.randn(64, 4, generator=data)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"])
for step in range(settings["steps"]):
    if settings["clear"]:
        optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print("accuracy", (model(x).argmax(1) == y).float().mean().item())
"""
BROKEN = {"lr": 20.0, "steps": 30, "clear": False}


@dataclass
class Faulty:
    """One diagnosis in a folder that no test changes; `copy` is a folder like it for one test to mend."""

    folder: Path
    incident: str

    def recover(self, *words: str) -> Ran:
        return call("recover", self.incident, *words, cwd=self.folder)

    def copy(self, to: Path, script: str = SCRIPT, **settings: object) -> Path:
        to.mkdir()
        (to / "train.py").write_text(script, encoding="utf-8")
        (to / "settings.json").write_text(json.dumps({**BROKEN, **settings}), encoding="utf-8")
        return to


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Faulty:
    folder = tmp_path_factory.mktemp("faulty")
    found = Faulty(folder / "work", "")
    found.copy(found.folder)
    ran = call("diagnose", "train.py", "--json", "--no-rerun", cwd=found.folder)
    assert ran.json["first_divergence"]["row"] == "GRADIENT/pre_existing", ran.out
    found.incident = ran.json["incident"]
    return found


def test_the_fault_mended_in_a_file_recovers_and_is_recorded(faulty: Faulty, tmp_path: Path) -> None:
    fixed = faulty.copy(tmp_path / "fixed", clear=True, lr=0.5)
    ran = faulty.recover(str(fixed), "--json", "--metric", "accuracy:max")
    body = ran.json
    assert body["schema"] == "weaklink.recovery/1"
    assert body["status"] == {"cause": "suspected", "action": "applied", "recovery": "recovered (bounded)"}
    assert ran.code == 0
    assert body["seeds"] == [0, 1, 2]
    assert [run["row"] for run in body["baseline"]["runs"]] == ["fail"] * 3
    assert [run["row"] for run in body["repair"]["runs"]] == ["pass"] * 3
    assert len({run["loss_last"] for run in body["repair"]["runs"]}) == 3
    assert body["repair"]["metric"][0] > body["baseline"]["metric"][1]
    where = faulty.folder / faulty.incident
    incident = Incident.read(where)
    assert check_record(where).intact
    assert incident.recovery is not None
    assert incident.recovery.status.recovery == "recovered (bounded)"
    assert (where / "logs" / "recovery1" / "repair" / "seed2.log").read_text().startswith("accuracy ")
    shown = call("show", faulty.incident, cwd=faulty.folder)
    assert "recovery recovered (bounded)" in shown.out
    assert "GRADIENT/pre_existing" in shown.out.partition("Recovery ")[2]
    for kind in ("md", "html", "json"):
        exported = call("export", faulty.incident, "--format", kind, "-o", "-", cwd=faulty.folder)
        assert "recovered (bounded)" in exported.out


CLIP = "    nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n"
SYMPTOMS = {
    "comment": (SCRIPT + "# now it is right\n", {}),
    "rate": (SCRIPT, {"lr": 0.02}),
    "clipping": (SCRIPT.replace("    optimizer.step", CLIP + "    optimizer.step"), {}),
    "epochs": (SCRIPT, {"steps": 120}),
}


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_a_repair_of_the_symptom_does_not_recover(symptom: str, faulty: Faulty, tmp_path: Path) -> None:
    script, settings = SYMPTOMS[symptom]
    ran = faulty.recover(str(faulty.copy(tmp_path / "fixed", script, **settings)), "--json")
    assert ran.json["status"]["recovery"] == "not recovered"
    assert "still diverges on seeds 0, 1, 2" in ran.json["reasons"][0]
    assert ran.code == 1


def test_a_better_number_with_the_cause_in_place_is_told_as_that(faulty: Faulty, tmp_path: Path) -> None:
    script = SCRIPT.replace('print("accuracy", (', 'print("accuracy", 2 + (')
    ran = faulty.recover(str(faulty.copy(tmp_path / "fixed", script)), "--metric", "accuracy:max")
    assert ran.code == 1
    assert "incomplete: The metric is better, the cause remains" in " ".join(ran.out.split())


def test_the_folder_as_it_now_is_against_what_was_kept_of_it(tmp_path: Path) -> None:
    faulty = Faulty(tmp_path / "work", "")
    faulty.copy(faulty.folder, clear=True, lr=0.0)
    ran = call("diagnose", "train.py", "--json", "--no-rerun", cwd=faulty.folder)
    faulty.incident = ran.json["incident"]
    row = ran.json["first_divergence"]["row"]
    (faulty.folder / "settings.json").write_text(json.dumps({**BROKEN, "clear": True, "lr": 0.5}))
    body = faulty.recover("--json").json
    assert body["row"] == row
    assert body["status"]["recovery"] == "recovered (bounded)"
    assert [run["row"] for run in body["baseline"]["runs"]] == [ran.json["first_divergence"]["status"]] * 3


def test_a_repair_that_raises_is_none_and_one_without_a_metric_to_read_is_not_judged(
    faulty: Faulty, tmp_path: Path
) -> None:
    raising = faulty.folder / "raising.py"
    raising.write_text(SCRIPT.replace("print(", 'raise RuntimeError("no")\nprint('), encoding="utf-8")
    body = faulty.recover("raising.py", "--json").json
    raising.unlink()
    assert body["status"]["recovery"] == "not recovered"
    assert "raises RuntimeError at raising.py:19 on seed 0" in body["reasons"][0]
    fixed = faulty.copy(tmp_path / "fixed", clear=True, lr=0.5)
    body = faulty.recover(str(fixed), "--json", "--metric", "recall:max").json
    assert body["status"]["recovery"] == "inconclusive"
    assert "recall was not found" in body["reasons"][0]


def test_what_cannot_be_recovered_is_refused_before_anything_runs(faulty: Faulty, tmp_path: Path) -> None:
    ran = faulty.recover("nowhere.py", "--json")
    assert (ran.code, ran.json["schema"]) == (2, "weaklink.error/1")
    assert faulty.recover("--seeds", "2", "--json").code == 2
    assert faulty.recover("--metric", "accuracy", "--json").code == 2
    copied = tmp_path / "incident"
    shutil.copytree(faulty.folder / faulty.incident, copied)
    healthy = faulty.copy(tmp_path / "healthy", clear=True, lr=0.5)
    ran = call("diagnose", "train.py", "--json", cwd=healthy)
    assert ran.json["first_divergence"] is None
    ran = call("recover", ran.json["incident"], "--json", cwd=healthy)
    assert (ran.code, ran.json["message"]) == (2, "No row of this incident diverges, so nothing can recover.")
