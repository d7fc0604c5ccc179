"""spine.config and spine.project_file: where each value comes from, and what every mistake in spine.toml is told."""

import sys
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spine.config import Settings, find_key, load_settings, make_store_folder, store_url
from spine.errors import ConfigInvalid, KeyMissing
from spine.llm.catalogue import Provider
from spine.llm.providers import CATALOGUE
from spine.project_file import read_project

WHOLE = """\
# a comment
version = 1
store = "sqlite:var/spine.db"
model = "fast"
agent = "shop.agent:agent"
aliases = { fast = "lab:tiny" }
plugins.block = ["noisy"]

[providers.lab]
protocol = "openai_chat"
base_url = "http://127.0.0.1:8080/v1"
auth = "bearer"
key = { env = "LAB_KEY" }
traits = { tools = false, thinking = ["low", "high"] }

[models."lab:tiny"]
window = 8192
output = 1024
capabilities = { vision = false }
prices = { id = "mine-1", currency = "EUR", input = 0.5, output = 1.25, cache_read = 0 }
"""


def project(folder: Path, text: str = WHOLE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spine.toml").write_text(text)
    return folder


def load(folder: Path, **environ: str) -> Settings:
    return load_settings({"HOME": str(folder), **environ}, folder=folder)


def test_the_nearest_file_upwards_is_read(tmp_path: Path) -> None:
    project(tmp_path / "shop")
    inner = tmp_path / "shop" / "a" / "b"
    inner.mkdir(parents=True)
    settings = load(inner)
    assert settings.path == tmp_path / "shop" / "spine.toml"
    assert settings.origins["model"] == "../../spine.toml:4"
    assert settings.store == f"sqlite:{tmp_path}/shop/var/spine.db"


def test_every_value_of_the_file_is_read_with_its_line(tmp_path: Path) -> None:
    settings = load(project(tmp_path))
    assert (settings.store, settings.model, settings.agent) == ("sqlite:var/spine.db", "fast", "shop.agent:agent")
    assert dict(settings.aliases) == {"fast": "lab:tiny"}
    assert settings.block_plugins == ("noisy",)
    assert settings.blocks("noisy") == "spine.toml:7"
    assert settings.blocks("other") is None
    (lab,) = settings.providers
    assert (lab.protocol, lab.auth, lab.source) == ("openai_chat", "bearer", "spine.toml:9")
    assert settings.origins["aliases.fast"] == "spine.toml:6"
    assert settings.origins["models.lab:tiny"] == "spine.toml:16"
    catalogue = settings.extend(CATALOGUE)
    traits = catalogue.traits("lab", "tiny")
    assert (traits.tools, traits.vision, traits.window, traits.max_output) == (False, False, 8192, 1024)
    assert traits.thinking == ("low", "high")
    prices = catalogue.model("lab", "tiny").prices
    assert prices is not None
    assert (prices.id, prices.currency, prices.input, prices.output) == ("mine-1", "EUR", 500_000, 1_250_000)
    assert prices.cache_read == 0


@pytest.mark.parametrize(
    ("argument", "environ", "text", "model", "origin"),
    [
        ("a:1", {"SPINE_MODEL": "b:2"}, 'model = "c:3"', "a:1", "--model"),
        (None, {"SPINE_MODEL": "b:2"}, 'model = "c:3"', "b:2", "SPINE_MODEL"),
        (None, {"SPINE_MODEL": ""}, 'model = "c:3"', "c:3", "spine.toml:1"),
        (None, {}, "", None, "default"),
    ],
    ids=["argument", "environment", "file, a blank variable is none", "default"],
)
def test_precedence_is_argument_environment_file_default(
    tmp_path: Path, argument: str | None, environ: dict[str, str], text: str, model: str | None, origin: str
) -> None:
    settings = load_settings(environ, arguments={"model": argument}, folder=project(tmp_path, text))
    assert (settings.model, settings.origins["model"]) == (model, origin)


def test_the_default_store_lies_beside_the_file(tmp_path: Path) -> None:
    settings = load(project(tmp_path, "version = 1"))
    assert (settings.store, settings.origins["store"]) == ("sqlite:spine.db", "default")


@pytest.mark.parametrize("variable", ["XDG_DATA_HOME", "HOME"])
def test_without_a_project_the_store_lies_in_the_data_folder(tmp_path: Path, variable: str) -> None:
    settings = load_settings({variable: "/home/ada"}, folder=tmp_path)
    expected = "/home/ada/spine/spine.db" if variable == "XDG_DATA_HOME" else "/home/ada/.local/share/spine/spine.db"
    assert settings.path is None
    assert settings.store == f"sqlite:{expected}"


def test_spine_config_names_another_file(tmp_path: Path) -> None:
    project(tmp_path, 'model = "a:1"')
    other = tmp_path / "other.toml"
    other.write_text('\nmodel = "b:2"\n')
    settings = load(tmp_path, SPINE_CONFIG="other.toml")
    assert (settings.model, settings.origins["model"]) == ("b:2", "other.toml:2")
    with pytest.raises(ConfigInvalid, match="SPINE_CONFIG names gone"):
        load(tmp_path, SPINE_CONFIG="gone.toml")


@pytest.mark.parametrize(
    ("listed", "allowed"), [("orders,anthropic", ("orders", "anthropic")), ("", ()), (" a , ", ("a",))]
)
def test_spine_plugins_allows_only_these(tmp_path: Path, listed: str, allowed: tuple[str, ...]) -> None:
    settings = load(project(tmp_path, 'plugins.allow = ["x"]'), SPINE_PLUGINS=listed)
    assert settings.allow_plugins == allowed
    assert settings.blocks("x") == "SPINE_PLUGINS"


def test_a_catalogue_provider_is_changed_field_by_field(tmp_path: Path) -> None:
    text = '[providers.ollama]\nbase_url = "http://127.0.0.1:9/v1"\nkey = { file = "key.txt" }\n'
    (ollama,) = load(project(tmp_path, text)).providers
    known = CATALOGUE.providers["ollama"]
    assert ollama == attrs.evolve(known, base_url="http://127.0.0.1:9/v1", auth="bearer", source="spine.toml:1")


MISTAKES = [
    ("modle = 1", 'spine.toml:1: unknown key "modle"; allowed here: version, store, model', 'did you mean "model"?'),
    ("[providers.lab]\nurl = 1", 'spine.toml:2: unknown key "url"; allowed here: protocol, base_url', None),
    ("[providerz]", 'spine.toml:1: unknown key "providerz"', 'did you mean "providers"?'),
    ("version = 2", "spine.toml:1: version is 2, this installation reads version 1", None),
    ("version = true", "spine.toml:1: version is True", None),
    ("\n\nstrict = 1", "spine.toml:3: strict is true or false, found a number", None),
    ('agent = "shop.agent"', 'spine.toml:1: agent is "shop.agent"; it must be of the form module:attribute', None),
    ('plugins.block = "noisy"', "spine.toml:1: plugins.block is a list of names, found text", None),
    ("aliases = { fast = 3 }", "spine.toml:1: aliases.fast is a text that is not blank, found a number", None),
    ("model = 1979-05-27", "spine.toml:1: model is a text that is not blank, found a date", None),
    ('aliases = { fast = "tiny" }', 'spine.toml:1: aliases.fast is "tiny"; it must be of the form provider:name', None),
    ("providers = 1", "spine.toml:1: providers is a table, found a number", None),
    ("model = ", "spine.toml:1: this is no TOML", None),
    ("model = =\n", "spine.toml:1:9: this is no TOML", None),
    ('[providers.lab]\nkey = { env = "A", file = "b" }', "spine.toml:2: providers.lab.key names one of env", None),
    ('[providers.lab]\nauth = "basic"', "spine.toml:2: providers.lab.auth", "bearer, none, or header NAME"),
    ('[providers.lab]\nbase_url = "lab.example"', "spine.toml:2: providers.lab.base_url begins with https://", None),
    ('[providers.lab]\nbase_url = "https://x"', 'spine.toml:1: provider "lab" has no protocol', None),
    ("[models.tiny]\nwindow = 1", 'spine.toml:1: model "tiny" is not of the form provider:name', None),
    ('[providers.lab]\ntraits = { terminal = "x" }', "spine.toml:2: providers.lab.traits.terminal", "finish or done"),
    ('[models."lab:x"]\nwindow = 0', 'spine.toml:2: models."lab:x".window is a number of tokens over 0, found 0', None),
    ('[models."lab:x"]\nprices = { input = 1, output = 2 }', 'spine.toml:2: models."lab:x".prices has no id', None),
    (
        '[models."lab:x".prices]\nid = "a"\ninput = 1\noutput = 0.0000001',
        'spine.toml:4: models."lab:x".prices.output has more than six decimals',
        None,
    ),
    (
        '[models."lab:x"]\ncapabilities = { visoin = true }',
        'spine.toml:2: unknown key "visoin"',
        'did you mean "vision"?',
    ),
    ("[mcp.files]\nx = 1", "spine.toml:1: [mcp.files] is not available in this version", None),
]


@pytest.mark.parametrize(("text", "said", "also"), MISTAKES, ids=[case[0][:40] for case in MISTAKES])
def test_every_mistake_is_told_with_file_and_line(tmp_path: Path, text: str, said: str, also: str | None) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(project(tmp_path, text))
    assert caught.value.message.startswith(said)
    assert also is None or also in caught.value.message


def test_a_key_written_into_the_file_is_refused_and_never_quoted(tmp_path: Path) -> None:
    for line in ('key = "not-a-real-value"', 'base_url = "https://ada:not-a-real-value@lab.example"'):
        with pytest.raises(ConfigInvalid) as caught:
            load(project(tmp_path, f"[providers.lab]\n{line}"))
        assert "spine.toml:2" in caught.value.message
        assert "not-a-real-value" not in f"{caught.value.message} {caught.value.hint}"


def test_a_model_of_an_unknown_provider_is_refused(tmp_path: Path) -> None:
    settings = load(project(tmp_path, '[models."opnai:x"]\nwindow = 1'))
    with pytest.raises(ConfigInvalid, match=r'spine.toml:1: no provider "opnai".*did you mean "openai"'):
        settings.extend(CATALOGUE)


def test_what_the_file_says_of_a_model_leaves_the_rest_as_known(tmp_path: Path) -> None:
    settings = load(project(tmp_path, '[models."openai:gpt-5-mini"]\noutput = 7'))
    entry, known = settings.extend(CATALOGUE).model("openai", "gpt-5-mini"), CATALOGUE.model("openai", "gpt-5-mini")
    assert (entry.max_output, entry.window, entry.prices) == (7, known.window, known.prices)


@given(st.lists(st.sampled_from(["", "# x", 'model = "a:1"', "strict = true", 'store = """\na\n"""']), unique=True))
def test_lines_are_found_wherever_a_key_stands(lines: list[str]) -> None:
    """The recorded line of a key is the one that begins with it, values over several lines included."""
    text = "\n".join(lines)
    project_file = read_project(text, "spine.toml")
    for key in project_file.values:
        line = project_file.lines[(key,)]
        assert text.splitlines()[line - 1].startswith(key)


# ------------------------------------------------------------------------------------------------------------- keys

LAB = Provider(id="lab", protocol="openai_chat", key_env="LAB_KEY", source="spine.toml:3")


def test_a_key_is_found_in_environment_file_or_command(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("from-file\n")
    settings = load(project(tmp_path, "version = 1"))
    places = {
        "from-env": {"env": "OTHER"},
        "from-file": {"file": "key.txt"},
        "from-command": {"command": f"{sys.executable} -c \"print('from-command')\""},
    }
    for text, place in places.items():
        secret = find_key(attrs.evolve(settings, keys={"lab": place}), LAB, {"OTHER": "from-env"})
        assert secret is not None
        assert secret.reveal() == text


def test_a_provider_without_authentication_needs_no_key() -> None:
    assert find_key(Settings(), attrs.evolve(LAB, auth="none"), {}) is None


@pytest.mark.parametrize(
    ("place", "environ", "said"),
    [
        (None, {}, 'no key for provider "lab": LAB_KEY is not set'),
        (None, {"LAB_KEY": "  "}, 'no key for provider "lab": LAB_KEY is set, but blank'),
        (None, {"LAB_KEY": "abc\n"}, 'the key for provider "lab" in LAB_KEY has blanks'),
        (None, {"LAB_KEY": "schlüssel"}, 'the key for provider "lab" in LAB_KEY has blanks or characters'),
        ({"file": "gone"}, {}, 'no key for provider "lab": gone cannot be read'),
        ({"file": "blank"}, {}, 'no key for provider "lab": blank is blank'),
        ({"command": "false"}, {}, 'no key for provider "lab": the command "false" ended with status 1'),
        ({"command": "no-such-program"}, {}, 'no key for provider "lab": the command "no-such-program" failed'),
        ({"command": '"'}, {}, 'no key for provider "lab": the command'),
        ({"command": "echo"}, {}, 'no key for provider "lab": the output of "echo" is blank'),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_missing_blank_or_malformed_key_is_told(
    tmp_path: Path, place: dict[str, str] | None, environ: dict[str, str], said: str
) -> None:
    (tmp_path / "blank").write_text("\n")
    settings = load(project(tmp_path, "version = 1"))
    with pytest.raises(KeyMissing) as caught:
        find_key(attrs.evolve(settings, keys={} if place is None else {"lab": place}), LAB, environ)
    assert caught.value.message.startswith(said)


def test_the_hint_of_a_missing_key_can_be_pasted() -> None:
    with pytest.raises(KeyMissing) as caught:
        find_key(Settings(), LAB, {})
    assert caught.value.hint == "export LAB_KEY=…, or without a key: spine demo"


def test_a_bad_key_is_never_quoted() -> None:
    with pytest.raises(KeyMissing) as caught:
        find_key(Settings(), LAB, {"LAB_KEY": "first second"})
    assert "first" not in caught.value.message


# ----------------------------------------------------------------------------------------------------------- stores


@pytest.mark.parametrize(
    ("text", "url"),
    [("memory:", "memory:"), ("a/b.db", "sqlite:a/b.db"), ("C:\\x.db", "sqlite:C:\\x.db"), ("pg://h/d", "pg://h/d")],
)
def test_a_path_is_a_store_too(text: str, url: str) -> None:
    assert store_url(text) == url


def test_the_folder_of_a_store_is_private(tmp_path: Path) -> None:
    make_store_folder(f"sqlite:{tmp_path}/a/b/spine.db?durability=relaxed")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    make_store_folder("memory:")
