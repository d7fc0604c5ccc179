"""The room for authors of wire protocols: everything between a `WireProtocol` and the network.

A protocol is pure code (`spine.llm.protocols.WireProtocol`); `HttpAdapter` turns it into an adapter. What two protocols
would otherwise write twice stands here: the event-stream grammar, JSON in and out, names and ids within a target's
grammar, the meaning of error answers, delays, limits.
"""

from spine.wire.adapter import HttpAdapter
from spine.wire.addresses import attachment_url
from spine.wire.bodies import clean_text, freeze_object, from_json, join_body, to_json
from spine.wire.captured import decode_captured
from spine.wire.counts import Places, read_counts
from spine.wire.decoder import BodyDecoder, Reading
from spine.wire.delays import retry_delay
from spine.wire.draft import Draft, not_ours, out_of_place, settled, truncated
from spine.wire.echo import is_by, own_state
from spine.wire.failures import (
    ErrorReading,
    Rules,
    failure_of,
    http_failure,
    read_error,
    scrub,
    status_category,
    stream_failure,
)
from spine.wire.limits import Deadlines, WireLimits
from spine.wire.memory import MessageMemory, TargetMemory, Written
from spine.wire.names import call_ids, tool_names, wire_name, wire_names
from spine.wire.notes import artifact_note, leave_out, note, sound_text
from spine.wire.options import (
    is_unknown_effort,
    lose_tool_choice,
    read_options,
    refuse_features,
    refuse_foreign_tools,
    refuse_unsupported,
    sampling,
    stop_words,
)
from spine.wire.parts import data_url, file_members, inlined, sound_part, text_or_parts
from spine.wire.results import WrittenMessage, WrittenResult, in_call_order, join_messages
from spine.wire.schemas import closed_schema, named_format, object_schema, strict_problem
from spine.wire.sse import EventStream, ServerEvent
from spine.wire.vocabulary import SHARED, extended, phrase_table

__all__ = [
    "SHARED",
    "BodyDecoder",
    "Deadlines",
    "Draft",
    "ErrorReading",
    "EventStream",
    "HttpAdapter",
    "MessageMemory",
    "Places",
    "Reading",
    "Rules",
    "ServerEvent",
    "TargetMemory",
    "WireLimits",
    "Written",
    "WrittenMessage",
    "WrittenResult",
    "artifact_note",
    "attachment_url",
    "call_ids",
    "clean_text",
    "closed_schema",
    "data_url",
    "decode_captured",
    "extended",
    "failure_of",
    "file_members",
    "freeze_object",
    "from_json",
    "http_failure",
    "in_call_order",
    "inlined",
    "is_by",
    "is_unknown_effort",
    "join_body",
    "join_messages",
    "leave_out",
    "lose_tool_choice",
    "named_format",
    "not_ours",
    "note",
    "object_schema",
    "out_of_place",
    "own_state",
    "phrase_table",
    "read_counts",
    "read_error",
    "read_options",
    "refuse_features",
    "refuse_foreign_tools",
    "refuse_unsupported",
    "retry_delay",
    "sampling",
    "scrub",
    "settled",
    "sound_part",
    "sound_text",
    "status_category",
    "stop_words",
    "stream_failure",
    "strict_problem",
    "text_or_parts",
    "to_json",
    "tool_names",
    "truncated",
    "wire_name",
    "wire_names",
]
