"""Reads what the code says about itself: classes with their fields, functions with their signatures, constants."""

import ast
import functools
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z`\"“])")


@attrs.frozen(kw_only=True)
class FieldText:
    """A field of a class: its type as written, its default as text (None: it must be given), what is said of it."""

    name: str
    type: str
    default: str | None
    meaning: str


@functools.lru_cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def _class(kind: type) -> ast.ClassDef:
    found = (
        node for node in _tree(kind.__module__).body if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    return next(found)


def fields(kind: type) -> Iterator[FieldText]:
    """The fields of an attrs class in order, without private ones."""
    known = {field.name: field for field in attrs.fields(kind)}
    meanings = documented(_class(kind).body)
    for node in _class(kind).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in known:
            name = node.target.id
            if not name.startswith("_"):
                yield FieldText(
                    name=name,
                    type=ast.unparse(node.annotation).replace("'", '"').strip('"'),
                    default=_default(known[name]),
                    meaning=meanings.get(name, ""),
                )


def _default(field: Any) -> str | None:
    if field.default is attrs.NOTHING:
        return None
    value = field.default
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]
        value = value.factory()
    if attrs.has(type(value)):
        return f"{type(value).__name__}()"
    return {True: "true", False: "false", None: "none"}.get(value, str(value)) if _is_word(value) else _plain(value)


def _is_word(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, tuple):
        return "[]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else f"{value:,}"


def documented(body: list[ast.stmt]) -> dict[str, str]:
    """The text below each assignment of a class or module."""
    found = {}
    for node, following in itertools.pairwise(body):
        match node, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                found[name] = one_line(text)
    return found


def constants(module: str) -> dict[str, str]:
    """The text below each constant of a module."""
    return documented(_tree(module).body)


def origin_of(module: str, name: str) -> str:
    """The module that a name was imported from; the module itself for a name of its own."""
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            return str(node.module)
    return module


def passed_on(module: str) -> frozenset[str]:
    """The names that a module imports to give them on: `from spine.recorded import Envelope as Envelope`."""
    imports = (node for node in _tree(module).body if isinstance(node, ast.ImportFrom))
    return frozenset(alias.name for node in imports for alias in node.names if alias.asname == alias.name)


def one_line(text: str) -> str:
    """A docstring's paragraph as one line."""
    return " ".join(text.split())


def summary(thing: Any) -> str:
    """The first sentence of a docstring; empty when there is none."""
    own = inspect.isclass(thing) or inspect.isroutine(thing)
    text = inspect.cleandoc(thing.__doc__ or "") if own else ""
    first = one_line(text.partition("\n\n")[0])
    return _SENTENCE_END.split(first)[0] if first else ""


def sentences(thing: Any) -> str:
    """A docstring with one sentence on each line."""
    return one_sentence_a_line(inspect.cleandoc(thing.__doc__ or ""))


def one_sentence_a_line(text: str) -> str:
    """Paragraphs with each sentence on a line of its own."""
    paragraphs = text.split("\n\n")
    return "\n\n".join("\n".join(_SENTENCE_END.split(one_line(each))) for each in paragraphs if each.strip())


def signature(function: Any) -> str:
    """`(path: str, *, now: int) -> None`: parameters and types as they are written, without `self`."""
    node = _written(function)
    arguments = node.args
    arguments.args = [each for each in arguments.args if each.arg not in ("self", "cls")]
    arguments.posonlyargs = []
    for each in (*arguments.args, *arguments.kwonlyargs):
        each.annotation = _unquoted(each.annotation)
    returned = _unquoted(node.returns)
    end = f" -> {ast.unparse(returned)}" if returned is not None else ""
    return re.sub(r"(?<=[\w\])])=(?=\S)", " = ", f"({ast.unparse(arguments)}){end}").replace("'", '"')


def _written(function: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]


def _unquoted(annotation: ast.expr | None) -> ast.expr | None:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return ast.parse(annotation.value, mode="eval").body
    return annotation


def cell(text: str) -> str:
    """Text that may stand in a table."""
    return text.replace("|", r"\|")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(map(cell, line)) + " |\n" for line in lines)
