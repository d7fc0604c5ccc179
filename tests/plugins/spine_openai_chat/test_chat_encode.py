"""Neutral requests to bodies: what is sent, what is refused, what is listed as lost."""

import gc
import json
import re
from typing import Any

import pytest
from histories_made import PNG, asked, request, result, tool, user

from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError
from spine.llm.request import ResponseFormat, ToolChoice
from spine.messages import (
    ArtifactRefBlock,
    AudioBlock,
    DocumentBlock,
    ExtensionBlock,
    ImageBlock,
    JsonBlock,
    Message,
    Origin,
    ProviderState,
    RefusalBlock,
    SystemBlock,
    TextBlock,
    ThinkingBlock,
    user_message,
)
from spine.tools import ServerTool
from spine.wire import object_schema
from spine_openai_chat.protocol import OpenAIChat

TRAITS = Traits(provider="lab", protocol="openai_chat", model="m")
PROTOCOL = OpenAIChat()
OWN = Origin(protocol="openai_chat", route="lab:m")
FOREIGN = Origin(protocol="anthropic_messages", route="anthropic:model-a")


def traits(**fields: Any) -> Traits:
    return Traits(provider="lab", protocol="openai_chat", model="m", **fields)


def body(*messages: Message, target: Traits = TRAITS, **fields: Any) -> dict[str, Any]:
    return json.loads(PROTOCOL.encode(request(*messages, **fields), target).content)


def sent(*messages: Message, target: Traits = TRAITS, **fields: Any) -> list[dict[str, Any]]:
    return body(*messages, target=target, **fields)["messages"]


def losses(*messages: Message, target: Traits = TRAITS, **fields: Any) -> tuple[str, ...]:
    return PROTOCOL.encode(request(*messages, **fields), target).losses


def assistant(*content: Any, origin: Origin | None = OWN) -> Message:
    return Message(role="assistant", content=content, kind="model", origin=origin)


# ------------------------------------------------------------------------------------------------- parameters


def test_a_plain_request() -> None:
    encoded = PROTOCOL.encode(request(), TRAITS)
    assert (encoded.path, encoded.headers, encoded.losses, encoded.names) == ("/chat/completions", {}, (), {})
    assert json.loads(encoded.content) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "Hi"}],
    }


PARAMETERS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"max_output_tokens": 7}, {}, {"max_tokens": 7}),
    ({"max_output_tokens": 7}, {"max_tokens_field": "max_completion_tokens"}, {"max_completion_tokens": 7}),
    ({"temperature": 0.0, "top_p": 0.5, "seed": 0}, {}, {"temperature": 0.0, "top_p": 0.5, "seed": 0}),
    ({"stop_sequences": ("a", "b\ud800")}, {}, {"stop": ["a", "b\ufffd"]}),
    ({"stop_sequences": ("\n", "", "a")}, {}, {"stop": ["\n", "a"]}),
    ({"thinking": "high"}, {}, {"reasoning_effort": "high"}),
    ({"thinking": "off"}, {}, {"reasoning_effort": "none"}),
    ({"thinking": "off"}, {"thinking": ()}, {"reasoning_effort": None}),
    ({"thinking": "low"}, {"thinking": ["low"]}, {"reasoning_effort": "low"}),
    ({}, {"stream": False}, {"stream": None, "stream_options": None}),
    ({}, {"stream_usage": False}, {"stream": True, "stream_options": None}),
    ({"tools": (tool("f"),), "tool_choice": ToolChoice(mode="required")}, {}, {"tool_choice": "required"}),
    (
        {"tools": (tool("f"),), "tool_choice": ToolChoice(mode="tool", name="f"), "parallel_tool_calls": False},
        {},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": False},
    ),
    ({"tool_choice": ToolChoice(mode="required")}, {}, {"tool_choice": None}),
    ({"provider_options": {"openai_chat": {"top_k": 4, "user": "u"}}}, {}, {"top_k": 4, "user": "u"}),
    ({"provider_options": {"openai_chat": {"extra_body": {"x": {"y": 1}}}}}, {}, {"x": {"y": 1}, "extra_body": None}),
    ({"provider_options": {"anthropic_messages": {"z": 1}}}, {}, {"z": None}),
]


