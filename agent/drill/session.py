"""One drill: observe, name the branch, measure, control, try fixes one at a time, hold the first over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weaklink.agent.close_up import beginnings, closer
from weaklink.agent.drill import diverging, eval_gap, flat, noisy_plateau, nonfinite
from weaklink.agent.drill.page import DrillPage, Pair, numbers
from weaklink.agent.drill.shapes import Attempt, Control, Drill, Measurement, Outcome, SeedRun
from weaklink.agent.errors import NothingMeasuredError
from weaklink.agent.horizons import Means
from weaklink.agent.proposal import ExperimentChoice
from weaklink.agent.recovery.decision import FEWEST_SEEDS
from weaklink.agent.runner import Runner
from weaklink.agent.session import measured
from weaklink.collector.evidence import Branch, Evidence

PAGES: dict[Branch, DrillPage] = {
    "flat": flat.PAGE,
    "slow": flat.PAGE,
    "diverging": diverging.PAGE,
    "nonfinite": nonfinite.PAGE,
    "eval_gap": eval_gap.PAGE,
    "noisy_plateau": noisy_plateau.PAGE,
}
# A drill is a quick look: what the first divergence offers beyond these is `weaklink diagnose`'s business.
MOST_ATTEMPTS = 4
LIMITS = (
    "Cause: a fix that holds shows no cause; `weaklink diagnose` holds rivals against each other.",
    "Slices: a mean hides them: cut errors by class, length or source.",
    "Seeds: generators that the script seeds by itself (its data, often) began alike in every run.",
    "Stopping: every run went as far as the script's own; stopping early needs a threshold and a budget, or it is "
    "hindsight.",
)


class DrillInterruptedError(Exception):
    """The user stopped a run."""


@dataclass
class Driller:
    """Runs one subject for a drill.

    Args:
        runner: Of the subject, for all runs of this drill.
        seeds: How many random starts; the first is the run as it is.
    """

    runner: Runner
    seeds: int

    def drill(self) -> Drill:
        """All of it.

        Raises:
            NothingMeasuredError: The run trained nothing that could be measured.
            DrillInterruptedError: The user stopped a run.
            WeaklinkError: A run could not be started.
        """
        observed = self._observe(0)
        if not measured(observed):
            raise NothingMeasuredError.of(observed, None)
        first = observed.first_divergence
        branch = branch_of(observed)
        found = Drill(
            subject=observed.subject,
            sources=list(observed.sources),
            environment=observed.environment,
            branch=branch,
            first_row=first.id if first is not None else None,
            outcome="not a branch of the drill",
        )
        page = PAGES.get(branch)
        if page is None:
            found.outcome, found.reasons = _no_page(observed)
            return found
        found.advice, found.limits = page.advice, list(LIMITS)
        found.measurement = page.measure(observed)
        found.control = self._control(page, observed, found.measurement)
        held = self._attempts(page, observed, found)
        if held is None:
            found.outcome = "not established" if found.attempts else "no fix to try"
            found.reasons = [_none_held(found)]
            return found
        pairs = self._over_seeds(page, observed, held, found)
        found.reasons = _reasons(found, page, pairs)
        found.outcome = "not established" if found.reasons else "established"
        return found

    def _observe(self, seed: int) -> Evidence:
        """A whole run, with all that a diagnosis would measure on it."""
        self.runner.pins = self.runner.pins.model_copy(update={"offset": seed})
        record = self.runner.observe()
        if record.evidence is None or record.result.interrupted:
            raise DrillInterruptedError
        evidence, interrupted = closer(self.runner, record.evidence)
        if interrupted:
            raise DrillInterruptedError
        return evidence

    def _treat(self, observed: Evidence, choice: ExperimentChoice, seed: int) -> Evidence | None:
        """The same run under one change, as far as the observed one went; None where it left nothing."""
        self.runner.pins = self.runner.pins.model_copy(update={"offset": seed})
        outcome = observed.outcome
        horizon = max(outcome.steps, 1) if outcome.ended == "deadline" else None
        record = self.runner.rerun("treatment", observed, horizon, choice.name, choice.parameters, _means(observed))
        if record.result.interrupted:
            raise DrillInterruptedError
        return record.evidence

    def _control(self, page: DrillPage, observed: Evidence, measurement: Measurement) -> Control | None:
        plan = page.control(observed, measurement)
        if plan is None:
            return None
        treated = self._treat(observed, plan.choice, 0)
        applied = treated is not None and _applied(treated)
        reading, text = ("not applicable", "the control found nothing to change")
        if treated is not None and applied:
            reading, text = plan.read(observed, treated)
        return Control(question=plan.question, change=plan.choice, applied=applied, reading=reading, text=text)

    def _attempts(self, page: DrillPage, observed: Evidence, found: Drill) -> Evidence | None:
        """Fixes one at a time on the first seed; the run of the first that holds."""
        for choice in page.fixes(observed)[:MOST_ATTEMPTS]:
            treated = self._treat(observed, choice, 0)
            applied = treated is not None and _applied(treated)
            holds = treated is not None and applied and page.holds(observed, treated)
            run = None if treated is None else numbers(treated, found.first_row)
            found.attempts.append(Attempt(change=choice, applied=applied, holds=holds, run=run))
            if holds:
                found.fix = choice
                return treated
        return None

    def _over_seeds(self, page: DrillPage, observed: Evidence, held: Evidence, found: Drill) -> list[Pair]:
        """The same seeds without and with the fix."""
        assert found.fix is not None
        pairs: list[Pair] = [(observed, held)]
        found.seeds.append(_seed_run(page, 0, observed, held, found.first_row))
        for seed in range(1, self.seeds):
            before = self._observe(seed)
            after = self._treat(before, found.fix, seed)
            found.seeds.append(_seed_run(page, seed, before, after, found.first_row))
            if after is not None:
                pairs.append((before, after))
        return pairs


def branch_of(observed: Evidence) -> Branch:
    """The branch of the evidence; a suspicion about the evaluation of a run that learns is drilled as a gap."""
    return "eval_gap" if observed.branch == "learning" and eval_gap.shows(observed) else observed.branch


def _means(observed: Evidence) -> Means:
    """What the first divergence was measured by; a symptom that is read from the losses takes no more than watching."""
    rows = [row for row in (observed.first_divergence, observed.row(eval_gap.GAP)) if row is not None]
    close = any("close_up" in row.means for row in rows)
    return Means(any("look" in row.means for row in rows), tuple(beginnings(observed)) if close else ())


def _applied(treated: Evidence) -> bool:
    return treated.intervention is not None and treated.intervention.applied


def _seed_run(page: DrillPage, seed: int, before: Evidence, after: Evidence | None, row: str | None) -> SeedRun:
    return SeedRun(
        seed=seed,
        baseline=numbers(before, row),
        treated=None if after is None else numbers(after, row),
        shown=page.shows(before),
        holds=after is not None and _applied(after) and page.holds(before, after),
    )


def _reasons(found: Drill, page: DrillPage, pairs: Sequence[Pair]) -> list[str]:
    """Why the fix is not established, empty where it is; what the seeds show together is noted on the way."""
    reasons = []
    if failing := [run.seed for run in found.seeds if not run.holds]:
        reasons.append(f"it holds on seed 0 and fails on {_seeds(failing)}")
    if hidden := [run.seed for run in found.seeds if not run.shown]:
        reasons.append(f"without it there is no symptom on {_seeds(hidden)}: that it is gone there shows nothing")
    if len(found.seeds) < FEWEST_SEEDS:
        reasons.append(f"{len(found.seeds)} of at least {FEWEST_SEEDS} seeds were run")
    shown = page.together(pairs)
    if shown is not None:
        apart, found.over_seeds = shown
        reasons += [] if apart else [found.over_seeds]
    return reasons


def _seeds(numbers: Sequence[int]) -> str:
    return f"seed{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _none_held(found: Drill) -> str:
    if not found.attempts:
        row = f"{found.first_row} asks a question that no experiment answers" if found.first_row else "no row diverges"
        return f"{row}; `weaklink diagnose` says more"
    tried = ", ".join(attempt.change.name for attempt in found.attempts)
    return f"on seed 0 none held of what was tried, one at a time: {tried}"


def _no_page(observed: Evidence) -> tuple[Outcome, list[str]]:
    if observed.branch == "learning":
        return "nothing to drill", ["the loss falls, and no row fails"]
    if observed.branch == "raised":
        return "not a branch of the drill", ["the exception comes first: `weaklink diagnose` names it"]
    if observed.branch == "silently_wrong":
        return "not a branch of the drill", ["the loss falls while a row fails: `weaklink diagnose` names the cause"]
    return "not a branch of the drill", ["too few losses were seen to name a branch"]
