"""The runners that await step hooks, and the watch over them (floor 9, above `hooks`).

A waterfall goes down through its implementations and comes back up; every change on either way is noted with the
plugin that made it, for the log. Observers are asked in turn, and their failures are contained.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeVar

import attrs

from spine.errors import HookMisused, PluginFailed
from spine.frozen import define, frozen
from spine.hooks import HOOK_TIMEOUT_S, Beyond, Implementation, Waterfall, blame

__all__ = ["HookChange", "HookWatch", "observe", "waterfall"]

V = TypeVar("V")


@frozen
class HookChange:
    """One change that a plugin made to a waterfall's value, on the way in or out, or its verdict instead of it."""

    plugin: str
    phase: Literal["before", "after"]
    old: Any
    new: Any


class _Hooks(Protocol):
    """Hooks at work. `at` says who has the word, and is another object whenever that changed."""

    at: Any

    @property
    def hook(self) -> str: ...


@define
class HookWatch:
    """Which hooks of a session are running; a watchdog looks now and then, and only it reads the clock.

    A hook's time runs from the first look that finds it at work.
    """

    clock: Callable[[], float] = time.monotonic
    timeout_s: float = HOOK_TIMEOUT_S
    running: list[_Hooks] = attrs.Factory(list)
    """Each chain under way; parallel calls have several."""
    cut: tuple[str, str] | None = None
    """The hook that the watchdog stopped, until the loop has dealt with it."""
    _seen: list[tuple[_Hooks, Any, float]] = attrs.Factory(list)
    """What the last look found: each chain, where it was, and since when."""

    def overdue(self) -> tuple[str, str] | None:
        """Plugin and hook that ran out of time."""
        if not self.running and not self._seen:
            return None
        now, seen = self.clock(), self._seen
        since = (next((s for h, at, s in seen if h is hooks and at is hooks.at), now) for hooks in self.running)
        self._seen = [(hooks, hooks.at, first) for hooks, first in zip(self.running, since, strict=True)]
        late = (hooks for hooks, _, first in self._seen if now - first > self.timeout_s)
        return next(((hooks.at.plugin, hooks.hook) for hooks in late), None)


async def waterfall(
    chain: Sequence[Implementation],
    kind: Waterfall,
    value: V,
    arguments: Callable[[], Mapping[str, Any]],
    watch: HookWatch,
) -> tuple[Any, list[HookChange]]:
    """Run a waterfall hook over `value`.

    Returns what came out and the changes in the order to apply them; only values of `value`'s own type may be passed
    on. `arguments` gives what else may be taken, and is asked only when an implementation takes it. Raises
    `PluginFailed` or `HookMisused`, naming the plugin.
    """
    first, running = chain[0], watch.running
    run = _Running(kind, arguments, first)
    running.append(run)
    try:
        return await _level(run, first, value), run.changes
    finally:
        running.remove(run)
        del run.call_next  # it holds the run: what is over must not wait for the garbage collector


class _Running:
    """One run of a chain, in plain fields: chains run at every step and call, and most only pass on."""

    __slots__ = ("arguments", "at", "back", "call_next", "changes", "given", "kind", "noted")

    def __init__(self, kind: Waterfall, arguments: Callable[[], Mapping[str, Any]], first: Implementation) -> None:
        self.kind, self.arguments = kind, arguments
        self.changes: list[HookChange] = []
        self.at: Implementation | Beyond = first
        """Who has the word: an implementation that was asked, or what is left of one that has passed on."""
        self.given: Any = None
        """What was given to the one that was asked last."""
        self.back: Any = _NOTHING
        """What the level that returned last gave back; nothing when it failed."""
        self.call_next = self._pass_on  # one for all levels: it knows by `at` who calls

    def _pass_on(self, passed: Any) -> Awaitable[Any]:
        implementation: Any = self.at
        if passed is not self.given or type(implementation) is Beyond:
            _check_passed(self, passed)
        self.at, below = implementation.beyond, implementation.below
        return _innermost(self, passed) if below is None else _level(self, below, passed)

    @property
    def hook(self) -> str:
        return self.kind.hook

    def note(self, who: Implementation, phase: Literal["before", "after"], old: Any, new: Any) -> None:
        if not self.changes:
            self.noted: list[Implementation] = []
        self.changes.append(HookChange(who.plugin, phase, old, new))
        self.noted.append(who)

    def forget_from(self, implementation: Implementation | None) -> None:
        """Drop what an implementation and those below it have noted."""
        while self.changes and implementation is not None:
            if implementation in self.noted:
                at = self.noted.index(implementation)
                del self.changes[at:], self.noted[at:]
            implementation = implementation.below


