"""Launching and stopping: a script finds what `python script` gives it, and ends when it is told to."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from collector_runs import Run, observe, plain, run_job, write

from weaklink.collector.errors import SubjectError
from weaklink.collector.evidence import Subject, read_evidence
from weaklink.collector.job import Job
from weaklink.collector.launch import compile_script
from weaklink.collector.stopping import Stopper, StopRun

FACTS = """
import inspect, os, pickle, sys, threading

class Thing:
    pass

def source_of_me():
    return 1

print("name", __name__, "doc", __doc__, "package", __package__, "spec", __spec__)
print("file", __file__)
print("argv", sys.argv)
print("path", sys.path[0])
print("cwd", os.getcwd())
print("main", sys.modules["__main__"].Thing is Thing)
print("pickle", type(pickle.loads(pickle.dumps(Thing()))) is Thing)
print("source", inspect.getsource(source_of_me), inspect.getsourcefile(Thing) == __file__)
print("thread", threading.current_thread() is threading.main_thread())
"""


def python(folder: Path, *argv: str) -> Run:
    done = subprocess.run(
        [sys.executable, *argv], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    return Run(done.returncode, done.stdout, done.stderr)


def test_the_script_sees_what_python_shows_it(tmp_path: Path) -> None:
    run = observe(FACTS, tmp_path, argv=("--epochs", "3"))
    alone = python(tmp_path, "train.py", "--epochs", "3")
    assert alone.code == 0, alone.err
    assert run.out == alone.out
    assert run.err == alone.err


def test_a_script_in_a_folder_finds_its_neighbours_first(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "near.py").write_text("x = 'beside the script'")
    (tmp_path / "near.py").write_text("x = 'in the working folder'")
    source = "import near, os, sys; print(near.x, sys.argv, sys.path[0], __file__)"
    run = observe(source, tmp_path, name="src/train.py", subject=Subject(kind="script", name="src/train.py"))
    assert run.out == python(tmp_path, "src/train.py").out
    assert run.out.startswith("beside the script")


def test_a_module_runs_as_with_minus_m(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "near.py").write_text("x = 1")
    source = "import sys; from . import near; print(__name__, __package__, sys.argv[1:], __file__, sys.path[0])"
    subject = Subject(kind="module", name="pkg.train", argv=["a", "b"])
    run = observe(source, tmp_path, name="pkg/train.py", subject=subject)
    alone = python(tmp_path, "-m", "pkg.train", "a", "b")
    assert (run.code, run.out) == (0, alone.out), run.err


@pytest.mark.parametrize(
    ("statement", "code", "err"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(0)", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit(True)", 1, ""),
        ("sys.exit('no data')", 1, "no data\n"),
        ("raise SystemExit", 0, ""),
    ],
)
def test_exit_codes(tmp_path: Path, statement: str, code: int, err: str) -> None:
    run = observe(f"import sys, torch\nprint('before')\n{statement}\nprint('after')", tmp_path)
    assert (run.code, run.out, run.err) == (code, "before\n", err)
    assert (run.seen.outcome.ended, run.seen.outcome.exit_code) == ("exited", code)


def test_exit_handlers_and_threads_finish_before_the_process_does(tmp_path: Path) -> None:
    source = """
        import atexit, threading, time, torch
        atexit.register(print, "handler")
        threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
        print("end of script")
    """
    assert observe(source, tmp_path).out == "end of script\nthread\nhandler\n"


def test_a_traceback_begins_in_the_users_file(tmp_path: Path) -> None:
    run = observe("import torch\ndef f():\n    raise KeyError('x')\nf()", tmp_path)
    assert run.code == 1
    assert run.err == python(tmp_path, "train.py").err
    assert run.seen.outcome.raised is not None
    assert run.seen.outcome.raised.message == "'x'"


def test_a_keyboard_interrupt_ends_as_interrupted(tmp_path: Path) -> None:
    run = observe("import torch\nraise KeyboardInterrupt", tmp_path)
    assert (run.code, run.seen.outcome.ended) == (130, "interrupted")


def test_a_script_that_leaves_by_itself_has_its_early_evidence(tmp_path: Path) -> None:
    source = """
        import os, torch
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        os._exit(7)
    """
    run = observe(source, tmp_path)
    assert run.code == 7
    assert (run.seen.outcome.ended, run.seen.outcome.steps) == ("exited", 1)


@pytest.mark.parametrize(
    ("content", "message", "about"),
    [
        (b"x = 1\ny = = 2\n", "syntax error on line 2", "train.py:2"),
        (b"# coding: latin-1\nprint('caf\xe9')\nx = = 1", "syntax error on line 3", "train.py:3"),
        (b"x = '\xff'", "syntax error", None),
        (b"# coding: nonsense\n", "nonsense", None),
        (b"x = 1\0", "null bytes", "train.py"),
    ],
)
def test_no_python_is_refused_with_its_place(tmp_path: Path, content: bytes, message: str, about: str | None) -> None:
    (tmp_path / "train.py").write_bytes(content)
    with pytest.raises(SubjectError, match=message) as raised:
        compile_script(tmp_path / "train.py", "train.py")
    if about:
        assert raised.value.about == about


@pytest.mark.parametrize("name", ["missing.py", "folder"])
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(SubjectError, match="cannot be read") as raised:
        compile_script(tmp_path / name, name)
    assert raised.value.about == name


def test_a_refusal_is_written_for_the_parent(tmp_path: Path) -> None:
    run = observe("x = = 1", tmp_path)
    assert run.code == 70
    assert run.evidence is None
    assert run.refused is not None
    assert json.loads(run.refused)["class"] == "SubjectError"


@pytest.mark.parametrize(
    "content", [b"\xef\xbb\xbfprint('bom')", b"# coding: latin-1\nprint('caf\xe9')", b"", b"#!/x\n"]
)
def test_encodings_are_the_scripts_own(tmp_path: Path, content: bytes) -> None:
    path = write("", tmp_path)
    path.write_bytes(content)
    job = Job(
        role="observe", subject=Subject(kind="script", name="train.py"), folder=tmp_path, evidence=tmp_path / "e.json"
    )
    assert run_job(job, tmp_path).out == python(tmp_path, "train.py").out


def test_worker_processes_of_any_start_method_can_unpickle_what_main_defines(tmp_path: Path) -> None:
    source = """
        import multiprocessing as mp
        import torch

        class Thing:
            def __init__(self, n):
                self.n = n

        def work(thing):
            return Thing(thing.n + 1)

        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                with mp.get_context(method).Pool(1) as pool:
                    print(method, pool.map(work, [Thing(1)])[0].n)
    """
    run = observe(source, tmp_path)
    assert (run.code, run.out) == (0, "fork 2\nspawn 2\n"), run.err


def test_a_job_in_a_fresh_interpreter_does_the_same(tmp_path: Path) -> None:
    """The other worker: `python -c` with the job in a file; here the script imports torch itself."""
    from weaklink.collector.processes import single_command

    source = """
        import os, sys
        print("torch" in sys.modules, os.environ.get("WEAKLINK_TEST_VARIABLE"))
        import torch
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
    """
    script = write(source, tmp_path)
    job = Job(
        role="observe",
        subject=Subject(kind="script", name=script.name),
        folder=tmp_path,
        evidence=tmp_path / "evidence.json",
        environment={"WEAKLINK_TEST_VARIABLE": "here"},
    )
    (tmp_path / "job.json").write_text(job.model_dump_json())
    command = single_command(sys.executable, tmp_path / "job.json", tmp_path / "refused.json")
    done = python(tmp_path, *command[1:])
    assert (done.code, done.out) == (0, "False here\n"), done.err
    assert read_evidence(job.evidence).outcome.steps == 3


# -- stopping ----------------------------------------------------------------------------------------------------------

LOOP = """
import signal, os, time
import torch
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def one():
    loss = model(torch.ones(4, 2)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(repr(loss.item()), flush=True)
"""


def loop(statements: str, folder: Path, **job: Any) -> Run:
    return observe(LOOP + textwrap.dedent(statements), folder, **job)


def test_a_horizon_ends_the_run_after_exactly_that_many_steps(tmp_path: Path) -> None:
    whole = plain(LOOP + "for _ in range(9): one()", tmp_path)
    run = loop("for _ in range(9): one()\nprint('end')", tmp_path, horizon=4)
    assert (run.code, run.seen.outcome.ended, run.seen.outcome.steps) == (0, "stopped", 4)
    # The fourth step stops the run before its print.
    assert run.out.splitlines() == whole.out.splitlines()[:3]
    assert run.seen.losses.index == [1, 2, 3, 4]
    assert run.err == ""


@pytest.mark.parametrize("catcher", ["except Exception:", "except BaseException:", "except:"])
def test_a_script_that_swallows_everything_is_still_stopped(tmp_path: Path, catcher: str) -> None:
    statements = f"""
        for _ in range(1000):
            try:
                one()
            {catcher}
                print("swallowed", flush=True)
    """
    run = loop(statements, tmp_path, horizon=2)
    assert (run.code, run.seen.outcome.ended) == (0, "stopped")
    swallowed = run.out.count("swallowed")
    assert swallowed == (0 if catcher == "except Exception:" else 3)
    assert run.seen.outcome.steps == 2 + swallowed


def test_context_managers_and_finally_blocks_run_when_stopped(tmp_path: Path) -> None:
    statements = """
        import contextlib
        @contextlib.contextmanager
        def resource():
            try:
                yield
            finally:
                print("closed")
        with resource():
            for _ in range(9): one()
    """
    assert loop(statements, tmp_path, horizon=1).out == "closed\n"


def test_backward_calls_without_a_step_have_a_horizon_of_their_own(tmp_path: Path) -> None:
    statements = """
        for i in range(50):
            model(torch.ones(4, 2)).mean().backward()
            print(i)
    """
    run = loop(statements, tmp_path, horizon=4, horizon_backwards=7)
    assert (run.seen.outcome.ended, run.seen.outcome.backwards, run.seen.outcome.steps) == ("stopped", 7, 0)
    assert run.seen.outcome.note == "stopped after 7 backward calls without a step"


def test_the_horizon_of_backward_calls_is_no_limit_once_steps_are_made(tmp_path: Path) -> None:
    run = loop("for _ in range(9): one()", tmp_path, horizon_backwards=3)
    assert (run.seen.outcome.ended, run.seen.outcome.steps) == ("completed", 9)


@pytest.mark.parametrize(("number", "ended", "code"), [("SIGTERM", "interrupted", 143), ("SIGUSR1", "deadline", 0)])
def test_signals_end_the_run_between_two_statements(tmp_path: Path, number: str, ended: str, code: int) -> None:
    body = f"for _ in range(3): one()\nos.kill(os.getpid(), signal.{number})\nprint('not reached')"
    run = loop(body, tmp_path, deadline=600.0)
    assert (run.code, run.seen.outcome.ended, run.seen.outcome.steps) == (code, ended, 3)
    assert "not reached" not in run.out


def test_a_deadline_ends_the_run_at_its_next_step(tmp_path: Path) -> None:
    run = loop("for _ in range(100):\n    one()\n    time.sleep(0.05)", tmp_path, deadline=1.5)
    assert run.seen.outcome.ended == "deadline"
    assert 1 < run.seen.outcome.steps < 100


def test_a_stopper_that_is_done_raises_nothing() -> None:
    gave_up: list[StopRun] = []
    stopper = Stopper(1, None, None, gave_up.append)
    for expected in range(1, 4):
        with pytest.raises(StopRun):
            stopper.after_step(expected)
    assert gave_up == []
    with pytest.raises(StopRun):
        stopper.after_step(4)
    assert [stop.reason for stop in gave_up] == ["stopped"]
    stopper.after_step(5)
    assert not isinstance(gave_up[0], Exception)


def test_a_stopper_without_limits_never_stops() -> None:
    stopper = Stopper(None, None, None, lambda stop: None)
    for step in range(1, 50):
        stopper.before_backward(0, step)
        stopper.after_step(step)


def test_a_script_without_torch_has_evidence_of_how_it_ended(tmp_path: Path) -> None:
    run = observe("print('no torch here')", tmp_path)
    assert (run.code, run.out) == (0, "no torch here\n")
    assert run.seen.outcome.ended == "completed"
    assert run.seen.first_divergence is None
