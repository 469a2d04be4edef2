"""Entry point of the `weaklink` command: the parser, and the one place where errors become exit codes."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from typing import Annotated, NoReturn

import typer

from weaklink.agent.cli.said import Said, SaidAdvisor
from weaklink.collector.errors import UsageError, WeaklinkError

HELP = """Name the first broken link of a PyTorch run that runs but does not learn, and prove it by a controlled rerun.

Exit codes: 0 no divergence; 1 a divergence, a script that raised, a damaged record, a replay that differs; 2 wrong
usage, or nothing could be measured; 3 the advisor failed; 70 a bug of weaklink; 130 interrupted."""

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SUBJECT [-- ARGS]",
        help="A script, a factory (train.py:build, package.module:build) or an evidence file; after -- the script's "
        "own arguments.",
    ),
]
Module = Annotated[
    str | None, typer.Option("-m", "--module", metavar="NAME", help="Run a module, as `python -m NAME`.")
]
Python = Annotated[
    str | None, typer.Option("--python", metavar="PATH", help="Interpreter to run it in [default: weaklink's own].")
]
Deadline = Annotated[
    float, typer.Option(min=1, help="Seconds for each run; then it is stopped and what it showed is used.")
]
Task = Annotated[str | None, typer.Option(help="One sentence: what one input and one target mean.")]
UserCode = Annotated[
    list[str] | None,
    typer.Option("--user-code", metavar="GLOB", help="Library files that count as your own code. May be repeated."),
]
Rule = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FUNCTION",
        help="Function that gives the targets belonging to a batch of inputs; file.py:function too.",
    ),
]
Trainable = Annotated[
    list[str] | None,
    typer.Option("--trainable", metavar="GLOB", help="Names of parameters meant to be trained. May be repeated."),
]
Frozen = Annotated[
    list[str] | None,
    typer.Option("--frozen", metavar="GLOB", help="Names of parameters meant to rest. May be repeated."),
]
Classes = Annotated[
    int | None, typer.Option("--classes", min=1, metavar="N", help="How many classes the targets have.")
]
Config = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Declarations; the command line wins over them [default: weaklink.toml]."),
]
AdvisorName = Annotated[
    str | None,
    typer.Option("--advisor", help="playbook (built in, offline), openai, recorded or paste [default: playbook]."),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="Ask this language model; what is sent: `weaklink prompt`."),
]
BaseUrl = Annotated[
    str | None, typer.Option("--base-url", metavar="URL", help="Its Chat Completions endpoint [default: OpenAI's].")
]
ApiKeyEnv = Annotated[
    str | None,
    typer.Option(
        "--api-key-env", metavar="NAME", help="Variable with its key [default: WEAKLINK_API_KEY, or OpenAI's]."
    ),
]
Context = Annotated[
    int | None, typer.Option("--context", min=1, metavar="N", help="Tokens that it reads at once [default: 32768].")
]
NoSource = Annotated[bool, typer.Option("--no-source", help="Show it no source, no data file, and let it read none.")]
ReadRoot = Annotated[
    str | None, typer.Option("--read", metavar="ROOT", help="Folder that it may read in [default: the current one].")
]
Recording = Annotated[
    str | None, typer.Option("--recording", metavar="FILE", help="Hold a recorded conversation again, offline.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")]
Incident = Annotated[str, typer.Argument(metavar="INCIDENT", help="Folder of an incident, or its events.jsonl.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"weaklink {version('weaklink')}")
        raise typer.Exit


@app.callback(help=HELP)
def common(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Options of weaklink itself; the help text is the app's."""
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise SystemExit(2)


