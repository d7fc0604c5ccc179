"""Histories to messages on the wire: roles alternate, results come first, own state keeps its place."""

import gc
import json
import re
from typing import Any

import pytest
from messages_made import (
    FOREIGN,
    OTHER,
    OWN,
    PROTOCOL,
    assistant,
    call,
    losses,
    request,
    result,
    sent,
    state,
    text,
    traits,
    user,
)

from spine.messages import (
    ArtifactRefBlock,
    AudioBlock,
    DocumentBlock,
    ExtensionBlock,
    ImageBlock,
    JsonBlock,
    Message,
    Origin,
    RefusalBlock,
    TextBlock,
    ThinkingBlock,
    user_message,
)
from spine_anthropic.protocol import AnthropicMessages

PNG = ImageBlock(data="iVBORw0KGgo=")


# ------------------------------------------------------------------------------------------------------- turns


def test_neighbours_of_one_role_are_one_message() -> None:
    history = (
        user_message("a"),
        user_message("b"),
        assistant(TextBlock(text="c")),
        assistant(TextBlock(text="d")),
        user_message("e"),
    )
    assert sent(*history) == [
        {"role": "user", "content": [text("a"), text("b")]},
        {"role": "assistant", "content": [text("c"), text("d")]},
        {"role": "user", "content": [text("e")]},
    ]


def test_messages_without_anything_are_left_out_and_roles_still_alternate() -> None:
    thought = assistant(ThinkingBlock(text="hm"), origin=OTHER)
    blank = user(TextBlock(text=" \n"), TextBlock(text=""))
    assert sent(user_message("a"), thought, blank, user_message("b")) == [
        {"role": "user", "content": [text("a"), text("b")]}
    ]


@pytest.mark.parametrize("as_one", [False, True])
def test_results_open_the_next_message_in_the_order_of_the_calls(as_one: bool) -> None:
    results = [result("t1s1c2", "fast"), result("t1s1c1", "slow")]
    if as_one:
        results = [Message(role="tool", content=(*results[0].content, *results[1].content))]
    messages = sent(assistant(call("t1s1c1"), call("t1s1c2")), *results, user_message("So?"))
    assert [message["role"] for message in messages] == ["assistant", "user"]
    assert messages[1]["content"] == [
        {"type": "tool_result", "tool_use_id": "t1s1c1", "content": [text("slow")]},
        {"type": "tool_result", "tool_use_id": "t1s1c2", "content": [text("fast")]},
        text("So?"),
    ]


def test_results_come_before_text_that_was_said_earlier() -> None:
    mixed = user(TextBlock(text="And?"), *result("t1s1c1", "ok", is_error=True).content)
    blocks = sent(assistant(call("t1s1c1")), mixed)[1]["content"]
    assert blocks == [
        {"type": "tool_result", "tool_use_id": "t1s1c1", "content": [text("ok")], "is_error": True},
        text("And?"),
    ]


def test_a_result_without_content_has_none() -> None:
    blocks = sent(assistant(call("t1s1c1")), result("t1s1c1", "", " \n"))[1]["content"]
    assert blocks == [{"type": "tool_result", "tool_use_id": "t1s1c1"}]
    failed = sent(assistant(call("t1s1c1")), result("t1s1c1", is_error=True))[1]["content"]
    assert failed == [{"type": "tool_result", "tool_use_id": "t1s1c1", "is_error": True}]


def test_a_last_answer_does_not_end_in_blanks() -> None:
    said = assistant(TextBlock(text="The answer is \n"))
    assert sent(user_message("a"), said)[1]["content"] == [text("The answer is")]
    assert sent(user_message("a"), said, user_message("b"))[1]["content"] == [text("The answer is \n")]
    assert sent(user_message("a"), assistant(call("t1s1c1")))[1]["content"][0]["type"] == "tool_use"


def test_a_system_message_in_the_history_is_the_users_and_listed() -> None:
    message = Message(role="system", content=(TextBlock(text="Be kind."),))
    assert sent(message)[0] == {"role": "user", "content": [text("Be kind.")]}
    assert losses(message) == ("a system message among the messages was sent as the user's",)


