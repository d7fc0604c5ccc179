"""The reader of scenario files (floor 14): `*.scenario.yaml` becomes a `Scenario`, or a message that says where not.

What a file may hold is the tables below; `scenario_schema` publishes them as JSON Schema for editors.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from spine.agent import Limits
from spine.errors import ScenarioInvalid, UsageError
from spine.events import CORE_EVENTS
from spine.llm.catalogue import Prices
from spine.llm.errors import CATEGORIES
from spine.llm.response import STOP_REASONS
from spine.testing.scenarios.entry import ENTRY
from spine.testing.scenarios.scenario import (
    AgentSpec,
    CancelInput,
    Decision,
    Expected,
    ExpectedTurn,
    Fault,
    LateInput,
    ModelSpec,
    Moment,
    RetryInput,
    Scenario,
    SectionSpec,
    ToolAnswer,
    ToolSpec,
    UserInput,
)
from spine.testing.scenarios.shapes import (
    Anything,
    ByType,
    Choice,
    Field,
    Flag,
    Kind,
    ListOf,
    MapOf,
    Number,
    OneOrMore,
    Shape,
    Tagged,
    Text,
    Whole,
)
from spine.testing.scenarios.yaml_tree import Node, Source, parse
from spine.values import JsonObject, freeze_object, session_id

__all__ = ["SUFFIX", "read_scenario", "scenario_schema"]

SUFFIX: Final = ".scenario.yaml"


def read_scenario(path: Path, text: str | bytes | None = None) -> Scenario:
    """The scenario in a file (or in `text`, as if it stood there). Raises `ScenarioInvalid`."""
    source = Source(path.name)
    if text is None:
        try:
            text = path.read_bytes()
        except OSError as exc:
            raise ScenarioInvalid(f"{path}: {exc.strerror or exc}") from exc
    values: dict[str, Any] = dict(SCENARIO.read(parse(text, source), source))
    values.setdefault("session", _session_of(path))
    return Scenario(path=path, name=values.pop("scenario"), **values)


def scenario_schema() -> dict[str, Any]:
    """The JSON Schema of scenario files."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A scenario of Agent Spine"}
    return {**head, **SCENARIO.schema()}


def _session_of(path: Path) -> str:
    stem = re.sub("[^A-Za-z0-9_-]+", "-", path.name.removesuffix(".yaml").removesuffix(".scenario"))
    return stem.strip("-")[:64] or "scenario"


# ---------------------------------------------------------------------------------------------------- small kinds


_CORE_TYPES: Final = tuple(kind.name for kind in CORE_EVENTS)
_CORE_GROUPS: Final = frozenset(name.partition(".")[0] for name in _CORE_TYPES)


class _EventType:
    """The name of an event type."""

    def read(self, node: Node, source: Source) -> str:
        """The name."""
        name = Text().read(node, source)
        group, dot, _ = name.partition(".")
        if name not in _CORE_TYPES and (not dot or group in _CORE_GROUPS):
            return Choice(_CORE_TYPES).read(node, source)
        return name

    def schema(self) -> dict[str, Any]:
        """A known type of the core, or a name with a plugin's prefix."""
        groups = "|".join(sorted(_CORE_GROUPS))
        return {"anyOf": [Choice(_CORE_TYPES).schema(), {"type": "string", "pattern": rf"^(?!({groups})\.)[^.]+\."}]}


EVENT: Final = _EventType()
NAMES: Final = ListOf(Text())
_OBJECT: Final = ByType({dict: Anything()})


def _options(values: Mapping[str, Any], *taken: str) -> JsonObject:
    return freeze_object({key: value for key, value in values.items() if key not in taken})


# --------------------------------------------------------------------------------------------------------- inputs


def _moment(values: Mapping[str, Any]) -> Moment:
    return Moment(values["at"], values.get("nth", 1))


_MOMENT: Final[Mapping[str, Field]] = {
    "at": Field(EVENT, "Once an event of this type is recorded.", required=True),
    "nth": Field(Whole(1), "Which of them, from 1."),
}


def _late(delivery: Any, help: str) -> Shape:
    return Shape(
        {delivery: Field(Text(), help, required=True), **_MOMENT},
        lambda values, _: LateInput(text=values[delivery], delivery=delivery, at=_moment(values)),
    )


