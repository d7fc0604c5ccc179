"""What a tool is, a call of it, and what came back: values only (floor 2)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import attrs

from spine.frozen import frozen
from spine.messages import ResultContent, ToolCallBlock
from spine.values import EMPTY_OBJECT, CallId, JsonObject, as_tuple, freeze_object

__all__ = [
    "AfterCrash",
    "Approval",
    "Effect",
    "ServerTool",
    "Tool",
    "ToolDefinition",
    "ToolError",
    "ToolHandler",
    "ToolInvocation",
    "ToolOutcome",
    "ToolStatus",
]

Effect = Literal["read_only", "idempotent", "reconcilable", "irreversible"]
"""What running a call twice would do: nothing, the same, something that can be asked about, harm."""
ToolStatus = Literal["ok", "error", "denied", "timeout", "interrupted", "not_started"]
"""How a call ended; all but `ok` are errors to the model."""
ApprovalPolicy = Literal["never", "ask"]
Approval = ApprovalPolicy | Callable[["ToolInvocation"], ApprovalPolicy]
"""`never`, `ask`, or a pure function of the call that answers one of the two."""

AfterCrash = Literal["tell", "ask"]
"""What becomes of a call that may have acted when its process ended: the model is told so, or a person decides."""

DEFAULT_RESULT_BYTES = 64 * 1024


@frozen(kw_only=True)
class ToolDefinition:
    """What the model is told of a tool; part of the request's digest. `parameters` is a JSON Schema object."""

    name: str
    description: str = ""
    parameters: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)


@frozen(kw_only=True)
class ToolError:
    """Why a call has no good result. `kind`: unknown_tool, invalid_arguments, exception, timeout, denied, …"""

    kind: str
    message: str
    type: str | None = None
    """The exception's class name, when there was one."""


@frozen(kw_only=True)
class ToolOutcome:
    """What came back from one call. `duration_s` is None when nothing ran."""

    status: ToolStatus = "ok"
    content: tuple[ResultContent, ...] = attrs.field(default=(), converter=as_tuple)
    error: ToolError | None = None
    truncated: bool = False
    duration_s: float | None = None
    usage: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)

    def evolve(self, **changes: Any) -> "ToolOutcome":
        """This outcome with some fields replaced."""
        return attrs.evolve(self, **changes)


@frozen(kw_only=True)
class ToolInvocation:
    """A call on its way to its handler. `arguments` are the effective ones, `requested` what the model wrote."""

    id: CallId
    name: str
    arguments: JsonObject = attrs.field(converter=freeze_object)
    requested: ToolCallBlock

    def evolve(self, **changes: Any) -> "ToolInvocation":
        """This call with some fields replaced; only `arguments` may differ."""
        return attrs.evolve(self, **changes)


ToolHandler = Callable[[Mapping[str, Any], Any], Any | Awaitable[Any]]
"""`handler(arguments, context)`: a value, a `ToolOutcome`, or an awaitable of one."""


@frozen(kw_only=True)
class Tool:
    """A registered tool: its definition, its handler, and how the loop must treat it.

    `handler` runs on the event loop when it is a coroutine function, else in a worker thread. `timeout_s` None waits
    for ever. `reconcile(arguments, context)` answers, after a crash, whether a reconcilable call took effect.
    """

    definition: ToolDefinition
    handler: ToolHandler
    effect: Effect = "irreversible"
    parallel: bool = False
    timeout_s: float | None = None
    max_result_bytes: int = DEFAULT_RESULT_BYTES
    approval: Approval = "never"
    approval_reason: str | None = None
    reconcile: ToolHandler | None = None
    after_crash: AfterCrash = "tell"
    """For calls that must not simply run again and that no check can tell of."""
    check: Callable[[JsonObject], str | None] | None = None
    """What is wrong with arguments that fit the schema, in one sentence; None when nothing is. Asked before a start."""
    owner: str = ""
    """Who registered it; filled at registration."""

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        return self.definition.name

    def evolve(self, **changes: Any) -> "Tool":
        """This tool with some fields replaced."""
        return attrs.evolve(self, **changes)


@frozen(kw_only=True)
class ServerTool:
    """A tool the provider runs itself: stands in snapshot and request, never executed here."""

    name: str
    protocol: str
    config: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)
