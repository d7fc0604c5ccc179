"""Content blocks as marked lines (floor 6): what somebody wrote, kept apart from what the runtime says about it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import attrs

from spine.frozen import frozen
from spine.messages import (
    ArtifactRefBlock,
    AudioBlock,
    DocumentBlock,
    ExtensionBlock,
    ImageBlock,
    JsonBlock,
    RefusalBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from spine.projectors.phrases import call_text, counted, json_text, name_text
from spine.projectors.visible import one_line

Mark = Literal["", ">", "<", "!", "?", "~", "+", "["]
"""Prose; a call, its outcome, trouble, waiting for a person, interrupted, steering; a note of what is not shown."""


@frozen
class Line:
    """One thing to show. Prose (no mark), outcomes and steering may hold newlines and any character.

    The text of every other mark is one line without characters that act or hide. `label` says what the prose is, where
    it is not plain text, or where plain text would look like more of what stands above it.
    """

    mark: Mark
    text: str
    label: str | None = None


def labelled(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines, with the label `text` for plain text that follows another kind of prose."""
    after_other_prose = False
    for line in lines:
        if line.mark:
            after_other_prose = line.mark in ("<", "+")
        elif line.label is not None:
            after_other_prose = True
        elif after_other_prose:
            yield attrs.evolve(line, label="text")
            after_other_prose = False
            continue
        yield line


def content_lines(content: Iterable[Any]) -> Iterator[Line]:
    """Lines of content blocks; neighbouring texts are one text, however the wire cut them."""
    texts: list[str] = []
    for block in content:
        if type(block) is TextBlock:
            texts.append(block.text)
            continue
        if texts:
            yield Line("", "".join(texts))
            texts = []
        yield from _BLOCKS[type(block)](block)
    if texts:
        yield Line("", "".join(texts))


_STATUS_WORDS = ("ok:", "error:", "denied:", "timeout:", "interrupted:", "not_started:", "not started:")


def result_lines(result: ToolResultBlock, status: str) -> Iterator[Line]:
    """What the model sees of a result. A status that its text does not name is put before it.

    So is `ok`, where the text of a good result begins like a bad one.
    """
    lines = list(content_lines(result.content))
    text = lines.pop(0).text if lines and lines[0].mark == "" and lines[0].label is None else ""
    named = text.startswith((f"{status}:", f"{status.replace('_', ' ')}:"))
    if not named if status != "ok" else text.startswith(_STATUS_WORDS):
        text = f"{status}: {text}" if text else status
    yield Line("<", text)
    for line in lines:
        yield Line("<", line.text) if line.mark == "" and line.label is None else line


# ------------------------------------------------------------------------------------------------- by kind of block


def _thinking(block: ThinkingBlock) -> Iterator[Line]:
    if block.redacted or not block.text:
        yield Line("[", "thinking, kept by the provider")
    else:
        yield Line("", block.text, "thinking")


def _refusal(block: RefusalBlock) -> Iterator[Line]:
    yield Line("", block.text, "refusal")


def _json(block: JsonBlock) -> Iterator[Line]:
    yield Line("", json_text(block.value))


def _media(block: ImageBlock | AudioBlock | DocumentBlock) -> Iterator[Line]:
    what = type(block).__name__.removesuffix("Block").lower()
    facts = [f"{what} {one_line(block.media_type)}"]
    if isinstance(block, DocumentBlock) and block.name:
        facts.append(json_text(block.name))
    if block.data is not None:
        facts.append(counted(_decoded_size(block.data), "byte"))
    if block.url is not None:
        facts.append(f"at {json_text(block.url)}")
    if block.artifact is not None:
        facts.append(f"stored as {one_line(block.artifact)}")
    yield Line("[", ", ".join(facts))
    if isinstance(block, AudioBlock) and block.transcript:
        yield Line("", block.transcript, "transcript")


def _decoded_size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _artifact(block: ArtifactRefBlock) -> Iterator[Line]:
    size = counted(block.size, "byte")
    yield Line("[", f"{one_line(block.media_type)}, {size}, stored as {one_line(block.digest)}")


def _extension(block: ExtensionBlock) -> Iterator[Line]:
    yield Line("[", f"{name_text(block.kind)} {json_text(block.data)}")


def _given_call(block: ToolCallBlock) -> Iterator[Line]:
    yield Line(">", call_text(block.name, block.arguments, block.arguments_text))


def _given_result(block: ToolResultBlock) -> Iterator[Line]:
    yield from result_lines(block, "error" if block.is_error else "ok")


_BLOCKS: Mapping[type, Callable[[Any], Iterator[Line]]] = {
    JsonBlock: _json,
    ThinkingBlock: _thinking,
    RefusalBlock: _refusal,
    ToolCallBlock: _given_call,
    ToolResultBlock: _given_result,
    ImageBlock: _media,
    AudioBlock: _media,
    DocumentBlock: _media,
    ArtifactRefBlock: _artifact,
    ExtensionBlock: _extension,
}
