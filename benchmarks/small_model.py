"""What a small language model says of the replays, and what becomes of it: attempts, rules, tokens, verdicts.

    python benchmarks/small_model.py [REPLAY ...] [--server llama-server] [--write]

The model of `make test-model` behind one of its servers; with WEAKLINK_TEST_BASE_URL, WEAKLINK_TEST_MODEL and
WEAKLINK_TEST_API_KEY any other endpoint. The table counts; it grades nobody: whether an answer holds was decided by the
contract, and then by the rerun.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "model"))

from diagnoses import Diagnosed, accepted, diagnose, of_model  # noqa: E402
from servers import BUILD, CONTEXT, Server, built, given, llama_server, python_server  # noqa: E402

from weaklink.agent.record.bodies import Answered  # noqa: E402

RESULTS = ROOT / "benchmarks" / "RESULTS.md"
START, END = "<!-- small_model -->", "<!-- /small_model -->"
SECTION = """## A small model (SmolLM2-135M-Instruct Q4_1)

`make small-model` (add `--write` to its command to replace this table). A model of 135 million parameters is far too
small for this: the table shows what the contract and the rerun make of answers that are mostly wrong, not how well a
language model diagnoses."""
REPLAYS = (
    "stale_head",
    "detached_hidden",
    "softmax_before_loss",
    "lr_1e4",
    "dead_first_layer",
    "frozen_backbone",
    "random_labels",
    "healthy",
)


@contextlib.contextmanager
def serving(kind: str, log: Path) -> Iterator[Server]:
    """The server to ask."""
    named, where = given(), built()
    if named is not None:
        yield named
        return
    if where is None:
        sys.exit(f"there is no model server: {BUILD}")
    start = llama_server if kind == "llama-server" else python_server
    with start(where, log) as server:
        yield server


def rules(answer: Answered) -> list[str]:
    """Names of the rules that an answer broke; `answer` where it could not be read at all."""
    return sorted({violation.partition(":")[0] for violation in answer.violations})


def became(ran: Diagnosed) -> str:
    """What was decided, and on whose answer."""
    incident = ran.record
    proposal = accepted(incident)
    if incident.failed is not None and incident.failed.kind != "contract_not_met":
        return f"no answer: {incident.failed.problem}"
    whose = "the model's" if proposal is not None else "refused; the playbook's"
    if incident.verdict is None:
        outcome = incident.proposal.outcome if incident.proposal else "nothing"
        return f"{whose}: {outcome}"
    told = {each.id: each.status for each in incident.verdict.verdict.mechanisms}
    return f"{whose}: " + ", ".join(f"{name} {status}" for name, status in told.items())


def line(replay: str, ran: Diagnosed) -> str:
    """One diagnosis as a row of the table."""
    incident = ran.record
    answers, exchanged = of_model(incident), incident.exchanged
    attempts = ", ".join("accepted" if not each.violations else "refused" for each in answers) or "none"
    broken = "; ".join(", ".join(rules(each)) or "-" for each in answers) or "-"
    rungs = ", ".join(sorted({each.reply.rung for each in exchanged})) or "-"
    sent = total(each.reply.usage.prompt_tokens for each in exchanged)
    said = total(each.reply.usage.answer_tokens for each in exchanged)
    waited = sum(each.reply.seconds for each in exchanged)
    cells = [replay, attempts, broken, str(len(incident.looked)), rungs, f"{sent} / {said}"]
    return "| " + " | ".join([*cells, f"{waited:.0f} / {ran.seconds:.0f}", str(ran.code), became(ran)]) + " |"


def total(counts: Iterable[int | None]) -> str:
    """A sum of tokens; `-` where the endpoint counted none."""
    known = [count for count in counts if count is not None]
    return str(sum(known)) if known else "-"


def table(server: Server, rows: list[str], runs: list[Diagnosed]) -> str:
    """All of it as Markdown."""
    models = sorted({each.reply.model for ran in runs for each in ran.record.exchanged}) or [server.model]
    answers = [each for ran in runs for each in of_model(ran.record)]
    broken = collections.Counter(rule for each in answers for rule in rules(each))
    met = sum(not each.violations for each in answers)
    head = (
        f"`{', '.join(models)}` behind {server.kind}, context {CONTEXT} tokens, {len(runs)} replays, one diagnosis "
        f"each, Python {platform.python_version()}, {os.cpu_count()} cores, the server on one of them."
    )
    columns = "replay | attempts | rules broken, by attempt | looks | rung | tokens sent / answered"
    lines = [
        head,
        "",
        f"| {columns} | seconds waited / whole | exit code | what became of it |",
        "| " + " | ".join(["---"] * 9) + " |",
        *rows,
        "",
        f"{len(answers)} answers, {met} met the contract. Rules broken, by answers: "
        + (", ".join(f"{rule} {count}" for rule, count in broken.most_common()) or "none")
        + ".",
    ]
    return "\n".join(lines)


def written(text: str) -> None:
    """Put the table between its marks in RESULTS.md; a section at the end where there is none yet."""
    before, start, rest = RESULTS.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    if not start:
        before, after = f"{before.rstrip()}\n\n{SECTION}\n\n", "\n"
    RESULTS.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Diagnose, print, and with `--write` put the table into RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("replays", nargs="*", default=REPLAYS, metavar="REPLAY")
    parser.add_argument("--server", choices=["llama-server", "python-server"], default="llama-server")
    parser.add_argument("--write", action="store_true", help="replace the table in benchmarks/RESULTS.md")
    options = parser.parse_args()
    rows, runs = [], []
    with tempfile.TemporaryDirectory() as name, serving(options.server, Path(name) / "server.log") as server:
        for replay in options.replays:
            folder = Path(name) / replay
            folder.mkdir()
            ran = diagnose(replay, folder, server)
            if ran.incident is None:
                sys.exit(f"{replay} left no record (exit code {ran.code}):\n{ran.err[-2000:]}")
            rows.append(line(replay, ran))
            runs.append(ran)
            print(rows[-1], flush=True)
    text = table(server, rows, runs)
    print("\n" + text)
    if options.write:
        written(text)


if __name__ == "__main__":
    main()
