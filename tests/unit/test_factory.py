"""Factories: what `train.py:build` may return, that its run is read as a script's, and how a wrong one is refused."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from collector_runs import Run, observe_code, row, run_job

from weaklink.collector.evidence import Evidence, Subject
from weaklink.collector.job import Job

PARTS = """
import torch
from torch import nn
from torch.nn import functional as F
from weaklink.collector import TrainingSystem

def parts():
    torch.manual_seed(0)
    x = torch.randn(64, 2)
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1), x, y

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, left, right):
        return self.layer(torch.cat([left, right], 1))

class Detached(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.body(x).detach())

class Tempered(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, outputs, targets):
        return F.cross_entropy(outputs * self.temperature, targets)

def right(x):
    return (x[:, 0] > 0).long()

def wrong(x):
    return 1 - right(x)

def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)
"""

BUILD = """
def build():
    model, optimizer, x, y = parts()
    return TrainingSystem({})
"""

USUAL = "model, optimizer, x, y, steps=4"


def run(source: str, folder: Path, name: str = "train.py:build", **job: Any) -> Run:
    """Run a factory as a worker does. `source` goes into `train.py`, dedented."""
    (folder / "train.py").write_text(textwrap.dedent(source), encoding="utf-8")
    job.setdefault("role", "observe")
    subject = Subject(kind="factory", name=name)
    return run_job(Job(subject=subject, folder=folder, evidence=folder / "evidence.json", **job), folder)


def system(arguments: str, folder: Path, before: str = "", **job: Any) -> Evidence:
    """The evidence of a system with these arguments. `before` is run in `build` first."""
    lines = textwrap.dedent(before).strip().splitlines()
    body = "".join(f"    {line}\n" for line in ["model, optimizer, x, y = parts()", *lines])
    ran = run(f"{PARTS}\ndef build():\n{body}    return TrainingSystem({arguments})\n", folder, **job)
    assert ran.code == 0, ran.err
    assert ran.refused is None
    assert ran.seen.problems == []
    assert ran.seen.outcome.ended == "completed"
    return ran.seen


def refusal(ran: Run) -> dict[str, Any]:
    """What was refused; nothing was printed for it, and no evidence pretends that something ran."""
    assert ran.refused is not None, (ran.code, ran.err)
    assert (ran.evidence, ran.err) == (None, "")
    body: dict[str, Any] = json.loads(ran.refused)
    assert body["class"] == "SubjectError"
    assert body["hint"]
    return body


def failing(evidence: Evidence) -> list[str]:
    return [r.id for r in evidence.rows if r.status == "fail"]


def accused(evidence: Evidence) -> list[str]:
    return [r.id for r in evidence.rows if r.status in ("fail", "suspected")]


# -- as a script -------------------------------------------------------------------------------------------------------


def loop(steps: int, *before: str) -> str:
    body = "".join(f"{line}\n" for line in before)
    return f"""{PARTS}
model, optimizer, x, y = parts()
{body}for _ in range({steps}):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("change", ["pass", "model[2] = nn.Linear(16, 2)"])
def test_numbers_and_rows_are_those_of_a_script(change: str, tmp_path: Path) -> None:
    (tmp_path / "script").mkdir()
    script = observe_code(loop(8, change), tmp_path / "script")
    factory = system("model, optimizer, x, y, steps=8", tmp_path, change)
    assert factory.losses == script.losses
    assert factory.fingerprint == script.fingerprint
    assert factory.steps == script.steps
    assert failing(factory) == failing(script)
    assert bool(failing(script)) == (change != "pass")
    # What a system in hand allows is measured here alone; nothing that a script shows is lost.
    ours = {r.id: (r.status, r.text) for r in factory.rows}
    for seen in script.rows:
        if seen.status != "not_measured":
            assert ours[seen.id] == (seen.status, seen.text)
    assert [p.gradient_digest_first for p in factory.parameters] == [p.gradient_digest_first for p in script.parameters]


