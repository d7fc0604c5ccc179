"""A turn on the screen (floor 15): text to stdout as it arrives, facts to stderr, and the exit status at its end.

On a terminal stderr shows calls, retries and approvals as they happen. Ctrl-C once ends the turn, which is recorded;
twice leaves at once.
"""

import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import anyio
import anyio.abc

from spine import late
from spine.cli.acting import this_user
from spine.cli.ending import FAILS, HOLDS, INTERRUPTED, NO_VERDICT, WRONG_USE, drop_output
from spine.cli.hints import in_store
from spine.cli.screen import is_terminal, note, out_json
from spine.cli.talk.margin import Margin
from spine.errors import TurnFailed
from spine.events import (
    ApprovalRequested,
    MessageCommitted,
    ModelAttemptFailed,
    RecordedEvent,
    ToolCompleted,
    ToolStarted,
)
from spine.llm.chunks import Chunk, TextDelta
from spine.projectors import SessionUsage
from spine.projectors.json import plain
from spine.projectors.phrases import call_text, duration, json_text, kind_of, money, with_reason
from spine.projectors.visible import one_line, visible
from spine.session import Session
from spine.turn import Turn

__all__ = ["Screen", "end_turn", "interruptible", "settled", "shown"]

T = TypeVar("T")


# ----------------------------------------------------------------------------------------------------------- screen


class Screen:
    """Shows what a session does. `is_silent`: no live text and no progress, for commands that print facts."""

    def __init__(self, session: Session, *, is_silent: bool = False) -> None:
        self._orders = {tool.name: _required(tool.definition.parameters) for tool in session.agent.own_tools}
        self._is_silent = is_silent
        self._progress = is_terminal(sys.stderr) and not is_silent
        self._margin = Margin() if is_terminal(sys.stdout) else None
        self._is_mid_line = False
        self._has_text = False
        self._new_step = False

    def chunk(self, chunk: Chunk) -> None:
        """Print a piece of text as it arrives; a new step's text is a new paragraph."""
        if type(chunk) is not TextDelta or self._is_silent or not chunk.text:
            return
        if self._new_step and self._has_text:
            self._write("\n")
        self._new_step, self._has_text = False, True
        self._write(chunk.text if self._margin is None else self._margin.indent(visible(chunk.text)))
        self._is_mid_line = not chunk.text.endswith("\n")

    def event(self, event: RecordedEvent) -> None:
        """Print a fact, when somebody looks."""
        kind = type(event.data)
        if kind in (MessageCommitted, ModelAttemptFailed):
            self.end_line()
            self._new_step = True
        tell = _FACTS.get(kind)
        if tell is not None and self._progress:
            self.end_line()
            note(f"  {tell(event.data, self._orders)}")

    def end_line(self) -> None:
        """What is printed next begins a line."""
        if self._is_mid_line:
            self._write("\n")
        if self._margin is not None:
            self._margin.end_line()
        self._is_mid_line = False

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:  # the turn goes on, and is recorded, without a reader
            drop_output()


Orders = Mapping[str, tuple[str, ...]]


def _required(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(str, parameters.get("required") or ()))


def _started(data: ToolStarted, orders: Orders) -> str:
    return f"> {call_text(data.name, data.arguments, None, orders.get(data.name, ()))}"


def _completed(data: ToolCompleted, orders: Orders) -> str:
    took = "" if data.duration_s is None else f" in {duration(data.duration_s)}"
    return f"< {data.status}{took}"


def _asked(data: ApprovalRequested, orders: Orders) -> str:
    return f"? {with_reason(waiting_text(data, orders), data.reason)}"


def _attempt_failed(data: ModelAttemptFailed, orders: Orders) -> str:
    again = "" if data.delay_s is None else f", again in {duration(data.delay_s)}"
    withdrawn = ", what it had written is withdrawn" if data.discarded else ""
    return f"! attempt {data.attempt} failed: {kind_of(data.failure)}{withdrawn}{again}"


_FACTS: Final[Mapping[type, Callable[[Any, Orders], str]]] = {
    ToolStarted: _started,
    ToolCompleted: _completed,
    ApprovalRequested: _asked,
    ModelAttemptFailed: _attempt_failed,
}


def waiting_text(approval: ApprovalRequested, orders: Orders) -> str:
    """`a1  refund(order_id="1017", amount_cents=1290)`."""
    call = call_text(approval.name, approval.arguments, None, orders.get(approval.name, ()))
    return f"{one_line(approval.id)}  {call}"


@contextmanager
def shown(session: Session, *, is_silent: bool = False) -> Iterator[Screen]:
    """Show what the session does inside the block."""
    screen = Screen(session, is_silent=is_silent)
    disposers = (session.watch(screen.chunk), session.log.observe(screen.event))
    try:
        yield screen
    finally:
        for dispose in disposers:
            dispose()
        screen.end_line()


# ----------------------------------------------------------------------------------------------------- interruption


