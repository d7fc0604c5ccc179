"""Requests by reference: what plugins changed is found by identity and rebuilds to the same digest."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spine.codec import Codec
from spine.events import FieldChange, ModelRequested, Patch, Splice
from spine.llm.request import ModelRequest, ResponseFormat, Route, ToolChoice
from spine.messages import Message, SystemBlock, TextBlock, user_message
from spine.projectors.model_history import History, _Track
from spine.requests import (
    INLINE_CHANGE_BYTES,
    MAX_FRAMES,
    Frames,
    Selection,
    apply,
    content_of,
    diff,
    frame_content,
    frame_of,
    messages_hash,
    problem_of,
    request_digest,
    request_from_frame,
)
from spine.store import Content
from spine.tools import ServerTool, ToolDefinition
from spine.values import Digest, StepId, decode, encode, freeze_object

CODEC = Codec()
STEP = StepId("t1s1")


class Shelf:
    """Contents by seq, as the log keeps them."""

    def __init__(self) -> None:
        self.contents: list[Content] = []

    def put(self, content: Content) -> int:
        if content not in self.contents:
            self.contents.append(content)
        return self.contents.index(content) + 1

    def get(self, seq: int) -> bytes:
        return self.contents[seq - 1].data

    def by_digest(self, wanted: Digest) -> bytes:
        return next(content.data for content in self.contents if content.digest == wanted)


def request(**fields: Any) -> ModelRequest:
    return ModelRequest(**{"route": Route("p", "m"), "step": STEP, **fields})


_words = st.text(max_size=6)
_messages = st.lists(st.builds(user_message, _words), max_size=6).map(tuple)
_system = st.lists(
    st.builds(SystemBlock, name=_words, source=_words, text=_words | st.just("x" * 400), order=st.integers(0, 9)),
    max_size=3,
).map(tuple)
_schema = st.just(freeze_object({"type": "object", "properties": {"a": {"type": "string"}}}))
_tools = st.lists(
    st.builds(ToolDefinition, name=_words, description=_words, parameters=_schema)
    | st.builds(ServerTool, name=_words, protocol=_words, config=_schema),
    max_size=3,
).map(tuple)
_fields = st.fixed_dictionaries(
    {},
    optional={
        "route": st.builds(Route, st.sampled_from(("a", "b")), st.sampled_from(("x", "y:z"))),
        "system": _system,
        "messages": _messages,
        "tools": _tools,
        "tool_choice": st.none() | st.builds(ToolChoice, mode=st.sampled_from(("auto", "none", "required"))),
        "parallel_tool_calls": st.none() | st.booleans(),
        "max_output_tokens": st.none() | st.integers(1, 10**6),
        "temperature": st.none() | st.floats(0, 2),
        "stop_sequences": st.lists(_words, max_size=2).map(tuple),
        "thinking": st.none() | st.sampled_from(("off", "high")) | st.integers(1, 9000),
        "response_format": st.none() | st.builds(ResponseFormat, name=_words, schema=_schema),
        "provider_options": st.dictionaries(_words, st.dictionaries(_words, _words), max_size=2),
        "metadata": st.dictionaries(_words, st.integers() | st.just("y" * 300), max_size=2),
    },
)


@settings(max_examples=80, deadline=None)
@given(_fields)
def test_a_frame_gives_its_request_back(fields: dict[str, Any]) -> None:
    """Frame and contents hold everything but the messages; the digest is over canonical bytes."""
    shelf, original = Shelf(), request(**fields)
    frame = frame_of(CODEC, original)
    for content in frame.contents:
        shelf.put(content)
    again = request_from_frame(CODEC, decode(encode(frame.json)), STEP, original.messages, shelf.by_digest)
    assert again == original
    assert frame_of(CODEC, again).digest == frame.digest


@settings(max_examples=100, deadline=None)
@given(_fields, st.lists(_fields, min_size=1, max_size=4))
def test_any_chain_of_edits_is_rebuilt_from_its_patches(start: dict[str, Any], edits: list[dict[str, Any]]) -> None:
    """diff and apply are inverse, one patch after the other, down to the digest."""
    shelf, current = Shelf(), request(**start)
    rebuilt = current
    for edit in edits:
        edited = current.evolve(**edit)
        rebuilt = apply(CODEC, rebuilt, diff(CODEC, current, edited, shelf.put), shelf.get)
        current = edited
        assert tuple(rebuilt.messages) == tuple(current.messages)
        assert rebuilt.evolve(messages=()) == current.evolve(messages=())
        assert digest_of(rebuilt) == digest_of(current)


def digest_of(request: ModelRequest) -> Digest:
    return request_digest(CODEC, frame_of(CODEC, request).digest, request.step, request.messages)


@settings(max_examples=80, deadline=None)
@given(_messages, _messages, st.integers(0, 6), st.integers(0, 6))
def test_a_splice_covers_just_what_differs(old: tuple[Message, ...], new: tuple[Message, ...], a: int, b: int) -> None:
    """Whatever is put in the middle of a history: one splice, which gives it back."""
    shelf = Shelf()
    before = request(messages=old)
    after = before.evolve(messages=(*old[:a], *new, *old[a + b :]))
    changes = diff(CODEC, before, after, shelf.put)
    assert len(changes) <= 1
    assert tuple(apply(CODEC, before, changes, shelf.get).messages) == after.messages
    for change in changes:
        assert isinstance(change, Splice)
        assert len(change.messages) <= len(new)


def test_nothing_changed_is_no_change() -> None:
    """Told by identity, and by equality where identity does not help."""
    original = request(messages=(user_message("a"),), metadata={"k": 1})
    shelf = Shelf()
    for same in (original, original.evolve(), original.evolve(messages=(user_message("a"),), metadata={"k": 1})):
        assert diff(CODEC, original, same, shelf.put) == ()
    assert shelf.contents == []


def test_small_values_stand_inline_and_large_ones_beside() -> None:
    """The border is the size of the JSON."""
    shelf = Shelf()
    small, large = "x" * (INLINE_CHANGE_BYTES - 10), "x" * INLINE_CHANGE_BYTES
    for text, is_inline in ((small, True), (large, False)):
        (change,) = diff(CODEC, request(), request(metadata={"k": text}), shelf.put)
        assert isinstance(change, FieldChange)
        assert (change.content is None) is is_inline
        assert apply(CODEC, request(), (change,), shelf.get).metadata == {"k": text}


def test_a_historys_own_hash_is_that_of_its_messages() -> None:
    """Remembered or counted anew, it is the same."""
    messages = [user_message(str(n)) for n in range(5)]
    history = History(_Track(messages, list(range(5))), 5)
    assert messages_hash(CODEC, history) == messages_hash(CODEC, tuple(messages))


def test_everything_of_a_request_is_in_its_digest() -> None:
    """Any field, the step and each message change it."""
    base = request(messages=(user_message("a"),))
    others = [
        base.evolve(step=StepId("t1s2")),
        base.evolve(route=Route("p", "n")),
        base.evolve(messages=(user_message("b"),)),
        base.evolve(messages=()),
        base.evolve(seed=1),
        base.evolve(top_p=0.5),
        base.evolve(tools=(ToolDefinition(name="x"),)),
        base.evolve(tools=(ServerTool(name="x", protocol="p"),)),
        base.evolve(system=(SystemBlock(name="n", source="s", text="t"),)),
    ]
    assert len({digest_of(base), *map(digest_of, others)}) == len(others) + 1


PROBLEMS: dict[str, tuple[dict[str, Any], str]] = {
    "the step": ({"step": StepId("t2s2")}, "changed the request's step"),
    "no message": ({"messages": ("x",)}, "messages that is no Message"),
    "a system message": ({"messages": (Message(role="system"),)}, "system message"),
    "no section": ({"system": ("x",)}, "system that is no SystemBlock"),
    "no tool": ({"tools": ("x",)}, "tools that is no ToolDefinition"),
    "no stop sequence": ({"stop_sequences": (5,)}, "stop_sequences that is no str"),
    "NaN": ({"temperature": float("nan")}, "temperature that cannot be recorded"),
    "an object": ({"seed": object()}, "seed that cannot be recorded"),
    "no format": ({"response_format": "json"}, "response_format that cannot be recorded"),
}


@pytest.mark.parametrize(("fields", "problem"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_request_that_cannot_be_made_is_said_to_be(fields: dict[str, Any], problem: str) -> None:
    """In words that follow "a plugin"; a good one has no problem."""
    found = problem_of(CODEC, request(), request().evolve(**fields))
    assert found is not None
    assert problem in found
    assert problem_of(CODEC, request(), request(seed=5, messages=(user_message("a"),))) is None


def test_a_frame_is_stored_with_its_selection() -> None:
    """Provider, protocol, model; what is None is left out; no URL, header or key has a place in it."""
    content = frame_content(frame_of(CODEC, request()), Selection("p", "proto", "m"))
    assert decode(content.data) == {
        "request": {"route": "p:m"},
        "selection": {"provider": "p", "protocol": "proto", "model": "m"},
    }
    assert content_of("a", "text/plain").digest == content_of(b"a", "text/plain").digest


SELECTION = Selection("p", "proto", "m")
LOOK = ToolDefinition(name="look", description="", parameters={})


def section(text: str = "Be brief.") -> SystemBlock:
    return SystemBlock(name="instructions", source="agent a", text=text, order=10, token_count=3)


def test_sessions_that_ask_the_same_share_a_frame() -> None:
    """Each session renders its own sections; what stands in the frame is made once."""
    frames = Frames()
    made = [frames.of(CODEC, request(system=(section(),), tools=(LOOK,)), SELECTION, {"tools": []}) for _ in range(2)]
    assert all(one is other for one, other in zip(*made, strict=True))
    frame = frame_of(CODEC, request(system=(section(),), tools=(LOOK,)))
    assert made[0] == (frame, frame_content(frame, SELECTION, {"tools": []}))


@pytest.mark.parametrize(
    ("fields", "selection", "origins"),
    [
        ({"temperature": 1.0}, SELECTION, None),
        ({"temperature": 1, "seed": True}, SELECTION, None),
        ({"temperature": 1, "system": (section("Be long."),)}, SELECTION, None),
        ({"temperature": 1, "tools": (LOOK,)}, SELECTION, None),
        ({"temperature": 1, "provider_options": {"p": {"n": 1}}}, SELECTION, None),
        ({"temperature": 1}, Selection("p", "proto", "other"), None),
        ({"temperature": 1}, SELECTION, 7),
    ],
    ids=["number", "claim", "text", "tools", "options", "selection", "origins"],
)
def test_what_is_written_otherwise_has_a_frame_of_its_own(fields: Any, selection: Selection, origins: Any) -> None:
    """Python thinks 1 == 1.0 == True; a log does not."""
    frames, asked = Frames(), request(**fields)
    frames.of(CODEC, request(temperature=1, seed=1), SELECTION, None)
    frames.of(CODEC, request(temperature=1, provider_options={"p": {"n": 1.0}}), SELECTION, None)
    frames.of(CODEC, request(temperature=1), SELECTION, None)
    frame = frame_of(CODEC, asked)
    assert frames.of(CODEC, asked, selection, origins) == (frame, frame_content(frame, selection, origins))


def test_frames_that_nobody_asks_for_any_more_are_forgotten() -> None:
    frames = Frames()
    first, _ = frames.of(CODEC, request(seed=0), SELECTION, None)
    for seed in range(1, MAX_FRAMES + 1):
        frames.of(CODEC, request(seed=seed), SELECTION, None)
    again, _ = frames.of(CODEC, request(seed=0), SELECTION, None)
    assert again == first
    assert again is not first


def test_patches_are_values() -> None:
    """A `model.requested` with patches goes through the codec."""
    event = ModelRequested(
        digest=digest_of(request()),
        frame=1,
        patches=(
            Patch(plugin="p@1", phase="after", changes=(FieldChange(field="seed", value=1), Splice(start=0, end=1))),
        ),
    )
    assert CODEC.from_json(decode(CODEC.encode_event(event).data), ModelRequested) == event
    assert TextBlock(text="x") == CODEC.from_json(CODEC.to_json(TextBlock(text="x")), TextBlock)
