"""One process of a crash trial: it begins a canonical turn, or finds one that a dead process left, and finishes it.

`live` is the process; `judge` says in sentences what does not hold of what it left. Both know nothing of how a process
is killed.
"""

from collections.abc import Callable
from typing import Any

from crash_folder import Folder, NotingStore
from crash_turns import ONCE, TURNS, Model, Turn, agent_of

from spine import Runtime
from spine.codec import Codec
from spine.config import Settings
from spine.errors import TurnFailed
from spine.llm.retry import RetryPolicy
from spine.log import LogReader
from spine.messages import ToolResultBlock
from spine.proof.verify import verify
from spine.testing.failpoints import Failpoints
from spine.values import SessionId

NAME = SessionId("s")
ALONE = Settings(installed_plugins=False)
RETRY = RetryPolicy(base_s=0)


async def live(
    name: str,
    folder: Folder,
    failpoints: Failpoints,
    *,
    durability: str = "full",
    is_next: bool = True,
    scoped: Callable[[Any], Any] | None = None,
) -> dict[str, Any]:
    """Be a process: open the session, begin or resume its turn, give approvals, and go on to the end.

    Returns the turn's status and what a model would be shown now. `scoped` may put the turn's work into a scope.
    """
    turn, held = TURNS[name], {}
    plugins = [failpoints.plugin(turn.plugin())] if turn.plugin else []
    runtime = Runtime.open(
        failpoints.store(NotingStore(folder, durability)),  # type: ignore[arg-type]
        model=failpoints.model(Model(turn, is_next=is_next)),
        plugins=plugins,
        settings=ALONE,
        retry=RETRY,
    )
    async with runtime:
        agent = failpoints.agent(agent_of(turn, folder.world, lambda: held["session"]))
        session = held["session"] = await runtime.session(NAME, agent)
        work = failpoints.drive(_finish(session))
        ended = await (work if scoped is None else scoped(work))
        return {"status": None if ended is None else ended.status, "history": shown(session.history())}


async def _finish(session: Any) -> Any:
    turn = await session.resume(check=False)
    if turn is None and session.turn is None:
        turn = await session.run("Go.", check=False)
    turn = turn or session.turn
    while turn.status == "suspended":
        try:
            turn = await session.approve(turn.approvals[0].id, by="me")
        except TurnFailed as error:
            return error.turn
    return turn


def shown(history: Any) -> list[Any]:
    """Messages in a comparable form: role, text, and each result by its call."""
    codec = Codec()

    def results(message: Any) -> list[Any]:
        return [codec.to_json(block) for block in message.content if isinstance(block, ToolResultBlock)]

    return [[message.role, message.text, len(message.content), results(message)] for message in history]


# --------------------------------------------------------------------------------------------------------- judging


async def judge_next(name: str, folder: Folder) -> list[str]:
    """What does not hold for a process that opens the finished session and has another turn in it."""
    problems, held = [], {}
    runtime = Runtime.open(folder.open(), model=Model(TURNS[name], is_next=True), settings=ALONE, retry=RETRY)
    async with runtime:
        agent = Failpoints().agent(agent_of(TURNS[name], folder.world, lambda: held["session"]))
        session = held["session"] = await runtime.session(NAME, agent)
        before = session.log.head
        if await session.resume() is not None or session.log.head != before:
            problems.append("resuming a finished session changed it")
        again = await session.run("Again.", check=False)
        if (again.status, again.text) != ("completed", "Done."):
            problems.append(f"the next turn {again.status}: {again.error or again.text!r}")
    return problems


def judge(name: str, folder: Folder, found: Any, expected: Any, *, same_end: bool) -> list[str]:
    """What does not hold of what the processes left: acknowledged events, chain, requests, results, harm.

    `found` and `expected` are what `live` returned. With `same_end` both must be the same but for calls that recovery
    interrupted.
    """
    store = folder.open()
    reader = LogReader(store, Codec(), NAME)
    verification, events = verify(reader), list(reader.read())
    store.close()
    problems = [f"verify: seq {problem.seq} {problem.text}" for problem in verification.problems]
    problems += [*_lost(folder, events), *_untrue(name, folder, events)]
    if same_end:
        problems += _differences(TURNS[name], events, found, expected)
    return problems


def acknowledged(folder: Folder) -> list[tuple[int, str]]:
    """Every head that was acknowledged, as seq and hash, in order."""
    if not folder.acknowledged.exists():
        return []
    noted = (line.split() for line in folder.acknowledged.read_text().splitlines())
    return [(int(seq), hash) for seq, hash in noted]


def _lost(folder: Folder, events: list[Any]) -> list[str]:
    """Acknowledged events that are not there."""
    hashes = {event.seq: event.hash.hex() for event in events}
    return [f"LOST seq {seq}" for seq, hash in acknowledged(folder) if hashes.get(seq) != hash]


def _untrue(name: str, folder: Folder, events: list[Any]) -> list[str]:
    """Calls that acted too often, or whose result says something else than what happened."""
    acts, turn = folder.world.acts(), TURNS[name]
    effects = {tool.name: tool.effect for tool in turn.tools(folder.world, lambda: None)}
    started = {event.data.call for event in events if event.type == "tool.started"}
    problems = []
    for event in events:
        if event.type != "tool.completed":
            continue
        call, tool, status = event.data.result.call_id, event.data.result.name, event.data.status
        count = acts[f"{tool} {NAME}/{call}"]
        if count > 1 and effects[tool] in ONCE:
            problems.append(f"HARM {call} acted {count} times")
        if status == "ok" and not count:
            problems.append(f"UNTRUE {call} is said to be done and never acted")
        if status in ("not_started", "denied") and count:
            problems.append(f"UNTRUE {call} is said to be {status} and acted {count} times")
        if status == "interrupted" and call not in started:
            problems.append(f"UNTRUE {call} is said to be interrupted and never started")
    return problems


def _differences(turn: Turn, events: list[Any], found: Any, expected: Any) -> list[str]:
    if found["status"] != expected["status"]:  # it died before it could stop itself, and went on to an end of its own
        return []
    here, there = ([m for m in end["history"] if m[1] != turn.lost] for end in (found, expected))
    if turn.lost and len(found["history"]) == len(expected["history"]):
        here, there = found["history"], expected["history"]
    if [message[:3] for message in here] != [message[:3] for message in there]:
        return [f"history differs: {[m[:2] for m in here]} / {[m[:2] for m in there]}"]
    resolved = (event.data for event in events if event.type == "tool.resolved")
    interrupted = {data.call for data in resolved if data.decision == "interrupted"}
    pairs = zip([r for m in here for r in m[3]], [r for m in there for r in m[3]], strict=True)
    different = (a["call_id"] for a, b in pairs if a != b and not turn.is_stopped)
    return [f"the result of {call} differs" for call in different if call not in interrupted]
