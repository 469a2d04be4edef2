"""The experiments of the catalogue, each where it makes the difference and where there is nothing for it to change."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from collector_runs import RANDOM_STATE, SEEDED, Run, line_of, observe, plain, row, run_job, write
from test_collector_figures import PROBLEM, STALE, script

from weaklink.collector.catalogue import CATALOGUE
from weaklink.collector.errors import InterventionError
from weaklink.collector.evidence import InterventionReport, Subject
from weaklink.collector.interventions import build
from weaklink.collector.job import Job

SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


def treated(source: str, folder: Path, name: str, rule: str | None = None, **parameters: Any) -> Run:
    run = observe(
        source,
        folder,
        role="treatment",
        intervention=name,
        intervention_parameters=parameters,
        keep_initial=True,
        rule=rule,
    )
    assert run.code == 0, run.err
    assert run.seen.problems == []
    return run


def report(run: Run) -> InterventionReport:
    assert run.seen.intervention is not None
    return run.seen.intervention


_LOSSES: dict[str, list[float]] = {}


def losses(source: str, folder: Path) -> list[float]:
    """Of the script as it is, watched by nobody; each script is run once."""
    if source not in _LOSSES:
        _LOSSES[source] = _printed_losses(source, folder)
    return _LOSSES[source]


def _printed_losses(source: str, folder: Path) -> list[float]:
    run = plain(source.replace("loss.backward()", "print('loss', repr(loss.item())); loss.backward()"), folder)
    assert run.code == 0, run.err
    return [float(line.split()[1]) for line in run.out.splitlines() if line.startswith("loss ")]


# -- nothing to change -------------------------------------------------------------------------------------------------

# Attention in eval mode takes a fused path of torch's: what stands in for torch's functions must not keep it from that.
QUIET = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), nn.Linear(16, 3))
x, y = torch.randn(4, 5, 16), torch.randint(3, (4,))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
for step in range(4):
    scores = model(x).mean(1)
    loss = (torch.logsumexp(scores, 1) - scores[torch.arange(4), y]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(repr(loss.item()), repr(x.detach().sum().item()))
model.eval()
with torch.no_grad():
    print(model(x).flatten().tolist())
"""


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("reattach", {"site": "train.py:1"}),
        ("realign_targets", {}),
        ("permute_targets", {}),
        ("raw_scores_to_loss", {}),
        ("reinitialize", {"module": "nothing.*"}),
        ("without_dropout", {}),
        ("without_weight_decay", {}),
        ("without_label_smoothing", {}),
        ("without_clipping", {}),
    ],
)
def test_where_nothing_is_to_change_every_bit_stays(tmp_path: Path, name: str, parameters: dict[str, Any]) -> None:
    source = SEEDED + QUIET + RANDOM_STATE
    run = treated(source, tmp_path, name, **parameters)
    assert run.out == plain(source, tmp_path).out
    assert (report(run).applied, report(run).changed) == (False, [])


@pytest.mark.parametrize(
    ("name", "parameters"), [("scale_lr", {"factor": 2.0}), ("fresh_optimizer", {"kind": "SGD", "lr": 0.5})]
)
def test_a_script_that_never_steps_gives_the_optimizers_experiments_nothing(
    tmp_path: Path, name: str, parameters: dict[str, Any]
) -> None:
    source = SEEDED + QUIET.replace("optimizer.step()", "") + RANDOM_STATE
    run = treated(source, tmp_path, name, **parameters)
    assert run.out == plain(source, tmp_path).out
    assert not report(run).applied


# -- reattach ----------------------------------------------------------------------------------------------------------

DETACHED = script(SGD, scores="model.head(hidden)").replace(
    "    loss = ", "    hidden = model.features(batch)\n    hidden = hidden.detach()\n    loss = "
)


def test_reattached_the_cut_system_has_the_healthy_losses(tmp_path: Path) -> None:
    line = line_of(DETACHED, ".detach()")
    run = treated(DETACHED, tmp_path, "reattach", site=f"train.py:{line}")
    assert run.seen.losses.value == losses(script(SGD), tmp_path)
    assert run.seen.losses.value != losses(DETACHED, tmp_path)
    assert (report(run).applied, report(run).changed) == (True, [f"train.py:{line}"])
    reached = row(run.seen, "DEPENDENCY/reached")
    assert (reached.status, reached.values["reached"]) == ("pass", 6)