@app.command()
def diagnose(
    words: Words = None,
    module: Module = None,
    python: Python = None,
    advisor: AdvisorName = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    api_key_env: ApiKeyEnv = None,
    context: Context = None,
    no_source: NoSource = False,
    read: ReadRoot = None,
    recording: Recording = None,
    deadline: Deadline = 600.0,
    horizon: Annotated[
        int | None,
        typer.Option(
            min=2, help="Optimizer steps of each rerun [default: twice the step of the evidence, 50 at least]."
        ),
    ] = None,
    no_rerun: Annotated[
        bool, typer.Option("--no-rerun", help="Stop after freezing; run it later with `verify`.")
    ] = False,
    captured: Annotated[
        bool, typer.Option("--captured", help="SUBJECT is an incident: take the step again that it captured.")
    ] = False,
    no_capture: Annotated[
        bool, typer.Option("--no-capture", help="Keep no batch and no state of a step that turns non-finite.")
    ] = False,
    capture_limit: Annotated[
        int, typer.Option(min=1, metavar="MIB", help="Keep such a step only up to this size.")
    ] = 256,
    incidents: Annotated[str, typer.Option(metavar="DIR", help="Folder for incident records.")] = "incidents",
    task: Task = None,
    user_code: UserCode = None,
    rule: Rule = None,
    trainable: Trainable = None,
    frozen: Frozen = None,
    classes: Classes = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Find the first broken link of a run, and prove one cause with one controlled experiment.

    The script is run in a scratch copy of the current folder, unmodified; nothing is written beside your files except
    the incident record.
    """
    if captured:
        from weaklink.agent.cli.commands import captured as again

        again.run(words or [], python, deadline, json)
    from weaklink.agent.cli.commands import diagnose as command

    command.run(
        words or [],
        module,
        python,
        SaidAdvisor(advisor, model, base_url, api_key_env, context, not no_source, read, recording),
        deadline,
        horizon,
        not no_rerun,
        0 if no_capture else capture_limit * 2**20,
        incidents,
        _said(task, rule, user_code, trainable, frozen, classes, config),
        json,
    )


@app.command()
def observe(
    words: Words = None,
    module: Module = None,
    python: Python = None,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="Where to write the evidence.")
    ] = "evidence.json",
    deadline: Annotated[
        float | None, typer.Option(min=1, help="Seconds after which the run is stopped [default: none].")
    ] = None,
    task: Task = None,
    user_code: UserCode = None,
    rule: Rule = None,
    trainable: Trainable = None,
    frozen: Frozen = None,
    classes: Classes = None,
    config: Config = None,
    max_parameters: Annotated[
        int, typer.Option(min=1, help="Parameters with a record of their own; those that diverge come first.")
    ] = 2000,
    json: Json = False,
) -> None:
    """Run a script as it is, in place, and write the evidence file beside it.

    Its output, its exit code and every number it prints are what they are without weaklink. Under a launcher of several
    processes (`torchrun --no-python weaklink observe train.py`) each rank writes a file into a folder.
    """
    from weaklink.agent.cli.commands import observe as command

    said = _said(task, rule, user_code, trainable, frozen, classes, config)
    command.run(words or [], module, python, out, deadline, said, max_parameters, json)


@app.command()
def ledger(
    words: Words = None,
    module: Module = None,
    python: Python = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE", help="Keep the evidence in this file [default: none].")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for a suspicion too.")] = False,
    seed_offset: Annotated[
        int, typer.Option(min=0, metavar="K", help="Added to every seed of the script's global random streams.")
    ] = 0,
    deadline: Deadline = 600.0,
    task: Task = None,
    user_code: UserCode = None,
    rule: Rule = None,
    trainable: Trainable = None,
    frozen: Frozen = None,
    classes: Classes = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show the learning chain alone: one run in a scratch copy, no mechanism, no experiment, no record.

    Exits with 1 where a row fails. A suspicion accuses nobody, and no experiment settles it here.
    """
    from weaklink.agent.cli.commands import ledger as command

    said = _said(task, rule, user_code, trainable, frozen, classes, config)
    command.run(words or [], module, python, out, strict, seed_offset, deadline, said, json)


@app.command()
def replay(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME ...]", help="Replays, by name or by folder; none lists them.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every replay there is.")] = False,
    inside: Annotated[str, typer.Option("--in", metavar="DIR", help="Folder of the replays.")] = "replays",
    store: Annotated[
        bool, typer.Option("--write", help="Store the receipt of this run instead of comparing with it.")
    ] = False,
    python: Python = None,
    deadline: Deadline = 600.0,
    json: Json = False,
) -> None:
    """Diagnose stored runs again, offline, and name everything that is not as their receipts have it."""
    from weaklink.agent.cli.commands import replay as command

    command.run(names or [], every, inside, store, python, deadline, json)


