"""A store in another process: its calls are made there, over a pipe. Run as a program, it is that process."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from spine.errors import ConcurrencyConflict, SessionOwned, SessionUnknown
from spine.store import Store
from spine.stores.opening import open_store
from spine_postgres import open_store as open_postgres

_ERRORS = {error.__name__: error for error in (SessionOwned, SessionUnknown)}


class SecondProcess:
    """The process; `store` gives one that works there."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def store(self, url: str) -> Any:
        """The sessions of `url`, as that process sees them."""
        self.ask("open", url)
        return _Distant(self)

    def ask(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method there; what it raises is raised here."""
        assert self._process.stdin
        assert self._process.stdout
        pickle.dump((method, args, options), self._process.stdin)
        self._process.stdin.flush()
        kind, value = pickle.load(self._process.stdout)
        if kind == "raised":
            name, text = value
            raise _ERRORS.get(name, RuntimeError)(text)
        return [_conflict(each) for each in value] if method == "append" else value

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


class _Distant:
    def __init__(self, process: SecondProcess) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: self._process.ask(name, *args, **options)


def _conflict(told: Any) -> Any:
    return None if told is None else ConcurrencyConflict(told[0], actual_seq=told[1], actual_hash=told[2])


@contextmanager
def second_process() -> Iterator[SecondProcess]:
    """A process that is ended at the end."""
    process = SecondProcess()
    try:
        yield process
    finally:
        process.close()


def serve() -> None:
    """Be the second process: answer until the pipe ends."""
    store: Store | None = None
    while True:
        try:
            method, args, options = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            if method == "open":
                store = open_store(*args, {"postgresql": open_postgres})
                answer: Any = None
            else:
                answer = getattr(store, method)(*args, **options)
            if method == "append":
                answer = [_told(verdict) for verdict in answer]
            said = ("returned", answer)
        except Exception as error:
            said = ("raised", (type(error).__name__, str(error)))
        pickle.dump(said, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _told(verdict: Any) -> Any:
    return None if verdict is None else (str(verdict), verdict.actual_seq, verdict.actual_hash)


if __name__ == "__main__":
    serve()
