"""The floors of the house: imports point strictly down, heavy libraries have one door, functions and files stay small.

One table says on which floor each module stands; a module that is not in it fails. It is the design's table as built.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import spine
from spine.late import LATE

ROOT = Path(__file__).resolve().parents[1]
ROWS: tuple[tuple[int, str], ...] = (
    (0, "errors"),
    (0, "frozen garbage late values"),
    (1, "clock drafts masking messages problems store tables threads"),
    (1, "readers"),
    (2, "beside owning tools wording"),
    (3, "llm outcomes results schema"),
    (3, "secrecy"),
    (4, "execution project_models recorded sections signatures"),
    (4, "events"),
    (5, "chunk_arrays functions outputs project_file scope"),
    (5, "codec"),
    (6, "agent inputs projectors"),
    (7, "budgets commits estimates recovery requests snapshots stored"),
    (8, "cursors rebuild turn"),
    (8, "appending log"),
    (9, "capabilities exports hooks routes"),
    (9, "origins runners"),
    (9, "run"),
    (9, "approving erasing migrating revisions"),
    (10, "attempts calls opening plugins portability watchdog"),
    (10, "asking"),
    (11, "forking host inbox keys loop stream"),
    (11, "holding keeping pending"),
    (12, "config session"),
    (12, "runtime"),
    (12, "blocking"),
    (13, "proof"),
    (14, "testing"),
    (15, "cli"),
    (15, "__main__"),
)
"""Floor and names of modules and packages. A row may import the rows above it; those in one row are strangers."""
SIDE_ROOMS = {"stores": 1, "wire": 3}
"""Rooms beside the house, and the highest floor that they may import; they are opened from floor 10 upwards."""
FACE = ""
"""`spine/__init__.py`: what applications see; it may import anything and is imported by nobody inside."""
LAZY_FACES = frozenset(f"spine/{room}__init__.py" for room in ("", "llm/", "projectors/", "testing/"))
"""Rooms whose names are imported from their homes when they are first asked for."""
TYPES_ONLY = frozenset(f"spine/{name}.py" for name in ("config", "frozen", "runtime", "session"))
"""Modules that name types of a floor below which they do not want to load; the floors hold for these imports, too."""
ROOMS = frozenset(
    ["messages", "tools", "llm", "events", "projectors", "hooks", "store", "wire", "testing", "errors", "values"]
)
"""What plugins may import of us, besides `spine` itself. Errors and values are the words of the others."""
WORDINGS = frozenset({"spine.stores.urls", "spine.stores.verdicts"})
"""What stores of plugins may import besides: a person reads the same sentence whichever store was asked."""
DOORS: dict[str, frozenset[str]] = {
    "httpx": frozenset({"spine/wire/http.py"}),
    "pluggy": frozenset({"spine/hooks.py", "spine/plugins.py"}),
    "cattrs": frozenset(),
    "psycopg": frozenset(f"plugins/spine_postgres/{name}.py" for name in ("connections", "listening", "store")),
    "pytest": frozenset({"spine/testing/pytest_plugin.py", "spine/testing/fixtures.py"}),
    "syrupy": frozenset({"spine/testing/snapshots.py"}),
    "hypothesis": frozenset({"spine/testing/stores/machine.py"}),
    "jsonschema_rs": frozenset(),
    "yaml": frozenset(),
    "trio": frozenset(),
}
"""Libraries, and the only modules that import them."""
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 500

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    """The dotted name of a module of ours."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sources("spine")}


def unit_of(module: str) -> str:
    """The module or package directly under `spine`; empty for `spine` itself."""
    return [*module.split("."), FACE][1]


@cache
def imports_of(tree: ast.Module) -> tuple[tuple[str, int], ...]:
    """Each imported module with its line; `from spine import x` gives `spine.x` when that is a module."""
    return tuple(_imports(tree))


def _imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import in line {node.lineno}"
            module = node.module or ""
            for alias in node.names:
                full = f"{module}.{alias.name}"
                yield (full if full in MODULES else module), node.lineno


def functions_of(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, Function))


ROW_OF = {name: row for row, (_, names) in enumerate(ROWS) for name in names.split()}
FLOOR_OF = {name: floor for floor, names in ROWS for name in names.split()}


def test_every_module_has_a_floor() -> None:
    """A new module gets its place in the table in the same commit."""
    assert {unit_of(module) for module in MODULES} - {FACE, *ROW_OF, *SIDE_ROOMS} == set()


