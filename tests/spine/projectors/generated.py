"""Plausible session logs for hypothesis: `generated_logs`.

A log follows the life of a turn: inputs, steps with retries and chunks, groups of calls that end in any
order, approvals, steering, cancels, crashes with recovery, compactions, failed and repeated turns. It may end anywhere.
"""

from collections.abc import Callable
from typing import Any

from handwritten import AGENT, ROUTE, Log, committed
from hypothesis import strategies as st

from spine.events import (
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    FieldChange,
    HistoryCompacted,
    HookFailed,
    InputAccepted,
    InputDelivered,
    MessageInterrupted,
    ModelAttemptFailed,
    ModelAttemptStarted,
    ModelChunks,
    ModelRequested,
    Patch,
    RecordedEvent,
    Repeats,
    SessionCreated,
    SessionRenamed,
    SessionResumed,
    StepFailed,
    ToolCompleted,
    ToolProgress,
    ToolResolved,
    ToolRevised,
    ToolStarted,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    TurnSuspended,
)
from spine.llm import chunks as c
from spine.llm.errors import Failure
from spine.llm.usage import Cost, Usage
from spine.messages import (
    ExtensionBlock,
    ImageBlock,
    JsonBlock,
    Message,
    Origin,
    RefusalBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from spine.tools import ToolError
from spine.values import CallId, TurnId, digest

# ------------------------------------------------------------------------------------------------------ strategies

_PIECES = (
    "A colleague looks.", "two\nlines\n\n", "", "  > refund()", "turn t9 completed", "\x1b[31mred", "\u202egnp.exe",
    "<script>", "a\tb\r\n", "👩\u200d🚀", "ok: fine", "denied: no", "```", "日本語", "x" * 300,
)  # fmt: skip
texts = st.sampled_from(_PIECES) | st.text(max_size=12)
_values = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(-1e9, 1e9) | texts
_arguments = st.dictionaries(st.sampled_from(("order_id", "amount_cents", "a b", "é")), _values, max_size=3)
_counts = st.none() | st.integers(0, 5000)
_usages = st.builds(
    Usage, input_tokens=_counts, output_tokens=_counts, cache_read_tokens=_counts
) | st.just(Usage())  # fmt: skip
_costs = st.none() | st.builds(Cost, micros=st.integers(0, 10**7), prices=st.just("test"))
_failures = st.builds(
    Failure,
    category=st.sampled_from(("rate_limit", "overloaded", "connection", "stream_truncated")),
    message=texts,
    status=st.sampled_from((None, 429, 529)),
    retryable=st.just(True),
)
_blocks = (
    st.builds(TextBlock, text=texts)
    | st.builds(ThinkingBlock, text=texts, redacted=st.booleans())
    | st.builds(RefusalBlock, text=texts)
    | st.builds(ExtensionBlock, kind=texts, data=_values)
    | st.just(ImageBlock(data="aGVsbG8="))
)
_results = st.lists(
    st.builds(TextBlock, text=texts) | st.builds(JsonBlock, value=_arguments) | st.just(ImageBlock(url="https://x")),
    max_size=2,
).map(tuple)
_calls = st.tuples(st.sampled_from(("lookup_order", "refund", "no such tool")), _arguments, st.booleans())
_patch = Patch(plugin="orders@0.3.0", changes=(FieldChange(field="arguments", value={}),))


class _Writer:
    """Draws one log; methods return False once the turn has ended."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.log = Log("generated")
        self.approvals = 0
        self.frame = 0

    def chance(self, one_in: int) -> bool:
        return bool(self.draw(st.integers(0, one_in - 1)) == one_in - 1)

    def session(self, turns: int) -> list[RecordedEvent]:
        self.log.add(SessionCreated(agent=AGENT, title=self.draw(st.none() | texts)))
        repeatable: str | None = None
        for number in range(1, self.draw(st.integers(1, turns)) + 1):
            self.between_turns()
            repeatable = self.turn(f"t{number}", repeatable)
        return self.log.events

    def between_turns(self) -> None:
        if self.chance(5):
            self.log.add(SessionRenamed(title=self.draw(texts)))
        if self.chance(6):
            self.log.add(HookFailed(hook="spine_post_step", plugin="noisy@2.0", error=self.draw(texts)))

    # ------------------------------------------------------------------------------------------------- a turn

    def turn(self, turn: str, repeatable: str | None) -> str | None:
        """One turn; its id when it may be repeated."""
        if repeatable is not None and self.chance(2):
            repeats = Repeats(turn=TurnId(repeatable), keep_partial=self.chance(2))
            self.log.add(TurnStarted(repeats=repeats), turn)
        else:
            inputs = tuple(self.input("queue") for _ in range(self.draw(st.integers(1, 2))))
            self.log.add(TurnStarted(inputs=inputs), turn)
            self.log.add(InputDelivered(inputs=inputs), turn)
        for number in range(1, self.draw(st.integers(1, 3)) + 1):
            ended = self.step(turn, f"{turn}s{number}")
            if ended:
                return turn if ended != "completed" else None
        limit = Failure(category="limit", message="steps: 3 of 3 used", details={"steps": 3})
        self.log.add(TurnFailed(failure=limit), turn)
        return turn

    def input(self, delivery: Any) -> int:
        kind = self.draw(st.sampled_from(("user", "user", "context", "child_result")))
        content = self.draw(st.lists(_blocks, min_size=1, max_size=2).map(tuple))
        message = Message(role="user", content=content, kind=kind)
        return self.log.add(InputAccepted(message=message, delivery=delivery))

    def cancel(self, turn: str) -> None:
        late = Failure(category="limit", message="3 s used") if self.chance(3) else None
        self.log.add(CancelRequested(by=self.draw(st.none() | texts), failure=late), turn)

    # ------------------------------------------------------------------------------------------------- a step

    def step(self, turn: str, step: str) -> str | None:
        """One step; how the turn ended with it, None when it goes on."""
        if self.chance(5):
            steering = self.input("steer")
            self.log.add(InputDelivered(inputs=(steering,), place="step"), turn)
        if self.chance(8):
            failure = Failure(category="unsupported_capability", message="no images")
            self.log.add(StepFailed(failure=failure), step)
            self.log.add(TurnFailed(failure=failure), turn)
            return "failed"
        self.request(step)
        content = self.answer_content(step)
        ended = self.answer(turn, step, content)
        if ended:
            return ended
        if self.chance(8):
            summary = Message(role="user", content=(TextBlock(text=self.draw(texts)),), kind="summary")
            calls = [block for block in content if isinstance(block, ToolCallBlock)]
            if not calls:
                self.log.add(HistoryCompacted(summary=summary, until=len(self.log.events)), turn)
        calls = [block for block in content if isinstance(block, ToolCallBlock)]
        if calls:
            return self.calls(turn, step, calls)
        self.log.add(TurnCompleted(message=len(self.log.events), complete=not self.chance(6)), turn)
        return "completed"

    def request(self, step: str) -> None:
        if not self.frame or self.chance(4):
            self.frame = self.log.frame(self.draw(st.sampled_from((ROUTE, "lab:tiny"))))
        patches = ()
        if self.chance(4):
            change = FieldChange(field="max_output_tokens", value=512)
            patches = (Patch(plugin="orders@0.3.0", changes=(change,)),)
        self.log.add(ModelRequested(digest=digest(step.encode()), frame=self.frame, patches=patches), step)

    def answer_content(self, step: str) -> tuple[Any, ...]:
        blocks = self.draw(st.lists(_blocks, max_size=2))
        calls = self.draw(st.lists(_calls, max_size=3))
        for number, (name, arguments, is_whole) in enumerate(calls, 1):
            raw = {"arguments": arguments} if is_whole else {"arguments_text": '{"order_id": 10'}
            blocks.append(ToolCallBlock(id=CallId(f"{step}c{number}"), name=name, **raw))
        return tuple(blocks) or (TextBlock(text="."),)

    def answer(self, turn: str, step: str, content: tuple[Any, ...]) -> str | None:
        attempt = 1
        while attempt < 3 and self.chance(4):
            if self.chance(3):  # the process died while it waited for the answer
                self.log.add(SessionResumed(agent=AGENT, changes=self.draw(st.sampled_from(((), ("tool gone",))))))
                if self.chance(2):
                    partial = self.partial(step, content, attempt)
                    self.log.add(MessageInterrupted(message=partial, cause="crashed"), step)
            else:
                discarded = self.chance(2)
                if discarded:
                    self.chunks(step, content, attempt, whole=False)
                failed = ModelAttemptFailed(
                    attempt=attempt,
                    failure=self.draw(_failures),
                    delay_s=self.draw(st.floats(0, 60)),
                    discarded=discarded,
                    usage=self.draw(_usages),
                )
                self.log.add(failed, step)
            attempt += 1
            self.log.add(ModelAttemptStarted(attempt=attempt), step)
        if self.chance(6):
            return self.cancelled_answer(turn, step, content, attempt)
        if self.chance(6):
            return self.failed_answer(turn, step, content, attempt)
        if self.chance(2):
            self.chunks(step, content, attempt, whole=True)
        self.log.add(committed(*content, usage=self.draw(_usages), cost=self.draw(_costs)), step)
        return None

    def cancelled_answer(self, turn: str, step: str, content: tuple[Any, ...], attempt: int) -> str:
        partial = self.partial(step, content, attempt)
        self.cancel(turn)
        self.log.add(MessageInterrupted(message=partial, note="the answer was cancelled"), step)
        self.log.add(TurnCancelled(), turn)
        return "cancelled"

    def failed_answer(self, turn: str, step: str, content: tuple[Any, ...], attempt: int) -> str:
        failure = self.draw(_failures)
        partial = self.partial(step, content, attempt)
        self.log.add(ModelAttemptFailed(attempt=attempt, failure=failure), step)
        if partial is not None:
            self.log.add(MessageInterrupted(message=partial, cause="failed", failure=failure), step)
        self.log.add(StepFailed(failure=failure), step)
        self.log.add(TurnFailed(failure=failure), turn)
        return "failed"

    def partial(self, step: str, content: tuple[Any, ...], attempt: int) -> Message | None:
        if self.chance(3):
            return None
        self.chunks(step, content, attempt, whole=False)
        kept = content[:1]
        return Message(role="assistant", content=kept, origin=Origin(protocol="scripted", route=ROUTE))

    def chunks(self, step: str, content: tuple[Any, ...], attempt: int, *, whole: bool) -> None:
        pieces: list[Any] = [c.ResponseStarted(model="demo")]
        for index, block in enumerate(content if whole else content[:1]):
            match block:
                case TextBlock(text=text):
                    pieces += [c.TextDelta(index, text[:2]), c.TextDelta(index, text[2:])]
                case ThinkingBlock(text=text):
                    pieces.append(c.ThinkingDelta(index, text))
                case ToolCallBlock(name=name):
                    pieces += [c.ToolCallStarted(index, name), c.ToolCallDelta(index, '{"order')]
                case _:
                    pieces.append(c.BlockAdded(index, block))
        cut = self.draw(st.integers(1, len(pieces)))
        for flush in (pieces[:cut], pieces[cut:]):
            if flush:
                self.log.add(ModelChunks(chunks=tuple(flush), attempt=attempt), step)

    # --------------------------------------------------------------------------------------------------- calls

    def calls(self, turn: str, step: str, calls: list[ToolCallBlock]) -> str | None:
        asking = [block for block in calls if block.arguments is not None and self.chance(4)]
        running = [block for block in calls if block not in asking]
        for block in asking:
            self.ask(step, block)
        if self.chance(7):
            return self.cancelled_calls(turn, step, calls, running)
        self.run(step, running)
        if asking:
            self.suspend(turn, step, asking)
        if self.chance(8):
            self.log.add(HookFailed(hook="spine_post_execute", plugin="noisy@2.0", error=self.draw(texts)), step)
        return None

    def run(self, step: str, calls: list[ToolCallBlock]) -> None:
        """All starts in order, then the completions in any order."""
        for block in calls:
            self.start(step, block)
        for block in self.draw(st.permutations(calls)):
            self.complete(step, block)

    def start(self, step: str, block: ToolCallBlock) -> None:
        if block.name == "no such tool" or block.arguments is None:
            return
        changed = self.chance(5)
        arguments = {"order_id": "changed"} if changed else block.arguments
        requested = block.arguments if changed else None
        patches = (_patch,) if changed else ()
        started = ToolStarted(
            call=block.id,
            name=block.name,
            arguments=arguments,
            requested=requested,
            patches=patches,
            effect="idempotent",
        )
        self.log.add(started, step)
        if self.chance(3):
            self.log.add(ToolProgress(call=block.id, text="half way"), step)
        if self.chance(8):
            self.log.add(SessionResumed(agent=AGENT))
            self.log.add(ToolResolved(call=block.id, decision="rerun", reason="idempotent"), step)
            self.log.add(started, step)

    def complete(self, step: str, block: ToolCallBlock, status: str | None = None) -> None:
        is_good = block.name != "no such tool" and block.arguments is not None
        chosen = status or ("ok" if is_good and not self.chance(4) else "error")
        error = None if chosen == "ok" else ToolError(kind="exception", message=self.draw(texts))
        content = self.draw(_results)
        answer = ToolResultBlock(call_id=block.id, name=block.name, content=content, is_error=chosen != "ok")
        done = ToolCompleted(
            result=answer, status=chosen, error=error, duration_s=self.draw(st.none() | st.floats(0, 9))
        )
        self.log.add(done, step)
        if self.chance(6):
            revised = ToolResultBlock(call_id=block.id, name=block.name, content=(TextBlock(text="revised"),))
            self.log.add(ToolRevised(result=revised, patches=(Patch(plugin="redact@1.2.0"),)), step)

    def ask(self, step: str, block: ToolCallBlock) -> None:
        self.approvals += 1
        asked = ApprovalRequested(
            id=f"a{self.approvals}",
            call=block.id,
            hash=digest(block.name.encode()),
            name=block.name,
            arguments=block.arguments,
            reason=self.draw(st.none() | texts),
        )
        self.log.add(asked, step)

    def suspend(self, turn: str, step: str, calls: list[ToolCallBlock]) -> None:
        ids = [event.data.id for event in self.log.events if isinstance(event.data, ApprovalRequested)][-len(calls) :]
        self.log.add(TurnSuspended(approvals=tuple(ids)), turn)
        for approval, block in self.draw(st.permutations(list(zip(ids, calls, strict=True)))):
            decision = self.draw(st.sampled_from(("approved", "denied")))
            reason = self.draw(st.none() | texts)
            decided = ApprovalDecided(id=approval, decision=decision, by="demo", reason=reason)
            self.log.add(decided, step)
            if decision == "approved":
                self.start(step, block)
            self.complete(step, block, None if decision == "approved" else "denied")

    def cancelled_calls(self, turn: str, step: str, calls: list[Any], running: list[Any]) -> str:
        started = running[: self.draw(st.integers(0, len(running)))]
        for block in started:
            self.start(step, block)
        self.cancel(turn)
        for block in calls:
            self.complete(step, block, "interrupted" if block in started else "not_started")
        self.log.add(TurnCancelled(), turn)
        return "cancelled"


@st.composite
def generated_logs(draw: Callable[[Any], Any], turns: int = 3) -> list[RecordedEvent]:
    """A session's events from the first on, of at most `turns` turns."""
    return _Writer(draw).session(turns)
