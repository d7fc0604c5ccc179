"""What an agent is (floor 6): a frozen value that holds nothing that runs and is safe to import."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, get_args

import attrs

from spine.codec import Codec
from spine.errors import DuplicateContribution, UsageError
from spine.frozen import frozen
from spine.functions import FunctionTool, as_tool
from spine.llm.request import Route, Thinking, parameter_problem
from spine.tools import Approval, ApprovalPolicy, Tool
from spine.values import EMPTY_OBJECT, Digest, JsonObject, clean_text, digest, encode, freeze_object

__all__ = ["Agent", "Limits"]


def _cost(value: str | None) -> str | None:
    """`0.50 USD`, as it is recorded; `$0.50` is the same."""
    if value is None:
        return None
    form = r"\$(?P<dollars>[0-9]{1,12}(?:\.[0-9]{1,6})?)|[0-9]{1,12}(?:\.[0-9]{1,6})? [A-Z]{3}"
    found = re.fullmatch(form, value) if isinstance(value, str) else None
    if found is None or not re.search("[1-9]", value):
        raise UsageError(
            f"limit cost is {value!r:.80}; it must be an amount over 0 with its currency, of at most six decimals",
            hint='Limits(cost="0.50 USD")',
        )
    return f"{found['dollars']} USD" if found["dollars"] else value


@frozen(kw_only=True)
class Limits:
    """Budgets of one turn. A turn that has used one up fails with the numbers, and everything up to there is kept.

    Steps, cost and tokens are looked at before each request, so that the last answer may go over; time cuts off
    whatever runs. Cost and tokens count what whole answers reported. Raises `UsageError` for what is no limit.
    """

    steps: int | None = None
    """Requests; 50 when nobody says."""
    cost: str | None = attrs.field(default=None, converter=_cost)
    """Money, as `0.50 USD`; each model that is asked must have a price."""
    tokens: int | None = None
    """Input and output together; input from a cache counts like any other."""
    wall_s: float | None = None
    """Seconds at a stretch in one process; waiting for people does not count, and a resumed turn begins anew."""

    def __attrs_post_init__(self) -> None:
        for name, count in (("steps", self.steps), ("tokens", self.tokens)):
            if count is not None and (type(count) is not int or count < 1):
                raise UsageError(f"limit {name} is {count!r:.80}; it must be a positive whole number")
        if self.wall_s is not None and not (type(self.wall_s) in (int, float) and 0 < self.wall_s < math.inf):
            raise UsageError(f"limit wall_s is {self.wall_s!r:.80}; it must be a number of seconds over 0")

    @property
    def cost_micros(self) -> int:
        """The limit on cost in millionths; 0 without one."""
        amount, _, part = (self.cost or "0").partition(" ")[0].partition(".")
        return int(amount) * 1_000_000 + int(part.ljust(6, "0"))


def _tools(values: Iterable[Tool | FunctionTool[..., Any] | str]) -> tuple[Tool | FunctionTool[..., Any] | str, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise UsageError(f"an agent's tools are {values!r:.80}; they must be a list of functions, Tools and names")
    return tuple(values)


def _model(value: str | Route) -> str:
    return str(value) if isinstance(value, Route) else value


_FIELDS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "model": (lambda value: isinstance(value, str) and value != "", "provider:name, or an alias"),
    "name": (lambda value: isinstance(value, str) and value != "", "a text that is not empty"),
    "instructions": (lambda value: value is None or isinstance(value, str), "a text, or None"),
    "limits": (lambda value: isinstance(value, Limits), "Limits"),
    "approval": (
        lambda value: value is None or callable(value) or value in get_args(ApprovalPolicy),
        "never, ask, a function, or None",
    ),
}
_PARAMETERS: Final = ("max_output_tokens", "temperature", "thinking")


def _clean(given: Any) -> Any:
    """Text without lone surrogates, which no log could hold; anything else is refused by name below."""
    return clean_text(given) if isinstance(given, str) else given


def _problem(agent: "Agent") -> str | None:
    for field, (fits, wanted) in _FIELDS.items():
        value = getattr(agent, field)
        if not fits(value):
            return f"{field} is {value!r:.80}; it must be {wanted}"
    problems = (parameter_problem(name, getattr(agent, name)) for name in _PARAMETERS)
    return next(filter(None, problems), None)


def _check_names(agent: "Agent") -> None:
    """A tool's name stands once; both places are named, as far as they are known."""
    places: dict[str, str] = {}
    for thing in agent.tools:
        if isinstance(thing, str):
            continue
        name, where = as_tool(thing).name, thing.where if isinstance(thing, FunctionTool) else ""
        if name in places:
            first, again = f" ({places[name]})" if places[name] else "", f" at {where}" if where else ""
            raise DuplicateContribution(
                f'tool "{name}" already in agent "{agent.name}"{first}; added again{again}; names are unique per agent'
            )
        places[name] = where


