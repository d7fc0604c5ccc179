"""Requests of other processes (floor 11): what lies in a session's inbox becomes events, each exactly once.

An entry and its event change hands in one transaction, so a crash leaves one of the two. What does not fit stays where
it is, and keeps nobody else waiting.
"""

import logging
from collections.abc import Callable, Iterable, Iterator

from spine.errors import UsageError, ValueRefused
from spine.events import InputAccepted
from spine.inputs import InboxEvent, inbox_event
from spine.log import SessionLog
from spine.store import InboxEntry
from spine.values import decode

__all__ = ["Inbox"]

_logger = logging.getLogger("spine")


class Inbox:
    """The inbox of one open session; `append` records events as the session does."""

    def __init__(self, log: SessionLog, append: Callable[..., int]) -> None:
        self._log = log
        self._append = append
        self._seen: set[int] = set()
        """Entries that were looked at; their batch may still be on its way."""

    def record(self, entries: Iterable[InboxEntry]) -> Iterator[InboxEvent]:
        """Append the event of each new entry, and give it to be acted on before the next one is looked at."""
        for entry in entries:
            if entry.number not in self._seen:
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