INPUT: Final = Tagged(
    {
        "user": Shape(
            {"user": Field(Text(), "A turn with this text.", required=True)},
            lambda values, _: UserInput(text=values["user"]),
        ),
        "steer": _late("steer", "Text that joins the running turn at its next step."),
        "queue": _late("queue", "Text that waits for the next turn."),
        "interrupt": _late("interrupt", "Text that cancels the running turn and begins another."),
        "cancel": Shape(
            {"cancel": Field(Text(), "Why the turn is stopped.", required=True), **_MOMENT},
            lambda values, _: CancelInput(cause=values["cancel"], at=_moment(values)),
        ),
        "retry": Shape(
            {"retry": Field(Choice(("plain", "keep_partial")), "The last turn once more.", required=True)},
            lambda values, _: RetryInput(keep_partial=values["retry"] == "keep_partial"),
        ),
    }
)


class _Inputs:
    """All inputs: there is one, and the first is a user's."""

    _list = ListOf(INPUT, at_least=1)

    def read(self, node: Node, source: Source) -> tuple[Any, ...]:
        """The inputs."""
        inputs = self._list.read(node, source)
        if not isinstance(inputs[0], UserInput):
            raise source.error(node, f"inputs begin with a user's; found {next(iter(node.value[0].value))}")
        return inputs

    def schema(self) -> dict[str, Any]:
        """A list of inputs."""
        return self._list.schema()


# ------------------------------------------------------------------------------------------------ agent and tools