@frozen
class Agent:
    """Which model, with which instructions and tools, within which limits.

    `tools` holds decorated functions and `Tool`s, and names or patterns (`orders.*`, `*`) that select among the tools
    plugins offer; an agent that names none gets none of those. Opening a session with an agent fills the session's
    own scope; the agent itself never changes.

    Raises `UsageError` for a value that a field cannot have, `RouteUnknown` for half a route, and
    `DuplicateContribution` for two tools of one name.
    """

    model: str = attrs.field(converter=_model)
    """`provider:name`, or an alias of the configuration."""
    name: str = attrs.field(default="agent", converter=_clean, kw_only=True)
    instructions: str | None = attrs.field(default=None, converter=_clean, kw_only=True)
    """Becomes the prompt section `instructions`, order 10."""
    tools: tuple[Tool | FunctionTool[..., Any] | str, ...] = attrs.field(default=(), converter=_tools, kw_only=True)
    limits: Limits = attrs.field(default=Limits(), kw_only=True)
    output: Any = attrs.field(default=None, kw_only=True)
    """A type that the final text must parse to; None for free text."""
    approval: Approval | None = attrs.field(default=None, kw_only=True)
    """Overrides every tool's own policy when given."""
    max_output_tokens: int | None = attrs.field(default=None, kw_only=True)
    temperature: float | None = attrs.field(default=None, kw_only=True)
    thinking: Thinking | None = attrs.field(default=None, kw_only=True)
    provider_options: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object, kw_only=True)
    metadata: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object, kw_only=True)
    """Recorded with each session that it fills, under what the session is given itself."""

    def __attrs_post_init__(self) -> None:
        problem = _problem(self)
        if problem is not None:
            name = f' "{self.name}"' if isinstance(self.name, str) and self.name else ""
            raise UsageError(f"agent{name}: {problem}")
        Route.parse(self.model) if ":" in self.model else None
        _check_names(self)

    def evolve(self, **changes: Any) -> "Agent":
        """This agent with some fields replaced."""
        return attrs.evolve(self, **changes)

    @property
    def own_tools(self) -> tuple[Tool, ...]:
        """The tools that the agent brings along."""
        return tuple(as_tool(tool) for tool in self.tools if not isinstance(tool, str))

    @property
    def selected(self) -> tuple[str, ...]:
        """Names and patterns of tools that plugins offer."""
        return tuple(tool for tool in self.tools if isinstance(tool, str))


def contract(codec: Codec, agent: Agent, route: Route, definitions: Sequence[Tool]) -> Digest:
    """The digest of all that an agent asks of model and tools; a change of it is recorded when a session goes on."""
    return digest(
        encode(
            {
                "name": agent.name,
                "model": str(route),
                "instructions": agent.instructions,
                "tools": [_tool_json(codec, tool) for tool in definitions],
                "selected": list(agent.selected),
                "parameters": [agent.max_output_tokens, agent.temperature, agent.thinking, agent.provider_options],
            }
        )
    )


def _tool_json(codec: Codec, tool: Tool) -> dict[str, Any]:
    approval = tool.approval if isinstance(tool.approval, str) else "callable"
    return {**codec.to_json(tool.definition), "effect": tool.effect, "approval": approval, "parallel": tool.parallel}
