"""OWNERSHIP: does an optimizer hold those exact objects?"""

from __future__ import annotations

from weaklink.collector.evidence import Row, Site
from weaklink.collector.rows.changes import thaw_sites, thawed_and_left_out
from weaklink.collector.rows.left_out import excluding_settings
from weaklink.collector.rows.observation import Observation, names
from weaklink.collector.watching.optimizers import OptimizerEntry
from weaklink.collector.watching.parameters import ParameterEntry
from weaklink.collector.watching.returns import ReturnsRecord


def rows(run: Observation) -> list[Row]:
    """Rows by object identity, over the union of all optimizers, in both directions."""
    if not run.optimizers:
        reason = "no torch optimizer was built"
        return [
            Row(id=f"OWNERSHIP/{label}", status="not_measured", text=text, reason=reason)
            for label, text in (
                ("groups", "parameter groups"),
                ("owned", "expected parameters in an optimizer"),
                ("stale", "tensors in an optimizer that no model uses"),
                ("twice", "tensors held twice"),
                ("unregistered", "learning tensors that no model owns"),
            )
        ]
    return [_groups(run), _owned(run), _stale(run), _twice(run), _unregistered(run)]


def _groups(run: Observation) -> Row:
    parts = [f"{o.class_name}: {'; '.join(o.groups)}" for o in run.optimizers[:3]]
    held = len({serial for o in run.optimizers for serial in o.held})
    more = f" and {len(run.optimizers) - 3} more optimizers" if len(run.optimizers) > 3 else ""
    return Row(
        id="OWNERSHIP/groups",
        status="evidence",
        text=" | ".join(parts) + more,
        values={"optimizers": len(run.optimizers), "held": held},
    )


def _owned(run: Observation) -> Row:
    learning = run.learning()
    if not learning:
        return Row(
            id="OWNERSHIP/owned",
            status="not_measured",
            text="expected parameters in an optimizer",
            reason="no trainable parameter was reached by a loss",
        )
    missing = run.unowned()
    proven = missing_by_accident(run)
    owned = sum(bool(e.owners) for e in learning)
    text = f"{owned}/{len(learning)} expected parameters in an optimizer"
    if missing:
        text += f"; in none: {names(missing)}"
    # Declared to be trained, and in no optimizer: whatever the reason, that contradicts the declaration.
    declared = bool(missing and run.declared.expected and not proven)
    # Where the script hands gradients over by itself, what a loss reaches are copies that no optimizer need hold.
    # A whole model that only ever ran in eval mode and that no optimizer knows is held against, not trained.
    resting = all(_rests(run, entry) for entry in missing) or _are_loaded_features(run, missing)
    asked = "evidence" if run.trains_by_hand() or resting else "suspected"
    status = "pass" if not missing else "fail" if proven or declared else asked
    return Row(
        id="OWNERSHIP/owned",
        status=status,  # type: ignore[arg-type]
        basis=None if status != "fail" else "exact" if proven else "declared",
        text=text,
        values={"owned": owned, "expected": len(learning), "missing": [e.name or "" for e in missing[:50]]},
        where=_sites(run, proven or missing),
        step=next((w.step for w in run.tape.windows if any(e.serial in w.live for e in missing)), None),
    )


def _are_loaded_features(run: Observation, missing: list[ParameterEntry]) -> bool:
    """Whether a state was loaded before the first step, and whole parts of the model were left out, all of them made
    before anything that is held: features, with a head trained on them, and nobody froze what rests.
    """
    loaded = any(moments and moments[0].loads for moments in run.record(ReturnsRecord).moments.values())
    held = [entry for entry in run.learning() if entry.owners]
    if not loaded or not missing or not held:
        return False
    first = min((entry.order for entry in held if entry.order is not None), default=0)
    earlier = all(entry.order is not None and entry.order < first for entry in missing)
    return earlier and not {_part(entry) for entry in missing} & {_part(entry) for entry in held}


def _part(entry: ParameterEntry) -> tuple[int | None, str]:
    """The model, and its part right below it."""
    path = min((path for path, _ in entry.places), default=entry.name or "")
    return entry.root, path.partition(".")[0]


def _rests(run: Observation, entry: ParameterEntry) -> bool:
    """Whether its whole model was in eval mode at each sampled call, and is in no optimizer."""
    modes = {call.training for window in run.tape.windows for call in window.forwards if call.root == entry.root}
    return modes == {False} and entry.root not in run.trained_roots


def missing_by_accident(run: Observation) -> list[ParameterEntry]:
    """Unowned learning parameters whose absence from every optimizer is beyond doubt no intent."""
    return [entry for entry in run.unowned() if _proven(run, entry)]


def _proven(run: Observation, entry: ParameterEntry) -> bool:
    """Missing by accident beyond doubt: it took a held tensor's place, it came after the optimizer of its own model, it
    was made trainable in the middle of the training, or the optimizers hold nothing that learns.

    A parameter that existed when the optimizer was built may have been left out on purpose (only a head is trained, a
    loss network is not): that is suspected at most.
    """
    if run.namesakes(entry) or run.trains_nothing() or thawed_and_left_out(run, entry):
        return True
    after = [o for o in run.optimizers if entry.order is not None and o.order < entry.order]
    return bool(after) and len(after) == len(run.optimizers) and entry.root in run.trained_roots


