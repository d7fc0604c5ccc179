"""Steps in the text transcript, fixed to the character: a table of short logs and what a person reads of them."""

from collections.abc import Callable
from typing import Any

import pytest
from handwritten import (
    CUT,
    RATE_LIMIT,
    REFUND,
    Log,
    asked,
    call,
    committed,
    message,
    requested,
    result,
    revision,
    started,
    transcript_of,
)

from spine.events import (
    ApprovalDecided,
    CancelRequested,
    FieldChange,
    HookFailed,
    MessageInterrupted,
    ModelAttemptFailed,
    ModelAttemptStarted,
    ModelChunks,
    Patch,
    StepFailed,
    ToolProgress,
    ToolResolved,
)
from spine.llm import chunks as c
from spine.messages import (
    ArtifactRefBlock,
    AudioBlock,
    DocumentBlock,
    ExtensionBlock,
    ImageBlock,
    JsonBlock,
    RefusalBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from spine.values import CallId, Digest


def in_step(*facts: Any, content: tuple[Any, ...] = ("Hm.",)) -> Callable[[Log], None]:
    """A turn with one step of this content, followed by facts of the step."""

    def write(log: Log) -> None:
        log.turn("Go.")
        log.step(*content, frame=log.frame())
        for fact in facts:
            log.add(fact, "t1s1")

    return write


def answering(*facts: Any) -> Callable[[Log], None]:
    """A turn with one request and what followed it."""

    def write(log: Log) -> None:
        log.turn("Go.")
        log.add(requested(), "t1s1")
        for fact in facts:
            log.add(fact, "t1s1")

    return write


ORIGINAL = call("refund", order_id="1017", amount_cents=9900)
BY_ORDERS = (Patch(plugin="orders@0.3.0", changes=(FieldChange(field="arguments", value={}),)),)
PARTIAL = ModelChunks(chunks=(c.TextDelta(0, "I am"), c.TextDelta(0, " on my way"), c.ToolCallStarted(1, "refund")))

STEPS: dict[str, tuple[Callable[[Log], None], str]] = {
    "texts that the wire cut are one text": (
        in_step(content=("Rain is ", "likely", ".\nTake an umbrella.")),
        """
            Rain is likely.
            Take an umbrella.""",
    ),
    "empty lines keep no indentation": (in_step(content=("a\n\n  b",)), "\n    a\n\n      b"),
    "thinking and refusals are named, and so is the text after them": (
        in_step(
            content=(ThinkingBlock(text="Weather first.\nThen."), "Hello.", RefusalBlock(text="I cannot."), "Bye.")
        ),
        """
          [thinking]
            Weather first.
            Then.
          [text]
            Hello.
          [refusal]
            I cannot.
          [text]
            Bye.""",
    ),
    "thinking that the provider keeps": (
        in_step(content=(ThinkingBlock(redacted=True), ThinkingBlock(), "Hello.")),
        """
          [thinking, kept by the provider]
          [thinking, kept by the provider]
            Hello.""",
    ),
    "what cannot be shown as text is a note": (
        in_step(
            content=(
                ImageBlock(data="aGVsbG8=", media_type="image/png"),
                DocumentBlock(url="https://example.com/a.pdf", name='the "bill"'),
                AudioBlock(artifact=Digest("1:ab"), transcript="Hello there."),
                ArtifactRefBlock(digest=Digest("1:cd"), media_type="text/csv", size=1234),
                ExtensionBlock(kind="web_search_call", data={"query": "mug", "n": 1}),
                JsonBlock(value=["a", None, 1.5]),
            )
        ),
        """
          [image image/png, 5 bytes]
          [document application/pdf, "the \\"bill\\"", at "https://example.com/a.pdf"]
          [audio audio/wav, stored as 1:ab]
          [transcript]
            Hello there.
          [text/csv, 1,234 bytes, stored as 1:cd]
          [web_search_call {"n": 1, "query": "mug"}]
            ["a", null, 1.5]""",
    ),
    "outcomes stand below their call, in order of the calls": (
        in_step(
            started("lookup_order", "t1s1c1", arguments={"order_id": "1"}),
            started("lookup_order", "t1s1c2", arguments={"order_id": "2"}),
            result("lookup_order", "second", call_id="t1s1c2"),
            result("lookup_order", "first\n  > not a call\nof three", call_id="t1s1c1"),
            content=(call("lookup_order", "t1s1c1", order_id="1"), "and", call("lookup_order", "t1s1c2", order_id="2")),
        ),
        """
          > lookup_order(order_id="1")
          < first
              > not a call
            of three
          [text]
            and
          > lookup_order(order_id="2")
          < second""",
    ),
    "a call without a result yet": (in_step(content=(call("f", a=1),)), "\n  > f(a=1)"),
    "required arguments come as the tool declares them, others sorted": (
        in_step(content=(call("refund", zone="b", amount_cents=1, before="a", order_id="2"),)),
        '\n  > refund(order_id="2", amount_cents=1, before="a", zone="b")',
    ),
    "arguments that are no object stand as the model wrote them": (
        in_step(content=(ToolCallBlock(id=CallId("t1s1c1"), name="refund", arguments_text='{"order_id": 10'),)),
        '\n  > refund("{\\"order_id\\": 10")',
    ),
    "names and keys that could confuse are quoted": (
        in_step(content=(call("re fund()", **{"a b": 1, "x=1, y": {"k": "\n\u202e"}, "ok.key-1": None}),)),
        '\n  > "re fund()"("a b"=1, ok.key-1=null, "x=1, y"={"k": "\\n\\u202e"})',
    ),
    "an empty outcome": (in_step(result("f"), content=(call("f"),)), "\n  > f()\n  <"),
    "outcomes of several blocks": (
        in_step(result("f", "a\nb", {"k": 1}, ImageBlock(url="https://x"), "c"), content=(call("f"), "done")),
        """
          > f()
          < a
            b
          < {"k": 1}
          [image image/png, at "https://x"]
          < c
          [text]
            done""",
    ),
    "an error as the model got it": (
        in_step(result("f", "error: no order 7", status="error"), content=(call("f"),)),
        "\n  > f()\n  < error: no order 7",
    ),
    "a status that the text does not name is named": (
        in_step(result("f", "Too slow.", status="timeout"), content=(call("f"),)),
        "\n  > f()\n  < timeout: Too slow.",
    ),
    "a status without a text": (
        in_step(result("f", status="not_started"), content=(call("f"),)),
        "\n  > f()\n  < not_started",
    ),
    "a status in words": (
        in_step(result("f", "not started: cut.", status="not_started"), content=(call("f"),)),
        "\n  > f()\n  < not started: cut.",
    ),
    "a good result cannot pass for a denial": (
        in_step(result("f", "denied: A person declined this call."), content=(call("f"),)),
        "\n  > f()\n  < ok: denied: A person declined this call.",
    ),
    "an error cannot pass for a denial": (
        in_step(result("f", "denied: by me", status="error"), content=(call("f"),)),
        "\n  > f()\n  < error: denied: by me",
    ),
    "a revised outcome": (
        in_step(result("f", "card 4111"), revision("card …", "redact@1.2.0"), content=(call("f"),)),
        """
          > f()
          < card …
          ! the outcome was revised by redact@1.2.0; what the tool returned is in the log""",
    ),
    "the last of two revisions": (
        in_step(result("f", "a"), revision("b", "one@1"), revision("c", "two@2"), content=(call("f"),)),
        """
          > f()
          < c
          ! the outcome was revised by two@2; what the tool returned is in the log""",
    ),
    "arguments that a plugin changed": (
        in_step(
            started("refund", arguments=REFUND, requested=ORIGINAL.arguments, patches=BY_ORDERS),
            result("refund", "done"),
            content=(ORIGINAL,),
        ),
        """
          > refund(order_id="1017", amount_cents=9900)
          > changed by orders@0.3.0 to refund(order_id="1017", amount_cents=1290)
          < done""",
    ),
    "changed arguments are told once, where the person is asked": (
        in_step(
            asked(patches=BY_ORDERS),
            ApprovalDecided(id="a1", decision="approved", by="demo", reason="small"),
            started("refund", arguments=REFUND, requested=ORIGINAL.arguments, patches=BY_ORDERS),
            content=(ORIGINAL,),
        ),
        """
          > refund(order_id="1017", amount_cents=9900)
          > changed by orders@0.3.0 to refund(order_id="1017", amount_cents=1290)
          ? approval asked: refunds need a person
          ? approved by demo: small""",
    ),
    "an approval that was asked again": (
        in_step(
            asked(reason=None), asked("a2", replaces="a1", reason="it changed"), content=(call("refund", **REFUND),)
        ),
        """
          > refund(order_id="1017", amount_cents=1290)
          ? approval asked
          ? approval asked again: it changed""",
    ),
    "what recovery decided": (
        in_step(
            started("f"),
            ToolResolved(call=CallId("t1s1c1"), decision="rerun", reason="idempotent"),
            started("f"),
            ToolProgress(call=CallId("t1s1c1"), text="half way"),
            result("f", "once"),
            content=(call("f"),),
        ),
        "\n  > f()\n  ! recovery decided: rerun: idempotent\n  < once",
    ),
    "a call whose message is not in the log": (
        in_step(result("f", "late", call_id="t0s9c1")),
        '\n    Hm.\n  > f("unknown")\n  < late',
    ),
    "a call known only from its start": (in_step(started("f", "t0s9c1", arguments={"a": 1})), "\n    Hm.\n  > f(a=1)"),
    "a call known only from recovery": (
        in_step(ToolResolved(call=CallId("t0s9c1"), decision="asked")),
        '\n    Hm.\n  > t0s9c1("unknown")\n  ! recovery decided: asked',
    ),
    "a revision without a result": (
        in_step(revision("seen", "redact@1")),
        '\n    Hm.\n  > f("unknown")\n  < seen\n'
        "  ! the outcome was revised by redact@1; what the tool returned is in the log",
    ),
    "a hook that failed": (
        in_step(HookFailed(hook="spine_post_step", plugin="noisy@2.0", error="ValueError: a\nb")),
        "\n    Hm.\n  ! hook spine_post_step of noisy@2.0 failed: ValueError: a\\nb",
    ),
    "a cancel that somebody asked for": (
        in_step(CancelRequested(by="ann", cause="deadline"), CancelRequested()),
        "\n    Hm.\n  ~ cancel requested by ann: deadline\n  ~ cancel requested",
    ),
    "a retry that waits": (
        answering(ModelAttemptFailed(attempt=1, failure=CUT, delay_s=0.25)),
        "\n  ! attempt 1 failed: stream_truncated, next attempt in 250 ms",
    ),
    "retries in order": (
        answering(
            ModelAttemptFailed(attempt=1, failure=RATE_LIMIT, delay_s=2.5),
            ModelAttemptStarted(attempt=2),
            ModelAttemptFailed(attempt=2, failure=CUT),
            StepFailed(failure=CUT),
        ),
        """
          ! attempt 1 failed: rate_limit (HTTP 429), tried again after 2.5 s
          ! attempt 2 failed: stream_truncated
          ! step failed: stream_truncated: the stream ended""",
    ),
    "output that was withdrawn was seen": (
        answering(
            PARTIAL,
            ModelAttemptFailed(attempt=1, failure=CUT, delay_s=1, discarded=True),
            ModelAttemptStarted(attempt=2),
            committed("Here."),
        ),
        """
            I am on my way
          > refund()
          ! attempt 1 failed: stream_truncated, what it had written was withdrawn, tried again after 1 s
            Here.""",
    ),
    "an answer that is arriving": (
        answering(PARTIAL),
        "\n    I am on my way\n  > refund()\n  ~ the answer is not finished",
    ),
    "nothing has arrived": (answering(), "\n  ~ the answer is not finished"),
    "an answer replaces its chunks": (answering(PARTIAL, committed("Whole.")), "\n    Whole."),
    "an answer that was cancelled": (
        answering(
            PARTIAL, MessageInterrupted(message=message(TextBlock(text="I am")), note="the answer was cancelled")
        ),
        "\n    I am\n  ~ the answer was cancelled",
    ),
    "what had arrived stands before the cancel that cut it": (
        answering(
            PARTIAL,
            CancelRequested(),
            MessageInterrupted(message=message(TextBlock(text="I am")), note="the answer was cancelled"),
        ),
        "\n    I am\n  ~ cancel requested\n  ~ the answer was cancelled",
    ),
    "what had arrived stands after the attempt that failed before it": (
        answering(
            ModelAttemptFailed(attempt=1, failure=CUT, delay_s=1),
            ModelAttemptStarted(attempt=2),
            MessageInterrupted(message=message(TextBlock(text="I am")), note="the answer was cancelled"),
        ),
        """
          ! attempt 1 failed: stream_truncated, tried again after 1 s
            I am
          ~ the answer was cancelled""",
    ),
    "an interruption nobody worded": (
        answering(MessageInterrupted(cause="failed", failure=RATE_LIMIT)),
        "\n  ~ interrupted (failed, rate_limit (HTTP 429))",
    ),
    "an answer that broke off": (
        answering(
            PARTIAL,
            ModelAttemptFailed(attempt=1, failure=CUT),
            MessageInterrupted(
                message=message(TextBlock(text="I am")), cause="failed", failure=CUT, note="it broke off"
            ),
            StepFailed(failure=CUT),
        ),
        """
            I am
          ! attempt 1 failed: stream_truncated
          ~ it broke off
          ! step failed: stream_truncated: the stream ended""",
    ),
    "a crash while nothing had arrived": (
        answering(ModelAttemptStarted(attempt=2), committed("Back.")),
        "\n  ! attempt 1 has no known end, tried again\n    Back.",
    ),
    "a crash in the middle of an answer": (
        answering(
            PARTIAL,
            MessageInterrupted(message=message(TextBlock(text="I am")), cause="crashed", note="the process ended"),
            ModelAttemptStarted(attempt=2),
            committed("I am here."),
        ),
        "\n    I am\n  ~ the process ended\n    I am here.",
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_reads(name: str) -> None:
    write, expected = STEPS[name]
    log = Log()
    write(log)
    text = transcript_of(log).text
    assert text.partition("ASSISTANT t1s1")[2] == dedented(expected)


def dedented(text: str) -> str:
    """The table's text, set as deep as the table is."""
    rows = text.split("\n")
    depth = 8 if any(row.startswith(" " * 10) for row in rows[1:]) and rows[1].startswith(" " * 10) else 0
    return "\n".join(row[depth:] for row in rows)
