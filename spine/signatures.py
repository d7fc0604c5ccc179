"""A function's signature as what a model is told of it, and the way from its JSON back to typed arguments (floor 4).

Types are read by msgspec: plain types, enums, literals, dates, attrs classes, dataclasses, typed dicts and what is
composed of them. Descriptions come from `Annotated[..., "text"]`, else from the docstring: `name: text` lines, below
`Args:` or anywhere. Annotations may be strings (`from __future__ import annotations`).
"""

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, Final, NotRequired, Required, get_origin

import msgspec

from spine.errors import SpineError, ToolSchemaInvalid
from spine.frozen import frozen
from spine.values import JsonObject, freeze, freeze_object, thaw

__all__ = ["Signature", "place_of", "read_signature"]

SCALARS: Final = frozenset(("string", "integer", "number", "boolean", "null"))
VALUES: Final = frozenset(("default", "enum", "const", "examples"))
"""Keywords whose value is a value, not a schema."""
_ENTRY = re.compile(r"^(\s*)(?:[-*]\s+)?(\w+)\s*(?:\([^)]*\))?:(?:\s+(\S.*)|\s*)$")
_HEADING = re.compile(r"^\s*(args|arguments|parameters|params):\s*$", re.IGNORECASE)


@frozen(kw_only=True)
class Signature:
    """What a function takes. `context` is the name of its context parameter, None when it has none."""

    description: str
    parameters: JsonObject
    context: str | None
    _type: type[msgspec.Struct]
    _is_nested: bool

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Typed keyword arguments, those that were given. Raises what msgspec or a user's class raises."""
        if self._is_nested:
            arguments = thaw(arguments)
        values = msgspec.structs.asdict(msgspec.convert(arguments, self._type))
        if len(values) != len(arguments):
            values = {name: value for name, value in values.items() if value is not msgspec.UNSET}
        if values.keys() != arguments.keys():
            unknown = next(name for name in arguments if name not in values)
            raise msgspec.ValidationError(f'unknown argument "{unknown}"')
        return values


@frozen
class _Parameter:
    name: str
    type: Any
    default: Any
    description: str | None

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty


def read_signature(function: Callable[..., Any], *, tool: str, context_type: type) -> Signature:
    """Read a function. Raises `ToolSchemaInvalid` naming tool, parameter and place for what no model could be told."""
    where = place_of(function)
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError) as exc:
        raise ToolSchemaInvalid(f'tool "{tool}": the parameters of {function!r:.80} cannot be read ({where})') from exc
    parameters: list[_Parameter] = []
    context: str | None = None
    summary, texts = _docstring(inspect.getdoc(_underlying(function)) or "", frozenset(found.parameters))
    for parameter in found.parameters.values():
        _check_kind(parameter, tool, where)
        annotation = _resolve(parameter, function, tool, where, context_type)
        if get_origin(annotation) is context_type or annotation is context_type:
            if context is not None:
                both = f'"{context}" and "{parameter.name}" are both a {context_type.__name__}'
                raise ToolSchemaInvalid(f'tool "{tool}": {both}; one is enough ({where})')
            context = parameter.name
            continue
        text = _annotated_text(annotation) or texts.get(parameter.name)
        parameters.append(_Parameter(parameter.name, annotation, parameter.default, text))
    return _signature(parameters, summary, context, tool, where)


def place_of(function: Callable[..., Any]) -> str:
    """Where a function is written, as `shop/agent.py:22`: as much of the path as its module's name covers."""
    code = getattr(_underlying(function), "__code__", None)
    if code is None:
        return getattr(function, "__module__", None) or "unknown place"
    path = PurePath(code.co_filename)
    depth = str(getattr(function, "__module__", "")).count(".") + 1 + (path.name == "__init__.py")
    return f"{'/'.join(path.parts[-depth:])}:{code.co_firstlineno}"


