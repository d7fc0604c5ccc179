"""The runtime (floor 12): wires store, plugins, adapters and sessions together, and owns everything that runs."""

import logging
import random as randomness
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc

from spine.agent import Agent, contract
from spine.asking import take_snapshot
from spine.clock import Clock, SystemClock
from spine.codec import Codec
from spine.commits import Writer, off_loop
from spine.config import Settings, find_key, load_settings, make_store_folder
from spine.drafts import changer
from spine.errors import RouteUnknown, SessionExists, SessionUnknown, SpineError, UsageError
from spine.forking import Forked, fork
from spine.hooks import Hooks
from spine.host import contained as _contained
from spine.inbox import put
from spine.keeping import LEASE_US, keep, tell_observers
from spine.late import load
from spine.llm.catalogue import Provider
from spine.llm.protocols import Adapter
from spine.llm.providers import CATALOGUE
from spine.llm.request import Route
from spine.llm.retry import RetryPolicy
from spine.log import LogReader, SessionLog
from spine.opening import http_adapter, open_store
from spine.owning import claim, end_leases, this_process
from spine.pending import Pending
from spine.plugins import PluginInfo, Plugins
from spine.plugins import ScopeHandle as ScopeHandle
from spine.requests import Frames
from spine.routes import Routes
from spine.run import Run
from spine.runners import HookWatch
from spine.scope import Registries, Scope
from spine.secrecy import Secrecy
from spine.sections import Section
from spine.session import Session
from spine.store import Claim, SessionInfo, Store
from spine.threads import Workers
from spine.tools import Tool
from spine.values import JsonObject, ScopeId, Secret, SessionId, freeze_object, session_id
from spine.watchdog import watch_loop

if TYPE_CHECKING:  # most runtimes erase nothing
    from spine.erasing import Erased

VERSION = "0.1.0"
TICK_S = 0.05
SYNC_THREADS = 16
_logger = logging.getLogger("spine")
_owned = changer(Tool, "owner")
_logger.addHandler(logging.NullHandler())  # silent unless the application wants to hear it


