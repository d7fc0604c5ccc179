"""Renders the classes that applications hold in their hands: their fields, methods and properties."""

import inspect
import typing
from collections.abc import Iterator
from typing import Any

import attrs
from docs_source import fields, sentences, signature, table

from spine import Agent, Limits, Runtime, Secret, Section, Turn, tool
from spine.log import LogReader, Synchronised
from spine.projectors import Transcript, UsageReport
from spine.runtime import ScopeHandle
from spine.session import Session
from spine.stream import TurnStream
from spine.turn import ToolCall

CLASSES: tuple[type, ...] = (
    Agent,
    Limits,
    Section,
    Runtime,
    ScopeHandle,
    Session,
    TurnStream,
    Turn,
    ToolCall,
    LogReader,
    Synchronised,
    Transcript,
    UsageReport,
    Secret,
)
FOR_THE_RUNTIME = frozenset(
    (
        *("changed", "check_idle", "codec", "entered", "finish", "hooks", "left", "own_tools", "registries", "reload"),
        *("resolve_model", "routes", "selected", "spawn", "take", "take_inbox", "tick"),
    )
)
"""Public between our own files, not for applications."""


def class_regions() -> Iterator[tuple[str, str]]:
    """A class: what it is, its fields, and each of its methods and properties."""
    for kind in CLASSES:
        parts = [sentences(kind)]
        if attrs.has(kind) and (rows := list(_rows(kind))):
            parts.append(table(("field", "type", "default", "meaning"), rows).rstrip())
        parts.extend(_members(kind))
        yield f"class {kind.__name__}", "\n\n".join(parts) + "\n"
    yield "function tool", _tool_text()


def _rows(kind: type) -> Iterator[tuple[str, ...]]:
    for field in fields(kind):
        yield f"`{field.name}`", f"`{field.type}`", field.default or "must be given", field.meaning


def _members(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        if name.startswith("_") or name in FOR_THE_RUNTIME or not _is_told(member):
            continue
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        yield f"`{_call(kind, name, member, function)}`\\\n{sentences(function)}"


def _is_told(member: Any) -> bool:
    kinds = property | classmethod | staticmethod
    return (inspect.isfunction(member) or isinstance(member, kinds)) and bool(_doc(member))


def _doc(member: Any) -> str:
    return (member.fget if isinstance(member, property) else member).__doc__ or ""


def _call(kind: type, name: str, member: Any, function: Any) -> str:
    if isinstance(member, property):
        return f"{name}: {signature(function).partition(' -> ')[2]}"
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    owner = f"{kind.__name__}." if isinstance(member, classmethod) else ""
    return f"{prefix}{owner}{name}{signature(function)}"


def _tool_text() -> str:
    first, options, *rest = inspect.cleandoc(tool.__doc__ or "").split("\n\n")
    rows = [(f"`{name}`", text.strip()) for name, _, text in (line.partition(":") for line in options.splitlines())]
    written = signature(typing.get_overloads(tool)[1]).partition(" -> ")[0]
    parts = (f"```text\n@tool{written}\n```", first, table(("option", "meaning"), rows).rstrip(), *rest)
    return "\n\n".join(parts) + "\n"
