"""UPDATE/schedule: did the schedule leave the run a rate to learn with?"""

from __future__ import annotations

from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.data import DataRecord
from weaklink.collector.watching.files import FilesRecord
from weaklink.collector.watching.schedule import OptimizerRates, ScheduleRecord, ScheduleSeen
from weaklink.collector.watching.tape import StepSample

ID = "UPDATE/schedule"
TEXT = "the rates that the schedule gave"
# A run that came back to its data or to an evaluation this often is no trial of a few steps.
ROUNDS = 2
# Half of the distance from 1 to the next number of float32: less, relative to a parameter, changes no bit of it.
RESOLUTION = 2.0**-24


def rows(run: Observation) -> list[Row]:
    """One row about the schedule of the rates."""
    seen = run.record(ScheduleRecord)
    changing = any(group.fell or group.rose for rates in seen.optimizers.values() for group in rates.groups)
    stepped = [schedule for schedule in seen.schedules if schedule.steps]
    if not stepped and not changing:
        reason = run.no_step() if not seen.optimizers else "no schedule was stepped, and no rate changed"
        return [Row(id=ID, status="not_measured", text=TEXT, reason=reason)]
    return [_standstill(run, seen, stepped) or _never_reached(run, seen, stepped) or _described(run, seen, stepped)]


def _described(run: Observation, seen: ScheduleRecord, stepped: list[ScheduleSeen]) -> Row:
    text = "; ".join(f"{s.class_name} stepped {s.steps} times" for s in stepped) or "rates set by the script itself"
    steps = sum(rates.steps for rates in seen.optimizers.values())
    return Row(
        id=ID,
        status="pass" if _left_a_rate(run, seen, stepped) else "evidence",
        text=f"{text} in {steps} optimizer steps",
        values={"scheduler_steps": sum(s.steps for s in stepped), "steps": steps},
    )


def _left_a_rate(run: Observation, seen: ScheduleRecord, stepped: list[ScheduleSeen]) -> bool:
    """Whether the last sampled step moved something, one at the last rate still would, and no rate only ever rose: of a
    warmup that nothing followed it is known how far it came only where its peak is.
    """
    samples = list(run.steps)
    if not samples or not any(samples[-1].moved.values()):
        return False
    last = max((group.last for rates in seen.optimizers.values() for group in rates.groups), default=0.0)
    if not _would_move(samples[-1], last):
        return False
    rising = [r for r in seen.optimizers.values() if any(group.rose and not group.fell for group in r.groups)]
    return all(any(_near_its_peak(run, rates, schedule) for schedule in stepped) for rates in rising)


def _would_move(sample: StepSample, rate: float) -> bool:
    """Whether this step, taken at another rate, would be above the resolution of some parameter.

    By arithmetic in float32, as if the step were proportional to its rate.
    """
    taken = max(sample.lr, default=0.0)
    share = rate / taken if taken > 0.0 else 0.0
    pairs = ((delta, sample.before.get(serial, 0.0)) for serial, delta in sample.delta.items())
    return any(delta * share > norm * RESOLUTION and delta > 0.0 and share > 0.0 for delta, norm in pairs)


def _near_its_peak(run: Observation, rates: OptimizerRates, schedule: ScheduleSeen) -> bool:
    ahead = run.look(schedule.look).values if schedule.look is not None else None
    return (
        schedule.optimizer == rates.optimizer
        and ahead is not None
        and not 2.0 * rates.groups[0].highest < float(ahead["highest"])
    )