class _Nothing:
    """The one object that no hook can return."""


_NOTHING: Final = _Nothing()


async def _level(run: _Running, implementation: Implementation, given: Any) -> Any:
    """Ask one implementation. Whoever passes on unchanged what it was given leaves nothing behind."""
    run.at, run.given = implementation, given
    try:
        if implementation.is_short:
            result = await implementation.function(given, run.call_next)
        else:
            known = {**run.arguments(), run.kind.argument: given, "call_next": run.call_next}
            result = await implementation.function(*[known[name] for name in implementation.arguments])
    except BaseException as exc:
        run.at, run.back = implementation.after, _NOTHING
        if isinstance(exc, PluginFailed) or not isinstance(exc, Exception | SystemExit):
            raise
        raise blame(exc, implementation.plugin, run.hook) from exc
    run.at = implementation.after
    if result is not run.back:
        _note_result(run, implementation, given, result)
    return result


async def _innermost(run: _Running, given: Any) -> Any:
    run.back = result = run.kind.core(given)
    return result


def _check_passed(run: _Running, passed: Any) -> None:
    plugin = run.at.plugin
    if isinstance(run.at, Beyond):
        raise HookMisused(f"plugin {plugin} called call_next twice in {run.hook}", plugin=plugin, hook=run.hook)
    _check_type(passed, (type(run.given),), plugin, run.hook, "passed on")
    run.note(run.at, "before", run.given, passed)


def _note_result(run: _Running, implementation: Implementation, given: Any, result: Any) -> None:
    """An implementation returned something else than came back to it, or nothing came back to it."""
    back, run.back = run.back, _NOTHING
    _check_type(result, run.kind.allowed, implementation.plugin, run.hook, "returned")
    came_back = back is not _NOTHING
    base = back if came_back else given
    if not came_back:  # what it passed on failed, and it went on without: nothing of it
        run.forget_from(implementation)
    if result is not base:
        run.note(implementation, "after" if came_back else "before", base, result)
    run.back = result


def _check_type(value: Any, allowed: tuple[type, ...], plugin: str, hook: str, verb: str) -> None:
    if isinstance(value, allowed):
        return
    wanted = " or ".join(kind.__name__ for kind in allowed)
    found = "None (forgot return?)" if value is None else type(value).__name__
    raise HookMisused(f"plugin {plugin} {verb} {found} in {hook}; wanted {wanted}", plugin=plugin, hook=hook)


async def observe(
    chain: Sequence[Implementation],
    hook: str,
    value: Any,
    arguments: Callable[[], Mapping[str, Any]],
    watch: HookWatch,
    failed: Callable[[PluginFailed], None],
) -> list[tuple[str, Any]]:
    """Ask each observer of `value` in turn; one that raises is reported to `failed` and the rest go on.

    `arguments` gives all that may be taken; most take the value alone. Returns what they returned, each with its
    plugin's name.
    """
    answers: list[tuple[str, Any]] = []
    run = _Observing(hook)
    running = watch.running
    running.append(run)
    try:
        for implementation in chain:
            run.at = implementation
            try:
                if implementation.is_short:
                    answer = await implementation.function(value)
                else:
                    known = arguments()
                    answer = await implementation.function(*[known[name] for name in implementation.arguments])
            except (Exception, SystemExit) as exc:
                failed(blame(exc, implementation.plugin, hook))
            else:
                answers.append((implementation.plugin, answer))
    finally:
        running.remove(run)
    return answers


class _Observing:
    """Observers at work, for the watchdog."""

    __slots__ = ("at", "hook")

    def __init__(self, hook: str) -> None:
        self.hook = hook
        self.at: Implementation | None = None