class Runtime:
    """Opens sessions on a store. Use it as `async with Runtime.open(…) as runtime`; leaving stops what still runs."""

    def __init__(
        self,
        store: Store,
        plugins: Plugins,
        routes: Routes,
        settings: Settings,
        clock: Clock,
        options: Mapping[str, Any],
    ) -> None:
        """Prefer `Runtime.open`."""
        self.store = store
        self.settings = settings
        self._plugins = plugins
        self._routes = routes
        self._clock = clock
        self._options = options
        self._writer = Writer(store)
        self._owner = this_process(clock.now(), id(self))
        self._sessions: dict[SessionId, Session] = {}
        self._opening: dict[SessionId, anyio.Event] = {}
        """Sessions that are being opened, and what tells that one no longer is."""
        self._scopes: dict[str, ScopeHandle] = {}
        self._running: dict[SessionId, Session] = {}
        self._claimed: set[SessionId] = set()  # perhaps in vain, and not released
        self._pending = Pending()
        self._group: anyio.abc.TaskGroup | None = None
        self._workers, self._frames = Workers(max_threads=SYNC_THREADS), Frames()

    @classmethod
    def open(
        cls,
        store: str | Store | None = None,
        *,
        model: Adapter | None = None,
        plugins: Sequence[Any] = (),
        secrets: Mapping[str, Secret] | None = None,
        strict: bool | None = None,
        capture: str | None = None,
        clock: Clock | None = None,
        settings: Settings | None = None,
        random: Callable[[], float] | None = None,
        retry: RetryPolicy | None = None,
        clients: Mapping[str, Any] | None = None,
    ) -> "Runtime":
        """A runtime on `store`, a URL (`memory:`, `sqlite:PATH`) or a `Store`; by default the configured one.

        `model` answers every route (a `ScriptedAdapter`, say). `plugins` are modules beside the installed ones;
        `settings` replaces what files and environment say (`Settings()` for none of it). `secrets` are keys by
        provider, and what tools may ask for by name. `clients` are httpx-compatible clients by provider. With `capture`
        "wire" what goes over the wire is kept beside the log, without keys; `spine decode --session` reads it.
        """
        if capture not in (None, "wire"):
            raise UsageError(f'capture is {capture!r:.80}; it may be "wire" or None')
        settings = load_settings() if settings is None else settings
        clock = clock or SystemClock()
        registries, codec = Registries.new(), Codec()
        loaded = Plugins(Hooks(), registries, codec, CATALOGUE, settings.extend)
        strict = settings.strict if strict is None else strict
        if settings.installed_plugins:
            loaded.discover(settings.blocks, strict=strict)
        for plugin in plugins:
            loaded.load(plugin)
        given = dict(secrets or {})

        def key_of(provider: Provider) -> Secret | None:
            return given.get(provider.id) or find_key(settings, provider)

        wire: dict[str, Any] = {"clients": clients, "captures": bool(capture), "secrecy": Secrecy(given.values())}
        routes = Routes(registries, lambda: loaded.catalogue, key_of, http_adapter, model, **wire)
        if store is None:
            store = settings.store or "sqlite:spine.db"
            make_store_folder(store)
        if isinstance(store, str):
            store = open_store(store, registries)
        options = {
            "secrets": given,
            "strict": strict,
            "random": random or randomness.random,
            "policy": retry or RetryPolicy(),
        }
        return cls(store, loaded, routes, settings, clock, options)

    async def __aenter__(self) -> "Runtime":
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._pending.start()
        self._group.start_soon(self._pending.commit)
        self._group.start_soon(self._tick)
        self._group.start_soon(watch_loop, self.hooks)
        self._group.start_soon(keep, self.store, self._owner, self._clock, self._sessions)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._group is not None
        try:
            with anyio.CancelScope(shield=True):
                await self._stop_sessions()
            self._group.cancel_scope.cancel()
            if error is None or isinstance(error, anyio.get_cancelled_exc_class()):
                return await self._group.__aexit__(kind, error, trace)
            await self._group.__aexit__(None, None, None)
            return None  # the caller's own error goes on as it is, not inside a group
        finally:
            with anyio.CancelScope(shield=True):
                await self._close_all()

    async def _stop_sessions(self) -> None:
        for session in list(self._running.values()):
            await _contained(partial(session.cancel, "the runtime was closed"))
        with anyio.move_on_after(5):
            while self._running:
                await anyio.sleep(0.005)

    async def _close_all(self) -> None:
        try:
            for session in list(self._sessions.values()):
                await _contained(partial(self.give_up, session))
            self._plugins.unload_all()
            self._plugins.close_unloaded()
        finally:
            await self._routes.aclose()
            self._writer.close()
            if self._claimed:  # whose release failed: the next runtime must not wait for the lease
                end_leases(self.store, self._owner, now=self._clock.now())
            if not self._options.get("keeps_store"):
                self.store.close()

    # --------------------------------------------------------------------------------------------------- sessions

    async def session(
        self,
        id: str,
        agent: Agent,
        *,
        deps: Any = None,
        scope: "str | ScopeHandle | None" = None,
        metadata: Mapping[str, Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        on_change: str = "record",
        reference: str | None = None,
    ) -> Session:
        """Open the session, or prepare a new one; nothing is written before its first input.

        `deps` reach tools and never the log, `metadata` is logged, `variables` are for prompt sections. `on_change`
        `refuse` raises when the agent's contract is not the recorded one. The same session asked for again is the same
        object. Raises `RouteUnknown`, `SessionOwned`, `EventUnknown`, `ToolUnknown`.
        """
        own = session_id(id)
        while (other := self._opening.get(own)) is not None:
            await other.wait()
        known = self._sessions.get(own)
        if known is not None and (known.log.is_held or not known.log.is_closed):
            known.offer(agent, deps, scope)
            return known
        self._opening[own] = opened = anyio.Event()
        try:
            self.resolve_model(agent.model)  # before anything is claimed
            log = await off_loop(self.store, self._open_log, own)  # others must not wait for the store with it
            return await self._open_session(log, agent, deps, scope, metadata, variables, on_change, reference)
        except anyio.get_cancelled_exc_class():
            session = self._sessions.get(own)
            if session is not None and session is not known:  # nobody waits for it any more
                with anyio.CancelScope(shield=True), suppress(SpineError):
                    await session.close()
            raise
        finally:
            del self._opening[own]
            opened.set()

    async def _open_session(
        self, log: SessionLog, agent: Agent, deps: Any, scope: "str | ScopeHandle | None", *options: Any
    ) -> Session:
        try:
            session = self._make_session(log, agent, deps, scope, *options)
        except SpineError:
            self._release(log.session)
            raise
        self._sessions[session.id] = session
        if self.hooks.chain("spine_event_recorded"):
            self.spawn(partial(tell_observers, session.log, self.hooks, session.log.head[0]))
        if log.seq:  # nobody can ask anything of a session without events
            await session.take_inbox()
        return session

    async def create_session(self, id: str, agent: Agent, **options: Any) -> Session:
        """`session`, which must not exist yet. Raises `SessionExists`."""
        if await off_loop(self.store, self.store.head, session_id(id)) is not None:
            raise SessionExists(f'session "{id}" is in {self.store.url} already', hint=f"spine log {id}")
        return await self.session(id, agent, **options)

    async def open_session(self, id: str, agent: Agent, **options: Any) -> Session:
        """`session`, which must exist. Raises `SessionUnknown`."""
        if await off_loop(self.store, self.store.head, session_id(id)) is None:
            raise SessionUnknown(f'no session "{id}" in {self.store.url}', hint="spine sessions")
        return await self.session(id, agent, **options)

    def _claim(self, id: SessionId) -> Claim:
        self._claimed.add(id)
        return claim(self.store, id, self._owner, now=self._clock.now(), lease_us=LEASE_US)

    def _open_log(self, id: SessionId) -> SessionLog:
        held = self._claim(id)
        log = SessionLog(self._writer, self._plugins.codec, id, held, self._clock, on_pending=self._pending.note)
        if held.seq:
            try:
                log.load()
            except SpineError:
                self._release(id)
                raise
        return log

    def _release(self, id: SessionId) -> None:
        self.store.release(id, self._owner)
        self._claimed.discard(id)

    def _make_session(
        self,
        log: SessionLog,
        agent: Agent,
        deps: Any,
        scope: "str | ScopeHandle | None",
        metadata: Mapping[str, Any] | None,
        variables: Mapping[str, Any] | None,
        on_change: str,
        reference: str | None,
    ) -> Session:
        route = self.resolve_model(agent.model)
        parent = self._scope_of(log, scope)
        own = Scope(ScopeId(f"session {log.session}"), parent)
        self._plugins.registries.forget(own)
        self._fill_scope(agent, own)
        created, secrecy = log.status.created, self._routes.secrecy
        run = Run(
            log=log,
            agent=agent,
            route=route,
            hooks=self._plugins.hooks,
            registries=self._plugins.registries,
            routes=self._routes,
            scope=own,
            clock=self._clock,
            random=self._options["random"],
            policy=self._options["policy"],
            deps=deps,
            metadata=created.metadata if created else secrecy.metadata({**agent.metadata, **(metadata or {})}),
            variables=freeze_object(variables or {}),
            secrets=self._options["secrets"],
            secrecy=secrecy,
            plugins=lambda: self._plugins.versions,
            strict=self._options["strict"],
            workers=self._workers,
            frames=self._frames,
            watch=HookWatch(clock=self._clock.monotonic),
            is_resumed=log.status.turn is not None,
        )
        self._plugins.open_session(own)
        take_snapshot(run)  # a tool that the agent names and nobody offers is refused now
        digest = contract(log.codec, agent, route, agent.own_tools)
        if on_change == "refuse" and created is not None and log.status.contract != digest:
            raise UsageError(f'agent "{agent.name}" is not the one session "{log.session}" was recorded with')
        name = str(parent.id) if parent is not None else None
        return Session(run, self, digest, reference, name)

    def _scope_of(self, log: SessionLog, scope: "str | ScopeHandle | None") -> Scope | None:
        """The scope above the session's own: the one it was created in, unless it is new."""
        created = log.status.created
        if scope is None and created is not None:
            scope = created.scope
        handle = self.scope(scope) if isinstance(scope, str) else scope
        found = None if handle is None else handle.scope.id
        if created is not None and found != created.scope:
            raise UsageError(f'session "{log.session}" was created in scope {created.scope}; it cannot move to {found}')
        return None if handle is None else handle.scope

    def _fill_scope(self, agent: Agent, own: Scope) -> None:
        owner, registries = f"agent {agent.name}", self._plugins.registries
        if agent.instructions:
            section = Section("instructions", order=10, source=owner, render=agent.instructions)
            registries.sections.add(section.name, section, owner=owner, scope=own)
        for tool in agent.own_tools:
            registries.tools.add(tool.name, _owned(tool, owner), owner=owner, scope=own)

    async def fork(self, id: str, child: str, *, seq: int | None = None) -> Forked:
        """Make session `child` of the stored events 1 to `seq` of another, by default all; see `spine.forking`."""
        has_checks = bool(self.hooks.chain("spine_post_execute"))
        source, child, now = self.reader(id), session_id(child), self._clock.now()
        make = partial(fork, source, child, seq, owner=self._owner, now=now, withholds=has_checks)
        return await off_loop(self.store, make)

    async def erase(
        self, id: str, seqs: Sequence[int] = (), contents: Sequence[str] = (), *, reason: str, by: str | None = None
    ) -> "Erased":
        """Erase events and contents of a stored session, also while it is open here; see `spine.erasing`.

        Raises `SessionBusy` while a turn of it, or of a fork that shares the events, is open.
        """
        now = self._clock.now()
        facts = {"reason": reason, "by": by, "owner": this_process(now, 0), "now": now}
        erase, source = load("spine.holding").erase_held, self.reader(id)
        erased: Erased = await erase(source, seqs, contents, self._sessions, self._release, self._claim, **facts)
        return erased

    def reader(self, id: str) -> LogReader:
        """A session's log for reading, whoever owns it."""
        return LogReader(self.store, self._plugins.codec, session_id(id))

    def follow(self, id: str, after: int = 0) -> Any:
        """Committed events of any session, also of one that another process owns."""
        return self.reader(id).follow(after)

    def sessions(self) -> list[SessionInfo]:
        """All sessions of the store, most recently changed last."""
        return self.store.sessions()

    def send(self, id: str, kind: str, data: Mapping[str, Any], *, key: str) -> bool:
        """Put a request into the inbox of a session that another process owns; False when `key` was used before.

        `kind` is `input` (`message`, `delivery`), `cancel` (`cause`, `by`) or `decision` (`id`, `decision`, `by`,
        `reason`). Raises `UsageError` when `data` do not fit, `SessionUnknown` when there is no such session.
        """
        return put(self.store, self.codec, session_id(id), kind, data, key)

    # --------------------------------------------------------------------------------------- scopes and plugins

    def scope(self, id: str, parent: "str | ScopeHandle | None" = None) -> "ScopeHandle":
        """The scope of that name, made on first use; `add` puts sections and tools into it."""
        if id not in self._scopes:
            above = self.scope(parent) if isinstance(parent, str) else parent
            scope = Scope(ScopeId(id), above.scope if above is not None else None)
            self._scopes[id] = ScopeHandle(scope, self._plugins)
        return self._scopes[id]

    @property
    def plugins(self) -> tuple[PluginInfo, ...]:
        """All plugins that were found, by name."""
        return self._plugins.infos

    @property
    def registries(self) -> Registries:
        """The layered registries."""
        return self._plugins.registries

    @property
    def hooks(self) -> Hooks:
        """The hooks' implementations."""
        return self._plugins.hooks

    @property
    def routes(self) -> Routes:
        """Routes and adapters."""
        return self._routes

    @property
    def codec(self) -> Codec:
        """Knows all event types, those of plugins included."""
        return self._plugins.codec

    def load_plugin(self, plugin: Any) -> PluginInfo:
        """Load a module with hook implementations."""
        return self._plugins.load(plugin)

    def unload_plugin(self, name: str) -> None:
        """Withdraw a plugin at once; its `spine_close` runs when no running step can hold it any more."""
        self._plugins.unload(name)
        if not self._running:
            self._plugins.close_unloaded()

    # ------------------------------------------------------------------------------------------ what sessions need

    @property
    def versions(self) -> JsonObject:
        """Version of the runtime and of each loaded plugin."""
        return freeze_object({"spine": VERSION, **self._plugins.versions})

    def resolve_model(self, model: str) -> Route:
        """A route from `provider:name` or an alias. Raises `RouteUnknown`."""
        full = self.settings.aliases.get(model, model)
        if ":" not in full:
            known = ", ".join(self.settings.aliases) or "none"
            raise RouteUnknown(
                f'model "{model}" is neither provider:name nor an alias; aliases: {known}', hint="spine models"
            )
        return Route.parse(full)

    def spawn(self, work: Callable[[], Any]) -> None:
        """Run an async function in the background until the runtime closes."""
        if self._group is None:
            raise UsageError("the runtime is not entered; use `async with Runtime.open(…) as runtime`")
        self._group.start_soon(_contained, work)

    def entered(self, session: Session) -> None:
        """A session began to run a turn."""
        if self._group is None:
            raise UsageError("the runtime is not entered; use `async with Runtime.open(…) as runtime`")
        self._running[session.id] = session

    def left(self, session: Session) -> None:
        """A session stopped running a turn."""
        self._running.pop(session.id, None)
        if not self._running:
            try:
                self._plugins.close_unloaded()
            except Exception:  # not this turn's affair
                _logger.exception("an unloaded plugin failed to close")

    async def give_up(self, session: Session) -> None:
        """Forget a session: commit, let others own it, keep nothing of it."""
        if self._sessions.pop(session.id, None) is None:
            return
        try:
            if not session.log.is_closed:
                await session.log.commit()
                await off_loop(self.store, session.log.keep_snapshot)
        finally:
            session.log.close(UsageError(f'session "{session.id}" was closed; open it again with runtime.session'))
            self._plugins.registries.forget(session.scope)
            self._release(session.id)

    async def _tick(self) -> None:
        """Let each running session record chunks that wait too long, and stop hooks and turns whose time is up."""
        while True:
            await self._clock.pause(TICK_S)
            self._tick_once()  # while this waits, it holds no session

    def _tick_once(self) -> None:
        for session in list(self._running.values()):
            try:
                session.tick()
            except SpineError as error:  # its log is closed: the turn itself is about to learn it
                _logger.warning("session %s: %s", session.id, error)
