"""Neutral requests to bodies: parameters, thinking, tools, cache marks, options; what is refused, what is listed."""

import json
import re
from typing import Any

import attrs
import pytest

from spine.llm.catalogue import Traits, price
from spine.llm.errors import ProviderError
from spine.llm.providers import CATALOGUE
from spine.llm.request import ModelRequest, ResponseFormat, Route, ToolChoice
from spine.llm.usage import Usage
from spine.messages import (
    ExtensionBlock,
    ImageBlock,
    Message,
    Origin,
    ProviderState,
    SystemBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    user_message,
)
from spine.tools import ServerTool, ToolDefinition
from spine.wire import closed_schema
from spine_anthropic.protocol import AnthropicMessages

ROUTE = Route("lab", "m")
TRAITS = Traits(provider="lab", protocol="anthropic_messages", model="m", max_output=64_000)
PLAIN = attrs.evolve(TRAITS, cache_marks=False)
PROTOCOL = AnthropicMessages()
OWN = Origin(protocol="anthropic_messages", route="lab:m")
MARK = {"type": "ephemeral"}


def request(*messages: Message, **fields: Any) -> ModelRequest:
    return ModelRequest(route=ROUTE, step="t1s1", messages=messages or (user_message("Hi"),), **fields)  # type: ignore[arg-type]


def traits(**fields: Any) -> Traits:
    return attrs.evolve(PLAIN, **fields)


def body(*messages: Message, target: Traits = PLAIN, **fields: Any) -> dict[str, Any]:
    asked = request(*messages, **fields)
    PROTOCOL.check(asked, target)
    found: dict[str, Any] = json.loads(PROTOCOL.encode(asked, target).content)
    return found


def losses(*messages: Message, target: Traits = PLAIN, **fields: Any) -> tuple[str, ...]:
    return PROTOCOL.encode(request(*messages, **fields), target).losses


