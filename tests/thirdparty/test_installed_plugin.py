"""A distribution outside the source tree, installed by pip: seen, used, listed, attributed and unloaded."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Facts = Mapping[str, Any]
Run = Callable[..., subprocess.CompletedProcess[str]]


def test_an_installed_plugin_is_listed_with_what_it_offers(facts: Facts) -> None:
    """`runtime.plugins` names the plugin, its version and everything it brings."""
    acme = facts["plugins"]["acme"]
    assert (acme["version"], acme["state"]) == ("0.3.0", "loaded")
    offers = " · ".join(acme["offers"])
    for offer in ("tool acme.shout", "section acme-greeting", "adapter acme", "event acme.answered", "pre_step"):
        assert offer in offers


def test_the_agent_gets_the_tools_it_names(facts: Facts) -> None:
    """`acme.*` selects the plugin's tool, the plugin's model calls it, and its result comes back."""
    used = facts["used"]
    assert used["tools"] == ["acme.shout"]
    assert used["calls"] == ["acme.shout"]
    assert used["text"] == "HELLO"
    assert '> acme.shout(text="hello")' in used["transcript"]


def test_an_agent_that_names_no_tool_gets_none(facts: Facts) -> None:
    """Installing a plugin does not arm every agent."""
    assert facts["used"]["tools_of_the_plain_agent"] == []


def test_the_section_stands_in_the_request_under_its_owner(facts: Facts) -> None:
    """The plugin's prompt section is in the request that the log rebuilds, and says whose it is."""
    sections = dict(facts["used"]["system"])
    assert sections["acme-greeting"] == "acme@0.3.0"


def test_the_log_attributes_what_the_plugin_did(facts: Facts) -> None:
    """Its version is recorded, its events have it as origin, and its change of a request is a patch with its name."""
    events = facts["used"]["events"]
    assert events[0]["versions"]["acme"] == "0.3.0"
    requested = [event for event in events if event["type"] == "model.requested"]
    assert [event["patched_by"] for event in requested] == [["acme@0.3.0"]] * 2
    answered = [event for event in events if event["type"] == "acme.answered"]
    assert [(event["origin"], event["letters"]) for event in answered] == [("acme@0.3.0", 0), ("acme@0.3.0", 5)]
    assert all(event["origin"] is None for event in events if not event["type"].startswith("acme."))


def test_unloading_takes_everything_back_and_closes(facts: Facts) -> None:
    """Nothing of it is registered any more, `spine_close` ran once it was unloaded, and its provider is unknown."""
    unloaded = facts["unloaded"]
    assert unloaded["state"] == "unloaded"
    assert unloaded["left"] == []
    assert unloaded["closed"] == [False, True]
    assert unloaded["run"] == "route_unknown"


def test_a_broken_plugin_is_named_and_the_others_work(facts: Facts) -> None:
    """One that does not import is listed as failed, with its error and place."""
    broken = facts["plugins"]["broken"]
    assert (broken["version"], broken["state"]) == ("2.0", "failed")
    assert "a_module_that_nobody_has" in broken["error"]
    assert "spine_broken/__init__.py:3" in broken["error"]
    assert facts["plugins"]["openai_chat"]["state"] == "loaded"


def test_the_command_line_lists_installed_plugins(run: Run) -> None:
    """`spine plugins list` shows the one that works and the one that does not."""
    done = run("-m", "spine", "plugins", "list")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert "0.3.0" in lines["acme"]
    assert "loaded" in lines["acme"]
    assert "failed" in lines["broken"]
    assert "a_module_that_nobody_has" in lines["broken"]


def test_a_plugin_adds_a_command(run: Run) -> None:
    """The entry-point group `spine.commands` gives a command, which runs like any other."""
    done = run("-m", "spine", "acme-echo", "good", "morning")
    assert (done.returncode, done.stdout) == (0, "acme says: good morning\n"), done.stderr
    assert "acme-echo" in run("-m", "spine", "--help").stdout


def test_a_broken_command_is_blamed_on_its_package(run: Run) -> None:
    """A command whose module does not load ends in one sentence that names the distribution; others work."""
    done = run("-m", "spine", "broken-command")
    assert done.returncode not in (0, None)
    assert "spine-broken" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stored_session_is_readable_without_the_plugin(facts: Facts, run: Run, site: Path) -> None:
    """Where the plugin is missing, log and verification still work, and its events are listed."""
    assert facts["used"]["text"] == "HELLO"
    without = f"import sys; sys.path.remove({str(site)!r}); from spine.__main__ import main; "
    command = "sys.argv = ['spine', {!r}, 'used', '--store', 'sqlite:acme.db']; main()"
    log = run("-c", without + command.format("log"))
    assert log.stdout.count("acme.answered") == 2, log.stderr
    verified = run("-c", without + command.format("verify"))
    assert "chain whole" in verified.stdout, verified.stderr
