"""`@tool`: an ordinary function that a model may call (floor 5).

The decorated function stays what it was when it is called; its registry value is `.tool`, and `.invoke` runs it the
way a model's call does. Everything is read once, at decoration: signature, types, docstring, schema.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, ParamSpec, TypeVar, get_args, overload

import attrs

from spine import outcomes
from spine.errors import IdInvalid, UsageError
from spine.execution import ArgumentsRefused, Report, ToolContext, execute, runs_on_loop, validate
from spine.problems import conversion_problem
from spine.schema import check_schema
from spine.signatures import Signature, place_of, read_signature
from spine.threads import Workers
from spine.tools import (
    DEFAULT_RESULT_BYTES,
    AfterCrash,
    Approval,
    ApprovalPolicy,
    Effect,
    Tool,
    ToolDefinition,
    ToolHandler,
    ToolOutcome,
)
from spine.values import EMPTY_OBJECT, CallId, JsonObject, Secret, freeze_object, session_id

__all__ = ["FunctionTool", "ToolContext", "as_tool", "check_tool", "tool"]

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_COPIED: Final = ("__module__", "__name__", "__qualname__", "__doc__")


@attrs.frozen(slots=False, eq=False, repr=False)
class FunctionTool(Generic[P, R]):
    """A function that is also a tool; calling it calls the function."""

    __wrapped__: Callable[P, R]
    tool: Tool
    where: str
    """Where it is written, as `shop/agent.py:22`."""

    def __attrs_post_init__(self) -> None:
        known = {name: getattr(self.__wrapped__, name) for name in _COPIED if hasattr(self.__wrapped__, name)}
        self.__dict__.update(known)  # past the freezing, once: it should introspect as the function it wraps

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name} ({self.where})>"

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        return self.tool.name

    async def invoke(
        self,
        arguments: Mapping[str, Any],
        deps: Any = None,
        *,
        session: str = "test",
        call: str = "t1s1c1",
        metadata: Mapping[str, Any] = EMPTY_OBJECT,
        secrets: Mapping[str, Secret] = MappingProxyType({}),
        progress: Report = lambda text, data: None,
        workers: Workers | None = None,
    ) -> ToolOutcome:
        """Run it as a model's call would: schema, conversion, timeout and size limit; for tests, no log is written.

        Returns the outcome the model would see, whatever goes wrong in the function. `arguments` must be JSON
        (`ValueRefused` otherwise).
        """
        frozen = freeze_object(arguments)
        problem = validate(self.tool, frozen)
        if problem is not None:
            return outcomes.invalid_arguments(problem)
        context = ToolContext(
            deps=deps,
            session=session_id(session),
            call=CallId(call),
            metadata=freeze_object(metadata),
            report=progress,
            secrets=secrets,
        )
        return (await execute(self.tool, frozen, context, workers=workers)).outcome


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "irreversible",
    parallel: bool | None = None,
    timeout_s: float | None = None,
    max_result_bytes: int = DEFAULT_RESULT_BYTES,
    approval: Approval = "never",
    approval_reason: str | None = None,
    reconcile: ToolHandler | None = None,
    after_crash: AfterCrash = "tell",
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Make a function a tool: `@tool`, or `@tool(effect="read_only", …)`.

    name: what the model calls it by; the function's own name when None.
    description: what the model is told; the docstring's first paragraph when None.
    effect: what a second run would do: read_only, idempotent, reconcilable, irreversible.
    parallel: whether it may overlap with neighbouring calls; None: only when it is read_only.
    timeout_s: seconds until the call is given up; None: never.
    max_result_bytes: text and JSON the model is shown of a result; the whole is kept as an artifact.
    approval, approval_reason: `never`, `ask`, or a function of the `ToolInvocation` that answers one of them.
    reconcile: `(arguments, context)`, asked after a crash whether a reconcilable call took effect.
    after_crash: where nothing can tell whether a call took effect: `tell` the model, or `ask` a person to run it again.

    Raises `ToolSchemaInvalid` for a parameter no model could be told, `UsageError` for an option out of range.
    """
    if function is None:
        return lambda decorated: _function_tool(decorated, **options)
    return _function_tool(function, **options)


