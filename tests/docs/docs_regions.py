"""Writes the generated regions of the pages from the code, and says which are out of date.

Run `python tests/docs/docs_regions.py` after a change of events, hooks, errors, commands, scenario keys or public
names; the tests compare. Each renderer gives the text of the regions of one kind, by name.
"""

import importlib
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from docs_classes import class_regions
from docs_commands import command_regions
from docs_markdown import PAGES, ROOT, regions, with_regions
from docs_scenario import scenario_regions
from docs_source import constants, fields, one_line, origin_of, passed_on, sentences, signature, summary, table

import spine.events
import spine.store
import spine.wire.limits
from spine import errors, messages
from spine.attempts import FLUSH_CHUNKS, FLUSH_S
from spine.commits import COMMIT_TIMEOUT_S
from spine.execution import ToolContext
from spine.hooks import HOOK_TIMEOUT_S, HOOKS, HookContext
from spine.llm import chunks
from spine.llm.errors import CATEGORIES, RETRYABLE, Failure
from spine.llm.retry import RetryPolicy
from spine.llm.usage import Cost, Usage
from spine.scope import Registries
from spine.sections import DynamicContext, StaticContext
from spine.stores.sqlite_file import SCHEMA
from spine.tools import DEFAULT_RESULT_BYTES, ToolError
from spine.values import MAX_DEPTH
from spine.wording import WORDING, WORDING_VERSION

VALUES: tuple[type, ...] = (
    spine.events.AgentFact,
    messages.Message,
    messages.Origin,
    messages.ProviderState,
    *typing.get_args(messages.ContentBlock),
    Usage,
    Cost,
    Failure,
    ToolError,
    spine.events.Repeats,
    spine.events.Patch,
    spine.events.FieldChange,
    spine.events.Splice,
    *typing.get_args(chunks.Chunk),
)
"""Classes that stand inside events."""

ROOMS = (
    "spine",
    "spine.blocking",
    "spine.errors",
    "spine.messages",
    "spine.tools",
    "spine.events",
    "spine.hooks",
    "spine.llm.request",
    "spine.llm.response",
    "spine.llm.chunks",
    "spine.llm.usage",
    "spine.llm.errors",
    "spine.llm.protocols",
    "spine.llm.catalogue",
    "spine.llm.assemble",
    "spine.llm.retry",
    "spine.wire",
    "spine.projectors",
    "spine.store",
    "spine.testing",
)
"""Modules whose names applications and plugins may use."""


# -------------------------------------------------------------------------------------------------- fields, events


def _field_table(kind: type) -> str:
    rows = [
        (
            f"`{field.name}`",
            f"`{field.type}`",
            "must be given" if field.default is None else field.default,
            field.meaning,
        )
        for field in fields(kind)
    ]
    return table(("field", "type", "default", "meaning"), rows) if rows else "It has no fields.\n"


def event_regions() -> Iterator[tuple[str, str]]:
    """A core event: whether it is required, its version, class, docstring and fields."""
    for kind in spine.events.CORE_EVENTS:
        need = "Required" if kind.required else "Not required"
        head = f"{need} · version {kind.version} · class `{kind.data.__name__}`"
        yield f"event {kind.name}", f"{head}\n\n{sentences(kind.data)}\n\n{_field_table(kind.data)}"


def value_regions() -> Iterator[tuple[str, str]]:
    """A value inside events, or one that a hook, a section or a tool is given."""
    given = (spine.events.RecordedEvent, HookContext, StaticContext, DynamicContext, RetryPolicy, ToolContext)
    for kind in (*VALUES, *given):
        yield f"value {kind.__name__}", f"{sentences(kind)}\n\n{_field_table(kind)}"


# ----------------------------------------------------------------------------------------------------------- hooks


def hook_regions() -> Iterator[tuple[str, str]]:
    """A hook: how it is written, and its specification's docstring."""
    for name, spec in HOOKS.items():
        kind = "async def" if inspect.iscoroutinefunction(spec) else "def"
        text = signature(spec).replace(": Any", "")
        yield f"hook {name}", f"```text\n{kind} {name}{text}\n```\n\n{sentences(spec)}\n"


