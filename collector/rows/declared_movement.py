"""UPDATE/declared: what was declared to be trained must move."""

from __future__ import annotations

from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.intended import matching, trainable
from weaklink.collector.rows.observation import Observation, names
from weaklink.collector.watching.parameters import ParameterEntry
from weaklink.collector.watching.sampling import DENSE_STEPS
from weaklink.collector.watching.tape import StepSample

ROW = "UPDATE/declared"
TEXT = "parameters declared to be trained that moved"


def rows(run: Observation) -> list[Row]:
    """Pattern by pattern: one parameter of many may be still by arithmetic (a bias before a normalisation)."""
    if not run.declared.expected:
        return [Row(id=ROW, status="not_measured", text=TEXT, reason="nothing was declared (--trainable)")]
    samples, meant = list(run.steps), trainable(run)
    known = [e for e in meant if run.moved(e) is not None]
    if not samples or not known:
        reason = run.no_step() if not samples else "no parameter of that name was seen at a step"
        return [Row(id=ROW, status="not_measured", text=TEXT, reason=reason)]
    still = [e for e in known if not run.moved(e)]
    groups = [[e for e in known if matching(e, [pattern])] for pattern in run.declared.expected]
    at_rest = [e for group in groups if group and not any(run.moved(e) for e in group) for e in group]
    wrong = [e for e in dict.fromkeys(e.serial for e in at_rest) if _no_excuse(run, run.by_serial(e), samples)]
    text = f"{len(known) - len(still)}/{len(meant)} parameters declared to be trained moved"
    text += f"; exactly still: {names(still)}" if still else ""
    return [
        Row(
            id=ROW,
            status="fail" if wrong else "evidence" if still else "pass",
            basis="declared" if wrong else None,
            text=text,
            values={"declared": len(meant), "still": [e.name or "" for e in still[:20]]},
            where=_sites(run, samples, [run.by_serial(serial) for serial in wrong]) if wrong else [],
            step=samples[0].step if wrong else None,
        )
    ]


def _no_excuse(run: Observation, entry: ParameterEntry, samples: list[StepSample]) -> bool:
    """Still to the end of a whole run, in steps that could have moved it.

    Its own rate may come up later, and a first gradient of exactly zero is what zero initialisation gives.
    """
    stepped = [s for s in samples if entry.serial in s.consumed]
    if not run.whole or _rates_rise_later(run, samples):
        return False
    if not entry.owners:
        return len(samples) >= 2
    with_gradient = sum(state == "nonzero" for state in entry.states)
    at_zero = all(rate == 0.0 for s in stepped for rate in s.lr)
    return not at_zero and ((len(stepped) >= 2 and with_gradient >= 2) or len(stepped) >= DENSE_STEPS)


def _rates_rise_later(run: Observation, samples: list[StepSample]) -> bool:
    """Whether any rate after the last sampled step exceeds all that sampled steps had: what moves then is not seen."""
    last = samples[-1].step
    sampled = max((rate for s in samples for rate in s.lr), default=0.0)
    return any(rate > sampled for step, rates in run.tape.rates if step > last for rate in rates)


def _sites(run: Observation, samples: list[StepSample], wrong: list[ParameterEntry]) -> list[Site]:
    """The optimizer that should move it, and where it steps."""
    owners = [run.optimizers[serial].built for entry in wrong[:3] for serial in entry.owners]
    sites = [*owners, *(o.built for o in run.optimizers if not owners), samples[0].site]
    return list({site.place: site for site in sites if site is not None}.values())[:3]
