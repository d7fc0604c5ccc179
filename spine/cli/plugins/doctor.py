"""`plugins doctor` (floor 15): what is wrong with an installed plugin, check by check, each with what would mend it."""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import click

from spine.cli.ending import FAILS, HOLDS
from spine.cli.options import options
from spine.cli.reading import load_plugins
from spine.cli.screen import columns, out, out_json
from spine.codec import Codec
from spine.config import load_settings
from spine.errors import UsageError
from spine.plugins import GROUP, PluginInfo
from spine.projectors.visible import one_line

__all__ = ["doctor"]

SLOW_IMPORT_S: Final = 0.1
"""What a plugin's import takes, every command of everyone takes."""
PUBLIC: Final = (
    *("errors", "events", "hooks", "llm", "messages", "projectors", "store", "testing", "tools", "values", "wire"),
)
"""The rooms of `spine` that plugins may build on, beside `spine` itself."""


@attrs.frozen(kw_only=True)
class Finding:
    """What one check found; a note is nothing that fails."""

    check: str
    state: Literal["ok", "note", "FAILED"]
    text: str


@click.command()
@click.argument("name", required=False)
@options("json")
def doctor(name: str | None, as_json: bool) -> int:
    """Say what is wrong with the installed plugin NAME, or with each. Exit status 1 when a check failed."""
    infos = {info.name: info for info in load_plugins(load_settings(), Codec()).infos}
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name is not None and name not in entries:
        near = get_close_matches(name, entries, 1)
        found = f'nearest is "{near[0]}"' if near else f"there are: {', '.join(sorted(entries)) or 'none'}"
        raise UsageError(f'no plugin "{name}" is installed; {found}', hint="spine plugins list")
    chosen = sorted(entries) if name is None else [name]
    reports = {each: list(examine(entries[each], infos.get(each))) for each in chosen}
    _print(reports, as_json)
    is_ill = any(finding.state == "FAILED" for findings in reports.values() for finding in findings)
    return FAILS if is_ill else HOLDS


def _print(reports: Mapping[str, list[Finding]], as_json: bool) -> None:
    if as_json:
        for plugin, findings in reports.items():
            out_json({"name": plugin, "findings": [attrs.asdict(finding) for finding in findings]})
        return
    rows = [
        ("" if number else plugin, finding.check, finding.state, one_line(finding.text))
        for plugin, findings in reports.items()
        for number, finding in enumerate(findings)
    ]
    out(columns(("plugin", "check", "state", "found"), rows))


def examine(entry: EntryPoint, info: PluginInfo | None) -> Iterator[Finding]:
    """The findings about an installed plugin; `info` is what loading came to, None where plugins are switched off."""
    yield from _installed(entry)
    yield from _needs(entry)
    yield _loading(info)
    if info is not None and info.state == "loaded":
        yield _speed(info)
        yield _offers(info)
    yield from _reaches(entry)


_note = partial(Finding, state="note")
_ok = partial(Finding, state="ok")
_failed = partial(Finding, state="FAILED")


def _installed(entry: EntryPoint) -> Iterator[Finding]:
    where = f'entry point {entry.name} = "{entry.value}"'
    if entry.dist is None:
        yield _note(check="installed", text=where)
        return
    text = f"{entry.dist.name} {entry.dist.version}, {where}"
    other = _shadow(entry)
    if other is not None:
        yield _note(check="installed", text=f"{text}, but {other} comes first on the path and is what is imported")
        return
    yield _ok(check="installed", text=text)


def _shadow(entry: EntryPoint) -> Path | None:
    """The module that is imported in place of the installed one; None when it is that, or in development."""
    own = [file for file in (entry.dist.files if entry.dist else None) or () if file.suffix == ".py"]
    spec = find_spec(entry.module.partition(".")[0])
    if spec is None or spec.origin is None or not own:
        return None
    found = Path(spec.origin).resolve()
    names = {Path(str(file.locate())).resolve() for file in own}
    is_known = any(path.name == found.name and path.parent.name == found.parent.name for path in names)
    return None if found in names or not is_known else found