def _standstill(run: Observation, seen: ScheduleRecord, stepped: list[ScheduleSeen]) -> Row | None:
    """For more than half of the run no step moved anything in any bit, at rates that the schedule had brought down.

    Judged by arithmetic: the same gradients at the highest rate that was used would have moved the parameters. A
    schedule that follows a metric lowers the rate because nothing is to be gained any more, and is not judged.
    """
    still = {(item.step, item.optimizer): item for item in seen.still}
    first: int | None = None
    for sample in run.steps:
        item = still.get((sample.step, sample.optimizer))
        if item is None or not item.would_move:
            first = None
        elif first is None:
            first = sample.step
    count = sum(first is not None and step >= first for step, _ in still)
    total = run.tape.steps
    if first is None or count < 2 or total - first <= first or any(schedule.by_metric for schedule in stepped):
        return None
    rates = next(item.rates for item in seen.still if item.step == first)
    highest = max(group.highest for known in seen.optimizers.values() for group in known.groups)
    lowered = max(rates, default=0.0) < highest
    often = [s for s in stepped if s.optimizer is not None and s.steps >= _steps_of(seen, s)]
    if not lowered:
        return None
    each = f"; the scheduler was stepped {often[0].steps} times in {_steps_of(seen, often[0])} steps" if often else ""
    return Row(
        id=ID,
        status="fail" if often else "suspected",
        basis="exact" if often else None,
        text=f"from step {first} of {total} on no step moved any parameter in any bit, though gradients were there: "
        f"the rate had fallen from {highest:g} to {max(rates, default=0.0):.3g}{each}",
        values={
            "still_from": first,
            "steps": total,
            "highest": highest,
            "scheduler_steps": sum(s.steps for s in stepped),
            "passes": seen.passes,
        },
        where=_sites(run, often or stepped, step_first=True),
        step=first,
    )


def _steps_of(seen: ScheduleRecord, schedule: ScheduleSeen) -> int:
    rates = seen.optimizers.get(schedule.optimizer) if schedule.optimizer is not None else None
    return rates.steps if rates is not None else 0


def _never_reached(run: Observation, seen: ScheduleRecord, stepped: list[ScheduleSeen]) -> Row | None:
    """A completed run that ended in the first half of its warmup: the schedule's own peak was never near."""
    if not run.whole or max(seen.evaluations, seen.passes) < ROUNDS:
        return None
    for schedule in stepped:
        rates = seen.optimizers.get(schedule.optimizer) if schedule.optimizer is not None else None
        ahead = run.look(schedule.look).values if schedule.look is not None else None
        if rates is None or not rates.groups or not ahead:
            continue
        group = rates.groups[0]
        peak, at = float(ahead["highest"]), int(ahead["at"])
        # One step counts for the constructor's own, and `ahead` began at the first step of the training.
        if not group.rose or group.fell or not 2.0 * group.highest < peak or at <= schedule.steps:
            continue
        # Stepped as often as the optimizer, it would have had to run on; that a trial does not is no fault of its own.
        if at > rates.steps and _breaks_off(run):
            continue
        return _warming(run, schedule, rates, peak, at)
    return None


def _breaks_off(run: Observation) -> bool:
    """Whether the script leaves a pass over its training data before its end, as a trial with a limit of steps does."""
    trains = [loader for loader in run.record(DataRecord).loaders if loader.trains]
    return any(loader.passes > loader.finished for loader in trains)


def _warming(run: Observation, schedule: ScheduleSeen, rates: OptimizerRates, peak: float, at: int) -> Row:
    highest = rates.groups[0].highest
    seldom = schedule.steps < rates.steps and at <= rates.steps
    why = (
        f"it was stepped {schedule.steps} times in {rates.steps} optimizer steps, and peaks after {at}"
        if seldom
        else f"it peaks after {at} steps, and the run has {rates.steps}"
    )
    return Row(
        id=ID,
        status="suspected",
        text=f"the run ended in its warmup: the rate rose to {highest:.3g} of {peak:.3g}; {why}",
        values={
            "highest": highest,
            "peak": peak,
            "peak_after": at,
            "scheduler_steps": schedule.steps,
            "steps": rates.steps,
        },
        where=_sites(run, [schedule], step_first=False),
    )


def _sites(run: Observation, schedules: list[ScheduleSeen], step_first: bool) -> list[Site]:
    found: list[Site | None] = []
    for schedule in schedules[:1]:
        places = [schedule.built, schedule.stepped]
        found += reversed(places) if step_first else places
    if not found:
        found = [optimizer.built for optimizer in run.optimizers[:1]]
    by_place = {(site.file, site.line): site for site in found if site}
    sites = [*by_place.values()][:2]
    # A number in a file explains a schedule as well as a line does.
    return [*sites, *run.record(FilesRecord).configuration()[:1]]
