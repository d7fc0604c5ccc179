"""A registered secret is in nothing that a session uses or records: inputs, prompts, answers, results, failures."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stage import agent_of, judge, tool_of

from spine import Agent, Runtime, Secret, Section, tool
from spine.config import Settings
from spine.hooks import hookimpl
from spine.llm.chunks import TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStarted
from spine.llm.errors import ProviderError, provider_error
from spine.llm.response import ModelResponse
from spine.messages import Message, TextBlock, ToolCallBlock
from spine.secrecy import MaskedAdapter, Secrecy
from spine.testing import ScriptedAdapter, call, fail, say, think
from spine.tools import ToolOutcome

pytestmark = pytest.mark.anyio
CANARY = 'canary "in" the c\\oal-mine ü'
FORMS = {CANARY, json.dumps(CANARY)[1:-1], json.dumps(CANARY, ensure_ascii=False)[1:-1]}


@tool(effect="read_only")
async def leak(how: str) -> Any:
    """Give the secret away."""
    match how:
        case "text":
            return f"it is {CANARY}!"
        case "json":
            return {"deep": [{"er": f"<{CANARY}>"}]}
        case "raise":
            raise ValueError(f"cannot log in with {CANARY}")
        case "outcome":
            return ToolOutcome(content=(TextBlock(text=CANARY),))
        case _:
            return ("x" * 70_000) + CANARY


@tool(effect="read_only")
def leak_in_a_thread(how: str) -> str:
    """Give it away from a thread."""
    if how == "raise":
        raise RuntimeError(CANARY)
    return CANARY


def everything(folder: Path) -> str:
    """All bytes that were written, with JSON's escapes of escapes undone as far as they go."""
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir())).decode("utf-8", "replace")


def leaks(text: str) -> list[str]:
    escaped = {json.dumps(form)[1:-1] for form in FORMS}
    return [form for form in FORMS | escaped if form in text]


def runtime(folder: Path, *entries: Any, **options: Any) -> Runtime:
    plain = Settings(installed_plugins=False)
    model = ScriptedAdapter(*entries)
    secrets = {"shop": Secret(CANARY)}
    return Runtime.open(f"sqlite:{folder}/s.db", model=model, settings=plain, secrets=secrets, **options)


HOWS = ["text", "json", "raise", "outcome", "long"]


@pytest.mark.parametrize("name", ["leak", "leak_in_a_thread"])
@pytest.mark.parametrize("how", HOWS)
async def test_a_result_holds_no_secret(name: str, how: str, tmp_path: Path) -> None:
    """Whatever kind of result it is; the model sees the mask, and so does the log."""
    async with runtime(tmp_path, call(name, how=how), say("done")) as opened:
        session = await opened.session("s", Agent("any:model", tools=[leak, leak_in_a_thread]))
        turn = await session.run("Go.")
        shown = str(turn.tool_calls[0].outcome)
        assert leaks(shown) == []
        assert "[secret]" in shown or how == "long"
        assert leaks(str(session.transcript())) == []
        judge(session.log)
    assert leaks(everything(tmp_path)) == []


async def test_inputs_prompts_answers_and_calls_hold_none(tmp_path: Path) -> None:
    """What a person types, what a section says, what the model answers, thinks and asks for; streamed in any pieces."""
    answer = think(f"so {CANARY}") + say(chunks=["It is ", *CANARY, ", isn't it?"]) + call("leak", how=CANARY)
    async with runtime(tmp_path, answer, say("done")) as opened:
        opened.scope("tenant").add(Section("note", render=f"The key is {CANARY}."))
        session = await opened.session("s", Agent("any:model", tools=[leak]), scope="tenant")
        async with session.stream(f"Is it {CANARY}?") as stream:
            live = "".join([piece async for piece in stream.text()])
        assert live == "It is [secret], isn't it?done"
        request = opened.routes._everything.requests[0]  # what the model was really asked
        assert leaks(str(request)) == []
        assert "The key is [secret]." in request.system[0].text
        assert request.messages[0].text == "Is it [secret]?"
        assert stream.turn is not None
        assert stream.turn.tool_calls[0].arguments == {"how": "[secret]"}
        judge(session.log)
    assert leaks(everything(tmp_path)) == []


async def test_failures_progress_and_hooks_hold_none(tmp_path: Path) -> None:
    async def slow(arguments: Any, context: Any) -> str:
        context.progress(f"at {CANARY}", {"data": [CANARY]})
        return "fine"

    class Careless:
        @hookimpl
        async def spine_post_step(self, response: Any) -> None:
            raise ValueError(CANARY)

        @hookimpl
        async def spine_post_execute(self, outcome: Any, call_next: Any) -> Any:
            return (await call_next(outcome)).evolve(content=(TextBlock(text=f"now {CANARY}"),))

    entries = (call("slow"), fail("overloaded", message=f"busy with {CANARY}"), say("done"))
    async with runtime(tmp_path, *entries, plugins=[Careless()]) as opened:
        session = await opened.session("s", agent_of(tool_of("slow", slow)))
        turn = await session.run("Go.", check=False)
        assert turn.status == "completed"
        kinds = [event.type for event in session.log.read()]
        assert {"tool.progress", "hook.failed", "tool.revised", "model.attempt_failed"} <= set(kinds)
    assert leaks(everything(tmp_path)) == []


