"""`approvals`, `approve`, `deny` (floor 15): decisions of people, from any process.

A decision about a session that a living process owns goes into its inbox; otherwise the turn goes on here. Without the
session's agent the decision is queued in the store, and taken by whoever resumes the session.
"""

import time
from collections.abc import Iterator
from typing import Any, Final, Literal

import anyio
import attrs
import click

from spine.cli.acting import now, this_user
from spine.cli.agents import ChosenAgent, choose_agent, recorded_agent
from spine.cli.ending import HOLDS, NO_VERDICT
from spine.cli.hints import in_store
from spine.cli.options import options
from spine.cli.reading import Reading, find_session, reading
from spine.cli.screen import note, out, out_json
from spine.cli.talk.turns import end_turn, interruptible, settled, shown
from spine.config import Settings
from spine.errors import ApprovalUnknown
from spine.events import ApprovalDecided, SessionCreated
from spine.inbox import put_settled
from spine.owning import is_dead
from spine.projectors.json import plain, utc
from spine.projectors.log_context import LogContext
from spine.projectors.phrases import call_text, counted, with_reason
from spine.projectors.status import ApprovalState, Status
from spine.projectors.visible import one_line
from spine.runtime import Runtime
from spine.stored import StoredLog
from spine.values import SessionId, encode

__all__ = ["COMMANDS"]

TAKEN_S: Final = 3.0
"""How long to wait for the owner to take a decision from its inbox."""
Decision = Literal["approved", "denied"]


@attrs.frozen
class Waiting:
    """An open approval of a session."""

    session: SessionId
    state: ApprovalState
    text: str

    @property
    def id(self) -> str:
        """The approval's id, unique in its session."""
        return self.state.request.id


def waiting(opened: Reading, only: SessionId | None = None) -> Iterator[Waiting]:
    """Open approvals of all sessions, oldest session first; only those with an approval are read."""
    for info in opened.store.sessions():
        if only is not None and info.id != only:
            continue
        if next(iter(opened.store.read(info.id, types=("approval.requested",))), None) is None:
            continue
        reader = StoredLog(opened.store, opened.codec, info.id)
        status, context = Status(), LogContext()
        state, texts = status.initial(), {}
        for event in reader.read():
            if event.type in status.types:
                status.apply(state, event)
            context.follow(event)
            if event.type == "approval.requested":
                order = context.parameter_order(event, event.data.name)
                texts[event.data.id] = call_text(event.data.name, event.data.arguments, None, order)
        for approval in state.open_approvals:
            yield Waiting(info.id, approval, texts[approval.request.id])


# -------------------------------------------------------------------------------------------------------- approvals


@click.command()
@options("store", "json")
def approvals(store: str | None, as_json: bool) -> None:
    """List the calls that wait for a person, and what to type."""
    with reading(store) as opened:
        found = list(waiting(opened))
        repeated = {one.id for one in found if sum(other.id == one.id for other in found) > 1}
        for one in found:
            if as_json:
                out_json(_fact(one))
            else:
                session = f" --session {one.session}" if one.id in repeated else ""
                age = _age((now() - one.state.at) / 1_000_000)
                why = with_reason(f"{one.id}  {one.session}  {one.text}  waits {age}", one.state.request.reason)
                out(f"{why}   {in_store(f'spine approve {one.id}{session} --by {this_user()}', opened.store.url)}")
        if not found:
            note("nothing waits for a person")


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "min")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} min" if unit == "min" else counted(number, unit)
    return f"{max(0, int(seconds))} s"


def _fact(one: Waiting) -> dict[str, Any]:
    return {"session": one.session, "at": utc(one.state.at), "turn": one.state.turn, **plain(one.state.request)}


# ----------------------------------------------------------------------------------------------------- approve, deny


def _deciding(decision: Decision, verb: str) -> click.Command:
    @click.command(verb)
    @click.argument("approval")
    @click.option("--by", metavar="NAME", help="Who decides; by default this system's user.")
    @click.option("--reason", metavar="TEXT", help="Why; the model is told when a call is declined.")
    @click.option("--session", metavar="ID", help="The session; needed when several have an approval of that id.")
    @options("agent", "store", "json")
    def decide(
        approval: str,
        by: str | None,
        reason: str | None,
        session: str | None,
        agent: str | None,
        store: str | None,
        as_json: bool,
    ) -> int:
        by = by or this_user()
        with reading(store, agent=agent) as opened:
            one = _find(opened, approval, session)
            data = {"id": one.id, "decision": decision, "by": by, "reason": reason}
            owner = _living_owner(opened, one.session)
            if owner is not None:
                return _through_inbox(opened, one, data, owner)
            reader = StoredLog(opened.store, opened.codec, one.session)
            recorded = recorded_agent(reader)
            chosen = choose_agent(opened.settings, recorded, reader)
            if chosen is None:
                return _queue(opened, one, data)
            settings = opened.settings
        return anyio.run(_decide_here, settings, chosen, recorded, one, data, as_json)

    decide.help = "Allow a waiting call, and go on." if decision == "approved" else "Decline a waiting call, and go on."
    return decide


