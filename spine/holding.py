"""Erasing while sessions are open here (floor 11): those concerned stand still, and then read their logs anew."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio

from spine.commits import off_loop
from spine.erasing import Erased, carry_out, plan
from spine.errors import SessionBusy, SpineError
from spine.store import Claim, Store
from spine.stored import StoredLog
from spine.values import SessionId

__all__ = ["erase_held"]


async def erase_held(
    source: StoredLog,
    seqs: Sequence[int],
    contents: Sequence[str],
    opened: Mapping[SessionId, Any],
    release: Callable[[SessionId], None],
    claim: Callable[[SessionId], Claim],
    **facts: Any,
) -> Erased:
    """`spine.erasing.erase`; of the `opened` sessions those concerned are released before and claimed again after it.

    They are claimed again whether it worked or not. Raises `SessionBusy` while one of them has an open turn, and what
    erasing raises; nothing is erased then.
    """
    store = source.store
    planned = await off_loop(store, plan, source, seqs, contents)
    held: list[Any] = []
    try:
        for session in [opened[each] for each in planned.concerned if each in opened]:
            error = SessionBusy(f'session "{session.id}" stands still while something of it is erased; try again')
            await session.log.hold(session.check_idle, error)
            held.append(session)
        for session in held:
            await off_loop(store, release, session.id)
        return await off_loop(store, partial(carry_out, planned, **facts))
    finally:
        with anyio.CancelScope(shield=True):
            for session in held:
                await _go_on(store, session, claim)


async def _go_on(store: Store, session: Any, claim: Callable[[SessionId], Claim]) -> None:
    if not session.log.is_held:  # it was closed meanwhile
        return
    try:
        await session.reload(await off_loop(store, claim, session.id))
    except SpineError as error:  # another process was faster, say; opening it again tells
        session.log.close(error)
