"""Requests of other processes while the owner is killed at random: each is taken once, in the order of its sender.

python inbox.py [--count 2000] [--stores sqlite,postgres] [--where FOLDER] [--seed 1]

In a trial three processes send inputs of every delivery, cancels and decisions to one session, each request twice,
while a fourth lets owner after owner be killed: after some milliseconds, or before or after a call of the store. The
last owner lives until nothing is left to do. Then each request that was sent is an event of the log exactly once,
those of one sender in their order; each input was delivered once; no call acted twice; the log verifies. Trials go on
until COUNT owners were killed, half of them over each store. Prints a line of figures for each store; exit status 1
when anything was lost, doubled, out of order or untrue.
"""

import argparse
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import anyio
from children import in_child, in_workers
from conditions import conditions, count
from crash_folder import Folder
from crash_turns import acting
from postgres_server import Missing, postgres_server

from spine import Agent, Runtime, keeping
from spine.codec import Codec
from spine.config import Settings
from spine.errors import SessionBusy
from spine.inbox import put
from spine.messages import Message, TextBlock
from spine.projectors.status import Status
from spine.proof.verify import verify
from spine.stored import StoredLog
from spine.testing.failpoints import Failpoint, Failpoints
from spine.testing.script import call, say
from spine.testing.scripted import prepare
from spine.values import SessionId

NAME = SessionId("s")
SENDERS = 3
REQUESTS = 25
"""Of each sender."""
KILLS = 12
"""At least, in a trial."""
KINDS = ("input", "input", "decision", "decision", "cancel")
DELIVERIES = ("queue", "queue", "steer", "interrupt")
PLACES = ("append", "append", "append", "inbox", "claim", "waiting")
"""Calls of the store that an owner is killed before or after."""


# ---------------------------------------------------------------------------------------------------------- owners


class Model:
    """Calls the tool for every other input, which a person must allow."""

    protocol = "inbox"

    def check(self, request: Any) -> None:
        """Takes anything."""

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        """One answer; it takes a moment, so that a cancel may find it."""
        await anyio.sleep(0.003)
        asks = request.messages[-1].role == "user" and len(request.messages) % 2 == 0
        for item in prepare(call("pay") if asks else say("Done.")).items:
            yield item

    async def aclose(self) -> None:
        """Nothing."""


async def own(folder: Folder, failpoints: Failpoints, *, is_last: bool) -> None:
    """Own the session and do what comes; the last one allows what nobody decided, and ends when all is done."""
    keeping.INBOX_S = 0.005
    store = failpoints.store(folder.open())
    agent = Agent("inbox:model", tools=[acting(folder.world, "pay", approval="ask")])
    async with Runtime.open(store, model=Model(), settings=Settings(installed_plugins=False)) as runtime:
        session = await runtime.session(NAME, agent)
        while not is_last or not _is_done(session) or store.inbox(NAME):
            with suppress(SessionBusy):
                if await session.resume(check=False) is None and session.turn is None:
                    await session.run("Begin.", check=False)
                if is_last and not session.is_running and session.turn.status == "suspended":
                    await session.approve(session.turn.approvals[0].id, by="the last owner")
            await anyio.sleep(0.005)


def _is_done(session: Any) -> bool:
    status = session.log.status
    return bool(status.created and status.turn is None and not status.waiting)


def kill() -> None:
    """End this process as nothing else can."""
    os.kill(os.getpid(), signal.SIGKILL)


def own_and_die(folder: Folder, rng: random.Random) -> Any:
    """Be an owner that is killed."""
    at = None
    if rng.random() < 0.5:
        at = Failpoint(f"store.{rng.choice(PLACES)}.{rng.choice(('before', 'after'))}", rng.randint(1, 8))
    timer = threading.Timer(rng.uniform(0.0, 0.15) if at is None else 0.5, kill)
    timer.daemon = True
    timer.start()
    anyio.run(lambda: own(folder, Failpoints(at, kill), is_last=False), backend=rng.choice(("asyncio", "trio")))


def kill_owners(folder: Folder, seed: str) -> int:
    """Let owners be killed while there are senders, then let one finish; how many were killed."""
    for killed in itertools.count():
        if killed >= KILLS and len([*folder.path.glob("sent*")]) == SENDERS:
            break
        rng = random.Random(f"{seed} {killed}")
        if not in_child(lambda rng=rng: own_and_die(folder, rng)).was_killed:
            raise AssertionError("an owner lived on")
    with suppress(TimeoutError):  # then something is left, and the judge says what
        in_child(lambda: anyio.run(lambda: own(folder, Failpoints(), is_last=True)))
    return killed


# --------------------------------------------------------------------------------------------------------- senders


def send(folder: Folder, number: int, rng: random.Random) -> list[str]:
    """Send requests, each twice; their keys. A decision is sent when somebody is asked."""
    sent: list[str] = []
    with closing(folder.open()) as store:
        log = StoredLog(store, Codec(), NAME)
        while len(sent) < REQUESTS:
            time.sleep(rng.uniform(0.0, 0.04))
            key = f"{number} {len(sent)}"
            kind, data = _request(rng.choice(KINDS), key, log, rng)
            if not put(store, log.codec, NAME, kind, data, key):
                raise AssertionError(f"{key} is said to have come before it was sent")
            sent.append(key)
            if put(store, log.codec, NAME, kind, data, key):
                raise AssertionError(f"{key} was taken for another one")
    (folder.path / f"sent {number}").touch()
    return sent