def refused(*messages: Message, target: Traits = PLAIN, **fields: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        PROTOCOL.check(request(*messages, **fields), target)
    return caught.value


def options(**fields: Any) -> dict[str, Any]:
    return {"provider_options": {"anthropic_messages": fields}}


def tool(name: str, parameters: Any = None) -> ToolDefinition:
    return ToolDefinition(name=name, parameters=parameters or {})


def step(number: int, *before: Any, name: str = "f") -> tuple[Message, Message]:
    """An answer that calls a tool, and the result."""
    call = ToolCallBlock(id=f"t1s{number}c1", name=name, arguments={})  # type: ignore[arg-type]
    result = ToolResultBlock(call_id=call.id, name=name, content=(TextBlock(text="x"),))
    return (
        Message(role="assistant", content=(*before, call), origin=OWN),
        Message(role="tool", content=(result,)),
    )


# ------------------------------------------------------------------------------------------------- parameters


def test_a_plain_request() -> None:
    encoded = PROTOCOL.encode(request(), PLAIN)
    assert (encoded.path, encoded.losses, encoded.names) == ("/messages", (), {})
    assert encoded.headers == {"anthropic-version": "2023-06-01"}
    assert json.loads(encoded.content) == {
        "model": "m",
        "stream": True,
        "max_tokens": 64_000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }


PARAMETERS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"max_output_tokens": 7}, {}, {"max_tokens": 7}),
    ({}, {"max_output": None}, {"max_tokens": 8192}),
    ({"temperature": 0.0, "top_p": 0.5}, {}, {"temperature": 0.0, "top_p": 0.5}),
    ({"stop_sequences": ("a", "b\ud800")}, {}, {"stop_sequences": ["a", "b\ufffd"]}),
    ({"stop_sequences": ("\n", "a")}, {}, {"stop_sequences": ["a"]}),
    ({"stop_sequences": (" ",)}, {}, {"stop_sequences": None}),
    ({}, {"stream": False}, {"stream": None}),
    ({"thinking": "off"}, {}, {"thinking": {"type": "disabled"}}),
    ({"thinking": "off"}, {"thinking": ()}, {"thinking": None}),
    ({"thinking": "minimal"}, {}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
    ({"thinking": "high"}, {}, {"thinking": {"type": "enabled", "budget_tokens": 24_576}, "max_tokens": 64_000}),
    ({"thinking": "high"}, {"max_output": None}, {"max_tokens": 24_576 + 8192}),
    ({"thinking": 2000, "max_output_tokens": 2001}, {}, {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
    (
        {"thinking": "high", "max_output_tokens": 4096},
        {},
        {"thinking": {"type": "enabled", "budget_tokens": 3072}, "max_tokens": 4096},
    ),
    (
        {"thinking": "high"},
        {"thinking_budgets": False},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
    ),
    (
        {"thinking": "minimal"},
        {"thinking_budgets": False},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
    ),
    ({"thinking": "low", "temperature": 1.0, "top_p": 0.95}, {}, {"temperature": 1.0, "top_p": 0.95}),
    ({"thinking": "low", "temperature": 0.2, "top_p": 0.5}, {}, {"temperature": None, "top_p": None}),
    ({"thinking": "off", "temperature": 0.2}, {}, {"temperature": 0.2}),
    ({"tools": (tool("f"),)}, {}, {"tool_choice": None}),
    ({"tools": (tool("f"),), "tool_choice": ToolChoice(mode="auto")}, {}, {"tool_choice": {"type": "auto"}}),
    ({"tools": (tool("f"),), "tool_choice": ToolChoice(mode="required")}, {}, {"tool_choice": {"type": "any"}}),
    ({"tools": (tool("f"),), "parallel_tool_calls": True}, {}, {"tool_choice": None}),
    (
        {"tools": (tool("f"),), "parallel_tool_calls": False},
        {},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    ),
    (
        {"tools": (tool("a.f"),), "tool_choice": ToolChoice(mode="tool", name="a.f"), "parallel_tool_calls": False},
        {"tool_name_pattern": r"[a-z.]+"},
        {"tool_choice": {"type": "tool", "name": "a.f", "disable_parallel_tool_use": True}},
    ),
    (
        {"tools": (tool("f"),), "tool_choice": ToolChoice(mode="none"), "parallel_tool_calls": False},
        {},
        {"tool_choice": {"type": "none"}},
    ),
    ({"tool_choice": ToolChoice(mode="required")}, {}, {"tool_choice": None, "tools": None}),
    (options(top_k=5, metadata={"user_id": "u"}), {}, {"top_k": 5, "metadata": {"user_id": "u"}}),
    (options(extra_body={"speed": "fast"}), {}, {"speed": "fast"}),
    (
        {**options(output_config={"effort": "max", "task_budget": 1}), "thinking": "low"},
        {"thinking_budgets": False},
        {"output_config": {"effort": "low", "task_budget": 1}},
    ),
]


@pytest.mark.parametrize(("fields", "target", "expected"), PARAMETERS)
def test_parameters_are_sent_as_the_target_wants_them(
    fields: dict[str, Any], target: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = body(target=traits(**target), **fields)
    assert {key: found.get(key) for key in expected} == expected


LOST: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"seed": 1}, {}, "seed was left out: the API has none"),
    ({"stop_sequences": ("\n", "", "a")}, {}, "a blank stop sequence was left out"),
    ({"thinking": "low", "temperature": 0.2}, {}, "temperature 0.2 was left out: the model thinks"),
    ({"thinking": "low", "top_p": 0.5}, {}, "top_p 0.5 was left out: the model thinks"),
    ({"thinking": "minimal"}, {"thinking_budgets": False}, "thinking minimal was sent as low"),
    (
        {"thinking": "high", "max_output_tokens": 4096},
        {},
        "thinking high got 3072 tokens, to leave room in the output limit of 4096",
    ),
    (
        {"parallel_tool_calls": False},
        {},
        "tool_choice and parallel_tool_calls were left out: the request has no tools",
    ),
]


