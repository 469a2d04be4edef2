"""The close-up's own rows on healthy loops: no term is missed, no shape misread, no origin found."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest
from collector_runs import observe
from test_healthy_loops import COMMON, SCRIPTS

from weaklink.collector.merging import OWN_ROWS

# `make healthy` runs all of them.
CHOSEN = list(SCRIPTS) if os.environ.get("WEAKLINK_ALL") else list(SCRIPTS)[::5]


@pytest.mark.parametrize("name", CHOSEN)
def test_a_close_up_of_a_healthy_loop_accuses_nobody(name: str, tmp_path: Path) -> None:
    source = COMMON + textwrap.dedent(SCRIPTS[name])
    run = observe(source, tmp_path, role="close_up", close_up_at=[1], horizon=6, horizon_backwards=60)
    own = [row for row in run.seen.rows if row.id in OWN_ROWS]
    assert run.seen.problems == []
    assert len(own) == len(OWN_ROWS)
    assert {row.id: row.text for row in own if row.status in ("fail", "suspected")} == {}
