"""UPDATE/restored, EVALUATION/restored: whether weights that were put back, or loaded, are others than were there."""

from __future__ import annotations

from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.observation import Observation
from weaklink.collector.watching.restoring import Loaded, RestoringRecord


def rows(run: Observation) -> list[Row]:
    """One row for each kind of load that had no effect; none where every load had one."""
    record = run.record(RestoringRecord)
    found = [_onto_itself(run, loaded) for loaded in record.onto_itself[:1]]
    found = found or [_put_back(run, loaded) for loaded in record.put_back[:1]]
    return found + [_nothing(run, loaded) for loaded in record.nothing[:1]]


def _onto_itself(run: Observation, loaded: Loaded) -> Row:
    """The state's tensors are the parameters themselves, and steps were taken since: no other values are there."""
    steps = loaded.step - loaded.taken_step
    return Row(
        id=_row_id(run, loaded),
        status="fail",
        basis="exact",
        text=f"a state taken after step {loaded.taken_step} is loaded after step {loaded.step}: it is the parameters' "
        f"own memory, has followed all {steps} steps since, and is written onto itself",
        values={"taken": loaded.taken_step, "loaded": loaded.step, "tensors": loaded.tensors},
        where=_sites(loaded.taken, loaded.site),
        step=loaded.step or None,
    )


def _row_id(run: Observation, loaded: Loaded) -> str:
    """Weights that go on being trained were meant to be set back; those that do not, to be judged."""
    return f"{'UPDATE' if run.tape.backwards > loaded.backwards else 'EVALUATION'}/restored"


def _put_back(run: Observation, loaded: Loaded) -> Row:
    text = f"a state taken after step {loaded.taken_step} was loaded after step {loaded.step}: memory of its own"
    return Row(id=_row_id(run, loaded), status="pass", text=text)


def _nothing(run: Observation, loaded: Loaded) -> Row:
    """No name of the state is one of the model's. Only what is evaluated as it was made has nothing else to be."""
    text = f"none of {loaded.tensors} names in a loaded state is one of the model's {loaded.own}: nothing was loaded"
    held = any(entry.root == loaded.root and entry.owners for entry in run.parameters)
    untrained = loaded.root is not None and not held
    fails = loaded.evaluated and untrained and loaded.step > 0
    return Row(
        id="EVALUATION/restored",
        status="fail" if fails else "evidence",
        basis="exact" if fails else None,
        text=f"{text}, and the model is evaluated with the weights it was made with" if fails else text,
        values={"names": loaded.tensors, "own": loaded.own},
        where=_sites(loaded.site, loaded.taken) if fails else [],
        step=loaded.step or None,
    )


def _sites(*sites: Site | None) -> list[Site]:
    return [site for site in sites if site is not None]