def _request(kind: str, key: str, log: StoredLog, rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A request that its event can be told by: the text of an input, a cancel's cause, a decision's reason."""
    if kind == "cancel":
        return kind, {"cause": key, "by": None}
    asked = log.project(Status()).open_approvals if kind == "decision" else ()
    if asked:
        decision = rng.choice(("approved", "denied"))
        return kind, {"id": rng.choice(asked).request.id, "decision": decision, "by": "me", "reason": key}
    message = log.codec.to_json(Message(role="user", content=(TextBlock(text=key),)))
    return "input", {"message": message, "delivery": rng.choice(DELIVERIES)}


# --------------------------------------------------------------------------------------------------------- judging


def judge(folder: Folder, sent: list[list[str]]) -> list[str]:
    """What does not hold of the log and of the world outside."""
    with closing(folder.open()) as store:
        log = StoredLog(store, Codec(), NAME)
        events = list(log.read())
        problems = [f"verify: seq {problem.seq} {problem.text}" for problem in verify(log).problems]
        problems += [f"LOST {entry.key}: it waits still" for entry in store.inbox(NAME)]
    taken = [key for event in events if (key := _key(event.data)) is not None]
    times = Counter(taken)
    for keys in sent:
        problems += [f"LOST {key}" for key in keys if key not in times]
        if [key for key in taken if key in keys] != keys:
            problems.append(f"ORDER of sender {keys[0][0]}")
    problems += [f"TWICE {key}" for key, number in times.items() if number > 1]
    problems += [f"UNKNOWN {key}" for key in times.keys() - {*itertools.chain(*sent)}]
    accepted = Counter(event.seq for event in events if event.type == "input.accepted")
    delivered = Counter(seq for event in events if event.type == "input.delivered" for seq in event.data.inputs)
    problems += [f"DELIVERED the input of seq {seq} {delivered[seq]} times" for seq in accepted if delivered[seq] != 1]
    problems += [f"HARM {act} acted {number} times" for act, number in folder.world.acts().items() if number > 1]
    return problems


def _key(data: Any) -> str | None:
    """The key of the request that an event was made of; None for what came otherwise."""
    match type(data).__name__:
        case "InputAccepted":
            return data.key
        case "CancelRequested":
            return data.cause if data.cause[:1].isdigit() else None
        case "ApprovalDecided":
            return data.reason if data.channel == "inbox" else None
    return None


# ---------------------------------------------------------------------------------------------------------- trials


def trial(where: Path, server: str | None, seed: str) -> tuple[int, list[str]]:
    """One session, its senders and its owners; how many were killed, and what does not hold."""
    folder = Folder(Path(tempfile.mkdtemp(prefix="spine-inbox-", dir=where)), server)
    try:
        in_child(lambda: anyio.run(lambda: own(folder, Failpoints(), is_last=True)))
        senders = [lambda n=n: send(folder, n, random.Random(f"{seed} {n}")) for n in range(SENDERS)]
        *sent, killed = in_workers([*senders, lambda: kill_owners(folder, seed)])
        return killed, in_child(lambda: judge(folder, sent)).value
    finally:
        folder.remove()


def trials(name: str, where: Path, server: str | None, wanted: int, seed: int) -> bool:
    """Trials until `wanted` owners were killed, and the line about them; whether anything was wrong."""
    began, killed, told = time.monotonic(), 0, Counter[str]()
    for number in itertools.count(1):
        more, problems = trial(where, server, f"{seed} {number}")
        killed += more
        for problem in problems:
            told[problem.split()[0]] += 1
            if told.total() <= 20:
                print(f"  trial {number}: {problem}")
        if killed >= wanted:
            break
    words = ("LOST", "TWICE", "ORDER", "DELIVERED", "HARM")
    others = sum(found for word, found in told.items() if word not in words)
    print(
        f"inbox: {name} · {count(killed)} owners killed, {count(number * SENDERS * REQUESTS)} requests of "
        f"{count(number * SENDERS)} senders · lost {told['LOST']}, twice {told['TWICE']}, out of order "
        f"{told['ORDER']}, wrongly delivered {told['DELIVERED']}, ran twice {told['HARM']}, other {others} · "
        f"{time.monotonic() - began:.0f} s · "
        + conditions(where, seed=seed, sync="full" if not server else "fsync off"),
        flush=True,
    )
    return bool(told)


def main(arguments: list[str] | None = None) -> int:
    """Run the trials that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=2000, help="owners to kill at least")
    parser.add_argument("--stores", default="sqlite,postgres")
    parser.add_argument("--where", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    stores, failed = given.stores.split(","), False
    for name in stores:
        try:
            with postgres_server() if name == "postgres" else nullcontext() as server:
                failed = trials(name, given.where, server, -(-given.count // len(stores)), given.seed) or failed
        except Missing as missing:
            print(f"inbox: {name} left out: {missing}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
