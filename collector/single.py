"""One job in a fresh interpreter: `python -c "..." JOB REFUSED`. For scripts that set threads before torch."""

from __future__ import annotations

import sys
from pathlib import Path

from weaklink.collector.job import Job


def main() -> None:
    """Read the job file and become its worker. Never returns."""
    from weaklink.collector.run import run_job_and_leave

    job = Job.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    run_job_and_leave(job, Path(sys.argv[2]))
