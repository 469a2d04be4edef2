"""The pages for DEPENDENCY, CAPABILITY and EVALUATION, each on the evidence of a run that shows its row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from collector_runs import line_of, observe
from test_experiments_dependency import BLOCK, REBUILT, SIAMESE, cut
from test_experiments_evaluation import DROPS, NORMALISED, STUCK
from test_model_looks import HEAD, classes, dropping, fitted

from weaklink.agent.advisors.playbook import PAGES, Playbook
from weaklink.agent.contract import violations
from weaklink.collector.evidence import Evidence, Row

RESTORED = HEAD + classes() + "kept = model.state_dict()\nfor rows in torch.randperm(240).split(24):\n"
RESTORED += (
    "    F.cross_entropy(model(x[rows]), y[rows]).backward()\n    optimizer.step()\nmodel.load_state_dict(kept)\n"
)
RESTORED += "print(evaluate(model))\n"


def seen(source: str, folder: Path, **job: Any) -> Evidence:
    found = observe(source, folder, looks="fork", **job)
    assert found.code == 0, found.err
    return found.seen


def with_first(evidence: Evidence, row_id: str) -> Evidence:
    """The evidence with nothing else that diverges: what a row before it says is another page's business."""
    quiet = [
        row if row.id == row_id or row.status not in ("fail", "suspected") else _evidence(row) for row in evidence.rows
    ]
    return evidence.model_copy(update={"rows": quiet})


def _evidence(row: Row) -> Row:
    return row.model_copy(update={"status": "evidence", "basis": None})


@pytest.mark.parametrize(
    ("source", "row_id", "experiment", "families"),
    [
        (cut(BLOCK), "DEPENDENCY/reached", "grad_enabled", ["graph_cut", "zero_gradient", "other"]),
        (
            cut("checkpoint(self.trunk, x, use_reentrant=True)"),
            "DEPENDENCY/reached",
            "non_reentrant_checkpoint",
            ["graph_cut", "zero_gradient", "other"],
        ),
        (cut("self.trunk(x).detach()"), "DEPENDENCY/reached", "reattach", ["graph_cut", "zero_gradient", "other"]),
        (
            HEAD
            + SIAMESE.replace("LOSS", "-F.cosine_similarity(predictor(one), other, dim=-1).mean()").replace(
                "(40)", "(400)"
            ),
            "DEPENDENCY/stop_gradient",
            "stop_gradient",
            ["missing_stop_gradient", "other"],
        ),
        (
            HEAD + fitted(dropping(0.995)),
            "CAPABILITY/fit",
            "without_dropout",
            ["regularization_wrong", "rate_wrong", "capacity"],
        ),
        (
            HEAD + classes(dropout=DROPS),
            "EVALUATION/dropout",
            "dropout_follows_mode",
            ["evaluation_mismatch", "stale_buffers", "wrong_weights_evaluated"],
        ),
        (
            HEAD + classes("0.0"),
            "EVALUATION/buffers",
            "batchnorm_momentum",
            ["stale_buffers", "evaluation_mismatch", "wrong_weights_evaluated"],
        ),
        (
            HEAD + NORMALISED.replace("UPDATE", "pass"),
            "EVALUATION/buffers",
            "update_buffers",
            ["stale_buffers", "evaluation_mismatch", "metric_wrong"],
        ),
        (
            HEAD + STUCK,
            "EVALUATION/weights",
            "evaluate_trained_weights",
            ["wrong_weights_evaluated", "stale_buffers", "evaluation_mismatch"],
        ),
        (
            RESTORED,
            "EVALUATION/restored",
            "copy_states",
            ["wrong_weights_evaluated", "stale_buffers", "evaluation_mismatch"],
        ),
    ],
)
def test_the_experiment_that_settles_a_row(
    tmp_path: Path, source: str, row_id: str, experiment: str, families: list[str]
) -> None:
    evidence = with_first(seen(source, tmp_path), row_id)
    first = evidence.first_divergence
    assert first is not None
    assert first.id == row_id
    proposal = Playbook().advise(evidence, "", [])
    assert violations(proposal, evidence) == []
    assert proposal.experiment is not None, proposal.question
    assert proposal.experiment.name == experiment
    assert [mechanism.id for mechanism in proposal.mechanisms] == families
    assert f"row[{row_id}]" in proposal.must_change


def test_a_cut_at_two_lines_is_asked_about(tmp_path: Path) -> None:
    source = cut("one = self.trunk(x).detach()\n        hidden = one + self.trunk(-x).detach()")
    evidence = seen(source, tmp_path)
    row = evidence.row("DEPENDENCY/reached")
    assert row is not None
    assert len(row.values["ends"]) > 1  # type: ignore[arg-type]
    assert PAGES["DEPENDENCY/reached"](evidence, row) is None


def test_a_lost_term_is_joined_at_the_line_that_rebuilt_it(tmp_path: Path) -> None:
    source = REBUILT.replace("TERM", "torch.tensor(parts).mean()")
    evidence = seen(source, tmp_path, role="close_up", close_up_at=[1])
    row = evidence.row("DEPENDENCY/terms")
    assert row is not None
    proposal = PAGES["DEPENDENCY/terms"](evidence, row)
    assert proposal is not None
    assert violations(proposal, evidence) == []
    assert proposal.experiment is not None
    assert proposal.experiment.parameters == {"site": f"train.py:{line_of(source, 'term =')}"}


@pytest.mark.parametrize("row_id", ["EVALUATION/inputs", "EVALUATION/labels", "EVALUATION/metric"])
def test_what_no_experiment_reaches_is_asked(row_id: str) -> None:
    assert row_id not in PAGES
