"""One request with its retries (floor 10): the answer's pieces become events, and so does every attempt and wait.

An adapter makes one attempt; whether there is another one is decided here. A retry starts only when nothing visible
has been passed on. Whatever ends an attempt, what had arrived of it is in the log.
"""

import logging
from collections.abc import Callable
from typing import Any, get_args

import attrs
from anyio.lowlevel import checkpoint

from spine.drafts import maker
from spine.errors import SpineError, UsageError, ValueRefused, ValueTooLarge
from spine.events import (
    WIRE_MEDIA_TYPE,
    MessageCommitted,
    MessageInterrupted,
    ModelAttemptFailed,
    ModelAttemptStarted,
    ModelChunks,
    StepFailed,
    WireCaptured,
)
from spine.llm.assemble import Assembler
from spine.llm.catalogue import price
from spine.llm.chunks import (
    WIRE,
    BlockAdded,
    BlockEnded,
    Chunk,
    ProviderEvent,
    RefusalDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from spine.llm.errors import Failure, ProviderError, lossy, provider_error
from spine.llm.request import ModelRequest
from spine.llm.response import ModelResponse
from spine.llm.retry import next_delay
from spine.llm.usage import Usage
from spine.masking import masked_json
from spine.messages import Message, Origin, ToolCallBlock
from spine.projectors.status import TurnState
from spine.requests import content_of
from spine.routes import Target
from spine.run import Run, stop_if_cancelled
from spine.stored import StoredLog
from spine.values import StepId, clean_text, encode

_logger = logging.getLogger("spine")
FLUSH_CHUNKS = 64
FLUSH_S = 0.05
FLUSH_CHARS = 65_536
"""However they are escaped, so many characters and the next piece fit one event."""
_CHUNK_KINDS = frozenset(get_args(Chunk))
_TEXTS = frozenset((TextDelta, ThinkingDelta, RefusalDelta))


class Flow:
    """The answer that is arriving: folds its chunks, shows them live, and records them per flush.

    A flush happens at 64 chunks or 65,536 characters, 50 ms after the first unrecorded chunk, and before any other
    event of the step. Lone surrogates are replaced at this door.
    """

    def __init__(self, run: Run, step: StepId, attempt: int) -> None:
        self._run = run
        self._clock = run.clock.monotonic
        self._place = step
        self.attempt = attempt
        self._first = 0.0
        self._chunks: list[Chunk] = []
        self._times: list[float] = []
        self._size = 0
        self.assembler = Assembler(step)

    @property
    def is_visible(self) -> bool:
        """Whether anything arrived that a person may have seen."""
        return self.assembler.is_visible

    def add(self, chunk: Chunk) -> None:
        """Take one chunk; debug events of the provider are not recorded."""
        kind = type(chunk)
        text = chunk.text if kind in _TEXTS else chunk.arguments if kind is ToolCallDelta else None  # type: ignore[union-attr]
        if text is not None:
            self._size += len(text)
            if not text.isascii() and (clean := clean_text(text)) != text:
                chunk = kind(chunk.index, clean)  # type: ignore[union-attr,call-arg,arg-type]
        elif kind is BlockAdded or kind is BlockEnded:
            self._check_recordable(chunk)
        self.assembler.add(chunk)
        for watcher in self._run.on_chunk:
            try:
                watcher(chunk)
            except Exception as exc:  # whoever looks on must not end what they look at
                self._drop(watcher, exc)
        if kind is ProviderEvent:
            self._keep(chunk)
            return
        chunks, now = self._chunks, self._clock()
        if not chunks:
            self._first = now
        chunks.append(chunk)
        self._times.append(now)
        if now - self._first >= FLUSH_S or self._size >= FLUSH_CHARS or len(chunks) >= FLUSH_CHUNKS:
            self.flush()

    def _keep(self, event: Any) -> None:
        """Record what went over the wire, when that is what came: both sides, and an event that names them."""
        if event.kind != WIRE:
            return
        self.flush()
        exchange: Any = masked_json(event.data, self._run.secrets.values())
        found = {side: exchange[side] for side in ("request", "response") if exchange.get(side) is not None}
        contents = {side: content_of(encode(record), WIRE_MEDIA_TYPE) for side, record in found.items()}
        for content in contents.values():
            self._run.log.put(content, self._place)
        digests = {side: content.digest for side, content in contents.items()}
        self._run.log.append(WireCaptured(attempt=self.attempt, **digests), place=self._place)

    def _check_recordable(self, chunk: Any) -> None:
        part = chunk.block if type(chunk) is BlockAdded else chunk.provider_state
        if part is not None and not self._run.log.codec.reads_back(part):
            raise broken_contract(f"sent a {type(part).__name__} that cannot be recorded")

    def _drop(self, watcher: Callable[[Chunk], None], error: Exception) -> None:
        self._run.on_chunk = [other for other in self._run.on_chunk if other != watcher]
        # Its type only: the text of an error may quote the chunk.
        _logger.warning("a watcher of step %s raised %s and is not called again", self._place, type(error).__name__)

    def flush(self) -> None:
        """Record what arrived since the last flush."""
        events = self.unrecorded()
        if events:
            self._chunks, self._times, self._size = [], [], 0
            self._run.log.append(*events, place=self._place)

    def unrecorded(self) -> tuple[ModelChunks, ...]:
        """The event that a flush would record, if any."""
        if not self._chunks:
            return ()
        offsets: tuple[int, ...] = ()
        if self._times[-1] - self._first >= 0.001:
            offsets = tuple([int((time - self._first) * 1000) for time in self._times])
        return (_make_chunks(tuple(self._chunks), self.attempt, offsets),)

    def flush_if_due(self) -> None:
        """Flush when the first unrecorded chunk is 50 ms old."""
        if self._chunks and self._clock() - self._first >= FLUSH_S:
            self.flush()

    def partial(self, target: Target) -> Message | None:
        """What has arrived so far from `target`, None when that is nothing."""
        message = self.assembler.message(origin_of(target, self.assembler))
        return message if message.content else None


def origin_of(target: Target, assembler: Assembler) -> Origin:
    """Who answers a request, as far as the provider has said; without a response's id, steps have one between them."""
    model = assembler.model if assembler.model != target.selection.model else None
    if model is None and assembler.response_id is None:
        return target.origin
    return attrs.evolve(target.origin, model=model, response_id=assembler.response_id)


async def answer(run: Run, turn: TurnState, request: ModelRequest, target: Target) -> None:
    """Get the answer to a durable request: ends with `message.committed` or `step.failed` in the log.

    Cancellation passes through; `run.flow` then holds what had arrived.
    """
    step, attempt = turn.step, turn.attempt
    while True:
        flow = run.flow = Flow(run, step, attempt)
        try:
            message, response = await _one_attempt(turn, request, target, flow)
        except ProviderError as error:
            await stop_if_cancelled(turn)
            delay = _attempt_failed(run, target, flow, step, attempt, error.failure)
        else:
            _commit_message(run, target, flow, message, response, step)
            return
        if delay is None:
            return
        await run.commit()
        await run.clock.sleep(delay)
        await stop_if_cancelled(turn)
        attempt += 1
        run.log.append(ModelAttemptStarted(attempt=attempt), place=step)
        await run.commit()


async def _one_attempt(
    turn: TurnState, request: ModelRequest, target: Target, flow: Flow
) -> tuple[Message, ModelResponse]:
    response: ModelResponse | None = None
    stream: Any = target.adapter.stream(request)
    try:
        try:
            async for item in stream:
                if turn.cancel is not None:
                    await checkpoint()
                if response is not None:
                    raise broken_contract(f"sent {type(item).__name__} after its response")
                if type(item) in _CHUNK_KINDS:
                    flow.add(item)
                elif type(item) is ModelResponse:
                    response = item
                else:
                    raise broken_contract(f"sent {type(item).__name__}, which is neither a chunk nor a response")
        finally:
            await stream.aclose()
    except ValueRefused as exc:
        raise broken_contract(f"gave a value that cannot be recorded: {exc}") from exc
    except (
        ProviderError,
        UsageError,
    ):  # the latter is the caller's mistake (a script that ran out), not the provider's
        raise
    except Exception as exc:
        raise broken_contract(f"raised {type(exc).__name__}: {exc}") from exc
    if turn.cancel is not None:
        await stop_if_cancelled(turn)
    if response is None:
        raise broken_contract("ended without a response")
    assembler = flow.assembler
    assembler.model = response.model or assembler.model
    assembler.response_id = response.response_id or assembler.response_id
    message = assembler.message(origin_of(target, assembler))
    if not _is_fold(response.message, message):
        raise broken_contract("gave a message that is not the fold of its chunks")
    return message, response


def check_request(target: Target, request: ModelRequest, *, strict: bool = False) -> None:
    """Ask the target whether it can take a request. Raises `ProviderError`, also for a check that is itself broken.

    With `strict`, what the target could not be told is refused, too.
    """
    try:
        target.adapter.check(request)
        losses = target.losses(request) if strict else None
    except SpineError:
        raise
    except Exception as exc:
        raise broken_contract(f"raised {type(exc).__name__} from check: {exc}") from exc
    if losses:
        raise lossy(losses, provider=request.route.provider, model=request.route.model)


def broken_contract(what: str) -> ProviderError:
    """The error of an adapter that did something else than chunks and then exactly one response."""
    return provider_error("protocol_error", f"the adapter {what[:500]}", retryable=False)


def _is_fold(message: Message, fold: Message) -> bool:
    return len(message.content) == len(fold.content) and all(map(_same_block, message.content, fold.content))


def _same_block(a: Any, b: Any) -> bool:
    if type(a) is ToolCallBlock and type(b) is ToolCallBlock:  # ids differ: the step is known only here
        return (a.name, a.arguments, a.arguments_text) == (b.name, b.arguments, b.arguments_text)
    return bool(a == b)


def _attempt_failed(run: Run, target: Target, flow: Flow, step: StepId, attempt: int, failure: Failure) -> float | None:
    """Record a failed attempt; the delay before the next one, or None when the step failed with it."""
    flow.flush()
    delay = next_delay(run.policy, failure, attempt, visible=flow.is_visible, random=run.random)
    usage = flow.assembler.usage or Usage()
    failed = ModelAttemptFailed(
        attempt=attempt,
        failure=failure,
        delay_s=delay,
        discarded=delay is not None and flow.is_visible,
        usage=usage,
    )
    run.log.append(failed, place=step)
    run.flow = None
    if delay is None:
        if flow.is_visible:
            partial = flow.partial(target)
            _interrupt(run, partial, failure, step)
        run.log.append(StepFailed(failure=failure), place=step)
        run.pending = None
    return delay


def _interrupt(run: Run, partial: Message | None, failure: Failure, step: StepId) -> None:
    interrupted = MessageInterrupted(
        message=partial, cause="failed", failure=failure, note=f"the answer broke off: {failure.category}"
    )
    try:
        run.log.append(interrupted, place=step)
    except ValueTooLarge:  # its chunks are on record
        run.log.append(attrs.evolve(interrupted, message=None), place=step)


def _commit_message(
    run: Run, target: Target, flow: Flow, message: Message, response: ModelResponse, step: StepId
) -> None:
    if run.strict and response.usage.malformed:
        failure = Failure(category="protocol_error", message="the provider's usage is malformed (strict mode)")
        _attempt_failed(run, target, flow, step, flow.attempt, failure)
        return
    committed = _make_committed(
        message=message,
        stop_reason=response.stop_reason,
        raw_stop_reason=response.raw_stop_reason,
        usage=response.usage,
        cost=price(response.usage, target.prices),
        metadata=response.metadata,
    )
    try:
        run.log.append(*flow.unrecorded(), committed, place=step)
    except ValueTooLarge as error:
        failure = Failure(category="protocol_error", message=f"the answer cannot be recorded: {error.message}")
        _attempt_failed(run, target, flow, step, flow.attempt, failure)
        return
    run.flow = run.pending = None


# What goes into them was checked and frozen where it came from.
_make_chunks: Callable[..., ModelChunks] = maker(ModelChunks)
_make_committed: Callable[..., MessageCommitted] = maker(MessageCommitted)


def crashed_partial(log: StoredLog, turn: TurnState, until: int | None = None) -> tuple[bool, Message | None]:
    """Whether chunks of the open request were recorded, and what they make; `until` a seq, for a look at the past."""
    assembler = Assembler(turn.step)
    found = False
    kinds = ("model.chunks", "model.attempt_started", "model.attempt_failed")
    for event in log.read(turn.requested, until, kinds):
        if event.type != "model.chunks":  # each attempt begins anew
            assembler, found = Assembler(turn.step), False
            continue
        found = True
        for chunk in event.data.chunks:
            assembler.add(chunk)
    return found, assembler.message() if assembler.is_visible else None
