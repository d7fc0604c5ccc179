"""Values and events to canonical JSON and back (floor 5): the only file that knows cattrs.

Rules of the format:

- A field equal to its default is left out, so adding an optional field changes no stored byte and no digest.
- Unions carry an explicit `type`, looked up here before anything is built; a text block with nothing but text is
  written as a bare JSON string.
- `Usage` and `Origin` are arrays of their fields in order, null for a default, cut after the last that is none.
- Chunks are written as short arrays, neighbouring deltas of one block joined into one array; reading expands them.
- Text over 64 KiB inside an event lies beside the log: the data then begins with the key `$contents`, which maps the
  JSON pointer of each such text to its digest.
- Unknown extra fields are kept (stored bytes are never rewritten) and reported by `unknown_fields`.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from hashlib import sha256
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args

import attrs

from spine import late
from spine.beside import MARK, bring_in, move_beside
from spine.chunk_arrays import read_chunks, write_chunks
from spine.drafts import is_plain, maker
from spine.errors import LogBroken, StoreError, UsageError, ValueTooLarge
from spine.events import (
    CORE_EVENTS,
    Change,
    EventType,
    FieldChange,
    InputAccepted,
    MessageCommitted,
    RecordedEvent,
    Splice,
    UnknownEvent,
)
from spine.llm import chunks as c
from spine.llm.usage import Usage
from spine.messages import (
    ArtifactRefBlock,
    AudioBlock,
    ContentBlock,
    DocumentBlock,
    ExtensionBlock,
    ImageBlock,
    JsonBlock,
    Message,
    Origin,
    RefusalBlock,
    ResultContent,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from spine.readers import (
    PRIMITIVES,
    Reader,
    array_of,
    array_reader,
    exact,
    is_optional,
    is_variadic_tuple,
    object_reader,
    optional_reader,
    read_json,
    read_json_object,
    tuple_reader,
)
from spine.recorded import ERASED_KEY, data_hash, is_erased
from spine.store import INLINE_CONTENT_BYTES, MAX_EVENT_BYTES, Content, Row
from spine.tools import ServerTool, ToolDefinition
from spine.values import (
    Digest,
    Json,
    JsonObject,
    SessionId,
    decode,
    encode,
    encode_flat,
    freeze_object,
    parse,
    raw,
)

T = TypeVar("T")

MAX_KEPT_MESSAGES = 256
MAX_KEPT_BYTES = 16 * 1024
_WITH_MESSAGE = frozenset((InputAccepted, MessageCommitted))
_NO_READER: tuple[None, Reader, type] = (None, exact(str), str)
"""For types that are not known or were not met yet: it is of no version."""
HASH_FORMAT = b"agent-spine/1\n"
_CORE_PREFIXES = frozenset(kind.name.partition(".")[0] for kind in CORE_EVENTS)
BLOCK_TAGS: Mapping[str, type] = {
    "text": TextBlock,
    "json": JsonBlock,
    "thinking": ThinkingBlock,
    "refusal": RefusalBlock,
    "tool_call": ToolCallBlock,
    "tool_result": ToolResultBlock,
    "image": ImageBlock,
    "audio": AudioBlock,
    "document": DocumentBlock,
    "artifact_ref": ArtifactRefBlock,
    "extension": ExtensionBlock,
}
CHANGE_TAGS: Mapping[str, type] = {"field": FieldChange, "splice": Splice}
_TOOL_TAGS: Mapping[str, type] = {"function": ToolDefinition, "server": ServerTool}


class Encoded(NamedTuple):
    """An event's data as it is stored, with what must lie beside the log."""

    type: str
    version: int
    required: bool
    origin: str | None
    data: bytes
    contents: tuple[Content, ...] = ()


_Kind = tuple[str, int, bool, str | None]
"""The first fields of `Encoded`, the same for all events of a class."""
_encoded: Callable[[tuple[Any, ...]], Encoded] = partial(tuple.__new__, Encoded)
"""`Encoded._make` without its checks."""


# ------------------------------------------------------------------------------------------------------- hashes


def genesis(session: SessionId) -> bytes:
    """The `prev_hash` of a session's first event: binds its chain to its id."""
    return sha256(HASH_FORMAT + session.encode()).digest()


def chain_hash(
    prev_hash: bytes, row: tuple[int, str, int, int, str | None, str | None, bool], data_hash: bytes
) -> bytes:
    """SHA-256 over the previous hash, the header (seq, type, version, at, place, origin, required), the data's hash."""
    return sha256(prev_hash + encode_flat(row) + data_hash).digest()


def row_hash(prev_hash: bytes, row: Row) -> bytes:
    """The hash that a stored row must have after `prev_hash`."""
    header = (row.seq, row.type, row.version, row.at, row.place, row.origin, row.required)
    return chain_hash(prev_hash, header, data_hash(row.data))