@pytest.mark.parametrize(("fields", "target", "expected"), PARAMETERS)
def test_parameters(fields: dict[str, Any], target: dict[str, Any], expected: dict[str, Any]) -> None:
    found = body(target=traits(**target), **fields)
    assert {key: found.get(key) for key in expected} == expected


def test_a_dropped_tool_choice_is_listed() -> None:
    assert "no tools" in losses(tool_choice=ToolChoice(mode="required"))[0]


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"tools": (tool("f"),)}, {"tools": False}, "unsupported_capability", "does not support tools"),
    ({"thinking": "high"}, {"thinking": ()}, "unsupported_capability", "thinking high"),
    ({"thinking": "high"}, {"thinking": ("low",)}, "unsupported_capability", "thinking high"),
    ({"thinking": 2048}, {}, "unsupported_capability", "budget"),
    (
        {"response_format": ResponseFormat(name="x", schema={})},
        {"structured_output": False},
        "unsupported_capability",
        "response_format",
    ),
    (
        {"tools": (ServerTool(name="search", protocol="openai_responses"),)},
        {},
        "unsupported_capability",
        'server tool "search" of openai_responses',
    ),
    ({"provider_options": {"openai_chat": {"topk": 1}}}, {}, "invalid_request", 'nearest is "top_k"'),
    ({"provider_options": {"openai_chat": {"zzz": 1}}}, {}, "invalid_request", 'unknown option "zzz"'),
    ({"provider_options": {"openai_chat": 1}}, {}, "invalid_request", "must be an object"),
    ({"provider_options": {"openai_chat": {"extra_body": 1}}}, {}, "invalid_request", "must be an object"),
    ({"provider_options": {"openai_chat": {"extra_body": {"messages": []}}}}, {}, "invalid_request", "messages"),
]


@pytest.mark.parametrize(("fields", "target", "category", "words"), REFUSED)
def test_what_the_target_cannot_do_is_refused_before_anything_is_sent(
    fields: dict[str, Any], target: dict[str, Any], category: str, words: str
) -> None:
    with pytest.raises(ProviderError) as caught:
        PROTOCOL.check(request(**fields), traits(**target))
    assert caught.value.category == category
    assert words in caught.value.message
    if category == "unsupported_capability":
        assert {"provider", "model", "capability", "request_feature"} <= set(caught.value.failure.details)


def test_an_ordinary_request_is_not_refused() -> None:
    PROTOCOL.check(request(tools=(tool("f"),), thinking="low", temperature=1.0), TRAITS)


# ------------------------------------------------------------------------------------------------------ system


def test_sections_become_one_system_message_at_the_front() -> None:
    blocks = tuple(
        SystemBlock(name=name, source="x", text=text)
        for name, text in (("a", "Be brief."), ("b", ""), ("c", "Be kind."))
    )
    assert sent(system=blocks)[0] == {"role": "system", "content": "Be brief.\n\nBe kind."}
    assert sent(system=blocks, target=traits(developer_role=True))[0]["role"] == "developer"
    assert [m["role"] for m in sent(system=blocks[1:2])] == ["user"]


# ------------------------------------------------------------------------------------------------------- tools


@pytest.mark.parametrize("parameters", [None, {}, {"type": "object"}, {"properties": None}])
def test_a_tool_without_parameters_has_an_object_schema_with_properties(parameters: Any) -> None:
    function = body(tools=(tool("ping", parameters),))["tools"][0]["function"]
    assert function["parameters"] == {"type": "object", "properties": {}}
    assert "description" not in function


def test_a_whole_schema_is_sent_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert body(tools=(tool("f", schema),))["tools"][0]["function"]["parameters"] == schema
    assert object_schema(schema) is schema


def test_names_outside_the_grammar_are_mapped_and_the_map_leads_back() -> None:
    names = ["files.list", "files_list", "notes/read all"]
    history = assistant(asked("t1s1c1", "files.list"))
    encoded = PROTOCOL.encode(request(history, result("t1s1c1", "x"), tools=tuple(map(tool, names))), TRAITS)
    found = json.loads(encoded.content)
    wire = [t["function"]["name"] for t in found["tools"]]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in wire)
    assert len(set(wire)) == 3
    assert wire[1] == "files_list"
    assert [encoded.names.get(name, name) for name in wire] == names
    assert found["messages"][0]["tool_calls"][0]["function"]["name"] == wire[0]
    choice = body(tools=(tool("files.list"),), tool_choice=ToolChoice(mode="tool", name="files.list"))["tool_choice"]
    assert choice["function"]["name"] == wire[0]


