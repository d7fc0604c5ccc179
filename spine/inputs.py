"""What a caller may give a turn (floor 6), and how it is made fit to be stored."""

from collections.abc import Sequence

from spine.codec import Codec
from spine.errors import UsageError
from spine.messages import Message, user_message
from spine.values import freeze_flagged, thaw

Input = str | Message | Sequence[Message]


def input_messages(input: Input) -> tuple[Message, ...]:
    """The messages of an input. Raises `UsageError` for none, and for one that is not the user's."""
    if isinstance(input, str):
        return (user_message(input),)
    messages = (input,) if isinstance(input, Message) else tuple(input)
    if not messages:
        raise UsageError("a turn needs an input; found an empty sequence of messages")
    for message in messages:
        if message.role != "user":
            raise UsageError(f'an input has the role "user", found "{message.role}"; instructions belong in the agent')
    return messages


def clean_message(codec: Codec, message: Message) -> tuple[Message, bool]:
    """The message with lone surrogates replaced, and whether there were any; nothing else is changed."""
    clean, is_changed = freeze_flagged(codec.to_json(message))
    return (codec.from_json(thaw(clean), Message), True) if is_changed else (message, False)
