"""What a drill finds. Plain data: printed, written as JSON, and kept in the receipt of a replay."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from weaklink.agent.proposal import ExperimentChoice
from weaklink.collector.evidence import Branch, Environment, Float, Model, SourceFile, Subject, Value

Outcome = Literal["established", "not established", "no fix to try", "nothing to drill", "not a branch of the drill"]


class Measurement(Model):
    """The first thing to measure in a branch, and where it points: `reading` is one of the branch's own words."""

    text: str
    reading: str
    values: dict[str, Value] = {}


class Control(Model):
    """One rerun of the first seed under one change, made to split two causes; no repair."""

    question: str
    change: ExperimentChoice
    applied: bool
    reading: str
    text: str


class RunNumbers(Model):
    """One run of one seed. `loss_last` is the mean of the last tenth of its losses, ten at least; `row` a status."""

    branch: Branch
    steps: int
    loss_first: Float | None = None
    loss_last: Float | None = None
    row: str | None = None


class Attempt(Model):
    """A fix on the first seed: whether it changed anything, and whether the branch's symptom was gone."""

    change: ExperimentChoice
    applied: bool
    holds: bool
    run: RunNumbers | None = None


class SeedRun(Model):
    """The same seed without and with the fix. `shown`: the symptom is there without it; `holds`: it is gone with it."""

    seed: int
    baseline: RunNumbers
    treated: RunNumbers | None
    shown: bool
    holds: bool


class Drill(Model):
    """The whole of it, which is also the receipt of a replay. `seeds` is empty where no fix held on the first one.

    `over_seeds` is what the seeds show together, where a branch is judged by that too.
    """

    schema_: Literal["weaklink.drill/1"] = Field(default="weaklink.drill/1", alias="schema")
    subject: Subject
    sources: list[SourceFile] = []
    environment: Environment
    branch: Branch
    first_row: str | None = None
    advice: str | None = None
    measurement: Measurement | None = None
    control: Control | None = None
    attempts: list[Attempt] = []
    fix: ExperimentChoice | None = None
    seeds: list[SeedRun] = []
    over_seeds: str | None = None
    outcome: Outcome
    reasons: list[str] = []
    limits: list[str] = []
