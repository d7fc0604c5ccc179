"""Ids, frozen JSON and its one canonical encoding, digests and secrets (floor 0).

`freeze` is the only door into a JSON field of a stored value: what comes out is deeply read-only and can be written
as canonical JSON. `load` is the only door for JSON text that we did not write ourselves.
"""

import functools
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NewType, NoReturn

import msgspec

from spine.errors import IdInvalid, ValueRefused

SessionId = NewType("SessionId", str)
"""`[A-Za-z0-9_-]{1,64}`; never used as a path."""
TurnId = NewType("TurnId", str)
"""`t1`, `t2`, … in the order of a session's turns."""
StepId = NewType("StepId", str)
"""`t1s1`: the turn and the step's place in it."""
CallId = NewType("CallId", str)
"""`t1s1c1`: the step and the call's place in its message; unique in a session, unlike a vendor's."""
ScopeId = NewType("ScopeId", str)
"""Name of a scope; opaque."""
Digest = NewType("Digest", str)
"""`1:` and 64 hexadecimal digits: the format's number and a SHA-256 over stored bytes."""

JsonArray = tuple[Any, ...]

MAX_DEPTH: Final = 200
DIGEST_FORMAT: Final = "1:"
_SURROGATE = re.compile("[\ud800-\udfff]")
_SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DEVICE_NAME = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])", re.IGNORECASE)


class _Filling(dict[str, Any]):
    """A JSON object while it is made."""

    __slots__ = ()


class _Sealing(type):
    """Fills an object under another class and seals it with its own, whose `__init__` refuses like all else."""


def _seal(kind: type, *given: Any, **named: Any) -> Any:
    made = _Filling(*given, **named)
    made.__class__ = kind
    return made


# Both are set from outside: to type checkers a call makes what it would make of any other class.
_Sealing.__call__ = _seal  # type: ignore[method-assign,assignment]


class JsonObject(dict[str, Any], metaclass=_Sealing):
    """A JSON object that refuses every change; `evolve` returns a changed copy."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a stored JSON object is read-only; evolve(**changes) returns a changed copy")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(encode(self))

    def __copy__(self) -> "JsonObject":
        return self

    def __deepcopy__(self, memo: object) -> "JsonObject":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (freeze, (thaw(self),))

    def evolve(self, **changes: Any) -> "JsonObject":
        """This object with some keys replaced or added."""
        return freeze_object({**self, **changes})


JsonObject.__init__ = JsonObject._refuse  # type: ignore[method-assign,assignment]

Json = None | bool | int | float | str | JsonArray | JsonObject
"""A deeply frozen JSON value, as `freeze` returns it."""

EMPTY_OBJECT: Final = JsonObject()


def sealed(items: Mapping[str, Any]) -> JsonObject:
    """`JsonObject(items)` for what is frozen already, at less cost."""
    made: Any = _Filling(items)
    made.__class__ = JsonObject
    return made  # type: ignore[no-any-return]


def freeze(value: Any) -> Json:
    """Return `value` as deeply read-only JSON: `JsonObject` for mappings, tuples for sequences.

    Already frozen objects are returned as they are. Lone surrogates become U+FFFD (see `freeze_flagged`).
    Raises `ValueRefused` for NaN, infinities, keys that are no text or become the same, other types, and nesting deeper
    than 200.
    """
    if type(value) is JsonObject:
        return value
    try:
        frozen: Json = _freeze(value, 0)
        return frozen
    except ValueRefused as refused:
        place = _locate(value, "$", 0)
        raise ValueRefused(f"{refused.message} at {place}", path=place) from None


def freeze_object(value: Mapping[str, Any]) -> JsonObject:
    """`freeze` for what must be a JSON object."""
    if type(value) is JsonObject:
        return value
    frozen = EMPTY_OBJECT if value == {} else freeze(value)
    if type(frozen) is not JsonObject:
        raise ValueRefused(f"a JSON object was wanted, found {type(value).__name__}")
    return frozen


def freeze_optional_object(value: Mapping[str, Any] | None) -> JsonObject | None:
    """`freeze_object`, but for None."""
    return None if value is None else freeze_object(value)


def freeze_flagged(value: Any) -> tuple[Json, bool]:
    """`freeze`, and whether a lone surrogate had to be replaced somewhere in it."""
    return freeze(value), _has_surrogate(value)


def clean_text(text: str) -> str:
    """`text` with each lone surrogate replaced by U+FFFD, so that it can be written as UTF-8."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def as_text(value: str) -> str:
    """Text as it stands in a value, cleaned. Raises `TypeError` for anything else: foreign code may give anything."""
    if not isinstance(value, str):
        raise TypeError(f"text was wanted, found {type(value).__name__}")
    return clean_text(str.__str__(value))