def test_a_replaced_head_and_a_cut_path_are_named_with_their_lines(tmp_path: Path) -> None:
    stale = system(USUAL, tmp_path, "model[2] = nn.Linear(16, 2)")
    assert failing(stale)[0] == "OWNERSHIP/owned"
    assert [site.file for site in row(stale, "OWNERSHIP/owned").where] == ["train.py", "train.py"]
    cut = system("model, sgd(model), x, y, steps=4", tmp_path, "model = Detached()")
    reached = row(cut, "DEPENDENCY/reached")
    assert (reached.status, reached.basis, reached.where[0].file) == ("fail", "exact", "train.py")


def test_it_takes_fifty_steps_or_those_asked_for(tmp_path: Path) -> None:
    assert system("model, optimizer, x, y", tmp_path).outcome.steps == 50
    assert system("model, optimizer, x, y, steps=3", tmp_path).outcome.steps == 3
    assert run(PARTS + BUILD.format("model, optimizer, x, y"), tmp_path, horizon=5).seen.outcome.steps == 5


# -- what the system says of itself ------------------------------------------------------------------------------------


def test_task_rule_and_expected_are_the_systems(tmp_path: Path) -> None:
    seen = system(f"{USUAL}, task='a side', rule=right, expected='2.*'", tmp_path)
    assert (seen.task, accused(seen)) == ("a side", [])
    assert row(seen, "TASK/rule").values["agreement"] == 1.0
    assert row(seen, "GRADIENT/present").values == {"present": 2, "expected": 2}
    assert failing(system(f"{USUAL}, rule=wrong", tmp_path)) == ["TASK/rule"]


def test_what_the_command_line_says_wins(tmp_path: Path) -> None:
    seen = system(f"{USUAL}, rule=wrong, task='theirs'", tmp_path, rule="train.py:right", task="ours")
    assert (seen.task, row(seen, "TASK/rule").status) == ("ours", "pass")
    assert row(system(f"{USUAL}, rule=right", tmp_path, rule="train:wrong"), "TASK/rule").status == "fail"


def test_a_rule_that_is_not_there_is_refused(tmp_path: Path) -> None:
    ran = run(PARTS + BUILD.format(USUAL), tmp_path, rule="train.py:nowhere")
    assert ran.refused is not None
    assert json.loads(ran.refused)["about"] == "--rule train.py:nowhere"


def test_declared_frozen_parameters_contradict_the_declaration(tmp_path: Path) -> None:
    freeze = "model[0].requires_grad_(False)"
    reached = row(system(f"{USUAL}, expected='*'", tmp_path, freeze), "DEPENDENCY/reached")
    assert (reached.status, reached.basis, reached.values["reached"]) == ("fail", "declared", 2)
    assert accused(system(f"{USUAL}, expected=['2.weight', '2.bias']", tmp_path, freeze)) == []


def test_a_pattern_without_a_parameter_is_refused(tmp_path: Path) -> None:
    body = refusal(run(PARTS + BUILD.format(f"{USUAL}, expected=['2.*', 'head.*']"), tmp_path))
    assert "'head.*'" in body["message"]
    assert "0.weight" in body["hint"]


# -- systems of many shapes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inputs", ["(x, x * 2)", "[x, x * 2]", "{'left': x, 'right': x * 2}"])
def test_inputs_are_tuples_and_dictionaries(inputs: str, tmp_path: Path) -> None:
    arguments = f"model, sgd(model), {inputs}, y, steps=4, capability_steps=4, validation=({inputs}, y)"
    seen = system(arguments, tmp_path, "model = Two()")
    assert accused(seen) == []
    assert row(seen, "UPDATE/moved").values["moved"] == 2
    assert row(seen, "EVALUATION/validation").status == "evidence"
    assert row(seen, "CAPABILITY/tiny_batch").status in ("pass", "evidence")


