"""What a scenario says, as frozen values (floor 14); `file` reads them and `play` plays them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import attrs

from spine.llm.catalogue import Prices
from spine.testing.script import Entry
from spine.values import EMPTY_OBJECT, Json, JsonObject, freeze, freeze_object

__all__ = [
    "AgentSpec",
    "CancelInput",
    "Decision",
    "Expected",
    "ExpectedTurn",
    "Fault",
    "LateInput",
    "ModelSpec",
    "Moment",
    "RetryInput",
    "Scenario",
    "SectionSpec",
    "ToolAnswer",
    "ToolSpec",
    "UserInput",
]


@attrs.frozen
class Moment:
    """The `nth` event (from 1) of type `event`: since the turn began for an input, since the last fault for a fault.

    `*` stands for any type.
    """

    event: str
    nth: int = 1


# --------------------------------------------------------------------------------------------------------- inputs


@attrs.frozen(kw_only=True)
class UserInput:
    """A turn with this text."""

    text: str


@attrs.frozen(kw_only=True)
class RetryInput:
    """The last turn again, when it failed or was cancelled; going on from its text with `keep_partial`."""

    keep_partial: bool = False


@attrs.frozen(kw_only=True)
class LateInput:
    """Text that comes in while the turn before it runs, once `at` is recorded."""

    text: str
    delivery: Literal["queue", "steer", "interrupt"]
    at: Moment


@attrs.frozen(kw_only=True)
class CancelInput:
    """Somebody stops the turn before it, once `at` is recorded."""

    cause: str
    at: Moment


# ---------------------------------------------------------------------------------------------- agent and tools


@attrs.frozen(kw_only=True)
class ToolSpec:
    """A tool written in the scenario: its definition only; what it answers stands under `tools`."""

    name: str
    description: str = ""
    parameters: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)
    """A JSON Schema object."""
    options: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)
    """`effect`, `parallel`, `approval`, `approval_reason`, `timeout_s`, `max_result_bytes`, as given."""


@attrs.frozen(kw_only=True)
class AgentSpec:
    """An agent written in the scenario. `tools` are `module:attribute`, names that plugins offer, and definitions."""

    model: str
    tools: tuple[str | ToolSpec, ...] = ()
    options: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)
    """`name`, `instructions`, `steps`, `tokens`, `cost`, `wall_s`, `max_output_tokens`, `temperature`, as given."""


@attrs.frozen(kw_only=True)
class SectionSpec:
    """A prompt section, in `scope` or, with None, global."""

    name: str
    text: str
    scope: str | None = None
    options: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)
    """`order`, `priority`, `dynamic`, as given."""


@attrs.frozen(kw_only=True)
class ModelSpec:
    """What the catalogue knows of a model: tokens, and what they cost."""

    window: int | None = None
    max_output: int | None = None
    prices: Prices | None = None


@attrs.frozen(kw_only=True)
class ToolAnswer:
    """What a tool does, after `delay_s` seconds of fake time: return, raise, or run its own handler (`is_own`).

    A delay that reaches the tool's timeout is one. `times` None: however often it is called.
    """

    is_own: bool = False
    returns: Json = attrs.field(default=None, converter=freeze)
    raises: tuple[str, str] | None = None
    """Class name and message of an exception."""
    delay_s: float = 0.0
    times: int | None = None


# ------------------------------------------------------------------------------------------- decisions and faults


@attrs.frozen(kw_only=True)
class Decision:
    """A person's answer to the next open approval, which must be about the tool `call`."""

    call: str
    decide: Literal["approve", "deny"]
    by: str
    reason: str | None = None


@attrs.frozen(kw_only=True)
class Fault:
    """The process ends at `at` and another one goes on: killed (`crash`), or closed in good order (`restart`).

    `at` is an event that was just stored or, with `is_point`, a failpoint that was just reached. `agent` and `plugins`
    are what the next process has installed; None: the same as before.
    """

    at: Moment
    do: Literal["crash", "restart"]
    is_point: bool = False
    agent: str | AgentSpec | None = None
    plugins: tuple[str, ...] | None = None


# --------------------------------------------------------------------------------------------------- expectations


@attrs.frozen(kw_only=True)
class ExpectedTurn:
    """What a turn must have come to; None is not looked at."""

    status: str
    steps: int | None = None
    retries: int | None = None
    tool_calls: int | None = None
    stop_reason: str | None = None
    text: str | None = None
    error: str | None = None
    """Category of the failure."""


@attrs.frozen(kw_only=True)
class Expected:
    """What must hold in the end; None is not looked at."""

    turns: tuple[ExpectedTurn, ...] | None = None
    calls: tuple[str, ...] | None = None
    """Names of the calls that started, in order."""
    finished: tuple[str, ...] | None = None
    """Names of the calls in the order in which their outcomes came in."""
    outcomes: tuple[str, ...] | None = None
    """Statuses of all calls, in call order."""
    events: tuple[str, ...] = ()
    """Event types that occur in this order, others between them."""
    never: tuple[str, ...] = ()
    """Event types that do not occur."""
    transcript: Literal["snapshot"] | None = None


@attrs.frozen(kw_only=True)
class Scenario:
    """A session from its first input to its last event, with everything that comes from outside."""

    path: Path
    name: str
    session: str
    agent: str | AgentSpec
    inputs: tuple[UserInput | RetryInput | LateInput | CancelInput, ...]
    model: tuple[Entry, ...] = ()
    tools: Mapping[str, tuple[ToolAnswer, ...]] = attrs.field(factory=dict)
    approvals: tuple[Decision, ...] = ()
    faults: tuple[Fault, ...] = ()
    expect: Expected = Expected()
    plugins: tuple[str, ...] = ()
    """Modules with hook implementations, beside the file or importable."""
    sections: tuple[SectionSpec, ...] = ()
    models: Mapping[str, ModelSpec] = attrs.field(factory=dict)
    deps: str | None = None
    """`module:attribute` of what tools get as `context.deps`; called when it is a function or a class."""
    attempts: int = 3
    """How many attempts a request may have; one that a crash swallows counts."""
    scope: str | None = None
    metadata: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)
    variables: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)

    @property
    def snapshot(self) -> Path:
        """Where the transcript is kept: `refund.transcript.txt` beside `refund.scenario.yaml`."""
        return self.path.with_name(self.path.name.removesuffix(".yaml").removesuffix(".scenario") + ".transcript.txt")

    @property
    def needs_restarts(self) -> bool:
        """Whether another process goes on with the session somewhere."""
        return bool(self.faults)