def as_optional_text(value: str | None) -> str | None:
    """`as_text`, but for None."""
    return None if value is None else as_text(value)


_ATOMS = frozenset((type(None), bool, int))


def _freeze(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else clean_text(value)
    if kind in _ATOMS:
        return value
    if kind is JsonObject:
        _check_depth(value, depth)
        return value
    if kind is float:
        if not math.isfinite(value):
            raise ValueRefused(f"{value} is no JSON number")
        return value
    if depth >= MAX_DEPTH:
        raise ValueRefused(f"JSON nested deeper than {MAX_DEPTH} levels")
    if kind is dict:
        items = {_key(key): _freeze(item, depth + 1) for key, item in value.items()}
        if len(items) != len(value):
            raise ValueRefused("two keys are the same when lone surrogates are replaced")
        return sealed(items)
    if kind is list or kind is tuple:
        return tuple([_freeze(item, depth + 1) for item in value])
    return _freeze(_plain(value), depth)


def _check_depth(value: Any, depth: int) -> None:
    """What is frozen already may have been put into something else, level after level."""
    if depth >= MAX_DEPTH:
        raise ValueRefused(f"JSON nested deeper than {MAX_DEPTH} levels")
    for item in value.values() if type(value) is JsonObject else value:
        if type(item) is JsonObject or type(item) is tuple:
            _check_depth(item, depth + 1)


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueRefused(f"key {key!r} is no text")
    return clean_text(str.__str__(key))


def _plain(value: Any) -> Any:
    """Enum members, other subclasses and foreign collections as the plain type they stand for."""
    match value:
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case Mapping():
            return dict(value.items())
        case list() | tuple():
            return list(value)
    raise ValueRefused(f"{type(value).__name__} is no JSON value")


def _locate(value: Any, path: str, depth: int) -> str:
    """Where in a refused value the trouble is; only asked for the message."""
    items: Iterator[tuple[str, Any]] = iter(())
    if isinstance(value, Mapping):
        items = ((f"{path}.{key}", item) for key, item in value.items() if isinstance(key, str))
    elif isinstance(value, list | tuple):
        items = ((f"{path}[{i}]", item) for i, item in enumerate(value))
    for place, item in items if depth < MAX_DEPTH else ():
        try:
            _freeze(item, depth + 1)
        except ValueRefused:
            return _locate(item, place, depth + 1)
    return path


def _has_surrogate(value: Any) -> bool:
    if isinstance(value, str):
        return not value.isascii() and _SURROGATE.search(value) is not None
    if isinstance(value, Mapping):
        return any(_has_surrogate(key) or _has_surrogate(item) for key, item in value.items())
    return isinstance(value, list | tuple) and any(map(_has_surrogate, value))


def as_tuple(value: Iterable[Any]) -> tuple[Any, ...]:
    """A collection as it stands in a frozen value. Raises `ValueRefused` for text, which would fall into letters."""
    if type(value) is tuple:
        return value
    if isinstance(value, (str, bytes)):
        raise ValueRefused(f"a collection was wanted, found {type(value).__name__}")
    return tuple(value)


def thaw(value: Any) -> Any:
    """A mutable copy of frozen JSON: plain dicts and lists."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [thaw(item) for item in value]
    return value


# ---------------------------------------------------------------------------------------------- canonical JSON

_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder()


def encode(value: Any) -> bytes:
    """Canonical JSON of a frozen (or equally plain) value: UTF-8, keys sorted, no spaces, integers exact.

    NaN must have been refused before (`freeze`): this encoder would write null. Raises `ValueRefused` for nesting that
    cannot be written.
    """
    try:
        return _encoder.encode(value)
    except RecursionError:
        raise ValueRefused("JSON nested too deeply") from None


encode_flat: Callable[[Any], bytes] = _encoder.encode
"""`encode` for what does not nest, at less cost."""


def raw(data: bytes) -> Any:
    """Canonical JSON that was encoded before, to stand inside what is encoded next."""
    return msgspec.Raw(data)


def decode(data: bytes) -> Any:
    """Read JSON that we wrote ourselves; plain dicts and lists. Raises `ValueRefused` for anything broken."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise ValueRefused(f"stored JSON does not parse: {exc}") from exc


parse: Callable[[bytes], Any] = _decoder.decode
"""`decode` for whoever catches every error, at less cost."""


def load(text: str | bytes) -> Any:
    """Read foreign JSON into plain dicts and lists: duplicate keys, NaN, infinities and deep nesting are refused."""
    try:
        value = _foreign.decode(text.decode("utf-8-sig") if isinstance(text, bytes) else text)
    except (ValueError, RecursionError) as exc:
        if isinstance(exc, ValueRefused):
            raise
        raise ValueRefused(f"no JSON: {exc}" if isinstance(exc, ValueError) else "JSON nested too deeply") from exc
    brackets = (b"[", b"{") if isinstance(text, bytes) else ("[", "{")
    if sum(map(text.count, brackets)) > MAX_DEPTH and _depth_exceeds(value, MAX_DEPTH):  # type: ignore[arg-type]
        raise ValueRefused(f"JSON nested deeper than {MAX_DEPTH} levels")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueRefused(f"key {next(n for n in names if names.count(n) > 1)!r} stands twice in one JSON object")
    return result


def _no_constant(name: str) -> NoReturn:
    raise ValueRefused(f"{name} is no JSON number")


def _whole_number(text: str) -> int:
    # int() is quadratic; 4,300 digits is Python's own bound and far more than any tool means.
    if len(text) > 4300:
        raise ValueRefused(f"an integer of {len(text)} digits is longer than 4300")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueRefused(f"{text[:40]} is outside the range of a number")
    return number


_foreign = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_whole_number, parse_float=_finite
)


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [
            item
            for outer in level
            if isinstance(outer, dict | list)
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


# ------------------------------------------------------------------------------------------------------ digests


def digest(data: bytes) -> Digest:
    """The digest of stored bytes: format number and SHA-256."""
    return Digest(DIGEST_FORMAT + hashlib.sha256(data).hexdigest())


def short(value: Digest | bytes) -> str:
    """The first eight hexadecimal digits, for people."""
    return value.hex()[:8] if isinstance(value, bytes) else value.removeprefix(DIGEST_FORMAT)[:8]


# ---------------------------------------------------------------------------------------------------------- ids


def session_id(text: str) -> SessionId:
    """Check a session id. Raises `IdInvalid` for anything outside `[A-Za-z0-9_-]{1,64}` and for device names."""
    if not isinstance(text, str) or not _SESSION_ID.fullmatch(text):
        raise IdInvalid(f"session id {_excerpt(text)} is not of the form [A-Za-z0-9_-], 1 to 64 characters")
    if _DEVICE_NAME.fullmatch(text):
        raise IdInvalid(f'session id "{text}" is a device name on some systems')
    return SessionId(text)


def _excerpt(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= 80 else shown[:77] + "…"


@functools.lru_cache(maxsize=4096)
def turn_of(place: str) -> TurnId:
    """The turn in which a step or a call stands: `t12s3c1` gives `t12`."""
    end = place.find("s")
    return TurnId(place if end < 0 else place[:end])


def step_of(call: CallId) -> StepId:
    """The step whose message holds a call: `t1s2c1` gives `t1s2`."""
    return StepId(call[: call.index("c")])


def utc(at: int) -> datetime:
    """Microseconds since 1970 UTC, as events hold them, as a time."""
    return _EPOCH + timedelta(microseconds=at)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# ------------------------------------------------------------------------------------------------------ secrets


class Secret:
    """A key or password: its repr, str and pickle never show it; `reveal()` gives the text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one header it belongs in."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(("Secret", self._text))
