"""The hooks that plugins implement, and what may stand in them (floor 9).

pluggy finds, orders and checks implementations; the step hooks are awaited by `spine.runners`, because pluggy itself
would hand back coroutines. Order is pluggy's: the plugin registered last is asked first, `tryfirst` and `trylast`
respected.

A waterfall hook gets a value and `call_next`. `return await call_next(value)` goes on with the rest and may change the
value on the way down and up; returning without it replaces the rest; calling it twice is an error, and so is returning
nothing. Hooks are asked at least once: after a crash, again.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

import attrs
import pluggy

from spine.errors import HookUnknown, PluginFailed, SpineError
from spine.frozen import frozen
from spine.llm.errors import Failure
from spine.llm.request import ModelRequest, Route
from spine.llm.response import ModelResponse
from spine.llm.usage import Usage
from spine.messages import Message
from spine.projectors.model_history import History
from spine.tools import ToolInvocation, ToolOutcome
from spine.values import JsonObject, ScopeId, SessionId, StepId, TurnId, clean_text, utc

__all__ = [
    "Ask",
    "Compact",
    "Deny",
    "HookContext",
    "NextStep",
    "Stop",
    "hookimpl",
]

_specification = pluggy.HookspecMarker("spine")
hookimpl = pluggy.HookimplMarker("spine")
"""Marks a function as the implementation of the hook it is named after."""

HOOK_TIMEOUT_S = 30.0


def _cleaned(reason: str) -> str:
    # Anything but text is refused where the plugin that gave it can be named.
    return clean_text(reason) if isinstance(reason, str) else reason


@frozen
class Deny:
    """The call must not run; the model is told `reason`."""

    reason: str = attrs.field(converter=_cleaned)


@frozen
class Ask:
    """The call waits for a person; `reason` is shown to them."""

    reason: str = attrs.field(converter=_cleaned)


@frozen
class Stop:
    """After a failed step: the turn fails."""


@frozen
class NextStep:
    """After a failed step: try another step, on `route` when given, after `compaction` when given."""

    route: Route | None = None
    compaction: "Compact | None" = None


@frozen
class Compact:
    """`summary` takes the place of all history up to and including seq `until`."""

    summary: Message
    until: int


@frozen(kw_only=True)
class HookContext:
    """What a step hook may look at; the same fields as a dynamic section's context, and more."""

    session: SessionId
    scope: ScopeId
    agent: str
    turn: TurnId
    step: StepId
    route: Route
    model: str
    tools: tuple[str, ...]
    variables: JsonObject
    metadata: JsonObject
    usage: Usage
    """Of the turn so far."""
    _at: int
    _view: Callable[[], History]

    @property
    def now(self) -> datetime:
        """The recorded time of `turn.started`, in UTC: the same when the session is replayed."""
        return utc(self._at)

    @property
    def history(self) -> History:
        """The messages so far, those of running calls left out."""
        return self._view()


# --------------------------------------------------------------------------------------------- specifications


