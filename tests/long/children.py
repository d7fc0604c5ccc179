"""Work in forked processes: the parent never runs an event loop, so that it can fork again and again."""

import json
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn


class Ended(NamedTuple):
    """How a child ended: what it returned, as JSON, or None; and whether it was killed."""

    value: Any
    was_killed: bool


def in_child(work: Callable[[], Any], seconds: int = 20) -> Ended:
    """Run `work` in a forked process and wait for it; it is stopped after `seconds`. Raises what `work` raised."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        signal.alarm(seconds)
        _be_child(work, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) == signal.SIGALRM:
            raise TimeoutError(f"a child did not end within {seconds} s")
        return Ended(None, True)
    value = json.loads(data)
    if "error" in value:
        raise RuntimeError(f"a child failed:\n{value['error']}")
    return Ended(value["value"], False)


def _be_child(work: Callable[[], Any], writing: int) -> NoReturn:
    try:
        answer = {"value": work()}
    except BaseException:
        answer = {"error": traceback.format_exc()}
    data = json.dumps(answer).encode()
    while data:
        data = data[os.write(writing, data) :]
    sys.stdout.flush()
    os._exit(0)


class Server:
    """A forked process that answers requests one by one; it may run event loops and threads, its parent need not."""

    def __init__(self, handle: Callable[[Any], Any]) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._pid = os.fork()
        if not self._pid:
            self._pipe.close()
            _serve(handle, theirs)
        theirs.close()

    def ask(self, request: Any, seconds: int = 30) -> Any:
        """The answer to a request, within some seconds. Raises `RuntimeError` for what the handler raised."""
        self._pipe.send(request)
        if not self._pipe.poll(seconds):
            raise TimeoutError(f"no answer within {seconds} s to {request}")
        answer, error = self._pipe.recv()
        if error is not None:
            raise RuntimeError(f"a child failed:\n{error}")
        return answer

    def close(self) -> None:
        """Let it end."""
        self._pipe.close()
        os.waitpid(self._pid, 0)


def _serve(handle: Callable[[Any], Any], pipe: Any) -> NoReturn:
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            answer = (handle(request), None)
        except BaseException:
            answer = (None, traceback.format_exc())
        pipe.send(answer)


def in_workers(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run all `works` at once, each in a process of its own; what they returned, as JSON."""
    pipes = []
    for work in works:
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reading)
            _be_child(work, writing)
        os.close(writing)
        pipes.append((pid, reading))
    answers = []
    for pid, reading in pipes:
        with os.fdopen(reading, "rb") as pipe:
            data = pipe.read()
        os.waitpid(pid, 0)
        answers.append(json.loads(data or b'{"error": "a worker was killed"}'))
    for answer in answers:
        if "error" in answer:
            raise RuntimeError(f"a worker failed:\n{answer['error']}")
    return [answer["value"] for answer in answers]
