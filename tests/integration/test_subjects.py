"""What people point weaklink at: modules, repositories with packages of our names, scripts elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from conftest import STALE_HEAD, Weaklink, environment, training

Script = Callable[..., Path]


def test_a_repository_with_an_agent_and_a_collector_of_its_own(tmp_path: Path, weaklink: Weaklink) -> None:
    for package in ("agent", "collector", "prompts", "weaklink_like"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"NAME = 'the user''s {package}'\n")
    (tmp_path / "types_of_mine.py").write_text("x = 1\n")
    (tmp_path / "agent" / "model.py").write_text("from torch import nn\ndef build(): return nn.Linear(4, 2)\n")
    (tmp_path / "train.py").write_text(
        "import agent, collector, prompts\nfrom agent.model import build\n"
        "assert 'user' in agent.NAME and 'user' in collector.NAME and 'user' in prompts.NAME\n"
        + training().replace("nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))", "build()")
    )
    ran = weaklink("diagnose", "train.py", "--json")
    assert ran.code == 0, ran.err + ran.out
    assert ran.json["branch"] == "learning"


def test_a_folder_that_shadows_torch_breaks_the_script_not_weaklink(tmp_path: Path, weaklink: Weaklink) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('the wrong json')\n")
    (tmp_path / "train.py").write_text(training())
    ran = weaklink("diagnose", "train.py", "--json")
    assert ran.code == 0, ran.err + ran.out


def test_a_module_with_relative_imports(tmp_path: Path, weaklink: Weaklink) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("from torch import nn\nCLASSES = 2\n")
    body = STALE_HEAD.read_text().replace("import torch\n", "import torch\nfrom .model import CLASSES\n", 1)
    (package / "train.py").write_text(body)
    ran = weaklink("diagnose", "-m", "package.train", "--json")
    assert ran.code == 1, ran.err
    assert ran.json["first_divergence"]["row"] == "OWNERSHIP/owned"
    assert ran.json["where"][0]["file"] == "package/train.py"
    assert ran.json["mechanism"]["status"] == "supported"


def test_a_script_in_a_subfolder_and_one_outside_the_working_folder(tmp_path: Path, weaklink: Weaklink) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "work").mkdir()
    shutil.copy(STALE_HEAD, tmp_path / "src" / "train.py")
    inside = weaklink("diagnose", "src/train.py", "--json", "--no-rerun")
    assert inside.json["where"][0]["file"] == "src/train.py"
    outside = weaklink("diagnose", "../src/train.py", "--json", cwd=tmp_path / "work")
    assert outside.json["mechanism"]["status"] == "supported", outside.err
    assert outside.json["where"][0]["file"].endswith("src/train.py")


def test_a_script_that_sets_threads_before_torch_gets_an_interpreter_of_its_own(
    tmp_path: Path, script: Script, weaklink: Weaklink
) -> None:
    text = "import os\nos.environ['OMP_NUM_THREADS'] = '1'\n" + STALE_HEAD.read_text().replace(
        'if __name__ == "__main__":', "if __name__ == '__main__':\n    print('threads', torch.get_num_threads())", 1
    ).replace('"""', "#", 1).replace('"""', "#", 1).replace("Run it and", "# Run it and", 1)
    script(text)
    ran = weaklink("diagnose", "train.py", "--json", env=environment(OMP_NUM_THREADS="2"))
    assert ran.code == 1, ran.err
    assert ran.json["mechanism"]["status"] == "supported"
    logs = tmp_path / ran.json["incident"] / "logs"
    assert (logs / "observe.log").read_text().startswith("threads 1\n")
    assert (logs / "treatment.log").read_text().startswith("threads 1\n")


def test_a_healthy_script_is_not_accused_and_no_experiment_is_run(
    tmp_path: Path, script: Script, weaklink: Weaklink
) -> None:
    script(STALE_HEAD.read_text().replace("    model.head = nn.Linear(32, 2)\n", ""))
    ran = weaklink("diagnose", "train.py", "--json")
    assert ran.code == 0
    body = ran.json
    assert body["first_divergence"] is None
    assert body["mechanism"] is None
    assert body["experiment"] is None
    assert body["branch"] == "learning"
    assert not (tmp_path / body["incident"] / "logs" / "control.log").exists()


def test_a_head_trained_alone_by_intent_is_suspected_at_most_and_asked_about(
    script: Script, weaklink: Weaklink
) -> None:
    script(training().replace("SGD(model.parameters()", "SGD(model[2].parameters()"))
    body = weaklink("diagnose", "train.py", "--json").json
    assert body["first_divergence"]["status"] == "suspected"
    assert body["first_divergence"]["basis"] is None
    # The rerun shows that they would move; whether they were meant to it cannot show.
    assert body["experiment"]["name"] == "own_missing_parameters"
    assert body["status"] == {"cause": "suspected", "action": "none", "recovery": "not attempted"}


TWO_STAGES = """
import torch
from torch import nn

def train(model, optimizer, steps):
    for step in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        {extra}
    print(loss.item())

torch.manual_seed(0)
x = torch.randn(64, 4)
y = (x[:, 0] > 0).long()
first = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
train(first, torch.optim.SGD(first.parameters(), lr=0.5), 30)
second = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
train(second, torch.optim.SGD(second[2].parameters(), lr=0.5), 80)
"""


def test_a_second_models_head_trained_alone_is_no_stale_optimizer(script: Script, weaklink: Weaklink) -> None:
    """Its backbone has the names of the first model's; it is another model, and may be left out on purpose."""
    script(TWO_STAGES.format(extra="pass"))
    body = weaklink("diagnose", "train.py", "--json").json
    assert body["first_divergence"]["status"] == "suspected"
    assert body["where"][0]["line"] == TWO_STAGES.splitlines().index(TWO_STAGES.splitlines()[-1]) + 1


def test_the_repaired_script_passes(script: Script, weaklink: Weaklink) -> None:
    text = STALE_HEAD.read_text()
    optimizer = next(line for line in text.splitlines() if "torch.optim.AdamW(" in line)
    head = next(line for line in text.splitlines() if "model.head = nn.Linear" in line)
    script(text.replace(optimizer + "\n", "").replace(head, head + "\n" + optimizer))
    ran = weaklink("diagnose", "train.py", "--json")
    assert ran.code == 0
    assert ran.json["first_divergence"] is None
