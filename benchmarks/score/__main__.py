"""How often weaklink is right, and whom it accuses wrongly.

    python benchmarks/score [--kind scripts,inputs,projects] [--only NAME,NAME] [--cases DIR] [--out FILE] [--recover]
                            [--write]

Every case is run plainly, observed and diagnosed, its repaired variant diagnosed too; two cases at a time on two cores
(wall times are ratios within one case). `--write` replaces the section of RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from score.cases import KINDS, Case, read_cases  # noqa: E402
from score.one import Score, score_case  # noqa: E402
from score.table import markdown  # noqa: E402

RESULTS = ROOT / "benchmarks" / "RESULTS.md"
START, END = "<!-- score -->", "<!-- /score -->"


def main() -> None:
    """Score, print, and write what was asked for. Exits with 1 where a healthy or a fixed variant was accused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weaklink", default=str(Path(sys.executable).with_name("weaklink")))
    parser.add_argument("--cases", type=Path, default=ROOT / "tests" / "cases")
    parser.add_argument("--kind", default=",".join(KINDS))
    parser.add_argument("--only", default="")
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--jobs", type=int, default=max(1, os.cpu_count() or 1))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--recover", action="store_true", help="hold both variants against the diagnosis")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    wanted = set(filter(None, options.only.split(",")))
    cases = [c for c in read_cases(options.cases, tuple(options.kind.split(","))) if not wanted or c.name in wanted]

    def one(case: Case) -> Score:
        score = score_case(options.weaklink, case, options.timeout, with_fixed=True, with_recovery=options.recover)
        print(
            f"{case.kind}/{case.name}: {score.boundary} {score.status or ''} {score.note}", file=sys.stderr, flush=True
        )
        return score

    with ThreadPoolExecutor(options.jobs) as pool:
        scores = list(pool.map(one, cases))
    print(markdown(scores))
    if options.out:
        options.out.write_text(json.dumps([score.to_json() for score in scores], indent=1))
    if options.write:
        write(scores)
    if any(score.accused or score.fixed_accused for score in scores):
        sys.exit(1)


def write(scores: list[Score]) -> None:
    """Put the tables into RESULTS.md."""
    text = RESULTS.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    RESULTS.write_text(f"{before}{START}\n\n{markdown(scores)}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
