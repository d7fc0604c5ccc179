"""Neutral requests to bodies: what is sent, what is refused, what is listed as lost."""

import gc
import json
import pathlib
import re
from typing import Any

import pytest
from histories_made import PNG, asked, request, result, tool, user
from responses_made import PROTOCOL, TRAITS, call, completed, done, message, part, reasoning, run, sse
from wire_trials import NO_RECORDS, cases

from spine.llm.assemble import assemble
from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError
from spine.llm.providers import CATALOGUE
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
from spine_openai_responses.protocol import OpenAIResponses

WIRE = pathlib.Path(__file__).parent / "wire"
NAME = "openai_responses"
OWN = Origin(protocol=NAME, route="lab:m")
KIN = Origin(protocol=NAME, route="lab:other")
FOREIGN = Origin(protocol="anthropic_messages", route="anthropic:model-a")
USER = {"role": "user", "content": "Hi"}


def traits(**fields: Any) -> Traits:
    return Traits(provider="lab", protocol=NAME, model="m", **fields)


def body(*messages: Message, target: Traits = TRAITS, **fields: Any) -> dict[str, Any]:
    return json.loads(PROTOCOL.encode(request(*messages, **fields), target).content)


def sent(*messages: Message, target: Traits = TRAITS, **fields: Any) -> list[dict[str, Any]]:
    return body(*messages, target=target, **fields)["input"]


def losses(*messages: Message, target: Traits = TRAITS, **fields: Any) -> tuple[str, ...]:
    return PROTOCOL.encode(request(*messages, **fields), target).losses


def state(data: Any, model: str = "m") -> ProviderState:
    return ProviderState(protocol=NAME, provider="lab", model=model, data=data)


def assistant(*content: Any, origin: Origin | None = OWN) -> Message:
    return Message(role="assistant", content=content, origin=origin)


def options(**fields: Any) -> dict[str, Any]:
    return {"provider_options": {NAME: fields}}


# ------------------------------------------------------------------------------------------------- parameters


def test_a_plain_request() -> None:
    encoded = PROTOCOL.encode(request(), TRAITS)
    assert (encoded.path, encoded.headers, encoded.losses, encoded.names) == ("/responses", {}, (), {})
    assert json.loads(encoded.content) == {
        "model": "m",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "input": [USER],
    }


SEARCH_TOOL = ServerTool(name="search", protocol=NAME, config={"type": "web_search"})
PARAMETERS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"temperature": 0.0, "top_p": 0.5}, {}, {"temperature": 0.0, "top_p": 0.5}),
    ({"max_output_tokens": 7}, {"max_tokens_field": "max_completion_tokens"}, {"max_output_tokens": 7}),
    ({"thinking": "high"}, {}, {"reasoning": {"effort": "high"}}),
    ({"thinking": "off"}, {}, {"reasoning": {"effort": "none"}}),
    ({"thinking": "off"}, {"thinking": ()}, {"reasoning": None, "include": None}),
    ({"thinking": "low"}, {"thinking": ["low"]}, {"reasoning": {"effort": "low"}}),
    ({}, {"stream": False}, {"stream": None, "store": False}),
    ({"tools": (tool("f"),), "tool_choice": ToolChoice(mode="required")}, {}, {"tool_choice": "required"}),
    (
        {"tools": (tool("f"),), "tool_choice": ToolChoice(mode="tool", name="f"), "parallel_tool_calls": False},
        {},
        {"tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": False},
    ),
    (
        {"tools": (SEARCH_TOOL,), "tool_choice": ToolChoice(mode="tool", name="search")},
        {},
        {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
    ),
    ({"tool_choice": ToolChoice(mode="required")}, {}, {"tool_choice": None, "tools": None}),
    (options(truncation="auto", user="u"), {}, {"truncation": "auto", "user": "u"}),
    (options(extra_body={"x": {"y": 1}}), {}, {"x": {"y": 1}, "extra_body": None}),
    ({"provider_options": {"openai_chat": {"z": 1}}}, {}, {"z": None}),
    (
        {**options(reasoning={"summary": "auto"}), "thinking": "low"},
        {},
        {"reasoning": {"effort": "low", "summary": "auto"}},
    ),
    (options(reasoning={"summary": "auto"}), {}, {"reasoning": {"summary": "auto"}}),
    (options(text={"verbosity": "low"}), {}, {"text": {"verbosity": "low"}}),
    (
        options(include=["file_search_call.results", "reasoning.encrypted_content"]),
        {},
        {"include": ["reasoning.encrypted_content", "file_search_call.results"]},
    ),
    (options(include=["x"]), {"thinking": ()}, {"include": ["x"]}),
]


