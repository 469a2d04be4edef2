"""The ablation as a user runs it: four arms on a case and its repair, against an endpoint that answers by a script."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, STALE_HEAD, environment

from weaklink.agent.advisors.playbook import Playbook
from weaklink.collector.evidence import read_evidence

KEY = "sk-scripted-0123456789abcdef"
LATE_HEAD = STALE_HEAD.read_text(encoding="utf-8")
OPTIMIZER = "    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)\n"


class Endpoint(ThreadingHTTPServer):
    """Answers what the evidence says where it is shown, and accuses every run that it sees only the source of."""

    def __init__(self, answers: Path) -> None:
        self.answers, self.asked = answers, []
        super().__init__(("127.0.0.1", 0), Handler)

    def answer(self, sent: str) -> dict[str, Any]:
        broken = re.search(r"First divergence:? \W*OWNERSHIP/owned", sent) is not None
        if "eight links" in sent:  # the small question
            self.asked.append("small")
            if "What was measured" in sent and not broken:
                return {
                    "boundary": "NONE",
                    "file": None,
                    "line": None,
                    "family": "none",
                    "confidence": 0.9,
                    "reason": "",
                }
            body = {"boundary": "OWNERSHIP", "file": "train.py", "line": 40, "family": "optimizer_holds_old_objects"}
            return {**body, "confidence": 0.8, "reason": "the head is newer than the optimizer"}
        self.asked.append("turn")
        name = "scripts__late_head" if broken else "scripts__late_head@fixed"
        evidence = read_evidence(self.answers / ".observed" / name / "evidence.json")
        proposal = Playbook().advise(evidence, "", []).model_dump(mode="json")
        if proposal["experiment"] is not None:
            parameters = proposal["experiment"]["parameters"]
            proposal["experiment"]["parameters"] = [
                {"name": name, "value": value} for name, value in parameters.items()
            ]
        return {"turn": {"do": "answer", "answer": proposal}}


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        sent = "\n".join(message["content"] for message in asked["messages"])
        message = {"role": "assistant", "content": json.dumps(self.server.answer(sent))}
        body = {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": asked["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050},
        }
        said = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *words: object) -> None:
        pass


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    server = Endpoint(tmp_path / "answers")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    folder = tmp_path / "cases" / "scripts" / "late_head"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(LATE_HEAD)
    (folder / "fixed.py").write_text(
        LATE_HEAD.replace(OPTIMIZER, "").replace(
            "    return model, optimizer\n", OPTIMIZER + "    return model, optimizer\n"
        )
    )
    says = {"first_boundary": "OWNERSHIP", "family": "optimizer_holds_old_objects"}
    (folder / "expected.json").write_text(json.dumps(says))
    return tmp_path / "cases"


def ablation(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    changes = {"WEAKLINK_API_KEY": KEY, "WEAKLINK_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, str(ROOT / "benchmarks" / "ablation"), "--root", str(tmp_path / "cases")]
    return subprocess.run(
        [*command, "--answers", str(tmp_path / "answers"), *words],
        cwd=tmp_path,
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def rows(table: str) -> dict[str, list[str]]:
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in lines}


@pytest.mark.usefixtures("cases")
def test_four_arms_are_asked_scored_and_kept(tmp_path: Path, endpoint: Endpoint) -> None:
    model = ["--model", "scripted", "--base-url", f"http://127.0.0.1:{endpoint.server_port}/v1"]
    done = ablation(tmp_path, *model)
    assert done.returncode == 0, done.stderr
    table = rows(done.stdout)
    assert [cell.split()[0] for cell in table["faults: boundary right"]] == ["1/1"] * 4
    assert [cell.split()[0] for cell in table["faults: line right, exactly"][:3]] == ["1/1"] * 3
    assert [cell.split()[0] for cell in table["healthy: accused"]] == ["1/1", "0/1", "0/1", "0/1"]
    assert table["faults: proved by the rerun, family right"][-1].startswith("1/1"), done.stderr
    assert table["all: another family supported by the rerun"][-1].startswith("0/2")
    assert "scripts/late_head@fixed" in table

    asked = list(endpoint.asked)
    again = ablation(tmp_path, *model)
    assert again.stdout == done.stdout
    assert endpoint.asked == asked, "nothing is asked twice"
    kept = [path.read_text() for path in (tmp_path / "answers").rglob("*") if path.is_file()]
    assert not any(KEY in text for text in [*kept, done.stdout, done.stderr])


@pytest.mark.usefixtures("cases")
def test_prompts_are_written_for_a_chat_window_and_a_pasted_answer_counts(tmp_path: Path) -> None:
    words = ["--model", "chat", "--cases", "late_head"]
    assert ablation(tmp_path, *words, "--prompts").returncode == 0
    folder = tmp_path / "answers" / "chat"
    prompts = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.prompt.md"))
    assert prompts == [f"{arm}/scripts__late_head.prompt.md" for arm in ("both", "evidence", "source")]
    texts = [(folder / name).read_text() for name in prompts]
    assert not any("late_head" in text or str(tmp_path) in text for text in texts)
    (folder / "source" / "scripts__late_head.answer.txt").write_text('I think:\n{"boundary": "update"}')
    table = rows(ablation(tmp_path, *words, "--offline").stdout)
    assert table["faults: boundary right"][0].startswith("0/1")
    assert table["answers pasted"][0] == "1"
    assert table["answers missing"][1:] == ["1", "1", "1"]


def test_without_a_model_nothing_is_run(tmp_path: Path) -> None:
    done = ablation(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage" in done.stderr
    assert not (tmp_path / "answers").exists()


@pytest.mark.usefixtures("cases")
@pytest.mark.parametrize("words", [["--arms", "sauce"], ["--cases", "nothing/*"], ["--base-url", "ftp://x"]])
def test_wrong_words_are_refused_with_a_sentence(tmp_path: Path, words: list[str]) -> None:
    done = ablation(tmp_path, "--model", "scripted", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "ablation: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("cases")
def test_an_endpoint_that_is_gone_ends_it_with_a_hint(tmp_path: Path, endpoint: Endpoint) -> None:
    port = endpoint.server_port
    endpoint.server_close()
    words = ["--model", "scripted", "--base-url", f"http://127.0.0.1:{port}/v1", "--cases", "late_head"]
    done = ablation(tmp_path, *words, "--arms", "source,evidence,both")
    assert done.returncode == 3, done.stderr
    assert "the same command goes on from here" in done.stderr
    assert "Traceback" not in done.stderr