# ------------------------------------------------------------------------------------------------ calls and ids


def test_vendor_ids_go_back_to_their_provider_when_they_fit() -> None:
    for origin, vendor_id, expected in (
        (OWN, "toolu_9", "toolu_9"),
        (OTHER, "toolu_9", "toolu_9"),
        (FOREIGN, "call_1", "t1s1c1"),
        (Origin(protocol="anthropic_messages", route="elsewhere:m"), "toolu_9", "t1s1c1"),
        (OWN, "functions.weather:0", "t1s1c1"),
        (OWN, None, "t1s1c1"),
    ):
        messages = sent(assistant(call("t1s1c1", vendor_id=vendor_id), origin=origin), result("t1s1c1", "x"))
        assert messages[0]["content"][0]["id"] == messages[1]["content"][0]["tool_use_id"] == expected


def test_vendor_ids_that_repeat_are_not_used_twice() -> None:
    history = []
    for step in (1, 2, 3):
        history += [assistant(call(f"t1s{step}c1", vendor_id="toolu_0")), result(f"t1s{step}c1", str(step))]
    messages = sent(*history)
    ids = [message["content"][0]["id"] for message in messages[::2]]
    assert ids == ["toolu_0", "t1s2c1", "t1s3c1"]
    assert [message["content"][0]["tool_use_id"] for message in messages[1::2]] == ids


def test_names_are_mapped_and_arguments_are_objects() -> None:
    broken = call("t1s1c1", "files.list", arguments=None, arguments_text='{"name":"rep\ud800')
    (block,) = sent(assistant(broken))[0]["content"]
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", block["name"])
    assert block["input"] == {"unparsed_arguments": '{"name":"rep\ufffd'}


# ------------------------------------------------------------------------------------------ thinking and state

SIGNED = ThinkingBlock(text=" hm\n", provider_state=state({"signature": "sig="}))
REDACTED = ThinkingBlock(redacted=True, provider_state=state({"data": "b3BhcXVl"}))
CITED = TextBlock(text="It is 7.", provider_state=state({"citations": [{"cited_text": "7"}]}))
CODED = call("t1s1c1", provider_state=state({"caller": {"type": "code_execution_20250825", "tool_id": "s1"}}))


def test_own_state_goes_back_in_its_place_byte_for_byte() -> None:
    assert sent(assistant(SIGNED, CITED, REDACTED, CODED))[0]["content"] == [
        {"type": "thinking", "thinking": " hm\n", "signature": "sig="},
        {"type": "text", "text": "It is 7.", "citations": [{"cited_text": "7"}]},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {
            "type": "tool_use",
            "id": "t1s1c1",
            "name": "weather",
            "input": {},
            "caller": {"type": "code_execution_20250825", "tool_id": "s1"},
        },
    ]
    assert losses(assistant(SIGNED, CITED, REDACTED, CODED)) == ()


@pytest.mark.parametrize("theirs", [("anthropic_messages", "other"), ("openai_responses", "m")])
def test_foreign_state_is_left_out_and_listed(theirs: tuple[str, str]) -> None:
    protocol, model = theirs
    message = assistant(
        ThinkingBlock(text="secret chain", provider_state=state({"signature": "sig="}, protocol, model)),
        ThinkingBlock(redacted=True, provider_state=state({"data": "x"}, protocol, model)),
        TextBlock(text="It is 7.", provider_state=state({"citations": [1]}, protocol, model)),
        origin=OTHER,
    )
    assert sent(message) == [{"role": "assistant", "content": [text("It is 7.")]}]
    assert set(losses(message)) == {
        "thinking of another model was left out",
        "citations of another model were left out",
    }