# ---------------------------------------------------------------------------------------------------------- errors


_OF_EVERY_ERROR = ("self", "message", "hint")


def error_classes() -> Iterator[type[errors.SpineError]]:
    """Every class of the tree in `spine.errors`, parents first."""
    waiting: list[type[errors.SpineError]] = [errors.SpineError]
    while waiting:
        kind = waiting.pop(0)
        if kind.__module__ == errors.__name__:
            yield kind
            waiting.extend(kind.__subclasses__())


def error_regions() -> Iterator[tuple[str, str]]:
    """A stable code: its class and parents, its docstring, the attributes it has besides those of every error."""
    yield "error tree", f"```text\n{(errors.__doc__ or '').partition(chr(10) * 2)[2].strip()}\n```\n"
    for kind in error_classes():
        parents = [each for each in reversed(kind.__mro__) if issubclass(each, errors.SpineError)]
        line = " → ".join(f"`{each.__name__}`" for each in parents)
        given = [name for name in inspect.signature(kind.__init__).parameters if name not in _OF_EVERY_ERROR]
        extra = f"\n\nAttributes: {', '.join(f'`{name}`' for name in given)}." if given else ""
        yield f"error {kind.code}", f"{line}\n\n{sentences(kind)}{extra}\n"
    for category in CATEGORIES:
        retry = "The same request may succeed a little later." if category in RETRYABLE else "Not retried."
        yield f"category {category}", f"{retry}\n"


# ----------------------------------------------------------------------------------------------------- public names


def room_regions() -> Iterator[tuple[str, str]]:
    """A public module: its names in alphabetical order, each with its first sentence."""
    for room in ROOMS:
        module = importlib.import_module(room)
        rows = [(f"`{name}`", _name_text(module, name)) for name in public_names(module)]
        yield f"room {room}", f"{table(('name', 'what it is'), rows)}"


def public_names(module: Any) -> list[str]:
    """`__all__`, or else the classes, functions and constants that the module defines, or gives on as its own."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    own = (
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (getattr(value, "__module__", None) == module.__name__ or name in passed_on(module.__name__))
    )
    return sorted({*own, *(name for name in constants(module.__name__) if not name.startswith("_"))})


def _name_text(module: Any, name: str) -> str:
    written = constants(origin_of(module.__name__, name)).get(name)
    return written or summary(getattr(module, name))


# ---------------------------------------------------------------------------------------------------- facts and lists


def number_regions() -> Iterator[tuple[str, str]]:
    """Limits and times that the core has, with their values."""
    yield (
        "numbers",
        table(
            ("what", "value"),
            [
                ("data of one event", _bytes(spine.store.MAX_EVENT_BYTES)),
                ("one content beside the log", _bytes(spine.store.MAX_CONTENT_BYTES)),
                ("text that still stands inside an event", _bytes(spine.store.INLINE_CONTENT_BYTES)),
                ("result of a tool, unless the tool says otherwise", _bytes(DEFAULT_RESULT_BYTES)),
                ("nesting of a JSON value", f"{MAX_DEPTH} levels"),
                ("chunks in one `model.chunks`", str(FLUSH_CHUNKS)),
                ("age of the oldest chunk that is not recorded yet", f"{FLUSH_S * 1000:g} ms"),
                ("wait for an answer to a commit", f"{COMMIT_TIMEOUT_S:g} s"),
                ("time of one hook", f"{HOOK_TIMEOUT_S:g} s"),
            ],
        ),
    )
    limits, deadlines = spine.wire.limits.WireLimits, spine.wire.limits.Deadlines
    yield "wire limits", f"{_field_table(limits)}\n{_field_table(deadlines)}"


def _bytes(number: int) -> str:
    return f"{number // 1024**2} MiB" if number >= 1024**2 else f"{number // 1024} KiB"


def format_regions() -> Iterator[tuple[str, str]]:
    """What is stored word by word: the tables of the SQLite file, the core's texts for a model."""
    yield "sqlite schema", f"```sql\n{SCHEMA.strip()}\n```\n"
    texts = [(f"`{name}`", one_line(text)) for name, text in WORDING[WORDING_VERSION].items()]
    yield "wording", table(("name", "text"), texts)


