"""What holds for the views over any log: the laws of a fold, equality of live and stored, speed."""

import gc
import json
import subprocess
import sys
import time
from typing import Any

import pytest
from generated import generated_logs
from handwritten import Log, call, committed, result
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from spine.codec import Codec, genesis
from spine.errors import EventUnknown
from spine.events import (
    InputAccepted,
    ModelChunks,
    ModelRequested,
    RecordedEvent,
    ToolStarted,
    TurnCompleted,
    UnknownEvent,
)
from spine.llm.chunks import TextDelta
from spine.messages import user_message
from spine.projectors import (
    SessionTranscript,
    SessionUsage,
    fold,
    log_lines,
    to_html,
    to_json,
    to_markdown,
    to_text,
)
from spine.projectors.json import plain
from spine.store import Row
from spine.values import CallId, JsonObject, digest

CODEC = Codec()


def lawful(examples: int) -> settings:
    """Settings for a law over whole logs, whose making takes longer than hypothesis expects."""
    return settings(
        max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
    )


def shown(events: list[RecordedEvent]) -> tuple[str, str]:
    """Everything the views say of some events."""
    transcript, usage = fold(SessionTranscript(), events), fold(SessionUsage(), events)
    figures = [plain(usage.total), *(plain(dict(part)) for part in (usage.models, usage.turns, usage.steps))]
    return to_text(transcript), json.dumps([to_json(transcript), figures])


@lawful(150)
@given(generated_logs())
def test_event_by_event_gives_the_same_as_all_at_once_at_every_prefix(events: list[RecordedEvent]) -> None:
    transcript, usage = SessionTranscript(), SessionUsage()
    told, used = transcript.initial(), usage.initial()
    for end, event in enumerate(events, 1):
        if event.type in transcript.types:
            told = transcript.apply(told, event)
        if event.type in usage.types:
            used = usage.apply(used, event)
        live, whole = transcript.view(told), fold(SessionTranscript(), events[:end])
        assert (live.session, live.title, live.routes) == (whole.session, whole.title, whole.routes)
        assert live.entries == whole.entries
        assert usage.view(used) == fold(SessionUsage(), events[:end])


@lawful(60)
@given(generated_logs(turns=2), st.data())
def test_a_view_given_out_does_not_change_with_later_events(events: list[RecordedEvent], data: st.DataObject) -> None:
    end = data.draw(st.integers(1, len(events)))
    projector = SessionTranscript()
    state = projector.initial()
    for event in events[:end]:
        state = projector.apply(state, event)
    view = projector.view(state)
    before = to_text(view), to_html(view), json.dumps(to_json(view))
    for event in events[end:]:
        state = projector.apply(state, event)
    assert (to_text(view), to_html(view), json.dumps(to_json(view))) == before


def stored(events: list[RecordedEvent]) -> list[RecordedEvent]:
    """The same events written to bytes and read again."""
    read = []
    for event in events:
        encoded = CODEC.encode_event(event.data)
        contents = {content.digest: content for content in encoded.contents}
        row = Row(
            seq=event.seq,
            type=encoded.type,
            version=encoded.version,
            at=event.at,
            place=event.place,
            origin=encoded.origin,
            required=encoded.required,
            data=encoded.data,
            hash=event.hash,
        )
        read.append(CODEC.decode_row(event.session, row, event.prev_hash, lambda found, c=contents: c[found].data))
    return read


@lawful(100)
@given(generated_logs(turns=2))
def test_live_and_stored_events_read_the_same(events: list[RecordedEvent]) -> None:
    assert shown(events)[0] == shown(stored(events))[0]
    assert [line.what for line in log_lines(events)] == [line.what for line in log_lines(stored(events))]


@lawful(100)
@given(generated_logs())
def test_every_line_of_text_begins_as_its_format_says(events: list[RecordedEvent]) -> None:
    transcript = fold(SessionTranscript(), events)
    steps = {f"ASSISTANT {step}" for step in fold(SessionUsage(), events).steps}
    steps |= {f"ASSISTANT {entry.step}" for entry in transcript.entries if hasattr(entry, "step")}
    for block in to_text(transcript).split("\n\n")[1:]:
        for line in block.split("\n"):
            if line[:1] not in ("", " "):
                assert line in steps or line.startswith(("USER", "turn t", "SUMMARY (in", "resumed with changes")), line
            elif line[:4].strip():
                assert line[:2] == "  ", line
                assert line[2] in "><!?~+[", line


@lawful(60)
@given(generated_logs())
def test_each_fact_of_a_log_has_one_line_and_each_step_one_heading(events: list[RecordedEvent]) -> None:
    lines = list(log_lines(events, chunks=True))
    assert [line.seq for line in lines] == [event.seq for event in events]
    folded = [line.seq for line in log_lines(events)]
    assert folded == sorted(folded)
    assert set(range(1, len(events) + 1)) - set(folded) <= {e.seq for e in events if type(e.data) is ModelChunks}
    acting = {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), *"\u2028\u2029\u202e"}
    assert not any(acting & set(line.what) for line in lines)
    text = to_text(fold(SessionTranscript(), events)).split("\n")
    for event in events:
        if type(event.data) is ModelRequested:
            assert text.count(f"ASSISTANT {event.step}") == 1


def test_the_generated_logs_reach_every_kind_of_event() -> None:
    seen: set[str] = set()

    @settings(lawful(400), derandomize=True, database=None, phases=[Phase.generate])
    @given(generated_logs())
    def collect(events: list[RecordedEvent]) -> None:
        seen.update(event.type for event in events)

    collect()
    assert {*SessionTranscript().types, "tool.progress"} - {"session.forked"} <= seen