# -------------------------------------------------------------------------------------------------------- codec


class Codec:
    """Knows all event types of core and plugins; encodes and decodes their data, and plain values."""

    def __init__(self, event_types: Iterable[tuple[EventType, str | None]] = ()) -> None:
        """`event_types`: those of plugins, each with its origin `plugin@version`."""
        self._converter = _converter()
        self._write_message = self._converter.get_unstructure_hook(Message)
        self._written: dict[int, tuple[Message, bytes]] = {}
        """Bytes of the last messages that events brought, by the message's identity, until they are asked for."""
        self._record: Callable[..., RecordedEvent] = maker(RecordedEvent)
        self._by_name: dict[str, EventType] = {}
        self._by_class: dict[type, tuple[EventType, str | None]] = {}
        # Making these takes a millisecond for each type, and most processes meet few types.
        self._writers: dict[type, tuple[_Kind, Callable[[Any], Any]]] = {}
        self._readers: dict[str, tuple[int, Reader, type]] = {}
        for event_type in CORE_EVENTS:
            self.add(event_type, None)
        for event_type, origin in event_types:
            self.add(event_type, origin)

    def add(self, event_type: EventType, origin: str | None) -> None:
        """Learn a plugin's event type. Raises `UsageError` for a bad or taken name and for a gap in its upcasters."""
        name = event_type.name
        if origin is not None and (
            "." not in name or name.partition(".")[0] in _CORE_PREFIXES or not name.isprintable()
        ):
            raise UsageError(
                f'event type "{event_type.name}" of {origin} is not of the form plugin.name; '
                f"the core keeps {', '.join(sorted(_CORE_PREFIXES))}"
            )
        if event_type.data in self._by_class:
            raise UsageError(f'event type "{event_type.name}": {event_type.data.__name__} is the data of another type')
        if event_type.name in self._by_name:
            raise UsageError(f'event type "{event_type.name}" is declared twice; {origin} came second')
        missing = [v for v in range(1, event_type.version) if v not in event_type.upcasters]
        if missing:
            raise UsageError(f'event type "{event_type.name}" has no upcaster from version {missing[0]}')
        self._by_name[event_type.name] = event_type
        self._by_class[event_type.data] = (event_type, origin)
        if origin is not None:  # what is wrong with a plugin's class shows when it is registered
            self._writer(event_type.data)
            self._reader(event_type)

    def _writer(self, kind: type) -> tuple[_Kind, Callable[[Any], Any]]:
        known = self._by_class.get(kind)
        if known is None:
            raise UsageError(f"{kind.__name__} is no declared event type")
        event_type, origin = known
        write = self._converter.get_unstructure_hook(kind)
        header = (event_type.name, event_type.version, event_type.required, origin)
        made = self._writers[kind] = (header, self._keeping_message(write) if kind in _WITH_MESSAGE else write)
        return made

    def _reader(self, event_type: EventType) -> tuple[int, Reader, type]:
        kind = event_type.data
        made = self._readers[event_type.name] = (event_type.version, self._converter.get_structure_hook(kind), kind)
        return made

    def remove(self, origin: str) -> None:
        """Forget the event types of a plugin, `plugin@version`: its stored events read as unknown from then on."""
        gone = [known for known, declared_by in self._by_class.values() if declared_by == origin]
        for event_type in gone:
            del self._by_name[event_type.name], self._by_class[event_type.data]
            del self._readers[event_type.name], self._writers[event_type.data]

    def event_type(self, name: str) -> EventType | None:
        """The declared type of that name, None when it is unknown here."""
        return self._by_name.get(name)

    def encode_event(self, event: Any) -> Encoded:
        """The stored form of an event's data. Raises `ValueTooLarge` over the limits, before anything happened."""
        kind, write = self._writers.get(type(event)) or self._writer(type(event))
        data = encode(write(event))
        if len(data) <= INLINE_CONTENT_BYTES:
            return _encoded((*kind, data, ()))
        data, contents = move_beside(data)
        if len(data) > MAX_EVENT_BYTES:
            raise ValueTooLarge(f"{kind[0]} has {len(data):,} bytes; an event may have {MAX_EVENT_BYTES:,}")
        return _encoded((*kind, data, contents))

    def knows(self, row: Row) -> bool:
        """Whether the type and version of a row are known here."""
        event_type = self._by_name.get(row.type)
        return event_type is not None and row.version <= event_type.version

    def decode_row(
        self, session: SessionId, row: Row, prev_hash: bytes, contents: Callable[[Digest], bytes]
    ) -> RecordedEvent:
        """The event of a stored row; `UnknownEvent` data when its type or version is not known here.

        Raises `LogBroken` with the seq when a known type's data does not fit its class.
        """
        seq, kind, version, at, place, origin, required, stored, this_hash = row
        data = self._decode_usual(kind, version, stored) or self._decode_any(row, contents)
        return self._record(session, seq, kind, version, at, place, origin, required, data, prev_hash, this_hash)

    def decode_data(self, row: Row, contents: Callable[[Digest], bytes]) -> Any:
        """The data of `decode_row` alone, with the same errors."""
        return self._decode_usual(row.type, row.version, row.data) or self._decode_any(row, contents)

    def _decode_usual(self, kind: str, version: int, stored: bytes) -> Any:
        """Data of a type and version that were read before, with nothing beside the log; None for any other."""
        known, read, wanted = self._readers.get(kind, _NO_READER)
        if known != version:
            return None
        try:
            data = parse(stored)
            return None if MARK in data else read(data, wanted)
        except Exception:  # the long way says what is wrong with it
            return None

    def _decode_any(self, row: Row, contents: Callable[[Digest], bytes]) -> Any:
        event_type = self._by_name.get(row.type)
        try:
            data = decode(row.data)
            if MARK in data:
                data = bring_in(data, contents)
            if event_type is None or row.version > event_type.version:
                return UnknownEvent(freeze_object(data))
            if row.version < event_type.version:
                for version in range(row.version, event_type.version):
                    data = event_type.upcasters[version](data)
            _, read, kind = self._readers.get(row.type) or self._reader(event_type)
            return read(data, kind)
        except StoreError:
            raise
        except Exception as exc:
            if is_erased(row.data):  # of a plugin, whose type does not say what it can do without
                return UnknownEvent(freeze_object(data), is_erased=event_type is not None)
            raise LogBroken(
                f"seq {row.seq} ({row.type}): its data does not fit the type: {exc!r}", seq=row.seq
            ) from exc

    def unknown_fields(self, row: Row) -> tuple[str, ...]:
        """JSON paths of fields in a stored event that its class does not know; empty for unknown types."""
        event_type = self._by_name.get(row.type)
        if event_type is None or row.version > event_type.version:
            return ()
        data = decode(row.data)
        data.pop(MARK, None)
        data.pop(ERASED_KEY, None)
        for version in range(row.version, event_type.version):
            data = event_type.upcasters[version](data)
        _, make, kind = self._reader(event_type)
        read = make(data, kind)
        known = decode(encode(self._writer(event_type.data)[1](read)))
        return tuple(_extra_paths(data, known, "$"))

    def message_bytes(self, message: Message) -> bytes:
        """The canonical bytes of a message, over which requests are digested."""
        kept, written = self._written.pop(id(message), (None, b""))
        return written if kept is message else encode(self._write_message(message))

    def _keeping_message(self, write: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A writer whose message is written as bytes, which are kept for the request that follows."""
        kept = self._written

        def write_event(event: Any) -> Any:
            form = write(event)
            written = encode(form["message"])
            form["message"] = raw(written)
            if len(kept) >= MAX_KEPT_MESSAGES:
                kept.clear()
            if len(written) <= MAX_KEPT_BYTES:
                kept[id(event.message)] = (event.message, written)
            return form

        return write_event

    def to_json(self, value: Any) -> Any:
        """The plain JSON form of any of our values (messages, definitions, usage, …)."""
        return self._converter.unstructure(value)

    def reads_back(self, value: Any) -> bool:
        """Whether what is written of a value can be read again; foreign code may have put anything into its fields."""
        try:
            return bool(self.from_json(decode(encode(self.to_json(value))), type(value)) == value)
        except Exception:
            return False

    def from_json(self, data: Any, kind: type[T]) -> T:
        """The value that `to_json` wrote."""
        value: T = self._converter.structure(data, kind)
        return value


def _extra_paths(data: Any, known: Any, path: str) -> Iterable[str]:
    if isinstance(data, dict) and isinstance(known, str):  # a text block, whose short form is its text
        known = {"type": "text", "text": known}
    if isinstance(data, dict) and isinstance(known, dict):
        for key, item in data.items():
            if key in known:
                yield from _extra_paths(item, known[key], f"{path}.{key}")
            elif item not in (None, False, 0, "", [], {}):  # a default that an older writer spelt out
                yield f"{path}.{key}"
    elif isinstance(data, list) and isinstance(known, list) and len(data) == len(known):
        for i, (item, other) in enumerate(zip(data, known, strict=True)):
            yield from _extra_paths(item, other, f"{path}[{i}]")


# ---------------------------------------------------------------------------------------------------- converter


@cache
def _converter() -> Any:
    # One for the process: making the hooks of all types takes 50 ms, and nothing of a Codec's own goes into it.
    cattrs = late.load("cattrs")
    identity = cattrs.fns.identity
    converter = cattrs.Converter(omit_if_default=True, detailed_validation=False)
    converter.register_structure_hook_func(lambda kind: kind == Json, read_json)
    converter.register_unstructure_hook_func(lambda kind: kind == Json, identity)
    converter.register_structure_hook(JsonObject, read_json_object)
    converter.register_unstructure_hook(JsonObject, identity)
    for kind in PRIMITIVES:
        converter.register_structure_hook(kind, exact(kind))
    hook_of = converter.get_structure_hook
    making: set[type] = set()

    def class_reader(kind: type) -> Reader:
        if kind in making:  # a class that holds itself
            return lambda value, _: hook_of(kind)(value, kind)
        making.add(kind)
        try:
            return object_reader(kind, hook_of)
        finally:
            making.discard(kind)

    converter.register_structure_hook_factory(is_plain, class_reader)
    converter.register_structure_hook_factory(is_optional, lambda kind: optional_reader(kind, hook_of))
    converter.register_structure_hook_factory(is_variadic_tuple, lambda kind: tuple_reader(kind, hook_of))
    converter.register_unstructure_hook_factory(is_variadic_tuple, _tuple_writer)
    converter.register_unstructure_hook_factory(is_optional, _optional_writer)
    for kind in (Usage, Origin):
        _as_array(converter, kind)
    for union in (ContentBlock, ResultContent):
        _tagged_union(converter, union, BLOCK_TAGS, bare_text=True)
    _tagged_union(converter, Change, CHANGE_TAGS)
    _tagged_union(converter, ToolDefinition | ServerTool, _TOOL_TAGS)
    converter.register_structure_hook_func(
        lambda kind: kind == tuple[c.Chunk, ...], lambda value, _: read_chunks(converter, value)
    )
    converter.register_unstructure_hook_func(
        lambda kind: kind == tuple[c.Chunk, ...], lambda value: write_chunks(converter, value)
    )
    return converter


def _tuple_writer(kind: Any, converter: Any) -> Callable[[Any], Any]:
    write = converter.get_unstructure_hook(get_args(kind)[0])
    return write if _is_identity(write) else lambda values: [write(value) for value in values]


def _optional_writer(kind: Any, converter: Any) -> Callable[[Any], Any]:
    write = converter.get_unstructure_hook(next(argument for argument in get_args(kind) if argument is not NoneType))
    return write if _is_identity(write) else lambda value: None if value is None else write(value)


def _is_identity(write: Callable[[Any], Any]) -> bool:
    """Whether cattrs writes out classes that read such a field without a call."""
    return write is late.load("cattrs").fns.identity


def _as_array(converter: Any, kind: type) -> None:
    fields = attrs.fields(kind)
    names = tuple(field.name for field in fields)
    # A default other than None is written as null, too.
    unlike_none = [(i, f.default) for i, f in enumerate(fields) if f.default not in (None, attrs.NOTHING)]
    members = attrgetter(*names)

    def write(value: Any) -> list[Any]:
        items = list(members(value))
        for i, default in unlike_none:
            if items[i] == default:
                items[i] = None
        while items and items[-1] is None:
            items.pop()
        return items

    converter.register_unstructure_hook(kind, write)
    converter.register_structure_hook(kind, array_reader(kind, converter.get_structure_hook))


def _tagged_union(converter: Any, union: Any, tags: Mapping[str, type], *, bare_text: bool = False) -> None:
    members = {tag: kind for tag, kind in tags.items() if kind in get_args(union)}
    tag_of = {kind: tag for tag, kind in members.items()}
    writers: dict[type, Callable[[Any], dict[str, Any]]] = {}
    readers: dict[str, Reader] = {}
    make_text = maker(TextBlock, "text")

    def write(value: Any) -> Any:
        kind = type(value)
        if bare_text and kind is TextBlock and value.provider_state is None:
            return value.text
        writer = writers.get(kind)
        if writer is None:
            writer = writers[kind] = converter.get_unstructure_hook(kind)
        data = writer(value)
        data["type"] = tag_of[kind]
        return data

    def read(value: Any, _: Any) -> Any:
        if type(value) is str and bare_text:
            return make_text(value)
        tag = value.get("type") if isinstance(value, dict) else None
        return (readers.get(tag) or reader_of(tag))(value, union)  # type: ignore[arg-type]

    def reader_of(tag: Any) -> Reader:
        if tag not in members:
            raise TypeError(f"unknown type {tag!r}; known here: {', '.join(members)}")
        made: Reader = converter.get_structure_hook(members[tag])
        readers[tag] = made
        return made

    converter.register_unstructure_hook_func(lambda kind: kind == union, write)
    converter.register_structure_hook_func(lambda kind: kind == union, read)
    read_all = array_of(read, union, make_text if bare_text else None)
    converter.register_structure_hook_func(lambda kind: kind == tuple[union, ...], read_all)
