"""What a runtime does for its open sessions all the time (floor 11): inboxes, leases, observers.

A store may be slow to answer, so this is a task of its own; and where the store waits, it is asked on a thread.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from spine.clock import Clock
from spine.commits import off_loop
from spine.errors import StoreError
from spine.hooks import Hooks
from spine.host import contained
from spine.log import LogReader, Synchronised
from spine.store import Owner, Store
from spine.values import SessionId

__all__ = ["LEASE_US", "keep", "tell_observers"]

LEASE_US: Final = 30_000_000
"""How long others stay out when this process stops renewing."""
INBOX_S: Final = 0.25
"""Time between two looks into the inboxes."""
RENEW_EVERY: Final = 20
"""Looks between two renewals."""
_logger = logging.getLogger("spine")


async def keep(store: Store, owner: Owner, clock: Clock, sessions: Mapping[SessionId, Any]) -> None:
    """Let `sessions` take what waits for them, and keep the leases of `owner`, for ever."""
    count = 0
    while True:
        await clock.pause(INBOX_S)
        count += 1
        await contained(lambda: _look(store, sessions))
        if count % RENEW_EVERY == 0:
            try:
                await off_loop(store, lambda: store.renew(owner, until=clock.now() + LEASE_US))
            except StoreError as error:  # the next one may go through; an append tells when the lease is lost
                _logger.warning("leases were not renewed: %s", error)


async def tell_observers(log: LogReader, hooks: Hooks, after: int) -> None:
    """Give each event committed after `after` to the lagging observers, from a cursor of their own."""
    async for event in log.follow(after):
        for implementation in () if isinstance(event, Synchronised) else hooks.chain("spine_event_recorded"):
            try:
                await implementation.function(**({"event": event} if implementation.arguments else {}))
            except (Exception, SystemExit):
                _logger.exception("plugin %s failed in spine_event_recorded", implementation.plugin)


async def _look(store: Store, sessions: Mapping[SessionId, Any]) -> None:
    for id in await off_loop(store, store.waiting):
        session = sessions.get(id)
        if session is not None and not session.log.is_closed:
            await contained(session.take_inbox)