def test_a_server_tool_of_this_protocol_is_sent_as_configured() -> None:
    config = {"type": "browser_search"}
    assert body(tools=(ServerTool(name="s", protocol="openai_chat", config=config),))["tools"] == [config]


STRICT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def test_response_formats_follow_the_targets_strict_rules() -> None:
    good, loose = (
        ResponseFormat(name="answer 1", schema=STRICT),
        ResponseFormat(name="x", schema={**STRICT, "required": []}),
    )
    wanted = body(response_format=good, target=traits(strict_schemas=True))["response_format"]
    assert wanted["json_schema"]["strict"] is True
    assert wanted["json_schema"]["schema"] == STRICT
    assert re.fullmatch(r"[A-Za-z0-9_-]+", wanted["json_schema"]["name"])
    sent_loose = body(response_format=loose, target=traits(strict_schemas=True))["response_format"]
    assert sent_loose["json_schema"]["strict"] is False
    assert "does not require a" in losses(response_format=loose, target=traits(strict_schemas=True))[0]
    assert body(response_format=loose)["response_format"]["json_schema"]["strict"] is True


# ---------------------------------------------------------------------------------------------------- messages


def test_content_is_null_only_beside_calls_and_empty_answers_are_left_out() -> None:
    history = (
        user_message("Go."),
        assistant(asked("t1s1c1", "ping", "call_1")),
        result("t1s1c1", "pong"),
        assistant(TextBlock(text="")),
        user_message("Hello?"),
    )
    assert sent(*history) == [
        {"role": "user", "content": "Go."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "ping", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "pong"},
        {"role": "user", "content": "Hello?"},
    ]


@pytest.mark.parametrize("as_one", [False, True])
def test_results_follow_their_message_in_the_order_of_its_calls(as_one: bool) -> None:
    results = [result("t1s1c2", "fast"), result("t1s1c1", "slow")]
    if as_one:
        results = [Message(role="tool", content=(*results[0].content, *results[1].content))]
    messages = sent(assistant(asked("t1s1c1"), asked("t1s1c2")), *results, user_message("So?"))
    assert [(m["role"], m.get("tool_call_id"), m["content"]) for m in messages] == [
        ("assistant", None, None),
        ("tool", "t1s1c1", "slow"),
        ("tool", "t1s1c2", "fast"),
        ("user", None, "So?"),
    ]


def test_results_that_share_a_message_with_text_stay_in_front_of_it() -> None:
    mixed = Message(role="user", content=(*result("t1s1c1", "ok").content, TextBlock(text="And?")))
    assert [m["role"] for m in sent(assistant(asked("t1s1c1")), mixed)] == ["assistant", "tool", "user"]


def test_vendor_ids_go_back_to_their_provider_when_they_fit() -> None:
    other = Origin(protocol="openai_chat", route="lab:other-model")
    for origin, vendor_id, expected in (
        (OWN, "call_9", "call_9"),
        (other, "call_9", "call_9"),
        (FOREIGN, "toolu_1", "t1s1c1"),
        (Origin(protocol="openai_chat", route="elsewhere:m"), "call_9", "t1s1c1"),
        (OWN, "functions.weather:0", "t1s1c1"),
        (OWN, None, "t1s1c1"),
        (None, "call_9", "t1s1c1"),
    ):
        messages = sent(assistant(asked("t1s1c1", vendor_id=vendor_id), origin=origin), result("t1s1c1", "x"))
        assert [messages[0]["tool_calls"][0]["id"], messages[1]["tool_call_id"]] == [expected] * 2


def test_vendor_ids_that_repeat_are_not_used_twice() -> None:
    history = []
    for step in (1, 2, 3):
        history += [assistant(asked(f"t1s{step}c1", vendor_id="call_0")), result(f"t1s{step}c1", str(step))]
    for _ in range(2):
        messages = sent(*history)
        ids = [m["tool_calls"][0]["id"] for m in messages[::2]]
        assert ids == ["call_0", "t1s2c1", "t1s3c1"]
        assert [m["tool_call_id"] for m in messages[1::2]] == ids
    twice = assistant(asked("t1s1c1", vendor_id="a"), asked("t1s1c2", vendor_id="a"))
    assert [c["id"] for c in sent(twice)[0]["tool_calls"]] == ["t1s1c1", "t1s1c2"]


