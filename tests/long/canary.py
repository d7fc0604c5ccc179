"""Canaries in every place a secret can be set or can turn up; then everything that was written is looked through.

python canary.py [--megabytes 500] [--where FOLDER]

Four provider keys lie in a variable, a file, a command's output and the runtime's own arguments; the other canaries are
registered secrets that people, tools, hooks and servers let slip, each in a place of its own. Sessions run over real
connections in all three protocols, with wire capture and all loggers at DEBUG, and fail in many ways. Looked through are
stores with their write-ahead logs, exports, transcripts, values as Python shows them, debug logs, tracebacks with the
locals of all frames, and what the command line prints; plainly, in Base64 and percent-encoded. Prints one line of
figures; exit status 1 at any hit.
"""

import argparse
import base64
import contextlib
import logging
import pickle
import random
import secrets
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import anyio
from click.testing import CliRunner

from spine import Agent, Runtime, Secret, Section, SpineError
from spine.cli import main as command_line
from spine.config import load_settings
from spine.exports import export
from spine.hooks import Deny, hookimpl
from spine.messages import DocumentBlock, JsonBlock, Message, TextBlock
from spine.testing.chaos import Fault, Peer, chaos_server
from spine.testing.chaos_render import RENDERS
from spine.tools import Tool, ToolDefinition
from spine.testing.script import Entry, call, call_text, say, think

STEM: Final = secrets.token_hex(8)
"""What all canaries hold, so that one search finds any of them, in pieces too."""
KEYS: Final = ("env", "file", "command", "given")
PLACES: Final = (
    *(f"key in {place}" for place in KEYS),
    *("input text", "input json", "input json key", "document name", "steered text", "instructions", "prompt section"),
    *("session metadata", "answer text", "answer thinking", "call argument", "call argument key", "broken arguments"),
    *("unknown event", "response id", "response model", "stop reason", "request id header", "other header"),
    *("result text", "result json", "result json key", "tool exception", "progress text", "progress data"),
    *("approver", "approval reason", "cancel cause", "hook denial", "hook exception", "revised result"),
    *("error message", "error code", "error request id", "error in the stream", "redirect", "error page"),
    *("cut error message", "long result"),
)
CANARY: Final = {place: f"cn-{STEM}-{number:02d}" for number, place in enumerate(PLACES)}
FORMS: Final = (
    STEM.encode(),
    *(base64.b64encode(b"x" * offset + STEM.encode())[4 if offset else 0 : -4] for offset in range(3)),
)
PROTOCOLS: Final = tuple(sorted(RENDERS))
FILL: Final = 40
"""Long results in a session."""


# ---------------------------------------------------------------------------------------------------- the server


def _answer(entry: Entry, protocol: str, *more: bytes, **swaps: str) -> Callable[[Peer], Any]:
    frames = RENDERS[protocol](entry).frames
    for old, new in swaps.items():
        frames = tuple(frame.replace(old.replace("_", "-").encode(), new.encode()) for frame in frames)

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
    ids = {"chat_1": "resp", "msg_1": "resp", "resp_1": "resp"}
    named = {"model_of_chaos": CANARY["response model"], **dict.fromkeys(ids, CANARY["response id"])}
    stream_error = f'data: {{"type":"error","error":{{"message":"broke at {CANARY["error in the stream"]}"}}}}\n\n'
    cut = [
        _refusal("400 X", f'{{"error":{{"message":"{"y" * (size - 10)}{CANARY["cut error message"]}"}}}}')
        for size in (*range(285, 310, 6), *range(4060, 4100, 10))
    ]
    return [
        _answer(first, protocol, novel, **named),
        _answer(say("Asked."), protocol),
        _answer(say("Done."), protocol, end_turn=CANARY["stop reason"], stop=CANARY["stop reason"])
        if protocol == "anthropic_messages"
        else _answer(say("Done."), protocol),
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


FAILING: Final = 4 + 9
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
        return Deny(f"not with {CANARY['hook denial']}") if call.name == "denied" else await call_next(call)

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


async def _talk(runtime: Runtime, protocol: str, told: list[str]) -> None:
    """One session: every kind of input, answer, result and failure."""
    agent = Agent(
        f"{protocol}:m", instructions=f"Never say {CANARY['instructions']}.", tools=TOOLS, limits={"steps": 2 * FILL}
    )
    session = await runtime.session(protocol, agent, metadata={"note": CANARY["session metadata"]})
    runtime.root.add(Section(f"hint-{protocol}", order=9, render=lambda context: f"Or {CANARY['prompt section']}."))
    turn = await session.run(list(INPUT))
    while turn.approvals:
        turn = await session.approve(turn.approvals[0].id, by=CANARY["approver"], reason=CANARY["approval reason"])
    told.append(repr(turn))
    for _ in range(len(_script(protocol)) - FILL - 5):
        try:
            told.append(repr(await session.run("Go on.")))
        except SpineError as error:
            told.extend(told_by(error))
    told.append(repr(await session.run("Fill.")))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop, session)
        told.append(repr(await session.run("Wait.", check=False)))
    told += [repr(session.transcript()), repr(list(session.log.read())), repr(session), repr(runtime)]


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


def _project(folder: Path, urls: dict[str, str]) -> None:
    """A spine.toml with a provider for each protocol, whose keys lie in different places."""
    (folder / "key.txt").write_text(CANARY["key in file"])
    lies = (
        'env = "CANARY_KEY"',
        'file = "key.txt"',
        f'command = "{sys.executable} -c \'print(open(\\"cmd.txt\\").read())\'"',
    )
    lines = ["version = 1"]
    for protocol, lie in zip(PROTOCOLS, lies, strict=True):
        lines += [f"[providers.{protocol}]", f'protocol = "{protocol}"', f'base_url = "{urls[protocol]}"']
        lines += [f"key = {{ {lie} }}"]
    (folder / "spine.toml").write_text("\n".join(lines))


async def _round(folder: Path, outputs: Path) -> None:
    """Sessions in all protocols over one store; everything that came of them lies in `outputs` afterwards."""
    told: list[str] = []
    async with contextlib.AsyncExitStack() as servers:
        urls = {name: await servers.enter_async_context(_server(name)) for name in PROTOCOLS}
        _project(folder, urls)
        settings = load_settings({"CANARY_KEY": CANARY["key in env"]}, folder=folder)
        registered = {place: Secret(canary) for place, canary in CANARY.items() if place not in KEYS_BY_FILE}
        async with Runtime.open(
            f"sqlite:{outputs / 'spine.db'}",
            plugins=[spine_anthropic, spine_openai_chat, spine_openai_responses, Careless()],
            settings=attrs.evolve(settings, installed_plugins=False),
            secrets={**registered, "given": Secret(CANARY["key in given"])},
            capture="wire",
            retry=RetryPolicy(attempts=1),
        ) as runtime:
            for protocol in PROTOCOLS:
                await _talk(runtime, protocol, told)
                with (outputs / f"{protocol}.jsonl").open("wb") as out:
                    export(runtime.reader(protocol), out.write)
            for name in ("spine.db", "spine.db-wal"):
                if (outputs / name).exists():
                    (outputs / f"open-{name}").write_bytes((outputs / name).read_bytes())
    (outputs / "told.txt").write_text("\n".join(told), "utf-8", "backslashreplace")