@pytest.mark.parametrize("call", ["hidden.detach_()", "hidden = torch.detach(hidden)", "hidden = hidden.detach()[:]"])
def test_each_way_to_call_detach_is_met(tmp_path: Path, call: str) -> None:
    source = DETACHED.replace("hidden = hidden.detach()", call)
    line = line_of(source, call)
    run = treated(source, tmp_path, "reattach", site=f"train.py:{line}")
    assert run.seen.losses.value == losses(script(SGD), tmp_path)
    assert report(run).applied


def test_another_line_and_a_call_inside_a_library_stay_detached(tmp_path: Path) -> None:
    line = line_of(DETACHED, ".detach()")
    assert not report(treated(DETACHED, tmp_path, "reattach", site=f"train.py:{line + 1}")).applied
    # Straight through: torch's own function detaches on behalf of this line.
    source = script(SGD, scores="F.gumbel_softmax(model(batch), hard=True)")
    line = line_of(source, "gumbel_softmax")
    run = treated(source, tmp_path, "reattach", site=f"train.py:{line}")
    assert run.seen.losses.value == losses(source, tmp_path)
    assert not report(run).applied


# -- targets -----------------------------------------------------------------------------------------------------------

RULE = """
def rule(x):
    return x[:, 0] + 0.75 * x[:, 1] > 0
"""
SHUFFLED = """
batch = x[torch.randperm(2048, generator=torch.Generator().manual_seed(3))][:256]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
"""


def test_realigned_targets_give_the_losses_of_the_paired_data(tmp_path: Path) -> None:
    run = treated(RULE + script(SHUFFLED), tmp_path, "realign_targets", rule="train.py:rule")
    paired = RULE + script(SHUFFLED, targets="rule(batch).long()")
    assert run.seen.losses.value == losses(paired, tmp_path)
    assert run.seen.losses.value != losses(RULE + script(SHUFFLED), tmp_path)
    assert (report(run).applied, report(run).changed) == (True, ["cross_entropy"])


@pytest.mark.parametrize("scores", ["model(x=batch)", "nn.Identity()(model(nn.Identity()(batch)))"])
def test_the_rule_is_given_what_the_model_was_given(tmp_path: Path, scores: str) -> None:
    source = RULE + script(SHUFFLED, scores=scores)
    if "x=" in scores:
        source = source.replace("def rule(x):", "def rule(given):\n    x = given['x']")
    run = treated(source, tmp_path, "realign_targets", rule="train.py:rule")
    assert run.seen.losses.value == losses(RULE + script(SHUFFLED, targets="rule(batch).long()"), tmp_path)


def test_a_rule_may_call_a_model_and_write_to_its_inputs(tmp_path: Path) -> None:
    teacher = """
teacher = nn.Linear(2, 2)
with torch.no_grad():
    teacher.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.75]]))
    teacher.bias.copy_(torch.tensor([0.0, -5.25]))

def rule(x):
    return teacher(x.add_(3)).argmax(1)
"""

    def twice(targets: str) -> str:
        # Two losses of one forward: the second one must not find the teacher's inputs in place of the model's.
        one = f"F.cross_entropy(scores, {targets})"
        source = script(teacher + SHUFFLED, targets=targets)
        return source.replace(
            f"loss = F.cross_entropy(model(batch), {targets})", f"scores = model(batch); loss = {one} + {one}"
        )

    run = treated(twice("labels"), tmp_path, "realign_targets", rule="train.py:rule")
    assert run.seen.losses.value == losses(twice("rule(batch.clone())"), tmp_path)
    assert run.seen.losses.value != losses(twice("labels"), tmp_path)


def test_targets_that_follow_the_rule_stay_what_they_are(tmp_path: Path) -> None:
    run = treated(RULE + script(SGD), tmp_path, "realign_targets", rule="train.py:rule")
    assert run.seen.losses.value == losses(script(SGD), tmp_path)
    assert not report(run).applied


def test_without_a_rule_the_report_says_why_nothing_was_realigned(tmp_path: Path) -> None:
    run = treated(script(SHUFFLED), tmp_path, "realign_targets")
    assert run.seen.losses.value == losses(script(SHUFFLED), tmp_path)
    assert (report(run).applied, report(run).detail) == (False, "no rule was declared")


