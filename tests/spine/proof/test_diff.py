"""spine.proof.diff: what differs between two sessions is told where it is, and nothing else."""

from collections.abc import Callable
from typing import Any

import anyio
import attrs
import pytest

from spine.agent import Agent
from spine.codec import Codec
from spine.config import Settings
from spine.functions import tool
from spine.log import LogReader
from spine.proof.course import Course, course_of
from spine.proof.diff import compare, diff_json, diff_text
from spine.proof.differences import json_phrase, text_phrase
from spine.runtime import Runtime
from spine.stores.memory import MemoryStore
from spine.testing import Entry, FakeClock, ScriptedAdapter, call, call_text, fail, say, think, usage
from spine.values import SessionId, encode


@tool(effect="read_only")
def look_up(word: str) -> dict[str, str]:
    """Look a word up."""
    return {"word": word}


@tool(approval="ask")
def forget(word: str) -> str:
    """Forget a word."""
    return f"forgot {word}"


@tool(name="look_up", effect="read_only")
def look_longer(word: str) -> dict[str, str]:
    """Look a word up, and longer."""
    return {"word": word, "meaning": "none"}


AGENT = Agent("demo:small", instructions="Be brief.\nThirty days.", tools=[look_up, forget])
SCRIPT = (
    call("look_up", word="mug") + usage(input_tokens=10, output_tokens=2),
    call("forget", word="mug") + usage(input_tokens=20, output_tokens=2),
    say("Done.") + usage(input_tokens=30, output_tokens=2),
)


def played(
    *script: Entry, agent: Agent = AGENT, text: str = "Go.", decide: str = "approve", by: str = "ada", id: str = "s"
) -> Course:
    """The course of a session with this agent, script, input and decision."""
    store = MemoryStore()

    async def play() -> None:
        model = ScriptedAdapter(*(script or SCRIPT))
        options: dict[str, Any] = {"clock": FakeClock(), "settings": Settings(installed_plugins=False)}
        async with Runtime.open(store, model=model, **options) as runtime:
            session = await runtime.session(id, agent)
            turn = await session.run(text, check=False)
            for approval in turn.approvals:
                await getattr(session, decide)(approval.id, by=by)

    anyio.run(play)
    return course_of(LogReader(store, Codec(), SessionId(id)))


@pytest.fixture(scope="module")
def base() -> Course:
    return played()


def test_two_plays_of_the_same_are_alike_whatever_they_are_called(base: Course) -> None:
    found = compare(base, played(id="other"))
    assert found.is_equal
    assert (
        diff_text(found) == "no difference between s and other: 3 steps, 2 tool calls, 60 tokens in, 6 out, " + NO_PRICE
    )


def test_vendors_ids_and_times_do_not_count(base: Course, careful: LogReader) -> None:
    def slower(course: Course) -> Course:
        steps = {id: attrs.evolve(step, answered_at=(step.answered_at or 0) + 5) for id, step in course.steps.items()}
        return attrs.evolve(course, steps=steps)

    assert compare(base, slower(base)).is_equal


