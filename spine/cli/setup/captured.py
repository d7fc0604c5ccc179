"""What went over the wire in a step of a stored session (floor 15), for `spine decode --session`."""

from spine.cli.reading import reading_session
from spine.errors import UsageError
from spine.events import RecordedEvent
from spine.stored import StoredLog
from spine.values import Json, decode

__all__ = ["captured_response"]


def captured_response(store: str | None, session: str | None, step: str | None, attempt: int | None) -> Json:
    """The captured response of a step's attempt; by default the last step that has one, and its last attempt.

    Raises `UsageError` when there is none: nothing was captured, or no answer began.
    """
    with reading_session(store, session) as reader:
        event = _chosen(reader, step, attempt)
        if event.data.response is None:
            raise UsageError(f"no answer began in attempt {event.data.attempt} of {event.place}", hint="spine log")
        found: Json = decode(reader.content(event.data.response))
        return found


def _chosen(reader: StoredLog, step: str | None, attempt: int | None) -> RecordedEvent:
    captured = [event for event in reader.read(types=("wire.captured",)) if step in (None, event.place)]
    chosen = [event for event in captured if attempt in (None, event.data.attempt)]
    if not chosen:
        where = f"attempt {attempt} of {step or 'any step'}" if attempt is not None else step or "any step"
        raise UsageError(f"nothing was captured in {where} of {reader.session}", hint='spine run --capture-wire "…"')
    return chosen[-1]