def test_a_rule_that_raises_is_told_in_its_row_and_never_disturbs_the_run(tmp_path: Path) -> None:
    source = "def rule(x):\n    raise KeyError('labels')\n" + script(SHUFFLED)
    run = observe(source, tmp_path, role="treatment", intervention="realign_targets", rule="train.py:rule")
    assert run.seen.losses.value == losses(source, tmp_path)
    assert "it raised KeyError: 'labels'" in (row(run.seen, "TASK/rule").reason or "")
    assert not report(run).applied


def test_permuted_targets_are_those_of_that_seed_at_every_call(tmp_path: Path) -> None:
    source = SEEDED + script(SGD) + RANDOM_STATE
    run = treated(source, tmp_path, "permute_targets", seed=5)
    by_hand = script(SGD + "\nlabels = labels[torch.randperm(256, generator=torch.Generator().manual_seed(5))]")
    assert run.seen.losses.value == losses(by_hand, tmp_path)
    assert run.seen.losses.value != losses(script(SGD), tmp_path)
    assert run.out == plain(source, tmp_path).out
    assert (report(run).applied, report(run).changed) == (True, ["cross_entropy"])


@pytest.mark.parametrize(
    "loss",
    [
        "F.mse_loss(model(batch)[:, 0], labels.float())",
        "F.binary_cross_entropy_with_logits(target=labels.float(), input=model(batch)[:, 0])",
        "nn.MarginRankingLoss()(model(batch)[:, 0], model(batch)[:, 1], labels * 2 - 1)",
        "nn.KLDivLoss()(F.log_softmax(model(batch), 1), F.one_hot(labels).float())",
    ],
)
def test_each_loss_that_torch_ships_gets_the_permuted_targets(tmp_path: Path, loss: str) -> None:
    source = script(SGD).replace("F.cross_entropy(model(batch), labels)", loss)
    run = treated(source, tmp_path, "permute_targets")
    by_hand = source.replace("for step", "labels = labels[torch.randperm(256, generator=torch.Generator())]\nfor step")
    by_hand = by_hand.replace("torch.Generator())]", "torch.Generator().manual_seed(0))]")
    assert run.seen.losses.value == losses(by_hand, tmp_path)
    assert report(run).applied


def test_targets_that_are_all_alike_cannot_be_permuted(tmp_path: Path) -> None:
    source = script(SGD + "\nlabels = torch.ones_like(labels)")
    run = treated(source, tmp_path, "permute_targets")
    assert run.seen.losses.value == losses(source, tmp_path)
    assert not report(run).applied


# -- what the loss is fed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scores",
    [
        "torch.softmax(model(batch), 1)",
        "F.softmax(model(batch), dim=1)",
        "F.softmax(model(batch), dim=1, dtype=torch.float32)",
        "model(batch).softmax(1)",
        "nn.Sequential(model, nn.Softmax(1))(batch)",
        "model(batch).softmax(1).view(2, 128, 2).reshape(-1, 2).float().contiguous()",
        "model(batch).T.softmax(0).transpose(0, 1)",
        "model(batch).t().softmax(0).view(2, 256).permute(1, 0)",
        "model(batch).softmax(1)[None].squeeze(0).unsqueeze(1).flatten(1)",
    ],
)
def test_raw_scores_give_the_healthy_losses(tmp_path: Path, scores: str) -> None:
    run = treated(script(SGD, scores=scores), tmp_path, "raw_scores_to_loss")
    assert run.seen.losses.value == losses(script(SGD), tmp_path)
    assert (report(run).applied, report(run).changed) == (True, ["cross_entropy"])
    assert row(run.seen, "OBJECTIVE/fed").status == "pass"


def test_raw_scores_reach_a_log_softmax_and_soft_targets_stay(tmp_path: Path) -> None:
    source = script(SGD).replace(
        "F.cross_entropy(model(batch), labels)",
        "F.kl_div({scores}.log_softmax(1), F.one_hot(labels).float().softmax(1), reduction='batchmean')",
    )
    run = treated(source.replace("{scores}", "model(batch).softmax(1)"), tmp_path, "raw_scores_to_loss")
    assert run.seen.losses.value == losses(source.replace("{scores}", "model(batch)"), tmp_path)
    assert report(run).changed == ["log_softmax"]


@pytest.mark.parametrize(
    "scores",
    [
        "model(batch).softmax(1) * 3",
        "(lambda scores: (scores.softmax(1), scores.zero_())[0])(model(batch) * 1)",
        "(model(batch) * 1).softmax(1).log()",
        "model(batch)",
    ],
)
def test_what_was_worked_on_since_the_softmax_is_fed_as_it_is(tmp_path: Path, scores: str) -> None:
    run = treated(script(SGD, scores=scores), tmp_path, "raw_scores_to_loss")
    assert run.seen.losses.value == losses(script(SGD, scores=scores), tmp_path)
    assert not report(run).applied


