"""What a whole diagnosis costs, against plain runs of the same script and the import of torch, side by side.

    python benchmarks/diagnose_cost.py [--rounds 5] [--script replays/stale_head/train.py] [--write]

The limit is 2.5 plain runs plus one `import torch`. Every round takes all three, one after the other, so that a machine
whose speed drifts shifts them together; the ratio is taken round by round, and its median is what counts.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
START, END = "<!-- diagnose_cost -->", "<!-- /diagnose_cost -->"
PLAIN_RUNS = 2.5


def seconds(command: list[str], cwd: Path, codes: tuple[int, ...] = (0,)) -> float:
    """Wall time of one command in seconds; fails when it does not end with one of the codes."""
    start = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    taken = time.perf_counter() - start
    if done.returncode not in codes:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return taken


def one_round(script: Path) -> tuple[float, float, float, float]:
    """Seconds of a plain run, of `import torch`, of a diagnosis, and of `weaklink --help`."""
    weaklink = str(Path(sys.executable).with_name("weaklink"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / script.name).write_bytes(script.read_bytes())
        plain = seconds([sys.executable, script.name], folder)
        imports = seconds([sys.executable, "-c", "import torch"], folder)
        diagnosis = seconds([weaklink, "diagnose", script.name], folder, codes=(0, 1))
        return plain, imports, diagnosis, seconds([weaklink, "--help"], folder)


def table(rounds: list[tuple[float, float, float, float]], script: Path) -> str:
    """The rounds as a Markdown table, and the ratio to the limit."""
    import torch

    ratios = [d / (PLAIN_RUNS * p + i) for p, i, d, _ in rounds]
    lines = [
        f"`weaklink diagnose {script.relative_to(ROOT)}`, {len(rounds)} rounds, torch {torch.__version__}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'unset')}.",
        "",
        "| seconds | min | median | max |",
        "| --- | --- | --- | --- |",
    ]
    for name, column in (("plain run", 0), ("`import torch`", 1), ("diagnosis", 2), ("`weaklink --help`", 3)):
        values = [r[column] for r in rounds]
        lines.append(f"| {name} | {min(values):.2f} | {statistics.median(values):.2f} | {max(values):.2f} |")
    share = f"{min(ratios):.2f} | {statistics.median(ratios):.2f} | {max(ratios):.2f}"
    lines.append(f"| diagnosis / (2.5 plain runs + `import torch`), limit 1 | {share} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and with `--write` put the table into RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--script", type=Path, default=ROOT / "replays" / "stale_head" / "train.py")
    parser.add_argument("--write", action="store_true", help="replace the table in benchmarks/RESULTS.md")
    options = parser.parse_args()
    script = options.script.resolve()
    one_round(script)  # files into the page cache
    rounds = []
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
        rounds.append(one_round(script))
    text = table(rounds, script)
    print(text)
    if options.write:
        whole = RESULTS.read_text(encoding="utf-8")
        before, _, rest = whole.partition(START)
        _, _, after = rest.partition(END)
        RESULTS.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
