"""Canaries in every place a secret can be set or can turn up; then everything that was written is looked through.

python canary.py [--megabytes 500] [--where FOLDER]

Four provider keys lie in a variable, a file, a command's output and the runtime's own arguments; the other canaries are
registered secrets that people, tools, hooks and servers let slip, each in a place of its own. Sessions run over sockets
of this machine in all three protocols, with wire capture and all loggers at DEBUG, and fail in many ways. Looked
through are stores with their write-ahead logs, exports, transcripts, values as Python shows them, debug logs,
tracebacks with the locals of all frames, and what the command line prints, for the canaries as they are, in pieces, and
in Base64. Prints one line of figures; exit status 1 at any hit.
"""

import argparse
import base64
import contextlib
import logging
import pickle
import random
import re
import secrets
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from unittest import mock

import anyio
import attrs
from click.testing import CliRunner
from conditions import conditions

import spine_anthropic
import spine_openai_chat
import spine_openai_responses
from spine import Agent, Limits, Runtime, Secret, Section, SpineError
from spine.cli import cli
from spine.config import load_settings
from spine.exports import export
from spine.hooks import Deny, hookimpl
from spine.llm.retry import RetryPolicy
from spine.messages import DocumentBlock, JsonBlock, Message, TextBlock
from spine.testing.chaos.render import RENDERS
from spine.testing.chaos.server import Fault, Peer, chaos_server
from spine.testing.script import Entry, call, call_text, say, think
from spine.tools import Tool, ToolDefinition

STEM: Final = secrets.token_hex(8)
"""What all canaries hold, so that one search finds any of them, in pieces too."""
KEYS: Final = ("env", "file", "command", "given")
PLACES: Final = (
    *(f"key in {place}" for place in KEYS),
    *("input text", "input json", "input json key", "document name", "steered text", "instructions", "prompt section"),
    *("session metadata", "answer text", "answer thinking", "call argument", "call argument key", "broken arguments"),
    *("unknown event", "response id", "response model", "stop reason", "request id header", "other header"),
    *("result text", "result json", "result json key", "tool exception", "progress text", "progress data"),
    *("approver", "approval reason", "cancel cause", "hook denial", "hook arguments", "hook exception"),
    *("error message", "error code", "error request id", "error in the stream", "redirect", "error page"),
    *("cut error message", "long result", "revised result"),
)
CANARY: Final = {place: f"cn-{STEM}-{number:02d}" for number, place in enumerate(PLACES)}
FORMS: Final = (
    f"cn-{STEM[:8]}".encode(),  # also of one that was cut
    *(base64.b64encode(b"x" * offset + STEM.encode())[4 if offset else 0 : -4] for offset in range(3)),
)
SPOKEN: Final = {
    "env": "openai_chat",
    "file": "openai_responses",
    "command": "anthropic_messages",
    "given": "openai_chat",
}
"""The protocol of the provider whose key lies in a place; it is called as the place is."""
_ANY_CANARY: Final = b"cn-" + STEM.encode() + b"-[0-9]{2}"
FILL: Final = 40
"""Long results in a session."""


# ---------------------------------------------------------------------------------------------------- the server


def _answer(
    entry: Entry, protocol: str, *more: bytes, swaps: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Peer], Any]:
    """An answer with `more` behind its first frame, and with some words of it replaced."""
    frames = RENDERS[protocol](entry).frames
    for old, new in swaps.items():
        frames = tuple(frame.replace(old.encode(), new.encode()) for frame in frames)

    async def play(peer: Peer) -> None:
        await peer.head(
            "200 OK",
            "content-type: text/event-stream",
            f"x-request-id: {CANARY['request id header']}",
            f"x-echo: {CANARY['other header']}",
        )
        await peer.body(frames[0], *more, *frames[1:])
        await peer.end()

    return play


def _refusal(status: str, body: str, *lines: str) -> Callable[[Peer], Any]:
    async def play(peer: Peer) -> None:
        key = next(line for line in peer.request.split(b"\r\n") if b"cn-" in line).rpartition(b" ")[2].decode()
        await peer.refuse(status, body.replace("KEY", key).encode(), *lines)

    return play