HASH_SEED_PROGRAM = """
import hashlib, json, sys
sys.path.insert(0, sys.argv[1])
from test_laws import sample_views
print(hashlib.sha256(sample_views().encode()).hexdigest())
"""


def sample_views() -> str:
    """All views of one hand-written log, in every format."""
    log = Log()
    log.turn("Refund it. \u202e\x1b[0m")
    frame = log.frame()
    found = call("lookup_order", zebra=1, order_id="1017", amount_cents=2, apple={"b": 1, "a": [1, {"d": 2, "c": 3}]})
    log.step("Looking.", found, frame=frame)
    arguments = JsonObject(order_id="1017", zebra=1)
    log.add(ToolStarted(call=CallId("t1s1c1"), name="lookup_order", arguments=arguments), "t1s1")
    log.add(result("lookup_order", {"state": "sent", "item": "mug"}), "t1s1")
    log.add(TurnCompleted(), "t1")
    transcript = fold(SessionTranscript(), log.events)
    lines = [line.what for line in log_lines(log.events)]
    views = [to_text(transcript, times=True), to_html(transcript), to_markdown(transcript), *lines]
    return "\n".join([*views, json.dumps(to_json(transcript)), repr(fold(SessionUsage(), log.events))])


@pytest.mark.parametrize("seed", ["0", "1", "4294967295"])
def test_the_same_log_gives_the_same_bytes_under_every_hash_seed_zone_and_locale(seed: str, request: Any) -> None:
    folder = str(request.path.parent)
    environment = {"PYTHONHASHSEED": seed, "TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", HASH_SEED_PROGRAM, folder], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == digest(sample_views().encode()).removeprefix("1:")


# ---------------------------------------------------------------------------------------------------------- unknown


@pytest.mark.parametrize(
    ("type", "origin", "required", "hint"),
    [
        ("model.dreamt", None, False, "pip install -U agent-spine"),
        ("input.accepted", None, True, "pip install -U agent-spine"),
        ("crm.ticket_linked", "crm@1.4", True, "pip install spine-crm"),
    ],
)
def test_an_event_that_must_be_known_stops_the_projection(type: str, origin: Any, required: bool, hint: str) -> None:
    event = unknown_event(type, origin, required)
    for projector in (SessionTranscript(), SessionUsage()):
        with pytest.raises(EventUnknown) as caught:
            fold(projector, [event])
        assert caught.value.seq == 1
        assert caught.value.hint == hint
        assert f'seq 1 has the type "{type}"' in caught.value.message
    with pytest.raises(EventUnknown):
        SessionTranscript().apply(SessionTranscript().initial(), event)


def test_an_unknown_event_that_is_not_required_is_skipped() -> None:
    log = Log()
    log.turn("Hello.")
    seen = fold(SessionTranscript(), log.events)
    with_unknown = [*log.events, unknown_event("crm.seen", "crm@1.4", False)]
    assert fold(SessionTranscript(), with_unknown).text == seen.text
    state = SessionTranscript().initial()
    assert SessionTranscript().apply(state, with_unknown[-1]) is state


def unknown_event(type: str, origin: str | None, required: bool) -> RecordedEvent:
    log = Log()
    log.add(UnknownEvent(JsonObject(a=1)), type=type, origin=origin)
    event = log.events[0]
    return RecordedEvent(
        session=event.session, seq=1, type=type, version=7, at=event.at, place=None, origin=origin, required=required,
        data=event.data, prev_hash=genesis(event.session), hash=event.hash,
    )  # fmt: skip


def test_a_projector_without_a_view_folds_to_its_state() -> None:
    class Counter:
        name = "counter"
        types = frozenset(("input.accepted",))

        def initial(self) -> int:
            return 0

        def apply(self, state: int, event: RecordedEvent) -> int:
            assert type(event.data) is InputAccepted
            return state + 1

    log = Log()
    for text in ("one", "two"):
        log.add(InputAccepted(message=user_message(text)))
    log.add(TurnCompleted(), "t1")
    assert fold(Counter(), log.events) == 2


# ------------------------------------------------------------------------------------------------------------ speed


def test_folding_is_fast_enough_to_open_long_sessions() -> None:
    log = Log()
    frame = log.frame()
    for turn in range(1, 201):
        log.turn("Hello.", f"t{turn}")
        for step in (f"t{turn}s1", f"t{turn}s2"):
            log.add(ModelRequested(digest=digest(b""), frame=frame), step)
            log.add(ModelChunks(chunks=(TextDelta(0, "Hello."),) * 10), step)
            call_id = f"{step}c1"
            log.add(committed("Hello.", call("lookup_order", call_id, order_id="1017")), step)
            log.add(ToolStarted(call=CallId(call_id), name="lookup_order", arguments={"order_id": "1017"}), step)
            log.add(result("lookup_order", {"item": "mug"}, call_id=call_id), step)
        log.add(TurnCompleted(), f"t{turn}")
    rates = []
    for _ in range(5):
        gc.collect()
        began = time.perf_counter()
        fold(SessionTranscript(), log.events)
        rates.append(len(log.events) / (time.perf_counter() - began))
    # About 350,000 on two shared cores; the bound leaves room for a busy machine, none for work that grows.
    assert max(rates) > 60_000, f"{max(rates):,.0f} events/s"


def test_contents_beside_the_log_are_not_needed() -> None:
    events = stored([*Log().events, *long_log().events])
    assert "ASSISTANT t1s1" in fold(SessionTranscript(), events).text


def long_log() -> Log:
    log = Log()
    log.turn("x" * 100_000)
    log.step("y" * 100_000)
    return log