@app.command()
def verify(
    incident: Incident,
    inside: Annotated[
        str | None, typer.Option("--in", metavar="DIR", help="Folder to run in [default: the recorded one].")
    ] = None,
    python: Python = None,
    deadline: Deadline = 600.0,
    json: Json = False,
) -> None:
    """Run the frozen experiment of an incident that was left without its reruns."""
    from weaklink.agent.cli.commands import verify as command

    command.run(incident, inside, python, deadline, json)


@app.command()
def drill(
    words: Words = None,
    module: Module = None,
    python: Python = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Random starts, the first being the run as it is.")] = 3,
    deadline: Deadline = 600.0,
    task: Task = None,
    user_code: UserCode = None,
    rule: Rule = None,
    trainable: Trainable = None,
    frozen: Frozen = None,
    classes: Classes = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Name the branch of a run, take its first measurement, split its causes, and hold the first fix over seeds.

    Exits with 0 where a fix is established or the run learns, else with 1. It names no cause: `diagnose` does.
    """
    from weaklink.agent.cli.commands import drill as command

    said = _said(task, rule, user_code, trainable, frozen, classes, config)
    command.run(words or [], module, python, seeds, deadline, said, json)


@app.command()
def experiments(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME ...]", help="Experiments, by name; none lists them all.")
    ] = None,
    json: Json = False,
) -> None:
    """List the catalogue: what each experiment changes, what it cannot, its parameters, what it decides."""
    from weaklink.agent.cli.commands import experiments as command

    command.run(names or [], json)


@app.command(name="continue")
def continue_(
    incident: Incident,
    parameters: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE ...]", help="Parameters of --experiment.")
    ] = None,
    fact: Annotated[
        list[str] | None,
        typer.Option("--fact", metavar="TEXT", help="What you know of the intended system. May be repeated."),
    ] = None,
    facts: Annotated[
        str | None, typer.Option("--facts", metavar="FILE", help="Facts, one a line; in a .toml file the list `facts`.")
    ] = None,
    experiment: Annotated[
        str | None, typer.Option(metavar="NAME", help="The next experiment, one that `weaklink experiments` lists.")
    ] = None,
    amend: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only add a labelled correction, as `weaklink amend` does.")
    ] = None,
    inside: Annotated[
        str | None, typer.Option("--in", metavar="DIR", help="Folder to run in [default: the recorded one].")
    ] = None,
    python: Python = None,
    deadline: Deadline = 600.0,
    horizon: Annotated[
        int | None, typer.Option(min=2, help="Optimizer steps of each rerun [default: as in a diagnosis].")
    ] = None,
    no_rerun: Annotated[
        bool, typer.Option("--no-rerun", help="Stop after freezing; run it later with `verify`.")
    ] = False,
    advisor: AdvisorName = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    api_key_env: ApiKeyEnv = None,
    context: Context = None,
    no_source: NoSource = False,
    read: ReadRoot = None,
    recording: Recording = None,
    task: Task = None,
    user_code: UserCode = None,
    rule: Rule = None,
    trainable: Trainable = None,
    frozen: Frozen = None,
    classes: Classes = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Go on in the same incident with what you know: facts, declarations, or an experiment of your choice.

    Earlier predictions, failed attempts and facts stay in the record under their names; nothing is judged again.
    """
    if amend is not None:
        from weaklink.agent.cli.commands import amend as correction

        correction.run(incident, amend, None, json)
        return
    from weaklink.agent.cli.commands import continue_ as command

    said = _said(task, rule, user_code, trainable, frozen, classes, config)
    command.run(
        incident,
        parameters or [],
        fact or [],
        facts,
        experiment,
        inside,
        python,
        SaidAdvisor(advisor, model, base_url, api_key_env, context, not no_source, read, recording),
        deadline,
        horizon,
        not no_rerun,
        said,
        json,
    )


@app.command()
def amend(
    incident: Incident,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The correction.")],
    of: Annotated[
        int | None, typer.Option("--of", metavar="SEQ", help="The event that it corrects [default: the last one].")
    ] = None,
    json: Json = False,
) -> None:
    """Add a labelled correction to a record. Nothing that stands there is edited."""
    from weaklink.agent.cli.commands import amend as command

    command.run(incident, text, of, json)


@app.command()
def recover(
    incident: Incident,
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH]",
            help="The repaired script, or a folder in which the same command runs [default: the recorded folder, as it "
            "now is].",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=3, help="Random starts of each side; the first is the run as it is.")] = 3,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME:max|min",
            help="A number that the script prints after this name, and which way is better [default: [metric] of "
            "weaklink.toml].",
        ),
    ] = None,
    python: Python = None,
    deadline: Deadline = 600.0,
    json: Json = False,
) -> None:
    """Hold a repair against what was diagnosed: both run on several seeds, and the incident's own row decides.

    Exits with 0 where it recovered, with 1 where it did not or nothing could be said.
    """
    from weaklink.agent.cli.commands import recover as command

    command.run(incident, path, seeds, metric, python, deadline, json)


