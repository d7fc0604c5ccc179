"""Every history that can be made of the three protocols' answers goes to every target as a valid request.

Differential: the official SDKs' own types say what a request may be. The histories are generated, the answers in them
decoded from bytes as the providers write them, so that all opaque state is the real one.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_answers import PROTOCOLS, Part, answer
from sdk_types import check_type
from wire_properties import check_body

from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError
from spine.llm.providers import CATALOGUE
from spine.llm.request import ModelRequest, ResponseFormat, Route, ToolChoice
from spine.messages import (
    ArtifactRefBlock,
    AudioBlock,
    DocumentBlock,
    ExtensionBlock,
    ImageBlock,
    JsonBlock,
    Message,
    SystemBlock,
    TextBlock,
    ToolResultBlock,
)
from spine.tools import ToolDefinition

ROUTES = tuple(
    Route.parse(text)
    for text in (
        "anthropic:claude-sonnet-4-5",
        "anthropic:claude-opus-5-5",
        "openai:gpt-5",
        "openai:gpt-4o",
        "openai_chat:gpt-5",
        "openai_chat:gpt-4o",
        "deepseek:deepseek-chat",
        "mistral:mistral-large-2512",
    )
)
"""Who answers in a history, and who is asked next."""
NAMES = ("weather", "shop.orders", "read note", "größe", "n" * 80)
VENDOR_IDS = ("call_0", "call_1", "toolu_01", "fc|x:1", "a" * 90, "functions.weather:0", "abcDEF123")
ARGUMENTS = ("", "{}", '{"city":"Oslo"}', '{"a":[1,2.5,null,true],"b":{"c":"\\ud83d"}}', '{"cut":', "[1]")
TEXTS = st.sampled_from(("Hi.", "", " ", "\n", "Grüße \U0001f600", "cut \ud83d here", "two\u2028lines", "x" * 300))
DATA = "iVBORw0KGgo="
BLOCKS = st.one_of(
    TEXTS.map(lambda text: TextBlock(text=text)),
    st.sampled_from(
        (
            ImageBlock(data=DATA, detail="low"),
            ImageBlock(url="https://pictures.example/x.png"),
            ImageBlock(media_type="image/tiff", data=DATA),
            ImageBlock(artifact="sha256:ab"),  # type: ignore[arg-type]
            AudioBlock(data=DATA),
            AudioBlock(url="https://sounds.example/x.wav", transcript="hello"),
            DocumentBlock(data=DATA, name="a.pdf"),
            DocumentBlock(media_type="text/plain", data="aGk="),
            DocumentBlock(url="https://papers.example/x.pdf"),
            JsonBlock(value={"b": [1, None], "a": "ü"}),
            ArtifactRefBlock(digest="sha256:cd", media_type="text/csv", size=7),  # type: ignore[arg-type]
            ExtensionBlock(kind="mystery", data={"x": 1}),
        )
    ),
)
SCHEMAS = (
    {},
    {"type": "object"},
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)


@st.composite
def parts(draw: Any) -> list[Part]:
    """Of an answer: thinking, words, what the provider ran, calls; in a natural order, any of them missing."""
    found = [Part(draw(st.sampled_from(("think", "hide"))), draw(TEXTS)) for _ in range(draw(st.integers(0, 2)))]
    kinds = draw(st.lists(st.sampled_from(("say", "say", "refuse", "search", "think", "call", "call")), max_size=4))
    vendor_ids = draw(st.permutations(VENDOR_IDS))
    for place, kind in enumerate(kinds):
        if kind == "call":
            text = draw(st.sampled_from(ARGUMENTS))
            found.append(Part("call", text, draw(st.sampled_from(NAMES)), vendor_ids[place]))
        else:
            found.append(Part(kind, draw(TEXTS)))
    return found


@st.composite
def histories(draw: Any) -> tuple[Message, ...]:
    """Turns as the loop records them: every call answered before anything else is said, in any order of completion."""
    messages: list[Message] = []
    step = 0
    for _ in range(draw(st.integers(1, 3))):
        content = draw(st.lists(BLOCKS, min_size=1, max_size=3))
        kind = draw(st.sampled_from(("user", "context", "steering")))
        messages.append(Message(role="user", content=(*content, TextBlock(text="Well?")), kind=kind))
        for _ in range(draw(st.integers(0, 2))):
            step += 1
            said = answer(draw(st.sampled_from(ROUTES)), f"t1s{step}", draw(parts()))
            messages.append(said)
            for call in draw(st.permutations(said.tool_calls)):
                results = tuple(draw(st.lists(BLOCKS, max_size=2)))
                block = ToolResultBlock(call_id=call.id, name=call.name, content=results, is_error=draw(st.booleans()))
                messages.append(Message(role="tool", content=(block,)))
    if messages[-1].role == "assistant":
        messages.append(Message(role="user", content=(TextBlock(text="Go on."),), kind="user"))
    return tuple(messages)


@st.composite
def requests(draw: Any, route: Route) -> ModelRequest:
    """A history with any parameters that the target may be asked for."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    schemas = st.sampled_from(SCHEMAS)
    tools = tuple(ToolDefinition(name=name, description=draw(TEXTS), parameters=draw(schemas)) for name in names)
    choices = [None, ToolChoice(), ToolChoice(mode="none"), ToolChoice(mode="required")]
    if names:
        choices.append(ToolChoice(mode="tool", name=names[0]))
    sections = draw(st.lists(st.tuples(TEXTS, st.booleans()), max_size=3))
    formats = (None, ResponseFormat(name="answer", schema=SCHEMAS[2]))
    return ModelRequest(
        route=route,
        step="t9s9",  # type: ignore[arg-type]
        system=tuple(
            SystemBlock(name=str(place), source="test", text=text.replace("\ud83d", ""), dynamic=dynamic)
            for place, (text, dynamic) in enumerate(sections)
        ),
        messages=draw(histories()),
        tools=tools,
        tool_choice=draw(st.sampled_from(choices)),
        parallel_tool_calls=draw(st.sampled_from((None, True, False))),
        max_output_tokens=draw(st.sampled_from((None, 4000))),
        temperature=draw(st.sampled_from((None, 0.5))),
        top_p=draw(st.sampled_from((None, 0.9))),
        stop_sequences=draw(st.sampled_from(((), ("END",)))),
        seed=draw(st.sampled_from((None, 7))),
        thinking=draw(st.sampled_from((None, None, "off", "low", "high", 2048))),
        response_format=draw(st.sampled_from(formats)),
    )


def is_refused(protocol: Any, request: ModelRequest, traits: Traits) -> bool:
    """Whether `check` refuses a request, which it may for what was asked only."""
    try:
        protocol.check(request, traits)
    except ProviderError as error:
        return error.category in ("unsupported_capability", "invalid_request")
    return False


@pytest.mark.parametrize("route", ROUTES, ids=str)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_request_is_one_that_the_sdk_allows(route: Route, data: st.DataObject) -> None:
    """What a target cannot do is refused by `check`, with what was asked; everything else is valid on the wire."""
    traits = CATALOGUE.traits(route.provider, route.model)
    protocol = PROTOCOLS[traits.protocol]
    request = data.draw(requests(route))
    if is_refused(protocol, request, traits):
        request = request.evolve(thinking=None, response_format=None, tool_choice=None)
        protocol.check(request, traits)
    body = protocol.encode(request, traits)
    check_type(check_body(body, traits), traits)
    assert protocol.encode(request, traits) == body  # from memory, too