@pytest.mark.parametrize(("fields", "target", "loss"), LOST)
def test_what_could_not_be_said_is_listed(fields: dict[str, Any], target: dict[str, Any], loss: str) -> None:
    assert losses(target=traits(**target), **fields) == (loss,)


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"tools": (tool("f"),)}, {"tools": False}, "unsupported_capability", "tools"),
    (
        {"response_format": ResponseFormat(name="x", schema={})},
        {"structured_output": False},
        "unsupported_capability",
        "response_format",
    ),
    ({"thinking": "high"}, {"thinking": ("low",)}, "unsupported_capability", "thinking high"),
    ({"thinking": 2000}, {"thinking": ()}, "unsupported_capability", "a thinking budget"),
    ({"thinking": 2000}, {"thinking_budgets": False}, "unsupported_capability", "a thinking budget"),
    ({"thinking": 1000}, {}, "invalid_request", "at least 1024 and less than the output limit of 64000"),
    ({"thinking": 1000}, {"max_output": None}, "invalid_request", "at least 1024"),
    ({"thinking": 2000, "max_output_tokens": 2000}, {}, "invalid_request", "output limit of 2000"),
    ({"thinking": "low", "max_output_tokens": 2047}, {}, "invalid_request", "needs at least 2048"),
    (
        {"thinking": "low", "tools": (tool("f"),), "tool_choice": ToolChoice(mode="required")},
        {},
        "unsupported_capability",
        "tool_choice required while it thinks",
    ),
    (
        {"tools": (ServerTool(name="s", protocol="openai_responses"),)},
        {},
        "unsupported_capability",
        'the server tool "s" of openai_responses',
    ),
    (
        {"tools": (tool("f"),), "tool_choice": ToolChoice(mode="required")},
        {"forced_calls": False},
        "unsupported_capability",
        "tool_choice required",
    ),
    (
        {"tools": (tool("f"),), "tool_choice": ToolChoice(mode="tool", name="f")},
        {"forced_calls": False},
        "unsupported_capability",
        "tool_choice tool",
    ),
    (
        {"tools": (tool("f"),), "tool_choice": ToolChoice(mode="tool", name="g")},
        {},
        "invalid_request",
        'tool_choice names "g"',
    ),
    (options(top_kk=1), {}, "invalid_request", 'nearest is "top_k"'),
    (options(cache="2h"), {}, "invalid_request", "5m, 1h or off"),
    (options(cache=["5m"]), {}, "invalid_request", "5m, 1h or off"),
    (options(betas="x"), {}, "invalid_request", "a list of names"),
    (options(betas=["a\r\nx-api-key: b"]), {}, "invalid_request", "a list of names"),
    (options(output_config=1), {}, "invalid_request", "an object"),
    (options(extra_body={"messages": []}), {}, "invalid_request", "extra_body may not set messages"),
    (options(extra_body={"thinking": {}, "tools": []}), {}, "invalid_request", "may not set thinking, tools"),
    ({"provider_options": {"anthropic_messages": 1}}, {}, "invalid_request", "must be an object"),
]


@pytest.mark.parametrize(("fields", "target", "category", "words"), REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    fields: dict[str, Any], target: dict[str, Any], category: str, words: str
) -> None:
    failed = refused(target=traits(**target), **fields)
    assert failed.category == category
    assert words in failed.message


def test_forced_calls_need_no_thinking_to_be_off_by_name() -> None:
    for thinking in (None, "off"):
        found = body(thinking=thinking, tools=(tool("f"),), tool_choice=ToolChoice(mode="required"))
        assert found["tool_choice"] == {"type": "any"}


def test_blocks_of_ones_own_that_are_none_are_listed() -> None:
    """What is no object cannot have come from this API, and does not go there."""
    said = Message(role="assistant", content=(ExtensionBlock(kind="odd", data=[1]),), origin=OWN)
    untyped = said.evolve(content=(ExtensionBlock(kind="odder", data={"x": 1}), TextBlock(text="Hi.")))
    assert losses(user_message("a"), said, user_message("b")) == ('an extension block "odd" was left out',)
    assert losses(user_message("a"), untyped, user_message("b")) == ('an extension block "odder" was left out',)


