"""What to do next."""

from __future__ import annotations

import shlex

from weaklink.agent.reporters.blocks import Block, Command, Paragraph, Section
from weaklink.agent.reporters.reading import borne_out, effective_divergence, recovery_of, status_of
from weaklink.agent.reporters.view import IncidentView
from weaklink.collector.declared import Intent
from weaklink.collector.evidence import Subject

_UNSEEN = (
    "The loss does not show that the run learns, and nothing that was measured says why. What was not measured may: "
    "declare which targets belong to the inputs (--rule), or give the system as a factory (train.py:build), whose tiny "
    "batch, modes and pairs can be looked at. To read this again:"
)


def next_step(incident: IncidentView) -> Section:
    """What to do next, with the command for it; after a verdict also how to hand the record on."""
    folder = shlex.quote(str(incident.folder))
    return Section("Next", _step(incident, folder))


def diagnose_command(subject: Subject, rule: str | None = None, declared: Intent | None = None) -> str:
    """The command that diagnoses this subject again; for a process of the user's own the one for a factory of it."""
    if subject.kind == "process":
        return "weaklink diagnose train.py:build"
    return shlex.join(["weaklink", "diagnose", *subject_words(subject, rule, declared)])


def subject_words(subject: Subject, rule: str | None = None, declared: Intent | None = None) -> list[str]:
    """The subject on a command line of weaklink's, with what was declared and the subject's own arguments."""
    head = ["-m", subject.name] if subject.kind == "module" else [_as_path(subject.name)]
    options = [*([] if rule is None else ["--rule", rule]), *_options(declared or Intent())]
    return [*head, *options, *(["--", *subject.argv] if subject.argv else [])]


def _options(intent: Intent) -> list[str]:
    """What of it can be said on a command line; the rest stands in the file, which is read again."""
    trainable = [word for glob in intent.trainable for word in ("--trainable", glob)]
    frozen = [word for glob in intent.frozen for word in ("--frozen", glob)]
    classes = [] if intent.classes is None else ["--classes", str(intent.classes)]
    return [*trainable, *frozen, *classes]


def _as_path(name: str) -> str:
    """A file whose name begins with a dash would be read as an option."""
    return f"./{name}" if name.startswith("-") else name


def _step(incident: IncidentView, folder: str) -> tuple[Block, ...]:
    rule = incident.opened.options.get("rule")
    declared = Intent.model_validate(incident.opened.declared)
    again = Command(diagnose_command(incident.opened.subject, rule if isinstance(rule, str) else None, declared))
    proposal = incident.proposal
    evidence = incident.evidence
    if evidence is not None and evidence.outcome.raised is not None and effective_divergence(incident) is None:
        return (Paragraph("The exception comes first. With it mended, diagnose again:"), again)
    if evidence is not None and proposal is None and incident.beside is not None and not incident.answered:
        return (
            Paragraph("An answer is waited for. Print the prompt, give it to whom you like, and read the answer back:"),
            Command(f"weaklink prompt {folder}"),
            Command(f"weaklink answer {folder} FILE"),
        )
    if evidence is None or (proposal is None and not incident.answered):
        return (Paragraph("The diagnosis did not get to its end; run it again:"), again)
    asked = proposal is not None and (proposal.outcome == "ask_operator" or bool(proposal.question))
    untested = incident.frozen is not None and incident.verdict is None
    if asked and not untested and evidence.first_divergence is None:
        return (
            Paragraph("If it is meant, nothing is wrong here. If not, mend it and diagnose again:"),
            again,
            *_add_fact(folder),
        )
    if asked and not untested:
        return (
            Paragraph("If it is meant, nothing is wrong here. If not, mend it and test that, or diagnose again:"),
            Command(f"weaklink recover {folder} FIXED"),
            again,
            *_add_fact(folder),
        )
    if untested:
        return _untested(incident.opened.subject, folder)
    if recovery_of(incident) is not None:
        return _recovered(incident, folder)
    if borne_out(incident):
        return (*_repair(incident), Command(f"weaklink recover {folder} FIXED"), again, *_hand_on(folder))
    if effective_divergence(incident) is None and evidence.branch not in ("learning", "not_measured"):
        return (Paragraph(_UNSEEN), _show(folder))
    if effective_divergence(incident) is None:
        return (Paragraph("Nothing here asks for a repair. To read this again:"), _show(folder))
    return (
        Paragraph("The cause is open. To go on with what you know, or with an experiment of your choice:"),
        Command(f"weaklink continue {folder} --experiment NAME"),
        *_hand_on(folder),
    )


def _untested(subject: Subject, folder: str) -> tuple[Block, ...]:
    if subject.kind == "process":
        text = (
            "No rerun can test these predictions, because a process cannot be run again. A function that builds it can:"
        )
        return (Paragraph(text), Command(diagnose_command(subject)))
    return (Paragraph("The predictions are frozen and no rerun has tested them yet:"), _verify(folder))


def _recovered(incident: IncidentView, folder: str) -> tuple[Block, ...]:
    if status_of(incident).recovery == "recovered (bounded)":
        text = "To keep it so, a test that fails where the row diverges again:"
        return (Paragraph(text), Command(f"weaklink export {folder} --format pytest"), *_hand_on(folder))
    return (
        Paragraph("With another repair made, hold it against the same baseline:"),
        Command(f"weaklink recover {folder} FIXED"),
        *_hand_on(folder),
    )


def _add_fact(folder: str) -> tuple[Block, ...]:
    text = "What you know of it belongs into this record (also --trainable, --frozen, --rule, --experiment):"
    return (Paragraph(text), Command(f'weaklink continue {folder} --fact "..."'))


def _repair(incident: IncidentView) -> tuple[Block, ...]:
    repair = incident.proposal.repair if incident.proposal is not None else None
    if repair is None:
        return (Paragraph("No repair was proposed. With one made, hold it against this run, or diagnose again:"),)
    text = f"Repair proposed ({repair.kind.replace('_', ' ')}): {repair.text}"
    return (Paragraph(text), Paragraph("With the repair made, hold it against this run, or diagnose again:"))


def _hand_on(folder: str) -> tuple[Block, ...]:
    return (Paragraph("To hand the record on:"), Command(f"weaklink export {folder} --format html"))


def _verify(folder: str) -> Command:
    return Command(f"weaklink verify {folder}")


def _show(folder: str) -> Command:
    return Command(f"weaklink show {folder}")
