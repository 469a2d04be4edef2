"""What the evidence is worth to a language model.

    python benchmarks/ablation --model NAME [--base-url URL] [--arms source,evidence,both,experiment] [--sample N]
                               [--cases PATTERN,PATTERN] [--context N] [--answers DIR] [--prompts | --offline]

The same cases in four arms: source only, evidence only, both, both and the experiment. Answers are kept: an interrupted
run goes on where it was. Without --model nothing is asked and nothing is run. See benchmarks/ablation/README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from ablation.asking import Asker  # noqa: E402
from ablation.kept import Shelf  # noqa: E402
from ablation.observed import ObservationError, Observed, observe  # noqa: E402
from ablation.prompts import ARMS, ASKED, Arm, as_one_text, prompt  # noqa: E402
from ablation.scoring import Result  # noqa: E402
from ablation.subjects import Subject, read_subjects, sample  # noqa: E402
from ablation.table import markdown  # noqa: E402
from weaklink.agent.conversation.messages import Speaker  # noqa: E402
from weaklink.collector.errors import UsageError, WeaklinkError  # noqa: E402

IN_A_ROW = 3  # replies that fail one after the other: the endpoint is gone
MODEL_ERROR = 3  # the exit code of an advisor that fails


class EndpointGoneError(WeaklinkError):
    """The endpoint has stopped to reply."""

    exit_code = MODEL_ERROR


def main(words: list[str] | None = None) -> int:
    """Ask, score, print the table on stdout. 0; 2 for wrong usage; 3 where the endpoint gave up."""
    options = _parser().parse_args(words)
    if not options.model and not options.prompts:
        _parser().print_help(sys.stderr)
        print("\nName a model: nothing was asked, and nothing was run.", file=sys.stderr)
        return 2
    try:
        return _run(options)
    except WeaklinkError as error:
        print(f"ablation: {error}", file=sys.stderr)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmarks/ablation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="", help="as the endpoint calls it; also the name of the answers' folder")
    parser.add_argument("--base-url", default="", help="of an OpenAI-compatible endpoint")
    parser.add_argument("--api-key-env", default="", help="variable that holds its key")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--cases", default="", help="patterns of names, such as scripts/* or *@fixed")
    parser.add_argument(
        "--sample", type=int, default=0, help="so many subjects, spread over boundaries and healthy ones"
    )
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--context", type=int, default=0, help="tokens that the model reads at once [default: 32768]")
    parser.add_argument("--prices", default="", metavar="IN,OUT", help="US dollars for a million tokens")
    parser.add_argument("--answers", type=Path, default=ROOT / "benchmarks" / "ablation" / "answers")
    parser.add_argument("--prompts", action="store_true", help="write the prompts for a chat window, and stop")
    parser.add_argument("--offline", action="store_true", help="ask nobody: score what is kept or pasted")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for one diagnosis")
    parser.add_argument("--weaklink", default=str(Path(sys.executable).with_name("weaklink")))
    parser.add_argument("--root", type=Path, default=ROOT / "tests" / "cases", help="folder of the cases")
    return parser


def _run(options: argparse.Namespace) -> int:
    from weaklink.agent.conversation.limits import DEFAULT_CONTEXT

    arms = _arms(options.arms)
    subjects = _subjects(options)
    context = options.context or DEFAULT_CONTEXT
    shelf = Shelf(options.answers, options.model or "pasted")
    silent = options.prompts or options.offline
    speaker = None if silent else _speaker(options)
    asker = Asker(speaker, _said(options), shelf, context, options.weaklink, options.timeout, _prices(options.prices))
    results: list[Result] = []
    unmeasured = 0
    for number, subject in enumerate(subjects, start=1):
        known = _observed(options, subject)
        if known is None:
            unmeasured += 1
            continue
        if options.prompts:
            for arm in [arm for arm in arms if arm in ASKED]:
                _say(shelf.write_prompt(arm, subject, as_one_text(prompt(subject, known, arm, context))))
            continue
        for arm in arms:
            result = asker.result(subject, known, arm)
            results.append(result)
            _say(f"[{number}/{len(subjects)}] {subject.name} {arm}: {_told(result)}")
            if len(results) >= IN_A_ROW and all(each.found == "no reply" for each in results[-IN_A_ROW:]):
                raise EndpointGoneError(
                    f"{IN_A_ROW} answers in a row failed: {result.note}",
                    hint="what was answered is kept: the same command goes on from here.",
                )
    if not options.prompts:
        expected = {subject.name: "NONE" if subject.healthy else subject.bucket for subject in subjects}
        print(_heading(options, context, len(subjects), unmeasured, asker.speaker))
        print(markdown(results, expected, arms))
    return 0


def _prices(said: str) -> tuple[float, float] | None:
    if not said:
        return None
    try:
        prompt_price, answer_price = map(float, said.split(","))
    except ValueError:
        raise UsageError(
            "These are no two prices.", about=f"--prices {said}", hint="such as `--prices 0.25,2`."
        ) from None
    return prompt_price, answer_price


def _arms(said: str) -> list[Arm]:
    wanted = [arm.strip() for arm in said.split(",") if arm.strip()]
    if not wanted or set(wanted) - set(ARMS):
        raise UsageError(f"There is no arm of that name: {said!r}.", about="--arms", hint=f"arms: {', '.join(ARMS)}.")
    return [arm for arm in ARMS if arm in wanted]


def _subjects(options: argparse.Namespace) -> list[Subject]:
    found = read_subjects(options.root, [pattern.strip() for pattern in options.cases.split(",") if pattern.strip()])
    for subject in found:
        if subject.lacks:
            _say(f"left out: {subject.name} needs {', '.join(subject.lacks)}")
    runnable = [subject for subject in found if not subject.lacks]
    if not runnable:
        raise UsageError(
            "No case has such a name.", about=f"--cases {options.cases}", hint="try `--cases 'scripts/*'`."
        )
    return sample(runnable, options.sample, options.seed) if options.sample else runnable


def _speaker(options: argparse.Namespace) -> Speaker:
    """The endpoint, chosen as `weaklink diagnose --model` chooses it."""
    from weaklink.agent.advisors.asking import Asking
    from weaklink.agent.advisors.choosing import choose
    from weaklink.agent.cli.said import SaidAdvisor
    from weaklink.agent.progress import Progress
    from weaklink.agent.settings import ModelSettings

    said = SaidAdvisor(
        model=options.model,
        base_url=options.base_url or None,
        api_key_env=options.api_key_env or None,
        context=options.context or None,
    )
    asking = choose(said, ModelSettings(), os.environ, Progress())
    assert isinstance(asking, Asking), "a model was named"
    return asking.speaker


def _said(options: argparse.Namespace) -> list[str]:
    named = {"--model": options.model, "--base-url": options.base_url, "--api-key-env": options.api_key_env}
    named["--context"] = str(options.context or "")
    return [word for name, value in named.items() if value for word in (name, value)]


def _observed(options: argparse.Namespace, subject: Subject) -> Observed | None:
    try:
        return observe(options.weaklink, options.root, subject, options.answers / ".observed", options.timeout)
    except ObservationError as error:
        _say(f"left out: {subject.name}: {error}")
        return None


def _told(result: Result) -> str:
    if result.marks is None:
        return f"{result.found} {result.note}".strip()
    seconds = "" if result.seconds is None else f" ({result.seconds:.1f} s)"
    return f"{result.marks.said or 'unreadable'}, {'right' if result.marks.right else 'wrong'}{seconds}"


def _heading(options: argparse.Namespace, context: int, count: int, unmeasured: int, speaker: Speaker | None) -> str:
    asked = "asked or kept" if speaker is not None else "kept or pasted, nobody was asked"
    chosen = f", sample {options.sample} of seed {options.seed}" if options.sample else ""
    left_out = f", {unmeasured} without evidence" if unmeasured else ""
    return f"Model `{options.model}`, context {context}, {count} subjects{chosen}{left_out}; answers {asked}.\n"


def _say(text: object) -> None:
    from weaklink.collector.table.text import printable

    print(printable(str(text), 1000), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
