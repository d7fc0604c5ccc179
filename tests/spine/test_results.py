"""What handlers return: shown when it can be, refused by name when it cannot, cut by one rule when it is too large."""

import collections
import dataclasses
import datetime
import decimal
import enum
import types
import uuid

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spine.errors import ValueRefused
from spine.execution import settle
from spine.messages import ArtifactRefBlock, ExtensionBlock, ImageBlock, JsonBlock, TextBlock
from spine.results import MAX_INLINE_BYTES, ResultUnusable, content_of, fit
from spine.store import INLINE_CONTENT_BYTES, MAX_CONTENT_BYTES
from spine.tools import ToolError, ToolOutcome
from spine.values import digest, encode, freeze


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Word(str):
    __slots__ = ()


class Ratio(float):
    __slots__ = ()


@attrs.frozen
class Item:
    sku: str
    count: int = 1


@dataclasses.dataclass
class Order:
    item: Item
    at: datetime.datetime


class Price(msgspec.Struct, rename="camel"):
    unit_price: int


DAY = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC)
SHOWN = (
    ("text", "12 °C", "12 °C"),
    ("text subclass", Word("a"), "a"),
    ("surrogate", "a\ud800b", "a\ufffdb"),
    ("number", 5, 5),
    ("true", True, True),
    ("float subclass", [Ratio(0.5)], [0.5]),
    ("large number", 2**70, 2**70),
    ("list", [1, "a", None], [1, "a", None]),
    ("tuple", (1, (2,)), [1, [2]]),
    ("named tuple", collections.namedtuple("Pair", "a b")(1, 2), [1, 2]),
    ("range", range(3), [0, 1, 2]),
    ("deque", collections.deque([1]), [1]),
    ("set", {"b", "a"}, ["a", "b"]),
    ("mixed set", {2, "a"}, ["a", 2]),
    ("dict", {"b": 1, "a": [{}]}, {"b": 1, "a": [{}]}),
    ("keys that are no text", {1: "a", Colour.RED: "b", DAY: 2.5}, {"1": "a", "red": "b", "2026-01-02T03:04:00Z": 2.5}),
    ("mapping proxy", types.MappingProxyType({"a": 1}), {"a": 1}),
    ("frozen", freeze({"a": [1]}), {"a": [1]}),
    ("surrogate inside", {"\ud800": ["\udfff"]}, {"\ufffd": ["\ufffd"]}),
    ("enum", Colour.RED, "red"),
    ("number enum", [Level.LOW], [1]),
    ("date", DAY.date(), "2026-01-02"),
    ("duration", datetime.timedelta(seconds=90), "PT90S"),
    ("uuid", [uuid.UUID(int=1)], ["00000000-0000-0000-0000-000000000001"]),
    ("decimal", {"eur": decimal.Decimal("12.90")}, {"eur": "12.90"}),
    ("attrs class", Item("x"), {"sku": "x", "count": 1}),
    ("dataclass", Order(Item("x"), DAY), {"item": {"sku": "x", "count": 1}, "at": "2026-01-02T03:04:00Z"}),
    ("struct", Price(unit_price=3), {"unitPrice": 3}),
    ("bytes inside", {"raw": b"hi"}, {"raw": "aGk="}),
)


@pytest.mark.parametrize(("value", "expected"), [(v, e) for _, v, e in SHOWN], ids=[name for name, _, _ in SHOWN])
def test_what_is_text_or_json_is_shown(value, expected):
    (block,) = content_of(value)
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        assert block == TextBlock(text=expected)
    else:
        assert encode(block.value) == encode(freeze(expected))


@pytest.mark.parametrize("value", [None, ""])
def test_nothing_gives_no_content(value):
    assert content_of(value) == ()


IMAGE = ImageBlock(data="aGk=")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (IMAGE, (IMAGE,)),
        ((IMAGE, TextBlock(text="a")), (IMAGE, TextBlock(text="a"))),
        (["before", IMAGE, "after"], (TextBlock(text="before"), IMAGE, TextBlock(text="after"))),
        (ImageBlock(url="http://127.0.0.1/\ud800"), (ImageBlock(url="http://127.0.0.1/\ufffd"),)),
        (TextBlock(text=Word("a")), (TextBlock(text="a"),)),
    ],
)
def test_blocks_stay_as_they_are(value, expected):
    found = content_of(value)
    assert found == expected
    assert type(getattr(found[0], "text", "")) is str


def test_an_ok_outcome_stays_and_gets_its_duration():
    made = ToolOutcome(content=(TextBlock(text="a"),), usage={"cents": 3})
    assert settle(made, max_bytes=100, duration_s=0.5).outcome == made.evolve(duration_s=0.5)


