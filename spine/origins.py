"""Whose the parts of a step are (floor 9): layer, owner, what hides what, the order of the hooks; recorded in a frame.

A frame is stored once for each changed snapshot, and its origins stand beside the request that it holds, so that no
digest of a request covers them. A later frame of the same snapshot names the earlier one that has them.
"""

from collections.abc import Iterator
from typing import Any

from spine.agent import Agent
from spine.capabilities import Capabilities
from spine.hooks import WATERFALLS, Chains
from spine.scope import Contribution, Layer
from spine.tools import Tool
from spine.values import ScopeId

__all__ = ["origins_of"]


_HOOKS = (*WATERFALLS, "spine_post_step")
"""The hooks that are asked in a step."""


def origins_of(
    capabilities: Capabilities,
    chains: Chains,
    adapter: Contribution[Any] | None,
    agent: Agent,
    session: ScopeId,
) -> dict[str, Any]:
    """Sections in order, tools, adapter, and for each hook the plugins that are asked, first asked first; as JSON.

    An item has `name owner layer`; a tool also `effect approval`; what it hides stands in `hides`, nearest first.
    `layer` is `global`, `session` for the scope `session`, or `scope NAME`. `adapter` is left out when one that was
    given to the runtime answers everything.
    """
    tools = capabilities.tools.values()
    found: dict[str, Any] = {
        "sections": [_item(entry, session) for entry in capabilities.sections],
        "tools": [_item(entry, session) | dict(_treatment(entry, capabilities, agent)) for entry in tools],
        "adapter": {} if adapter is None else _item(adapter, session),
        "hooks": {hook: [each.plugin for each in chains[hook]] for hook in _HOOKS if chains[hook]},
    }
    return {kind: items for kind, items in found.items() if items}


def _item(entry: Contribution[Any], session: ScopeId) -> dict[str, Any]:
    item: dict[str, Any] = {"name": entry.name, "owner": entry.owner, "layer": _layer(entry.layer, session)}
    if entry.hides:
        item["hides"] = [{"owner": below.owner, "layer": _layer(below.layer, session)} for below in entry.hides]
    return item


def _layer(layer: Layer, session: ScopeId) -> str:
    return "global" if layer is None else "session" if layer == session else f"scope {layer}"


def _treatment(entry: Contribution[Any], capabilities: Capabilities, agent: Agent) -> Iterator[tuple[str, str]]:
    if not isinstance(entry.value, Tool):
        yield "effect", "run by the provider"
        return
    yield "effect", entry.value.effect
    policy = capabilities.policies.get(entry.name)
    approval = agent.approval or (entry.value.approval if policy is None else policy.value)
    yield "approval", approval if isinstance(approval, str) else "decided for each call"
