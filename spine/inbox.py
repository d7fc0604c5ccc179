"""Requests of other processes (floor 11): what lies in a session's inbox becomes events, each exactly once.

An entry and its event change hands in one transaction, so a crash leaves one of the two. What does not fit stays where
it is, and keeps nobody else waiting.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio

from spine.codec import Codec
from spine.commits import SETTLE_WAITS_S
from spine.errors import AppendOutcomeUnknown, StoreBusy, StoreUnavailable, UsageError, ValueRefused
from spine.events import InputAccepted
from spine.inputs import InboxEvent, checked_text, inbox_event
from spine.log import SessionLog
from spine.store import InboxEntry, Store
from spine.values import SessionId, decode, encode, freeze_object, thaw

__all__ = ["Inbox", "put", "put_settled"]

_logger = logging.getLogger("spine")


def put(store: Store, codec: Codec, session: SessionId, kind: str, data: Mapping[str, Any], key: str) -> bool:
    """Queue a request for whoever owns the session; False when `key` was used before.

    Raises `UsageError` for data that do not fit the kind, `ValueTooLarge` for what no log takes, `SessionUnknown`.
    """
    request, key = thaw(freeze_object(data)), checked_text("key", key)
    codec.encode_event(inbox_event(codec, kind, request, key))
    return put_settled(store, session, key, kind, encode(request))


def put_settled(store: Store, session: SessionId, key: str, kind: str, data: bytes) -> bool:
    """As `Store.put_inbox`; an answer that was lost is asked for again with the same key, so the request is there once.

    After a loss it is True also when the key was used before: that cannot be told from what arrived then.
    """
    try:
        return store.put_inbox(session, key, kind, data)
    except AppendOutcomeUnknown as lost:
        for wait_s in SETTLE_WAITS_S:
            time.sleep(wait_s)
            with suppress(AppendOutcomeUnknown, StoreUnavailable, StoreBusy):
                store.put_inbox(session, key, kind, data)
                return True
        raise lost


class Inbox:
    """The inbox of one open session; `append` records events as the session does."""

    def __init__(self, log: SessionLog, append: Callable[..., int]) -> None:
        self._log = log
        self._append = append
        self._seen: set[int] = set()
        """Entries that were looked at and lay there at the last look; their batch may still be on its way."""
        self._looking = anyio.Lock(fast_acquire=True)

    async def take(self, act: Callable[[InboxEvent], Awaitable[None]]) -> None:
        """Record what lies there, and act on each event before the next one is looked at."""
        async with self._looking:  # one who read before it and went on after it would take again what is forgotten here
            for event in self.record(await self._log.inbox()):
                await act(event)

    def record(self, entries: Sequence[InboxEntry]) -> Iterator[InboxEvent]:
        """Append the event of each new one of the entries, which are all there are, and give it to be acted on."""
        self._seen.intersection_update([entry.number for entry in entries])  # numbers of what was taken never come back
        for entry in entries:
            if entry.number not in self._seen and not self._log.is_held:  # then its turn comes later
                self._seen.add(entry.number)
                event = self._record(entry)
                if event is not None:
                    yield event

    def _record(self, entry: InboxEntry) -> InboxEvent | None:
        status = self._log.status
        try:
            event = inbox_event(self._log.codec, entry.kind, decode(entry.data), entry.key)
            if isinstance(event, InputAccepted) and event.key in status.keys:
                self._append(consumed=(entry.number,))  # it came by another way as well
                return None
            place = status.turn.id if status.turn is not None and not isinstance(event, InputAccepted) else None
            self._append(event, place=place, consumed=(entry.number,))
        except (UsageError, ValueRefused) as error:
            _logger.warning("inbox entry %d of session %s was not taken: %s", entry.number, self._log.session, error)
            return None
        return event
