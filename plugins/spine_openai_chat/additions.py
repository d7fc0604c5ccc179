"""What stands in an answer beside text and calls: reasoning state, media, what the provider ran itself.

Kept until the answer ends, because servers repeat it in every event or send it in pieces; the last or merged value
becomes one block. Nothing is dropped: what has no block of its own is an `extension`.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from spine.messages import AudioBlock, ContentBlock, ExtensionBlock, ImageBlock, JsonBlock

_FROM_OBJECT = ("citations", "search_results")
_FROM_DELTA = ("annotations", "executed_tools", "provider_metadata")
_MERGED = ("text", "summary", "data", "signature")
"""Members of a reasoning detail that come in pieces (OpenRouter)."""


def parts_of(content: Any) -> Iterator[tuple[str, Any]]:
    """Wire events of content that is no text: of a list (Mistral, Databricks) text, thinking, and blocks for the rest;
    of anything else one JSON block (Cloudflare sends the object that a response format asked for)."""
    if not isinstance(content, list):
        yield "block", JsonBlock(value=content)
        return
    for part in content:
        if not isinstance(part, dict):
            continue
        kind = part.get("type")
        if kind == "text":
            if part.get("text") and isinstance(part["text"], str):
                yield "text", part["text"]
        elif kind in ("thinking", "reasoning"):
            text = "".join(_texts(part.get("thinking") or part.get("summary") or part.get("text")))
            if text:
                yield "thinking", text
        elif kind == "image_url":
            yield from (("block", block) for block in _images([part]))
        elif kind:
            yield "block", ExtensionBlock(kind=str(kind), data=part)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict) and isinstance(item.get("text"), str):
                yield item["text"]


def _images(items: Any) -> Iterator[ImageBlock]:
    for item in items if isinstance(items, list) else ():
        source = item.get("image_url") if isinstance(item, dict) else None
        url = source.get("url") if isinstance(source, dict) else source
        if not isinstance(url, str) or not url:
            continue
        head, comma, data = url.partition(";base64,")
        if comma and head.startswith("data:"):
            yield ImageBlock(media_type=head[5:] or "image/png", data=data)
        else:
            yield ImageBlock(url=url)


class Additions:
    """Collects what is no delta of a block; `take` gives its blocks once, `states` what goes back with others."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        self._images: list[ImageBlock] = []
        self._audio: list[dict[str, Any]] = []
        self._details: dict[tuple[str, str], dict[str, Any]] = {}
        self._extra: dict[str, Any] = {}

    def from_object(self, payload: Mapping[str, Any]) -> None:
        """Members of the outer object; Perplexity repeats them in each event, so the last one counts."""
        for key in _FROM_OBJECT:
            if payload.get(key):
                self._kept[key] = payload[key]

    def from_delta(self, delta: Mapping[str, Any]) -> None:
        """Members of a delta or a message; lists that come in pieces are joined."""
        for key in _FROM_DELTA:
            value = delta.get(key)
            if value:
                before = self._kept.get(key)
                self._kept[key] = [*before, *value] if isinstance(before, list) and isinstance(value, list) else value
        if delta.get("images"):
            self._images.extend(_images(delta["images"]))
        audio = delta.get("audio")
        if isinstance(audio, dict) and any(audio.get(key) for key in ("id", "data", "transcript")):
            self._audio.append(audio)
        if delta.get("extra_content"):
            self._extra["extra_content"] = delta["extra_content"]

    def add_details(self, details: Any) -> None:
        """Pieces of opaque reasoning: those of one type and index are one."""
        for detail in details if isinstance(details, list) else ():
            if not isinstance(detail, dict):
                continue
            known = self._details.setdefault((str(detail.get("type")), str(detail.get("index"))), {})
            for key, value in detail.items():
                if key in _MERGED and isinstance(value, str) and isinstance(known.get(key), str):
                    known[key] += value
                elif value is not None or key not in known:
                    known[key] = value

    def states(
        self, calls: Mapping[int, dict[str, Any]], *, thinking: int | None, text: int | None
    ) -> dict[int, dict[str, Any]]:
        """By block index: what must go back with it. Message-wide state rides on the first block that may take it."""
        found = {index: dict(data) for index, data in calls.items()}
        if self._details and thinking is not None:
            found[thinking] = {"reasoning_details": list(self._details.values())}
        if self._extra and text is not None:
            found[text] = dict(self._extra)
        return found

    def take(self) -> list[ContentBlock]:
        """The blocks, each time those that were not given before."""
        blocks: list[ContentBlock] = [*self._images]
        if self._audio:
            blocks.append(_audio_block(self._audio))
        blocks.extend(ExtensionBlock(kind=kind, data=value) for kind, value in self._kept.items())
        self._images, self._audio, self._kept = [], [], {}
        return blocks


def _audio_block(pieces: list[dict[str, Any]]) -> AudioBlock:
    data = [piece["data"] for piece in pieces if isinstance(piece.get("data"), str)]
    transcript = "".join(piece["transcript"] for piece in pieces if isinstance(piece.get("transcript"), str))
    return AudioBlock(data=_joined(data), transcript=transcript or None)


def _joined(pieces: list[str]) -> str:
    """Base64 in pieces, of which each may have been padded for itself."""
    if not any(piece.endswith("=") for piece in pieces[:-1]):
        return "".join(pieces)
    try:
        return base64.b64encode(b"".join(base64.b64decode(piece) for piece in pieces)).decode()
    except (binascii.Error, ValueError):
        return "".join(pieces)
