"""What a caller may give a turn (floor 6), directly or through the inbox, and how it is made fit to be stored."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spine.codec import Codec
from spine.errors import UsageError
from spine.events import ApprovalDecided, CancelRequested, InputAccepted
from spine.messages import Message, TextBlock, user_message
from spine.values import clean_text, freeze_flagged, thaw

Input = str | Message | Sequence[Message]


def input_messages(input: Input) -> tuple[Message, ...]:
    """The messages of an input. Raises `UsageError` for none, and for one that is not the user's."""
    if isinstance(input, str) and input:
        return (user_message(input),)
    messages = (input,) if isinstance(input, Message) else input
    if not isinstance(messages, (tuple, list)):
        found = "an empty text" if messages == "" else type(messages).__name__
        raise UsageError(f"a turn needs an input; found {found}; accepted are text, a Message, or a list of messages")
    if not messages:
        raise UsageError("a turn needs an input; found an empty sequence of messages")
    for message in messages:
        if not isinstance(message, Message):
            raise UsageError(f"an input is made of messages, found {type(message).__name__}; see spine.user_message")
        if message.role != "user":
            raise UsageError(f'an input has the role "user", found "{message.role}"; instructions belong in the agent')
    return tuple(messages)


def clean_message(codec: Codec, message: Message) -> tuple[Message, bool]:
    """The message with lone surrogates replaced, and whether there were any; nothing else is changed.

    Raises `UsageError` for a message that could not be read again: a number where text belongs, no block at all.
    """
    if _is_plain(message):
        return message, False
    try:
        clean, is_changed = freeze_flagged(codec.to_json(message))
        read = codec.from_json(thaw(clean), Message)
    except Exception as exc:
        raise UsageError(f"a message of the input cannot be recorded: {type(exc).__name__}: {exc}") from exc
    if is_changed:
        return read, True
    if read != message:
        raise UsageError("a message of the input cannot be recorded: it reads back as another one")
    return message, False


def _is_plain(message: Message) -> bool:
    """Whether a message is what `user_message` makes of ASCII text: nothing of it can be amiss."""
    if len(message.content) != 1 or message.kind != "user" or message.origin is not None or message.metadata:
        return False
    block = message.content[0]
    if type(block) is not TextBlock or block.provider_state is not None:
        return False
    return type(block.text) is str and block.text.isascii()


def checked_text(name: str, value: object) -> str:
    """An argument that must be text, with lone surrogates replaced. Raises `UsageError` for anything else."""
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text, found {type(value).__name__}")
    return clean_text(str.__str__(value))


def checked_optional_text(name: str, value: object) -> str | None:
    """`checked_text`, but for None."""
    return None if value is None else checked_text(name, value)


InboxEvent = InputAccepted | CancelRequested | ApprovalDecided
_INBOX: Final[Mapping[str, type[InboxEvent]]] = {
    "input": InputAccepted,
    "cancel": CancelRequested,
    "decision": ApprovalDecided,
}


def inbox_event(codec: Codec, kind: str, data: Mapping[str, Any], key: str) -> InboxEvent:
    """The event that a request in a session's inbox becomes: its data are the event's own fields.

    Raises `UsageError` for an unknown kind and for data that do not fit it.
    """
    wanted = _INBOX.get(kind)
    if wanted is None:
        raise UsageError(f'a request of the kind "{kind}" was found in an inbox; kinds are {", ".join(_INBOX)}')
    ours: Mapping[str, Mapping[str, Any]] = {
        "input": {"key": key},
        "cancel": {"failure": None},
        "decision": {"channel": "inbox"},
    }
    try:
        event = codec.from_json({**data, **ours[kind]}, wanted)
    except UsageError:
        raise
    except Exception as exc:
        raise UsageError(f"a request of the kind {kind} does not fit {wanted.__name__}: {exc!r}") from exc
    if isinstance(event, InputAccepted):
        input_messages(event.message)
    return event
