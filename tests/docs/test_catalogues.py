"""The reference is the code: each catalogue names all there is, nothing else, and says what the code says."""

import re
from collections.abc import Iterable
from pathlib import Path

import attrs
import pytest
from docs_classes import CLASSES
from docs_commands import tree
from docs_markdown import PAGES, ROOT, name_of, prose, regions
from docs_regions import (
    ROOMS,
    VALUES,
    error_classes,
    floor_of,
    length_of,
    module_of,
    public_names,
    rendered,
    sources,
    stated_lengths,
)

import spine.project_file
from spine import errors
from spine.events import CORE_EVENTS
from spine.hooks import HOOKS
from spine.llm.catalogue import Traits
from spine.llm.errors import CATEGORIES, ProviderError
from spine.project_file import read_project

REFERENCE = ROOT / "docs" / "reference"
REWRITE = "run: python tests/docs/docs_regions.py"
_HOOK_PARTS = ("When.", "Order.", "May return.", "When it raises.")


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return dict(rendered())


def _page(name: str) -> str:
    return (REFERENCE / name).read_text()


def _coded_headings(page: str, level: int = 3) -> list[str]:
    return re.findall(rf"^{'#' * level} `([^`]+)`$", page, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_generated_text_is_up_to_date(page: Path, texts: dict[str, str]) -> None:
    """Each generated region holds what the code says now."""
    for name, text in regions(page.read_text()).items():
        assert name in texts, f"{name_of(page)}: nothing gives the region {name!r}"
        assert text == texts[name], f"{name_of(page)}: region {name!r} is out of date; {REWRITE}"


# ---------------------------------------------------------------------------------------------------------- events


def test_every_core_event_is_described() -> None:
    """events.md has one heading for each core event, in the order of the code, with its generated facts below."""
    page = _page("events.md")
    names = [kind.name for kind in CORE_EVENTS]
    assert [name for name in _coded_headings(page) if "." in name] == names
    assert [name for name in regions(page) if name.startswith("event ")] == [f"event {name}" for name in names]


def test_every_value_inside_events_is_described() -> None:
    """Classes that stand inside events have their fields in the catalogue."""
    assert {f"value {kind.__name__}" for kind in VALUES} <= set(regions(_page("events.md")))


def test_every_field_of_an_event_is_explained() -> None:
    """A field of an event is named in the text of its section, or has its meaning in the table."""
    page = _page("events.md")
    for kind in CORE_EVENTS:
        section = page.split(f"### `{kind.name}`\n")[1].split("\n### ")[0].split("\n## ")[0]
        outside = re.sub(r"^\| `.*$", "", section, flags=re.MULTILINE)
        for field in attrs.fields(kind.data):
            row = next(line for line in section.splitlines() if line.startswith(f"| `{field.name}` |"))
            has_meaning = not row.rstrip().endswith("|  |")
            assert has_meaning or f"`{field.name}`" in outside, f"{kind.name}: {field.name} is not explained"


# ----------------------------------------------------------------------------------------------------------- hooks


def test_every_hook_is_described() -> None:
    """hooks.md has one heading for each hook, and nothing that is no hook."""
    assert _coded_headings(_page("hooks.md")) == list(HOOKS)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_says_when_order_answers_and_failures(hook: str) -> None:
    """Each hook tells when it is called, in which order, what it may return, and what follows when it raises."""
    section = _page("hooks.md").split(f"### `{hook}`\n")[1].split("\n### ")[0]
    assert f"generated: hook {hook}" in section
    for part in _HOOK_PARTS:
        assert f"**{part}**" in section, f"{hook}: no {part}"


# ---------------------------------------------------------------------------------------------------------- errors


def test_every_code_has_a_heading() -> None:
    """errors.md has one heading for each stable code and each category of providers' failures, and no other."""
    codes = [kind.code for kind in error_classes()]
    assert len(codes) == len(set(codes)) or _shared_codes(codes) == set()
    assert sorted(_coded_headings(_page("errors.md"))) == sorted({*codes, *CATEGORIES})


def _shared_codes(codes: Iterable[str]) -> set[str]:
    listed = list(codes)
    return {code for code in listed if listed.count(code) > 1}


def test_every_error_class_is_in_the_tree() -> None:
    """Whatever is raised on purpose is a class of the one tree, or `ProviderError` with a category as its code."""
    outside = [
        kind.__name__
        for kind in _all_subclasses(errors.SpineError)
        if kind.__module__ != errors.__name__
        and kind is not ProviderError
        and kind.__module__.startswith("spine.")
        and not kind.__module__.startswith("spine.testing.")  # what a fake process dies of
    ]
    page = _page("errors.md")
    assert [name for name in outside if name not in page] == []


def _all_subclasses(kind: type) -> Iterable[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _all_subclasses(each)


# ---------------------------------------------------------------------------------------------------- configuration


def _keys_below(page: str, heading: str) -> set[str]:
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


def _allowed(text: str) -> set[str]:
    with pytest.raises(errors.ConfigInvalid) as caught:
        read_project(text, "spine.toml")
    listed = re.search(r"allowed here: (.+?)(?:;|$)", caught.value.message)
    assert listed is not None
    return set(listed[1].split(", "))


@pytest.mark.parametrize(
    ("heading", "wrong"),
    [
        ("Top level", "zzz = 1"),
        ("`[plugins]`", "plugins.zzz = 1"),
        ("`[providers.NAME]`", "[providers.lab]\nzzz = 1"),
        ("`[providers.NAME] key`", "[providers.lab]\nkey = { zzz = 1 }"),
        ('`[models."PROVIDER:NAME"]`', '[models."lab:tiny"]\nzzz = 1'),
        ('`[models."PROVIDER:NAME"] prices`', '[models."lab:tiny"]\nprices = { zzz = 1 }'),
        ("Traits", "[providers.lab.traits]\nzzz = 1"),
    ],
)
def test_keys_of_the_project_file(heading: str, wrong: str) -> None:
    """configuration.md lists exactly the keys that the reader allows."""
    assert _keys_below(_page("configuration.md"), heading) == _allowed(wrong)


def test_traits_are_those_of_the_code() -> None:
    """Every trait that the file may set is a field of `Traits`."""
    assert _keys_below(_page("configuration.md"), "Traits") <= {field.name for field in attrs.fields(Traits)}


def test_variables_of_the_environment() -> None:
    """configuration.md lists every `SPINE_…` variable that the code reads."""
    read = {name for path in sources() for name in re.findall(r'"(SPINE_[A-Z_]+)"', path.read_text())}
    assert {name for name in _keys_below(_page("configuration.md"), "Environment") if name.startswith("SPINE_")} == read


# ------------------------------------------------------------------------------------------- command line, scenarios


def test_every_command_is_described() -> None:
    """cli.md has every command, its options generated from the code."""
    described = {name.removeprefix("command ") for name in regions(_page("cli.md")) if name.startswith("command ")}
    assert described == {name for name, _, _ in tree()}


def test_every_key_of_a_scenario_is_described(texts: dict[str, str]) -> None:
    """scenario.md has every mapping of the schema, but for those that repeat another."""
    described = {name for name in regions(_page("scenario.md")) if name.startswith("scenario")}
    missing = {name for name in texts if name.startswith("scenario")} - described
    repeated = {name for name in missing if texts[name] in {texts[other] for other in described}}
    assert missing == repeated


def test_every_class_that_applications_hold_is_described() -> None:
    """python.md has the fields and methods of each of them."""
    assert {f"class {kind.__name__}" for kind in CLASSES} <= set(regions(_page("python.md")))


# ------------------------------------------------------------------------------------------- public names, the house


def test_every_public_room_is_listed() -> None:
    """public.md lists the names of every public module."""
    assert {name for name in regions(_page("public.md")) if name.startswith("room ")} == {f"room {r}" for r in ROOMS}


@pytest.mark.parametrize("room", ROOMS)
def test_public_names_say_what_they_are(room: str, texts: dict[str, str]) -> None:
    """No public name is without a sentence."""
    silent = re.findall(r"^\| `(\w+)` \|  \|$", texts[f"room {room}"], re.MULTILINE)
    assert silent == []
    assert len(public_names(__import__(room, fromlist=["x"]))) > 0


def test_every_module_names_its_floor() -> None:
    """A module's docstring says on which floor it stands."""
    assert [module_of(path) for path in sources() if path.name != "__init__.py" and floor_of(path) is None] == []


def test_stated_lengths_are_about_right() -> None:
    """The reading order states lengths of files that exist, right within a fifth or 40 lines."""
    lengths = stated_lengths((ROOT / "docs" / "explanation" / "reading-order.md").read_text())
    assert round(sum(lengths.values()), -3) == 8000, "the page says eight thousand"
    for path, stated in lengths.items():
        assert abs(length_of(path) - stated) <= max(40, stated // 5), f"{path}: {REWRITE}"


def test_the_reading_order_names_files_that_exist() -> None:
    """Every path in the explanations is a file of this project."""
    for page in (ROOT / "docs").rglob("*.md"):
        for number, line in prose(page.read_text()):
            for path in re.findall(r"`((?:spine|plugins|scenarios|tests|docs|benchmarks)/[\w/.-]+\.\w+)`", line):
                assert (ROOT / path).exists(), f"{name_of(page)}:{number}: {path}"


def test_the_file_reader_is_the_one_described() -> None:
    """A full example of spine.toml parses."""
    example = re.search(r"```toml\n# spine\.toml: every key\n(.*?)```", _page("configuration.md"), re.DOTALL)
    assert example is not None
    project = read_project(example[1], "spine.toml")
    assert set(project.values) | {"mcp"} == set(spine.project_file._FILE)