def as_tool(thing: "FunctionTool[Any, Any] | Tool") -> Tool:
    """The checked registry value of a decorated function or a `Tool`. Raises `UsageError` for anything else."""
    if isinstance(thing, FunctionTool):
        return thing.tool
    if isinstance(thing, Tool):
        return check_tool(thing)
    if callable(thing):
        name = getattr(thing, "__name__", type(thing).__name__)
        raise UsageError(
            f'"{name}" is a plain function ({place_of(thing)}); a tool is decorated', hint=f"@tool above def {name}"
        )
    raise UsageError(f"a tool was expected, found {type(thing).__name__}; accepted are decorated functions and Tool")


def check_tool(tool: Tool) -> Tool:
    """The tool, with name, schema and options checked.

    Raises `IdInvalid`, `ToolSchemaInvalid` or `UsageError` naming the tool, what was found and what is accepted.
    """
    name = tool.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise IdInvalid(f"tool name {name!r:.80} is not of the form [A-Za-z0-9_.-], 1 to 64 characters")
    check_schema(tool.definition.parameters, tool=name)
    for option, fits, wanted in _OPTIONS:
        value = getattr(tool, option)
        if not fits(value):
            raise UsageError(f'tool "{name}": {option} is {value!r:.80}; it must be {wanted}')
    if tool.effect == "reconcilable" and tool.reconcile is None:
        raise UsageError(f'tool "{name}": effect is "reconcilable"; it then needs reconcile=, asked after a crash')
    return tool


def _is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value > 0


_OPTIONS: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    ("handler", callable, "a function of (arguments, context)"),
    ("effect", lambda value: value in get_args(Effect), f"one of {', '.join(get_args(Effect))}"),
    ("parallel", lambda value: isinstance(value, bool), "true or false"),
    ("timeout_s", lambda value: value is None or _is_seconds(value), "a number of seconds over 0, or None"),
    ("max_result_bytes", lambda value: type(value) is int and value > 0, "a whole number of bytes over 0"),
    ("approval", lambda value: value in get_args(ApprovalPolicy) or callable(value), "never, ask, or a function"),
    ("reconcile", lambda value: value is None or callable(value), "a function of (arguments, context), or None"),
    ("after_crash", lambda value: value in get_args(AfterCrash), f"one of {', '.join(get_args(AfterCrash))}"),
)


def _function_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool | None = None,
    **options: Any,
) -> FunctionTool[Any, Any]:
    if isinstance(function, FunctionTool) or inspect.isclass(function) or not callable(function):
        raise UsageError(f"@tool stands above a function that is no tool yet; found {function!r:.80}")
    name = name if name is not None else getattr(function, "__name__", type(function).__name__)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f'tool "{name}": a generator has no single result ({place_of(function)}); '
            "return one value, and report on the way with context.progress"
        )
    signature = read_signature(function, tool=name, context_type=ToolContext)
    converter = _Converter(signature)
    made = Tool(
        definition=ToolDefinition(
            name=name,
            description=signature.description if description is None else description,
            parameters=signature.parameters,
        ),
        handler=_handler(function, converter),
        parallel=options.get("effect") == "read_only" if parallel is None else parallel,
        check=converter.check,
        **options,
    )
    return FunctionTool(function, check_tool(made), place_of(function))


def _handler(function: Callable[..., Any], converter: "_Converter") -> ToolHandler:
    context_name = converter.signature.context

    def keywords(arguments: Mapping[str, Any], context: Any) -> dict[str, Any]:
        try:
            values = converter.take(arguments)
        except Exception as exc:
            raise ArgumentsRefused(conversion_problem(str(exc))) from exc
        if context_name is not None:
            values[context_name] = context
        return values

    def call(arguments: Mapping[str, Any], context: Any) -> Any:
        return function(**keywords(arguments, context))

    async def call_on_loop(arguments: Mapping[str, Any], context: Any) -> Any:
        return await function(**keywords(arguments, context))

    return call_on_loop if runs_on_loop(function) else call


class _Converter:
    """From JSON to typed arguments, once for a call: what its check has made, its handler takes."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self._checked: dict[int, tuple[Any, dict[str, Any]]] = {}
        """The last checked arguments by their identity, with what they were converted to; taken out once."""

    def check(self, arguments: JsonObject) -> str | None:
        try:
            values = self.signature.convert(arguments)
        except Exception as exc:  # also what the user's own classes raise: it is about the arguments all the same
            return conversion_problem(str(exc))
        self._checked = {id(arguments): (arguments, values)}
        return None

    def take(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        # Handlers may run in threads: `pop` gives the values, which a function may change, to one of them.
        _, values = self._checked.pop(id(arguments), (None, None))
        return self.signature.convert(arguments) if values is None else values
