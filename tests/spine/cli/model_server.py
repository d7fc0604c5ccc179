"""A Chat Completions server on this machine that answers from a list: what command-line tests talk to."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ModelServer(ThreadingHTTPServer):
    """`answers` are played one per request; `requests` are the bodies that came."""

    daemon_threads = True

    def __init__(self, answers: Sequence[dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.go_on = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


def say(*pieces: str, wait_before: int | None = None, for_ever: bool = False) -> dict[str, Any]:
    """Text in pieces; before piece `wait_before` the server waits for `go_on`; `for_ever`: it never ends."""
    return {"deltas": [{"content": piece} for piece in pieces], "wait_before": wait_before, "for_ever": for_ever}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A tool call."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"deltas": [{"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}]}


def fail(status: int, message: str = "no") -> dict[str, Any]:
    """An error answer."""
    return {"status": status, "message": message}


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append(json.loads(body))
        answer = self.server.answers.pop(0) if self.server.answers else fail(400, "the list of answers is empty")
        if "status" in answer:
            self._send(answer["status"], json.dumps({"error": {"message": answer["message"]}}).encode())
        else:
            self._stream(answer)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, answer: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        deltas = answer["deltas"]
        for number, delta in enumerate(deltas):
            if number == answer.get("wait_before"):
                self.server.go_on.wait(20)
            self._event({"choices": [{"index": 0, "delta": delta}]})
        if answer.get("for_ever"):
            self.server.go_on.wait(20)
            return
        reason = "tool_calls" if "tool_calls" in deltas[-1] else "stop"
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        self._event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, data: dict[str, Any]) -> None:
        text = json.dumps({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "tiny", **data})
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Silence."""


@contextmanager
def serving(*answers: dict[str, Any]) -> Iterator[ModelServer]:
    """A server for the block."""
    server = ModelServer(answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