NO_PRICE = "cost unknown (demo:small has no price)"
CASES: dict[str, tuple[Callable[[], Course], list[tuple[str, str, str]]]] = {
    "section": (
        lambda: played(agent=attrs.evolve(AGENT, instructions="Be brief.\nTwenty days.")),
        [("t1s1", "section instructions", "1 line changed (Thirty → Twenty days.)")],
    ),
    "parameter": (
        lambda: played(agent=attrs.evolve(AGENT, temperature=0.5)),
        [("t1s1", "temperature", "unset → 0.5")],
    ),
    "route": (
        lambda: played(agent=attrs.evolve(AGENT, model="demo:big")),
        [("t1s1", "route", "demo:small → demo:big")],
    ),
    "tool": (
        lambda: played(agent=attrs.evolve(AGENT, tools=(look_longer, forget))),
        [
            ("t1s1", "tool look_up", 'description "Look a word up." → "Look a word up, and longer."'),
            ("t1s1c1", "result", 'meaning nothing → "none"'),
        ],
    ),
    "input": (lambda: played(text="Go on."), [("t1", "input", "1 line changed (Go. → Go on.)")]),
    "agent": (
        lambda: played(agent=attrs.evolve(AGENT, name="b")),
        [
            ("", "agent", "agent → b"),
            ("t1s1", "section instructions", 'source "agent agent" → "agent b"'),
        ],
    ),
    "answer": (
        lambda: played(*SCRIPT[:2], say("Finished.") + usage(input_tokens=30, output_tokens=2)),
        [("t1s3", "answer", "1 line changed (Done. → Finished.)")],
    ),
    "thoughts": (
        lambda: played(*SCRIPT[:2], think("Hm.") + SCRIPT[2]),
        [("t1s3", "thoughts", "1 line changed (nothing → Hm.)")],
    ),
    "arguments": (
        lambda: played(call("look_up", word="cup") + usage(input_tokens=10, output_tokens=2), *SCRIPT[1:]),
        [("t1s1c1", "arguments", 'word "mug" → "cup"'), ("t1s1c1", "result", 'word "mug" → "cup"')],
    ),
    "no arguments": (
        lambda: played(call_text("look_up", "[") + usage(input_tokens=10, output_tokens=2), *SCRIPT[1:]),
        [("t1s1c1", "arguments", '{"word": "mug"} → "["'), ("t1s1c1", "result", "")],
    ),
    "approval": (
        lambda: played(decide="deny", by="bob"),
        [
            ("t1s2c1", "approval", "approved by ada → denied by bob"),
            ("t1s2c1", "result", '"forgot mug" → "denied: A person declined this call. Nothing was executed."'),
        ],
    ),
    "attempts": (
        lambda: played(fail("rate_limit", status=429), *SCRIPT),
        [("t1s1", "attempts", "1 → 2")],
    ),
    "usage": (
        lambda: played(call("look_up", word="mug"), *SCRIPT[1:]),
        [("t1s1", "usage", "10 in, 2 out → unknown")],
    ),
    "no answer": (
        lambda: played(SCRIPT[0], fail("auth", status=401)),
        [
            ("t1s2", "answer", "calls forget(…) → no answer (auth (HTTP 401))"),
            ("t1s2", "usage", "20 in, 2 out → unknown"),
            ("t1s3", "", "only in s"),
            ("t1", "ending", "completed (end_turn) → failed: auth (HTTP 401)"),
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_difference_is_told_where_it_is(base: Course, name: str) -> None:
    """One change in what is played; everything that follows from it, and nothing else."""
    make, expected = CASES[name]
    found = compare(base, make())
    assert [(d.place, d.what) for d in found.differences] == [(place, what) for place, what, _ in expected]
    for difference, (_, _, text) in zip(found.differences, expected, strict=True):
        assert not text or difference.text == text
    assert encode(diff_json(found))


MORE = call("look_up", word="jug") + usage(input_tokens=12, output_tokens=2)
INSERTED: dict[str, tuple[tuple[Entry, ...], list[tuple[str, str]]]] = {
    "first": ((MORE, *SCRIPT), [("t1s1", "")]),
    "in the middle": ((SCRIPT[0], MORE, *SCRIPT[1:]), [("t1s2", "")]),
    "before the last": ((*SCRIPT[:2], MORE, SCRIPT[2]), [("t1s3", "")]),
    "twice": ((MORE, SCRIPT[0], MORE, *SCRIPT[1:]), [("t1s1", ""), ("t1s3", "")]),
    "beside another answer": (
        (SCRIPT[0], MORE, SCRIPT[1], say("Finished.") + usage(input_tokens=30, output_tokens=2)),
        [("t1s2", ""), ("t1s3/t1s4", "answer")],
    ),
}


@pytest.mark.parametrize("name", INSERTED)
def test_a_step_more_is_one_difference(base: Course, name: str) -> None:
    """Those after it are compared with the steps that they are like."""
    script, expected = INSERTED[name]
    found = compare(base, played(*script, id="r"))
    assert [(d.place, d.what) for d in found.differences] == expected
    assert [d.text for d in found.differences if not d.what] == ["only in r"] * (len(script) - len(SCRIPT))
    back = compare(played(*script, id="r"), base)
    assert [d.text for d in back.differences if not d.what] == ["only in r"] * (len(script) - len(SCRIPT))


@pytest.mark.parametrize("name", CASES)
def test_the_sides_change_places(base: Course, name: str) -> None:
    other = CASES[name][0]()
    one, two = compare(base, other), compare(other, base)
    assert {(d.place, d.what) for d in one.differences} == {(d.place, d.what) for d in two.differences}
    sides = {(d.place, d.what): (d.left, d.right) for d in two.differences}
    assert all(sides[d.place, d.what] == (d.right, d.left) for d in one.differences)


def test_what_lasts_is_told_once_with_where_it_lasts(base: Course) -> None:
    found = compare(base, played(agent=attrs.evolve(AGENT, temperature=0.5)))
    (difference,) = found.differences
    assert (difference.place, difference.also) == ("t1s1", ("t1s2", "t1s3"))


def test_a_whole_difference_in_words(base: Course) -> None:
    other = played(SCRIPT[0], say("Sorry, no.") + usage(input_tokens=5, output_tokens=1), id="r")
    assert diff_text(compare(base, other)).split("\n") == [
        't1s2  answer        calls forget(…) → text "Sorry, no."',
        "t1s2  stop reason   tool_use → end_turn",
        "t1s2  usage         20 in, 2 out → 5 in, 1 out",
        "t1s3                only in s",
        "sum   steps 3 → 2 · calls 2 → 1 · tokens in 60 → 15 · tokens out 6 → 3",
    ]


def test_what_a_plugin_wrote_counts(careful: LogReader, layered: LogReader) -> None:
    found = compare(course_of(careful), course_of(layered))
    assert [(d.place, d.what) for d in found.differences] == [
        ("", "version of silent"),
        ("t1s1", "section policy"),
        ("t1s2", "section policy"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("within 30 days of delivery", "within 14 days of delivery", "1 line changed (30 → 14 days)"),
        ("a\nb", "a", "1 line gone (b → nothing)"),
        ("a", "a\nb\nc", "2 lines added (nothing → b, …)"),
        ("a\nb", "c\nd", "2 lines changed (a → c, …)"),
        ("a  b", "a b", "1 line changed (nothing → nothing)"),
        ("x" * 50, "y", f"1 line changed ({'x' * 39}… → y)"),
        ("a\x1b[2J", "b", "1 line changed (a\\x1b[2J → b)"),
    ],
)
def test_a_change_of_text_in_words(old: str, new: str, said: str) -> None:
    assert text_phrase(old, new) == said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"a": 1}, {"a": 2}, "a 1 → 2"),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "a.b[1] 2 → 3"),
        ({"a": 1}, {"a": True}, "a 1 → true"),
        ({"a": 1}, {}, "a 1 → nothing"),
        ({"a": [1]}, {"a": [1, 2]}, "a [1] → [1, 2]"),
        (dict.fromkeys("abcde", 1), dict.fromkeys("abcde", 2), "a 1 → 2; b 1 → 2; c 1 → 2; and 2 more"),
        (None, {"a": 1}, 'null → {"a": 1}'),
    ],
)
def test_a_change_of_json_in_words(old: Any, new: Any, said: str) -> None:
    assert json_phrase(old, new) == said