def registry_regions() -> Iterator[tuple[str, str]]:
    """The layered registries, by what plugins call them."""
    kinds = [registry.kind for registry in Registries.new().all]
    yield "registries", "".join(f"- {kind}\n" for kind in kinds)


# -------------------------------------------------------------------------------------------------- floors and lengths


def sources() -> Iterator[Path]:
    """Every module of the package."""
    yield from sorted((ROOT / "spine").rglob("*.py"))


def module_of(path: Path) -> str:
    """`llm.request` for spine/llm/request.py; packages by their folder, the root as `__init__`."""
    parts = path.relative_to(ROOT / "spine").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def floor_of(path: Path) -> str | None:
    """The floor that a module's docstring names: `12`, or `wire` for a side room; None when it names none."""
    text = path.read_text().split('"""')[1] if '"""' in path.read_text() else ""
    found = re.search(r"\(floor (\d+)|\(side room `?(\w+)|\(side room", text)
    return None if found is None else found[1] or found[2] or module_of(path).split(".")[0]


def floor_regions() -> Iterator[tuple[str, str]]:
    """The modules of each floor, from the highest down, and the side rooms."""
    by_floor: dict[str, dict[str, None]] = {}
    for path in sources():
        floor = floor_of(path)
        if floor is not None:
            by_floor.setdefault(floor, {})[f"`{_collapsed(path, floor)}`"] = None
    ordered = sorted(by_floor, key=lambda floor: (not floor.isdigit(), -int(floor) if floor.isdigit() else 0, floor))
    rows = [(floor if floor.isdigit() else f"side room `{floor}`", ", ".join(by_floor[floor])) for floor in ordered]
    yield "floors", table(("floor", "modules"), rows)


def _collapsed(path: Path, floor: str) -> str:
    """The module, or its package when that has at least two modules here; the one apart is named by itself."""
    package = path.parent
    if package == ROOT / "spine":
        return module_of(path)
    here = sum(floor_of(each) == floor for each in package.glob("*.py"))
    return f"{package.relative_to(ROOT / 'spine')}/" if here > 1 else module_of(path)


def length_of(path: str) -> int:
    """Lines of a file."""
    return (ROOT / path).read_text().count("\n")


_LENGTH = re.compile(r"(\| `((?:spine|plugins)/[\w/.]+\.py)` \| )(\d+)( \|)")


def with_lengths(text: str) -> str:
    """The page with each file's length, in tens of lines, after its name in a table."""
    return _LENGTH.sub(lambda found: f"{found[1]}{round(length_of(found[2]), -1)}{found[4]}", text)


def stated_lengths(text: str) -> dict[str, int]:
    """The lengths that a page states, by file."""
    return {found[2]: int(found[3]) for found in _LENGTH.finditer(text)}


# ---------------------------------------------------------------------------------------------------------- all of it

RENDERERS: tuple[Callable[[], Iterator[tuple[str, str]]], ...] = (
    event_regions,
    value_regions,
    hook_regions,
    error_regions,
    room_regions,
    number_regions,
    format_regions,
    registry_regions,
    floor_regions,
    command_regions,
    scenario_regions,
    class_regions,
)


def rendered() -> Mapping[str, str]:
    """Every region that the code gives, by name."""
    return {name: text for renderer in RENDERERS for name, text in renderer()}


def main() -> None:
    """Bring every page up to date."""
    texts = dict(rendered())
    for page in PAGES:
        before = page.read_text()
        after = with_lengths(with_regions(before, texts))
        for name in regions(before):
            if name not in texts:
                print(f"{page.relative_to(ROOT)}: nothing gives the region {name!r}")
        if after != before:
            page.write_text(after)
            print(f"{page.relative_to(ROOT)}: written")


if __name__ == "__main__":
    main()