def _find(opened: Reading, approval: str, session: str | None) -> Waiting:
    only = None if session is None else find_session(opened.store, session)
    there = list(waiting(opened, only))
    fitting = [one for one in there if one.id == approval]
    if len(fitting) == 1:
        return fitting[0]
    where = f"session {only}" if only is not None else opened.store.url
    if fitting:
        sessions = ", ".join(one.session for one in fitting)
        hint = in_store(f"spine approve {approval} --session {fitting[-1].session}", opened.store.url)
        raise ApprovalUnknown(f'approval "{approval}" is open in several sessions of {where}: {sessions}', hint=hint)
    open_ids = ", ".join(f"{one.id} of {one.session}" for one in there) or "none"
    raise ApprovalUnknown(
        f'no open approval "{approval}" in {where}; open: {open_ids}',
        hint=in_store("spine approvals", opened.store.url),
    )


def _living_owner(opened: Reading, session: SessionId) -> str | None:
    holder = opened.store.owner(session)
    if holder is None or holder[1] <= now() or is_dead(holder[0]):
        return None
    return f"pid {holder[0].pid} on {holder[0].host}"


def _through_inbox(opened: Reading, one: Waiting, data: dict[str, Any], owner: str) -> int:
    """Queue a decision for a living owner, and wait a little until it was taken."""
    seq = opened.store.head(one.session)
    _put(opened, one, data)
    until = time.monotonic() + TAKEN_S
    reader = StoredLog(opened.store, opened.codec, one.session)
    while time.monotonic() < until:
        if any(_is_it(event.data, one.id) for event in reader.read(seq[0] if seq else 0, types=("approval.decided",))):
            out(f"{one.session}: {one.id} {data['decision']} by {one_line(data['by'])}; its owner ({owner}) goes on")
            return HOLDS
        time.sleep(0.05)
    out(f"{one.session}: {one.id} {data['decision']} by {one_line(data['by'])}, queued for its owner ({owner})")
    return HOLDS


def _is_it(data: Any, approval: str) -> bool:
    return isinstance(data, ApprovalDecided) and data.id == approval


def _put(opened: Reading, one: Waiting, data: dict[str, Any]) -> None:
    if not put_settled(opened.store, one.session, f"decision/{one.id}", "decision", encode(data)):
        raise ApprovalUnknown(
            f'approval "{one.id}" of session "{one.session}" was decided already and waits to be taken',
            hint=in_store(f"spine resume {one.session}", opened.store.url),
        )


def _queue(opened: Reading, one: Waiting, data: dict[str, Any]) -> int:
    _put(opened, one, data)
    out(f"{one.session}: {one.id} {data['decision']} by {one_line(data['by'])}, queued")
    hint = in_store(f"spine resume {one.session} --agent module:attribute", opened.store.url)
    note(f"its agent is not known here, so nothing ran. Try: {hint}")
    return NO_VERDICT


async def _decide_here(
    settings: Settings,
    chosen: ChosenAgent,
    recorded: SessionCreated | None,
    one: Waiting,
    data: dict[str, Any],
    as_json: bool,
) -> int:
    async with Runtime.open(settings=settings) as runtime:
        scope = None if recorded is None else recorded.scope
        session = await runtime.session(one.session, chosen.agent, reference=chosen.reference, scope=scope)
        is_approved = data["decision"] == "approved"
        decide, channel = (session.approve, "spine approve") if is_approved else (session.deny, "spine deny")
        with shown(session, is_silent=as_json) as screen:
            decision = decide(one.id, by=data["by"], reason=data["reason"], channel=channel)
            turn = await interruptible(session, lambda: settled(decision))
            return end_turn(session, turn, screen, as_json=as_json)


COMMANDS: Final[dict[str, click.Command]] = {
    "approvals": approvals,
    "approve": _deciding("approved", "approve"),
    "deny": _deciding("denied", "deny"),
}
