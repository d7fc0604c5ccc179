"""spine.proof.explain_step and explain_call: whose the parts of a step were, and why a call ran."""

from collections.abc import Callable

import attrs
import pytest

from spine.errors import UsageError
from spine.events import ModelRequested
from spine.log import LogReader
from spine.proof.explain_call import call_story, story_json, story_text
from spine.proof.explain_step import sections_of, step_facts, step_json, step_text
from spine.proof.request_view import RequestView, find_request, frame_origins, patch_views
from spine.store import Row
from spine.values import decode, digest, encode

Rechained = Callable[[Callable[[list[Row]], list[Row]]], LogReader]


def rows(text: str) -> list[list[str]]:
    """The lines of a table as cells."""
    return [[cell for cell in line.split("  ") if cell] for line in text.split("\n")]


def test_a_step_is_explained_with_whose_each_part_is(layered: LogReader) -> None:
    view, _ = find_request(layered, "t1s2")
    text = step_text(step_facts(layered, "t1s2"))
    assert text.startswith(f"t1s2 · request seq {view.seq} · digest {view.digest[2:10]} equal to the one sent\n")
    assert [[cell.strip() for cell in row] for row in rows(text)[1:]] == [
        ["sections", "10", "instructions", "agent agent", "session"],
        ["50", "policy", "application", "scope acme", "hides policy of careful@2.1 (global)"],
        ["mute", "application", "scope acme", "its text was empty"],
        ["tools", "look_up", "agent agent", "session", "read_only"],
        ["adapter", "demo", "given to the runtime", "protocol scripted, model small, no price known"],
        ["pre_step", "1 careful@2.1", "max_output_tokens unset → 64; message 4: 0 gone, 1 added"],
        ["2 silent@1.0", "no change"],
        ["pre_execute", "1 careful@2.1"],
        ["plugins", "careful 2.1, silent 1.0, spine 0.1.0"],
        ["contract", "as when the session was created"],
    ]


def test_a_section_that_was_trimmed_or_taken_out_says_so(careful: LogReader) -> None:
    """Told from what the runtime built and what was sent."""
    view, _ = find_request(careful, "t1s1")
    (patch,) = patch_views(careful, view)
    assert {block.name for block in patch.before.system} == {"instructions", "policy"}
    gone = attrs.evolve(view, request=view.request.evolve(system=view.request.system[:1]))
    trimmed = attrs.evolve(gone, before=gone.request, event=attrs.evolve(view.event, data=left_out(view)))
    origins = frame_origins(careful, view)
    assert origins is not None
    for changed, note in ((gone, "taken out by a plugin"), (trimmed, "left out to fit the window")):
        (*_, policy) = sections_of(changed, origins["sections"])
        assert (policy.name, policy.owner, policy.notes) == ("policy", "careful@2.1", (note,))


def left_out(view: RequestView) -> ModelRequested:
    return attrs.evolve(view.data, trimmed=("policy",))


def test_a_log_without_origins_is_explained_as_far_as_it_goes(rechained: Rechained) -> None:
    def edit(rows: list[Row]) -> list[Row]:
        old = []
        for row in rows:
            data = decode(row.data)
            if "frame+json" in data.get("media_type", ""):
                frame = {key: value for key, value in decode(data["text"].encode()).items() if key != "origins"}
                text = encode(frame).decode()
                data |= {"text": text, "digest": digest(text.encode()), "size": len(text)}
            old.append(row._replace(data=encode(data)))
        return old

    facts = step_facts(rechained(edit), "t1s2")
    assert facts.verdict == "equal"
    assert [row for row in rows(step_text(facts)) if row[0] in ("sections", "tools", "adapter", "pre_step")] == [
        ["sections", "10", "instructions", "agent refunds"],
        ["tools", " lookup_order", "read_only"],
        ["adapter", " scripted", "protocol scripted, model demo, no price known"],
        ["pre_step", "no plugin changed the request"],
    ]
    assert step_text(facts).endswith("nor who else was asked")
    assert not step_json(facts)["is_whole"]


def test_a_step_as_json_says_layers_and_what_is_hidden(layered: LogReader) -> None:
    fact = step_json(step_facts(layered, "t1s1"))
    assert (fact["equal"], fact["is_whole"], fact["hooks"]) == (True, True, {"pre_execute": ["careful@2.1"]})
    assert fact["sections"][1] == {
        "name": "policy",
        "order": 50,
        "owner": "application",
        "layer": "scope acme",
        "hides": [{"owner": "careful@2.1", "layer": "global"}],
    }
    assert encode(fact)


def test_an_unknown_step_is_told(demo: LogReader) -> None:
    with pytest.raises(UsageError, match="it has t1s1, t1s2, t1s3"):
        step_facts(demo, "t9s1")