class Specifications:
    """Every hook there is. A hook's argument may be left out of an implementation's signature."""

    @_specification
    def spine_register_protocols(self, registrar: Any) -> None:
        """Once, at start: add `WireProtocol`s and catalogue `Provider`s."""

    @_specification
    def spine_register_adapters(self, registrar: Any) -> None:
        """Once, at start: add adapter factories, `registrar.add(factory, provider="acme")`."""

    @_specification
    def spine_register_tools(self, registrar: Any) -> None:
        """Once, at start: offer tools; an agent takes those it names."""

    @_specification
    def spine_register_prompts(self, registrar: Any) -> None:
        """Once, at start: add prompt `Section`s."""

    @_specification
    def spine_register_policies(self, registrar: Any) -> None:
        """Once, at start: add approval policies by tool name, `registrar.add(policy, name="refund")`."""

    @_specification
    def spine_register_counters(self, registrar: Any) -> None:
        """Once, at start: add token counters, `registrar.add(counter, name="provider")`."""

    @_specification
    def spine_register_events(self, registrar: Any) -> None:
        """Once, at start: declare `EventType`s named `<plugin>.<name>`, with versions and upcasters."""

    @_specification
    def spine_register_stores(self, registrar: Any) -> None:
        """Once, at start: add store factories by URL scheme, `registrar.add(factory, name="postgresql")`."""

    @_specification
    async def spine_pre_step(
        self, request: ModelRequest, context: HookContext, call_next: Any
    ) -> "ModelRequest | Compact":
        """Waterfall, before each request. Returns the request to make, or `Compact`, once, to begin the step again.

        Raising fails the step. Another registered route may be chosen and tools removed; adding tools is refused.
        """
        raise NotImplementedError

    @_specification
    async def spine_post_step(self, response: ModelResponse, context: HookContext) -> Iterable[Any] | None:
        """Observer, when an answer is recorded and not yet durable. May return events that its plugin declared.

        Raising is contained and recorded as `hook.failed`; the turn goes on.
        """

    @_specification
    async def spine_pre_execute(
        self, call: ToolInvocation, context: HookContext, call_next: Any
    ) -> "ToolInvocation | Deny | Ask | ToolOutcome":
        """Waterfall, before a known tool runs with valid arguments. Raising fails the step; nothing runs."""
        raise NotImplementedError

    @_specification
    async def spine_post_execute(
        self, call: ToolInvocation, outcome: ToolOutcome, context: HookContext, call_next: Any
    ) -> ToolOutcome:
        """Waterfall over what the model will see of any outcome. A change is `tool.revised`; the fact stays."""
        raise NotImplementedError

    @_specification
    async def spine_step_failed(self, error: Failure, context: HookContext, call_next: Any) -> "Stop | NextStep":
        """Waterfall, after `step.failed`. The core's own answer is `Stop`: the turn fails."""
        raise NotImplementedError

    @_specification
    def spine_session_opened(self, registrar: Any) -> None:
        """When a session is opened: add tools and sections to that session's own scope."""

    @_specification
    async def spine_event_recorded(self, event: Any) -> None:
        """Observer with a cursor of its own: each committed event, in order, some time later; cannot append."""

    @_specification
    def spine_close(self) -> None:
        """The plugin is unloaded and no snapshot holds it any more."""


HOOKS: Mapping[str, Any] = {name: spec for name, spec in vars(Specifications).items() if name.startswith("spine_")}
_ARGUMENTS = {hook: frozenset(inspect.signature(spec).parameters) - {"self"} for hook, spec in HOOKS.items()}


def _same(value: Any) -> Any:
    return value


@frozen(eq=False)
class Waterfall:
    """What holds for a waterfall hook: which argument is handed from one to the next, and what may come back."""

    hook: str
    argument: str
    allowed: tuple[type, ...]
    core: Callable[[Any], Any] = _same
    """The core's own answer to what is passed on beyond the last plugin."""


PRE_STEP = Waterfall("spine_pre_step", "request", (ModelRequest, Compact))
PRE_STEP_AGAIN = Waterfall("spine_pre_step", "request", (ModelRequest,))
"""After a compaction: there is one of them in a step."""
PRE_EXECUTE = Waterfall("spine_pre_execute", "call", (ToolInvocation, Deny, Ask, ToolOutcome))
POST_EXECUTE = Waterfall("spine_post_execute", "outcome", (ToolOutcome,))
STEP_FAILED = Waterfall("spine_step_failed", "error", (Stop, NextStep), lambda _: Stop())
WATERFALLS: Mapping[str, Waterfall] = {each.hook: each for each in (PRE_STEP, PRE_EXECUTE, POST_EXECUTE, STEP_FAILED)}
_USUAL = {hook: (each.argument, "call_next") for hook, each in WATERFALLS.items()} | {"spine_post_step": ("response",)}
"""What most implementations take."""


# --------------------------------------------------------------------------------------------------- the manager


@frozen(eq=False)
class Beyond:
    """The state of a chain in which a plugin has passed on, until the next one begins and once that has come back."""

    plugin: str


@frozen(eq=False)
class Implementation:
    """One plugin's implementation of a hook, bound to its neighbours in the chain."""

    plugin: str
    function: Callable[..., Any]
    arguments: tuple[str, ...]
    """Names of the arguments it takes, in its own order."""
    is_short: bool
    """It takes the hook's value, in a waterfall `call_next`, and nothing else: most do."""
    below: "Implementation | None"
    """The one that is asked next."""
    beyond: Beyond
    after: Beyond
    """Where the chain is once this one has passed on, and once it has come back."""


Chains = Mapping[str, tuple[Implementation, ...]]


