"""What a request must look like for a scripted answer to be the right one (floor 14)."""

from collections.abc import Iterator, Sequence

import attrs

from spine.llm.request import ModelRequest
from spine.messages import JsonBlock, Message, TextBlock, ToolResultBlock
from spine.values import encode

__all__ = ["Expectation", "new_text", "system_text"]


@attrs.frozen(kw_only=True)
class Expectation:
    """Demands on one request; what is None or empty is not looked at."""

    last_role: str | None = None
    """Role of the last message."""
    contains: tuple[str, ...] = ()
    """Texts that stand in what is new: the messages since the model last spoke."""
    lacks: tuple[str, ...] = ()
    """Texts that do not stand there."""
    system_contains: tuple[str, ...] = ()
    """Texts that stand in the system prompt."""
    system_lacks: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    """Names of all tools, in any order."""
    messages: int | None = None
    """How many messages there are."""

    def differences(self, request: ModelRequest) -> Iterator[str]:
        """One phrase for each demand that the request does not meet: `expected last_role tool, found user`."""
        role = request.messages[-1].role if request.messages else "none"
        if self.last_role not in (None, role):
            yield f"expected last_role {self.last_role}, found {role}"
        if self.messages not in (None, len(request.messages)):
            yield f"expected {self.messages} messages, found {len(request.messages)}"
        names = [tool.name for tool in request.tools]
        if self.tools is not None and sorted(self.tools) != sorted(names):
            yield f"expected the tools {_listed(self.tools)}, found {_listed(names)}"
        if self.contains or self.lacks:
            yield from _missing("the new messages", new_text(request), self.contains, self.lacks)
        if self.system_contains or self.system_lacks:
            yield from _missing("the system prompt", system_text(request), self.system_contains, self.system_lacks)


def _missing(where: str, text: str, wanted: Sequence[str], unwanted: Sequence[str]) -> Iterator[str]:
    for part in wanted:
        if part not in text:
            yield f'expected "{part}" in {where}, found {_excerpt(text)}'
    for part in unwanted:
        if part in text:
            yield f'expected {where} without "{part}"'


def _excerpt(text: str) -> str:
    flat = " ".join(text.split())
    return f'"{flat}"' if len(flat) <= 80 else f'"{flat[:79]}…"'


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def new_text(request: ModelRequest) -> str:
    """The text of all messages since the model last spoke, results of tools included; JSON as its canonical text."""
    new: list[Message] = []
    for message in reversed(request.messages):
        if message.role == "assistant":
            break
        new.append(message)
    return "\n".join(text for message in reversed(new) for text in _texts(message.content))


def system_text(request: ModelRequest) -> str:
    """The text of the system prompt, its sections parted by an empty line."""
    return "\n\n".join(block.text for block in request.system)


def _texts(content: Sequence[object]) -> Iterator[str]:
    for block in content:
        match block:
            case TextBlock(text=text):
                yield text
            case JsonBlock(value=value):
                yield encode(value).decode()
            case ToolResultBlock(content=inner):
                yield from _texts(inner)
