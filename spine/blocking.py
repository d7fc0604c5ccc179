"""The same words without await (floor 12), for scripts, notebooks and threads.

A blocking runtime has an event loop of its own in a thread of its own, so it also works where a loop is running.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Any, TypeVar

from anyio import NoEventLoopError
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.lowlevel import current_token

from spine import runtime as awaiting
from spine.agent import Agent
from spine.erasing import Erased
from spine.errors import UsageError
from spine.events import RecordedEvent
from spine.forking import Forked
from spine.inputs import Input
from spine.llm.request import Route
from spine.log import LogReader, SessionLog, Synchronised
from spine.plugins import PluginInfo
from spine.portability import Portability
from spine.projectors.model_history import History
from spine.projectors.transcript import Transcript
from spine.projectors.usage import UsageReport
from spine.scope import Disposer
from spine.session import Session as AwaitingSession
from spine.store import SessionInfo
from spine.stream import TurnStream as AwaitingStream
from spine.turn import Turn
from spine.values import SessionId

__all__ = ["Runtime", "ScopeHandle", "Session", "TurnStream"]

T = TypeVar("T")


class Runtime(AbstractContextManager["Runtime"]):
    """`spine.Runtime` without await; use it as `with Runtime.open(…) as runtime`."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Prefer `Runtime.open`."""
        self._options = options
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._is_closed = False
        self._runtime: awaiting.Runtime | None = None

    @classmethod
    def open(cls, store: Any = None, **options: Any) -> "Runtime":
        """As `spine.Runtime.open`; `backend` chooses the event loop (asyncio or trio)."""
        return cls({"store": store, **options})

    def __enter__(self) -> "Runtime":
        options = dict(self._options)
        backend = options.pop("backend", "asyncio")
        if backend == "trio" and _is_on_trio():  # trio refuses to wait for another trio, and the portal would hang
            raise UsageError("a blocking runtime on trio was entered where trio runs; leave out backend= there")
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal(backend))
            made = portal.call(lambda: awaiting.Runtime.open(**options))
            self._runtime = stack.enter_context(portal.wrap_async_context_manager(made))
            self._portal, self._stack = portal, stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            return self._stack.__exit__(kind, error, trace)
        finally:
            self._is_closed = True

    def _open_portal(self) -> BlockingPortal:
        if self._is_closed:
            raise UsageError("this runtime is closed; what it gave is of use inside its `with` block only")
        if self._portal is None:
            raise RuntimeError("the runtime is not entered; use `with Runtime.open(…) as runtime`")
        return self._portal

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return self._open_portal().call(lambda: function(*arguments, **options))

    @property
    def awaiting(self) -> awaiting.Runtime:
        """The runtime behind this one."""
        if self._runtime is None:
            raise RuntimeError("the runtime is not entered; use `with Runtime.open(…) as runtime`")
        return self._runtime

    def session(self, id: str, agent: Agent, **options: Any) -> "Session":
        """As `spine.Runtime.session`."""
        return Session(self._call(self.awaiting.session, id, agent, **options), self._call)

    def create_session(self, id: str, agent: Agent, **options: Any) -> "Session":
        """As `spine.Runtime.create_session`."""
        return Session(self._call(self.awaiting.create_session, id, agent, **options), self._call)

    def open_session(self, id: str, agent: Agent, **options: Any) -> "Session":
        """As `spine.Runtime.open_session`."""
        return Session(self._call(self.awaiting.open_session, id, agent, **options), self._call)

    def fork(self, id: str, child: str, *, seq: int | None = None) -> Forked:
        """As `spine.Runtime.fork`."""
        return self._call(self.awaiting.fork, id, child, seq=seq)  # type: ignore[no-any-return]

    def erase(
        self, id: str, seqs: Sequence[int] = (), contents: Sequence[str] = (), *, reason: str, by: str | None = None
    ) -> Erased:
        """As `spine.Runtime.erase`."""
        return self._call(self.awaiting.erase, id, seqs, contents, reason=reason, by=by)  # type: ignore[no-any-return]

    def sessions(self) -> list[SessionInfo]:
        """As `spine.Runtime.sessions`."""
        return list(self._call(self.awaiting.sessions))

    def reader(self, id: str) -> LogReader:
        """As `spine.Runtime.reader`; reading needs no loop, following does: `follow`."""
        return self.awaiting.reader(id)

    def follow(self, id: str, after: int = 0) -> Iterator[RecordedEvent | Synchronised]:
        """As `spine.Runtime.follow`."""
        return _each(self._call, self.awaiting.follow(id, after))

    def send(self, id: str, kind: str, data: Mapping[str, Any], *, key: str) -> bool:
        """As `spine.Runtime.send`."""
        return bool(self._call(self.awaiting.send, id, kind, data, key=key))

    def scope(self, id: str, parent: "str | ScopeHandle | None" = None) -> "ScopeHandle":
        """As `spine.Runtime.scope`."""
        above = parent._handle if isinstance(parent, ScopeHandle) else parent
        return ScopeHandle(self._call(self.awaiting.scope, id, above), self._call)

    def load_plugin(self, plugin: Any) -> PluginInfo:
        """As `spine.Runtime.load_plugin`."""
        return self._call(self.awaiting.load_plugin, plugin)  # type: ignore[no-any-return]

    def unload_plugin(self, name: str) -> None:
        """As `spine.Runtime.unload_plugin`."""
        self._call(self.awaiting.unload_plugin, name)

    @property
    def plugins(self) -> tuple[PluginInfo, ...]:
        """As `spine.Runtime.plugins`."""
        return self.awaiting.plugins


