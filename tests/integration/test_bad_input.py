"""Everything that goes wrong before, during and after: a clear sentence, the right exit code, nothing lost."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import COMMAND, STALE_HEAD, Weaklink, environment, training

from weaklink.agent.record.check import check_record
from weaklink.agent.record.incident import Incident

Script = Callable[..., Path]


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("def f(:\n", "SubjectError", "syntax error on line 1"),
        ("raise ValueError('early')\n", "NothingMeasuredError", "raised ValueError at train.py:1"),
        ("import torch\n", "NothingMeasuredError", "trained nothing that weaklink can see: 0 forward calls"),
        ("import sys\nsys.exit('usage: ...')\n", "NothingMeasuredError", "left with exit code 1"),
        ("name = input()\n", "NothingMeasuredError", "raised EOFError"),
        (
            "import torch\nm = torch.nn.Linear(2, 2)\nfor i in range(3): m(torch.ones(1, 2))\n",
            "NothingMeasuredError",
            "3 forward calls of a model, no backward",
        ),
        ("import os\nos._exit(4)\n", "NothingMeasuredError", "left with exit code 4"),
        ("import os\nos.kill(os.getpid(), 9)\n", "SubjectError", "killed by signal 9"),
        ("x = b'\\x00'\n\0", "SubjectError", "no Python source"),
    ],
)
def test_nothing_could_be_measured(script: Script, weaklink: Weaklink, text: str, error: str, says: str) -> None:
    script(text)
    ran = weaklink("diagnose", "train.py", "--json")
    assert ran.code == 2
    body = ran.json
    assert body["schema"] == "weaklink.error/1"
    assert body["error"] == error
    assert says in body["message"]
    assert body["hint"]
    assert "weaklink-" not in json.dumps(body), "a path of the scratch folder helps nobody"


def test_a_syntax_error_leaves_no_incident_behind(script: Script, tmp_path: Path, weaklink: Weaklink) -> None:
    script("def f(:\n")
    assert weaklink("diagnose", "train.py").code == 2
    assert list((tmp_path / "incidents").iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["diagnose"],
        ["diagnose", "nowhere.py"],
        ["diagnose", "."],
        ["diagnose", "-m", "no module"],
        ["diagnose", "train.py", "--epochs", "3"],
        ["diagnose", "train.py", "--advisor", "oracle"],
        ["diagnose", "train.py", "--deadline", "0"],
        ["diagnose", "train.py", "--python", "/nonexistent/python"],
        ["diagnose", "nowhere.json"],
        ["observe", "nowhere.py"],
        ["verify", "nowhere"],
        ["show", "nowhere"],
        ["check", "nowhere"],
        ["frobnicate"],
    ],
)
def test_wrong_usage_is_exit_2_and_one_json_error(script: Script, weaklink: Weaklink, words: list[str]) -> None:
    script(training())
    ran = weaklink(*words, "--json")
    assert ran.code == 2
    assert ran.json["schema"] == "weaklink.error/1"
    assert ran.json["exit_code"] == 2
    assert ran.err.startswith("weaklink: ")


def test_a_script_that_raises_in_training_keeps_its_rows(script: Script, weaklink: Weaklink) -> None:
    script(training("if step == 5: loss.backward()"))
    ran = weaklink("diagnose", "train.py", "--json")
    assert ran.code == 1
    body = ran.json
    assert body["branch"] == "raised"
    assert body["first_divergence"] == {
        "row": "GRADIENT/raised",
        "boundary": "GRADIENT",
        "status": "fail",
        "basis": "exact",
    }
    assert body["where"][0]["file"] == "train.py"
    assert body["where"][0]["line"] == training().splitlines().index("    pass") + 1


def test_an_exception_between_steps_accuses_no_boundary(script: Script, weaklink: Weaklink) -> None:
    script(training("if step == 5: {}['missing']"))
    ran = weaklink("diagnose", "train.py", "--json")
    assert ran.code == 1
    assert ran.json["branch"] == "raised"
    assert ran.json["first_divergence"] is None


def test_a_run_that_never_steps(script: Script, weaklink: Weaklink) -> None:
    script(training().replace("    optimizer.step()\n", ""))
    ran = weaklink("diagnose", "train.py", "--json")
    assert ran.code == 1
    assert ran.json["first_divergence"]["row"] == "UPDATE/steps"
    assert ran.json["mechanism"]["id"] == "step_missing_or_skipped"


def test_a_script_that_leaves_with_a_code_after_training(script: Script, weaklink: Weaklink) -> None:
    script(training() + "\nraise SystemExit(7)\n")
    assert weaklink("diagnose", "train.py", "--json").code == 0


def test_megabytes_of_output_are_drained_hashed_and_cut(script: Script, tmp_path: Path, weaklink: Weaklink) -> None:
    script(training("print('x' * 1_000_000)", steps=20))
    ran = weaklink("diagnose", "train.py", "--json")
    assert ran.code == 0
    incident = Incident.read(tmp_path / ran.json["incident"])
    assert incident.observed is not None
    assert incident.observed.output_bytes == 20 * 1_000_001
    log = incident.folder / "logs" / "observe.log"
    assert log.stat().st_size < 5 * 1024 * 1024
    assert "more bytes were not kept" in log.read_text()[-200:]


def test_a_script_that_runs_for_ever_is_stopped_at_its_deadline(script: Script, weaklink: Weaklink) -> None:
    script(STALE_HEAD.read_text().replace("range(301)", "__import__('itertools').count()"))
    started = time.monotonic()
    ran = weaklink("diagnose", "train.py", "--json", "--deadline", "4")
    assert time.monotonic() - started < 60
    assert ran.code == 1
    assert ran.json["first_divergence"]["row"] == "OWNERSHIP/owned"
    assert ran.json["mechanism"]["status"] == "supported"


def test_observe_stops_at_its_deadline_even_without_a_step(script: Script, tmp_path: Path, weaklink: Weaklink) -> None:
    script(training(steps=3) + "\nwhile True: pass\n")
    ran = weaklink("observe", "train.py", "--json", "--deadline", "12")
    assert ran.json["ended"] == "deadline"
    assert ran.json["steps"] == 3


def test_a_loop_that_catches_everything_is_stopped_too(script: Script, weaklink: Weaklink) -> None:
    body = "\n".join("    " + line for line in training(steps=10**9).splitlines())
    script(
        "while True:\n    try:\n        pass\n" + body.replace("\n    ", "\n        ") + "\n    except:\n        pass\n"
    )
    ran = weaklink("diagnose", "train.py", "--json", "--deadline", "3")
    assert ran.code == 0, ran.err
    assert ran.json["branch"] == "learning"


def test_a_script_that_ignores_its_deadline_is_killed_and_its_rows_stand(script: Script, weaklink: Weaklink) -> None:
    hang = "import signal, time\nfor s in (signal.SIGUSR1, signal.SIGTERM): signal.signal(s, signal.SIG_IGN)\n"
    script(training(steps=12) + hang + "time.sleep(1000)\n")
    started = time.monotonic()
    ran = weaklink("diagnose", "train.py", "--json", "--deadline", "3")
    assert time.monotonic() - started < 60
    assert ran.code == 0, ran.err
    assert ran.json["first_divergence"] is None


def test_ctrl_c_keeps_what_was_measured(script: Script, tmp_path: Path) -> None:
    script(STALE_HEAD.read_text().replace("range(301)", "__import__('itertools').count()"))
    process = subprocess.Popen(
        [*COMMAND, "diagnose", "train.py", "--json"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Started in the background, a shell makes its children ignore Ctrl-C, this one too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    log = tmp_path / "incidents"
    for _ in range(400):
        logs = list(log.glob("*/logs/observe.log"))
        if logs and "step 100" in logs[0].read_text():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    body = json.loads(out)
    assert body["first_divergence"]["row"] == "OWNERSHIP/owned"
    incident = Incident.read(tmp_path / body["incident"])
    assert incident.closed is not None
    assert incident.closed.exit_code == 130
    assert check_record(tmp_path / body["incident"]).intact


def test_no_process_of_the_run_is_left_behind(script: Script, tmp_path: Path, weaklink: Weaklink) -> None:
    body = (
        "\nimport subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(987)'])\n"
        "print('child', child.pid)\n"
    )
    script(training() + body)
    ran = weaklink("diagnose", "train.py", "--json")
    assert ran.code == 0
    log = (tmp_path / ran.json["incident"] / "logs" / "observe.log").read_text()
    child = int(log.split("child ")[1])
    for _ in range(50):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("a process that the script started outlived the diagnosis")


def test_a_full_disk_keeps_the_record_intact_so_far(script: Script, tmp_path: Path) -> None:
    """A limit on file size stands for a full disk: the same write fails in the same place, with EFBIG for ENOSPC."""
    script(STALE_HEAD.read_text())
    done = subprocess.run(
        [*COMMAND, "diagnose", "train.py", "--json"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000)),
    )
    assert done.returncode == 2, done.stderr
    assert json.loads(done.stdout)["error"] == "StorageError"
    assert "Traceback" not in done.stderr
    (folder,) = (tmp_path / "incidents").iterdir()
    report = check_record(folder)
    assert report.intact, report.problem
    shown = subprocess.run(
        [*COMMAND, "show", str(folder)], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert "<-- FIRST DIVERGENCE" in shown.stdout


def test_a_folder_that_cannot_be_written(script: Script, tmp_path: Path, weaklink: Weaklink) -> None:
    script(training())
    (tmp_path / "file").write_text("no folder")
    for place in ("file/incidents", "/proc/weaklink"):
        ran = weaklink("diagnose", "train.py", "--json", "--incidents", place)
        assert ran.code == 2
        assert ran.json["error"] == "StorageError"
        assert "--incidents" in ran.json["hint"]
    ran = weaklink("observe", "train.py", "--json", "--out", "file/evidence.json")
    assert ran.code == 2
    assert ran.json["error"] == "StorageError"


@pytest.fixture
def damaged(stale_head_copy: Path) -> Path:
    events = stale_head_copy / "events.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    said = next(number for number, line in enumerate(lines) if b"optimizer_holds_old_objects" in line)
    lines[said] = lines[said].replace(b"optimizer_holds_old_objects", b"optimizer_holds_new_objects", 1)
    events.write_bytes(b"".join(lines))
    return stale_head_copy


@pytest.fixture
def stale_head_copy(stale_head: object, tmp_path: Path) -> Path:
    from conftest import Diagnosed

    assert isinstance(stale_head, Diagnosed)
    return Path(shutil.copytree(stale_head.incident.folder, tmp_path / "copy"))


def test_a_damaged_record_is_found_by_line_and_still_shown_so_far(damaged: Path, weaklink: Weaklink) -> None:
    checked = weaklink("check", str(damaged), "--json")
    assert checked.code == 1
    assert checked.json["intact"] is False
    assert checked.json["bad_line"] in (7, 8)
    shown = weaklink("show", str(damaged))
    assert shown.code == 1
    assert "<-- FIRST DIVERGENCE" in shown.out
    for command in (["export", str(damaged)], ["verify", str(damaged), "--json"]):
        assert weaklink(*command).code == 1


def test_a_torn_last_line(stale_head_copy: Path, weaklink: Weaklink) -> None:
    events = stale_head_copy / "events.jsonl"
    events.write_bytes(events.read_bytes()[:-100])
    assert weaklink("check", str(stale_head_copy)).code == 1
    assert weaklink("show", str(stale_head_copy)).code == 1


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": "weaklink.evidence/9"}', "\xff\xfe", '{"a": 1'])
def test_a_bad_evidence_file(tmp_path: Path, weaklink: Weaklink, text: str) -> None:
    (tmp_path / "evidence.json").write_text(text, encoding="latin-1")
    ran = weaklink("diagnose", "evidence.json", "--json")
    assert ran.code == 2
    assert ran.json["error"] == "EvidenceError"
    assert not (tmp_path / "incidents").exists()


def test_output_into_a_closed_pipe_is_no_traceback(stale_head_copy: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, "show", str(stale_head_copy)],
        cwd=tmp_path,
        env=environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert "Traceback" not in done.stderr


def test_sigterm_ends_the_run_and_undoes_what_it_wrote(script: Script, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    script(
        f"open({str(outside)!r}, 'w').write('clobbered')\nimport os\nprint('pid', os.getpid(), flush=True)\n"
        + STALE_HEAD.read_text().replace("range(301)", "__import__('itertools').count()")
    )
    process = subprocess.Popen(
        [*COMMAND, "diagnose", "train.py", "--json"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    worker = 0
    for _ in range(400):
        logs = list((tmp_path / "incidents").glob("*/logs/observe.log"))
        text = logs[0].read_text() if logs else ""
        if "step  50" in text:
            worker = int(text.split("pid ")[1].split()[0])
            break
        time.sleep(0.1)
    assert outside.read_text() == "clobbered"
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert outside.read_text() == "mine"
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_a_killed_command_line_takes_its_run_along(script: Script, tmp_path: Path) -> None:
    script("import os\nprint('pid', os.getpid(), flush=True)\nimport time\ntime.sleep(500)\n")
    process = subprocess.Popen(
        [*COMMAND, "diagnose", "train.py"], cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL
    )
    worker = 0
    for _ in range(400):
        logs = list((tmp_path / "incidents").glob("*/logs/observe.log"))
        text = logs[0].read_text() if logs else ""
        if text.endswith("\n"):
            worker = int(text.split()[1])
            break
        time.sleep(0.1)
    assert worker
    process.kill()
    process.wait()
    for _ in range(100):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the run went on without its command line")


def test_a_deadline_with_loader_workers_keeps_the_whole_evidence(script: Script, weaklink: Weaklink) -> None:
    loader = "loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 8, num_workers=2)\n"
    text = training(steps=10**6).replace("for step in", loader + "for step in")
    script(text.replace("    optimizer.zero_grad()", "    for _ in loader: break\n    optimizer.zero_grad()"))
    ran = weaklink("diagnose", "train.py", "--json", "--deadline", "4")
    assert ran.code == 0, ran.err
    assert "deadline" in ran.err


def test_observe_with_an_interpreter_that_is_none(script: Script, weaklink: Weaklink) -> None:
    script(training())
    ran = weaklink("observe", "train.py", "--python", "/nonexistent/python", "--json")
    assert ran.code == 2
    assert ran.json["error"] == "InterpreterError"


def test_an_exit_code_of_three_is_no_missing_package(script: Script, weaklink: Weaklink) -> None:
    script(training() + "\nprint('{\"missing\": 3}')\nraise SystemExit(3)\n")
    assert weaklink("diagnose", "train.py", "--json").code == 0
    assert weaklink("observe", "train.py").code == 3


@pytest.mark.parametrize("words", [["show"], ["show", "--json"], ["check", "--json"]])
def test_a_full_standard_output_is_one_clear_error(stale_head_copy: Path, tmp_path: Path, words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, words[0], str(stale_head_copy), *words[1:]],
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "standard output" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_notebook_is_told_apart(tmp_path: Path, weaklink: Weaklink) -> None:
    (tmp_path / "train.ipynb").write_text("{}")
    ran = weaklink("diagnose", "train.ipynb", "--json")
    assert ran.code == 2
    assert "notebook" in ran.json["message"]


def test_a_scratch_folder_whose_owner_was_killed_is_swept(tmp_path: Path, script: Script, weaklink: Weaklink) -> None:
    outside = tmp_path / "mine.txt"
    outside.write_text("clobbered")
    left = tmp_path / "tmp" / "weaklink-left"
    (left / "keep").mkdir(parents=True)
    (left / "keep" / "1").write_text("mine")
    (left / "owner").write_text("999999999")
    note = json.dumps({"restore": str(outside), "copy": str(left / "keep" / "1")})
    (left / "journal.jsonl").write_text(note + "\n")
    script(training(steps=3))
    assert weaklink("diagnose", "train.py", env=environment(TMPDIR=str(tmp_path / "tmp"))).code == 0
    assert outside.read_text() == "mine"
    assert list((tmp_path / "tmp").glob("weaklink-*")) == []
