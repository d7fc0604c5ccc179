"""Wire capture: both sides of each attempt beside the log, bounded and without secrets, and read again from there."""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

import spine_openai_chat
from spine import Agent, Runtime, Secret
from spine.config import Settings
from spine.errors import UsageError
from spine.events import WIRE_MEDIA_TYPE
from spine.llm.chunks import WIRE, ProviderEvent, TextDelta
from spine.llm.protocols import Body
from spine.llm.response import ModelResponse
from spine.llm.retry import RetryPolicy
from spine.messages import Message, TextBlock
from spine.wire import capture
from spine.wire.capture import Capture, response_record

pytestmark = pytest.mark.anyio
KEY = "canary-in-a-coal-mine"
OTHER = 'a "quoted" canary'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]}\n\n'
ANSWER = WORD % (b"Hello", b"null") + WORD % (b"", b'"stop"') + b"data: [DONE]\n\n"
BUSY = json.dumps({"error": {"message": f"busy, {KEY} and {OTHER}"}})


def answers(*given: httpx.Response) -> httpx.AsyncClient:
    left = iter(given)
    return httpx.AsyncClient(transport=httpx.MockTransport(lambda _: next(left)))


async def talk(store: str, *given: httpx.Response, capture: str | None = "wire") -> list[Any]:
    """The events of one turn."""
    async with Runtime.open(
        store,
        plugins=[spine_openai_chat],
        settings=Settings(installed_plugins=False),
        secrets={"deepseek": Secret(KEY), "other": Secret(OTHER)},
        clients={"deepseek": answers(*given)},
        retry=RetryPolicy(base_s=0),
        random=lambda: 0.0,
        capture=capture,
    ) as runtime:
        session = await runtime.session("s", Agent("deepseek:deepseek-chat"))
        await session.run(f"Hi, {OTHER}", check=False)
        return [
            (
                event,
                [json.loads(session.log.content(d)) if d else None for d in (event.data.request, event.data.response)],
            )
            if event.type == "wire.captured"
            else (event, None)
            for event in session.log.read()
        ]


async def test_each_attempt_keeps_what_was_sent_and_what_came() -> None:
    """Two attempts, two captures; the chunks of an answer stand before its capture, the message after it."""
    found = await talk("memory:", httpx.Response(503, text=BUSY), httpx.Response(200, content=ANSWER))
    kinds = [event.type for event, _ in found if event.type not in ("content.added",)]
    assert kinds[kinds.index("model.requested") :] == [
        *("model.requested", "wire.captured", "model.attempt_failed", "model.attempt_started"),
        *("model.chunks", "wire.captured", "message.committed", "turn.completed"),
    ]
    (first, (sent, refused)), (second, (_, answered)) = ((e, sides) for e, sides in found if sides)
    assert (first.data.attempt, second.data.attempt) == (1, 2)
    assert (sent["path"], sent["headers"]["content-type"]) == ("/chat/completions", "application/json")
    assert json.loads(sent["body"])["messages"][-1]["role"] == "user"
    assert (refused["status"], answered["status"], answered["body"]) == (503, 200, ANSWER.decode())
    assert (answered["protocol"], answered["vendor"]) == ("openai_chat", "deepseek")


async def test_no_secret_is_kept(tmp_path: Path) -> None:
    """Neither the key, which the server echoes, nor another secret of the runtime, in any form."""
    echo = httpx.Response(503, text=BUSY, headers={"x-echo": KEY, "set-cookie": f"id={KEY}"})
    found = await talk(f"sqlite:{tmp_path}/s.db", echo, echo, echo)
    captured = json.dumps([sides for _, sides in found if sides])
    assert "authorization" not in captured
    assert "set-cookie" not in captured
    assert captured.count("[secret]") >= 6
    for secret in (KEY, OTHER, json.dumps(OTHER)[1:-1]):
        assert secret not in captured
        assert json.dumps(secret)[1:-1] not in captured
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert KEY.encode() not in stored


async def test_without_being_asked_nothing_is_kept() -> None:
    found = await talk("memory:", httpx.Response(200, content=ANSWER), capture=None)
    assert [event.type for event, _ in found].count("wire.captured") == 0


