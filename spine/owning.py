"""Who owns a session, and how it is claimed (floor 2): one living process at a time, a dead one's at once."""

import logging
import os
import socket

from spine.errors import SessionOwned, StoreError
from spine.store import Claim, Owner, Store
from spine.values import SessionId

__all__ = ["claim", "end_leases", "is_dead", "this_process"]

_logger = logging.getLogger("spine")
_ended: set[str] = set()
"""Owners of this process that ended and could not give everything back."""


def this_process(now: int, number: int) -> Owner:
    """This process as an owner; `number` tells several runtimes in it apart."""
    return Owner(id=f"{os.getpid()}-{now}-{number:x}", host=socket.gethostname(), pid=os.getpid(), started=now)


def is_dead(owner: Owner) -> bool:
    """Whether an owner is known to be gone: a process of this host that does not exist any more, or one that ended."""
    if owner.id in _ended:
        return True
    if owner.host != socket.gethostname() or owner.pid == os.getpid():
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