@pytest.mark.parametrize("kind", ["[{}]", "({})"])
def test_several_optimizers_are_one_union(kind: str, tmp_path: Path) -> None:
    pair = kind.format("torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.AdamW(model[2].parameters())")
    seen = system(f"model, {pair}, x, y, steps=3", tmp_path)
    assert accused(seen) == []
    assert row(seen, "UPDATE/steps").values == {"backwards": 3, "asked": 6, "executed": 6}
    assert row(seen, "OWNERSHIP/owned").values["owned"] == 4


def test_an_optimizer_with_a_closure(tmp_path: Path) -> None:
    seen = system("model, torch.optim.LBFGS(model.parameters(), max_iter=3), x, y, steps=3", tmp_path)
    assert accused(seen) == []
    assert (seen.outcome.steps, row(seen, "UPDATE/moved").values["moved"]) == (3, 4)


def test_a_loss_that_is_a_module(tmp_path: Path) -> None:
    assert accused(system(f"{USUAL}, loss_fn=nn.CrossEntropyLoss(label_smoothing=0.1)", tmp_path)) == []
    # One that holds parameters is a second model of the run: the names of both begin with their class.
    learned = system(
        f"{USUAL}, loss_fn=loss, expected='2.*'",
        tmp_path,
        "loss = Tempered(); optimizer.add_param_group({'params': loss.parameters()})",
    )
    assert accused(learned) == []
    assert row(learned, "GRADIENT/present").values == {"present": 2, "expected": 2}
    assert row(learned, "OWNERSHIP/owned").values["owned"] == 2


def test_lazy_parameters_get_their_shapes_from_the_batch(tmp_path: Path) -> None:
    assert accused(system("model, sgd(model), x, y, steps=4", tmp_path, "model = nn.LazyLinear(2)")) == []


def test_capability_and_validation_are_asked_of_the_system(tmp_path: Path) -> None:
    seen = system(f"{USUAL}, capability_steps=200, validation=(x[:16], y[:16])", tmp_path)
    assert accused(seen) == []
    assert row(seen, "CAPABILITY/tiny_batch").values["accuracy"] == 1.0
    assert set(row(seen, "EVALUATION/validation").values) == {"train", "validation"}
    without = system(USUAL, tmp_path)
    assert row(without, "CAPABILITY/tiny_batch").reason == "asked for with capability_steps"
    assert without.row("EVALUATION/validation") is None
    assert without.losses == seen.losses