@pytest.mark.parametrize(("fields", "target", "expected"), PARAMETERS)
def test_parameters(fields: dict[str, Any], target: dict[str, Any], expected: dict[str, Any]) -> None:
    found = body(target=traits(**target), **fields)
    assert {key: found.get(key) for key in expected} == expected
    PROTOCOL.check(request(**fields), traits(**target))


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"tool_choice": ToolChoice(mode="required")}, "tool_choice"),
        ({"stop_sequences": ("a",)}, "stop_sequences"),
        ({"seed": 0}, "seed"),
    ],
)
def test_parameters_that_the_protocol_does_not_have_are_listed(fields: dict[str, Any], word: str) -> None:
    (loss,) = losses(**fields)
    assert word in loss


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"tools": (tool("f"),)}, {"tools": False}, "unsupported_capability", "does not support tools"),
    ({"thinking": "high"}, {"thinking": ("low",)}, "unsupported_capability", "thinking high"),
    ({"thinking": "off"}, {"thinking": ("low",)}, "unsupported_capability", "thinking off"),
    ({"thinking": 2048}, {}, "unsupported_capability", "budget"),
    (
        {"response_format": ResponseFormat(name="x", schema={})},
        {"structured_output": False},
        "unsupported_capability",
        "response_format",
    ),
    ({"tools": (ServerTool(name="s", protocol="openai_chat"),)}, {}, "unsupported_capability", "of openai_chat"),
    (options(truncate=1), {}, "invalid_request", 'nearest is "truncation"'),
    ({"provider_options": {NAME: 1}}, {}, "invalid_request", "must be an object"),
    (options(extra_body={"input": []}), {}, "invalid_request", "may not set input"),
    (options(previous_response_id="resp_1"), {}, "invalid_request", "rebuilt from the log"),
    (options(extra_body={"store": True}), {}, "invalid_request", "may not set store"),
    ({**options(reasoning={"effort": "low"}), "thinking": "high"}, {}, "invalid_request", "without effort"),
    ({**options(reasoning=3), "thinking": "high"}, {}, "invalid_request", "must be an object"),
    (options(include="all"), {}, "invalid_request", "a list of texts"),
]


@pytest.mark.parametrize(("fields", "target", "category", "words"), REFUSED)
def test_what_the_target_cannot_do_is_refused_before_anything_is_sent(
    fields: dict[str, Any], target: dict[str, Any], category: str, words: str
) -> None:
    with pytest.raises(ProviderError) as caught:
        PROTOCOL.check(request(**fields), traits(**target))
    assert caught.value.category == category
    assert words in caught.value.message


def test_sections_become_the_instructions_or_a_message_of_the_developer() -> None:
    texts = (("a", "Be brief."), ("b", ""), ("c", "Be kind.\ud800"))
    blocks = tuple(SystemBlock(name=name, source="x", text=text) for name, text in texts)
    plain = body(system=blocks)
    assert (plain["instructions"], plain["input"]) == ("Be brief.\n\nBe kind.\ufffd", [USER])
    told = body(system=blocks, target=traits(developer_role=True))
    assert told["input"] == [{"role": "developer", "content": "Be brief.\n\nBe kind.\ufffd"}, USER]
    assert "instructions" not in told
    assert "instructions" not in body(system=blocks[1:2])


# ------------------------------------------------------------------------------------------------------- tools

