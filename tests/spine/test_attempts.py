"""One request with its retries: how pieces are folded, flushed and attributed."""

from typing import Any

import attrs
import pytest

from spine.attempts import FLUSH_CHARS, FLUSH_CHUNKS, Flow, broken_contract, check_request, origin_of
from spine.events import ModelChunks
from spine.llm import chunks as c
from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError, provider_error
from spine.llm.request import ModelRequest, Route
from spine.messages import Origin
from spine.requests import Selection
from spine.routes import Target
from spine.testing.clock import FakeClock
from spine.testing.scripted import ScriptedAdapter
from spine.values import StepId

STEP = StepId("t1s1")


@attrs.define
class Recorder:
    """As much of a run as a flow needs."""

    clock: FakeClock = attrs.Factory(FakeClock)
    events: list[Any] = attrs.Factory(list)
    on_chunk: list[Any] = attrs.Factory(list)

    @property
    def log(self) -> "Recorder":
        return self

    def append(self, event: Any, place: str | None = None) -> int:
        self.events.append((event, place))
        return len(self.events)


def flow_of(run: Recorder, attempt: int = 1) -> Flow:
    return Flow(run, STEP, attempt)  # type: ignore[arg-type]


def chunks_of(run: Recorder) -> list[int]:
    return [len(event.chunks) for event, _ in run.events]


def test_a_flush_holds_attempt_place_chunks_and_their_times() -> None:
    """Offsets count from the first chunk of the flush; when all came at once they are left out."""
    run = Recorder()
    flow = flow_of(run, attempt=2)
    flow.add(c.TextDelta(0, "a"))
    run.clock.advance(0.01)
    flow.add(c.TextDelta(0, "b"))
    flow.flush()
    flow.add(c.TextDelta(0, "c"))
    flow.flush()
    flow.flush()
    assert run.events == [
        (ModelChunks(chunks=(c.TextDelta(0, "a"), c.TextDelta(0, "b")), attempt=2, offsets=(0, 10)), STEP),
        (ModelChunks(chunks=(c.TextDelta(0, "c"),), attempt=2), STEP),
    ]


def test_a_flush_happens_at_its_borders() -> None:
    """By count, by size, and by age; a look from outside flushes what is old."""
    run = Recorder()
    flow = flow_of(run)
    for _ in range(FLUSH_CHUNKS + 1):
        flow.add(c.TextDelta(0, "x"))
    assert chunks_of(run) == [FLUSH_CHUNKS]
    flow.add(c.ToolCallDelta(1, "x" * FLUSH_CHARS))
    assert chunks_of(run) == [FLUSH_CHUNKS, 2]
    flow.add(c.TextDelta(0, "x"))
    run.clock.advance(0.049)
    flow.flush_if_due()
    assert len(run.events) == 2
    run.clock.advance(0.001)
    flow.flush_if_due()
    flow.flush_if_due()
    assert chunks_of(run) == [FLUSH_CHUNKS, 2, 1]


def test_watchers_see_each_chunk_at_once_and_debug_events_are_not_recorded() -> None:
    """Live deltas are nobody's input."""
    run, seen = Recorder(), []
    run.on_chunk.append(seen.append)
    flow = flow_of(run)
    flow.add(c.ProviderEvent("ping", {}))
    flow.add(c.TextDelta(0, "a"))
    assert [type(chunk).__name__ for chunk in seen] == ["ProviderEvent", "TextDelta"]
    flow.flush()
    assert chunks_of(run) == [1]


def test_lone_surrogates_are_replaced_before_anybody_sees_them() -> None:
    """In text, thinking, refusals and arguments; other chunks stay the same objects."""
    run, seen = Recorder(), []
    run.on_chunk.append(seen.append)
    flow = flow_of(run)
    good = c.TextDelta(0, "é😀")
    for chunk in (good, c.TextDelta(0, "\ud83d"), c.ThinkingDelta(1, "\ud83d"), c.ToolCallDelta(2, "\ud83d")):
        flow.add(chunk)
    assert seen[0] is good
    assert [getattr(s, "text", None) or s.arguments for s in seen] == ["é😀", "\ufffd", "\ufffd", "\ufffd"]
    assert flow.assembler.message().text == "é😀\ufffd"


def test_only_blocks_are_visible() -> None:
    """The start of an answer, usage and debug events show a person nothing."""
    flow = flow_of(Recorder())
    for chunk in (c.ResponseStarted("m"), c.ProviderEvent("ping", {})):
        flow.add(chunk)
    assert not flow.is_visible
    assert flow.partial(target()) is None
    flow.add(c.ToolCallStarted(0, "look"))
    assert flow.is_visible


def target() -> Target:
    selection = Selection("p", "proto", "m")
    return Target(ScriptedAdapter(), Traits(), selection, None, Origin(protocol="proto", route="p:m"))


ORIGINS = {"the requested model": ("m", None), "another one": ("m-2026", "m-2026"), "unnamed": (None, None)}


@pytest.mark.parametrize(("answered", "model"), ORIGINS.values(), ids=ORIGINS)
def test_an_origin_names_the_model_only_where_another_one_answered(answered: str | None, model: str | None) -> None:
    """Protocol and route are those of the request."""
    flow = flow_of(Recorder())
    flow.add(c.ResponseStarted(answered, "r1"))
    origin = origin_of(target(), flow.assembler)
    assert (origin.protocol, origin.route, origin.model, origin.response_id) == ("proto", "p:m", model, "r1")


def test_a_broken_adapter_is_a_protocol_error_that_no_retry_cures() -> None:
    """Its own words are bounded."""
    error = broken_contract("x" * 10_000)
    assert (error.category, error.retryable) == ("protocol_error", False)
    assert len(error.message) < 600


CHECKS: dict[str, tuple[Exception, str]] = {
    "a refusal": (provider_error("unsupported_capability", "no images"), "unsupported_capability"),
    "a bug": (ZeroDivisionError("oops"), "protocol_error"),
}


@pytest.mark.parametrize(("error", "category"), CHECKS.values(), ids=CHECKS)
def test_a_check_that_raises_is_a_providers_error(error: Exception, category: str) -> None:
    """Whoever is to blame."""

    class Broken:
        class adapter:
            @staticmethod
            def check(request: Any) -> None:
                raise error

    with pytest.raises(ProviderError) as refused:
        check_request(Broken, ModelRequest(route=Route("p", "m"), step=STEP))  # type: ignore[arg-type]
    assert refused.value.category == category