def test_ids_fit_the_targets_grammar() -> None:
    target = traits(call_id_pattern=r"[a-zA-Z0-9]{9}")
    messages = sent(
        assistant(asked("t1s1c1"), asked("t1s1c2")), result("t1s1c1", "x"), result("t1s1c2", "y"), target=target
    )
    ids = [c["id"] for c in messages[0]["tool_calls"]]
    assert all(re.fullmatch(r"[a-zA-Z0-9]{9}", id) for id in ids)
    assert [m["tool_call_id"] for m in messages[1:]] == ids
    assert len(set(ids)) == 2


def test_arguments_that_did_not_parse_go_back_inside_valid_json() -> None:
    broken = asked("t1s1c1", arguments=None, arguments_text='{"name":"rep\ud800')
    arguments = sent(assistant(broken))[0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"unparsed_arguments": '{"name":"rep\ufffd'}


def test_lone_surrogates_never_reach_the_wire() -> None:
    target = traits(reasoning_field="reasoning_content")
    encoded = PROTOCOL.encode(
        request(
            user_message("a\ud800"),
            assistant(ThinkingBlock(text="t\udfff"), TextBlock(text="b\ud800"), asked("t1s1c1")),
            result("t1s1c1", "price \udc96 10"),
            Message(role="user", content=(DocumentBlock(data="QQ==", name="n\ud800"),)),
            system=(SystemBlock(name="a", source="b", text="s\ud800"),),
            tools=(tool("f", description="d\ud800"),),
        ),
        target,
    )
    text = encoded.content.decode("utf-8")
    assert not re.search(r"\\u[dD][89a-fA-F]", text)
    assert "price \ufffd 10" in text
    json.loads(text)


def test_refusals_are_text_the_model_said() -> None:
    assert sent(assistant(RefusalBlock(text="I can't.")))[0] == {"role": "assistant", "content": "I can't."}


# ------------------------------------------------------------------------------------------ thinking and state


def test_thinking_goes_back_to_its_own_model_under_the_targets_field() -> None:
    own = assistant(ThinkingBlock(text="hm"), TextBlock(text="Yes."))
    target = traits(reasoning_field="reasoning_content")
    assert sent(own, target=target)[0] == {"role": "assistant", "content": "Yes.", "reasoning_content": "hm"}
    assert sent(own)[0] == {"role": "assistant", "content": "Yes."}
    assert losses(own) == ()


def test_foreign_thinking_is_left_out_and_listed() -> None:
    foreign = assistant(ThinkingBlock(text="secret chain"), TextBlock(text="It is 7."), origin=FOREIGN)
    target = traits(reasoning_field="reasoning_content")
    assert sent(foreign, target=target) == [{"role": "assistant", "content": "It is 7."}]
    assert losses(foreign, target=target) == ("thinking of another model was left out",)


@pytest.mark.parametrize(
    ("state", "is_sent"),
    [
        (("openai_chat", "lab", "m"), True),
        (("openai_chat", "lab", "n"), False),
        (("openai_chat", "other", "m"), False),
        (("openai_responses", "lab", "m"), False),
    ],
)
def test_opaque_state_goes_back_to_the_same_model_only(state: tuple[str, str, str], is_sent: bool) -> None:
    def kept(**data: Any) -> ProviderState:
        protocol, provider, model = state
        return ProviderState(protocol=protocol, provider=provider, model=model, data={**data, "unasked": 1})

    details = [{"type": "reasoning.encrypted", "data": "ENC"}]
    message = assistant(
        ThinkingBlock(text="hm", provider_state=kept(reasoning_details=details)),
        asked("t1s1c1", provider_state=kept(extra_content={"google": {"s": "x"}})),
    )
    wire = sent(message)[0]
    assert wire.get("reasoning_details") == (details if is_sent else None)
    assert wire["tool_calls"][0].get("extra_content") == ({"google": {"s": "x"}} if is_sent else None)
    assert "unasked" not in json.dumps(wire)


# ------------------------------------------------------------------------------------------------------- media


