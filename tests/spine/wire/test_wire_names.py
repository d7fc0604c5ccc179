"""Names within a target's grammar: deterministic, collision free, and back again."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spine.llm.chunks import TextDelta, ToolCallStarted
from spine.llm.errors import ProviderError
from spine.messages import Message, TextBlock, ToolCallBlock
from spine.wire.names import rename_call, rename_calls, wire_name, wire_names

PATTERNS = [r"[A-Za-z0-9_-]{1,64}", r"[a-zA-Z0-9]{9}", r"^[a-zA-Z0-9_-]+$", r"[a-z][a-z0-9_]{0,31}"]


@given(st.text(min_size=1, max_size=200), st.sampled_from(PATTERNS))
def test_a_wire_name_fits_and_depends_on_the_name_alone(name: str, pattern: str) -> None:
    written = wire_name(name, pattern)
    assert re.fullmatch(pattern, written)
    assert written == wire_name(name, pattern)
    assert written == name or not re.fullmatch(pattern, name)


@given(st.sets(st.text(alphabet="ab._/- ", min_size=1, max_size=8), max_size=30))
def test_different_names_stay_different_and_map_back(names: set[str]) -> None:
    pattern = PATTERNS[0]
    back = wire_names(names, pattern)
    assert {back.get(wire_name(name, pattern), wire_name(name, pattern)) for name in names} == names


def test_names_that_fit_are_not_in_the_map() -> None:
    assert wire_names(["files_list", "a-b"], PATTERNS[0]) == {}
    assert set(wire_names(["files.list", "files_list"], PATTERNS[0]).values()) == {"files.list"}


def test_two_names_of_one_wire_form_are_refused() -> None:
    written = wire_name("files.list", PATTERNS[0])
    with pytest.raises(ProviderError, match="would both be called"):
        wire_names(["files.list", written], PATTERNS[0])


def test_a_pattern_that_nothing_fits_is_refused() -> None:
    with pytest.raises(ProviderError, match="no name of ours fits"):
        wire_name("files.list", r"\d{3}")


def test_calls_get_their_registered_names_back() -> None:
    names = {"files_list_12345678": "files.list"}
    started = ToolCallStarted(0, "files_list_12345678", "call_1")
    assert rename_call(started, names) == ToolCallStarted(0, "files.list", "call_1")
    assert rename_call(TextDelta(0, "files_list_12345678"), names) == TextDelta(0, "files_list_12345678")
    message = Message(
        role="assistant",
        content=(
            TextBlock(text="x"),
            ToolCallBlock(id="c1", name="files_list_12345678"),
            ToolCallBlock(id="c2", name="b"),
        ),
    )
    assert [call.name for call in rename_calls(message, names).tool_calls] == ["files.list", "b"]
