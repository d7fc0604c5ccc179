"""spine.proof.request_view and request_text: what the model saw, and what was new."""

from collections.abc import Callable

import attrs
import pytest

from spine.errors import EventUnknown, UsageError
from spine.log import LogReader
from spine.proof.request_text import diff_text, patches_text, request_text
from spine.proof.request_view import find_request, patch_views, request_json, request_views
from spine.store import Row
from spine.values import encode

Rechained = Callable[[Callable[[list[Row]], list[Row]]], LogReader]


# ------------------------------------------------------------------------------------------------------------ views


def test_every_request_of_a_log_is_rebuilt_and_equal(demo: LogReader, careful: LogReader) -> None:
    for reader in (demo, careful):
        views = list(request_views(reader))
        assert [view.step for view in views] == [f"t1s{n}" for n in range(1, len(views) + 1)]
        assert all(view.is_equal for view in views)
        assert [view.request for view in views] == [reader.request(view.seq) for view in views]


def test_each_message_knows_the_event_it_comes_from(demo: LogReader, careful: LogReader) -> None:
    view, _ = find_request(demo)
    types = {event.seq: event.type for event in demo.read()}
    assert [types[seq] for seq in view.seqs if seq is not None] == [
        "input.accepted",
        "message.committed",
        "tool.completed",
        "message.committed",
        "tool.completed",
    ]
    by_plugin, _ = find_request(careful)
    assert by_plugin.seqs[-1] is None
    assert None not in by_plugin.seqs[:-1]


def test_a_step_is_found_with_the_request_before_it(demo: LogReader) -> None:
    for step, before in (("t1s1", None), ("t1s2", "t1s1"), ("t1s3", "t1s2"), (None, "t1s2")):
        view, earlier = find_request(demo, step)
        assert view.step == (step or "t1s3")
        assert (earlier.step if earlier is not None else None) == before


@pytest.mark.parametrize("step", ["t1s4", "t2s1", "", "nonsense"])
def test_an_unknown_step_is_told_with_those_there_are(demo: LogReader, step: str) -> None:
    with pytest.raises(UsageError, match=r"no request of step .* in refund-1017; it has t1s1, t1s2, t1s3"):
        find_request(demo, step)


def test_an_event_that_must_be_known_ends_the_view_and_names_itself(rechained: Rechained) -> None:
    def edit(rows: list[Row]) -> list[Row]:
        return [*rows[:8], Row(0, "crm.linked", 1, 0, "t1", "crm@1", True, b"{}", b""), *rows[8:]]

    with pytest.raises(EventUnknown, match=r"seq 9 has the type .crm.linked."):
        find_request(rechained(edit))


def test_patches_lead_from_what_the_runtime_built_to_what_was_sent(careful: LogReader) -> None:
    view, _ = find_request(careful, "t1s1")
    (patch,) = patch_views(careful, view)
    assert patch.patch.plugin == "careful@2.1"
    assert (patch.before, patch.after) == (view.before, view.request)
    assert (patch.before.max_output_tokens, patch.after.max_output_tokens) == (None, 64)


def test_a_request_as_json_can_be_written_and_says_its_proof(demo: LogReader) -> None:
    view, _ = find_request(demo)
    fact = request_json(view)
    assert (fact["equal"], fact["step"], fact["request"]["route"]) == (True, "t1s3", "scripted:demo")
    roles = [message["role"] for message in fact["request"]["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]
    assert len(roles) == len(fact["message_seqs"])
    assert encode(fact)


# ------------------------------------------------------------------------------------------------------------ words


def test_a_request_reads_from_its_parameters_to_its_last_message(demo: LogReader) -> None:
    view, _ = find_request(demo, "t1s2")
    seqs = view.seqs
    assert request_text(view).split("\n")[1:] == [
        "  max_output_tokens 1024",
        "section instructions · order 10 · agent refunds · about 10 tokens",
        "      You handle refunds for a shop. Be brief.",
        "tool lookup_order(order_id)",
        "      Find an order by the number printed on its invoice.",
        "tool refund(order_id, amount_cents)",
        "      Pay an order back.",
        f"user (seq {seqs[0]})",
        "      My mug from order 1017 arrived broken. Please refund it.",
        f"assistant (seq {seqs[1]})",
        '  > lookup_order(order_id="1017")',
        f"tool (seq {seqs[2]})",
        '  < {"item": "mug", "paid_cents": 1290, "state": "delivered"}',
    ]


def test_what_is_new_against_the_request_before(demo: LogReader) -> None:
    view, earlier = find_request(demo, "t1s3")
    assert diff_text(view, earlier).split("\n")[1:] == [
        "  route, parameters, 1 section, 2 tools   unchanged",
        "  messages                                3 kept, 2 added (prefix kept 100 %)",
        f"+ assistant (seq {view.seqs[3]})",
        "      The policy covers this, so I will refund it.",
        '  > refund(order_id="1017", amount_cents=1290)',
        f"+ tool (seq {view.seqs[4]})",
        "  < refunded 12.90 EUR, reference R-88",
    ]
    assert diff_text(view, earlier).startswith(
        f"t1s3 compared with t1s2 · rebuilt from the log, digest {view.digest[2:10]} equal to the one sent\n"
    )


def test_the_first_request_is_shown_whole(demo: LogReader) -> None:
    view, earlier = find_request(demo, "t1s1")
    assert diff_text(view, earlier) == f"{request_text(view)}\n(the first request: there is none to compare it with)"


def test_a_changed_section_and_a_moved_message_are_shown(careful: LogReader) -> None:
    view, earlier = find_request(careful, "t1s2")
    lines = diff_text(view, earlier).split("\n")
    table = [line.split(maxsplit=2)[-1] for line in lines[2:4]]
    assert table == ["1 line changed (t1s1. → t1s2.)", "kept, 1 gone, 3 added (prefix kept 50 %)"]
    at = lines.index("- section policy")
    assert lines[at : at + 4] == ["- section policy", "      Step t1s1.", "+ section policy", "      Step t1s2."]
    assert "- user (written by a plugin)" in lines


def test_foreign_text_never_acts_on_the_screen_nor_passes_for_a_fact(careful: LogReader) -> None:
    view, _ = find_request(careful)
    text = request_text(view)
    assert "\x1b" not in text
    assert "MUG: a word\\x1b[2J" in text


def test_a_request_that_was_not_sent_says_so(demo: LogReader) -> None:
    view, _ = find_request(demo)
    forged = attrs.evolve(view, recorded="1:" + "0" * 64)
    assert "is NOT the one sent (00000000)" in request_text(forged)


def test_patches_in_words(careful: LogReader, demo: LogReader) -> None:
    view, _ = find_request(careful, "t1s2")
    assert patches_text(view, patch_views(careful, view)).split("\n")[1:] == [
        "1 careful@2.1",
        "  max_output_tokens unset → 64",
        "  message 4: 0 gone, 1 added",
    ]
    untouched, _ = find_request(demo)
    assert patches_text(untouched, patch_views(demo, untouched)).endswith("\nno plugin changed this request")