def _underlying(function: Any) -> Any:
    """The plain function inside partials, bound methods, wrappers and callable objects."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            break
    return function if hasattr(function, "__code__") else type(function).__call__


# --------------------------------------------------------------------------------------------------- annotations


def _check_kind(parameter: inspect.Parameter, tool: str, where: str) -> None:
    name, kind = parameter.name, parameter.kind
    if kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if kind is parameter.VAR_POSITIONAL else "**"
        problem = f'"{stars}{name}" takes arguments without a name; give each one a name, or take a list'
    elif kind is parameter.POSITIONAL_ONLY:
        problem = f'parameter "{name}" is positional-only; a model sends arguments by name'
    elif parameter.annotation is parameter.empty:
        problem = f'parameter "{name}" has no type hint'
        raise ToolSchemaInvalid(f'tool "{tool}": {problem} ({where}); every parameter needs one, except ToolContext')
    else:
        return
    raise ToolSchemaInvalid(f'tool "{tool}": {problem} ({where})')


def _resolve(parameter: inspect.Parameter, function: Any, tool: str, where: str, context_type: type) -> Any:
    """The annotation with every name in it looked up where the function was defined."""
    annotation = parameter.annotation
    plain = _underlying(function)
    holder = types.SimpleNamespace(__annotations__={parameter.name: annotation})
    try:
        local = inspect.getclosurevars(plain).nonlocals if inspect.isfunction(plain) else {}
        names = {**getattr(plain, "__globals__", {}), **local}
        return typing.get_type_hints(holder, names, None, include_extras=True)[parameter.name]
    except Exception as exc:
        # A context may be of a type that is imported for type checkers only.
        if isinstance(annotation, str) and re.match(rf"([\w.]+\.)?{context_type.__name__}\b", annotation):
            return context_type
        problem = f'the type "{annotation}" of parameter "{parameter.name}" cannot be resolved: {exc}'
        raise ToolSchemaInvalid(f'tool "{tool}": {problem} ({where})') from exc


def _annotated_text(annotation: Any) -> str | None:
    notes = annotation.__metadata__ if get_origin(annotation) is Annotated else ()
    return next((note for note in notes if isinstance(note, str)), None)


# ----------------------------------------------------------------------------------------------------- docstring


def _docstring(text: str, names: frozenset[str]) -> tuple[str, dict[str, str]]:
    """The first paragraph as one line, and the text of each parameter that is described on a line of its own."""
    summary: list[str] = []
    entries: dict[str, list[str]] = {}
    current, margin, in_summary = "", 0, True
    for line in text.splitlines():
        entry = _ENTRY.match(line)
        if entry and entry[2] in names:
            current, margin = entry[2], len(entry[1])
            entries[current] = [entry[3] or ""]
        elif current and line.strip() and len(line) - len(line.lstrip()) > margin:
            entries[current].append(line.strip())
        else:
            current = ""
            in_summary = in_summary and bool(line.strip()) and not _HEADING.match(line)
            summary += [line.strip()] if in_summary else []
    return " ".join(summary), {name: " ".join(lines).strip() for name, lines in entries.items()}


# -------------------------------------------------------------------------------------------------------- schema


def _signature(parameters: list[_Parameter], summary: str, context: str | None, tool: str, where: str) -> Signature:
    fields = {p.name: Required[p.type] if p.is_required else NotRequired[p.type] for p in parameters}
    arguments = typing.TypedDict("Arguments", fields)  # type: ignore[misc]
    try:
        schema = _tidy(msgspec.json.schema(arguments))
    except Exception as exc:
        raise ToolSchemaInvalid(_undescribable(parameters, exc, tool, where)) from exc
    schema["properties"] = {parameter.name: schema["properties"][parameter.name] for parameter in parameters}
    if "required" in schema:  # people read a call in the order of its declaration; a TypedDict does not keep it
        schema["required"] = [parameter.name for parameter in parameters if parameter.is_required]
    for parameter in parameters:
        _annotate(schema["properties"][parameter.name], parameter)
    return Signature(
        description=summary,
        parameters=freeze_object(schema),
        context=context,
        type=msgspec.defstruct(
            "Arguments",  # a class of its own, because what is made of a TypedDict is made anew at every call
            [(p.name, p.type) if p.is_required else (p.name, p.type, msgspec.UNSET) for p in parameters],
            kw_only=True,
        ),
        is_nested=any(part.get("type") not in SCALARS for part in schema["properties"].values()),
    )


def _undescribable(parameters: list[_Parameter], error: Exception, tool: str, where: str) -> str:
    for parameter in parameters:
        try:
            msgspec.json.schema(parameter.type)
        except Exception as exc:
            problem = _reason(exc)
            return f'tool "{tool}": parameter "{parameter.name}" cannot be described to a model ({where}): {problem}'
    return f'tool "{tool}": its parameters cannot be described to a model ({where}): {_reason(error)}'


def _reason(error: Exception) -> str:
    # msgspec says what is wrong last, after ways to extend it that are not open here.
    return str(error).strip().splitlines()[-1][:300] if str(error) else type(error).__name__


def _tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """msgspec's schema with the arguments at its root, no titles that repeat names, and closed objects.

    Closed, because conversion would drop an unknown key silently; so the model is told of it.
    """
    definitions = schema.pop("$defs", {})
    for name, definition in definitions.items():
        if definition.get("title") == name:
            del definition["title"]
    root: dict[str, Any] = definitions.pop(schema["$ref"].rpartition("/")[2])
    root.pop("title", None)
    if definitions:
        root["$defs"] = definitions
    for part in _schemas(root):
        if "properties" in part:
            part.setdefault("additionalProperties", False)
        if part.get("required") == []:
            del part["required"]
    return root


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, list):
        for item in schema:
            yield from _schemas(item)
    elif isinstance(schema, dict):
        yield schema
        for key, value in schema.items():
            named = key in ("properties", "$defs")
            yield from _schemas(list(value.values()) if named else value if key not in VALUES else None)


def _annotate(schema: dict[str, Any], parameter: _Parameter) -> None:
    if parameter.description:
        schema.setdefault("description", parameter.description)
    if not parameter.is_required:
        try:
            schema["default"] = freeze(msgspec.to_builtins(parameter.default, str_keys=True, order="deterministic"))
        except (TypeError, SpineError):
            return  # optional all the same; a default that is no JSON cannot be told
