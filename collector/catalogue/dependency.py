"""Experiments on the graph between loss and parameters."""

from __future__ import annotations

from pydantic import Field

from weaklink.collector.catalogue.entry import FROM_BACKWARD, Entry
from weaklink.collector.evidence import Model


class SiteOfCall(Model):
    """The line of the call, as rows name it: `train.py:31`, the file relative to the run's folder."""

    site: str = Field(pattern=r"^.+:[1-9][0-9]*$", max_length=1000)


REATTACH = Entry(
    name="reattach",
    boundary="DEPENDENCY",
    changes="A call of `detach` or `detach_` on exactly that line of the user's code (site, such as train.py:31) "
    "answers its own input, so that the gradient passes.",
    cannot_change="Any value of the first forward: outputs and first loss stay bitwise equal.",
    not_applicable="That line calls no detach, what it detaches needs no gradient, or it stands in a compiled region.",
    parameters=SiteOfCall,
    can_move=FROM_BACKWARD,
    decides=frozenset({"graph_cut"}),
)

ENTRIES = (REATTACH,)
