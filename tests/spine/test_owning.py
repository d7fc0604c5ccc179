"""Who may claim a session: one living process at a time, a dead one's at once on its own host, else after its lease."""

import os
import socket
import subprocess
import sys
import time
from typing import Any

import attrs
import pytest

from spine.errors import ConcurrencyConflict, SessionOwned
from spine.owning import claim, is_dead, this_process
from spine.store import Owner
from spine.stores.memory import MemoryStore
from spine.testing.stores.trials import FIRST, LEASE, START, Writer

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


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/ns/pid"), reason="the kernel tells nothing of processes")


@needs_proc
def test_a_pid_of_another_place_of_the_same_name_is_not_known_to_be_dead(dead_pid: int) -> None:
    """Two containers may have one name, and one may have pids that the other has not."""
    me = this_process(START, 1)
    left, _, where = me.id.partition("@")
    place, _, began = where.partition(".")
    here = attrs.evolve(me, pid=dead_pid)
    assert is_dead(here)
    assert not is_dead(attrs.evolve(here, id=f"{left}@{place[::-1]}.{began}"))


@needs_proc
def test_a_pid_that_was_given_again_is_another_process() -> None:
    """The one that had it is dead, also when this process has it now."""
    me = this_process(START, 1)
    assert not is_dead(me)
    assert is_dead(attrs.evolve(me, id=f"{me.id}0"))
    assert is_dead(attrs.evolve(me, id=f"{me.id}0", pid=os.getppid()))
    assert is_dead(attrs.evolve(me, host="a name it had before", id=f"{me.id}0"))


@needs_proc
def test_a_killed_process_that_nobody_waited_for_is_dead() -> None:
    """Its pid is still taken; whoever started it may never look."""
    code = (
        "import sys; from spine.owning import this_process; print(this_process(1, 1).id, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        owner = Owner(process.stdout.readline().decode().strip(), HERE, process.pid, 1)
        assert not is_dead(owner)
        process.kill()
        until = time.monotonic() + 5
        while not is_dead(owner) and time.monotonic() < until:
            time.sleep(0.01)
        assert is_dead(owner)
        os.kill(process.pid, 0)