def test_a_call_is_explained_from_request_to_outcome(demo: LogReader) -> None:
    seq = {event.type: event.seq for event in demo.read()}
    lines = story_text(call_story(demo, "t1s2c1")).split("\n")
    assert lines[0] == (
        'refund(order_id="1017", amount_cents=1290) ran once, outcome ok in 0 ms   '
        f"seq {seq['tool.started']}-{seq['tool.completed']}"
    )
    facts = {line[2:24].strip(): line[24:].strip() for line in lines[1:]}
    assert facts["asked by the model in"].endswith("3 messages)")
    assert facts["which had seen"].startswith("user input seq 2 · lookup_order result seq ")
    assert facts["arguments"] == "as the model wrote them; no plugin changed them"
    assert facts["what came back"] == '"refunded 12.90 EUR, reference R-88", 34 bytes'
    assert facts["allowed by"].startswith(
        "demo at 09:00:02, for exactly this tool, arguments, schema, policy and plugin"
    )


def test_a_result_that_is_json_reads_as_json(demo: LogReader) -> None:
    text = story_text(call_story(demo, "t1s1c1"))
    assert text.endswith('what came back         {"item": "mug", "paid_cents": 1290, "state": "delivered"}, 57 bytes')


def test_a_changed_argument_names_its_plugin(careful: LogReader) -> None:
    text = story_text(call_story(careful, "t1s1c1"))
    assert text.startswith('look_up(word="MUG") ran once')
    assert 'changed by careful@2.1; the model wrote {"word": "mug"}' in text
    assert "policy (careful@2.1)" in text
    assert "its tool's policy; no approval was asked" in text


def test_who_has_a_person_asked_changed_no_argument(strict: LogReader) -> None:
    story = call_story(strict, "t1s1c1")
    text = story_text(story)
    assert "arguments              as the model wrote them; no plugin changed them\n" in text
    assert "held for a person      by strict@1.0\n" in text
    assert story_json(story)["changed_by"] == []


@pytest.mark.parametrize(
    ("until", "said"),
    [
        ("approval.requested", ["did not run, no outcome yet", "nobody yet: approval a1 waits"]),
        ("tool.started", ["ran once, no outcome yet   seq "]),
    ],
)
def test_an_unfinished_call_says_what_is_missing(rechained: Rechained, until: str, said: list[str]) -> None:
    def edit(rows: list[Row]) -> list[Row]:
        last = max(i for i, row in enumerate(rows) if row.type == until)
        return rows[: last + 1]

    text = story_text(call_story(rechained(edit), "t1s2c1"))
    assert all(part in text for part in said)


def test_a_call_of_an_answer_that_was_cut_never_ran(rechained: Rechained) -> None:
    def edit(rows: list[Row]) -> list[Row]:
        at = [i for i, row in enumerate(rows) if row.type == "message.committed"][1]
        data = {"message": decode(rows[at].data)["message"], "cause": "cancelled"}
        return [*rows[:at], rows[at]._replace(type="message.interrupted", data=encode(data))]

    story = call_story(rechained(edit), "t1s2c1")
    assert story_text(story).startswith('refund(order_id="1017", amount_cents=1290) did not run, its answer was cut\n')
    assert story_json(story)["status"] is None


def test_a_call_that_ran_twice_says_so(rechained: Rechained) -> None:
    def edit(rows: list[Row]) -> list[Row]:
        at = max(i for i, row in enumerate(rows) if row.type == "tool.started")
        resolved = encode({"call": "t1s2c1", "decision": "rerun", "reason": "idempotent"})
        extra = rows[at]._replace(type="tool.resolved", data=resolved)
        return [*rows[: at + 1], extra, *rows[at:]]

    text = story_text(call_story(rechained(edit), "t1s2c1"))
    assert "ran twice" in text
    assert "rerun: idempotent" in text


@pytest.mark.parametrize("call_id", ["t1s2c9", "t1s3", "", "x"])
def test_an_unknown_call_is_told_with_those_there_are(demo: LogReader, call_id: str) -> None:
    with pytest.raises(UsageError, match="calls are t1s1c1, t1s2c1"):
        story_text(call_story(demo, call_id))


def test_the_chain_behind_a_call_as_json(demo: LogReader, careful: LogReader) -> None:
    fact = story_json(call_story(demo, "t1s2c1"))
    assert (fact["status"], fact["changed_by"], fact["arguments"]) == ("ok", [], fact["written"])
    assert [approval["decided"]["by"] for approval in fact["approvals"]] == ["demo"]
    assert fact["result"] == [{"type": "text", "text": "refunded 12.90 EUR, reference R-88"}]
    assert [source["what"] for source in fact["seen"]] == ["user input", "lookup_order result"]
    changed = story_json(call_story(careful, "t1s1c1"))
    assert (changed["changed_by"], changed["arguments"], changed["written"]) == (
        ["careful@2.1"],
        {"word": "MUG"},
        {"word": "mug"},
    )
    assert encode(fact)
    assert encode(changed)