def test_no_softmax_is_remembered_longer_than_its_result_lives(tmp_path: Path) -> None:
    source = """
        import pathlib, torch
        from weaklink.collector.interventions import build
        from weaklink.collector.watching.sites import UserCode
        from weaklink.collector.watching.watcher import Watcher
        intervention = build("raw_scores_to_loss", {})
        intervention.attach(Watcher(UserCode(pathlib.Path.cwd())))
        for _ in range(50):
            result = torch.randn(4, 3, requires_grad=True).softmax(1).view(2, 6)
            result.sum().backward()
        print(len(intervention._known))
        del result
        print(len(intervention._known))
    """
    assert plain(source, tmp_path).out == "2\n0\n"  # the result, and the view of it that keeps it alive


def test_without_label_smoothing(tmp_path: Path) -> None:
    for smoothed in ("F.cross_entropy(", "nn.CrossEntropyLoss(label_smoothing=0.1)("):
        source = script(SGD).replace("F.cross_entropy(", smoothed)
        source = source.replace("labels)", "labels, label_smoothing=0.1)") if "nn." not in smoothed else source
        run = treated(source, tmp_path, "without_label_smoothing")
        assert run.seen.losses.value == losses(script(SGD), tmp_path)
        assert run.seen.losses.value != losses(source, tmp_path)
        assert report(run).changed == ["cross_entropy"]
        assert report(run).detail.startswith("label smoothing 0.1 -> 0.0, first at train.py:")


# -- the step ----------------------------------------------------------------------------------------------------------


def test_a_rate_of_ten_thousand_scaled_gives_the_curve_of_a_tenth(tmp_path: Path) -> None:
    source = script(SGD.replace("0.1", "1e4"), steps=101)
    run = treated(source, tmp_path, "scale_lr", factor=1e-5)
    assert run.seen.losses.value == losses(script(SGD, steps=101), tmp_path)
    assert [round(run.seen.losses.value[step], 4) for step in (0, 100)] == [0.6942, 0.0949]
    assert run.seen.steps[0].lr == [0.1]
    assert report(run).detail == "lr of SGD 10000.0 -> 0.1, first during step 1"


