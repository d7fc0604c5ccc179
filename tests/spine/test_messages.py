"""Messages and blocks: frozen, keyword-only, in wire order."""

import attrs
import pytest

from spine import messages
from spine.errors import ValueRefused
from spine.messages import (
    ExtensionBlock,
    JsonBlock,
    Message,
    Origin,
    ProviderState,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    text_of,
    user_message,
)
from spine.values import CallId, JsonObject

BLOCKS = [kind for kind in vars(messages).values() if isinstance(kind, type) and kind.__name__.endswith("Block")]


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.__name__)
def test_blocks_are_frozen_and_take_keywords_only(kind: type) -> None:
    """No block can be changed or built by position; each may carry a provider's state."""
    with pytest.raises(TypeError):
        kind("x")
    names = [field.name for field in attrs.fields(kind)]
    assert "provider_state" in names or kind.__name__ == "SystemBlock"
    assert not hasattr(kind, "__dict__") or "__slots__" in vars(kind)


def test_the_text_of_a_message_is_that_of_its_text_blocks() -> None:
    """Thinking, results and JSON are not text; the pieces are joined without a separator."""
    content = (ThinkingBlock(text="Hm."), TextBlock(text="a"), JsonBlock(value={"x": 1}), TextBlock(text="b"))
    assert Message(content=content).text == text_of(content) == "ab"


def test_calls_stand_in_order() -> None:
    """`tool_calls` selects, and keeps the order of the wire."""
    calls = tuple(ToolCallBlock(id=CallId(f"c{n}"), name="x") for n in range(3))
    message = Message(content=(calls[0], TextBlock(text="."), calls[1], calls[2]))
    assert message.tool_calls == calls


def test_json_fields_are_frozen_at_the_door() -> None:
    """Arguments, values, data and metadata are read-only whatever was given."""
    block = ToolCallBlock(id=CallId("c"), name="x", arguments={"a": [1]})
    assert block.arguments == {"a": (1,)}
    assert ToolCallBlock(id=CallId("c"), name="x").arguments is None
    assert ExtensionBlock(kind="k", data=[{}]).data == (JsonObject(),)
    assert ProviderState(protocol="p", provider="q", model="m", data=[1]).data == (1,)
    assert Message(metadata={"k": [1]}).metadata == {"k": (1,)}
    with pytest.raises(ValueRefused):
        JsonBlock(value=float("nan"))


def test_content_is_a_tuple_whatever_was_given() -> None:
    """A list is copied; a text is refused."""
    content = [TextBlock(text="a")]
    message = Message(content=content)  # type: ignore[arg-type]
    result = ToolResultBlock(call_id=CallId("c"), name="x", content=content)  # type: ignore[arg-type]
    content.clear()
    assert (len(message.content), len(result.content)) == (1, 1)
    with pytest.raises(ValueRefused):
        Message(content="text")  # type: ignore[arg-type]


def test_evolve_returns_a_changed_copy() -> None:
    """The original stays."""
    message = user_message("a")
    assert message.evolve(kind="context").kind == "context"
    assert (message.kind, message.role, message.text) == ("user", "user", "a")


def test_an_origin_knows_its_provider() -> None:
    """The provider is the route's first half, split at the first colon."""
    assert Origin(protocol="p", route="ollama:llama3:8b").provider == "ollama"
