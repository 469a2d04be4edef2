"""TASK: does the input hold the answer?"""

from __future__ import annotations

from weaklink.collector.evidence import Row, Site, Value
from weaklink.collector.looking.places import sites
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.forwards import ForwardsRecord

ID = "TASK/leak"


def rows(run: Observation) -> list[Row]:
    """Whether a model that predicts the next token is shown it."""
    look = run.look("order")
    text = "whether outputs depend on the token that they are to predict"
    if look.values is None:
        reason = run.examined.why_not(ID, look.problem or "needs a forward of its own")
        return [Row(id=ID, status="not_measured", text=text, reason=reason)]
    if not look.values["shifted"]:
        reason = "the targets are not the inputs moved by one position"
        return [Row(id=ID, status="not_measured", text=text, reason=reason)]
    changed, leaking = look.values["changed"], look.values["leaking"]
    numbers: dict[str, Value] = {"changed": list(changed), "leaking": list(leaking)}
    if not leaking:
        text = f"the token at {len(changed)} positions was changed, one at a time: no output before it moved"
        return [Row(id=ID, status="pass", text=text, values=numbers)]
    if look.values["by_summary"]:
        text = "outputs move with the tokens that they are to predict, by a summary of the whole sequence alone"
        return [Row(id=ID, status="evidence", text=text, values=numbers)]
    return [
        Row(
            id=ID,
            status="fail",
            basis="exact",
            text=f"the targets are the inputs moved by one position, and the model sees them: changing token "
            f"{leaking[0]} moves the output at {leaking[0] - 1}, whose target it is",
            values={**numbers, "both_ways": bool(look.values["both_ways"])},
            where=_where(run, bool(look.values["both_ways"]), sites(look.values["where"])),
            step=1,
        )
    ]


def _where(run: Observation, both_ways: bool, mixing: list[Site]) -> list[Site]:
    record = run.record(ForwardsRecord)
    called = list(record.call_sites.values())[:1]
    # A model that takes a mask and was given none: the call is what is missing it.
    return called + mixing if any(record.masks.values()) and not both_ways else mixing + called
