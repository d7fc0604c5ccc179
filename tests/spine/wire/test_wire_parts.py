"""Parts of content, and JSON Schemas, as OpenAI's protocols write them."""

from typing import Any

import pytest

from spine.llm.catalogue import Traits
from spine.llm.request import ResponseFormat
from spine.messages import AudioBlock, DocumentBlock, ImageBlock
from spine.wire import data_url, file_members, named_format, sound_part, strict_problem, text_or_parts

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