def test_modules_say_their_floor_as_the_table_has_it() -> None:
    """A module's docstring names its floor."""
    for module, path in MODULES.items():
        said = re.search(r"\(floor (\d+)", ast.get_docstring(tree_of(path)) or "")
        if said is not None and name_of(path) != "spine.testing.pytest_plugin":
            assert int(said.group(1)) == FLOOR_OF[unit_of(module)], f"{module} says it stands on floor {said.group(1)}"


def test_every_module_says_what_it_is_for() -> None:
    """Every file begins with a docstring, but the mark of an empty package."""
    for path in sources("spine", "plugins"):
        assert ast.get_docstring(tree_of(path)) or not path.read_text().strip(), f"{path} has no docstring"


def test_imports_point_strictly_down() -> None:
    """A module imports only from rows above its own in the table, and from its own package."""
    wrong = []
    for module, path in MODULES.items():
        here = unit_of(module)
        for target, line in imports_of(tree_of(path)):
            there = unit_of(target)
            if target.split(".")[0] != "spine" or here in (FACE, there):
                continue
            if not _is_below(there, here):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {target}")
    assert wrong == []


def _is_below(there: str, here: str) -> bool:
    if there == FACE:
        return False
    if here in SIDE_ROOMS:
        return there in FLOOR_OF and FLOOR_OF[there] <= SIDE_ROOMS[here]
    if there in SIDE_ROOMS:
        return FLOOR_OF[here] >= 10
    return ROW_OF[there] < ROW_OF[here]