def test_text_blocks_are_plain_content_and_media_are_parts_in_order() -> None:
    assert (
        sent(user(TextBlock(text="a"), TextBlock(text=""), JsonBlock(value={"b": 1})))[0]["content"] == 'a\n\n{"b":1}'
    )
    parts = sent(
        user(
            TextBlock(text="Look:"),
            PNG,
            ImageBlock(url="https://example.com/i.png"),
            AudioBlock(data="QQ==", media_type="audio/mpeg"),
            DocumentBlock(data="QQ==", name="a.pdf"),
        )
    )[0]["content"]
    assert parts == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/i.png"}},
        {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="}},
    ]


NOTES: list[tuple[Any, dict[str, Any], str]] = [
    (PNG, {"vision": False}, "[an image not shown: image/png]"),
    (ImageBlock(artifact="1:aa"), {}, "[an image not shown: image/png]"),  # type: ignore[arg-type]
    (AudioBlock(data="QQ=="), {"audio": False}, "[sound not shown: audio/wav]"),
    (AudioBlock(data="QQ==", transcript="Hello"), {"audio": False}, "Hello"),
    (AudioBlock(url="https://example.com/a.wav"), {}, "[sound not shown: audio/wav]"),
    (DocumentBlock(data="QQ=="), {"documents": False}, "[a document not shown: application/pdf]"),
    (DocumentBlock(url="https://example.com/a.pdf"), {}, "[a document not shown: application/pdf]"),
]


@pytest.mark.parametrize(("block", "target", "note"), NOTES)
def test_what_the_target_does_not_take_leaves_a_note_and_is_listed(
    block: Any, target: dict[str, Any], note: str
) -> None:
    message = user(TextBlock(text="Look:"), block)
    assert sent(message, target=traits(**target))[0]["content"] == f"Look:\n\n{note}"
    assert len(losses(message, target=traits(**target))) == 1


def test_images_come_back_when_the_target_can_see() -> None:
    message = user(TextBlock(text="Look:"), PNG)
    assert isinstance(sent(message, target=traits(vision=False))[0]["content"], str)
    assert isinstance(sent(message)[0]["content"], list)


def test_images_in_results_need_a_target_that_takes_them() -> None:
    history = (assistant(asked("t1s1c1")), result("t1s1c1", "caption", PNG))
    assert sent(*history)[1]["content"] == "caption\n\n[an image in a tool result not shown: image/png]"
    assert losses(*history) == ("an image in a tool result was replaced by a note",)
    parts = sent(*history, target=traits(tool_images=True))[1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url"]
    blind = sent(*history, target=traits(vision=False, tool_images=True))[1]["content"]
    assert blind == "caption\n\n[an image not shown: image/png]"


def test_references_are_notes_and_extensions_are_lost_and_listed() -> None:
    reference = ArtifactRefBlock(digest="1:" + "a" * 64, media_type="text/csv", size=9)  # type: ignore[arg-type]
    assert "text/csv, 9 bytes" in sent(user(reference))[0]["content"]
    extended = assistant(TextBlock(text="x"), ExtensionBlock(kind="citations", data=[1]))
    assert sent(extended) == [{"role": "assistant", "content": "x"}]
    assert losses(extended) == ('an extension block "citations" was left out',)


def test_losses_are_listed_once_however_often_they_happen() -> None:
    foreign = [assistant(ThinkingBlock(text=str(i)), TextBlock(text="x"), origin=FOREIGN) for i in range(5)]
    assert len(losses(*foreign)) == 1


# ---------------------------------------------------------------------------------------------------- the cache


def test_a_message_is_encoded_once_for_a_target_and_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = OpenAIChat()
    messages = [user_message("a"), assistant(asked("t1s1c1")), result("t1s1c1", "x")]
    first = protocol.encode(request(*messages), TRAITS)
    (turns,) = protocol._encoder._targets._values.values()
    written: list[Message] = []
    monkeypatch.setattr(turns._memory, "_write", lambda message, *_: written.append(message))
    assert protocol.encode(request(*messages), TRAITS) == first
    assert written == []
    assert len(turns._memory) == 3
    messages.clear()
    gc.collect()
    assert len(turns._memory) == 0


def test_equal_requests_give_equal_bytes() -> None:
    def made() -> bytes:
        history = (user_message("a"), assistant(TextBlock(text="b"), asked("t1s1c1", arguments={"z": 1, "a": 2})))
        return OpenAIChat().encode(request(*history, result("t1s1c1", "x"), tools=(tool("f"),)), TRAITS).content

    assert made() == made()
