"""Words in place of what a target does not take (side room `wire`)."""

from typing import Any

from spine.messages import ArtifactRefBlock

__all__ = ["artifact_note", "note"]


def note(block: Any, what: str, losses: list[str]) -> str:
    """A few words where `block` was, which is `what` ("an image"); the loss is added to `losses`."""
    losses.append(f"{what} was replaced by a note")
    media_type = getattr(block, "media_type", None)
    return f"[{what} not shown{': ' + media_type if media_type else ''}]"


def artifact_note(block: ArtifactRefBlock) -> str:
    """What a model is told of content that lies beside the conversation."""
    return f"[content {block.digest[:14]} of type {block.media_type}, {block.size} bytes, kept beside the conversation]"