def test_thinking_without_a_signature_is_left_out_and_listed() -> None:
    message = assistant(ThinkingBlock(text="hm"), TextBlock(text="a"))
    assert sent(message)[0]["content"] == [text("a")]
    assert losses(message) == ("thinking without a signature was left out",)


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
USE = ExtensionBlock(kind="server_tool_use", data=SEARCH)
RESULT = ExtensionBlock(kind="web_search_tool_result", data=FOUND)


def test_blocks_of_server_tools_go_back_whole_to_their_model_only() -> None:
    history = (assistant(USE, RESULT, TextBlock(text="a")), user_message("b"))
    assert sent(*history)[0]["content"] == [SEARCH, FOUND, text("a")]
    for origin in (OTHER, FOREIGN, None):
        foreign = assistant(USE, RESULT, TextBlock(text="a"), origin=origin)
        assert sent(foreign)[0]["content"] == [text("a")]
        assert losses(foreign) == (
            'an extension block "server_tool_use" was left out',
            'an extension block "web_search_tool_result" was left out',
        )


LEFT_OUT = "a server tool's use without a result was left out"
UNANSWERED: dict[str, tuple[tuple[Message, ...], bool]] = {
    "the answer goes on": ((assistant(TextBlock(text="a"), USE),), True),
    "calls are answered first": ((assistant(USE, call("t1s1c1")), result("t1s1c1", "x")), True),
    "the result came after a pause": ((assistant(USE), assistant(RESULT), user_message("b")), True),
    "a person went on": ((assistant(TextBlock(text="a"), USE), user_message("b")), False),
}


@pytest.mark.parametrize("name", UNANSWERED)
def test_a_use_without_result_has_a_place_only_where_the_answer_goes_on(name: str) -> None:
    history, is_kept = UNANSWERED[name]
    assert (SEARCH in sent(*history)[0]["content"]) is is_kept
    assert losses(*history) == (() if is_kept else (LEFT_OUT,))


def test_blocks_of_this_protocol_may_be_said_to_the_model() -> None:
    upload = {"type": "container_upload", "file_id": "file_1"}
    mine = ExtensionBlock(kind="container_upload", data=upload, provider_state=state({}))
    assert sent(user(TextBlock(text="a"), mine))[0]["content"] == [text("a"), upload]
    stranger = ExtensionBlock(kind="container_upload", data=upload)
    assert sent(user(TextBlock(text="a"), stranger))[0]["content"] == [text("a")]
    assert losses(user(stranger)) == ('an extension block "container_upload" was left out',)


def container_of(*messages: Message, **options: Any) -> Any:
    fields = {"provider_options": {"anthropic_messages": options}} if options else {}
    return json.loads(PROTOCOL.encode(request(*messages, **fields), traits()).content).get("container")


def test_a_container_goes_back_while_its_answer_goes_on() -> None:
    box = ExtensionBlock(kind="container", data={"id": "container_1", "expires_at": "2026-11-30T12:00:00Z"})
    calling = assistant(CODED, box)
    assert container_of(calling, result("t1s1c1", "x")) == "container_1"
    assert container_of(assistant(USE, box)) == "container_1"
    assert container_of(calling, result("t1s1c1", "x"), assistant(TextBlock(text="a")), user_message("b")) is None
    assert container_of(assistant(TextBlock(text="a"), box), user_message("b")) is None
    assert container_of(assistant(CODED, box, origin=OTHER), result("t1s1c1", "x")) is None
    assert container_of(assistant(USE, box), container="container_2") == "container_2"
    assert sent(assistant(TextBlock(text="a"), box))[0]["content"] == [text("a")]


# ------------------------------------------------------------------------------------------------------- media

PARTS: list[tuple[Any, dict[str, Any]]] = [
    (PNG, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}),
    (
        ImageBlock(url="https://example.com/i.png"),
        {"type": "image", "source": {"type": "url", "url": "https://example.com/i.png"}},
    ),
    (
        DocumentBlock(data="QQ==", name="a.pdf"),
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "QQ=="},
            "title": "a.pdf",
        },
    ),
    (
        DocumentBlock(url="https://example.com/a.pdf"),
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
    ),
    (
        DocumentBlock(media_type="text/csv", data="YSxi"),
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}},
    ),
    (JsonBlock(value={"b": 1}), text('{"b":1}')),
    (RefusalBlock(text="No."), text("No.")),
]