async def interruptible(session: Session, work: Callable[[], Awaitable[T]]) -> T:
    """Await `work`; Ctrl-C once asks the session's turn to stop, twice (or without a turn) leaves at once.

    Raises `KeyboardInterrupt` when it was left; the closing facts are written first.
    """
    is_left = False
    result: list[T] = []

    async def listen(scope: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        nonlocal is_left
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            is_asked = False
            async for _ in signals:
                if is_asked or not session.is_running:
                    is_left = True
                    scope.cancel()
                    return
                is_asked = True
                note("stopping; Ctrl-C again leaves at once")
                await session.cancel("interrupted", by=this_user())

    async with anyio.create_task_group() as group:
        await group.start(listen, group.cancel_scope)
        result.append(await work())
        group.cancel_scope.cancel()
    if is_left or not result:
        raise KeyboardInterrupt
    return result[0]


async def settled(work: Awaitable[Turn]) -> Turn:
    """The turn, also when it failed."""
    try:
        return await work
    except TurnFailed as error:
        turn: Turn = error.turn
        return turn


# -------------------------------------------------------------------------------------------------------------- end


def end_turn(session: Session, turn: Turn, screen: Screen, *, as_json: bool) -> int:
    """Say how a turn ended, and return the exit status."""
    screen.end_line()
    if as_json:
        out_json(turn_fact(session, turn))
    for warning in turn.warnings:
        note(f"note: {one_line(warning)}")
    return _ENDINGS[turn.status](session, turn)


def _ended_well(session: Session, turn: Turn) -> int:
    if is_terminal(sys.stderr):
        figures = session.log.project(SessionUsage()).turns.get(turn.id)
        note(f"\nturn {turn.id} completed: {figures}   (session {session.id}; go on: {_try(session, 'spine run -c')})")
    return HOLDS


def _failed(session: Session, turn: Turn) -> int:
    failure = turn.error
    kind, text = ("internal", "") if failure is None else (failure.category, failure.message)
    if failure is not None and failure.status is not None and kind == "not_found":
        text, hint = late.load("spine.cli.talk.missing_model").not_found(session.log, failure), "spine models"
    else:
        verb = "retry" if failure is not None and failure.retryable else "log"
        hint = _try(session, f"spine {verb} {session.id}")
    note(f"turn {turn.id} failed: {one_line(text)}{'' if text.endswith('.') else '.'} Try: {hint}  [{kind}]")
    return FAILS


def _try(session: Session, command: str) -> str:
    return in_store(command, session.log.store.url)


def _cancelled(session: Session, turn: Turn) -> int:
    note(
        f"turn {turn.id} was cancelled and is recorded. Try: {_try(session, f'spine retry {session.id}')}  [cancelled]"
    )
    return INTERRUPTED


def _suspended(session: Session, turn: Turn) -> int:
    orders = {tool.name: _required(tool.definition.parameters) for tool in session.agent.own_tools}
    for approval in turn.approvals:
        stale = session.log.status.approvals.get(approval.replaces or "")
        if stale is not None and stale.decision is not None:
            note(_stale_text(stale.request, approval))
        what = with_reason(waiting_text(approval, orders), approval.reason)
        hint = _try(session, f"spine approve {approval.id} --session {session.id}")
        note(f"turn {turn.id} waits: {what}. Try: {hint}  [suspended]")
    return NO_VERDICT


def _stale_text(asked: ApprovalRequested, again: ApprovalRequested) -> str:
    """`approval a2 of refund no longer fits: amount_cents was 1290 when asked, is 9900 now; …`."""
    before, now = asked.arguments, again.arguments
    changed = [
        f"{one_line(name)} was {json_text(before.get(name))} when asked, is {json_text(now.get(name))} now"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    what = ", ".join(changed) or "its tool, its policy or the plugins are not those of when it was asked"
    return (
        f"approval {one_line(asked.id)} of {one_line(asked.name)} no longer fits: {what}; "
        f"it was asked again as {one_line(again.id)}  [approval_stale]"
    )


def _open(session: Session, turn: Turn) -> int:
    note(f"turn {turn.id} is not finished. Try: {_try(session, f'spine resume {session.id}')}  [open]")
    return WRONG_USE


_ENDINGS: Final[Mapping[str, Callable[[Session, Turn], int]]] = {
    "completed": _ended_well,
    "failed": _failed,
    "cancelled": _cancelled,
    "suspended": _suspended,
    "open": _open,
}


def turn_fact(session: Session, turn: Turn) -> dict[str, Any]:
    """A turn for programs."""
    cost = None if turn.cost is None else {**plain(turn.cost), "text": money(turn.cost)}
    return {
        "session": session.id,
        "turn": turn.id,
        "status": turn.status,
        "text": turn.text,
        "stop_reason": turn.stop_reason,
        "steps": turn.steps,
        "retries": turn.retries,
        "usage": plain(turn.usage),
        "cost": cost,
        "tool_calls": [_call_fact(call) for call in turn.tool_calls],
        "approvals": [plain(approval) for approval in turn.approvals],
        "error": None if turn.error is None else plain(turn.error),
        "head": {"seq": turn.head[0], "hash": turn.head[1].hex()},
        "duration_s": turn.duration_s,
    }


def _call_fact(call: Any) -> dict[str, Any]:
    status = None if call.outcome is None else call.outcome.status
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "status": status}
