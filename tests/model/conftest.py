"""A real model behind real servers. Not part of `make test`: `make test-model` builds the servers first.

With WEAKLINK_TEST_BASE_URL, WEAKLINK_TEST_MODEL and WEAKLINK_TEST_API_KEY the same tests ask another endpoint, and what
only the built servers are known for is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import BUILD, Built, Server, built, given, llama_server, python_server


@pytest.fixture(scope="session")
def where() -> Built:
    """What was built; skips where only an endpoint was given."""
    found = built()
    if found is None:
        if given() is not None:
            pytest.skip("asks an endpoint that was given; no server was built here")
        pytest.fail(f"there is no model server: {BUILD}")
    return found


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the servers' logs lie; pytest keeps the folder after a failure and names it."""
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="session")
def llama(where: Built, logs: Path) -> Iterator[Server]:
    with llama_server(where, logs / "llama-server.log") as server:
        yield server


@pytest.fixture(scope="session")
def python_bindings(where: Built, logs: Path) -> Iterator[Server]:
    with python_server(where, logs / "python-server.log") as server:
        yield server


SERVERS = ["given"] if given() is not None else ["llama", "python_bindings"]


@pytest.fixture(scope="session", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    """Each server in turn, or the one that the environment names."""
    return _named(request.param, request)


@pytest.fixture(scope="session")
def one_server(request: pytest.FixtureRequest) -> Server:
    """The first of them, where one is enough."""
    return _named(SERVERS[0], request)


def _named(name: str, request: pytest.FixtureRequest) -> Server:
    found = given() if name == "given" else request.getfixturevalue(name)
    assert isinstance(found, Server)
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """After a failure, the last lines of each server's log."""
    report = yield
    if report.failed:
        funcargs = getattr(item, "funcargs", {})
        for each in funcargs.values():
            if isinstance(each, Server) and each.log is not None:
                text = each.log.read_text(encoding="utf-8", errors="replace")[-3000:]
                report.sections.append((f"log of {each.kind} ({each.log})", text))
    return report
