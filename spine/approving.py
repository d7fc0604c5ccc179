"""Who must be asked before a call runs, what the answer is bound to, and how it is recorded (floor 9, above `run`)."""

from collections.abc import Callable
from types import CodeType
from typing import Any, Literal

from spine.errors import ApprovalUnknown, HookMisused, PluginFailed
from spine.events import ApprovalDecided
from spine.inputs import checked_optional_text, checked_text
from spine.projectors.status import SessionStatus
from spine.run import Run
from spine.tools import Approval, Tool, ToolInvocation
from spine.values import Digest, Json, JsonObject, SessionId, digest, encode

__all__ = ["Decision", "approval_hash", "decided", "must_ask"]

Decision = Literal["approved", "denied"]


def _policy(run: Run, tool: Tool) -> tuple[Approval, str]:
    """The policy that holds for a tool, and whose it is: the agent's, else a registered one, else the tool's own."""
    if run.agent.approval is not None:
        return run.agent.approval, f"agent {run.agent.name}"
    entry = run.capabilities.policies.get(tool.name) if run.capabilities else None
    return (tool.approval, tool.owner) if entry is None else (entry.value, entry.owner)


def must_ask(run: Run, tool: Tool, invocation: Callable[[], ToolInvocation]) -> bool:
    """Whether a person must allow a call. A policy that breaks lets nothing run: `PluginFailed`."""
    policy, owner = _policy(run, tool)
    if policy == "never":
        return False
    name = f'the approval policy of tool "{tool.name}" from {owner}'
    try:
        verdict = policy(invocation()) if callable(policy) else policy
    except Exception as exc:
        raise PluginFailed(f"{name} raised {type(exc).__name__}: {exc}", plugin=owner, hook="policy") from exc
    if verdict not in ("never", "ask"):
        raise HookMisused(f'{name} returned {verdict!r:.80}; wanted "never" or "ask"', plugin=owner, hook="policy")
    return verdict == "ask"


def approval_hash(run: Run, tool: Tool, arguments: JsonObject) -> Digest:
    """What an approval is bound to: the tool, its schema, effective arguments, policy, and plugin versions."""
    policy, _ = _policy(run, tool)
    bound = {
        "tool": run.log.codec.to_json(tool.definition),
        "effect": tool.effect,
        "owner": tool.owner,
        "arguments": arguments,
        "policy": policy if isinstance(policy, str) else _named(policy),
        "plugins": dict(run.plugins()),
    }
    return digest(encode(bound))


def _named(policy: Callable[..., Any]) -> Json:
    """Name and code of a callable policy; one that is no function is known by the name of its class."""
    name = f"{policy.__module__}:{getattr(policy, '__qualname__', type(policy).__qualname__)}"
    code = getattr(policy, "__code__", None)
    return name if code is None else (name, _parts_of(code))


def _parts_of(code: CodeType) -> Json:
    """What a function does, in any process: no lines, no addresses, sets in order."""
    constants = (_parts_of(part) if isinstance(part, CodeType) else _shown(part) for part in code.co_consts)
    return (code.co_code.hex(), code.co_names, tuple(constants))


def _shown(constant: Any) -> str:
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


def decided(
    status: SessionStatus, session: SessionId, id: str, decision: Decision, *, by: str, reason: str | None, channel: str
) -> tuple[ApprovalDecided, str]:
    """The event of a person's decision, and the step that it belongs to.

    Raises `ApprovalUnknown` for an approval that is not open, or decided already; `UsageError` for what is no text.
    """
    by, channel = checked_text("by", by), checked_text("channel", channel)
    reason = checked_optional_text("reason", reason)
    approval = status.approvals.get(checked_text("id", id))
    if approval is None or approval.used:
        open_ids = ", ".join(a.request.id for a in status.open_approvals) or "none"
        unknown = f'no open approval "{id}" in session "{session}"; open: {open_ids}'
        raise ApprovalUnknown(unknown, hint="spine approvals")
    if approval.decision is not None:
        raise ApprovalUnknown(f'approval "{id}" was {approval.decision.decision} by {approval.decision.by} already')
    event = ApprovalDecided(id=id, decision=decision, by=by, channel=channel, reason=reason)
    return event, approval.request.call.partition("c")[0]