def _script(protocol: str) -> list[Callable[[Peer], Any]]:
    """What the server says to each request of a session."""
    error = f"""{{"error":{{"message":"not with KEY, nor {CANARY["error message"]}","code":"{CANARY["error code"]}"}},
        "request_id":"{CANARY["error request id"]}"}}"""
    first = (
        think(f"They said {CANARY['answer thinking']}.")
        + say(f"It is {CANARY['answer text']}.")
        + call("look", q=CANARY["call argument"], **{CANARY["call argument key"]: 1})
        + call_text("look", f'{{"q": {CANARY["broken arguments"]}')
        + call("fail", q="x")
        + call("guarded", q="x")
        + call("denied", q="x")
    )
    novel = f'event: novel\ndata: {{"type":"novel","object":"novel","said":"{CANARY["unknown event"]}"}}\n\n'.encode()
    named = {"model-of-chaos": CANARY["response model"], '"end_turn"': f'"{CANARY["stop reason"]}"'}
    named |= dict.fromkeys(("chat-1", "msg_1", "resp_1"), CANARY["response id"])
    stream_error = f'data: {{"type":"error","error":{{"message":"broke at {CANARY["error in the stream"]}"}}}}\n\n'
    cut = [
        _refusal("400 X", f'{{"error":{{"message":"{"y " * (size // 2 - 20)}{CANARY["cut error message"]}"}}}}')
        for size in (*range(306, 331, 6), *range(4080, 4120, 10))
    ]
    return [
        _answer(first, protocol, novel, swaps=named),
        _answer(say("Done."), protocol, swaps=named),
        _refusal("401 X", error, f"x-request-id: {CANARY['error request id']}"),
        _answer(say("Now."), protocol, stream_error.encode()),
        _refusal("307 X", "", f"location: /v1?key={CANARY['redirect']}"),
        _refusal("502 X", f"<html>{CANARY['error page']} KEY</html>"),
        *cut,
        *[_answer(call("fill", q="x"), protocol)] * FILL,
        _answer(say("Filled."), protocol),
        _answer(call("wait", q="x"), protocol),
        _answer(say("End."), protocol),
    ]


FAILING: Final = 4 + 5 + 4
"""Requests of the script that fail, one turn each."""


@contextlib.asynccontextmanager
async def _server(protocol: str) -> AsyncIterator[str]:
    script = _script(protocol)

    async def play(peer: Peer) -> None:
        await script[peer.place % len(script)](peer)

    rendered = RENDERS[protocol](say("unused"))
    fault = Fault(name="canary", play=play, expect=frozenset(), repeats=True)
    async with chaos_server(fault, rendered, rendered) as server:
        yield server.url


# --------------------------------------------------------------------------------------------------- the sessions


def _reveal(context: Any, place: str) -> str:
    """What a tool was given, which no frame of this file keeps in a variable."""
    return str(context.secret(place).reveal())


async def _look(arguments: Any, context: Any) -> Any:
    context.progress(f"at {_reveal(context, 'progress text')}", {"at": [_reveal(context, "progress data")]})
    return {
        "text": f"found {_reveal(context, 'result text')}",
        "value": [_reveal(context, "result json")],
        _reveal(context, "result json key"): 1,
    }


async def _fail(arguments: Any, context: Any) -> Any:
    raise ValueError(f"cannot open with {_reveal(context, 'tool exception')}")


async def _fill(arguments: Any, context: Any) -> Any:
    words = " ".join(f"{random.getrandbits(32):08x}" for _ in range(3000))
    return f"{words[:12_000]}{_reveal(context, 'long result')}{words[12_000:]}"


async def _wait(arguments: Any, context: Any) -> Any:
    await anyio.sleep(30)


def _tool(name: str, handler: Any, **more: Any) -> Tool:
    return Tool(definition=ToolDefinition(name=name, parameters={"type": "object"}), handler=handler, **more)


TOOLS: Final = (
    _tool("look", _look, effect="read_only"),
    _tool("fail", _fail, effect="read_only"),
    _tool("fill", _fill, effect="read_only"),
    _tool("wait", _wait, effect="read_only"),
    _tool("guarded", _look, approval="ask"),
    _tool("denied", _look),
)