STRICT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def test_tools_are_flat_and_say_whether_they_are_strict() -> None:
    tools = (tool("ping", description="Pings."), tool("exact", STRICT), tool("loose", {**STRICT, "required": []}))
    assert body(tools=tools, target=traits(strict_schemas=True))["tools"] == [
        {
            "type": "function",
            "name": "ping",
            "description": "Pings.",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
        {"type": "function", "name": "exact", "parameters": STRICT, "strict": True},
        {"type": "function", "name": "loose", "parameters": {**STRICT, "required": []}, "strict": False},
    ]
    assert {item["strict"] for item in body(tools=tools)["tools"]} == {False}


def test_names_outside_the_grammar_are_mapped_and_the_map_leads_back() -> None:
    encoded = PROTOCOL.encode(request(assistant(asked("t1s1c1", "files.list")), tools=(tool("files.list"),)), TRAITS)
    found = json.loads(encoded.content)
    name = found["tools"][0]["name"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
    assert encoded.names == {name: "files.list"}
    assert found["input"][0]["name"] == name
    choice = body(tools=(tool("files.list"),), tool_choice=ToolChoice(mode="tool", name="files.list"))["tool_choice"]
    assert choice["name"] == name


def test_response_formats_stand_in_text() -> None:
    wanted = ResponseFormat(name="answer 1", schema=STRICT)
    strict = traits(strict_schemas=True)
    text = body(response_format=wanted, target=strict, **options(text={"verbosity": "low"}))["text"]
    assert text["verbosity"] == "low"
    assert text["format"].pop("name").startswith("answer_1")
    assert text["format"] == {"type": "json_schema", "schema": STRICT, "strict": True}
    loose = ResponseFormat(name="x", schema={**STRICT, "required": []})
    assert "without strict" in losses(response_format=loose, target=strict)[0]


# ------------------------------------------------------------------------------------------------------- input


def test_an_answer_goes_back_as_its_items_and_results_follow_in_the_order_of_the_calls() -> None:
    history = (
        user_message("Go."),
        assistant(
            TextBlock(text="Let me look."), asked("t1s1c1", vendor_id="call_1"), asked("t1s1c2", "ping", "call_2")
        ),
        result("t1s1c2", "fast"),
        result("t1s1c1", "slow"),
        assistant(TextBlock(text="")),
        user_message("So?"),
    )
    assert sent(*history) == [
        {"role": "user", "content": "Go."},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
        {"type": "function_call", "call_id": "call_2", "name": "ping", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "slow"},
        {"type": "function_call_output", "call_id": "call_2", "output": "fast"},
        {"role": "user", "content": "So?"},
    ]


def test_vendor_ids_go_back_to_their_provider_when_they_fit() -> None:
    for origin, vendor_id, expected in (
        (OWN, "call_9", "call_9"),
        (KIN, "call_9", "call_9"),
        (FOREIGN, "toolu_1", "t1s1c1"),
        (OWN, "resp_1:call_0", "t1s1c1"),
        (OWN, None, "t1s1c1"),
        (None, "call_9", "t1s1c1"),
    ):
        items = sent(assistant(asked("t1s1c1", vendor_id=vendor_id), origin=origin), result("t1s1c1", "x"))
        assert [item["call_id"] for item in items] == [expected] * 2


def test_vendor_ids_that_repeat_are_not_used_twice() -> None:
    history = []
    for step in (1, 2):
        history += [assistant(asked(f"t1s{step}c1", vendor_id="call_0")), result(f"t1s{step}c1", str(step))]
    for _ in range(2):
        assert [item["call_id"] for item in sent(*history)] == ["call_0", "call_0", "t1s2c1", "t1s2c1"]


def test_arguments_that_did_not_parse_go_back_inside_valid_json() -> None:
    (item,) = sent(assistant(asked("t1s1c1", arguments=None, arguments_text='{"name":"rep\ud800')))
    assert json.loads(item["arguments"]) == {"unparsed_arguments": '{"name":"rep\ufffd'}


def test_custom_calls_go_back_to_their_model_as_they_came() -> None:
    own = {"provider_state": state({"id": "ctc_1", "type": "custom_tool_call"})}
    history = (
        assistant(
            asked("t1s1c1", "sh", "call_1", arguments=None, arguments_text="ls", **own),
            asked("t1s1c2", "sh", "call_2", arguments={"a": 1}, **own),
            asked("t1s1c3", "ping", "call_3"),
        ),
        *(result(f"t1s1c{n}", str(n)) for n in (1, 2, 3)),
    )
    items = sent(*history)
    assert items[0] == {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "sh", "input": "ls"}
    assert items[1]["input"] == '{"a":1}'
    outputs = ["custom_tool_call_output", "custom_tool_call_output", "function_call_output"]
    assert [item["type"] for item in items[3:]] == outputs
    elsewhere = json.loads(PROTOCOL.encode(request(*history, route="lab:n"), traits()).content)["input"]
    assert {item["type"] for item in elsewhere} == {"function_call", "function_call_output"}


def test_item_ids_and_phases_go_back_to_their_own_model_only() -> None:
    told = assistant(
        TextBlock(text="Look.", provider_state=state({"id": "msg_1", "phase": "commentary"})),
        TextBlock(text="See?", provider_state=state({"id": "msg_1", "phase": "commentary"})),
        TextBlock(text="4", provider_state=state({"id": "msg_2", "phase": "final_answer"})),
        asked("t1s1c1", vendor_id="call_1", provider_state=state({"id": "fc_1", "namespace": "crm"})),
    )
    first, second, called = sent(told)
    assert first == {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "phase": "commentary",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []} for text in ("Look.", "See?")],
    }
    assert (second["id"], second["phase"]) == ("msg_2", "final_answer")
    assert (called["id"], called["namespace"]) == ("fc_1", "crm")
    moved = json.loads(PROTOCOL.encode(request(told, route="lab:n"), traits()).content)["input"]
    assert [set(item) for item in moved] == [
        {"type", "role", "content"},
        {"type", "call_id", "name", "arguments"},
    ]
    assert [p["text"] for p in moved[0]["content"]] == ["Look.", "See?", "4"]


