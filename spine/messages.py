"""What a model reads and writes: content blocks, messages, system blocks (floor 1).

All values are frozen deeply and keyword-only; `evolve` returns a changed copy. The words are neutral: what a provider
adds of its own rides in `provider_state` or in an `extension` block and goes back to the same protocol and model only.
"""

from typing import Any, Literal

import attrs

from spine.frozen import frozen
from spine.values import (
    EMPTY_OBJECT,
    CallId,
    Digest,
    Json,
    JsonObject,
    as_tuple,
    freeze,
    freeze_object,
    freeze_optional_object,
)

__all__ = [
    "ArtifactRefBlock",
    "AudioBlock",
    "ContentBlock",
    "DocumentBlock",
    "ExtensionBlock",
    "ImageBlock",
    "JsonBlock",
    "Message",
    "MessageKind",
    "Origin",
    "ProviderState",
    "RefusalBlock",
    "Role",
    "SystemBlock",
    "TextBlock",
    "ThinkingBlock",
    "ToolCallBlock",
    "ToolResultBlock",
    "text_of",
    "user_message",
]

Role = Literal["system", "user", "assistant", "tool"]
"""Who wrote a message; no message in history has the role `system`, a request has its sections apart."""
MessageKind = str
"""What an input is: user, context, memory, skill, steering, child_result, summary, or a plugin's name."""


@frozen(kw_only=True)
class ProviderState:
    """Opaque data of one provider's model (a signature, encrypted reasoning), sent back to that model only."""

    protocol: str
    provider: str
    model: str
    data: Json = attrs.field(converter=freeze)


@frozen(kw_only=True)
class TextBlock:
    """Plain text."""

    text: str
    provider_state: ProviderState | None = None


@frozen(kw_only=True)
class JsonBlock:
    """A JSON value; a target without such a kind gets its canonical text."""

    value: Json = attrs.field(converter=freeze)
    provider_state: ProviderState | None = None


@frozen(kw_only=True)
class ThinkingBlock:
    """Visible reasoning; `redacted` when the provider keeps its text to itself."""

    text: str = ""
    redacted: bool = False
    provider_state: ProviderState | None = None


@frozen(kw_only=True)
class RefusalBlock:
    """The model's refusal, in its own words."""

    text: str
    provider_state: ProviderState | None = None


@frozen(kw_only=True)
class ToolCallBlock:
    """A call the model asks for.

    `arguments` is the parsed object; None when the text was no JSON object, which then stands in `arguments_text`.
    """

    id: CallId
    name: str
    arguments: JsonObject | None = attrs.field(default=None, converter=freeze_optional_object)
    arguments_text: str | None = None
    vendor_id: str | None = None
    provider_state: ProviderState | None = None


@frozen(kw_only=True)
class ImageBlock:
    """An image: exactly one of `data` (base64), `url` and `artifact`. `detail` None leaves it to the provider."""

    media_type: str = "image/png"
    data: str | None = None
    url: str | None = None
    artifact: Digest | None = None
    detail: str | None = None
    provider_state: ProviderState | None = None


@frozen(kw_only=True)
class AudioBlock:
    """Sound: exactly one of `data` (base64), `url` and `artifact`; `transcript` when the provider gave one."""

    media_type: str = "audio/wav"
    data: str | None = None
    url: str | None = None
    artifact: Digest | None = None
    transcript: str | None = None
    provider_state: ProviderState | None = None


@frozen(kw_only=True)
class DocumentBlock:
    """A document (a PDF, say): exactly one of `data` (base64), `url` and `artifact`."""

    media_type: str = "application/pdf"
    data: str | None = None
    url: str | None = None
    artifact: Digest | None = None
    name: str | None = None
    provider_state: ProviderState | None = None


@frozen(kw_only=True)
class ArtifactRefBlock:
    """A reference to content that lies beside the log; a model gets a note that it exists. `size` in bytes."""

    digest: Digest
    media_type: str
    size: int
    provider_state: ProviderState | None = None


@frozen(kw_only=True)
class ExtensionBlock:
    """Anything that fits no other block (server-side tool items, citations): carried, shown, never dropped."""

    kind: str
    data: Json = attrs.field(converter=freeze)
    provider_state: ProviderState | None = None


ResultContent = TextBlock | JsonBlock | ImageBlock | AudioBlock | DocumentBlock | ArtifactRefBlock | ExtensionBlock


@frozen(kw_only=True)
class ToolResultBlock:
    """The answer to one call, exactly as the model gets it."""

    call_id: CallId
    name: str
    content: tuple[ResultContent, ...] = attrs.field(default=(), converter=as_tuple)
    is_error: bool = False
    provider_state: ProviderState | None = None


ContentBlock = (
    TextBlock
    | JsonBlock
    | ThinkingBlock
    | RefusalBlock
    | ToolCallBlock
    | ToolResultBlock
    | ImageBlock
    | AudioBlock
    | DocumentBlock
    | ArtifactRefBlock
    | ExtensionBlock
)
"""Whatever may stand in a message."""


@frozen(kw_only=True)
class Origin:
    """Who wrote an assistant message. `route` is the requested `provider:model`; `model` the one that answered."""

    protocol: str
    route: str
    model: str | None = None
    response_id: str | None = None

    @property
    def provider(self) -> str:
        """The provider's id in the route."""
        return self.route.partition(":")[0]


@frozen(kw_only=True)
class Message:
    """One message; `content` stands in wire order.

    `kind` is None for what a model or a tool wrote, `origin` for everything a model did not write.
    """

    role: Role = "assistant"
    content: tuple[ContentBlock, ...] = attrs.field(default=(), converter=as_tuple)
    kind: MessageKind | None = None
    origin: Origin | None = None
    metadata: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)

    def evolve(self, **changes: Any) -> "Message":
        """This message with some fields replaced."""
        return attrs.evolve(self, **changes)

    @property
    def text(self) -> str:
        """All its text blocks, joined without a separator."""
        return text_of(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCallBlock, ...]:
        """The calls it asks for, in order."""
        return tuple([block for block in self.content if type(block) is ToolCallBlock])


@frozen(kw_only=True)
class SystemBlock:
    """One rendered prompt section. `token_count` is an estimate, None when nobody counted."""

    name: str
    source: str
    text: str
    order: int = 0
    priority: int = 0
    dynamic: bool = False
    token_count: int | None = None
    metadata: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)


def text_of(content: tuple[Any, ...]) -> str:
    """The text blocks of `content`, joined without a separator."""
    return "".join(block.text for block in content if type(block) is TextBlock)


def user_message(text: str, *, kind: MessageKind = "user") -> Message:
    """A user message of one text block."""
    return Message(role="user", content=(TextBlock(text=text),), kind=kind)
