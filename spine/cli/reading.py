"""Opening a store to look at it (floor 15): no lease, no runtime, and no agent of anybody is imported.

Only the newest or the named session is read. Plugins are loaded when a log holds events that they declare, and not
otherwise.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, TypeVar

from spine import late
from spine.cli.ending import HOLDS, NO_VERDICT, error_line
from spine.cli.screen import note
from spine.codec import Codec
from spine.config import Settings, load_settings
from spine.errors import EventUnknown, SessionUnknown
from spine.events import RecordedEvent, UnknownEvent
from spine.frozen import frozen
from spine.store import Row, SessionInfo, Store
from spine.stored import StoredLog
from spine.stores.opening import open_store, open_store_to_look
from spine.stores.urls import without_secrets
from spine.values import Digest, SessionId

__all__ = [
    "Reading",
    "check_there",
    "find_session",
    "is_there",
    "load_plugins",
    "open_configured",
    "reading",
    "reading_session",
    "up_to_unknown",
]

T = TypeVar("T")


def load_plugins(settings: Settings, codec: Codec) -> Any:
    """The installed plugins (`spine.plugins.Plugins`); their event types go into `codec`."""
    return late.load("spine.cli.installed").load_plugins(settings, codec)


class LateCodec(Codec):
    """A codec that learns the event types of plugins when it meets the first event of one."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._has_learnt = False

    def decode_row(
        self, session: SessionId, row: Row, prev_hash: bytes, contents: Callable[[Digest], bytes]
    ) -> RecordedEvent:
        """As `Codec.decode_row`."""
        event = super().decode_row(session, row, prev_hash, contents)
        if type(event.data) is not UnknownEvent or row.origin is None or self._has_learnt:
            return event
        self._has_learnt = True
        load_plugins(self._settings, self)
        return super().decode_row(session, row, prev_hash, contents)


@frozen
class Reading:
    """A store that is looked at."""

    settings: Settings
    store: Store
    codec: Codec

    def reader(self, session: str | None) -> StoredLog:
        """The log of a session: its id, a unique beginning of one, or the newest. Raises `SessionUnknown`."""
        return StoredLog(self.store, self.codec, find_session(self.store, session))


@contextmanager
def reading(store: str | None, *, agent: str | None = None) -> Iterator[Reading]:
    """Open the configured store, or `store`, which must be there already. `agent` is only noted in the settings."""
    settings = load_settings(arguments={"store": store, "agent": agent})
    url = check_there(settings)
    codec = LateCodec(settings)
    opened = open_store_to_look(url) if _is_ours(url) else open_configured(settings, codec)
    try:
        yield Reading(settings, opened, codec)
    finally:
        opened.close()


def check_there(settings: Settings) -> str:
    """The URL of the configured store. Raises `SessionUnknown` where none was made yet."""
    url = settings.store or ""
    if not is_there(url):
        raise SessionUnknown(f"there is no store at {without_secrets(url)} yet, so no session", hint="spine demo")
    return url


def is_there(url: str) -> bool:
    """Whether a store may be at a URL: false only where a file would have to be made."""
    scheme, _, rest = url.partition(":")
    return scheme != "sqlite" or os.path.exists(rest.partition("?")[0])


def _is_ours(url: str) -> bool:
    return url.partition(":")[0] in ("sqlite", "memory")


def open_configured(settings: Settings, codec: Codec) -> Store:
    """The configured store, to be changed; plugins are loaded when it is of a kind that is not the core's own."""
    url = settings.store or ""
    if _is_ours(url):
        return open_store(url)
    offered = load_plugins(settings, codec).registries.stores.resolve(None).entries
    return open_store(url, {scheme: entry.value for scheme, entry in offered.items()})


@contextmanager
def reading_session(store: str | None, session: str | None, *, check: bool = False) -> Iterator[StoredLog]:
    """The log of a session of the store; or of the export that `session` is the path of.

    With `check` an export whose chain is broken is refused, and one whose end is missing is noted.
    """
    if session is not None and _is_path(session):
        with late.load("spine.cli.exported").opened(session, LateCodec(load_settings()), check=check) as reader:
            yield reader
        return
    with reading(store) as opened:
        yield opened.reader(session)


def _is_path(text: str) -> bool:
    """No session id has a dot or a slash; `-` is an export on stdin."""
    return text == "-" or "." in text or os.sep in text


def up_to_unknown(read: Callable[[int | None], T], until: int | None) -> tuple[T, int]:
    """What `read` makes of a log up to seq `until`, and the command's exit status.

    Without `until`, a log with an event that must be known and is not is read up to that event, with a note.
    """
    try:
        return read(until), HOLDS
    except EventUnknown as error:
        if until is not None or error.seq < 2:
            raise
        note(error_line(error))
        return read(error.seq - 1), NO_VERDICT


def find_session(store: Store, wanted: str | None) -> SessionId:
    """The id that `wanted` is, or is the unique beginning of; None means the newest. Raises `SessionUnknown`."""
    infos = store.sessions()
    if not infos:
        raise SessionUnknown(f"no session in {store.url} yet", hint="spine demo")
    if wanted is None:
        return infos[-1].id
    exact = [info.id for info in infos if info.id == wanted]
    beginning = exact or [info.id for info in infos if info.id.startswith(wanted)]
    if len(beginning) == 1:
        return beginning[0]
    raise _unknown(store, wanted, infos, beginning)


def _unknown(store: Store, wanted: str, infos: list[SessionInfo], beginning: list[SessionId]) -> SessionUnknown:
    if beginning:
        some = ", ".join(beginning[-5:]) + (", …" if len(beginning) > 5 else "")
        return SessionUnknown(
            f'"{wanted}" is the beginning of {len(beginning)} sessions in {store.url}: {some}', hint="spine sessions"
        )
    near = get_close_matches(wanted, [info.id for info in infos], 1)
    nearest = f"; nearest is {near[0]}" if near else ""
    count = f"{len(infos):,} session{'' if len(infos) == 1 else 's'}"
    return SessionUnknown(f'no session "{wanted}" in {store.url} ({count}){nearest}', hint="spine sessions")