def test_no_package_has_a_cycle() -> None:
    """Inside a package, too, imports lead nowhere back."""
    targets = {
        module: {target for target, _ in imports_of(tree_of(path)) if target in MODULES and target != module}
        for module, path in MODULES.items()
    }
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, f"a cycle: {' → '.join((*way, module))}"
        if module not in done:
            for target in sorted(targets[module]):
                visit(target, (*way, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())


def test_nothing_is_imported_inside_a_function_or_for_types_only() -> None:
    """No import hides in a function, a condition or a try: what a module needs stands at its top."""
    hidden = []
    for path in sources("spine", "plugins"):
        tree = tree_of(path)
        allowed = set(map(id, tree.body)) | _optional(tree)
        if str(path.relative_to(ROOT)) in LAZY_FACES | TYPES_ONLY:
            allowed |= {id(node) for block in tree.body if isinstance(block, ast.If) for node in block.body}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in allowed:
                hidden.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert hidden == []


def _optional(tree: ast.Module) -> set[int]:
    """Imports of standard modules that some platforms lack: a `try` at the top, for ImportError alone."""
    return {
        id(node)
        for block in tree.body
        if isinstance(block, ast.Try)
        and [ast.unparse(handler.type) for handler in block.handlers if handler.type] == ["ImportError"]
        for node in block.body
    }


@pytest.mark.parametrize("library", DOORS)
def test_a_library_has_one_door(library: str) -> None:
    """Heavy and exchangeable libraries are imported where the table says, and nowhere else."""
    found = {
        str(path.relative_to(ROOT))
        for path in sources("spine", "plugins")
        for target, _ in imports_of(tree_of(path))
        if target.split(".")[0] == library
    }
    assert found <= DOORS[library]


@pytest.mark.parametrize("face", sorted(LAZY_FACES))
def test_a_lazy_face_shows_type_checkers_what_it_gives(face: str) -> None:
    """Its imports for types, its table of homes and its public list agree, name by name."""
    tree = tree_of(ROOT / face)
    typed = {
        alias.asname or alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    module = importlib.import_module(name_of(ROOT / face))
    assert sorted(typed) == sorted(module.__all__)
    assert typed == module._HOMES
    for name in module.__all__:
        getattr(module, name)
    with pytest.raises(AttributeError, match="no name"):
        module.nonsense  # noqa: B018


def late_loads(path: Path) -> Iterator[str | None]:
    """Names that a module loads through `spine.late`; None for one that is not written out."""
    named = {
        (node.module, alias.name): alias.asname or alias.name
        for node in tree_of(path).body
        if isinstance(node, ast.ImportFrom) and node.module in ("spine", "spine.late")
        for alias in node.names
    }
    room, function = named.get(("spine", "late")), named.get(("spine.late", "load"))
    constants = {
        target.id: node.value.value
        for node in tree_of(path).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Call(func=called, args=[name, *_]) if ast.unparse(called) in (f"{room}.load", function):
                match name:
                    case ast.Constant(value=str(text)):
                        yield text
                    case ast.Name(id=constant) if constant in constants:
                        yield str(constants[constant])
                    case _:
                        yield None


def test_late_modules_are_loaded_by_the_module_that_the_table_names() -> None:
    """Each name in `spine/late.py` is loaded by its one module; what is loaded elsewhere is not in the table."""
    loads = {(name, module) for module, path in MODULES.items() for name in late_loads(path)}
    assert {(name, module) for name, module in loads if name is not None} <= set(LATE.items())
    by_table = {module for name, module in loads if name is None}  # a table of commands: its names are in LATE, too
    assert by_table <= {"spine.cli"}
    unloaded = {(name, module) for name, module in LATE.items() if (name, module) not in loads}
    assert {module for _, module in unloaded} <= by_table


def test_late_modules_of_ours_are_imported_by_their_own_room_only() -> None:
    """What is loaded late is imported at the top by nobody outside the package under `spine` that it lies in."""
    for name in set(LATE) & set(MODULES):
        importers = {m for m, path in MODULES.items() for target, _ in imports_of(tree_of(path)) if target == name}
        outside = {m for m in importers if unit_of(m) != unit_of(name)}
        assert outside == set(), f"{name} ← {outside}"


def test_importlib_is_used_only_where_names_become_modules() -> None:
    """Nothing is imported by a name from data: only the late table, plugins, and what a person typed."""
    users = {
        str(path.relative_to(ROOT))
        for path in sources("spine", "plugins")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr == "import_module"
    }
    optional = {"plugins/spine_postgres/__init__.py"}  # a library that most installations lack
    typed = {"spine/plugins.py", "spine/cli/agents.py"}
    typed |= {"spine/testing/adapters/conformance.py", "spine/testing/scenarios/agents.py"}
    assert users <= {"spine/late.py", *typed, *optional, *LAZY_FACES}


def test_plugins_import_only_public_rooms() -> None:
    """Bundled plugins have no private door: they import what any third party may."""
    wrong = []
    for path in sources("plugins"):
        for target, line in imports_of(tree_of(path)):
            if target.split(".")[0] != "spine" or target == "spine" or target in WORDINGS:
                continue
            if unit_of(target) not in ROOMS:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {target}")
    assert wrong == []


EXECUTES = frozenset({"spine/drafts.py"})
"""Writes constructors out of the field names of our own classes, as attrs does; nothing of it comes from data."""
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "imp"}


def test_no_code_comes_from_data() -> None:
    """No pickle, eval, exec or unsafe YAML anywhere."""
    found = []
    for path in sources("spine", "plugins"):
        where = path.relative_to(ROOT)
        found += [f"{where}:{line} {t}" for t, line in imports_of(tree_of(path)) if t in FORBIDDEN_MODULES]
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS and str(where) not in EXECUTES:
                    found.append(f"{where}:{node.lineno} {name}()")
                case ast.Call(func=ast.Attribute(value=ast.Name(id="yaml"), attr="load" | "unsafe_load" | "full_load")):
                    found.append(f"{where}:{node.lineno} yaml.load")
    assert found == []


def test_the_public_list_is_sorted_and_equal_to_what_is_public_and_documented() -> None:
    """`spine.__all__` and reality agree, and each name has a docstring."""
    assert spine.__all__ == sorted(spine.__all__)
    mechanism = {"Any", "Final", "Mapping", "TYPE_CHECKING"}
    named = {name for name, value in vars(spine).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert named - mechanism <= set(spine.__all__)
    assert [name for name in spine.__all__ if not inspect.getdoc(getattr(spine, name))] == []


def test_public_lists_of_modules_name_what_is_there() -> None:
    """A module's `__all__` holds names that it defines, each once and sorted."""
    for path in sources("spine"):
        for node in tree_of(path).body:
            match node:
                case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                    names = ast.literal_eval(value)
                    assert len(names) == len(set(names)), path
                    assert list(names) == sorted(names, key=_as_ruff_sorts), f"{path} has an unsorted __all__"


def _as_ruff_sorts(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions, each in the order of the alphabet."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


def test_functions_and_files_stay_small() -> None:
    """No function over sixty lines, no file over five hundred; nine functions of ten under thirty."""
    lengths = [
        ((node.end_lineno or 0) - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
        for path in sources("spine", "plugins")
        for node in functions_of(path)
    ]
    assert [name for length, name in lengths if length > MAX_FUNCTION_LINES] == []
    assert sum(length < 30 for length, _ in lengths) >= 0.9 * len(lengths)
    files = [(path.relative_to(ROOT), len(path.read_text().splitlines())) for path in sources("spine", "plugins")]
    assert [(str(path), lines) for path, lines in files if lines > MAX_FILE_LINES] == []


def test_public_functions_and_classes_are_documented() -> None:
    """What has no underscore has a docstring."""
    bare = []
    for path in sources("spine"):
        for node in tree_of(path).body:
            if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
                continue
            is_overload = any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list)
            if not is_overload and not ast.get_docstring(node):
                bare.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert bare == []
