"""EVALUATION: are the evaluated inputs and labels those of training? Read from the look at the last evaluation."""

from __future__ import annotations

from typing import Any

from weaklink.collector.evaluating.look import LOOK
from weaklink.collector.evidence import Row, Site, Value
from weaklink.collector.rows.naming import reordered_lists
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.data import DataRecord
from weaklink.collector.watching.evaluated import EvaluationRecord
from weaklink.collector.watching.files import FilesRecord

SITES = 3


def rows(run: Observation) -> list[Row]:
    """Rows about the pairs of the last evaluation that was kept."""
    return [_inputs(run), _labels(run), *_overlap(run)]


def _looked(run: Observation) -> tuple[dict[str, Any] | None, str]:
    """What the look showed, or why it showed nothing."""
    record = run.record(EvaluationRecord)
    if not record.called:
        return None, "no evaluation was seen whose targets are known"
    look = run.look(LOOK)
    if look.values is None:
        return None, look.problem or "it showed nothing"
    unknown = look.values.get("unknown")
    return (None, str(unknown)) if unknown else (look.values, "")


def _inputs(run: Observation) -> Row:
    text = "the evaluated inputs against those of training"
    found, reason = _looked(run)
    inputs = found["inputs"] if found is not None else {}
    if found is None or "unknown" in inputs:
        return Row(id="EVALUATION/inputs", status="not_measured", text=text, reason=reason or str(inputs["unknown"]))
    means, stds = inputs["mean"], inputs["std"]
    text = (
        f"mean {means[0]:.4f} and spread {stds[0]:.4f} in training, {means[1]:.4f} and {stds[1]:.4f} in evaluation; "
        f"{inputs['outside']} of {inputs['channels']} channels lie outside all {inputs['train_batches']} batches seen"
    )
    values: dict[str, Value] = {key: inputs[key] for key in ("channels", "outside", "train_batches")}
    values |= {"score": found["score"], "train_score": found["train_score"]}
    if not inputs.get("explains"):
        # Another distribution is no fault by itself: only a preparation that makes the model as good as in training is.
        return Row(id="EVALUATION/inputs", status="evidence", text=text, values=values)
    scores = _scores(found, inputs["prepared"])
    return Row(
        id="EVALUATION/inputs",
        status="fail",
        basis="controlled",
        text=f"{scores} with {inputs['preparation']}: better in {inputs['better']} rows, worse in {inputs['worse']}; "
        + text,
        values={
            **values,
            "prepared": inputs["prepared"],
            "better": inputs["better"],
            "worse": inputs["worse"],
            "preparation": inputs["preparation"],
        },
        where=_input_sites(run),
    )


def _labels(run: Observation) -> Row:
    text = "the evaluated labels against those of training"
    found, reason = _looked(run)
    labels = found["labels"] if found is not None else {}
    if found is None or "unknown" in labels:
        return Row(id="EVALUATION/labels", status="not_measured", text=text, reason=reason or str(labels["unknown"]))
    values: dict[str, Value] = {"renumbered": labels["renumbered"], "score": found["score"], "rows": found["rows"]}
    if not labels["renumbered"]:
        text = f"no renumbering of classes fits the {found['rows']} evaluated rows better than the labels as they are"
        return Row(id="EVALUATION/labels", status="pass", text=text, values=values)
    shown = ", ".join(labels["numbers"][:8])
    text = f"{_scores(found, labels['renumbered_score'])} with classes renumbered {shown}"
    # Inputs that were prepared otherwise can swap classes too, and targets must be those the script itself scores.
    proven = labels["explains"] and found["certain"] and not found["inputs"].get("explains")
    return Row(
        id="EVALUATION/labels",
        status="fail" if proven else "evidence",
        basis="controlled" if proven else None,
        text=f"{text}: better in {labels['better']} rows, worse in {labels['worse']}",
        values={
            **values,
            "renumbered_score": labels["renumbered_score"],
            "better": labels["better"],
            "worse": labels["worse"],
            "numbers": labels["numbers"][:20],
        },
        where=_label_sites(run) if proven else [],
    )


def _scores(found: dict[str, Any], other: float) -> str:
    if found["by_class"]:
        return f"accuracy {found['score']:.4f} in evaluation, {found['train_score']:.4f} in training, {other:.4f}"
    return f"squared error {-found['score']:.4g} in evaluation, {-found['train_score']:.4g} in training, {-other:.4g}"


def _input_sites(run: Observation) -> list[Site]:
    """Where the evaluated rows are prepared: settings of the dataset that differ, its loader, the call."""
    record = run.record(EvaluationRecord)
    settings = [site for difference in record.differences for site in difference.sites]
    flags = [s for d in record.differences if d.train in ("True", "False", "None") for s in d.sites]
    loaders = _loader_sites(run)
    ordered = [*flags, *loaders, *settings] if flags else [*loaders, *settings]
    return _distinct([*ordered, *record.called])[:SITES]


def _label_sites(run: Observation) -> list[Site]:
    """Lists of names in another order, the files that only evaluation can be of, the loader."""
    files = run.record(FilesRecord)
    record = run.record(EvaluationRecord)
    data = sorted(files.data(), key=lambda site: not _names_evaluation(site.file))
    return _distinct([*reordered_lists(files), *data[:2], *_loader_sites(run), *record.scored])[:SITES]


def _names_evaluation(file: str) -> bool:
    name = file.rpartition("/")[2].lower()
    return any(word in name for word in ("val", "test", "eval", "dev", "heldout", "holdout"))


def _loader_sites(run: Observation) -> list[Site]:
    made = [loader.made for loader in run.record(DataRecord).loaders if loader.evaluation_calls and not loader.trains]
    return [site for site in made if site is not None]


def _distinct(sites: list[Site]) -> list[Site]:
    found: list[Site] = []
    for site in sites:
        if all(site.place != known.place for known in found):
            found.append(site)
    return found


def _overlap(run: Observation) -> list[Row]:
    found = run.record(EvaluationRecord).overlap
    if found is None:
        return []
    return [
        Row(
            id="EVALUATION/overlap",
            # A preview on training rows and colliding ids are no leak: counted, for the reader.
            status="evidence" if found.both else "pass",
            text=f"{found.both} of {found.evaluated} evaluated rows stand among the {found.trained} training rows kept",
            values={"both": found.both, "evaluated": found.evaluated, "trained": found.trained},
        )
    ]