@app.command()
def show(incident: Incident, json: Json = False) -> None:
    """Show an incident: chain, mechanism, experiment, verdict."""
    from weaklink.agent.cli.commands import show as command

    command.run(incident, json)


@app.command()
def check(
    incident: Incident,
    head: Annotated[str | None, typer.Option(metavar="HEX", help="The head you kept: must be the record's.")] = None,
    json: Json = False,
) -> None:
    """Check an incident record line by line. Needs neither torch nor a network."""
    from weaklink.agent.cli.commands import check as command

    command.run(incident, head, json)


@app.command()
def export(
    incident: Incident,
    format: Annotated[str, typer.Option("--format", "-f", help="json, md, html, pytest or recording.")] = "html",
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE", help="File to write; `-` is stdout.")
    ] = None,
) -> None:
    """Write an incident as a JSON receipt, Markdown, one offline HTML file, a regression test, or its conversation."""
    from weaklink.agent.cli.commands import export as command

    command.run(incident, format, out)


@app.command()
def answer(
    incident: Incident,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The reply, prose and all; `-` is standard input.")],
    said_by: Annotated[
        str | None, typer.Option("--said-by", metavar="WHO", help="Who answered; kept as a label that nothing checks.")
    ] = None,
    no_rerun: Annotated[
        bool, typer.Option("--no-rerun", help="Stop after freezing; run it later with `verify`.")
    ] = False,
    inside: Annotated[
        str | None, typer.Option("--in", metavar="DIR", help="Folder to run in [default: the recorded one].")
    ] = None,
    python: Python = None,
    deadline: Deadline = 600.0,
    json: Json = False,
) -> None:
    """Hold an answer to `weaklink prompt` to the contract, and let the rerun decide.

    An answer that breaks a rule ends with 3 and names every rule it broke; the incident can be answered again.
    """
    from weaklink.agent.cli.commands import answer as command

    command.run(incident, file, inside, python, said_by, deadline, not no_rerun, json)


@app.command()
def mcp(
    incidents: Annotated[str, typer.Option(metavar="DIR", help="Folder of the incidents to serve.")] = "incidents",
    inside: Annotated[
        str, typer.Option("--in", metavar="DIR", help="Folder in which frozen experiments are rerun.")
    ] = ".",
    deadline: Deadline = 600.0,
) -> None:
    """Serve the incidents of a folder to a coding agent, over standard input and output (Model Context Protocol).

    The agent reads, proposes under the contract, and has what is frozen rerun; it names no script and runs no code.
    """
    from weaklink.agent.cli.commands import mcp_ as command

    command.run(incidents, inside, deadline)