# --------------------------------------------------------------------------------------------------- reasoning

ENC = {"id": "rs_1", "encrypted_content": "ENC=="}


def test_reasoning_goes_back_whole_and_before_what_it_belongs_to() -> None:
    thinking = (
        ThinkingBlock(text="One.", provider_state=state(ENC)),
        ThinkingBlock(text="Two.", provider_state=state({"id": "rs_1"})),
        ThinkingBlock(redacted=True, provider_state=state({"id": "rs_2", "encrypted_content": "ENC2"})),
        asked("t1s1c1", vendor_id="call_1"),
    )
    assert [{k: v for k, v in item.items() if k != "arguments"} for item in sent(assistant(*thinking))] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
            "encrypted_content": "ENC==",
        },
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "ENC2"},
        {"type": "function_call", "call_id": "call_1", "name": "weather"},
    ]
    assert losses(assistant(*thinking)) == ()


LEFT_OUT: list[tuple[Any, dict[str, Any], str]] = [
    (ThinkingBlock(text="x"), {}, "thinking of another model"),
    (ThinkingBlock(text="x", provider_state=state(ENC, model="n")), {}, "thinking of another model"),
    (ThinkingBlock(text="x", provider_state=state({"id": "rs_1"})), {}, "without encrypted content"),
    (
        ThinkingBlock(text="x", provider_state=state({"id": "rs_1"})),
        {"reasoning_field": "content"},
        "without encrypted",
    ),
]


@pytest.mark.parametrize(("block", "target", "words"), LEFT_OUT)
def test_other_thinking_is_left_out_and_listed(block: Any, target: dict[str, Any], words: str) -> None:
    history = (assistant(block, TextBlock(text="Hi")), user_message("So?"))
    assert [item["role"] for item in sent(*history, target=traits(**target))] == ["assistant", "user"]
    (loss,) = losses(*history, target=traits(**target))
    assert words in loss


def test_reasoning_that_nothing_follows_is_left_out_and_listed() -> None:
    cut = assistant(TextBlock(text="Hi"), ThinkingBlock(redacted=True, provider_state=state(ENC)))
    assert [item["type"] for item in sent(cut)] == ["message"]
    assert "nothing follows" in losses(cut)[0]


def test_a_target_that_reads_its_own_reasoning_gets_it_back_in_the_open() -> None:
    own = ThinkingBlock(text="Hm.", provider_state=state({"id": "rs_1", "content": True}))
    item = sent(assistant(own, TextBlock(text="Hi")), target=traits(reasoning_field="content"))[0]
    assert item == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
    }