def test_the_type_of_a_jpeg_may_be_misspelt() -> None:
    picture = Message(role="user", content=(ImageBlock(data="QQ==", media_type="image/jpg"),), kind="user")
    source = {"type": "base64", "media_type": "image/jpeg", "data": "QQ=="}
    assert body(picture)["messages"][0]["content"] == [{"type": "image", "source": source}]


def test_models_of_which_no_call_can_be_forced_take_every_other_choice() -> None:
    for mode in ("auto", "none"):
        found = body(tools=(tool("f"),), tool_choice=ToolChoice(mode=mode), target=traits(forced_calls=False))
        assert found["tool_choice"] == {"type": mode}


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-haiku-4-5", {"type": "disabled"}),
        ("claude-opus-4-8", {"type": "disabled"}),
        ("claude-sonnet-5-5", {"type": "between_tools"}),
        ("claude-opus-5-5", None),
    ],
)
def test_thinking_is_turned_off_in_the_words_of_each_model(model: str, thinking: Any) -> None:
    """What is new in Opus 5.5 and Sonnet 5.5 (read 2026-11-30): one always thinks, the other at least between calls."""
    target = CATALOGUE.traits("anthropic", model)
    if thinking is None:
        assert refused(target=target, thinking="off").category == "unsupported_capability"
    else:
        assert body(target=target, thinking="off")["thinking"] == thinking


def test_betas_go_into_their_header() -> None:
    encoded = PROTOCOL.encode(request(**options(betas=["files-api-2025-04-14", "b"])), PLAIN)
    assert encoded.headers["anthropic-beta"] == "files-api-2025-04-14,b"
    assert b"betas" not in encoded.content


# ----------------------------------------------------------------------------------------- thinking in a turn


def thought(model: str = "m") -> ThinkingBlock:
    state = ProviderState(protocol="anthropic_messages", provider="lab", model=model, data={"signature": "s"})
    return ThinkingBlock(text="hm", provider_state=state)


LEFT_OFF = "thinking was left off: the answer that goes on began without thinking of this model"
GOES_ON: dict[str, tuple[tuple[Message, ...], bool]] = {
    "a question": ((user_message("a"),), True),
    "a finished answer before": ((*step(1), Message(role="assistant", content=(TextBlock(text="b"),))), True),
    "calls after thinking": ((user_message("a"), *step(1, thought())), True),
    "calls without thinking": ((user_message("a"), *step(1)), False),
    "calls after another model's thinking": ((user_message("a"), *step(1, thought("n"))), False),
    "only the first call thought": ((user_message("a"), *step(1, thought()), *step(2)), True),
    "only the second call thought": ((user_message("a"), *step(1), *step(2, thought())), False),
    "a new question after calls": (
        (user_message("a"), *step(1), Message(role="assistant", content=(TextBlock(text="b"),)), user_message("c")),
        True,
    ),
}


@pytest.mark.parametrize("name", GOES_ON)
def test_thinking_on_a_budget_does_not_begin_inside_an_answer(name: str) -> None:
    history, thinks = GOES_ON[name]
    found = body(*history, thinking="low", temperature=0.2, tools=(tool("f"),))
    assert ("thinking" in found) is thinks
    assert ("temperature" in found) is not thinks
    assert (LEFT_OFF in losses(*history, thinking="low", tools=(tool("f"),))) is not thinks


def test_adaptive_thinking_may_begin_anywhere() -> None:
    found = body(user_message("a"), *step(1), thinking="low", tools=(tool("f"),), target=traits(thinking_budgets=False))
    assert found["thinking"] == {"type": "adaptive"}


# ------------------------------------------------------------------------------------------------------- tools