class Hooks:
    """The plugins' implementations, by hook and in order. Names are `plugin@version`."""

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager("spine")
        self._manager.add_hookspecs(Specifications)
        self.chains: Chains = self._find_chains()
        """The implementations of every hook, first asked first; replaced, never changed: a step keeps its own."""

    def register(self, plugin: Any, name: str) -> None:
        """Take a plugin in. Raises `HookUnknown` for a hook that does not exist or is of the wrong colour."""
        for attribute, function in marked(plugin):
            _check_implementation(attribute, function, name)
        try:
            self._manager.register(plugin, name)
        except pluggy.PluginValidationError as exc:
            raise HookUnknown(f'plugin "{name}": {exc}') from exc
        self.chains = self._find_chains()

    def unregister(self, name: str) -> None:
        """Let a plugin go; steps that run keep the chains they began with."""
        self._manager.unregister(name=name)
        self.chains = self._find_chains()

    def _find_chains(self) -> "Chains":
        return MappingProxyType({hook: self._bound(hook) for hook in HOOKS})

    def _bound(self, hook: str) -> tuple[Implementation, ...]:
        chain: list[Implementation] = []
        found = getattr(self._manager.hook, hook).get_hookimpls()  # last asked first
        beyond = [*(Beyond(each.plugin_name) for each in found), Beyond("")]
        for each, own, after in zip(found, beyond, beyond[1:], strict=False):
            names = tuple(each.argnames)
            is_short = names == _USUAL.get(hook)
            below = chain[-1] if chain else None
            chain.append(Implementation(each.plugin_name, each.function, names, is_short, below, own, after))
        return tuple(reversed(chain))

    def chain(self, hook: str) -> tuple[Implementation, ...]:
        """The implementations of a hook, first asked first."""
        return self.chains[hook]

    def order(self, hook: str) -> tuple[str, ...]:
        """Names of the plugins that implement a hook, first asked first."""
        return tuple(implementation.plugin for implementation in self.chain(hook))

    def offered_by(self, name: str) -> tuple[str, ...]:
        """The hooks that a plugin implements."""
        return tuple(hook for hook in HOOKS if name in self.order(hook))

    def call(self, hook: str, plugin: str, **arguments: Any) -> None:
        """Run one plugin's synchronous hook, blaming it when it raises."""
        for implementation in self.chain(hook):
            if implementation.plugin == plugin:
                run_hook(implementation, hook, **arguments)


def run_hook(implementation: Implementation, hook: str, **arguments: Any) -> None:
    """Run one implementation of a synchronous hook, blaming its plugin when it raises."""
    try:
        implementation.function(*[arguments[name] for name in implementation.arguments])
    except SpineError:
        raise
    except (Exception, SystemExit) as exc:  # a plugin does not end the program
        raise blame(exc, implementation.plugin, hook) from exc


def marked(plugin: Any) -> Iterable[tuple[str, Any]]:
    """Attributes of a plugin that are marked as hook implementations, by name."""
    for attribute in dir(plugin):
        function = getattr(plugin, attribute, None)
        if getattr(function, "spine_impl", None) is not None:
            yield attribute, function


def _check_implementation(attribute: str, function: Any, plugin: str) -> None:
    hook = function.spine_impl.get("specname") or attribute
    code = inspect.unwrap(function).__code__
    where = f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"
    if hook not in HOOKS:
        nearest = get_close_matches(hook, HOOKS, 1, 0.0)[0]
        raise HookUnknown(f'plugin "{plugin}": no hook is called "{hook}"; nearest is "{nearest}" ({where})')
    wanted = inspect.iscoroutinefunction(HOOKS[hook])
    if inspect.iscoroutinefunction(function) is not wanted:
        kind = "async def" if wanted else "def"
        raise HookUnknown(f'plugin "{plugin}": {hook} must be written with {kind} ({where})')
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY:
            raise HookUnknown(f'plugin "{plugin}": argument "{parameter.name}" of {hook} is keyword-only ({where})')
        if parameter.name not in _ARGUMENTS[hook]:
            raise HookUnknown(f'plugin "{plugin}": {_no_argument(hook, parameter.name)} ({where})')


def _no_argument(hook: str, name: str) -> str:
    known = _ARGUMENTS[hook]
    if not known:
        return f'{hook} takes no arguments, found "{name}"'
    return f'{hook} has no argument "{name}"; nearest is "{get_close_matches(name, known, 1, 0.0)[0]}"'


def blame(error: BaseException, plugin: str, hook: str) -> PluginFailed:
    """The error that names the plugin for what its code raised; the error itself gets a note."""
    error.add_note(f"raised by plugin {plugin} in {hook}")
    text = clean_text(f"plugin {plugin} failed in {hook}: {type(error).__name__}: {error}")
    return PluginFailed(text, plugin=plugin, hook=hook)
