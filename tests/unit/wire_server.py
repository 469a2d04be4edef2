"""A real HTTP server on loopback that behaves as told, well or badly, and keeps what it was sent."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from weaklink.agent.cli.said import SaidAdvisor
from weaklink.agent.conversation.messages import Form, Message
from weaklink.agent.endpoint.settings import resolve_endpoint
from weaklink.agent.endpoint.speaker import ChatCompletions
from weaklink.agent.progress import Progress
from weaklink.agent.settings import ModelSettings

KEY = "wl-local-0123456789abcdef"
FORM = Form("answer", {"type": "object", "properties": {"boundary": {"type": "string"}}, "required": ["boundary"]})
QUESTION = [Message(role="system", content="Answer in JSON."), Message(role="user", content="Which boundary?")]
ANSWER = '{"boundary": "OWNERSHIP"}'

Act = Callable[["Handler", dict[str, Any]], None]


@dataclass
class Served:
    """What a server was sent: headers and bodies, in order."""

    base_url: str
    acts: tuple[Act, ...]
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)


class Handler(BaseHTTPRequestHandler):
    served: Served

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        act = self.served.acts[min(len(self.served.bodies), len(self.served.acts) - 1)]
        self.served.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.served.bodies.append(body)
        self.served.paths.append(self.path)
        with contextlib.suppress(OSError):  # whoever asked has left
            act(self, body)

    def begin(self, kind: str = "text/event-stream", status: int = 200, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def event(self, chunk: dict[str, Any] | str) -> None:
        text = chunk if isinstance(chunk, str) else json.dumps(chunk)
        self.wfile.write(f"data: {text}\n\n".encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def serving(*acts: Act) -> Iterator[Served]:
    """Act in order, the last one again and again, until the block ends."""
    served = Served("", acts)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"served": served}))
    served.base_url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        served.gone.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


def speaker(
    base_url: str, deadline: float = 5.0, file: dict[str, Any] | None = None, environment: dict[str, str] | None = None
) -> ChatCompletions:
    """A speaker for a server on loopback, with a key of its own."""
    said = SaidAdvisor(model="small", base_url=base_url)
    settings = ModelSettings(deadline=deadline, **(file or {}))
    endpoint = resolve_endpoint(said, {"WEAKLINK_API_KEY": KEY} if environment is None else environment, settings)
    return ChatCompletions(endpoint, Progress())


def delta(content: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    part = more | ({} if content is None else {"content": content})
    return {"model": "small-1", "choices": [{"index": 0, "delta": part, "finish_reason": finish}]}


def says(text: str = ANSWER, finish: str = "stop", **usage: Any) -> Act:
    """A whole streamed answer; as the arguments of a call where one was asked for."""

    def act(handler: Handler, body: dict[str, Any]) -> None:
        handler.begin()
        for start in range(0, len(text), 7):
            piece = text[start : start + 7]
            if "tools" in body:
                call = {"index": 0, "id": "c", "type": "function", "function": {"name": "answer", "arguments": piece}}
                handler.event(delta(tool_calls=[call]))
            else:
                handler.event(delta(piece))
        handler.event(delta(finish=finish))
        if body.get("stream_options"):
            handler.event({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10, **usage}})
        handler.event("[DONE]")

    return act


def gives(status: int, body: object = None, **headers: str) -> Act:
    """A status with a body: JSON, or a text as it is."""

    def act(handler: Handler, request: dict[str, Any]) -> None:
        kind = "text/html" if isinstance(body, str) and body.startswith("<") else "application/json"
        handler.begin(kind, status, **headers)
        handler.wfile.write(b"" if body is None else (body if isinstance(body, str) else json.dumps(body)).encode())

    return act


def sends(*chunks: dict[str, Any] | str | bytes | float) -> Act:
    """Chunks of a stream; bytes go out as they are, a number is a pause in seconds. No end is added."""

    def act(handler: Handler, request: dict[str, Any]) -> None:
        handler.begin()
        for chunk in chunks:
            if isinstance(chunk, float):
                handler.served.gone.wait(chunk)
            elif isinstance(chunk, bytes):
                handler.wfile.write(chunk)
            else:
                handler.event(chunk)
            handler.wfile.flush()

    return act


def refuses(concerns: Callable[[dict[str, Any]], str | None], status: int = 400) -> Act:
    """Refuse a request by naming what it concerns; answer where it concerns nothing."""

    def act(handler: Handler, body: dict[str, Any]) -> None:
        named = concerns(body)
        if named is None:
            says()(handler, body)
        else:
            gives(status, {"error": {"message": f"Unsupported: {named}", "param": named}})(handler, body)

    return act


def trickles(every: float) -> Act:
    """One character after the other, for ever."""

    def act(handler: Handler, request: dict[str, Any]) -> None:
        handler.begin()
        while not handler.served.gone.wait(every):
            handler.event(delta("x"))

    return act


def keeps_silent() -> Act:
    """Read the request, and say nothing until the test is over."""
    return lambda handler, request: handler.served.gone.wait(30) and None


def taken(start: float) -> float:
    """Seconds since."""
    return time.monotonic() - start