def _sites(run: Observation, missing: list[ParameterEntry]) -> list[Site]:
    """Most likely first: settings that leave out these and no others, or the lines that froze and thawed them, the
    optimizer that was built too early, then where the missing parameters were made.
    """
    found: list[Site] = [*excluding_settings(run, missing)[:1], *thaw_sites(run, missing)]
    for entry in missing[:6]:
        builder = _builder(run, entry)
        made_by = _after(entry.created_by, entry, builder)
        made = _after(entry.created, entry, builder)
        found += [site for site in (builder.built if builder else None, made_by, made) if site is not None]
    if not any(entry.created for entry in missing):
        # Made where no registration shows it (a copy, a load): at least where the model is called.
        found += [f.site for w in run.tape.windows for f in w.forwards if f.site][:1]
    unique: dict[tuple[str, int | None], Site] = {}
    for site in found:
        unique.setdefault((site.file, site.line), site)
    return list(unique.values())[:6]


def _builder(run: Observation, entry: ParameterEntry) -> OptimizerEntry | None:
    """The optimizer that should hold it: the one with its replaced namesake, else the last one of the same model."""
    serials = {owner for held in run.namesakes(entry) for owner in held.owners}
    same_model = [o for o in run.optimizers if any(run.by_serial(held).root == entry.root for held in o.held)]
    named = [o for o in run.optimizers if o.serial in serials]
    return next(iter([*named, *reversed(same_model), *run.optimizers]), None)


def _after(site: Site | None, entry: ParameterEntry, builder: OptimizerEntry | None) -> Site | None:
    if site is None:
        return None
    what = f"{entry.name} created"
    if builder is not None and builder.built is not None and entry.order is not None and entry.order > builder.order:
        what += f", after the optimizer at {builder.built.file}:{builder.built.line}"
    return Site(file=site.file, line=site.line, what=what)


def _stale(run: Observation) -> Row:
    held = {serial for o in run.optimizers for serial in o.held}
    stale = [e for e in run.parameters if e.serial in held and not e.in_model and e.is_parameter]
    missing = run.unowned()
    namesakes = {held.serial for m in missing for held in run.namesakes(m)}
    replaced = [e for e in stale if e.serial in namesakes]
    text = f"{len(stale)} of {len(held)} tensors in the optimizers are in no model"
    if replaced:
        text += f"; {len(replaced)} of them were replaced"
    void = bool(stale and missing) and run.trains_nothing()
    if void and not replaced:
        text += "; they hold nothing that a loss reaches"
    return Row(
        id="OWNERSHIP/stale",
        status="fail" if replaced or void else "evidence" if stale else "pass",
        basis="exact" if replaced or void else None,
        text=text,
        values={"stale": len(stale), "held": len(held), "replaced": len(replaced)},
        where=_sites(run, missing)[:2] if replaced or void else [],
        step=1 if replaced or void else None,
    )


def _twice(run: Observation) -> Row:
    twice = [e for e in run.parameters if len(e.owners) > 1]
    return Row(
        id="OWNERSHIP/twice",
        # A new optimizer over the same model for a second stage is common: only counted.
        status="evidence" if twice else "pass",
        text=f"{len(twice)} tensors were held by more than one optimizer",
        values={"twice": len(twice)},
    )


def _lasts(run: Observation, entry: ParameterEntry) -> bool:
    """Whether it is one tensor throughout: an initial state or an attack made anew at each step is not."""
    reaching = [any(entry.serial in b.graph.leaves for b in w.backwards if b.graph) for w in run.tape.windows]
    walked = sum(any(b.graph for b in w.backwards) for w in run.tape.windows)
    return sum(reaching) > 1 or (walked == 1 and entry.ref() is not None)


def _unregistered(run: Observation) -> Row:
    reached = {leaf for b in run.backwards if b.graph for leaf in b.graph.leaves}
    if not any(b.graph for b in run.backwards):
        return Row(
            id="OWNERSHIP/unregistered",
            status="not_measured",
            text="learning tensors that no model owns",
            reason="no graph was walked",
        )
    # Beside the layers that were called, in the same model object: registered, and perhaps left out on purpose.
    models = {model for e in run.parameters if e.ever_in_model for _, model in e.places}
    loose = [
        e
        for e in run.parameters
        if e.serial in reached and e.is_parameter and not e.ever_in_model and not e.owners and e.requires_grad
        if not models & {model for _, model in e.places} and e.serial not in run.loose_moved
    ]
    anew = [e for e in loose if not _lasts(run, e) and e.created is not None]
    loose = [e for e in loose if _lasts(run, e)]
    found = loose or anew
    text = "all parameters that the loss reaches are registered or held"
    if found:
        text = f"{len(found)} parameters that the loss reaches are registered in no model and held by no optimizer"
        text += "" if loose else ": layers made anew at every call"
    return Row(
        id="OWNERSHIP/unregistered",
        # A layer made at every call may be meant to be random.
        status="fail" if loose else "suspected" if anew else "pass",
        basis="exact" if loose else None,
        text=text,
        values={"unregistered": len(found)},
        where=[e.created for e in found[:3] if e.created],
        step=1 if found else None,
    )
