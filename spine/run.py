"""What a running session holds while its turns run (floor 9): everything the loop is given and nothing it decides."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import attrs
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from spine.agent import Agent
from spine.capabilities import Capabilities, SectionRenderer
from spine.clock import Clock
from spine.commits import off_loop
from spine.drafts import changer
from spine.errors import HookMisused, UsageError
from spine.estimates import HistoryEstimate
from spine.events import HistoryCompacted, HookFailed, Patch
from spine.execution import Executed, execute
from spine.frozen import define
from spine.hooks import Chains, Compact, HookContext, Hooks, Implementation
from spine.inputs import clean_message
from spine.llm.chunks import Chunk
from spine.llm.request import ModelRequest, Route
from spine.llm.retry import RetryPolicy
from spine.log import SessionLog
from spine.messages import Message
from spine.origins import origins_of
from spine.projectors.status import TurnState
from spine.requests import Frame, Frames
from spine.routes import Routes, Target
from spine.runners import HookChange, HookWatch
from spine.scope import Registries, Scope
from spine.secrecy import Secrecy
from spine.store import Claim
from spine.threads import Workers
from spine.values import EMPTY_OBJECT, CallId, JsonObject, Secret, StepId, clean_text

T = TypeVar("T")


@define(eq=False)
class Base:
    """All of a request but step and history, and what that was made from."""

    capabilities: Capabilities
    chains: Chains
    overrides: JsonObject
    request: ModelRequest
    target: Target
    frame: tuple[Frame, int] | None = None
    """The frame and the seq of its content, once it was recorded."""
    is_still: bool = False
    """Whether nothing in it can move from one step to the next, as long as what it was made from stands."""
    trimmed: tuple[str, ...] = ()
    estimate: int | None = None


@define(eq=False)
class Run:
    """One session's machinery. Only the fields of the last group change, and only the loop changes them."""

    log: SessionLog
    agent: Agent
    route: Route
    hooks: Hooks
    registries: Registries
    routes: Routes
    scope: Scope
    clock: Clock
    random: Callable[[], float]
    policy: RetryPolicy = RetryPolicy()
    deps: Any = None
    metadata: JsonObject = EMPTY_OBJECT
    variables: JsonObject = EMPTY_OBJECT
    secrets: Mapping[str, Secret] = attrs.Factory(dict)
    """What tools may ask for by name."""
    secrecy: Secrecy = attrs.Factory(Secrecy)
    """What must not be used or recorded."""
    plugins: Callable[[], Mapping[str, str]] = dict
    """Version of each plugin that is loaded now, by name."""
    strict: bool = False
    workers: Workers = attrs.Factory(Workers)
    """Threads for synchronous handlers."""
    frames: Frames = attrs.Factory(Frames)
    """Those made for any session of the runtime."""
    execute: Callable[..., Awaitable[Executed]] = execute
    """How a call is run; a replay answers from its log instead."""
    on_chunk: list[Callable[[Chunk], None]] = attrs.Factory(list)
    """Watchers of live deltas."""
    watch: HookWatch = attrs.Factory(HookWatch)
    renderer: SectionRenderer = attrs.Factory(lambda run: SectionRenderer(run.secrecy.text), takes_self=True)
    estimate: HistoryEstimate = attrs.Factory(HistoryEstimate)

    chains: Chains | None = None
    """The hooks of the running step, as they were when it began; None after a restart."""
    capabilities: Capabilities | None = None
    capabilities_version: int = -1
    moves_seen: int = -1
    """The version that the snapshot is of, and the registries' count of moves when it was last compared."""
    base: Base | None = None
    origins: tuple[Any, int] | None = None
    """What the origins recorded last were made from, and the seq of the frame's content that has them."""
    request: ModelRequest | None = None
    """The effective request of the running step; None after a restart, until it is rebuilt."""
    pending: Target | None = None
    """What will answer the durable request."""
    flow: Any = None
    """The answer that is arriving (`spine.attempts.Flow`)."""
    cancel_scope: anyio.CancelScope | None = None
    is_resumed: bool = False
    """The open turn was begun by another process, or before this session was opened."""
    unrevised: set[CallId] = attrs.Factory(set)
    """Calls with a result that `spine_post_execute` has still to let through."""
    next_route: Route | None = None
    """The route that a `spine_step_failed` hook chose for the next step."""
    _names: tuple[Any, tuple[str, ...]] | None = None
    """The last names, and the tools that they are of."""
    _context: HookContext | None = None

    async def reload(self, claim: Claim) -> None:
        """Go on from the log as it is stored now; nothing that was made of the one before is kept."""
        await self.log.reopen(claim)
        self.base = self.origins = self.request = None
        self.estimate = HistoryEstimate()

    @property
    def callable_names(self) -> tuple[str, ...]:
        """Names of the tools that the effective request offers; nothing else may be called."""
        tools = () if self.request is None else self.request.tools
        if self._names is None or self._names[0] is not tools:  # the same tuple at every step, mostly
            self._names = (tools, tuple([tool.name for tool in tools]))
        return self._names[1]

    def arguments(self, turn: TurnState, step: StepId) -> Callable[[], dict[str, Any]]:
        """What every hook may take beside its own values; made when one takes it."""
        return lambda: {"context": self.context(turn, step)}

    def context(self, turn: TurnState, step: StepId) -> HookContext:
        """What a hook may look at in this step; the same object while request and usage are the same."""
        route = self.route if self.request is None else self.request.route
        names, usage, kept = self.callable_names, turn.usage, self._context
        if kept is None or kept.turn != turn.id or kept.route is not route or kept.tools is not names:
            kept = self._context = self._make_context(turn, step, route)
        elif kept.step != step or kept.usage is not usage:
            kept = self._context = changer(HookContext, "step", "usage")(kept, step, usage)
        return kept

    def forget_context(self) -> None:
        """Hold nothing for hooks while no turn runs."""
        self._context = None

    def _make_context(self, turn: TurnState, step: StepId, route: Route) -> HookContext:
        return HookContext(
            session=self.log.session,
            scope=self.scope.id,
            agent=self.agent.name,
            turn=turn.id,
            step=step,
            route=route,
            model=route.model,
            tools=self.callable_names,
            variables=self.variables,
            metadata=self.metadata,
            usage=turn.usage,
            at=turn.at,
            view=lambda: self.log.history,
        )

    def chain(self, hook: str) -> tuple[Implementation, ...]:
        """The implementations of a step hook in the running step."""
        return (self.hooks.chains if self.chains is None else self.chains)[hook]

    def new_origins(self, route: Route, protocol: str) -> dict[str, Any] | None:
        """Whose the parts of the step are; None in a session that began without recording it."""
        created = self.log.status.created
        if created is None or not created.origins or self.capabilities is None or self.chains is None:
            return None
        adapter = self.routes.source(route, protocol, self.scope)
        return origins_of(self.capabilities, self.chains, adapter, self.agent, self.scope.id)

    def commit(self) -> Awaitable[None]:
        """Make durable what is appended; when the caller was cancelled meanwhile, nothing follows."""
        return self._commit_and_look() if self.log.store.waits else self.log.commit()  # else there is no meanwhile

    async def _commit_and_look(self) -> None:
        await self.log.commit()
        await checkpoint_if_cancelled()

    def append_failed(self, error: Any, place: str) -> None:
        """Record that an observer failed."""
        text = clean_text(self.secrecy.text(error.message)[:1000])
        self.log.append(HookFailed(hook=error.hook or "", plugin=error.plugin, error=text), place=place)


