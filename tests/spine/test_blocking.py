"""The same words without await: what is public on one side is public on the other."""

import inspect
from typing import Any

import pytest

from spine import Agent, Section, blocking
from spine.config import Settings
from spine.errors import UsageError
from spine.log import Synchronised
from spine.runtime import Runtime, ScopeHandle
from spine.session import Session
from spine.stream import TurnStream
from spine.testing.script import say
from spine.testing.scripted import ScriptedAdapter

LEFT_OUT: dict[type, set[str]] = {
    Runtime: {
        # what the runtime gives its own sessions
        "entered", "left", "give_up", "spawn", "resolve_model", "versions",
        # the parts it is made of: `awaiting` has them
        "registries", "hooks", "routes", "codec",
    },
    Session: {"tick", "take_inbox", "watch", "offer", "check_idle", "reload", "scope"},
    TurnStream: {"take", "finish"},
    ScopeHandle: {"scope"},
}  # fmt: skip
PAIRS = [
    (Runtime, blocking.Runtime),
    (Session, blocking.Session),
    (TurnStream, blocking.TurnStream),
    (ScopeHandle, blocking.ScopeHandle),
]


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("awaiting", "waiting"), PAIRS, ids=lambda kind: kind.__name__)
def test_every_word_exists_without_await(awaiting: type, waiting: type) -> None:
    """And none of them is to be awaited."""
    missing = public(awaiting) - public(waiting) - LEFT_OUT.get(awaiting, set())
    assert missing == set()
    assert not [name for name, value in vars(waiting).items() if inspect.iscoroutinefunction(value)]


@pytest.fixture
def runtime() -> Any:
    settings = Settings(installed_plugins=False)
    model = ScriptedAdapter(*[say("One two.")] * 3)
    with blocking.Runtime.open("memory:", model=model, settings=settings) as opened:
        yield opened


def test_scopes_plugins_and_readers_from_any_thread(runtime: blocking.Runtime) -> None:
    """What is added from here is there for the turn, and can be taken out again."""
    tenant = runtime.scope("tenant", runtime.scope("above"))
    dispose = tenant.add(Section("hint", render="Mind the gap."))
    session = runtime.session("s", Agent("p:m"), scope="tenant")
    session.run("Go.")
    request = next(event for event in session.log.read() if event.type == "model.requested")
    assert [block.text for block in session.log.request(request.seq).system] == ["Mind the gap."]
    dispose()
    assert runtime.reader("s").head[0] == session.log.head[0]
    session.rename("Title")
    assert session.log.status.title == "Title"
    assert (session.agent.model, session.is_running) == ("p:m", False)


def test_following_and_streaming_are_plain_loops(runtime: blocking.Runtime) -> None:
    """A follower is left when one has seen enough."""
    session = runtime.session("s", Agent("p:m"))
    with session.stream("Go.") as stream:
        assert [event.type for event in stream][-1] == "turn.completed"
    seen = []
    for item in session.follow():
        if isinstance(item, Synchronised):
            break
        seen.append(item.seq)
    assert seen == list(range(1, session.log.head[0] + 1))
    assert next(iter(runtime.follow("s"))).seq == 1  # type: ignore[union-attr]


def test_requests_for_the_inbox_are_sent_without_await(runtime: blocking.Runtime) -> None:
    """The same check as ever."""
    session = runtime.session("s", Agent("p:m"))
    session.run("Go.")
    assert runtime.send("s", "cancel", {"by": "me"}, key="k")
    assert not runtime.send("s", "cancel", {"by": "me"}, key="k")


def test_a_closed_runtime_says_so() -> None:
    """Whatever is asked of it, of its sessions or their streams."""
    settings = Settings(installed_plugins=False)
    with blocking.Runtime.open("memory:", model=ScriptedAdapter(), settings=settings) as opened:
        session = opened.session("s", Agent("p:m"))
    for use in (lambda: session.run("x"), opened.sessions, session.history, lambda: session.stream("x").__enter__()):
        with pytest.raises(UsageError, match="this runtime is closed"):
            use()
