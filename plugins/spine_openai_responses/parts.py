"""Content blocks as input parts: text, images, sound, files, and notes in place of what the target does not take.

Source: the OpenAI reference of input items, read 2026-11-30. Results of tools may hold images and files where the
target takes them; a model's own message takes nothing but text.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spine.llm.catalogue import Traits
from spine.messages import (
    ArtifactRefBlock,
    AudioBlock,
    ContentBlock,
    DocumentBlock,
    ExtensionBlock,
    ImageBlock,
    JsonBlock,
    RefusalBlock,
    TextBlock,
)
from spine.wire import (
    artifact_note,
    attachment_url,
    clean_text,
    data_url,
    file_members,
    inlined,
    leave_out,
    note,
    sound_part,
    sound_text,
    text_or_parts,
    to_json,
)

Part = dict[str, Any]
Encoded = str | Part | None
"""Text, a part of another kind, or nothing."""


def input_content(
    blocks: Iterable[ContentBlock], traits: Traits, losses: list[str], *, in_result: bool = False
) -> str | list[Part]:
    """The content of a user message or the output of a call: plain text when it is all text, else a list of parts."""
    able = not in_result or traits.tool_images
    return text_or_parts((_part(block, traits, losses, able) for block in blocks), "input_text")


def said_text(block: ContentBlock, traits: Traits, losses: list[str]) -> str:
    """A block of a model's message as text, with a note where it is none."""
    part = _part(block, traits, losses, able=False)
    return clean_text(part) if isinstance(part, str) else ""


def _part(block: ContentBlock, traits: Traits, losses: list[str], able: bool) -> Encoded:
    encode = _PARTS.get(type(block))
    return encode(inlined(block), traits, losses, able) if encode is not None else None


def _image(block: ImageBlock, traits: Traits, losses: list[str], able: bool) -> Encoded:
    url = data_url(block, traits)
    if url is None or not traits.vision or not able:
        return note(block, "an image", losses)
    return {"type": "input_image", "image_url": url, "detail": block.detail or "auto"}


def _audio(block: AudioBlock, traits: Traits, losses: list[str], able: bool) -> Encoded:
    return sound_part(block) if block.data is not None and traits.audio and able else sound_text(block, losses)


def _document(block: DocumentBlock, traits: Traits, losses: list[str], able: bool) -> Encoded:
    if not traits.documents or not able or (block.data is None and block.url is None):
        return note(block, "a document", losses)
    if block.data is None:
        return {"type": "input_file", "file_url": attachment_url(block.url or "", traits)}
    return {"type": "input_file", **file_members(block)}


def _extension(block: ExtensionBlock, traits: Traits, losses: list[str], able: bool) -> Encoded:
    leave_out(block, losses)
    return None


_PARTS: Mapping[type, Callable[[Any, Traits, list[str], bool], Encoded]] = {
    TextBlock: lambda block, traits, losses, able: block.text,
    RefusalBlock: lambda block, traits, losses, able: block.text,
    JsonBlock: lambda block, traits, losses, able: to_json(block.value).decode(),
    ArtifactRefBlock: lambda block, traits, losses, able: artifact_note(block),
    ImageBlock: _image,
    AudioBlock: _audio,
    DocumentBlock: _document,
    ExtensionBlock: _extension,
}
