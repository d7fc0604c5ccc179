"""Parts of a message's content as OpenAI's protocols write them (side room `wire`)."""

import base64
from collections.abc import Iterable
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import attrs

from spine.llm.catalogue import Traits
from spine.llm.errors import provider_error
from spine.messages import AudioBlock, DocumentBlock, ImageBlock
from spine.wire.addresses import attachment_url
from spine.wire.bodies import clean_text

__all__ = ["data_url", "file_members", "inlined", "sound_part", "text_or_parts"]

_CAREFUL = Traits()
_FORMATS = {"mpeg": "mp3"}
B = TypeVar("B")


def inlined(block: B) -> B:
    """`block`, its data where they belong when it has them in a data URL (RFC 2397): few targets take those as an
    address. Raises `invalid_request` for one that has no data."""
    media: Any = block
    url = media.url if isinstance(block, ImageBlock | AudioBlock | DocumentBlock) else None
    if not url or url[:5].lower() != "data:":
        return block
    head, comma, data = url[5:].partition(",")
    if not comma:
        raise provider_error("invalid_request", "the address of an attachment is a data URL without data")
    kind, *parameters = (word.strip().lower() for word in head.split(";"))
    content = unquote_to_bytes(data)
    is_encoded = "base64" in parameters
    text = content.decode("latin-1") if is_encoded else base64.b64encode(content).decode()
    found: B = attrs.evolve(media, url=None, data=text, media_type=kind or media.media_type)
    return found


def text_or_parts(parts: Iterable[str | dict[str, Any] | None], text_type: str) -> str | list[dict[str, Any]]:
    """The content of a message: plain text when it is all text, else a list, its texts as parts of `text_type`.

    Texts of plain content are parted by a blank line. Empty text is left out; `""` means there is nothing.
    """
    found = [part for part in parts if part]
    if all(isinstance(part, str) for part in found):
        return clean_text("\n\n".join(str(part) for part in found))
    return [{"type": text_type, "text": clean_text(part)} if isinstance(part, str) else part for part in found]


def data_url(block: ImageBlock, traits: Traits = _CAREFUL) -> str | None:
    """Where an image is, or the image itself as a data URL; None when it lies beside the log.

    Raises `invalid_request` for an address that is not passed on (`spine.wire.attachment_url`).
    """
    if block.url:
        return attachment_url(block.url, traits)
    return f"data:{block.media_type};base64,{block.data}" if block.data is not None else None


def sound_part(block: AudioBlock) -> dict[str, Any]:
    """Sound that is there as data."""
    kind = block.media_type.partition("/")[2].removeprefix("x-")
    return {"type": "input_audio", "input_audio": {"data": block.data, "format": _FORMATS.get(kind, kind)}}


def file_members(block: DocumentBlock) -> dict[str, str]:
    """Name and data of a document that is there as data; one without a name gets one of its kind."""
    name = clean_text(block.name or "") or f"document.{block.media_type.partition('/')[2] or 'bin'}"
    return {"filename": name, "file_data": f"data:{block.media_type};base64,{block.data}"}
