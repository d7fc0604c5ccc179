"""The calls of one message: grouped by neighbourhood, bound to what was approved, closed truthfully."""

import functools
import operator
from typing import Any

import attrs
import pytest

from spine import Agent
from spine.approving import approval_hash
from spine.calls import _groups, not_started_after
from spine.capabilities import Capabilities
from spine.codec import Codec
from spine.llm.response import STOP_REASONS
from spine.messages import ToolCallBlock
from spine.projectors.status import CallState
from spine.scope import Contribution
from spine.tools import Tool, ToolDefinition
from spine.values import CallId, freeze_object

CODEC = Codec()


def tool(name: str, **fields: Any) -> Tool:
    return Tool(definition=ToolDefinition(name=name), handler=lambda arguments, context: None, **fields)


@attrs.define
class Machinery:
    """As much of a run as grouping and binding need."""

    capabilities: Capabilities
    agent: Agent = Agent("p:m")
    versions: dict[str, str] = attrs.Factory(dict)
    log: Any = None

    def plugins(self) -> dict[str, str]:
        return self.versions


def machinery(*tools: Tool, **fields: Any) -> Any:
    entries = {each.name: Contribution(name=each.name, value=each, owner=each.owner) for each in tools}
    log = type("Log", (), {"codec": CODEC})()
    return Machinery(Capabilities(tools=entries, definitions=(), sections=()), log=log, **fields)  # type: ignore[arg-type]


GROUPS = {
    "": "",
    "p": "p",
    "s": "s",
    "pp": "pp",
    "ss": "s s",
    "pps": "pp s",
    "spp": "s pp",
    "psp": "p s p",
    "ppsppsp": "pp s pp s p",
    "u": "u",
    "pup": "p u p",
}


@pytest.mark.parametrize(("calls", "groups"), GROUPS.items())
def test_groups_are_the_longest_runs_of_parallel_neighbours(calls: str, groups: str) -> None:
    """p parallel, s not, u unknown: order is kept, and nothing is left out."""
    run = machinery(tool("p", parallel=True), tool("s"))
    states = [CallState(ToolCallBlock(id=CallId(f"c{n}"), name=name)) for n, name in enumerate(calls)]
    found = list(_groups(run, states))
    assert " ".join("".join(state.block.name for state in group) for group in found) == groups
    assert functools.reduce(operator.iadd, found, []) == states


PAY = tool("pay", approval="ask", owner="shop@1")
ARGUMENTS = freeze_object({"cents": 5})


def hash_of(tool: Tool = PAY, arguments: Any = ARGUMENTS, **fields: Any) -> str:
    return approval_hash(machinery(tool, **fields), tool, arguments)


CHANGES: dict[str, dict[str, Any]] = {
    "arguments": {"arguments": freeze_object({"cents": 6})},
    "the description": {"tool": PAY.evolve(definition=ToolDefinition(name="pay", description="x"))},
    "the schema": {"tool": PAY.evolve(definition=ToolDefinition(name="pay", parameters={"type": "object"}))},
    "the effect": {"tool": PAY.evolve(effect="idempotent")},
    "the owner": {"tool": PAY.evolve(owner="shop@2")},
    "the tool's policy": {"tool": PAY.evolve(approval=lambda invocation: "ask")},
    "the agent's policy": {"agent": Agent("p:m", approval=lambda invocation: "ask")},
    "a plugin": {"versions": {"shop": "2"}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_approval_is_bound_to_everything_that_it_judged(change: dict[str, Any]) -> None:
    """Any change gives another hash; the handler, timeouts and limits are no part of it."""
    assert hash_of(**change) != hash_of()
    assert hash_of(tool=PAY.evolve(timeout_s=5.0, handler=print)) == hash_of()


@pytest.mark.parametrize("reason", STOP_REASONS)
def test_a_dropped_call_is_told_why(reason: str) -> None:
    """max_tokens has its own words; the others name the stop reason."""
    outcome = not_started_after(reason)
    assert outcome.status == "not_started"
    text = outcome.content[0].text  # type: ignore[union-attr]
    assert ("output limit" in text) if reason == "max_tokens" else (reason in text)