async def stop_if_cancelled(turn: TurnState) -> None:
    """Stop here once a cancel is recorded: only results that are back and the closing facts may follow it in the log.

    Asked wherever foreign code returns, because that may have cancelled the turn without an await of its own.
    """
    if turn.cancel is not None:
        await checkpoint()


async def look_up(run: Run, turn: TurnState, look: Callable[..., T], *arguments: Any) -> T:
    """What a look into the stored log gives; no other session waits for it. Stops once a cancel is recorded."""
    found = await off_loop(run.log.store, look, *arguments)
    await stop_if_cancelled(turn)
    return found


def patches(changes: Sequence[HookChange], changed: Callable[[HookChange], tuple[Any, ...]]) -> tuple[Patch, ...]:
    """The changes of a waterfall as patches, those that changed nothing left out."""
    if not changes:
        return ()
    found = ((change, changed(change)) for change in changes)
    return tuple(Patch(plugin=c.plugin, phase=c.phase, changes=fields) for c, fields in found if fields)


def compact(run: Run, turn: TurnState, compaction: Compact, plugin: str, hook: str) -> None:
    """Record a compaction, unless it would leave results without their call."""
    problem = _problem_of(run, compaction)
    if problem is not None:
        raise HookMisused(f"plugin {plugin} {problem} in {hook}", plugin=plugin, hook=hook)
    try:
        summary, _ = clean_message(run.log.codec, compaction.summary)
    except UsageError as exc:
        raise HookMisused(
            f"plugin {plugin} gave a summary that cannot be recorded in {hook}: {exc}", plugin=plugin, hook=hook
        ) from exc
    run.log.append(HistoryCompacted(summary=summary, until=compaction.until), place=turn.id)


def _problem_of(run: Run, compaction: Compact) -> str | None:
    until, history = compaction.until, run.log.history
    if not isinstance(compaction.summary, Message) or type(until) is not int:
        return "gave no message or no seq"
    if not 0 < until <= run.log.seq:
        return f"compacts until seq {until} of {run.log.seq}"
    kept = [message for message, seq in zip(history, history.seqs, strict=True) if seq > until]
    if kept and kept[0].role == "tool":
        return f"compacts until seq {until}, which parts a call from its result"
    return None