@NO_RECORDS
def test_a_reported_history_with_reasoning_and_a_call_goes_back_in_order() -> None:
    """Translates the case into our values; its expectations are in words."""
    (case,) = cases("c10")
    user_turn, answered, outcome = case["history"]
    thinking, asked_for = answered["content"]
    kept = {key: thinking["provider_item"][key] for key in ("id", "encrypted_content")}
    origin = Origin(protocol=NAME, route="openai:model-r")

    def own(data: Any) -> ProviderState:
        return ProviderState(protocol=NAME, provider="openai", model="model-r", data=data)

    history = (
        user_message(user_turn["content"][0]["text"]),
        assistant(
            ThinkingBlock(text=thinking["text"], redacted=True, provider_state=own(kept)),
            asked(
                "t1s1c1",
                asked_for["name"],
                asked_for["id"],
                arguments=asked_for["args"],
                provider_state=own({"id": asked_for["provider_item_id"]}),
            ),
            origin=origin,
        ),
        result("t1s1c1", outcome["content"][0]["content"][0]["text"]),
    )
    target = CATALOGUE.traits("openai", "model-r")
    found = json.loads(PROTOCOL.encode(request(*history, route="openai:model-r"), target).content)
    assert [item.get("type") for item in found["input"][1:]] == ["reasoning", "function_call", "function_call_output"]
    assert found["input"][1] == thinking["provider_item"]
    assert (found["input"][2]["call_id"], found["input"][3]["call_id"]) == ("call_1", "call_1")
    assert found["input"][2]["id"] == "fc_1"
    assert found["include"] == ["reasoning.encrypted_content"]
    assert found["store"] is False


# ------------------------------------------------------------------------------------- items of built-in tools

SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": None}
COMPACTED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "ENC"}


def extension(data: dict[str, Any], **fields: Any) -> ExtensionBlock:
    return ExtensionBlock(kind=data["type"], data=data, **fields)


BACK: list[tuple[dict[str, Any], Origin | None, bool]] = [
    (SEARCH, OWN, True),
    (SEARCH, KIN, True),
    (SEARCH, Origin(protocol=NAME, route="elsewhere:m"), False),
    (SEARCH, Origin(protocol="openai_chat", route="lab:m"), False),
    (SEARCH, None, False),
    (COMPACTED, OWN, True),
    (COMPACTED, KIN, False),
]


@pytest.mark.parametrize(("item", "origin", "is_sent"), BACK)
def test_items_go_back_untouched_to_their_provider_and_encrypted_ones_to_their_model(
    item: dict[str, Any], origin: Origin | None, is_sent: bool
) -> None:
    told = assistant(extension(item), TextBlock(text="Hi"), origin=origin)
    assert (item in sent(told)) is is_sent
    assert losses(told) == (() if is_sent else (f'an extension block "{item["type"]}" was left out',))


def test_a_caller_may_answer_with_an_item_of_the_protocol() -> None:
    approval = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    assert sent(user(extension(approval, provider_state=state({})), TextBlock(text="Go."))) == [
        approval,
        {"role": "user", "content": "Go."},
    ]
    assert "mcp_approval_response" in losses(user(extension(approval), TextBlock(text="Go.")))[0]


def test_annotations_go_back_with_their_text() -> None:
    cited = [{"type": "url_citation", "url": "https://example.com/a"}]
    notes = ExtensionBlock(kind="annotations", data=cited)
    own = TextBlock(text="Hi", provider_state=state({"id": "msg_1"}))
    (item,) = sent(assistant(own, notes))
    assert item["content"][0]["annotations"] == cited
    assert losses(assistant(TextBlock(text="Hi"), notes, origin=FOREIGN)) == (
        'an extension block "annotations" was left out',
    )


# ------------------------------------------------------------------------------------------------------- parts


def test_media_become_parts() -> None:
    (item,) = sent(
        user(
            TextBlock(text="Look:"),
            PNG,
            ImageBlock(url="https://example.com/i.png"),
            AudioBlock(data="QQ==", media_type="audio/mpeg"),
            DocumentBlock(data="QQ==", name="a.pdf"),
            DocumentBlock(url="https://example.com/b.pdf"),
            JsonBlock(value={"a": 1}),
        )
    )
    assert item["content"] == [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"},
        {"type": "input_image", "image_url": "https://example.com/i.png", "detail": "auto"},
        {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "mp3"}},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="},
        {"type": "input_file", "file_url": "https://example.com/b.pdf"},
        {"type": "input_text", "text": '{"a":1}'},
    ]


NOTES: list[tuple[Any, dict[str, Any], str]] = [
    (PNG, {"vision": False}, "[an image not shown: image/png]"),
    (ImageBlock(artifact="1:aa"), {}, "[an image not shown: image/png]"),  # type: ignore[arg-type]
    (AudioBlock(data="QQ=="), {"audio": False}, "[sound not shown: audio/wav]"),
    (AudioBlock(data="QQ==", transcript="Hello"), {"audio": False}, "Hello"),
    (DocumentBlock(data="QQ=="), {"documents": False}, "[a document not shown: application/pdf]"),
]