def _parameters(given: Mapping[str, Any]) -> JsonObject:
    """Each parameter's type or schema, all of them required, as one JSON Schema."""
    properties = {name: {"type": kind} if isinstance(kind, str) else kind for name, kind in given.items()}
    return freeze_object(
        {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    )


_JSON_TYPES: Final = ("string", "integer", "number", "boolean", "array", "object")
_TOOL: Final = Shape(
    {
        "description": Field(Text(), "What the model is told of it."),
        "parameters": Field(
            MapOf(
                ByType({str: Choice(("string", "integer", "number", "boolean", "array", "object")), dict: Anything()})
            ),
            "Each parameter's JSON type, or its JSON Schema; all are required.",
        ),
        "schema": Field(_OBJECT, "The JSON Schema of all arguments, instead of parameters."),
        "effect": Field(
            Choice(("read_only", "idempotent", "irreversible")),
            "What running a call twice does; irreversible if not said.",
        ),
        "parallel": Field(Flag(), "Whether it may overlap with its neighbours; read-only tools may."),
        "approval": Field(Choice(("never", "ask")), "Whether a person must allow each call."),
        "approval_reason": Field(Text(), "What that person is told."),
        "timeout_s": Field(Number(), "Seconds until a call is stopped."),
        "max_result_bytes": Field(Whole(1), "Longer results are cut."),
    }
)


def _tools(definitions: Mapping[str, Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    return tuple(
        ToolSpec(
            name=name,
            description=values.get("description", ""),
            parameters=freeze_object(values.get("schema") or _parameters(values.get("parameters", {}))),
            options=_options(values, "description", "parameters", "schema"),
        )
        for name, values in definitions.items()
    )


def _agent(values: Mapping[str, Any], _: Node) -> AgentSpec:
    tools: list[str | ToolSpec] = []
    for item in values.get("tools", ()):
        tools.extend((item,) if isinstance(item, str) else _tools(item))
    return AgentSpec(model=values["model"], tools=tuple(tools), options=_options(values, "model", "tools"))


AGENT: Final[Kind] = ByType(
    {
        str: Text(),
        dict: Shape(
            {
                "model": Field(Text(), "provider:name; stays in the log, the script answers.", required=True),
                "name": Field(Text(), "The agent's name."),
                "instructions": Field(Text(), "Its prompt section, order 10."),
                "tools": Field(
                    ListOf(ByType({str: Text(), dict: MapOf(_TOOL)})),
                    "module:attribute, names or patterns of plugins' tools, or definitions.",
                ),
                "steps": Field(Whole(1), "How many requests a turn may make."),
                "tokens": Field(Whole(1), "How many tokens its answers may use."),
                "cost": Field(Text(lambda text: Limits(cost=text)), "What they may cost, as 0.50 USD; needs prices."),
                "wall_s": Field(Number(positive=True), "How many seconds a turn may run at a stretch."),
                "max_output_tokens": Field(Whole(1), "Output limit of a request."),
                "temperature": Field(Number(), "Sampling temperature."),
            },
            _agent,
        ),
    }
)
_SECTION: Final = Shape(
    {
        "name": Field(Text(), "Its name; a nearer section of the same name hides a farther one.", required=True),
        "text": Field(Text(), "What the model is told.", required=True),
        "scope": Field(Text(), "Where it holds; everywhere if not said."),
        "order": Field(Whole(), "Its place; lower comes first."),
        "priority": Field(Whole(), "Of dynamic sections the lowest goes first when the window is full."),
        "dynamic": Field(Flag(), "Rendered at each step, and left out when the window is full."),
    },
    lambda values, _: SectionSpec(
        name=values["name"],
        text=values["text"],
        scope=values.get("scope"),
        options=_options(values, "name", "text", "scope"),
    ),
)


def _prices(values: Mapping[str, Any], _: Node) -> Prices:
    given = dict(values)
    currency = given.pop("currency", "USD")
    micros = {name: Decimal(repr(amount)) * 1_000_000 for name, amount in given.items()}
    for name, amount in micros.items():
        if amount != amount.to_integral_value():
            raise UsageError(f"the price {name} has more than six decimals")
    return Prices(id="scenario", currency=currency, **{name: int(amount) for name, amount in micros.items()})


_PRICES: Final = Shape(
    {
        "currency": Field(Text(), "USD if not said."),
        "input": Field(Number(), "Of a million tokens.", required=True),
        "output": Field(Number(), "Of a million tokens.", required=True),
        "cache_read": Field(Number(), "Of a million tokens from a cache; as other input if not said."),
        "cache_write": Field(Number(), "Of a million tokens written to a cache; as other input if not said."),
    },
    _prices,
)
_MODEL: Final = Shape(
    {
        "window": Field(Whole(1), "Context window in tokens."),
        "max_output": Field(Whole(1), "Longest output in tokens."),
        "prices": Field(_PRICES, "What its tokens cost."),
    },
    lambda values, _: ModelSpec(**values),
)


def _answer(values: Mapping[str, Any], _: Node) -> ToolAnswer:
    given = dict(values)
    raised = given.pop("raises", None)
    if isinstance(raised, dict):
        if len(raised) != 1:
            raise UsageError("raises takes one exception: its class name and its message")
        raised = next(iter(raised.items()))
    elif raised is not None:
        raised = ("RuntimeError", raised)
    return ToolAnswer(is_own=raised is None and "returns" not in given, raises=raised, **given)


_ANSWER: Final = Shape(
    {
        "returns": Field(Anything(), "Its result."),
        "raises": Field(
            ByType({str: Text(), dict: MapOf(Text())}), "The message of a RuntimeError, or class name to message."
        ),
        "delay_s": Field(Number(), "How long it takes; from the tool's timeout on it is one. Costs no real time."),
        "times": Field(Whole(), "How often it must run, exactly."),
    },
    _answer,
)


# ------------------------------------------------------------------------------------------- the rest and the whole


_DECISION: Final = Shape(
    {
        "call": Field(Text(), "Name of the tool that waits.", required=True),
        "decide": Field(Choice(("approve", "deny")), "What the person decides.", required=True),
        "by": Field(Text(), "Who decides.", required=True),
        "reason": Field(Text(), "Why."),
    },
    lambda values, _: Decision(**values),
)
_NEXT: Final[Mapping[str, Field]] = {
    "agent": Field(AGENT, "The agent that the next process has."),
    "plugins": Field(NAMES, "The plugins that the next process has."),
}


class _Point:
    """The name of a failpoint that a scenario passes."""

    _form: Final = re.compile(r"model\.(ask|item|end)|(tool|reconcile|hook|clock)\.\S+\.(before|after)")

    def read(self, node: Node, source: Source) -> str:
        """The name."""
        name = Text().read(node, source)
        if not self._form.fullmatch(name):
            forms = "model.ask, model.item, model.end, tool.NAME.before, tool.NAME.after, hook.PLUGIN.HOOK.before, …"
            raise source.error(node, f'no failpoint is called "{name}"; there are {forms}')
        return name

    def schema(self) -> dict[str, Any]:
        """Text of that form."""
        return {"type": "string", "pattern": f"^({self._form.pattern})$"}


def _fault(values: Mapping[str, Any], *, is_point: bool = False) -> Fault:
    at = Moment(values["point" if is_point else "at"], values.get("nth", 1))
    rest = {key: values[key] for key in values if key not in ("at", "point", "nth")}
    return Fault(at=at, is_point=is_point, **rest)


_FAULT: Final = Tagged(
    {
        "at": Shape(
            {
                **_MOMENT,
                "do": Field(Choice(("crash", "restart")), "Killed, or closed in good order.", required=True),
                **_NEXT,
            },
            lambda values, _: _fault(values),
        ),
        "point": Shape(
            {
                "point": Field(_Point(), "Once this failpoint is reached, as tool.NAME.after.", required=True),
                "nth": _MOMENT["nth"],
                "do": Field(Choice(("crash",)), "Killed.", required=True),
                **_NEXT,
            },
            lambda values, _: _fault(values, is_point=True),
        ),
    }
)
_TURN: Final = Shape(
    {
        "status": Field(Choice(("completed", "failed", "cancelled", "suspended")), "How it ended.", required=True),
        "steps": Field(Whole(), "Requests made."),
        "retries": Field(Whole(), "Attempts after the first ones."),
        "tool_calls": Field(Whole(), "Calls that the model asked for."),
        "stop_reason": Field(Choice(STOP_REASONS), "Why the last answer ended."),
        "text": Field(Text(), "The whole final text."),
        "error": Field(Choice(CATEGORIES), "Category of the failure."),
    },
    lambda values, _: ExpectedTurn(**values),
)
_EXPECTED: Final = Shape(
    {
        "turns": Field(ListOf(_TURN), "Each turn, in order."),
        "calls": Field(NAMES, "Tools whose handlers started, in order."),
        "finished": Field(NAMES, "Tools in the order in which their outcomes came in."),
        "outcomes": Field(
            ListOf(Choice(("ok", "error", "denied", "timeout", "interrupted", "not_started"))),
            "Outcomes of all calls, in call order.",
        ),
        "events": Field(ListOf(EVENT), "Event types that occur in this order, others between them."),
        "never": Field(ListOf(EVENT), "Event types that must not occur."),
        "transcript": Field(Choice(("snapshot",)), "Compared with NAME.transcript.txt beside this file."),
    },
    lambda values, _: Expected(**values),
)
SCENARIO: Final = Shape(
    {
        "scenario": Field(Text(), "What it shows, in a sentence.", required=True),
        "session": Field(Text(session_id), "The session's id; the file's name if not said."),
        "agent": Field(AGENT, "module:attribute beside this file or importable; or written here.", required=True),
        "plugins": Field(NAMES, "Modules with hooks, beside this file or importable."),
        "deps": Field(Text(), "module:attribute of what tools get as context.deps."),
        "scope": Field(Text(), "The scope in which the session is opened."),
        "metadata": Field(_OBJECT, "Logged with the session."),
        "variables": Field(_OBJECT, "For prompt sections."),
        "sections": Field(ListOf(_SECTION), "Prompt sections beside the agent's own."),
        "models": Field(MapOf(_MODEL), "What the catalogue knows, by provider:name."),
        "inputs": Field(_Inputs(), "What comes in, in order.", required=True),
        "model": Field(ListOf(ENTRY), "The script: one entry for each attempt, in order.", required=True),
        "attempts": Field(Whole(1), "How many attempts a request may have; 3 if not said."),
        "tools": Field(
            MapOf(OneOrMore(_ANSWER)),
            "What tools do: always the same, or one of a list for each run; without returns and raises they run.",
        ),
        "approvals": Field(ListOf(_DECISION), "What people decide, in order."),
        "faults": Field(ListOf(_FAULT), "Where the process ends and another one goes on, in order."),
        "expect": Field(_EXPECTED, "What must hold in the end."),
    }
)
