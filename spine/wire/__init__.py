"""The room for authors of wire protocols: everything between a `WireProtocol` and the network.

A protocol is pure code (`spine.llm.protocols.WireProtocol`); `HttpAdapter` turns it into an adapter. What two protocols
would otherwise write twice stands here: the event-stream grammar, JSON in and out, names and ids within a target's
grammar, the meaning of error answers, delays, limits.
"""

from spine.wire.adapter import HttpAdapter
from spine.wire.bodies import clean_text, freeze_object, from_json, join_body, to_json
from spine.wire.captured import decode_captured
from spine.wire.decoder import BodyDecoder, Reading
from spine.wire.delays import retry_delay
from spine.wire.draft import Draft, not_ours, out_of_place, settled, truncated
from spine.wire.failures import ErrorReading, Rules, failure_of, read_error, scrub, status_category
from spine.wire.limits import Deadlines, WireLimits
from spine.wire.names import wire_name, wire_names
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
    "Reading",
    "Rules",
    "ServerEvent",
    "WireLimits",
    "clean_text",
    "decode_captured",
    "extended",
    "failure_of",
    "freeze_object",
    "from_json",
    "join_body",
    "not_ours",
    "out_of_place",
    "phrase_table",
    "read_error",
    "retry_delay",
    "scrub",
    "settled",
    "status_category",
    "to_json",
    "truncated",
    "wire_name",
    "wire_names",
]