@app.command()
def prompt(
    incident: Annotated[
        str | None, typer.Argument(metavar="[INCIDENT]", help="Folder of an incident, or its events.jsonl.")
    ] = None,
    context: Context = None,
    no_source: NoSource = False,
    read: ReadRoot = None,
    inside: Annotated[
        str | None, typer.Option("--in", metavar="DIR", help="Folder of the script [default: the recorded one].")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE", help="Write it into this file [default: stdout].")
    ] = None,
    sent: Annotated[bool, typer.Option("--sent", help="Show what a model was really sent and said instead.")] = False,
    blank: Annotated[
        bool, typer.Option("--blank", help="Without an incident: a form to fill in, and a collector to paste.")
    ] = False,
    json: Json = False,
) -> None:
    """Print what a language model would be shown of an incident, as one text for any chat window. Sends nothing."""
    from weaklink.agent.cli.commands import prompt as command

    command.run(incident, context, not no_source, read, inside, out, sent, blank, json)


def _said(
    task: str | None,
    rule: str | None,
    user_code: list[str] | None,
    trainable: list[str] | None,
    frozen: list[str] | None,
    classes: int | None,
    config: str | None,
) -> Said:
    return Said(task, rule, tuple(user_code or ()), tuple(trainable or ()), tuple(frozen or ()), classes, config)


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; every error becomes its exit code, and with `--json` one object."""
    _end_as_interrupted()
    wants_json = "--json" in arguments[: arguments.index("--")] if "--" in arguments else "--json" in arguments
    try:
        result = typer.main.get_command(app).main(arguments, prog_name="weaklink", standalone_mode=False)
        # Commands leave by SystemExit: a 130 that is returned is Ctrl-C, which typer swallowed without a word.
        return _interrupted(wants_json) if result == 130 else result if isinstance(result, int) else 0
    except WeaklinkError as error:
        return _report(error, wants_json)
    except KeyboardInterrupt:
        return _interrupted(wants_json)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 2
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # older typers raise an Abort of it
            return _interrupted(wants_json)
        if isinstance(error, _click_exception()):
            return _report(_usage(error), wants_json)
        return _bug(error, wants_json)


def _end_as_interrupted() -> None:
    """SIGTERM and SIGHUP end as Ctrl-C does: the run is told, what it wrote is undone, the record is closed."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and threading.current_thread() is threading.main_thread():
            signal.signal(getattr(signal, name), interrupt)


class _Interrupted(WeaklinkError):
    exit_code = 130


class _Bug(WeaklinkError):
    exit_code = 70


def _click_exception() -> type[Exception]:
    # typer carries its own copy of click since 0.20 and a foreign one before: the class is found, not imported.
    return next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def _usage(error: Exception) -> WeaklinkError:
    message = getattr(error, "format_message", lambda: str(error))()
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "weaklink"
    hint = f"see `{path} --help`; a script's own options stand after `--`."
    return UsageError(message, hint=hint)


def _interrupted(wants_json: bool) -> int:
    return _report(_Interrupted("Interrupted.", hint="what had been recorded, if anything, is kept."), wants_json)


def _report(error: WeaklinkError, wants_json: bool) -> int:
    from weaklink.collector.table.text import printable

    if wants_json:
        from weaklink.agent.cli.output import print_json
        from weaklink.agent.reporters.json_report import error_json

        with contextlib.suppress(WeaklinkError):  # standard output itself may be what failed
            print_json(error_json(error))
    lines = [f"weaklink: {printable(error.message, 1000)}"]
    if error.about:
        lines.append(f"  about: {printable(error.about, 500)}")
    if error.hint:
        lines.append(f"  next:  {printable(error.hint, 500)}")
    print("\n".join(lines), file=sys.stderr)
    return error.exit_code


def _bug(error: Exception, wants_json: bool) -> int:
    import traceback

    traceback.print_exception(error)
    about = f"{type(error).__name__}: {error}"
    hint = "please report it with the lines above and the command (see CONTRIBUTING.md); your files are as they were."
    return _report(_Bug("This is a bug of weaklink, not of your script.", about=about, hint=hint), wants_json)
