"""`plugins` and `tools` (floor 15): what is installed, what it offers, and one tool called without a model."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

import anyio
import click

from spine.cli.agents import choose_agent
from spine.cli.ending import FAILS, HOLDS
from spine.cli.options import options
from spine.cli.plugins.doctor import doctor
from spine.cli.plugins.new import new
from spine.cli.reading import load_plugins
from spine.cli.screen import columns, note, out, out_json
from spine.codec import Codec
from spine.config import Settings, load_settings
from spine.errors import ToolUnknown, UsageError, ValueRefused
from spine.execution import ToolContext, execute, validate
from spine.messages import JsonBlock
from spine.plugins import PluginInfo
from spine.projectors.json import plain
from spine.projectors.phrases import json_text
from spine.projectors.visible import one_line
from spine.tools import Tool, ToolOutcome
from spine.values import CallId, SessionId, freeze_object, load

__all__ = ["COMMANDS"]


# ---------------------------------------------------------------------------------------------------------- plugins


@click.group(invoke_without_command=True)
@click.pass_context
@options("json")
def plugins(ctx: click.Context, as_json: bool) -> int | None:
    """List plugins and what they offer; start one, and examine one."""
    return _list_plugins(as_json) if ctx.invoked_subcommand is None else None


@plugins.command("list")
@options("json")
def plugins_list(as_json: bool) -> int:
    """List plugins: version, state, time to import, what they offer. Exit status 1 when one failed to load."""
    return _list_plugins(as_json)


plugins.add_command(doctor)
plugins.add_command(new)


def _list_plugins(as_json: bool) -> int:
    infos = load_plugins(load_settings(), Codec()).infos
    if as_json:
        for info in infos:
            out_json(_plugin_fact(info))
    else:
        rows = [(i.name, i.version, i.state, _time(i), one_line(i.error or " · ".join(i.offers))) for i in infos]
        out(columns(("plugin", "version", "state", "import", "offers"), rows))
    return FAILS if any(info.state == "failed" for info in infos) else HOLDS


def _time(info: PluginInfo) -> str:
    return "" if info.import_s is None else f"{info.import_s * 1000:.1f} ms"


def _plugin_fact(info: PluginInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "version": info.version,
        "state": info.state,
        "import_s": info.import_s,
        "offers": list(info.offers),
        "error": info.error,
    }


# ------------------------------------------------------------------------------------------------------------ tools


@click.group(invoke_without_command=True)
@click.pass_context
@options("agent", "json")
def tools(ctx: click.Context, agent: str | None, as_json: bool) -> None:
    """List the tools of the agent and of plugins, and call one without a model."""
    if ctx.invoked_subcommand is None:
        _list_tools(agent, as_json)


@tools.command("list")
@options("agent", "json")
def tools_list(agent: str | None, as_json: bool) -> None:
    """List the tools of the agent and of plugins."""
    _list_tools(agent, as_json)


def _list_tools(agent: str | None, as_json: bool) -> None:
    found = _tools(load_settings(arguments={"agent": agent}))
    if as_json:
        for owner, tool in found.values():
            out_json(_tool_fact(owner, tool))
        return
    rows = [
        (name, f"({', '.join(tool.definition.parameters.get('required') or ())})", tool.effect, _asks(tool), owner)
        for name, (owner, tool) in found.items()
    ]
    out(columns(("tool", "parameters", "effect", "approval", "from"), rows))


def _tools(settings: Settings) -> Mapping[str, tuple[str, Tool]]:
    """The tools of the project's agent, then those that plugins offer, each with its owner."""
    chosen = choose_agent(settings, None) if settings.agent is not None else None
    found: dict[str, tuple[str, Tool]] = {}
    if chosen is not None:
        found |= {tool.name: (f"agent {chosen.agent.name}", tool) for tool in chosen.agent.own_tools}
    for name, entry in load_plugins(settings, Codec()).registries.tools.resolve(None).entries.items():
        if isinstance(entry.value, Tool):
            found.setdefault(name, (entry.owner, entry.value))
    return found


def _asks(tool: Tool) -> str:
    return tool.approval if isinstance(tool.approval, str) else "a policy"


def _tool_fact(owner: str, tool: Tool) -> dict[str, Any]:
    definition = tool.definition
    return {
        "name": tool.name,
        "description": definition.description,
        "parameters": definition.parameters,
        "effect": tool.effect,
        "approval": _asks(tool),
        "parallel": tool.parallel,
        "timeout_s": tool.timeout_s,
        "owner": owner,
    }


@tools.command("call")
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@options("agent", "json")
def tools_call(name: str, arguments: tuple[str, ...], agent: str | None, as_json: bool) -> int:
    """Call a tool as a model's call would: schema, timeout and limits; no approval is asked, nothing is logged.

    A value is text where the schema says so, else JSON: order_id=1017 paid=true 'tags=["a"]'.
    """
    found = _tools(load_settings(arguments={"agent": agent}))
    if name not in found:
        near = get_close_matches(name, found, 1)
        nearest = f'; nearest is "{near[0]}"' if near else f"; there are: {', '.join(found) or 'none'}"
        raise ToolUnknown(f'no tool "{name}"{nearest}', hint="spine tools list")
    tool = found[name][1]
    outcome = anyio.run(_call, tool, _arguments(tool, arguments))
    if as_json:
        out_json({"status": outcome.status, **plain(outcome)})
    else:
        for block in outcome.content:
            out(json_text(block.value) if isinstance(block, JsonBlock) else str(getattr(block, "text", block)))
    if outcome.status != "ok":
        note(f"{name}: {outcome.status}")
    return HOLDS if outcome.status == "ok" else FAILS


async def _call(tool: Tool, arguments: dict[str, Any]) -> ToolOutcome:
    frozen = freeze_object(arguments)
    problem = validate(tool, frozen)
    if problem is not None:
        raise UsageError(f'tool "{tool.name}": {problem}', hint="spine tools list --json")
    context: ToolContext[None] = ToolContext(deps=None, session=SessionId("tools-call"), call=CallId("t1s1c1"))
    return (await execute(tool, frozen, context)).outcome


def _arguments(tool: Tool, pairs: tuple[str, ...]) -> dict[str, Any]:
    properties = tool.definition.parameters.get("properties") or {}
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise UsageError(f'argument "{pair}" is not of the form key=value', hint="spine tools call --help")
        found[key] = text if _is_text(properties.get(key)) else _json(key, text)
    return found


def _is_text(schema: Any) -> bool:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return kind == "string" or (isinstance(kind, tuple | list) and "string" in kind)


def _json(key: str, text: str) -> Any:
    try:
        return load(text)
    except ValueRefused as error:
        raise UsageError(f'argument {key}: "{text}" is no JSON ({error.message})') from error


COMMANDS: Final[dict[str, click.Command]] = {"plugins": plugins, "tools": tools}
