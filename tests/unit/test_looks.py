"""Looks: in a copy that is thrown away, whatever happens there."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from weaklink.collector import looks as looks_module
from weaklink.collector.looks import Look, Looks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def found() -> dict[str, Look]:
    return {}


def make(found: dict[str, Look], mode: str = "fork") -> Looks:
    return Looks(mode, found, nullcontext)  # type: ignore[arg-type]


def test_a_look_sees_the_moment_and_changes_nothing_of_the_run(found):
    model = nn.Linear(64, 64)
    (model(torch.randn(8, 64)) ** 2).sum().backward()  # the backward engine runs before the fork and after it
    kept, stream = model.weight.detach().clone(), torch.get_rng_state()

    def look():
        with torch.no_grad():
            model.weight.fill_(2.0)
        loss = (model(torch.ones(1, 64)) ** 2).sum()
        loss.backward()
        torch.manual_seed(7)
        return {"sum": float(model.weight.detach().sum())}

    make(found).take("weights", look)
    assert found["weights"] == Look({"sum": 2.0 * 64 * 64})
    assert torch.equal(model.weight, kept)
    assert torch.equal(torch.get_rng_state(), stream)


def test_the_last_moment_held_is_the_one_that_speaks(found):
    looks, state = make(found), torch.zeros(1)
    for value in (1.0, 2.0):
        state.fill_(value)
        looks.hold("state", lambda: {"value": float(state)})
    state.fill_(9.0)
    assert found == {}
    looks.settle()
    assert found == {"state": Look({"value": 2.0})}


def test_moments_are_held_ever_more_rarely(found):
    looks = make(found)
    for number in range(1, 100):
        looks.hold("moment", lambda number=number: {"number": number})
    looks.settle()
    assert found["moment"].values == {"number": 64}


def test_a_moment_that_is_given_up_says_why(found):
    looks = make(found)
    looks.hold("moment", lambda: {"number": 1})
    looks.forget("moment", "it is not needed")
    looks.forget("another", "it was never held")
    looks.settle()
    assert found == {"moment": Look(None, "it is not needed")}


@pytest.mark.parametrize(
    ("look", "problem"),
    [
        (lambda: 1 / 0, "it raised ZeroDivisionError: division by zero"),
        (lambda: os._exit(3), "its process died"),
        (lambda: {"tensor": torch.ones(1)}, "its process died"),
        (lambda: time.sleep(60), "it took longer than 0.3 s"),
        (lambda: sum(iter(lambda: 1, 0)), "it took longer than 0.3 s"),
    ],
)
def test_what_goes_wrong_in_a_look_is_its_problem_alone(found, look, problem):
    make(found).take("bad", look, deadline=0.3)
    assert found["bad"] == Look(None, problem)


def test_more_than_a_pipe_holds_comes_back_whole(found):
    make(found).take("long", lambda: {"text": "x" * 300_000})
    assert len(found["long"].values["text"]) == 300_000


def test_what_a_look_prints_is_seen_by_nobody(found, capfd):
    make(found).take("loud", lambda: {"printed": print("from the look") or os.write(1, b"raw\n")})
    assert found["loud"].values == {"printed": 4}
    assert capfd.readouterr().out == ""


def test_no_child_is_left_behind(found, monkeypatch):
    started: list[int] = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: started.append(fork()) or started[-1])
    looks = make(found)
    looks.take("one", lambda: {})
    looks.hold("two", lambda: {})
    looks.hold("two", lambda: {})
    looks.settle()
    assert len(started) == 3
    for process in started:
        with pytest.raises(ChildProcessError):
            os.waitpid(process, os.WNOHANG)


def test_in_place_a_look_runs_in_this_process(found):
    looks = make(found, "in_place")
    looks.take("here", lambda: {"process": os.getpid()})
    looks.hold("there", lambda: {"process": os.getpid()})
    assert found["here"].values == found["there"].values == {"process": os.getpid()}


def test_looks_that_are_off_or_out_of_time_are_not_taken(found, monkeypatch):
    off = make(found, "off")
    off.take("off", lambda: {})
    off.hold("off", lambda: {})
    off.settle()
    assert found == {}
    monkeypatch.setattr(looks_module, "ALL_LOOKS_SECONDS", 0.0)
    make(found).take("late", lambda: {})
    assert found["late"] == Look(None, "looks had taken 0 s before")