@pytest.mark.parametrize("parameters", [None, {}, {"type": "object"}, {"properties": None}])
def test_a_tool_without_parameters_has_an_object_schema_with_properties(parameters: Any) -> None:
    assert body(tools=(tool("ping", parameters),))["tools"] == [
        {"name": "ping", "input_schema": {"type": "object", "properties": {}}}
    ]


def test_names_outside_the_grammar_are_mapped_and_the_map_leads_back() -> None:
    names = ["files.list", "files_list", "notes/read all"]
    history = step(1, name="files.list")
    encoded = PROTOCOL.encode(request(*history, tools=tuple(map(tool, names))), PLAIN)
    found = json.loads(encoded.content)
    wire = [item["name"] for item in found["tools"]]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in wire)
    assert len(set(wire)) == 3
    assert [encoded.names.get(name, name) for name in wire] == names
    assert found["messages"][0]["content"][0]["name"] == wire[0]


def test_a_server_tool_of_this_protocol_is_sent_as_configured() -> None:
    config = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    tools = (ServerTool(name="web_search", protocol="anthropic_messages", config=config), tool("f"))
    assert body(tools=tools)["tools"][0] == config


def test_tools_of_the_past_are_named_when_a_request_has_none() -> None:
    """The API refuses calls and results among the messages of a request that defines no tools."""
    history = (*step(1, name="files.list"), *step(2, name="g"), *step(3, name="g"))
    found = body(*history)
    assert [item["name"] for item in found["tools"]] == [
        found["messages"][0]["content"][0]["name"],
        found["messages"][2]["content"][0]["name"],
    ]
    assert found["tool_choice"] == {"type": "none"}
    assert "tools" not in body(user_message("a"))
    assert [item["name"] for item in body(*history, tools=(tool("f"),))["tools"]] == ["f"]


def test_response_formats_are_closed_schemas() -> None:
    schema = {
        "type": "object",
        "properties": {"properties": {"type": "object", "properties": {"a": {"enum": [{"properties": {}}]}}}},
    }
    sent = body(response_format=ResponseFormat(name="answer", schema=schema))["output_config"]["format"]
    assert sent["type"] == "json_schema"
    inner = sent["schema"]["properties"]["properties"]
    assert sent["schema"]["additionalProperties"] is inner["additionalProperties"] is False
    assert inner["properties"] == {"a": {"enum": [{"properties": {}}]}}


def test_a_schema_that_speaks_of_other_members_is_left_alone() -> None:
    schema = {"anyOf": [{"properties": {}, "additionalProperties": True}, {"type": "object"}], "items": True}
    assert closed_schema(schema) == schema


# ------------------------------------------------------------------------------------------------- cache marks


def section(text: str, *, dynamic: bool = False) -> SystemBlock:
    return SystemBlock(name=text or "none", source="test", text=text, dynamic=dynamic)


