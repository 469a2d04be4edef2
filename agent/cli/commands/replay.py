"""`weaklink replay`: stored runs diagnosed again and compared with their receipts."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from weaklink.agent.advisors.playbook import Playbook
from weaklink.agent.cli.commands.drill import drill_subject
from weaklink.agent.cli.commands.subjects import read_subject
from weaklink.agent.cli.output import print_json, width, write
from weaklink.agent.cli.said import Said
from weaklink.agent.drill.shapes import Drill
from weaklink.agent.errors import AdvisorError
from weaklink.agent.progress import Progress
from weaklink.agent.replays.compare import Comparison, compare, compare_drills, compare_stories
from weaklink.agent.replays.folder import Replay, find_replay, replays_in
from weaklink.agent.replays.receipt import Receipt, read_receipt, read_stored, receipt_of, write_receipt
from weaklink.agent.replays.story import tell_story
from weaklink.agent.replays.story_receipt import StoryReceipt
from weaklink.agent.reporters.text import plural
from weaklink.agent.session import Options, Session
from weaklink.agent.settings import read_settings
from weaklink.collector.errors import SubjectError, UsageError
from weaklink.collector.table.layout import wrap
from weaklink.collector.table.text import printable
from weaklink.collector.workers import this_python

REPLAY_SCHEMA = "weaklink.replay/1"
LIST_SCHEMA = "weaklink.replays/1"


def run(
    names: list[str], every: bool, inside: str, store: bool, python: str | None, deadline: float, json: bool
) -> None:
    """Compare replays with their receipts, store new receipts, or list what there is.

    Raises:
        WeaklinkError: There is no such replay or no receipt, or it cannot be run at all.
        SystemExit: 0 where every replay is equal (or was stored), 1 where one differs.
    """
    root, python = Path(inside), python or this_python()
    if names and every:
        raise UsageError("Name replays, or say --all, not both.", about=" ".join(names))
    if not names and not every:
        _list(replays_in(root), root, json)
        return
    replays = replays_in(root) if every else [find_replay(name, root) for name in names]
    if store:
        _store(replays, python, deadline, json)
        return
    receipts = [_stored(replay) for replay in replays]  # all of them before anything is run
    progress, compared = Progress(), []
    for replay, receipt in zip(replays, receipts, strict=True):
        progress.say(f"replay   {printable(replay.name, 80)}")
        try:
            found = _compared(receipt, run_again(replay, python, deadline, progress))
        except (SubjectError, AdvisorError) as error:
            found = Comparison(exact=False, differences=[f"the diagnosis failed: {error.message}"])
        compared.append((replay, found))
        if not json:
            write(_as_text(replay, found))
    differing = sum(not found.equal for _, found in compared)
    if json:
        print_json({"schema": REPLAY_SCHEMA, "replays": [_as_json(*pair) for pair in compared]})
    else:
        write(f"{plural(len(compared), 'replay')}, {differing or 'none'} {'differ' if differing > 1 else 'differs'}\n")
    raise SystemExit(1 if differing else 0)


AnyReceipt = Receipt | StoryReceipt | Drill


def _stored(replay: Replay) -> AnyReceipt:
    if replay.settings().drill is not None:
        return read_stored(replay.receipt, Drill)
    if replay.settings().story is not None:
        return read_stored(replay.receipt, StoryReceipt)
    return read_receipt(replay.receipt)


def _compared(stored: AnyReceipt, now: AnyReceipt) -> Comparison:
    if isinstance(stored, Drill):
        assert isinstance(now, Drill), "both come of the same settings"
        return compare_drills(stored, now)
    if isinstance(stored, StoryReceipt):
        assert isinstance(now, StoryReceipt), "both come of the same settings"
        return compare_stories(stored, now)
    assert isinstance(now, Receipt), "both come of the same settings"
    return compare(stored, now)


def run_again(replay: Replay, python: str, deadline: float, progress: Progress) -> AnyReceipt:
    """The diagnosis a user would get, offline, in the replay's own folder, so that every path is relative to it.

    Raises:
        WeaklinkError: It cannot be diagnosed, or nothing was measured.
        KeyboardInterrupt: The diagnosis was interrupted.
    """
    settings, folder = replay.settings(), replay.folder.resolve()
    if settings.drill is not None:
        subject = read_subject([settings.subject, *settings.arguments], None, folder)
        said = Said(rule=settings.rule)
        return drill_subject(subject, folder, python, settings.drill, deadline, said, progress, offline=True)
    declared = read_settings(Said(rule=settings.rule), folder)
    with tempfile.TemporaryDirectory(prefix="weaklink-") as incidents:
        options = Options(
            subject=read_subject([settings.subject, *settings.arguments], None, folder),
            folder=folder,
            python=python,
            incidents=Path(incidents),
            deadline=deadline,
            task=declared.task,
            user_code=declared.user_code,
            rule=declared.rule,
            intent=declared.intent,
            offline=True,
        )
        if settings.story is not None:
            known = read_settings(Said(rule=settings.rule, config=settings.story.config), folder)
            return tell_story(settings.story, options, replace(options, task=known.task, intent=known.intent), progress)
        finished = Session(options, Playbook(), progress).diagnose_script()
        if finished.exit_code == 130:
            raise KeyboardInterrupt
        return receipt_of(finished.incident)


def _list(replays: list[Replay], root: Path, json: bool) -> None:
    if json:
        found = [{"name": replay.name, "receipt": replay.receipt.exists()} for replay in replays]
        print_json({"schema": LIST_SCHEMA, "replays": found})
        return
    longest = max(len(replay.name) for replay in replays)
    for replay in replays:
        state = "" if replay.receipt.exists() else "no receipt yet: --write makes one"
        write(f"{printable(replay.name):{longest}}  {state}".rstrip() + "\n")
    write(f"{plural(len(replays), 'replay')} in {printable(str(root))}; run them with --all, or by name\n")


def _store(replays: list[Replay], python: str, deadline: float, json: bool) -> None:
    progress, written = Progress(), []
    for replay in replays:
        progress.say(f"replay   {printable(replay.name, 80)}")
        write_receipt(run_again(replay, python, deadline, progress), replay.receipt)
        written.append({"name": replay.name, "written": str(replay.receipt)})
        if not json:
            write(f"{printable(str(replay.receipt))}\n")
    if json:
        print_json({"schema": REPLAY_SCHEMA, "replays": written})


def _as_text(replay: Replay, found: Comparison) -> str:
    how = "bit for bit" if found.exact else "not bit for bit"
    lines = [f"{printable(replay.name)}: {f'equal, {how}' if found.equal else 'DIFFERS'}"]
    lines += [f"  {text}" for text in found.differences]
    lines += [line for text in found.skipped for line in _hanging(f"not compared: {text}")]
    return "\n".join(lines) + "\n"


def _hanging(text: str) -> list[str]:
    first, *rest = wrap(printable(text, 1000), width() - 4)
    return [f"  {first}", *(f"    {line}" for line in rest)]


def _as_json(replay: Replay, found: Comparison) -> dict[str, Any]:
    return {
        "name": replay.name,
        "equal": found.equal,
        "differences": found.differences,
        "skipped": found.skipped,
    }