@pytest.mark.parametrize(("block", "target", "note"), NOTES)
def test_what_the_target_does_not_take_leaves_a_note_and_is_listed(
    block: Any, target: dict[str, Any], note: str
) -> None:
    told = user(TextBlock(text="Look:"), block)
    assert sent(told, target=traits(**target))[0]["content"] == f"Look:\n\n{note}"
    assert len(losses(told, target=traits(**target))) == 1


def test_results_hold_images_and_files_where_the_target_takes_them() -> None:
    history = (assistant(asked("t1s1c1")), result("t1s1c1", "caption", PNG, DocumentBlock(data="QQ==")))
    plain = sent(*history)[1]["output"]
    assert plain == "caption\n\n[an image not shown: image/png]\n\n[a document not shown: application/pdf]"
    parts = sent(*history, target=traits(tool_images=True))[1]["output"]
    assert [item["type"] for item in parts] == ["input_text", "input_image", "input_file"]


def test_a_models_own_words_are_text() -> None:
    (item,) = sent(assistant(RefusalBlock(text="No."), PNG, JsonBlock(value=[1])))
    texts = [item["text"] for item in item["content"]]
    assert texts == ["No.", "[an image not shown: image/png]", "[1]"]
    reference = ArtifactRefBlock(digest="1:" + "a" * 64, media_type="text/csv", size=9)  # type: ignore[arg-type]
    assert "text/csv, 9 bytes" in sent(user(reference))[0]["content"]


def test_lone_surrogates_never_reach_the_wire() -> None:
    bad = "x\ud800"
    thinking = ThinkingBlock(text=bad, provider_state=state(ENC))
    history = (user_message(bad), assistant(thinking, TextBlock(text=bad), asked("t1s1c1")), result("t1s1c1", bad))
    encoded = PROTOCOL.encode(request(*history, tools=(tool("f", description=bad),)), TRAITS)
    assert encoded.content.decode().count("\ufffd") == 5


# -------------------------------------------------------------------------------------------------- round trip


def committed(body: bytes) -> Message:
    """An answer as the loop commits it: with ids of its step."""
    chunks, end = run(body)
    return assemble(chunks, "t1s1", end.message.origin)


def test_what_was_answered_goes_back_as_it_came() -> None:
    items = [
        reasoning("First.", "Second.", encrypted_content="ENC"),
        message("Let me see.", id="msg_1", phase="commentary", status="completed"),
        SEARCH,
        reasoning(id="rs_2", encrypted_content="ENC2"),
        call('{"city":"Oulu"}', "weather", id="fc_1", caller={"type": "direct"}),
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_b", "name": "sh", "input": "ls -l"},
        message(part("Cited.", annotations=[{"type": "url_citation"}]), id="msg_2", status="completed"),
    ]
    streamed = committed(sse(*(done(item, at) for at, item in enumerate(items)), completed(*items)))
    assert sent(streamed) == items
    assert losses(streamed) == ()


@pytest.mark.parametrize("name", ["text.sse", "calls.sse", "reasoning.sse", "tools.sse"])
def test_own_answers_go_back_without_losses(name: str) -> None:
    told = committed((WIRE / name).read_bytes())
    assert sent(told)
    assert losses(told) == ()


# --------------------------------------------------------------------------------------------------- the memory


def test_a_message_is_encoded_once_for_a_target_and_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = OpenAIResponses()
    messages = [user_message("a"), assistant(asked("t1s1c1")), result("t1s1c1", "x")]
    first = protocol.encode(request(*messages), TRAITS)
    (turns,) = protocol._encoder._targets._values.values()
    written: list[Message] = []
    monkeypatch.setattr(turns._memory, "_write", lambda message, *_: written.append(message))
    assert protocol.encode(request(*messages), TRAITS) == first
    assert written == []
    messages.clear()
    gc.collect()
    assert len(turns._memory) == 0


def test_equal_requests_give_equal_bytes() -> None:
    def made() -> bytes:
        told = assistant(TextBlock(text="b"), asked("t1s1c1", arguments={"z": 1, "a": 2}))
        history = (user_message("a"), told, result("t1s1c1", "x"))
        return OpenAIResponses().encode(request(*history, tools=(tool("f"),)), TRAITS).content

    assert made() == made()
