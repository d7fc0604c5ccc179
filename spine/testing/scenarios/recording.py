"""Asks the real model for the answers of a scenario, and writes them into its file (floor 14).

Only the script changes, and of that not what it expects of a request: inputs, answers of tools, decisions and comments
stay as they are written. What changed is reviewed as any change of a file is.
"""

import tempfile
from pathlib import Path

import anyio
import attrs

from spine.codec import Codec
from spine.config import Settings, load_settings
from spine.errors import SpineError
from spine.log import LogReader
from spine.proof.request_view import request_views
from spine.stores.opening import open_store
from spine.testing.scenarios.file import read_scenario
from spine.testing.scenarios.play import play
from spine.testing.scenarios.run import ScenarioResult, run_scenario
from spine.testing.scenarios.scenario import Scenario
from spine.testing.scenarios.script_writing import entries_of
from spine.testing.scenarios.yaml_tree import Source, dump, parse
from spine.values import session_id

__all__ = ["record_scenario"]


def record_scenario(path: Path, settings: Settings | None = None) -> ScenarioResult:
    """Record a scenario anew with the model its agent names, and run it; `settings` say how to reach that model.

    The file is written only when the live run itself went well; whether it still meets its expectations is the
    result. Never raises for what is wrong with it.
    """
    try:
        scenario = read_scenario(path)
        text = path.read_text("utf-8")
        with tempfile.TemporaryDirectory(prefix="spine-record-") as folder:
            database = Path(folder, "record.db")
            ending = anyio.run(_play_live, scenario, database, settings or load_settings())
            if ending:
                return ScenarioResult(path=path, name=scenario.name, problems=ending)
            entries = _entries(scenario, database)
        path.write_text(with_script(text, entries, path.name), "utf-8")
    except SpineError as error:
        return ScenarioResult(path=path, problems=(error.message,))
    return attrs.evolve(run_scenario(path, update=True), is_updated=True)


async def _play_live(scenario: Scenario, database: Path, settings: Settings) -> tuple[str, ...]:
    return (await play(scenario, database, live=settings)).problems


def _entries(scenario: Scenario, database: Path) -> list[dict[str, object]]:
    store = open_store(f"sqlite:{database}")
    try:
        reader = LogReader(store, Codec(), session_id(scenario.session))
        requests = {view.seq: view.request for view in request_views(reader)}
        return entries_of(reader.read(), requests, lambda note: None)
    finally:
        store.close()


def with_script(text: str, entries: list[dict[str, object]], name: str) -> str:
    """A scenario's text with another script; every line that is not of the script stays.

    Raises `ScenarioInvalid` where the script shares its lines with other keys.
    """
    source = Source(name)
    root = parse(text, source)
    keys = root.keys
    kept = root.value["model"].plain()
    entries = [_with_expectation(entry, kept[at] if at < len(kept) else {}) for at, entry in enumerate(entries)]
    begin = keys["model"].line
    others = sorted(node.line for key, node in keys.items() if key != "model")
    if begin in others:
        raise source.error(keys["model"], "the script stands on one line with other keys; give model a line of its own")
    lines = text.splitlines(keepends=True)
    end = next((line for line in others if line > begin), len(lines) + 1)
    while (
        end > begin + 1 and end <= len(lines) + 1 and _is_loose(lines[end - 2])
    ):  # comments before the next key are its
        end -= 1
    return "".join([*lines[: begin - 1], dump({"model": entries}), *lines[end - 1 :]])


def _with_expectation(entry: dict[str, object], kept: dict[str, object]) -> dict[str, object]:
    if "expect" not in kept:
        return entry
    return {"expect": kept["expect"], **{key: part for key, part in entry.items() if key != "expect"}}


def _is_loose(line: str) -> bool:
    return not line.strip() or line.startswith("#")