class Careless:
    """A plugin that lets slip what it knows."""

    @hookimpl
    async def spine_pre_execute(self, call: Any, call_next: Any) -> Any:
        if call.name == "denied":
            return Deny(f"not with {CANARY['hook denial']}")
        if call.name == "wait":
            return await call_next(call.evolve(arguments={"q": CANARY["hook arguments"]}))
        return await call_next(call)

    @hookimpl
    async def spine_post_step(self, response: Any) -> None:
        raise ValueError(f"no {CANARY['hook exception']}")

    @hookimpl
    async def spine_post_execute(self, outcome: Any, call_next: Any) -> Any:
        done = await call_next(outcome)
        return done.evolve(content=(*done.content, TextBlock(text=f"and {CANARY['revised result']}")))


INPUT: Final = (
    Message(role="user", content=(TextBlock(text=f"Is it {CANARY['input text']}?"),), kind="user"),
    Message(
        role="user",
        content=(
            JsonBlock(value={"deep": [CANARY["input json"]], CANARY["input json key"]: 1}),
            DocumentBlock(media_type="text/plain", data="aGk=", name=CANARY["document name"]),
        ),
        kind="user",
    ),
)


def _agent(name: str) -> Agent:
    return Agent(
        f"{name}:m", instructions=f"Never say {CANARY['instructions']}.", tools=TOOLS, limits=Limits(steps=2 * FILL)
    )


async def _talk(runtime: Runtime, name: str, tell: Callable[[str], Any]) -> None:
    """One session: every kind of input, answer, result and failure."""
    scope = runtime.scope(f"of-{name}")
    scope.add(Section("hint", order=9, render=lambda context: f"Or {CANARY['prompt section']}."))
    session = await runtime.session(name, _agent(name), scope=scope, metadata={"note": CANARY["session metadata"]})
    turn = await session.run(list(INPUT))
    while turn.approvals:
        turn = await session.approve(turn.approvals[0].id, by=CANARY["approver"], reason=CANARY["approval reason"])
    tell(repr(turn))
    for _ in range(FAILING):
        try:
            tell(repr(await session.run("Go on.")))
        except SpineError as error:
            tell("\n".join(told_by(error)))
    tell(repr(await session.run("Fill.")))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop, session)
        tell(repr(await session.run("Wait.", check=False)))
    for value in (session.transcript(), list(session.log.read()), session, runtime):
        tell(repr(value))


async def _stop(session: Any) -> None:
    while not any(event.type == "tool.started" and event.data.name == "wait" for event in session.log.read()):
        await anyio.sleep(0.01)
    await session.steer(f"Rather {CANARY['steered text']}.")
    await session.cancel(CANARY["cancel cause"])


def told_by(error: BaseException) -> Iterator[str]:
    """Everything that a program, a debugger or an error tracker could make of an error."""
    yield "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    seen: BaseException | None = error
    while seen is not None:
        yield f"{seen} {seen!r} {seen.args!r} {vars(seen)!r}"
        seen = seen.__cause__ or seen.__context__
    with contextlib.suppress(TypeError, AttributeError, pickle.PicklingError):
        yield pickle.dumps(getattr(error, "failure", None)).decode("latin-1")


# ------------------------------------------------------------------------------------------------------ one round


def _project(folder: Path, urls: Mapping[str, str]) -> None:
    """A spine.toml whose providers' keys lie in a place each."""
    (folder / "key.txt").write_text(CANARY["key in file"])
    (folder / "print_key.py").write_text("print(open('other.txt').read())")
    (folder / "other.txt").write_text(CANARY["key in command"])
    lies = {
        "env": 'env = "CANARY_KEY"',
        "file": 'file = "key.txt"',
        "command": f'command = "{sys.executable} print_key.py"',
        "given": 'env = "CANARY_UNSET"',
    }
    lines = ["version = 1"]
    for name, lie in lies.items():
        protocol = SPOKEN[name]
        lines += [f"[providers.{name}]", f'protocol = "{protocol}"', f'base_url = "{urls[name]}"', f"key = {{ {lie} }}"]
    (folder / "spine.toml").write_text("\n".join(lines))


