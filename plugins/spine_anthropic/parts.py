"""Content blocks as the API's blocks: text, images, documents, and notes in place of what it does not take.

Source: Anthropic's pages on vision, PDF support and tool use, read 2026-11-30. Results of tools may hold text, images
and documents; answers of a model take nothing but text back. The API refuses text without a visible character.
"""

import base64
import binascii
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
from spine.wire import artifact_note, attachment_url, clean_text, inlined, leave_out, note, sound_text, to_json

Part = dict[str, Any]
_TYPES = {"image/jpg": "image/jpeg"}
"""Types as they are written by mistake, of which the API knows the right one only."""
IMAGE_TYPES = frozenset(("image/gif", "image/jpeg", "image/png", "image/webp"))


def user_parts(blocks: Iterable[ContentBlock], traits: Traits, losses: list[str]) -> list[Part]:
    """What a person or a tool said, in order; blank text is left out."""
    parts = (_part(block, traits, losses) for block in blocks)
    return [part for part in parts if part is not None]


def _part(block: ContentBlock, traits: Traits, losses: list[str]) -> Part | None:
    encode = _PARTS.get(type(block))
    return encode(inlined(block), traits, losses) if encode is not None else None


def said_part(block: ContentBlock, traits: Traits, losses: list[str]) -> Part | None:
    """What a model said: as `user_parts`, with a note in place of what it cannot have said in this API."""
    part = _part(block, traits, losses)
    if part is None or part["type"] == "text":
        return part
    return text_part(note(block, f"the answer's {part['type']}", losses))


def text_part(text: str) -> Part | None:
    """Text; None when there is nothing to be seen."""
    clean = clean_text(text)
    return {"type": "text", "text": clean} if clean and not clean.isspace() else None


def _image(block: ImageBlock, traits: Traits, losses: list[str]) -> Part | None:
    source = _source(block, traits)
    if source is None or not traits.vision or (block.url is None and source["media_type"] not in IMAGE_TYPES):
        return text_part(note(block, "an image", losses))
    if block.detail is not None:
        losses.append("the detail asked for an image was left out")
    return {"type": "image", "source": source}


def _source(block: ImageBlock | DocumentBlock, traits: Traits) -> Part | None:
    if block.url is not None:
        return {"type": "url", "url": attachment_url(block.url, traits)}
    if block.data is not None:
        return {"type": "base64", "media_type": _TYPES.get(block.media_type, block.media_type), "data": block.data}
    return None


def _document(block: DocumentBlock, traits: Traits, losses: list[str]) -> Part | None:
    source = _source(block, traits) if block.media_type == "application/pdf" else _plain_text(block)
    if source is None or not traits.documents:
        return text_part(note(block, "a document", losses))
    title = {"title": clean_text(block.name)} if block.name else {}
    return {"type": "document", "source": source, **title}


def _plain_text(block: DocumentBlock) -> Part | None:
    """Any kind of text is sent as plain text, which is the one kind the API takes."""
    if block.data is None or not block.media_type.startswith("text/"):
        return None
    try:
        text = base64.b64decode(block.data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return {"type": "text", "media_type": "text/plain", "data": text}


def _audio(block: AudioBlock, traits: Traits, losses: list[str]) -> Part | None:
    return text_part(sound_text(block, losses))


def _extension(block: ExtensionBlock, traits: Traits, losses: list[str]) -> None:
    leave_out(block, losses)


_PARTS: Mapping[type, Callable[[Any, Traits, list[str]], Part | None]] = {
    TextBlock: lambda block, traits, losses: text_part(block.text),
    RefusalBlock: lambda block, traits, losses: text_part(block.text),
    JsonBlock: lambda block, traits, losses: text_part(to_json(block.value).decode()),
    ArtifactRefBlock: lambda block, traits, losses: text_part(artifact_note(block)),
    ImageBlock: _image,
    AudioBlock: _audio,
    DocumentBlock: _document,
    ExtensionBlock: _extension,
}