@pytest.mark.parametrize("rate", ["0.3", "torch.tensor(0.3)"])
def test_schedulers_and_prints_see_the_rate_that_was_set(tmp_path: Path, rate: str) -> None:
    source = script(f"optimizer = torch.optim.Adam(model.parameters(), lr={rate})")
    source = source.replace("for step", "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.3)\nfor step")
    source += '    schedule.step(); print(optimizer.param_groups[0]["lr"], schedule.get_last_lr())\n'
    run = treated(source, tmp_path, "scale_lr", factor=0.7)
    assert run.out == plain(source, tmp_path).out
    assert run.err == plain(source, tmp_path).err
    assert run.seen.losses.value != losses(source, tmp_path)
    rates = [step.lr[0] for step in run.seen.steps if step.lr]
    expected = [0.3 * 0.3 ** (step // 2) * 0.7 for step in range(len(rates))]
    assert rates == [pytest.approx(value, rel=1e-6) for value in expected]


def test_a_step_that_raises_and_is_caught_leaves_no_second_scaling(tmp_path: Path) -> None:
    source = (
        PROBLEM
        + SGD
        + textwrap.dedent("""
        def fails():
            raise RuntimeError
        try:
            optimizer.step(fails)
        except RuntimeError:
            pass
        F.cross_entropy(model(batch), labels).backward()
        optimizer.step()
        print(optimizer.param_groups[0]["lr"])
    """)
    )
    run = treated(source, tmp_path, "scale_lr", factor=0.5)
    assert run.out == "0.1\n"
    assert run.seen.steps[0].lr == [0.05]


def test_without_weight_decay(tmp_path: Path) -> None:
    decaying = "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.5)"
    source = script(decaying) + 'print(optimizer.param_groups[0]["weight_decay"])\n'
    run = treated(source, tmp_path, "without_weight_decay")
    assert run.seen.losses.value == losses(script(), tmp_path)
    assert run.seen.losses.value != losses(script(decaying), tmp_path)
    assert run.out == "0.5\n"
    assert report(run).detail == "weight_decay of AdamW 0.5 -> 0.0, first during step 1"


TINY = "x, y = x[:32], y[:32]\n"


@pytest.mark.parametrize(
    ("before", "last"),
    [(SGD.replace("0.1", "1e-9"), 0.00227), (STALE, 0.14840)],
    ids=["healthy", "stale head"],
)
def test_a_fresh_optimizer_fits_the_tiny_batch(tmp_path: Path, before: str, last: float) -> None:
    source = script(TINY + textwrap.dedent(before), steps=502, scores="model(x)", targets="y")
    run = treated(source, tmp_path, "fresh_optimizer", kind="SGD", lr=0.5)
    assert run.seen.losses.value[501] == pytest.approx(last, abs=5e-6)
    assert report(run).applied
    assert run.seen.outcome.steps == 502


def test_the_report_names_what_the_fresh_optimizer_holds(tmp_path: Path) -> None:
    run = treated(script(STALE), tmp_path, "fresh_optimizer", kind="SGD", lr=0.5)
    assert report(run).changed == ["head.weight", "head.bias"]
    assert report(run).detail == "SGD with lr 0.5 in place of AdamW, over 2 parameters: head.weight, head.bias"
    assert row(run.seen, "OWNERSHIP/owned").status == "pass"
    assert row(run.seen, "UPDATE/moved").status == "pass"


def test_the_scripts_own_update_never_runs_and_its_scheduler_goes_on(tmp_path: Path) -> None:
    source = """
class Loud(torch.optim.SGD):
    def step(self, closure=None):
        print("stepped")
        return super().step(closure)
optimizer = Loud(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
"""
    source = script(source) + "    schedule.step()\nprint(schedule.get_last_lr(), len(optimizer.state))\n"
    run = treated(source, tmp_path, "fresh_optimizer", kind="Adam", lr=0.01)
    adam = "optimizer = torch.optim.Adam(model.parameters(), lr=0.01)"
    assert run.seen.losses.value == losses(script(adam), tmp_path)
    assert run.out == "[0.0015625] 0\n"
    assert "lr_scheduler.step()" not in run.err  # torch would warn that the optimizer never stepped


def test_with_several_optimizers_the_fresh_one_steps_once_a_round(tmp_path: Path) -> None:
    two = """
        first = torch.optim.AdamW(model.features.parameters(), lr=1e-2)
        optimizer = torch.optim.AdamW(model.head.parameters(), lr=1e-2)
    """
    source = script(two, clear="optimizer.zero_grad(); first.zero_grad()").replace(
        "    optimizer.step()", "    first.step()\n    optimizer.step()"
    )
    run = treated(source, tmp_path, "fresh_optimizer", kind="SGD", lr=0.1)
    assert run.seen.losses.value == losses(script(SGD), tmp_path)
    assert run.seen.outcome.steps == 6


def test_a_closure_is_evaluated_once_and_an_unfrozen_layer_is_taken_in(tmp_path: Path) -> None:
    source = PROBLEM + textwrap.dedent("""
        model.features.requires_grad_(False)
        optimizer = torch.optim.LBFGS(model.parameters())
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch), labels)
            loss.backward()
            return loss
        for step in range(4):
            if step == 2:
                model.features.requires_grad_(True)
            print(repr(optimizer.step(closure).item()))
    """)
    run = treated(source, tmp_path, "fresh_optimizer", kind="SGD", lr=0.1)
    by_hand = source.replace("torch.optim.LBFGS(model.parameters())", "torch.optim.SGD(model.parameters(), lr=0.1)")
    assert run.out == plain(by_hand, tmp_path).out
    assert len(report(run).changed) == 6


def test_under_a_scaler_the_fresh_optimizer_gets_gradients_of_the_right_size(tmp_path: Path) -> None:
    source = script(STALE + "\nscaler = torch.amp.GradScaler('cpu')")
    source = source.replace("loss.backward()", "scaler.scale(loss).backward()")
    source = source.replace("optimizer.step()", "scaler.step(optimizer); scaler.update()")
    for fused in ("", ", fused=True"):
        scaled = source.replace("weight_decay=0.0", "weight_decay=0.0" + fused)
        # The old head is in the model's place at the optimizer; the features have a gradient for the scaler to check.
        scaled = scaled.replace("model.features.requires_grad_(False)", "")
        run = treated(scaled, tmp_path, "fresh_optimizer", kind="SGD", lr=0.1)
        by_hand = STALE.replace("model.features.requires_grad_(False)", "") + SGD
        expected = losses(script(by_hand), tmp_path)
        assert run.seen.losses.value == [pytest.approx(value, rel=1e-5) for value in expected]


def test_an_unpickled_optimizer_does_not_step_by_itself(tmp_path: Path) -> None:
    source = script(
        "import copy\nmodel, optimizer = copy.deepcopy((model, torch.optim.AdamW(model.parameters(), lr=1.0)))"
    )
    run = treated(source, tmp_path, "fresh_optimizer", kind="SGD", lr=0.1)
    assert run.seen.losses.value == losses(script(SGD), tmp_path)


CLIPPED = script(SGD).replace("    optimizer.step()", "    CLIP\n    optimizer.step()")


@pytest.mark.parametrize(
    ("clip", "name"),
    [
        ("print(repr(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3).item()))", "clip_grad_norm_"),
        ("print(repr(clip_grad_norm_(model.parameters(), 1e-3).item()))", "clip_grad_norm_"),
        ("torch.nn.utils.clip_grad_value_(model.parameters(), 1e-3)", "clip_grad_value_"),
    ],
)
def test_without_clipping(tmp_path: Path, clip: str, name: str) -> None:
    source = "from torch.nn.utils import clip_grad_norm_\n" + CLIPPED.replace("CLIP", clip)
    run = treated(source, tmp_path, "without_clipping")
    assert run.seen.losses.value == losses(script(SGD), tmp_path)
    assert report(run).changed == [name]
    assert run.out.splitlines()[:1] == plain(source, tmp_path).out.splitlines()[:1]


def test_clipping_that_would_change_nothing_is_no_difference(tmp_path: Path) -> None:
    source = CLIPPED.replace("CLIP", "print(repr(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e3).item()))")
    run = treated(source, tmp_path, "without_clipping")
    assert run.out == plain(source, tmp_path).out
    assert not report(run).applied


# -- weights and dropout -----------------------------------------------------------------------------------------------

DEAD = """
with torch.no_grad():
    model.features[0].bias.fill_(-100.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_a_dead_layer_drawn_anew_has_gradients(tmp_path: Path) -> None:
    source = SEEDED + script(DEAD) + RANDOM_STATE
    run = treated(source, tmp_path, "reinitialize", module="features.0")
    assert row(observe(source, tmp_path).seen, "GRADIENT/nonzero").status == "suspected"
    assert row(run.seen, "GRADIENT/nonzero").status == "pass"
    assert report(run).changed == ["features.0.weight", "features.0.bias"]
    assert row(run.seen, "UPDATE/moved").values["moved"] == 6
    assert run.out == plain(source, tmp_path).out  # the state of the random streams at the end


def test_the_drawn_weights_are_those_of_the_seed_and_the_module(tmp_path: Path) -> None:
    by_hand = "torch.manual_seed(9); model.head.reset_parameters()\n" + SGD
    run = treated(script(SGD), tmp_path, "reinitialize", module="head", seed=9)
    assert run.seen.losses.value == losses(script(by_hand), tmp_path)


@pytest.mark.parametrize("scheme", ["kaiming_uniform", "xavier_uniform", "orthogonal", "normal"])
def test_schemes_draw_the_weights_and_leave_the_biases_to_the_module(tmp_path: Path, scheme: str) -> None:
    draw = f"nn.init.{scheme}_(model.head.weight{', std=0.02' if scheme == 'normal' else ''})"
    by_hand = f"torch.manual_seed(0); model.head.reset_parameters(); {draw}\n{SGD}"
    run = treated(script(SGD), tmp_path, "reinitialize", module="head", scheme=scheme)
    assert run.seen.losses.value == losses(script(by_hand), tmp_path)
    assert report(run).changed == ["head.weight", "head.bias"]


def test_a_second_model_is_drawn_before_its_own_first_forward(tmp_path: Path) -> None:
    source = PROBLEM + textwrap.dedent("""
        class Critic(nn.Linear):
            pass
        critic = Critic(2, 2)
        for step in range(2):
            before = [p.clone() for p in (*model.parameters(), *critic.parameters())]
            model(batch).sum().backward()
            critic(batch).sum().backward()
            model.features(batch)
            print([bool((p == q).all()) for p, q in zip(before, (*model.parameters(), *critic.parameters()))])
    """)
    run = treated(source, tmp_path, "reinitialize", module="Critic")
    assert run.out.splitlines() == [str([True] * 6 + [False] * 2), str([True] * 8)]
    assert report(run).changed == ["Critic.weight", "Critic.bias"]


def test_values_that_come_out_as_they_were_are_no_change(tmp_path: Path) -> None:
    source = script(SGD).replace("self.head = nn.Linear(32, 2)", "self.head = nn.LayerNorm(32)")
    run = treated(source, tmp_path, "reinitialize", module="head")
    assert not report(run).applied


DROPPING = SEEDED + script("drop = {drop}\n" + SGD, scores="model.head(drop(model.features(batch)))") + RANDOM_STATE


@pytest.mark.parametrize(
    ("drop", "name"),
    [
        ("nn.Dropout(0.5)", "dropout"),
        ("lambda h: nn.Dropout(0.5, inplace=True)(h * 1)", "dropout"),
        ("nn.Dropout(1.0)", "dropout"),
        ("nn.AlphaDropout(0.5)", "alpha_dropout"),
        ("lambda h: torch.dropout(h, 0.5, True)", "dropout"),
        ("lambda h: torch.dropout_(h.clone(), 0.5, True)", "dropout_"),
        ("lambda h: F.dropout1d(h[None], 0.5)[0]", "dropout1d"),
        ("lambda h: F.dropout(h).mul_(2).mul_(0.5)", "dropout"),
    ],
)
def test_without_dropout_nothing_is_dropped_and_the_random_stream_goes_on(tmp_path: Path, drop: str, name: str) -> None:
    source = DROPPING.replace("{drop}", drop)
    run = treated(source, tmp_path, "without_dropout")
    assert run.seen.losses.value == losses(script(SGD), tmp_path)
    assert run.out == plain(source, tmp_path).out
    assert report(run).changed == [name]


ATTENTION = """
import random, torch
random.seed(0)
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
x = torch.randn(4, 5, 16)
class Heads(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x, need_weights=NEED)[0]
class Fused(nn.Linear):
    def forward(self, x):
        h = super().forward(x)[:, None]
        return F.scaled_dot_product_attention(h, h, h, dropout_p=0.5 if P else 0.0)
class Recurrent(nn.LSTM):
    def forward(self, x):
        return super().forward(x)[0]
model = LAYER
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("layer", "changed"),
    [
        ("Heads(16, 4, dropout=P)", "scaled_dot_product_attention"),
        ("Heads(16, 4, dropout=P, NEED)", "dropout"),
        ("Fused(16, 16)", "scaled_dot_product_attention"),
        ("Recurrent(16, 16, num_layers=2, dropout=P)", "lstm"),
        ("nn.Sequential(nn.GRU(16, 16, num_layers=2, dropout=P), nn.Module())[0]", "gru"),
    ],
)
def test_dropout_inside_attention_and_recurrent_layers(tmp_path: Path, layer: str, changed: str) -> None:
    source = ATTENTION.replace("NEED", str("NEED" in layer)).replace("LAYER", layer.replace(", NEED", ""))
    if changed == "gru":
        source = source.replace("model(x).square", "model(x)[0].square")
    with_dropout, without = (source.replace("P)", f"{p})").replace("if P", f"if {p}") for p in (0.5, 0.0))
    run = treated(with_dropout + RANDOM_STATE, tmp_path, "without_dropout")
    assert run.seen.losses.value == losses(without, tmp_path)
    assert run.seen.losses.value != losses(with_dropout, tmp_path)
    assert run.out == plain(with_dropout + RANDOM_STATE, tmp_path).out
    assert report(run).changed == [changed]


def test_dropout_of_a_model_in_eval_mode_is_none(tmp_path: Path) -> None:
    source = DROPPING.replace("{drop}", "nn.Dropout(0.5).eval()")
    run = treated(source, tmp_path, "without_dropout")
    assert run.seen.losses.value == losses(script(SGD), tmp_path)
    assert not report(run).applied


# -- standing in for torch's functions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["raw_scores_to_loss", "without_dropout"])
def test_scripted_compiled_mapped_and_pickled_functions_work_as_before(tmp_path: Path, name: str) -> None:
    source = """
        import pickle
        import torch
        from torch import nn
        from torch.nn import functional as F
        torch.manual_seed(0)
        scale = 2.0

        @torch.jit.script
        def scripted(x: torch.Tensor, p: float):
            return torch.softmax(F.dropout(x, p), 1).view(-1)

        def compiled(x):
            return F.mse_loss(F.dropout(x, 0.5, False).softmax(1)[:, :3].reshape(-1), torch.zeros(12))

        x = torch.randn(4, 5)
        print(scripted(x, 0.5).tolist())
        print(torch.compile(compiled, backend="eager", fullgraph=True)(x).item())
        print(torch.func.vmap(lambda row: F.softmax(row, 0).view(-1).log_softmax(0))(x).tolist())
        print(pickle.loads(pickle.dumps([F.softmax, F.dropout, torch.softmax, nn.Dropout(0.1)])))
        print(torch.jit.trace(nn.Sequential(nn.Linear(5, 2), nn.Softmax(1)), x)(x).tolist())
    """
    run = treated(textwrap.dedent(source), tmp_path, name)
    expected = plain(source, tmp_path).out
    assert [line.partition(" at 0x")[0] for line in run.out.splitlines()] == [
        line.partition(" at 0x")[0] for line in expected.splitlines()
    ]
    assert not report(run).applied


def test_a_warning_still_names_the_users_line(tmp_path: Path) -> None:
    source = "import torch\nfrom torch.nn import functional as F\nF.softmax(torch.randn(2, 2))\n"
    run = treated(source, tmp_path, "raw_scores_to_loss")
    assert "train.py:3: UserWarning" in run.err


# -- a factory ---------------------------------------------------------------------------------------------------------

FACTORY = """
from weaklink.collector import TrainingSystem

def rule(x):
    return (x[:, 0] + 0.75 * x[:, 1] > 0).long()

def build():
    model.head = nn.Sequential(nn.Dropout(0.5), model.head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    shuffled = batch[torch.randperm(256, generator=torch.Generator().manual_seed(3))]
    return TrainingSystem(model=model, optimizer=optimizer, inputs=shuffled, targets=labels, rule=rule, steps=6)
"""


@pytest.mark.parametrize(
    ("name", "parameters", "changed"),
    [
        ("realign_targets", {}, "cross_entropy"),
        ("permute_targets", {}, "cross_entropy"),
        ("without_dropout", {}, "dropout"),
        ("without_weight_decay", {}, "AdamW group 0"),
        ("scale_lr", {"factor": 0.5}, "AdamW group 0"),
        ("reinitialize", {"module": "head.*"}, "head.1.weight"),
        ("fresh_optimizer", {"lr": 0.5}, "features.0.weight"),
    ],
)
def test_a_factorys_system_is_changed_like_a_script(
    tmp_path: Path, name: str, parameters: dict[str, Any], changed: str
) -> None:
    write(PROBLEM + FACTORY, tmp_path)
    run = run_job(
        Job(
            role="treatment",
            subject=Subject(kind="factory", name="train.py:build"),
            folder=tmp_path,
            evidence=tmp_path / "evidence.json",
            intervention=name,
            intervention_parameters=parameters,
        ),
        tmp_path,
    )
    assert run.code == 0, run.err
    assert report(run).applied
    assert report(run).changed[0] == changed
    assert run.seen.outcome.steps == 6


# -- parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("reattach", {}, "site: Field required"),
        ("reattach", {"site": "train.py"}, "site: String should match pattern"),
        ("scale_lr", {"factor": 1}, "a factor of 1 changes nothing"),
        ("scale_lr", {"factor": 0.0}, "greater than 0"),
        ("scale_lr", {"factor": "Infinity"}, "finite number"),
        ("reinitialize", {"scheme": "zeros"}, "scheme: Input should be 'default'"),
        ("reinitialize", {"seed": -1}, "greater than or equal to 0"),
        ("fresh_optimizer", {"kind": "LBFGS", "lr": 0.1}, "kind: Input should be 'SGD'"),
        ("fresh_optimizer", {}, "lr: Field required"),
        ("without_dropout", {"p": 0.5}, "p: Extra inputs are not permitted"),
    ],
)
def test_a_parameter_that_makes_no_experiment_is_refused(name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InterventionError, match=message):
        build(name, given)


def test_every_entry_says_what_it_changes_and_what_it_cannot() -> None:
    for entry in CATALOGUE.values():
        for sentence in (entry.changes, entry.cannot_change, entry.not_applicable):
            assert sentence.endswith(".")
            assert len(sentence) > 30, entry.name
