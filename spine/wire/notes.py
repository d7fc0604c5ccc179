"""Words in place of what a target does not take (side room `wire`)."""

from typing import Any

from spine.messages import ArtifactRefBlock, AudioBlock, ExtensionBlock

__all__ = ["artifact_note", "leave_out", "note", "sound_text"]


def note(block: Any, what: str, losses: list[str]) -> str:
    """A few words where `block` was, which is `what` ("an image"); the loss is added to `losses`."""
    losses.append(f"{what} was replaced by a note")
    media_type = getattr(block, "media_type", None)
    return f"[{what} not shown{': ' + media_type if media_type else ''}]"


def artifact_note(block: ArtifactRefBlock) -> str:
    """What a model is told of content that lies beside the conversation."""
    return f"[content {block.digest[:14]} of type {block.media_type}, {block.size} bytes, kept beside the conversation]"


def sound_text(block: AudioBlock, losses: list[str]) -> str:
    """What was said, where sound cannot be sent, or a note when nobody wrote it down; `losses` tell of either."""
    if not block.transcript:
        return note(block, "sound", losses)
    losses.append("sound was replaced by its transcript")
    return block.transcript


def leave_out(block: ExtensionBlock, losses: list[str]) -> None:
    """A block of another provider's own means nothing to this one: only `losses` tell of it."""
    losses.append(f'an extension block "{block.kind}" was left out')