# -- a system that cannot be trained: rows, not errors -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        ("model, optimizer, x, y + 5", "TASK/classes"),
        ("model, optimizer, x, y - 1", "TASK/classes"),
        ("model, optimizer, x, y, num_classes=1", "TASK/classes"),
        ("model, optimizer, x, y[:5]", "TASK/rows"),
        ("model, optimizer, x, y, lambda o, t: F.cross_entropy(o, t, reduction='none')", "OBJECTIVE/loss"),
        ("model, optimizer, x, y, lambda o, t: 3.0", "OBJECTIVE/loss"),
        ("model, optimizer, x, y, lambda o, t: None", "OBJECTIVE/loss"),
        ("model, optimizer, x, y, lambda o, t: F.cross_entropy(o.detach(), t)", "DEPENDENCY/graph"),
    ],
)
def test_what_cannot_be_differentiated_is_a_failing_row(arguments: str, first: str, tmp_path: Path) -> None:
    seen = system(arguments, tmp_path)
    assert (failing(seen), seen.outcome.steps) == ([first], 0)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ("model, optimizer, torch.randn(64, 3), y", "RuntimeError"),
        ("model, optimizer, None, y", "TypeError"),
        ("model, optimizer, x, None", "TypeError"),
        ("model, optimizer, x, y, lambda o, t: 1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_raises_is_the_outcome(arguments: str, kind: str, tmp_path: Path) -> None:
    ran = run(PARTS + BUILD.format(arguments), tmp_path)
    assert (ran.code, ran.refused, ran.seen.outcome.ended) == (1, None, "raised")
    assert ran.seen.outcome.raised is not None
    assert ran.seen.outcome.raised.type == kind
    assert failing(ran.seen) == ["OBJECTIVE/raised"]


# -- wrong factories ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("model", "a Sequential, not"),
        ("None", "None, not"),
        ("(model, optimizer)", "a tuple, not"),
        ("x", "a tensor, not"),
        ("TrainingSystem", "a type, not"),
        ("TrainingSystem(model, 'sgd', x, y)", "optimizer cannot be a str"),
        ("TrainingSystem(model, [], x, y)", "no optimizer"),
        ("TrainingSystem(model, [optimizer, None], x, y)", "optimizer cannot be None"),
        ("TrainingSystem(model, model.parameters(), x, y)", "optimizer cannot be a generator"),
        ("TrainingSystem(None, optimizer, x, y)", "model cannot be None"),
        ("TrainingSystem(nn.Linear, optimizer, x, y)", "model cannot be a type"),
        ("TrainingSystem(model, optimizer, x, y, steps=0)", "steps cannot be 0"),
        ("TrainingSystem(model, optimizer, x, y, steps='5')", "steps cannot be a str"),
        ("TrainingSystem(model, optimizer, x, y, steps=2.5)", "steps cannot be 2.5"),
        ("TrainingSystem(model, optimizer, x, y, steps=None)", "steps cannot be None"),
        ("TrainingSystem(model, optimizer, x, y, loss_fn='mse')", "loss_fn cannot be a str"),
        ("TrainingSystem(model, optimizer, x, y, rule=3)", "rule cannot be 3"),
        ("TrainingSystem(model, optimizer, x, y, expected=3)", "expected cannot be 3"),
        ("TrainingSystem(model, optimizer, x, y, expected=[1])", "expected cannot be a list"),
        ("TrainingSystem(model, optimizer, x, y, task=5)", "task cannot be 5"),
        ("TrainingSystem(model, optimizer, x, y, num_classes='2')", "num_classes cannot be a str"),
        ("TrainingSystem(model, optimizer, x, y, capability_steps=-1)", "capability_steps cannot be -1"),
        ("TrainingSystem(model, optimizer, x, y, validation=(x,))", "validation cannot be a tuple"),
    ],
)
def test_what_is_no_system_is_refused(returned: str, said: str, tmp_path: Path) -> None:
    source = f"{PARTS}\ndef build():\n    model, optimizer, x, y = parts()\n    return {returned}\n"
    body = refusal(run(source, tmp_path))
    assert said in body["message"]
    assert body["about"].startswith("train.py:build")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def other(): pass", "no function 'build'"),
        ("build = 3", "cannot be called"),
        ("def build(a, *rest, b=1, c): pass", "needs arguments: a, c"),
        ("from torch import nn\nclass build(nn.Module): pass", "is a model, not a factory"),
        ("class build: pass", "returned a build"),
        ("def build():\n    yield 3", "returned a generator"),
        ("x = 1\ndef build(:", "syntax error on line 2"),
        ("x = '\0'\ndef build(): pass", "no Python source"),
    ],
)
def test_what_is_no_factory_is_refused(source: str, said: str, tmp_path: Path) -> None:
    assert said in refusal(run(source, tmp_path))["message"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.py:build", "no such file"),
        ("folder.py:build", "no such file"),
        ("nowhere:build", "no module 'nowhere'"),
        ("nowhere.inside:build", "no module 'nowhere.inside'"),
        ("train.inside:build", "no module 'train.inside'"),
        ("broken:build", "broken.py has a syntax error on line 1"),
        (".train:build", "names no function"),
        ("train.py:", "names no function"),
        ("train.py:a.b", "names no function"),
        (":build", "names no function"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "broken.py").write_text("def build(:", encoding="utf-8")
    assert said in refusal(run("def build(): pass", tmp_path, name))["message"]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("def build():\n    raise ValueError('on purpose')", "ValueError"),
        ("raise ValueError('at import')\ndef build(): pass", "ValueError"),
        ("import a_package_that_is_not_there\ndef build(): pass", "ModuleNotFoundError"),
        ("import beside\ndef build(): pass", "SyntaxError"),
    ],
)
@pytest.mark.parametrize("name", ["train.py:build", "train:build"])
def test_the_users_own_exception_is_the_outcome_with_the_users_traceback(
    source: str, kind: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / "beside.py").write_text("def broken(:", encoding="utf-8")
    ran = run(source, tmp_path, name)
    if (kind, name) == ("SyntaxError", "train:build"):
        assert "beside.py has a syntax error" in refusal(ran)["message"]
        return
    assert (ran.code, ran.refused, ran.seen.outcome.ended, failing(ran.seen)) == (1, None, "raised", [])
    raised = ran.seen.outcome.raised
    assert raised is not None
    assert raised.where is not None
    assert (raised.type, raised.where.file) == (kind, "train.py")
    assert "weaklink" not in ran.err


