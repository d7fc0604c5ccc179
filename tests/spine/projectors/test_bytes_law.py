"""Stored bytes and hashes are those of the format, told here slowly: field by field, with nothing prepared."""

import json
from hashlib import sha256
from itertools import groupby
from types import UnionType
from typing import Any, get_args, get_origin

import attrs
from generated import generated_logs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spine.codec import BLOCK_TAGS, CHANGE_TAGS, Codec, chain_hash, genesis
from spine.events import MessageCommitted, ModelChunks, RecordedEvent
from spine.llm import chunks as c
from spine.llm.usage import Usage
from spine.messages import Message, Origin, TextBlock
from spine.values import SessionId, encode

CODEC = Codec()
TAGS = {kind: tag for tag, kind in {**BLOCK_TAGS, **CHANGE_TAGS}.items()}
DELTAS = {c.TextDelta: "text", c.ThinkingDelta: "think", c.RefusalDelta: "refuse", c.ToolCallDelta: "args"}
OTHER_CHUNKS = {
    c.ResponseStarted: "start",
    c.ToolCallStarted: "call",
    c.BlockAdded: "block",
    c.BlockEnded: "end",
    c.UsageReported: "usage",
    c.ProviderEvent: "event",
}


def default_of(field: "attrs.Attribute[Any]") -> Any:
    default: Any = field.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


def is_tagged(declared: Any) -> bool:
    return get_origin(declared) is UnionType and sum(map(attrs.has, get_args(declared))) > 1


def form(value: Any, declared: Any = None) -> Any:
    """The JSON form of a value that stands in a field of the declared type."""
    kind = type(value)
    if kind is tuple and value and type(value[0]) in {*DELTAS, *OTHER_CHUNKS}:
        return chunks_form(value)
    if kind is tuple:
        return [form(item, next(iter(get_args(declared)), None)) for item in value]
    if not attrs.has(kind):
        return value
    fields = attrs.fields(attrs.resolve_types(kind))
    given = {field.name: getattr(value, field.name) for field in fields}
    written = {field.name: given[field.name] != default_of(field) for field in fields}
    if kind in (Usage, Origin):
        items = [item if written[name] else None for name, item in given.items()]
        return items[: max((at + 1 for at, item in enumerate(items) if item is not None), default=0)]
    if kind is TextBlock and is_tagged(declared) and value.provider_state is None:
        return value.text
    made = {field.name: form(given[field.name], field.type) for field in fields if written[field.name]}
    return made | {"type": TAGS[kind]} if is_tagged(declared) else made


def chunks_form(chunks: tuple[Any, ...]) -> list[Any]:
    """One array for each chunk; neighbouring deltas of one kind and block share theirs."""
    arrays: list[Any] = []
    for (kind, index), group in groupby(chunks, lambda chunk: (type(chunk), getattr(chunk, "index", None))):
        if kind in DELTAS:
            arrays.append([DELTAS[kind], index, *(attrs.astuple(chunk)[1] for chunk in group)])
            continue
        for chunk in group:
            parts = [form(getattr(chunk, field.name), field.type) for field in attrs.fields(attrs.resolve_types(kind))]
            if kind is c.UsageReported:
                parts = parts[0]
            elif kind in (c.ToolCallStarted, c.BlockEnded) and parts[-1] is None:
                parts.pop()
            arrays.append([OTHER_CHUNKS[kind], *parts])
    return arrays


INDEXES = st.integers(0, 1)
TEXTS = st.text("ab", max_size=2)
COUNTS = st.none() | st.integers(0, 9)
USAGES = st.just(Usage()) | st.builds(
    Usage,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    total_tokens=COUNTS,
    malformed=st.booleans(),
    raw=st.dictionaries(TEXTS, COUNTS, max_size=1),
)
CHUNKS = st.one_of(
    *(st.builds(kind, INDEXES, TEXTS) for kind in DELTAS),
    st.builds(c.ResponseStarted, st.none() | TEXTS, st.none() | TEXTS),
    st.builds(c.ToolCallStarted, INDEXES, TEXTS, st.none() | TEXTS),
    st.builds(c.BlockAdded, INDEXES, st.builds(TextBlock, text=TEXTS)),
    st.builds(c.BlockEnded, INDEXES),
    st.builds(c.UsageReported, USAGES),
)
ORIGINS = st.builds(Origin, protocol=TEXTS, route=TEXTS, model=st.none() | TEXTS, response_id=st.none() | TEXTS)


@given(st.lists(CHUNKS, max_size=6), USAGES, st.none() | ORIGINS)
def test_short_arrays_are_those_of_the_slow_definition(chunks: list[Any], usage: Usage, origin: Origin | None) -> None:
    """Chunks, counts and origins, whatever stands beside what."""
    events = (
        ModelChunks(chunks=tuple(chunks)),
        MessageCommitted(message=Message(origin=origin), stop_reason="end_turn", usage=usage),
    )
    for event in events:
        assert CODEC.encode_event(event).data == encode(form(event))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(generated_logs())
def test_bytes_and_hashes_are_those_of_the_slow_definition(events: list[RecordedEvent]) -> None:
    """Whatever the codec prepares or remembers, an event's bytes are the canonical JSON of its fields."""
    prev_hash = genesis(SessionId("s"))
    for event in events:
        encoded = CODEC.encode_event(event.data)
        assert encoded.data == encode(form(event.data))
        header = (event.seq, encoded.type, encoded.version, event.at, event.place, encoded.origin, encoded.required)
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        data_hash = sha256(encoded.data).digest()
        slow = sha256(prev_hash + text + data_hash).digest()
        assert chain_hash(prev_hash, header, data_hash) == slow
        prev_hash = slow