async def test_an_input_through_the_inbox_holds_none(tmp_path: Path) -> None:
    async with runtime(tmp_path, say("one"), say("two")) as opened:
        session = await opened.session("s", Agent("any:model"))
        await session.run("Go.")
        message = {"role": "user", "content": [f"psst: {CANARY}"]}
        opened.send("s", "input", {"message": message, "delivery": "queue"}, key="k")
        with anyio.fail_after(10):
            while session.log.status.turns < 2:
                await anyio.sleep(0.01)
        assert any("psst: [secret]" in message.text for message in session.history())
        accepted = [event.data.message.text for event in session.log.read(types=("input.accepted",))]
        assert accepted == ["Go.", "psst: [secret]"]


# ------------------------------------------------------------------------------------------------- cut into pieces


class Playing:
    """An adapter that plays given items."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        for item in self.items:
            if isinstance(item, ProviderError):
                raise item
            yield item


async def played(items: Sequence[Any], *secrets: str) -> list[Any]:
    adapter = MaskedAdapter(Playing(items), Secrecy(map(Secret, secrets)))  # type: ignore[arg-type]
    return [item async for item in adapter.stream(None)]  # type: ignore[arg-type]


def text_of(items: Sequence[Any], kind: type = TextDelta, name: str = "text") -> str:
    return "".join(getattr(item, name) for item in items if type(item) is kind)


def response(text: str) -> ModelResponse:
    return ModelResponse(message=Message(role="assistant", content=(TextBlock(text=text),)), stop_reason="end_turn")


@given(st.lists(st.sampled_from(["abab", "ab", "ba", "a", "b", "xy", "ü", ""]), max_size=12), st.data())
@settings(max_examples=200, deadline=None)
def test_however_a_text_is_cut_it_is_masked_as_a_whole(parts: list[str], data: Any) -> None:
    """The pieces give what masking the whole text gives; nothing is lost, and the response is their fold."""
    text, secrets = "".join(parts), ("ababü", "yxab")
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    items = [*(TextDelta(0, piece) for piece in pieces), response(text)]
    passed = anyio.run(played, items, *secrets)
    whole = Secrecy(map(Secret, secrets)).text(text)
    assert text_of(passed) == whole == passed[-1].message.text
    assert not any(secret in text_of(passed[:-1]) for secret in secrets)


async def test_only_the_beginning_of_a_secret_waits() -> None:
    """A text that could be one is held back to its next piece and no longer, block by block."""
    items = [
        *(TextDelta(0, "I can"), TextDelta(0, "not"), ThinkingDelta(1, "can"), TextDelta(0, " can")),
        *(ToolCallStarted(2, "t"), ToolCallDelta(2, '{"a":"can'), ToolCallDelta(2, 'ary"}')),
        response("I cannot can"),
    ]
    passed = await played(items, "canary")
    assert [item for item in passed if type(item) is TextDelta][:2] == [TextDelta(0, "I "), TextDelta(0, "cannot")]
    assert text_of(passed) == "I cannot can"
    assert text_of(passed, ThinkingDelta) == "can"
    assert text_of(passed, ToolCallDelta, "arguments") == '{"a":"[secret]"}'


async def test_what_was_held_back_is_shown_when_an_attempt_fails() -> None:
    """And the failure itself is masked."""
    seen: list[Any] = []
    items = [TextDelta(0, "I can"), provider_error("connection", "lost canary", raw="canary")]

    async def play() -> None:
        async for item in MaskedAdapter(Playing(items), Secrecy([Secret("canary")])).stream(None):  # type: ignore
            seen.append(item)

    with pytest.raises(ProviderError) as caught:
        await play()
    assert text_of(seen) == "I can"
    assert (caught.value.failure.message, caught.value.failure.raw) == ("lost [secret]", "[secret]")


def test_without_a_secret_everything_is_the_same_object() -> None:
    secrecy, block = Secrecy(), ToolCallBlock(id="t1s1c1", name="t", arguments={"a": 1})  # type: ignore[arg-type]
    message = Message(role="assistant", content=(block,))
    assert not secrecy.is_on
    assert secrecy.message(message) is message
    assert secrecy.json(block.arguments) is block.arguments


@pytest.mark.parametrize("short", ["", " ", "abc"])
def test_what_is_too_short_is_no_secret(short: str) -> None:
    assert not Secrecy([Secret(short)]).is_on
