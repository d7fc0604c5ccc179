"""Parts of content, and JSON Schemas, as OpenAI's protocols write them."""

from typing import Any

import pytest

from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError
from spine.llm.protocols import WireProtocol
from spine.llm.request import ModelRequest, ResponseFormat, Route
from spine.messages import AudioBlock, DocumentBlock, ImageBlock, Message, TextBlock
from spine.values import StepId
from spine.wire import data_url, file_members, inlined, named_format, sound_part, strict_problem, text_or_parts
from spine_anthropic.protocol import AnthropicMessages
from spine_openai_chat.protocol import OpenAIChat
from spine_openai_responses.protocol import OpenAIResponses

PART = {"type": "image"}
CONTENTS: list[tuple[list[Any], Any]] = [
    ([], ""),
    (["", None], ""),
    (["a\ud800", "", "b"], "a\ufffd\n\nb"),
    (["a", PART, "", "b"], [{"type": "text", "text": "a"}, PART, {"type": "text", "text": "b"}]),
    ([PART], [PART]),
]


@pytest.mark.parametrize(("parts", "expected"), CONTENTS)
def test_content_is_text_or_a_list(parts: list[Any], expected: Any) -> None:
    assert text_or_parts(parts, "text") == expected


def test_media_are_written_as_data_urls_with_a_name_and_a_format() -> None:
    assert data_url(ImageBlock(url="https://example.com/i.png")) == "https://example.com/i.png"
    assert data_url(ImageBlock(data="QQ==", media_type="image/webp")) == "data:image/webp;base64,QQ=="
    assert data_url(ImageBlock(artifact="1:aa")) is None  # type: ignore[arg-type]
    for media_type, name in (("audio/mpeg", "mp3"), ("audio/x-wav", "wav"), ("audio/flac", "flac")):
        assert sound_part(AudioBlock(data="QQ==", media_type=media_type))["input_audio"]["format"] == name
    named = file_members(DocumentBlock(data="QQ==", name="a.pdf"))
    assert named == {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="}
    assert file_members(DocumentBlock(data="QQ=="))["filename"] == "document.pdf"
    assert file_members(DocumentBlock(data="QQ==", media_type="text"))["filename"] == "document.bin"


INLINED: list[tuple[Any, Any]] = [
    (ImageBlock(url="data:image/gif;base64,QQ%3D%3D"), ImageBlock(data="QQ==", media_type="image/gif")),
    (ImageBlock(url="data:;base64,QQ==", detail="low"), ImageBlock(data="QQ==", detail="low")),
    (DocumentBlock(url="DATA:Text/Plain;charset=utf-8,a%20b", name="n"),
     DocumentBlock(data="YSBi", media_type="text/plain", name="n")),
    (AudioBlock(url="data:audio/mpeg;x=y;base64,QQ=="), AudioBlock(data="QQ==", media_type="audio/mpeg")),
    (ImageBlock(url="data:,"), ImageBlock(data="")),
]  # fmt: skip


@pytest.mark.parametrize(("block", "expected"), INLINED)
def test_data_urls_are_data(block: Any, expected: Any) -> None:
    assert inlined(block) == expected


@pytest.mark.parametrize(
    "block", [ImageBlock(url="https://example.com/data:,x"), ImageBlock(data="QQ=="), TextBlock(text="data:,x")]
)
def test_what_holds_no_data_url_stays_the_same(block: Any) -> None:
    assert inlined(block) is block


@pytest.mark.parametrize("protocol", [AnthropicMessages(), OpenAIChat(), OpenAIResponses()], ids=lambda each: each.name)
def test_every_protocol_writes_the_data_of_a_data_url_where_its_data_stand(protocol: WireProtocol) -> None:
    traits = Traits(provider="lab", protocol=protocol.name, model="m")

    def encoded(*blocks: Any) -> bytes:
        message = Message(role="user", content=blocks, kind="user")
        request = ModelRequest(route=Route("lab", "m"), step=StepId("t1s1"), messages=(message,))
        protocol.check(request, traits)
        return protocol.encode(request, traits).content

    pdf = DocumentBlock(url="data:application/pdf;base64,QQ==", name="a.pdf")
    given = encoded(ImageBlock(url="data:image/gif,A"), pdf)
    assert given == encoded(ImageBlock(data="QQ==", media_type="image/gif"), DocumentBlock(data="QQ==", name="a.pdf"))
    assert b"not shown" not in given
    with pytest.raises(ProviderError, match="a data URL without data"):
        encoded(ImageBlock(url="data:image/gif"))


STRICT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
PROBLEMS: list[tuple[Any, str | None]] = [
    (STRICT, None),
    ({**STRICT, "title": "T", "description": "d"}, None),
    ({"type": "object", "additionalProperties": False}, None),
    ({"type": "object"}, "$ allows additional properties"),
    ({**STRICT, "required": []}, "$ does not require a"),
    ({**STRICT, "allOf": []}, "$ uses allOf"),
    ({**STRICT, "properties": {"a": {"default": 1, "minLength": 2}}}, "$.properties.a uses default, minLength"),
    ({**STRICT, "properties": {"a": {"type": "array", "items": {"oneOf": []}}}}, "$.properties.a.items uses oneOf"),
    (
        {**STRICT, "properties": {"a": {"anyOf": [{}, {"type": "object", "properties": {}}]}}},
        "$.properties.a.anyOf[1] allows additional properties",
    ),
    ({**STRICT, "$defs": {"default": {"type": "object"}}}, "$.$defs.default allows additional properties"),
    ({**STRICT, "properties": {"a": {"enum": [{"oneOf": 1}], "const": {"not": 1}}}}, None),
]


@pytest.mark.parametrize(("schema", "problem"), PROBLEMS)
def test_what_keeps_a_schema_out_of_the_strict_subset_is_said_with_its_place(schema: Any, problem: str | None) -> None:
    assert strict_problem(schema) == problem


def test_a_format_that_cannot_be_strict_is_sent_without_and_listed() -> None:
    losses: dict[str, None] = {}
    strict, loose = Traits(strict_schemas=True), Traits()
    wanted = ResponseFormat(name="an answer", schema={"type": "object"})
    assert named_format(wanted, strict, losses)["strict"] is False
    assert list(losses) == ['response format "an answer" was sent without strict: $ allows additional properties']
    assert named_format(wanted, loose, losses)["strict"] is True
    kept = ResponseFormat(name="x", schema=STRICT)
    assert named_format(kept, strict, losses) == {"name": "x", "schema": kept.schema, "strict": True}
    assert len(losses) == 1