SYSTEMS: dict[str, tuple[list[SystemBlock], list[str], int | None]] = {
    "one static": ([section("a")], ["a"], 0),
    "the last static one": ([section("a"), section("b")], ["a", "b"], 1),
    "before the first dynamic one": (
        [section("a"), section("b"), section("c", dynamic=True), section("d")],
        ["a", "b", "c", "d"],
        1,
    ),
    "nothing static in front": ([section("a", dynamic=True), section("b")], ["a", "b"], None),
    "empty ones are left out": ([section("a"), section(""), section(" \n"), section("b")], ["a", "b"], 1),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_static_part_of_the_system_prompt_is_marked(name: str) -> None:
    blocks, texts, marked = SYSTEMS[name]
    found = body(system=tuple(blocks), target=TRAITS)["system"]
    assert [part["text"] for part in found] == texts
    assert [place for place, part in enumerate(found) if "cache_control" in part] == (
        [] if marked is None else [marked]
    )


def test_the_last_tool_is_marked_when_nothing_behind_it_is() -> None:
    tools = (tool("f"), tool("g"))
    found = body(tools=tools, system=(section("a", dynamic=True),), target=TRAITS)
    assert [part.get("cache_control") for part in found["tools"]] == [None, MARK]
    covered = body(tools=tools, system=(section("a"),), target=TRAITS)
    assert [part.get("cache_control") for part in covered["tools"]] == [None, None]


def marks(*messages: Message, **fields: Any) -> list[tuple[int, int]]:
    """Places of marked blocks: message and block."""
    found = body(*messages, target=TRAITS, **fields)["messages"]
    return [
        (place, inner)
        for place, message in enumerate(found)
        for inner, block in enumerate(message["content"])
        if "cache_control" in block
    ]


def test_the_last_two_user_turns_end_in_marks() -> None:
    history = (user_message("a"), user_message("b"), *step(1), *step(2))
    assert marks(*history[:2]) == [(0, 1)]
    assert marks(*history[:4]) == [(0, 1), (2, 0)]
    assert marks(*history) == [(2, 0), (4, 0)]
    assert marks(*history, user_message("c")) == [(2, 0), (4, 1)]
    assert marks(*history, Message(role="assistant", content=(TextBlock(text="d"),))) == [(2, 0), (4, 0)]


def test_a_step_repeats_the_step_before_it_but_for_the_marks() -> None:
    history = (user_message("a"), *step(1), *step(2), *step(3))

    def unmarked(count: int) -> str:
        content = PROTOCOL.encode(
            request(*history[:count], system=(section("s"),), tools=(tool("f"),)), TRAITS
        ).content.decode()
        return content.replace('"cache_control":{"type":"ephemeral"},', "").removesuffix("]}")

    for count in (1, 3, 5):
        assert unmarked(count + 2).startswith(unmarked(count))


CACHES: list[tuple[dict[str, Any], Any]] = [
    ({}, MARK),
    (options(cache="5m"), MARK),
    (options(cache="1h"), {"type": "ephemeral", "ttl": "1h"}),
    (options(cache="off"), None),
]


@pytest.mark.parametrize(("fields", "mark"), CACHES)
def test_how_long_marked_content_is_kept_is_an_option(fields: dict[str, Any], mark: Any) -> None:
    found = body(system=(section("a"),), target=TRAITS, **fields)
    assert found["system"][0].get("cache_control") == mark
    assert found["messages"][0]["content"][0].get("cache_control") == mark
    assert "cache" not in found


def test_a_target_without_marks_gets_none() -> None:
    assert b"cache_control" not in PROTOCOL.encode(request(system=(section("a"),), tools=(tool("f"),)), PLAIN).content


def test_equal_requests_give_equal_bytes() -> None:
    def made() -> bytes:
        history = (user_message("a"), *step(1, TextBlock(text="b")))
        return AnthropicMessages().encode(request(*history, tools=(tool("f"),), system=(section("s"),)), TRAITS).content

    assert made() == made()


# ---------------------------------------------------------------------------------------------------- catalogue


@pytest.mark.parametrize("model", ["claude-haiku-4-5", "claude-opus-4-5", "claude-sonnet-4-5"])
def test_the_catalogue_knows_the_models(model: str) -> None:
    provider = CATALOGUE.providers["anthropic"]
    assert (provider.protocol, provider.auth) == ("anthropic_messages", "header x-api-key")
    known = CATALOGUE.traits("anthropic", model)
    assert (known.window, known.max_output) == (200_000, 64_000)
    prices = CATALOGUE.model("anthropic", model).prices
    assert prices is not None
    assert prices.id == CATALOGUE.snapshot


def test_cost_counts_four_prices() -> None:
    usage = Usage(input_tokens=1512, cache_write_tokens=1408, cache_read_tokens=0, output_tokens=24)
    cost = price(usage, CATALOGUE.model("anthropic", "claude-sonnet-4-5").prices)
    assert cost is not None
    assert cost.micros == 5952


def test_unlisted_models_get_a_careful_output_limit() -> None:
    unknown = CATALOGUE.traits("anthropic", "claude-of-a-later-day")
    assert json.loads(PROTOCOL.encode(request(), unknown).content)["max_tokens"] == 8192