def test_an_outcome_with_an_error_and_no_content_shows_its_message():
    made = ToolOutcome(status="error", error=ToolError(kind="remote", message="no such file"))
    assert settle(made, max_bytes=100).outcome.content == (TextBlock(text="error: no such file"),)


# ---------------------------------------------------------------------------------------------- hostile results


class RaisesOnIter(list):
    def __iter__(self):
        raise RuntimeError("no")


class RaisesOnItems(dict):
    def items(self):
        raise RuntimeError("no")


class LyingItems(dict):
    def items(self):
        return [1, 2]


class EndlessList(list):
    def __iter__(self):
        while True:
            yield 1


class EndlessMapping(collections.abc.Mapping):
    def __getitem__(self, key):
        return 1

    def __iter__(self):
        number = 0
        while True:
            number += 1
            yield str(number)

    def __len__(self):
        return 1


class LongRepr:
    def __repr__(self):
        return "x" * 10**8


class RaisesOnRepr:
    def __repr__(self):
        raise RuntimeError("no")

    __str__ = __repr__


class RaisesOnGetattr:
    def __getattribute__(self, name):
        raise RuntimeError(f"no {name}")


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("mute")


class RaisesMute(list):
    def __iter__(self):
        raise MuteError


@attrs.define
class Knot:
    me: object = None


@dataclasses.dataclass
class Trap:
    field: int = 0

    def __getattribute__(self, name):
        if name == "field":
            raise ValueError("trapped")
        return object.__getattribute__(self, name)


def _cycle():
    value = []
    value.append(value)
    return value


def _dict_cycle():
    value = {}
    value["self"] = value
    return value


def _knot():
    value = Knot()
    value.me = {"again": value}
    return value


def _laughs(base, wrap):
    for _ in range(100):
        base = wrap(base)
    return base


def _deep():
    value = 1
    for _ in range(5000):
        value = [value]
    return value


def _generator():
    yield 1


async def _coroutine():
    return 1


async def _async_generator():
    yield 1