async def test_history_requests_and_verdicts_are_the_same_with_and_without() -> None:
    """What is captured changes nothing that a model or a person sees."""
    digests = [
        [
            event.data.digest
            for event, _ in await talk("memory:", httpx.Response(200, content=ANSWER), capture=mode)
            if event.type == "model.requested"
        ]
        for mode in ("wire", None)
    ]
    assert digests[0] == digests[1] != []


@pytest.mark.parametrize("asked", ["all", "", True])
def test_only_the_wire_can_be_captured(asked: Any) -> None:
    with pytest.raises(UsageError, match='may be "wire" or None'):
        Runtime.open("memory:", capture=asked)


def exchange(content: bytes, response: bytes | None, secret: str | None = KEY) -> Any:
    taken = Capture("p", "v", {}, Body(path="/x", content=content), Secret(secret) if secret else None)
    if response is not None:
        taken.answered(200, {})
        for at in range(0, len(response), 7):
            taken.add(response[at : at + 7])
    return taken.event().data


def test_an_answer_that_never_began_is_none() -> None:
    assert exchange(b"{}", None)["response"] is None


def test_bytes_that_are_no_text_come_back_as_they_were() -> None:
    raw = bytes(range(256))
    kept = exchange(b"{}", raw)["response"]
    assert base64.b64decode(kept["body_base64"]) == raw
    assert response_record(kept)["body"] == raw


@pytest.mark.parametrize("filler", ["a", "é", "€", "𝄞"])
def test_a_long_body_is_cut_and_says_so(filler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the cut falls into a character, or into the key."""
    monkeypatch.setattr(capture, "MAX_CAPTURED_BYTES", 50)
    text = filler * 12 + KEY + filler * 2000
    kept = exchange(text.encode(), text.encode())
    for side in ("request", "response"):
        assert kept[side]["truncated"] is True
        assert len(kept[side]["body"]) <= 50
        assert "canary" not in kept[side]["body"]
        assert kept[side]["body"].startswith(filler * 12 + "[secret]")


class Talkative:
    """An adapter of one's own that hands on its exchange."""

    def check(self, request: Any) -> None:
        pass

    async def stream(self, request: Any) -> Any:
        yield TextDelta(0, "hi")
        yield ProviderEvent("ping", {"n": 1})
        yield ProviderEvent(WIRE, {"request": {"body": "asked"}, "response": {"body": "told"}})
        yield ModelResponse(message=Message(role="assistant", content=(TextBlock(text="hi"),)), stop_reason="end_turn")

    async def aclose(self) -> None:
        pass


async def test_an_adapter_of_ones_own_may_hand_on_an_exchange() -> None:
    """Other debug events are not recorded."""
    async with Runtime.open("memory:", model=Talkative(), settings=Settings(installed_plugins=False)) as runtime:
        session = await runtime.session("s", Agent("any:model"))
        await session.run("Hi")
        (event,) = session.log.read(types=("wire.captured",))
        assert json.loads(session.log.content(event.data.response)) == {"body": "told"}
        contents = [e.data for e in session.log.read(types=("content.added",)) if e.data.media_type == WIRE_MEDIA_TYPE]
        assert len(contents) == 2


async def test_the_command_line_reads_it_again(tmp_path: Path) -> None:
    """`spine decode --session` gives what the live answer gave; what was not captured is said."""
    await talk(f"sqlite:{tmp_path}/s.db", httpx.Response(503, text=BUSY), httpx.Response(200, content=ANSWER))

    def decode(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "spine", "decode", "--session", "s", "--store", f"sqlite:{tmp_path}/s.db"]
        return subprocess.run([*command, *words], capture_output=True, text=True, timeout=60, cwd=tmp_path)

    last = decode("--step", "t1s1")
    assert (last.returncode, json.loads(last.stdout)["content"]) == (0, [{"type": "text", "text": "Hello"}])
    first = decode("--attempt", "1")
    assert (first.returncode, json.loads(first.stdout)["error"]["status"]) == (1, 503)
    missing = decode("--step", "t9s9")
    assert (missing.returncode, "nothing was captured in t9s9 of s" in missing.stderr) == (2, True)
