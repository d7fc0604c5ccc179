"""Who may claim a session: one living process at a time, a dead one's at once on its own host, else after its lease."""

import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from spine.errors import ConcurrencyConflict, SessionOwned
from spine.owning import claim, is_dead, this_process
from spine.store import Owner
from spine.stores.memory import MemoryStore
from spine.testing.store_trials import FIRST, LEASE, START, Writer

HERE = socket.gethostname()


@pytest.fixture(scope="module")
def dead_pid() -> int:
    """The pid of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def holder(host: str, pid: int) -> Owner:
    return Owner("holder", host, pid, START)


@pytest.mark.parametrize(
    ("host", "is_alive", "expected"),
    [(HERE, False, True), (HERE, True, False), ("elsewhere", False, False), ("elsewhere", True, False)],
    ids=["dead here", "alive here", "dead elsewhere", "alive elsewhere"],
)
def test_only_a_process_of_this_host_is_known_to_be_dead(
    host: str, is_alive: bool, expected: bool, dead_pid: int
) -> None:
    """It is taken over from at once, and what it still tries to append is refused; others keep their lease."""
    owner = holder(host, os.getppid() if is_alive else dead_pid)
    assert is_dead(owner) is expected
    store, me = MemoryStore(), this_process(START, 1)
    held = store.claim(FIRST, owner, now=START, lease_us=LEASE)
    if not expected:
        with pytest.raises(SessionOwned):
            claim(store, FIRST, me, now=START + LEASE - 1, lease_us=LEASE)
    when = START + (0 if expected else LEASE)
    taken = claim(store, FIRST, me, now=when, lease_us=LEASE)
    assert taken.token > held.token
    assert store.owner(FIRST) == (me, when + LEASE)
    (verdict,) = store.append([Writer(store, FIRST, held.token).batch(b"late")])
    assert isinstance(verdict, ConcurrencyConflict)


def test_this_process_is_alive_and_several_runtimes_of_it_are_told_apart() -> None:
    """Two runtimes of one process are two owners."""
    one, two = this_process(START, 1), this_process(START, 2)
    assert (one.host, one.pid) == (HERE, os.getpid())
    assert one.id != two.id
    assert not is_dead(one)
    store = MemoryStore()
    claim(store, FIRST, one, now=START, lease_us=LEASE)
    with pytest.raises(SessionOwned):
        claim(store, FIRST, two, now=START, lease_us=LEASE)


def test_a_process_that_may_not_be_asked_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to another user."""

    def refuse(pid: int, signal: int) -> Any:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not is_dead(holder(HERE, 1))
