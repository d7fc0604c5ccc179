"""Who owns a session, and how it is claimed (floor 2): one living process at a time, a dead one's at once.

A host's name does not say where a pid counts: two containers may have the same name. So an owner's id ends with the
kernel's boot and the namespace of its pids, where those can be read (Linux), and with the time its process began, for
a pid is given again. Elsewhere the host's name must do.
"""

import logging
import os
import socket
from functools import cache
from hashlib import sha256
from pathlib import Path

from spine.errors import SessionOwned, StoreError
from spine.store import Claim, Owner, Store
from spine.values import SessionId

__all__ = ["claim", "end_leases", "is_dead", "this_process"]

_logger = logging.getLogger("spine")
_ended: set[str] = set()
"""Owners of this process that ended and could not give everything back."""


def this_process(now: int, number: int) -> Owner:
    """This process as an owner; `number` tells several runtimes in it apart."""
    pid, began = os.getpid(), _began(os.getpid())
    where = f"@{_place()}.{began}" if _place() and began else ""
    return Owner(id=f"{pid}-{now}-{number:x}{where}", host=socket.gethostname(), pid=pid, started=now)


@cache
def _place() -> str:
    """What tells this kernel and its view of processes from any other; empty where nothing tells."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        return sha256(f"{boot.strip()} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:16]
    except OSError:
        return ""


def _began(pid: int) -> str | None:
    """When a process of this place began, in ticks since the boot; empty when it has ended, None when nobody says."""
    try:
        # After the name, which may hold anything: the state, and as the twentieth field the time.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return None


def is_dead(owner: Owner) -> bool:
    """Whether an owner is known to be gone: a process of this place that does not exist any more, or one that ended."""
    if owner.id in _ended:
        return True
    place, _, began = owner.id.rpartition("@")[2].rpartition(".")
    if place and _place():
        if place != _place():
            return False
        found = _began(owner.pid)
        if found is not None:
            return found != began
    elif owner.host != socket.gethostname() or owner.pid == os.getpid():
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def claim(store: Store, session: SessionId, owner: Owner, *, now: int, lease_us: int) -> Claim:
    """Make `owner` the one writer. Raises `SessionOwned` while another one's lease runs, unless that one is dead."""
    try:
        return store.claim(session, owner, now=now, lease_us=lease_us)
    except SessionOwned:
        holder = store.owner(session)
        if holder is None or not is_dead(holder[0]):
            raise
        return store.claim(session, owner, now=now, lease_us=lease_us, take_over=True)


def end_leases(store: Store, owner: Owner, *, now: int) -> None:
    """Let everything that `owner` holds be claimed from now on; by this process also when the store fails even here."""
    _ended.add(owner.id)  # a claim that seemed to fail may come to light when the disk is read again
    try:
        store.renew(owner, until=now)
    except StoreError as error:
        _logger.info("leases could not be ended: %s", error)