class ScopeHandle:
    """A scope that the application adds to at run time; from any thread."""

    def __init__(self, handle: awaiting.ScopeHandle, call: Callable[..., Any]) -> None:
        self._handle = handle
        self._call = call

    def add(self, value: Any) -> Disposer:
        """Add a section or a tool to exactly this scope; the returned function takes it out again."""
        dispose = self._call(self._handle.add, value)
        return lambda: self._call(dispose)


def _each(call: Callable[..., Any], items: Any) -> Iterator[Any]:
    while True:
        try:
            yield call(items.__anext__)
        except StopAsyncIteration:
            return


def _is_on_trio() -> bool:
    try:
        token = current_token()
    except NoEventLoopError:
        return False
    return type(token.native_token).__module__.partition(".")[0] == "trio"


class Session:
    """`spine.session.Session` without await."""

    def __init__(self, session: AwaitingSession, call: Callable[..., Any]) -> None:
        self._session = session
        self._call = call

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self._session.id

    @property
    def turn(self) -> Turn | None:
        """The open turn, or else the last one."""
        return self._call(lambda: self._session.turn)  # type: ignore[no-any-return]

    @property
    def log(self) -> SessionLog:
        """The session's log; its awaiting methods belong to the runtime's thread."""
        return self._session.log

    @property
    def agent(self) -> Agent:
        """The agent that it was opened with."""
        return self._session.agent

    @property
    def is_running(self) -> bool:
        """Whether a turn runs in this process now."""
        return self._session.is_running

    def follow(self, after: int = 0) -> Iterator[RecordedEvent | Synchronised]:
        """Committed events after `after`, then each as it comes; waits for the next one without end."""
        return _each(self._call, self._session.follow(after))

    def close(self) -> None:
        """Give the session up; a running turn is cancelled first."""
        self._call(self._session.close)

    def fork(self, id: str, *, seq: int | None = None) -> "Session":
        """As `spine.session.Session.fork`."""
        return Session(self._call(self._session.fork, id, seq=seq), self._call)

    def rename(self, title: str) -> None:
        """Give the session a title."""
        self._call(self._session.rename, title)

    def run(self, input: Input, **options: Any) -> Turn:
        """Run a turn to its end, or until it waits for people."""
        return self._call(self._session.run, input, **options)  # type: ignore[no-any-return]

    @contextmanager
    def stream(self, input: Input, **options: Any) -> Iterator["TurnStream"]:
        """Run a turn and watch it; leaving the block early cancels it."""
        portal: BlockingPortal = self._call.__self__._open_portal()  # type: ignore[attr-defined]
        with portal.wrap_async_context_manager(self._session.stream(input, **options)) as stream:
            yield TurnStream(stream, self._call)

    def submit(self, input: Input, **options: Any) -> int:
        """Accept an input durably; the turn runs in the background."""
        return self._call(self._session.submit, input, **options)  # type: ignore[no-any-return]

    def steer(self, input: Input) -> int:
        """Give the running turn an input, which it takes at its next step."""
        return self._call(self._session.steer, input)  # type: ignore[no-any-return]

    def cancel(self, cause: str = "cancelled", *, by: str | None = None) -> None:
        """Ask the open turn to stop."""
        self._call(self._session.cancel, cause, by=by)

    def resume(self, **options: Any) -> Turn | None:
        """Go on with a turn that was not finished."""
        return self._call(self._session.resume, **options)  # type: ignore[no-any-return]

    def retry(self, **options: Any) -> Turn:
        """Run the input of a failed or cancelled turn again."""
        return self._call(self._session.retry, **options)  # type: ignore[no-any-return]

    def approve(self, id: str, *, by: str, **options: Any) -> Turn:
        """Allow a waiting call and go on."""
        return self._call(self._session.approve, id, by=by, **options)  # type: ignore[no-any-return]

    def deny(self, id: str, *, by: str, **options: Any) -> Turn:
        """Decline a waiting call and go on."""
        return self._call(self._session.deny, id, by=by, **options)  # type: ignore[no-any-return]

    def history(self) -> History:
        """The messages a model would be shown now."""
        return self._call(self._session.history)  # type: ignore[no-any-return]

    def transcript(self) -> Transcript:
        """What a person saw."""
        return self._call(self._session.transcript)  # type: ignore[no-any-return]

    def portability(self, route: str | Route) -> Portability:
        """Whether the session could go on with another model, and what would be lost."""
        return self._call(self._session.portability, route)  # type: ignore[no-any-return]

    def usage(self) -> UsageReport:
        """Tokens and cost by model and step."""
        return self._call(self._session.usage)  # type: ignore[no-any-return]


class TurnStream:
    """`spine.session.TurnStream` without await."""

    def __init__(self, stream: AwaitingStream, call: Callable[..., Any]) -> None:
        self._stream = stream
        self._call = call

    @property
    def turn(self) -> Turn | None:
        """The turn, once it ended."""
        return self._stream.turn

    def text(self) -> Iterator[str]:
        """Pieces of the answer's text as they arrive."""
        return _each(self._call, self._stream.text())

    def __iter__(self) -> Iterator[Any]:
        return _each(self._call, self._stream.__aiter__())
