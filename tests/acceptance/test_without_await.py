"""The words without await: from ordinary functions, notebooks and many threads."""

import threading
from typing import Any

import pytest
from stage import ALONE, agent_of, tool_of

from spine import blocking as in_threads
from spine.errors import TurnFailed, UsageError
from spine.testing.script import call, fail, say
from spine.testing.scripted import ScriptedAdapter

pytestmark = pytest.mark.anyio


def test_the_blocking_words_work_without_a_loop() -> None:
    """`spine.blocking` runs, streams, decides and looks, from an ordinary function."""
    script = (say("One."), call("pay"), say("Paid."), say("Two words."), fail("auth"))
    model = ScriptedAdapter(*script)
    with in_threads.Runtime.open("memory:", model=model, settings=ALONE) as runtime:
        session = runtime.session("s", agent_of(tool_of("pay", lambda a, c: "x", approval="ask")))
        assert session.run("Go.").text == "One."
        turn = session.run("Pay.")
        assert session.approve(turn.approvals[0].id, by="me").text == "Paid."
        with session.stream("Say.") as stream:
            assert "".join(stream.text()) == "Two words."
        assert stream.turn is not None
        assert stream.turn.status == "completed"
        with pytest.raises(TurnFailed):
            session.run("Fail.")
        assert len(session.history()) == 9
        assert session.usage().total is not None
        assert [info.id for info in runtime.sessions()] == ["s"]
    assert model.is_closed


def blocking_runtime(**options: Any) -> Any:
    return in_threads.Runtime.open("memory:", model=ScriptedAdapter(say("ok")), settings=ALONE, **options)


async def test_the_blocking_words_work_where_a_loop_is_running(anyio_backend_name: str) -> None:
    """As in a notebook: the blocking runtime has a loop of its own, and two of them do not meet."""
    with blocking_runtime() as one, blocking_runtime() as two:
        assert one.session("s", agent_of()).run("Go.").text == "ok"
        assert two.session("s", agent_of()).run("Go.").text == "ok"
    if anyio_backend_name == "trio":
        with pytest.raises(UsageError, match="where trio runs"):
            blocking_runtime(backend="trio").__enter__()
    else:
        with blocking_runtime(backend="trio") as three:
            assert three.session("s", agent_of()).run("Go.").text == "ok"


def test_threads_may_share_a_blocking_runtime() -> None:
    """Calls from many threads are carried to the one loop."""
    model = ScriptedAdapter(*[say("ok")] * 8)
    with in_threads.Runtime.open("memory:", model=model, settings=ALONE) as runtime:
        done: list[str] = []
        threads = [
            threading.Thread(target=lambda n=n: done.append(runtime.session(f"s{n}", agent_of()).run("Go.").text))
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
        assert done == ["ok"] * 8


def test_an_error_in_a_blocking_block_comes_out_as_it_is_and_closes_everything() -> None:
    """The runtime is left in order when its block raises."""
    model = ScriptedAdapter(say("ok"))
    with pytest.raises(ZeroDivisionError), in_threads.Runtime.open("memory:", model=model, settings=ALONE):
        raise ZeroDivisionError
    assert model.is_closed
    with pytest.raises(RuntimeError, match="not entered"):
        in_threads.Runtime.open("memory:").session("s", agent_of())