HOSTILE = {
    "generator": (_generator, "generator is no result"),
    "coroutine": (_coroutine, "coroutine is no result"),
    "coroutine inside": (lambda: {"a": _coroutine()}, "coroutine is no result"),
    "async generator": (_async_generator, "async_generator is no JSON"),
    "list iterator": (lambda: iter([1]), "list_iterator is no JSON"),
    "map": (lambda: map(str, [1]), "map is no JSON"),
    "object": (object, "object is no JSON"),
    "class": (lambda: Item, "type is no JSON"),
    "function": (lambda: _deep, "function is no JSON"),
    "module": (lambda: collections, "module is no JSON"),
    "exception returned": (lambda: ValueError("x"), "ValueError is no JSON"),
    "complex": (lambda: 1j, "complex is no JSON"),
    "ellipsis": (lambda: ..., "ellipsis is no JSON"),
    "open resource": (lambda: memoryview(b"abc"), "memoryview is neither text nor JSON"),
    "bytes": (lambda: b"abc", "bytes is neither text nor JSON"),
    "bytearray": (lambda: bytearray(b"a"), "bytearray is neither text nor JSON"),
    "NaN": (lambda: float("nan"), "nan is no JSON number"),
    "infinity": (lambda: [float("inf")], "inf is no JSON number"),
    "NaN deep inside": (lambda: {"a": [{"b": float("-inf")}]}, "-inf is no JSON number"),
    "NaN subclass": (lambda: [Ratio("nan")], "nan is no JSON number"),
    "huge number": (lambda: 10**100_000, "bits is longer than"),
    "huge number inside": (lambda: [-(10**5000)], "bits is longer than"),
    "list that contains itself": (_cycle, "nested deeper than 200"),
    "dict that contains itself": (_dict_cycle, "nested deeper than 200"),
    "attrs object that contains itself": (_knot, "nested deeper than 200"),
    "5,000 levels": (_deep, "nested deeper than 200"),
    "2^100 values by sharing lists": (lambda: _laughs(1, lambda v: [v, v]), "more than 250,000 values"),
    "2^100 values by sharing objects": (lambda: _laughs(1, lambda v: Knot([v, v])), "more than 250,000 values"),
    "2^100 characters by sharing": (lambda: [["x" * 2**20] * 100] * 100, "more than 67,108,864 characters"),
    "endless list": (EndlessList, "more than 250,000 values"),
    "endless mapping": (EndlessMapping, "more than 250,000 values"),
    "range without end in sight": (lambda: range(10**12), "more than 250,000 values"),
    "tuple keys": (lambda: {(1, 2): 3}, "no JSON value"),
    "none key": (lambda: {None: 1}, "NoneType is no key"),
    "bool key": (lambda: {True: 1}, "bool is no key"),
    "keys that collide": (lambda: {1: "a", "1": "b"}, 'two of its keys are written "1"'),
    "object key": (lambda: {object(): 1}, "object is no JSON"),
    "list that raises": (lambda: RaisesOnIter([1]), "reading it raised RuntimeError: no"),
    "dict that raises": (lambda: RaisesOnItems(a=1), "reading it raised RuntimeError: no"),
    "dict with lying items": (lambda: LyingItems(a=1), "reading it raised TypeError"),
    "raises an exception without text": (lambda: RaisesMute([1]), "reading it raised MuteError"),
    "repr of 100 MB": (LongRepr, "LongRepr is no JSON"),
    "repr that raises": (RaisesOnRepr, "RaisesOnRepr is no JSON"),
    "object without attributes": (RaisesOnGetattr, "reading it raised RuntimeError"),
    "field that raises": (lambda: {"a": Trap()}, "reading it raised ValueError: trapped"),
    "type with a long name": (lambda: type("N" * 10**6, (), {})(), "is no JSON value"),
    "text block of a number": (lambda: TextBlock(text=5), "TextBlock.text is a value of type int"),
    "text block of bytes": (lambda: TextBlock(text=b"a"), "TextBlock.text is a value of type bytes"),
    "image data that is bytes": (lambda: ImageBlock(data=b"a"), "ImageBlock.data is a value of type bytes"),
    "block with a state of its own": (lambda: TextBlock(text="a", provider_state=1), "provider_state is a value"),
    "artifact of unknown size": (
        lambda: ArtifactRefBlock(digest="1:a", media_type="a", size=None),
        "size is a value of type NoneType",
    ),
    "blocks among objects": (lambda: [TextBlock(text="a"), object()], "also has a value of type object"),
    "10,000 blocks": (lambda: [TextBlock(text="a")] * 10_000, "10,000 content blocks are more than 256"),
    "images that no event can hold": (
        lambda: [ImageBlock(data="a" * 60_000)] * 40,
        f"one event has room for {MAX_INLINE_BYTES:,}",
    ),
    "image over all limits": (lambda: ImageBlock(data="a" * (MAX_CONTENT_BYTES + 1)), "more than 67,108,864"),
    "outcome of unknown status": (lambda: ToolOutcome(status="great"), "has status 'great'"),
    "outcome with status 5": (lambda: ToolOutcome(status=5), "has status '5'"),
    "outcome with objects for content": (lambda: ToolOutcome(content=(object(),)), "also has a value of type object"),
    "outcome with an exception for error": (lambda: ToolOutcome(error=ValueError("x")), "no ToolError"),
    "outcome with numbers in its error": (lambda: ToolOutcome(error=ToolError(kind=1, message=2)), "no ToolError"),
    "outcome with 1 MB of usage": (lambda: ToolOutcome(usage={"a": "x" * 10**6}), "usage has more than"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_result_is_an_outcome_that_names_it(name):
    make, part = HOSTILE[name]
    executed = settle(make(), max_bytes=64 * 1024, duration_s=0.1)
    outcome = executed.outcome
    assert outcome.status == "error"
    assert outcome.error.kind == "unusable_result"
    assert part in outcome.error.message
    assert outcome.content[0].text.startswith("error: The tool ran to its end, but its result cannot be shown: ")
    assert len(outcome.content[0].text) < 2500
    assert outcome.duration_s == 0.1
    assert executed.overflow is None
    encode([outcome.content[0].text, outcome.error.message])


def test_there_are_at_least_fifty_hostile_results():
    assert len(HOSTILE) >= 50


class Exits(list):
    def __iter__(self):
        raise SystemExit(3)


class Interrupts(list):
    def __iter__(self):
        raise KeyboardInterrupt


@pytest.mark.parametrize(("value", "error"), [(Exits(), SystemExit), (Interrupts(), KeyboardInterrupt)])
def test_exit_and_interrupt_pass_through(value, error):
    with pytest.raises(error):
        settle(value, max_bytes=100)


# -------------------------------------------------------------------------------------------------- size limits


def test_what_fits_is_kept_whole():
    content = (TextBlock(text="é" * 50), JsonBlock(value={"a": 1}))
    fitted = fit(content, 107)
    assert fitted.content == content
    assert fitted.overflow is None


def test_text_is_cut_at_a_character_and_kept_whole_beside():
    text = "é" * 100
    executed = settle(text, max_bytes=51)
    shown, reference = executed.outcome.content
    assert shown.text == "é" * 25 + "\n[cut here: 50 of 200 bytes are shown]"
    assert executed.outcome.truncated
    assert executed.outcome.status == "ok"
    assert executed.overflow.data.decode() == text
    assert executed.overflow.media_type == "text/plain"
    assert reference == ArtifactRefBlock(digest=digest(text.encode()), media_type="text/plain", size=200)
    assert executed.overflow.digest == reference.digest


def test_json_is_cut_as_its_text_and_kept_as_json():
    value = {"rows": list(range(100))}
    executed = settle(value, max_bytes=20)
    shown, reference = executed.outcome.content
    assert shown.text.startswith('{"rows":[0,1,2,3,4,5\n[cut here: 20 of ')
    assert executed.overflow.data == encode(value)
    assert reference.media_type == "application/json"


def test_blocks_after_the_cut_are_left_out_but_images_stay():
    blocks = [TextBlock(text="one "), IMAGE, TextBlock(text="two two"), JsonBlock(value=[3]), IMAGE]
    executed = settle(blocks, max_bytes=8)
    texts = [getattr(block, "text", block) for block in executed.outcome.content]
    assert texts[:2] == ["one ", IMAGE]
    assert texts[2] == "two \n[cut here: 8 of 14 bytes are shown]"
    assert texts[3] == IMAGE
    assert type(texts[4]) is ArtifactRefBlock
    assert executed.overflow.data == b"one \ntwo two\n[3]"


def test_large_json_within_its_limit_is_shown_as_text():
    """An event holds JSON inline; only text can lie beside the log."""
    value = ["x" * 1000] * 100
    fitted = fit(content_of(value), 10**6)
    assert fitted.overflow is None
    assert fitted.content == (TextBlock(text=encode(value).decode()),)
    assert len(fitted.content[0].text) > INLINE_CONTENT_BYTES


def test_a_large_image_lies_beside_the_log():
    image = ImageBlock(data="a" * 10**6)
    assert fit((image,), 10).content == (image,)


def test_more_than_a_store_keeps_is_cut_there_too():
    executed = settle("x" * (MAX_CONTENT_BYTES + 5), max_bytes=10)
    assert len(executed.overflow.data) == MAX_CONTENT_BYTES
    assert executed.outcome.content[0].text == (
        "x" * 10 + "\n[cut here: 10 of 67,108,869 bytes are shown, the first 67,108,864 are kept]"
    )


def test_an_outcome_of_the_handlers_own_is_cut_too():
    executed = settle(ToolOutcome(status="error", content=(TextBlock(text="x" * 100),)), max_bytes=10)
    assert executed.outcome.status == "error"
    assert executed.outcome.truncated
    assert len(executed.overflow.data) == 100


_blocks = st.lists(
    st.one_of(
        st.text(max_size=40).map(lambda text: TextBlock(text=text)),
        st.lists(st.integers(), max_size=9).map(lambda value: JsonBlock(value=value)),
        st.just(IMAGE),
        st.just(ExtensionBlock(kind="k", data=[1, 2, 3])),
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(blocks=_blocks, limit=st.integers(1, 80))
def test_whatever_the_blocks_the_rule_holds(blocks, limit):
    content = content_of(blocks) if any(not isinstance(b, str) for b in blocks) else ()
    fitted = fit(content, limit)
    shown = sum(
        len(block.text.partition("\n[cut here")[0].encode()) for block in fitted.content if type(block) is TextBlock
    )
    assert shown <= limit
    assert [b for b in fitted.content if b is IMAGE] == [b for b in content if b is IMAGE]
    if fitted.overflow is None:
        assert fitted.content == content
    else:
        assert type(fitted.content[-1]) is ArtifactRefBlock
        assert fitted.content[-1].digest == digest(fitted.overflow.data)


@given(text=st.text(max_size=200), limit=st.integers(1, 50))
def test_a_cut_text_is_a_prefix_of_the_whole(text, limit):
    executed = settle(text, max_bytes=limit)
    if executed.overflow is None:
        assert len(text.encode("utf-8", "replace")) <= limit
    else:
        whole = executed.overflow.data.decode()
        shown = executed.outcome.content[0].text.rpartition("\n[cut here")[0]
        assert whole.startswith(shown)
        assert limit - 4 < len(shown.encode()) <= limit


def test_content_is_frozen():
    (block,) = content_of({"a": [1]})
    with pytest.raises(TypeError):
        block.value["a"] = 2
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        block.value = 1


def test_refusals_are_our_own_error():
    with pytest.raises(ResultUnusable):
        content_of(object())


def test_an_outcome_refuses_text_for_its_content() -> None:
    """Text where blocks belong is refused when the outcome is made, before it could fall into letters."""
    with pytest.raises(ValueRefused, match="a collection was wanted, found str"):
        ToolOutcome(content="hello")  # type: ignore[arg-type]
