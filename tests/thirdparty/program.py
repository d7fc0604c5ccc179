"""An application that installed spine-acme: one turn with it, then without; prints what it saw as JSON.

Run by the tests in a process of its own, because entry points are those of the process's path.
"""

import json
import sys
from pathlib import Path
from typing import Any

import anyio

from spine import Agent, Runtime, SpineError
from spine.session import Session

STORE = "sqlite:acme.db"
AGENT = Agent("acme:echo", instructions="Be brief.", tools=["acme.*"])
PLAIN = Agent("acme:echo", instructions="Be brief.")


async def use(runtime: Runtime) -> dict[str, Any]:
    """One turn in which everything that the plugin brings has its part."""
    session = await runtime.session("used", AGENT)
    turn = await session.run("Say hello")
    plain = await runtime.session("plain", PLAIN)
    return {
        "text": turn.text,
        "calls": [call.name for call in turn.tool_calls],
        "events": [event_fact(event) for event in session.log.read()],
        "system": system(session),
        "tools": sorted(tool.name for tool in request_of(session).tools),
        "tools_of_the_plain_agent": await tools_of(plain),
        "transcript": session.transcript().text,
    }


def event_fact(event: Any) -> dict[str, Any]:
    """The parts of an event that name a plugin."""
    patches = getattr(event.data, "patches", ())
    return {
        "type": event.type,
        "origin": event.origin,
        "patched_by": [patch.plugin for patch in patches],
        "versions": dict(getattr(event.data, "versions", {})),
        "letters": getattr(event.data, "letters", None),
    }


def request_of(session: Session) -> Any:
    """The session's last request, rebuilt from its log."""
    requested = [event.seq for event in session.log.read() if event.type == "model.requested"]
    return session.log.request(requested[-1])


def system(session: Session) -> list[list[str]]:
    """Name and source of each section in the session's last request."""
    return [[block.name, block.source] for block in request_of(session).system]


async def tools_of(session: Session) -> list[str]:
    """What a model is offered when the agent names nothing."""
    try:
        await session.run("Say hello", check=False)
    except SpineError as error:
        return [error.code]
    return [tool.name for tool in request_of(session).tools]


def plugins(runtime: Runtime) -> dict[str, Any]:
    """What the runtime lists, by name."""
    return {
        info.name: {"version": info.version, "state": info.state, "offers": info.offers, "error": info.error}
        for info in runtime.plugins
    }


async def unload(runtime: Runtime) -> dict[str, Any]:
    """What is left of the plugin when it is unloaded."""
    closed = Path("acme-closed")
    before = closed.exists()
    runtime.unload_plugin("acme")
    registries = runtime.registries
    return {
        "closed": [before, closed.exists()],
        "state": plugins(runtime)["acme"]["state"],
        "left": [
            *registries.tools.resolve(None).entries,
            *registries.sections.resolve(None).entries,
            *registries.adapters.resolve(None).entries,
            *runtime.hooks.order("spine_pre_step"),
        ],
        "run": await error_of(runtime),
    }


async def error_of(runtime: Runtime) -> str:
    """What a run on the unloaded provider ends with."""
    try:
        session = await runtime.session("late", PLAIN)
        await session.run("Say hello")
    except SpineError as error:
        return error.code
    return "none"


async def main() -> None:
    """Print the facts."""
    async with Runtime.open(STORE) as runtime:
        facts = {"plugins": plugins(runtime), "used": await use(runtime), "unloaded": await unload(runtime)}
    json.dump(facts, sys.stdout, default=list)


anyio.run(main)