def _needs(entry: EntryPoint) -> Iterator[Finding]:
    """Whether what its distribution requires is installed; extras and other conditions are left alone."""
    required = [line for line in (entry.dist.requires if entry.dist else None) or () if ";" not in line]
    problems = {line: problem for line in required if (problem := _problem_of(line))}
    for line, problem in problems.items():
        yield _failed(check="needs", text=f"{line} {problem}. Try: pip install '{line}'")
    if not problems:
        yield _ok(check="needs", text=f"{len(required)} distributions, all installed")


def _problem_of(requirement: str) -> str | None:
    """Whether a requirement is met by what is installed; only plain comparisons of numbers are judged."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    try:
        found = version(name[0] if name is not None else "")
    except (PackageNotFoundError, ValueError):
        return "is not installed"
    bounds = re.findall(r"(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)(?![\d.*])", requirement)
    is_met = all(_COMPARE[sign](*_padded(found, bound)) for sign, bound in bounds)
    return None if is_met else f"is not met: {found} is installed"


def _padded(*versions: str) -> Iterator[tuple[int, ...]]:
    numbers = [tuple(map(int, re.findall(r"\d+", re.split(r"[a-z+-]", text)[0]))) for text in versions]
    longest = max(map(len, numbers))
    return (each + (0,) * (longest - len(each)) for each in numbers)


_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def _loading(info: PluginInfo | None) -> Finding:
    match info:
        case None:
            return _note(check="loads", text="installed plugins are switched off by the configuration")
        case PluginInfo(state="failed"):
            return _failed(check="loads", text=info.error or "")
        case PluginInfo(state="blocked"):
            return _note(check="loads", text=f"blocked by {info.error}")
        case _:
            return _ok(check="loads", text=f"as {info.full_name}")


def _speed(info: PluginInfo) -> Finding:
    took = f"{(info.import_s or 0) * 1000:.1f} ms"
    if (info.import_s or 0) <= SLOW_IMPORT_S:
        return _ok(check="import", text=took)
    return _note(check="import", text=f"{took}: every command waits for it; import what is heavy where it is used")


def _offers(info: PluginInfo) -> Finding:
    if info.offers:
        return _ok(check="offers", text=" · ".join(info.offers))
    return _note(check="offers", text="nothing: is there an @hookimpl before its hooks?")


def _reaches(entry: EntryPoint) -> Iterator[Finding]:
    """Modules of ours that its package imports although they promise nothing to plugins."""
    private = [found for path in _files_of(entry.module) for found in _private_imports(path)]
    for text in private:
        yield _note(check="reaches", text=text)
    if not private:
        yield _ok(check="reaches", text="public rooms only")


def _files_of(module: str) -> list[Path]:
    spec = find_spec(module.partition(".")[0])
    if spec is None or spec.origin is None:
        return []
    origin = Path(spec.origin)
    return sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]


def _private_imports(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # loading tells
    for node in ast.walk(tree):
        for name in _IMPORTED.get(type(node), _nothing)(node):
            first, _, rest = name.partition(".")
            if first == "spine" and rest and rest.partition(".")[0] not in PUBLIC:
                place = f"{path.parent.name}/{path.name}:{getattr(node, 'lineno', 0)}"
                yield f"imports {name} ({place}), which may change without notice; public are spine and {_rooms()}"


def _nothing(node: ast.AST) -> list[str]:
    return []


def _names(node: ast.Import) -> list[str]:
    return [alias.name for alias in node.names]


def _names_from(node: ast.ImportFrom) -> list[str]:
    return [node.module] if node.module and not node.level else []


_IMPORTED: Final[Mapping[type, Callable[..., list[str]]]] = {ast.Import: _names, ast.ImportFrom: _names_from}


def _rooms() -> str:
    return ", ".join(f"spine.{room}" for room in PUBLIC)
