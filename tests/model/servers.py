"""The two servers as processes on a free loopback port: started, waited for, ended."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = 4096
MODEL = "smollm2"
READY_AFTER = 120.0  # seconds; a cold disk takes its time over 98 MB
BUILD = "`make test-model` builds it (tests/model/build_server.py)"


@dataclass(frozen=True)
class Server:
    """An endpoint that tests may ask. `log` is None for one that runs elsewhere."""

    kind: str
    base_url: str
    model: str
    key: str | None
    log: Path | None = None

    @property
    def port(self) -> int:
        return int(self.base_url.rsplit(":", 1)[1].split("/")[0])


@dataclass(frozen=True)
class Built:
    """Where build_server.py has put things."""

    python: str
    llama_server: str
    libraries: str
    model: str


def built(folder: Path | None = None) -> Built | None:
    """What was built, or None where nothing was."""
    place = folder or Path(os.environ.get("WEAKLINK_MODEL_VENV") or ROOT / ".venv-model")
    file = place / "server.json"
    return Built(**json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None


def given() -> Server | None:
    """The endpoint that the environment names, so that the same tests run against any model."""
    base_url = os.environ.get("WEAKLINK_TEST_BASE_URL")
    if not base_url:
        return None
    model = os.environ.get("WEAKLINK_TEST_MODEL") or MODEL
    return Server("given", base_url, model, os.environ.get("WEAKLINK_TEST_API_KEY") or None)


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def llama_server(where: Built, log: Path, context: int = CONTEXT, wait: bool = True) -> Iterator[Server]:
    """llama.cpp's own server: keeps to a JSON schema, knows its key, refuses what is longer than its context."""
    port, key = free_port(), f"key-{secrets.token_hex(8)}"
    words = ["--model", where.model, "--alias", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    words += ["--ctx-size", str(context), "--threads", "1", "--parallel", "1", "--api-key", key]
    with _process([where.llama_server, *words], log) as process:
        server = Server("llama-server", f"http://127.0.0.1:{port}/v1", MODEL, key, log)
        if wait:
            _wait(process, server, "/health")
        yield server


@contextlib.contextmanager
def python_server(where: Built, log: Path, context: int = CONTEXT) -> Iterator[Server]:
    """The Python bindings' server: 500 to a JSON schema, tool calls under one chat format."""
    port, key = free_port(), f"key-{secrets.token_hex(8)}"
    words = ["--model", where.model, "--model_alias", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    words += ["--n_ctx", str(context), "--n_threads", "1", "--n_threads_batch", "1", "--api_key", key]
    words += ["--chat_format", "chatml-function-calling"]
    with _process([where.python, "-m", "llama_cpp.server", *words], log, LLAMA_CPP_LIB_PATH=where.libraries) as process:
        server = Server("python-server", f"http://127.0.0.1:{port}/v1", MODEL, key, log)
        _wait(process, server, "/v1/models")
        yield server


@contextlib.contextmanager
def _process(command: list[str], log: Path, **changes: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **changes},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], server: Server, path: str) -> None:
    deadline = time.monotonic() + READY_AFTER
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{server.kind} ended with {process.returncode}: {_tail(server)}")
        if status(server, path) == 200:
            return
        time.sleep(0.1)
    raise RuntimeError(f"{server.kind} was not ready after {READY_AFTER:.0f} s: {_tail(server)}")


def status(server: Server, path: str) -> int | None:
    """What it answers to a GET; None where it does not listen yet."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {server.key}"})
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def _tail(server: Server) -> str:
    assert server.log is not None, "a server of ours has a log"
    return server.log.read_text(encoding="utf-8", errors="replace")[-2000:]