@pytest.mark.parametrize(("block", "part"), PARTS)
def test_what_the_api_takes_is_sent_as_it_is(block: Any, part: dict[str, Any]) -> None:
    assert sent(user(TextBlock(text="Look:"), block))[0]["content"] == [text("Look:"), part]
    inside = sent(assistant(call("t1s1c1")), result("t1s1c1", block))[1]["content"][0]["content"]
    assert inside == [part]
    assert losses(user(block)) == ()


NOTES: list[tuple[Any, dict[str, Any], str]] = [
    (PNG, {"vision": False}, "[an image not shown: image/png]"),
    (ImageBlock(media_type="image/tiff", data="QQ=="), {}, "[an image not shown: image/tiff]"),
    (ImageBlock(artifact="1:aa"), {}, "[an image not shown: image/png]"),  # type: ignore[arg-type]
    (DocumentBlock(data="QQ=="), {"documents": False}, "[a document not shown: application/pdf]"),
    (DocumentBlock(media_type="application/msword", data="QQ=="), {}, "[a document not shown: application/msword]"),
    (DocumentBlock(media_type="text/csv", data="////"), {}, "[a document not shown: text/csv]"),
    (DocumentBlock(media_type="text/csv", url="https://example.com/a.csv"), {}, "[a document not shown: text/csv]"),
    (AudioBlock(data="QQ=="), {}, "[sound not shown: audio/wav]"),
    (AudioBlock(data="QQ==", transcript="Hello"), {}, "Hello"),
]


@pytest.mark.parametrize(("block", "target", "note"), NOTES)
def test_what_the_target_does_not_take_leaves_a_note_and_is_listed(
    block: Any, target: dict[str, Any], note: str
) -> None:
    message = user(block)
    assert sent(message, target=traits(**target))[0]["content"] == [text(note)]
    assert len(losses(message, target=traits(**target))) == 1


def test_an_answers_media_are_notes_and_its_references_too() -> None:
    assert sent(assistant(PNG))[0]["content"] == [text("[the answer's image not shown: image/png]")]
    assert len(losses(assistant(PNG))) == 1
    reference = ArtifactRefBlock(digest="1:" + "a" * 64, media_type="text/csv", size=9)  # type: ignore[arg-type]
    assert "text/csv, 9 bytes" in sent(user(reference))[0]["content"][0]["text"]
    assert "detail" in losses(user(ImageBlock(data="QQ==", detail="low")))[0]


def test_lone_surrogates_never_reach_the_wire() -> None:
    encoded = PROTOCOL.encode(
        request(
            user_message("a\ud800"),
            assistant(
                ThinkingBlock(text="t\udfff", provider_state=state({"signature": "s"})), TextBlock(text="\ud800")
            ),
            assistant(call("t1s1c1")),
            result("t1s1c1", "price \udc96 10"),
            user(DocumentBlock(data="QQ==", name="n\ud800")),
        ),
        traits(),
    )
    shown = encoded.content.decode("utf-8")
    assert not re.search(r"\\u[dD][89a-fA-F]", shown)
    assert "price \ufffd 10" in shown
    json.loads(shown)


# ---------------------------------------------------------------------------------------------------- the memory


def test_a_message_is_encoded_once_for_a_target_and_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = AnthropicMessages()
    messages = [user_message("a"), assistant(call("t1s1c1")), result("t1s1c1", "x")]
    first = protocol.encode(request(*messages), traits())
    (turns,) = protocol._encoder._targets._values.values()
    written: list[Message] = []
    monkeypatch.setattr(turns._memory, "_write", lambda message, *_: written.append(message))
    assert protocol.encode(request(*messages), traits()) == first
    assert written == []
    assert len(turns._memory) == 3
    messages.clear()
    gc.collect()
    assert len(turns._memory) == 0
