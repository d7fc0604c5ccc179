"""The core's texts for the model: versioned, fixed once released, filled in once."""

import attrs
import pytest

from spine import outcomes
from spine.errors import UsageError
from spine.tools import ToolOutcome
from spine.values import digest, encode
from spine.wording import WORDING, WORDING_VERSION, say


def test_version_1_says_what_it_always_said():
    """An old log replays with the words it was written with: change a text by adding a version."""
    table = digest(encode(dict(WORDING[1])))
    assert table == "1:6a58d29c174a61aab96acc42bdfd75a8bef3d54bec23ba72a5caedcacde5aba1"


def test_the_newest_version_is_the_default():
    assert max(WORDING) == WORDING_VERSION
    assert say("denied_by_person") == say("denied_by_person", version=WORDING_VERSION)


def test_values_are_never_read_as_templates():
    assert say("failed", message="{name} {0} %s {") == "error: {name} {0} %s {"


def test_the_table_is_read_only():
    with pytest.raises(TypeError):
        WORDING[1]["failed"] = "x"
    with pytest.raises(TypeError):
        WORDING[2] = {}


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: say("failed", version=99, message=""), "version 99; this installation has 1"),
        (lambda: say("faild", message=""), "'faild' is missing"),
        (lambda: say("failed"), "'message' is missing"),
    ],
)
def test_a_text_that_is_not_there_is_refused(call, part):
    with pytest.raises(UsageError, match=part):
        call()


SAID = (
    (outcomes.withheld(), "error: The result of this call is withheld: a plugin that checks results failed."),
    (outcomes.not_started("failed"), "not started: The step failed before this call ran. Nothing was executed."),
    (
        outcomes.interrupted("failed"),
        "interrupted: The step failed while this call was running. Some of its effects may have happened.",
    ),
    (outcomes.denied("still shipped"), "denied: A person declined this call: still shipped. Nothing was executed."),
    (outcomes.denied("Still shipped.\n"), "denied: A person declined this call: Still shipped. Nothing was executed."),
    (outcomes.denied(), "denied: A person declined this call. Nothing was executed."),
    (
        outcomes.denied("over 100 EUR", by="plugin", who="orders"),
        "denied: orders declined this call: over 100 EUR. Nothing was executed.",
    ),
    (
        outcomes.denied("outside the folder", by="policy"),
        "denied: A rule of this application declined this call: outside the folder. Nothing was executed.",
    ),
    (
        outcomes.unknown_tool("wether", ["read_note", "weather"]),
        'error: There is no tool "wether". Available: read_note, weather.',
    ),
    (outcomes.unknown_tool("x", []), 'error: There is no tool "x", and no other tool is available.'),
    (outcomes.invalid_arguments('missing "city"'), 'error: missing "city"'),
    (
        outcomes.unreadable_arguments('{"city": "Os'),
        'error: The arguments are no JSON object: {"city": "Os. Nothing was executed; send one JSON object.',
    ),
    (outcomes.raised(ValueError("no such order")), "error: ValueError: no such order"),
    (outcomes.raised(ValueError()), "error: ValueError"),
    (
        outcomes.timed_out(20),
        "timeout: The tool did not finish within 20 s and was stopped. Some of its effects may have happened.",
    ),
    (
        outcomes.timed_out(0.5, reach="thread"),
        "timeout: The tool did not finish within 0.5 s. It could not be stopped and may still take effect.",
    ),
    (
        outcomes.not_started("max_tokens"),
        "not started: Your answer was cut at its output limit (max_tokens), so this call may be incomplete. "
        "Nothing was executed.",
    ),
    (
        outcomes.not_started("ending", stop_reason="refusal"),
        "not started: The answer ended early (refusal). Nothing was executed.",
    ),
    (
        outcomes.interrupted("crashed"),
        "interrupted: The process ended while this call was running. "
        "Its effects may have happened; check before calling it again.",
    ),
)


@pytest.mark.parametrize(("outcome", "text"), SAID, ids=[text[:60] for _, text in SAID])
def test_an_outcome_says_what_the_model_reads(outcome, text):
    assert outcome.content[0].text == text
    assert outcome.status != "ok"
    assert outcome.error is not None
    assert outcome.duration_s is None


@pytest.mark.parametrize("cause", ["cancelled", "thread", "crashed", "unrecorded"])
def test_an_interruption_never_claims_that_nothing_happened(cause):
    text = outcomes.interrupted(cause).content[0].text
    assert "effect" in text
    assert "Nothing was executed" not in text


@pytest.mark.parametrize("cause", ["cancelled", "max_tokens", "ending", "closed", "threads"])
def test_a_call_that_never_started_says_so(cause):
    assert outcomes.not_started(cause).content[0].text.endswith("Nothing was executed.")


class _Mute(Exception):
    def __str__(self):
        raise RuntimeError("mute")


@pytest.mark.parametrize(
    "outcome",
    [
        outcomes.raised(ValueError("x" * 10**6)),
        outcomes.raised(type("E" * 5000, (Exception,), {})("\ud800")),
        outcomes.raised(_Mute("x")),
        outcomes.denied("y" * 10**6),
        outcomes.unknown_tool("z" * 10**6, [f"tool_{i}" for i in range(10_000)]),
        outcomes.unreadable_arguments("\ud800" * 10**5),
        outcomes.invalid_arguments("p" * 10**6),
    ],
    ids=["long", "surrogate", "mute", "denial", "many", "unreadable", "problem"],
)
def test_foreign_text_in_an_outcome_is_bounded_and_clean(outcome):
    assert len(encode([outcome.content[0].text, outcome.error.message, outcome.error.type])) < 10_000


def test_an_outcome_is_frozen():
    outcome = outcomes.denied("no")
    assert isinstance(outcome, ToolOutcome)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        outcome.status = "ok"
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        outcome.error.message = "x"
