"""CAPABILITY: could this model, as it is configured, fit anything at all?"""

from __future__ import annotations

from typing import Any

from weaklink.collector.evidence import Row, Site
from weaklink.collector.looking.places import Place, sites
from weaklink.collector.rows.evaluated_model import configuration, settings_with
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.forwards import ForwardsRecord


def rows(run: Observation) -> list[Row]:
    """Rows from fits of one pinned batch, in copies of the run's process."""
    look = run.look("fits")
    if look.values is None and run.record(ForwardsRecord).learned:
        text = "the run itself fits its data better than any constant output"
        return [Row(id=f"CAPABILITY/{label}", status="pass", text=text) for label in ("fit", "signal")]
    if look.values is None:
        reason = run.examined.why_not("CAPABILITY", look.problem or "needs a run of its own")
        text = "whether one pinned batch can be fitted as the run is configured"
        return [Row(id="CAPABILITY/fit", status="not_measured", text=text, reason=reason)]
    return [_fit(run, look.values), _signal(run, look.values)]


def _fit(run: Observation, values: dict[str, Any]) -> Row:
    fits = values["fits"]
    text = "; ".join(f"{name}: {_shown(fit)}" for name, fit in fits.items())
    text = f"one pinned batch, {values['steps']} steps, {values['constant']:.4f} with a constant output; {text}"
    numbers = {"constant": values["constant"], "dropout": values["dropout"], "decay": values["decay"]}
    if fits["as it is"]["below"] is not None:
        return Row(id="CAPABILITY/fit", status="pass", text=text, values=numbers)
    for name in ("without dropout", "without weight decay"):
        if _reverses(run, fits.get(name)):
            return Row(
                id="CAPABILITY/fit",
                status="fail",
                basis="controlled",
                text=f"the batch is fitted only {name}: {text}",
                values={**numbers, "cure": name},
                where=_sites(run, values["dropping"], *_regularizer(name, values)),
            )
    return Row(id="CAPABILITY/fit", status="evidence", text=text, values=numbers)


def _signal(run: Observation, values: dict[str, Any]) -> Row:
    signal = values["signal"]
    if not signal:
        text, reason = "how much the layers tell examples apart", "no layer with weights was called"
        return Row(id="CAPABILITY/signal", status="not_measured", text=text, reason=reason)
    shown = ", ".join(f"{share:.2g}" for share in (signal if len(signal) <= 8 else [*signal[:3], *signal[-4:]]))
    text = f"spread over the examples relative to size, layer by layer: {shown}"
    numbers = {"first": signal[0], "last": signal[-1], "layers": len(signal)}
    fits = values["fits"]
    cured_otherwise = any(_reverses(run, fits.get(name)) for name in ("without dropout", "without weight decay"))
    fades = len(signal) > 2 and signal[-1] < signal[0]
    if fits["as it is"]["below"] is None and fades and not cured_otherwise and _reverses(run, fits.get("rescaled")):
        return Row(
            id="CAPABILITY/signal",
            status="fail",
            basis="controlled",
            text=f"{text}; a pinned batch is not fitted in {values['steps']} steps, and is in "
            f"{fits['rescaled']['below']} once each layer's weights are rescaled to pass the differences on",
            values=numbers,
            where=_sites(run, values["faintest"]),
        )
    fitted = fits["as it is"]["below"] is not None
    return Row(id="CAPABILITY/signal", status="pass" if fitted else "evidence", text=text, values=numbers)


def _reverses(run: Observation, fit: dict[str, Any] | None) -> bool:
    """Whether the changed fit did what the run never did although it had the steps: better than a constant output."""
    if fit is None or fit["below"] is None:
        return False
    record = run.record(ForwardsRecord)
    return run.tape.steps >= fit["below"] and len(record.losses) > 2 and not record.learned


def _regularizer(cure: str, values: dict[str, Any]) -> tuple[str, float]:
    """What settings call it, and its strength."""
    return ("drop", values["dropout"]) if cure == "without dropout" else ("decay", values["decay"])


def _sites(run: Observation, places: list[Place], word: str = "", value: float | None = None) -> list[Site]:
    called = list(run.record(ForwardsRecord).call_sites.values())[:1]
    return (settings_with(run, word, value) + sites(places) + called + configuration(run))[:3]


def _shown(fit: dict[str, Any]) -> str:
    last = "not finite" if fit["last"] is None else f"{fit['last']:.4f}"
    return f"{fit['first']:.4f} -> {last}"
