"""Frozen now, run later; and the record handed to somebody else."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import STALE_HEAD, Diagnosed, Weaklink, call

from weaklink.agent.record.incident import Incident


@pytest.fixture
def frozen(tmp_path: Path, weaklink: Weaklink) -> Path:
    shutil.copy(STALE_HEAD, tmp_path / "train.py")
    ran = weaklink("diagnose", "train.py", "--json", "--no-rerun")
    assert ran.code == 1
    assert ran.json["mechanism"]["status"] == "not_tested"
    return tmp_path / ran.json["incident"]


def test_no_rerun_ends_after_freezing_and_verify_goes_on(frozen: Path, tmp_path: Path, weaklink: Weaklink) -> None:
    assert not (frozen / "logs" / "control.log").exists()
    before = (frozen / "events.jsonl").read_bytes()
    assert "never run" in weaklink("check", str(frozen)).out
    ran = weaklink("verify", str(frozen), "--json")
    assert ran.code == 1, ran.err
    assert ran.json["mechanism"]["status"] == "supported"
    assert (frozen / "events.jsonl").read_bytes().startswith(before), "nothing that was recorded is touched"
    assert weaklink("check", str(frozen)).code == 0
    again = weaklink("verify", str(frozen), "--json")
    assert again.code == 2
    assert "judged already" in again.json["message"]


def test_verify_refuses_sources_that_are_not_those_of_the_claim(
    frozen: Path, tmp_path: Path, weaklink: Weaklink
) -> None:
    with (tmp_path / "train.py").open("a") as file:
        file.write("# an edit\n")
    ran = weaklink("verify", str(frozen), "--json")
    assert ran.code == 2
    assert "train.py" in ran.json["message"]
    assert Incident.read(frozen).verdict is None


def test_verify_refuses_an_edited_script_outside_the_folder(tmp_path: Path, weaklink: Weaklink) -> None:
    (tmp_path / "work").mkdir()
    script = tmp_path / "train.py"
    shutil.copy(STALE_HEAD, script)
    ran = weaklink("diagnose", "../train.py", "--json", "--no-rerun", cwd=tmp_path / "work")
    script.write_text(script.read_text().replace("manual_seed(7)", "manual_seed(8)"))
    again = weaklink("verify", ran.json["incident"], "--json", cwd=tmp_path / "work")
    assert again.code == 2
    assert "train.py" in again.json["message"]


def test_a_healthy_incident_has_nothing_to_verify(tmp_path: Path, weaklink: Weaklink) -> None:
    text = STALE_HEAD.read_text().replace("    model.head = nn.Linear(32, 2)\n", "")
    (tmp_path / "train.py").write_text(text)
    incident = weaklink("diagnose", "train.py", "--json").json["incident"]
    assert weaklink("verify", incident, "--json").json["error"] == "UsageError"


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href")]


def test_html_is_one_offline_file_with_table_curves_and_predictions(stale_head: Diagnosed, tmp_path: Path) -> None:
    out = tmp_path / "incident.html"
    ran = call("export", str(stale_head.incident.folder), "-o", str(out), cwd=tmp_path)
    assert ran.code == 0
    assert ran.out.strip() == str(out)
    text = out.read_text()
    page = Page()
    page.feed(text)
    assert "script" not in page.tags
    assert "svg" in page.tags
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert "@import" not in text
    for wanted in (
        "OWNERSHIP",
        "optimizer_holds_old_objects",
        "treatment",
        "control",
        stale_head.body["predictions"]["claim"],
    ):
        assert wanted in text


def test_markdown_and_json_exports(stale_head: Diagnosed, tmp_path: Path) -> None:
    folder = str(stale_head.incident.folder)
    markdown = call("export", folder, "--format", "md", "-o", "-", cwd=tmp_path).out
    assert re.search(r"\|.*owned.*\|", markdown)
    receipt = json.loads(call("export", folder, "--format", "json", "-o", "-", cwd=tmp_path).out)
    assert receipt["schema"] == "weaklink.receipt/1"
    assert receipt["diagnosis"]["first_divergence"]["row"] == "OWNERSHIP/owned"
    assert call("export", folder, "--format", "pdf", cwd=tmp_path).code == 2
