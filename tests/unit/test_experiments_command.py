"""`weaklink experiments`: every entry is listed, with its bounds; the layout is held by a sample of two."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from pydantic import Field
from test_reporters_terminal import check_golden

from weaklink.agent.cli.main import run
from weaklink.agent.reporters.experiments import experiments_json, parameters_of, render_experiments
from weaklink.collector.catalogue import CATALOGUE, Entry, NoParameters
from weaklink.collector.evidence import BOUNDARIES, Model
from weaklink.collector.table.layout import cells


class Knobs(Model):
    factor: float = Field(gt=0, allow_inf_nan=False)
    scheme: Literal["default", "normal"] = "default"
    site: str = Field(default="*", min_length=1, max_length=200)
    seed: int | None = Field(default=None, ge=0)


SAMPLE = (
    Entry(
        name="turn_knobs",
        boundary="UPDATE",
        changes="During each step every knob is turned, and put back after it; nothing else is touched on the way.",
        cannot_change="Data, first forward, first loss.",
        not_applicable="There is no knob.",
        parameters=Knobs,
        can_move=frozenset({"moved", "row"}),
        decides=frozenset({"rate_wrong", "update_lost"}),
    ),
    Entry(
        name="look_away",
        boundary="TASK",
        changes="Nothing is looked at.",
        cannot_change="Anything.",
        not_applicable="Never.",
        parameters=NoParameters,
        can_move=frozenset({"row"}),
        decides=frozenset(),
    ),
)


@pytest.mark.parametrize("width", [60, 100])
def test_golden(width: int) -> None:
    check_golden(f"experiments_{width}.txt", render_experiments(SAMPLE, width))


def test_every_entry_stands_under_its_boundary_once() -> None:
    text = render_experiments(list(CATALOGUE.values()))
    lines = text.splitlines()
    heads = [line for line in lines if line in BOUNDARIES]
    assert heads == [name for name in BOUNDARIES if any(entry.boundary == name for entry in CATALOGUE.values())]
    for name, entry in CATALOGUE.items():
        at = lines.index(f"  {name}")
        assert lines.count(f"  {name}") == 1
        assert next(line for line in reversed(lines[:at]) if line in BOUNDARIES) == entry.boundary


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(cells, render_experiments(list(CATALOGUE.values()), width).splitlines())) <= width


def test_parameters_with_type_default_and_bounds() -> None:
    factor, scheme, site, seed = parameters_of(SAMPLE[0])
    assert (factor["type"], factor["required"], factor["bounds"]) == ("number", True, ["above 0"])
    assert (scheme["type"], scheme["required"], scheme["default"]) == ("default or normal", False, "default")
    assert site["bounds"] == ["not empty", "at most 200 characters"]
    assert (seed["type"], seed["default"], seed["bounds"]) == ("integer or null", None, ["at least 0"])


def test_every_parameter_of_the_catalogue_is_shown() -> None:
    body = experiments_json(list(CATALOGUE.values()))
    assert {each["name"] for each in body["experiments"]} == set(CATALOGUE)
    for each in body["experiments"]:
        entry = CATALOGUE[each["name"]]
        assert [parameter["name"] for parameter in each["parameters"]] == list(entry.parameters.model_fields)
        assert set(each["decides"]) == entry.decides


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["experiments", "scale_lr", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in body["experiments"]] == ["scale_lr"]
    assert run(["experiments", "scale_rl"]) == 2
    assert "scale_lr" in capsys.readouterr().err