def test_a_factory_that_exits_is_a_run_that_exited(tmp_path: Path) -> None:
    ran = run("def build():\n    raise SystemExit(3)", tmp_path)
    assert (ran.code, ran.refused, ran.seen.outcome.ended, ran.seen.outcome.exit_code) == (3, None, "exited", 3)


# -- where factories lie -----------------------------------------------------------------------------------------------


def test_imports_beside_the_file_are_found(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "helpers.py").write_text(PARTS, encoding="utf-8")
    build = f"from helpers import TrainingSystem, nn, parts\n{BUILD.format(USUAL)}"
    (tmp_path / "code" / "job.py").write_text(build, encoding="utf-8")
    seen = run("", tmp_path, "code/job.py:build").seen
    assert (accused(seen), seen.outcome.steps) == ([], 4)
    assert [source.path for source in seen.sources] == ["code/helpers.py", "code/job.py"]


def test_a_package_with_relative_imports(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "helpers.py").write_text(PARTS, encoding="utf-8")
    build = f"from .helpers import TrainingSystem, nn, parts\n{BUILD.format(USUAL)}"
    (tmp_path / "package" / "jobs.py").write_text(build, encoding="utf-8")
    seen = run("", tmp_path, "package.jobs:build").seen
    assert (accused(seen), seen.outcome.steps) == ([], 4)
    assert row(seen, "UPDATE/moved").values["moved"] == 4


@pytest.mark.parametrize(
    "body",
    [
        "build = functools.partial(made, 4)",
        "class Maker:\n    def __call__(self):\n        return made(4)\nbuild = Maker()",
        "def build(steps=4, *rest, **options):\n    return made(steps)",
        "def build():\n    pickle.loads(pickle.dumps(Kept()))\n    return made(4)",
        "arguments = argparse.ArgumentParser().parse_args()\ndef build():\n    return made(4)",
        "if __name__ == '__main__':\n    raise SystemExit(9)\ndef build():\n    return made(4)",
    ],
)
def test_whatever_can_be_called_without_arguments(body: str, tmp_path: Path) -> None:
    source = f"""{PARTS}
import argparse, functools, pickle

class Kept:
    pass

def made(steps):
    model, optimizer, x, y = parts()
    return TrainingSystem(model, optimizer, x, y, steps=steps)

{body}
"""
    ran = run(source, tmp_path)
    assert (ran.code, ran.seen.outcome.steps, accused(ran.seen)) == (0, 4, []), ran.err


def test_a_file_named_like_a_library_is_still_the_one_that_is_meant(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(PARTS + BUILD.format(USUAL), encoding="utf-8")
    assert run("", tmp_path, "json.py:build").seen.outcome.steps == 4
