"""Content blocks as content parts: text, images, sound, files, and notes in place of what the target does not take."""

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
    TextBlock,
)
from spine.wire import (
    artifact_note,
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


def content_parts(
    blocks: Iterable[ContentBlock], traits: Traits, losses: list[str], *, in_result: bool = False
) -> str | list[Part]:
    """The `content` of a user or tool message: plain text when it is all text, else a list of parts."""
    return text_or_parts((_part(block, traits, losses, in_result=in_result) for block in blocks), "text")


def joined_text(blocks: Iterable[ContentBlock], traits: Traits, losses: list[str]) -> str:
    """The text of an assistant message, with notes in place of what the API does not take back from a model."""
    texts: list[str] = []
    for block in blocks:
        part = _part(block, traits, losses, in_result=True)
        texts.append(part if isinstance(part, str) else "" if part is None else note(block, "a part", losses))
    return "".join(texts)


def _part(block: ContentBlock, traits: Traits, losses: list[str], *, in_result: bool) -> Encoded:
    encode = _PARTS.get(type(block))
    return encode(inlined(block), traits, losses, in_result) if encode is not None else None


def _image(block: ImageBlock, traits: Traits, losses: list[str], in_result: bool) -> Encoded:
    url = data_url(block, traits)
    if url is None or not traits.vision or (in_result and not traits.tool_images):
        return note(block, "an image in a tool result" if in_result and traits.vision and url else "an image", losses)
    return {"type": "image_url", "image_url": {"url": url, **({"detail": block.detail} if block.detail else {})}}


def _audio(block: AudioBlock, traits: Traits, losses: list[str], in_result: bool) -> Encoded:
    return sound_text(block, losses) if block.data is None or not traits.audio or in_result else sound_part(block)


def _document(block: DocumentBlock, traits: Traits, losses: list[str], in_result: bool) -> Encoded:
    if block.data is None or not traits.documents or in_result:
        return note(block, "a document", losses)
    return {"type": "file", "file": file_members(block)}


def _extension(block: ExtensionBlock, traits: Traits, losses: list[str], in_result: bool) -> Encoded:
    leave_out(block, losses)
    return None


_PARTS: Mapping[type, Callable[[Any, Traits, list[str], bool], Encoded]] = {
    TextBlock: lambda block, traits, losses, in_result: block.text,
    JsonBlock: lambda block, traits, losses, in_result: to_json(block.value).decode(),
    ImageBlock: _image,
    AudioBlock: _audio,
    DocumentBlock: _document,
    ArtifactRefBlock: lambda block, traits, losses, in_result: artifact_note(block),
    ExtensionBlock: _extension,
}