async def _round(folder: Path, outputs: Path) -> None:
    """A session with each provider over one store; what came of them lies in `outputs` afterwards."""
    outputs.mkdir(parents=True)
    async with contextlib.AsyncExitStack() as servers:
        _project(folder, {name: await servers.enter_async_context(_server(SPOKEN[name])) for name in KEYS})
        settings = load_settings({}, folder=folder)
        told = servers.enter_context((outputs / "told.txt").open("w", encoding="utf-8", errors="backslashreplace"))
        tell = told.write
        registered = {place: Secret(canary) for place, canary in CANARY.items() if not place.startswith("key in ")}
        async with Runtime.open(
            f"sqlite:{outputs / 'spine.db'}",
            plugins=[spine_anthropic, spine_openai_chat, spine_openai_responses, Careless()],
            settings=attrs.evolve(settings, installed_plugins=False),
            secrets={**registered, "given": Secret(CANARY["key in given"])},
            capture="wire",
            retry=RetryPolicy(attempts=1),
        ) as runtime:
            for name in KEYS:
                await _talk(runtime, name, tell)
                with (outputs / f"{name}.jsonl").open("wb") as out:
                    export(runtime.reader(name), out.write)
            for path in (outputs / "spine.db", outputs / "spine.db-wal"):
                (outputs / f"open-{path.name}").write_bytes(path.read_bytes())


def _printed(outputs: Path) -> None:
    """What the command line makes of the store."""
    store = ["--store", f"sqlite:{outputs / 'spine.db'}"]
    for name in KEYS:
        for words in (["transcript"], ["log", "--json"], ["request", "t1s2", "--wire"], ["verify"]):
            result = CliRunner().invoke(cli, [words[0], name, *words[1:], *store])
            (outputs / f"{words[0]}-{name}.txt").write_text(result.output)


# ------------------------------------------------------------------------------------------------------ the search


class Figures(NamedTuple):
    """What was looked through, in bytes, and what was found: file and place of each hit."""

    scanned: int
    rounds: int
    hits: list[str]


def search(outputs: Path) -> tuple[int, list[str]]:
    """Bytes of all files below `outputs`; and, of each, the places whose canaries it holds, with one piece of it."""
    size, hits = 0, []
    named = {canary.encode(): place for place, canary in CANARY.items()}
    for path in sorted(outputs.rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        size += len(data)
        for form in FORMS:
            place = data.find(form)
            if place >= 0:
                found = sorted({named[hit] for hit in re.findall(_ANY_CANARY, data)}) or ["a piece, or Base64"]
                shown = data[max(place - 90, 0) : place + 60].decode("utf-8", "replace")
                hits.append(f"{path.name}: {', '.join(found)}; first at {place}: {shown!r}")
    return size, hits


def look_for_canaries(megabytes: int, where: Path) -> Figures:
    """Rounds until so much was looked through, or something was found."""
    size, rounds = 0, 0
    hits: list[str] = []
    with mock.patch.dict("os.environ", {"CANARY_KEY": CANARY["key in env"]}), _everything_logged(where):
        while not hits and (rounds == 0 or size < megabytes * 1_000_000):
            folder = where / f"round-{rounds}"
            outputs = folder / "outputs"
            (where / "debug.log").write_bytes(b"")
            folder.mkdir()
            anyio.run(_round, folder, outputs)
            _printed(outputs)
            shutil.copy(where / "debug.log", outputs)
            found, hits = search(outputs)
            size, rounds = size + found, rounds + 1
            shutil.rmtree(folder)
    return Figures(size, rounds, hits)


@contextlib.contextmanager
def _everything_logged(where: Path) -> Iterator[None]:
    """All loggers at DEBUG into one file, but for httpcore's lines that show what a server put into its headers."""
    names = ("", "spine", "httpx", "httpcore", "httpcore.http11", "httpcore.connection", "anyio", "asyncio")
    levels = {name: logging.getLogger(name).level for name in names}
    handler = logging.FileHandler(where / "debug.log", encoding="utf-8", errors="backslashreplace")
    handler.addFilter(lambda record: not record.getMessage().startswith("receive_response_headers"))
    logging.getLogger().addHandler(handler)
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--where", type=Path)
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=given.where) as folder:
        found = look_for_canaries(given.megabytes, Path(folder))
        told = conditions(Path(folder))
    took = time.monotonic() - began
    print("\n".join(found.hits))
    print(
        f"canary: {len(CANARY)} canaries, {found.scanned / 1e6:,.0f} MB looked through in {found.rounds} rounds, "
        f"{len(found.hits)} hits · {took:.0f} s · {told}"
    )
    return 1 if found.hits else 0


if __name__ == "__main__":
    sys.exit(main())
