"""A Chat Completions endpoint on loopback that says what it was given, and keeps what it was sent."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Endpoint:
    """Replies in order, the last one again and again; a number is a status without an answer."""

    replies: Sequence[str | int]
    base_url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def messages(self) -> list[list[dict[str, str]]]:
        return [request["messages"] for request in self.requests]


@contextlib.contextmanager
def scripted_endpoint(*replies: str | int | dict[str, Any]) -> Iterator[Endpoint]:
    """Serve these replies, streamed, until the block ends."""
    endpoint = Endpoint([json.dumps(reply) if isinstance(reply, dict) else reply for reply in replies])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said = endpoint.replies[min(len(endpoint.requests), len(endpoint.replies) - 1)]
            endpoint.requests.append(body)
            endpoint.headers.append(dict(self.headers))
            if isinstance(said, int):
                self.send_error(said)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for chunk in chunks(said, body["model"]):
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.base_url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()


def chunks(text: str, model: str) -> Iterator[dict[str, Any]]:
    """The parts of a streamed answer, as OpenAI's own endpoint sends them."""
    base = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": model}
    for start in range(0, len(text), 200):
        delta = {"role": "assistant", "content": text[start : start + 200]}
        yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    yield {**base, "choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050}}
