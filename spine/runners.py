"""The runners that await step hooks, and the watch over them (floor 9, above `hooks`).

A waterfall goes down through its implementations and comes back up; every change on either way is noted with the
plugin that made it, for the log. Observers are asked in turn, and their failures are contained.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import attrs

from spine.errors import HookMisused, PluginFailed
from spine.hooks import HOOK_TIMEOUT_S, Implementation, blame

__all__ = ["HookChange", "HookWatch", "observe", "waterfall"]

V = TypeVar("V")


@attrs.frozen
class HookChange:
    """One change that a plugin made to a waterfall's value, on the way in or out, or its verdict instead of it."""

    plugin: str
    phase: Literal["before", "after"]
    old: Any
    new: Any


class _Running(Protocol):
    """Hooks at work: which plugin has the word, and since when it was seen to have it (None: not seen yet)."""

    hook: str
    plugin: str
    since: float | None


@attrs.define
class HookWatch:
    """Which hooks of a session are running; a watchdog looks now and then, and only it reads the clock.

    A hook's time runs from the first look that finds it at work.
    """

    clock: Callable[[], float] = time.monotonic
    timeout_s: float = HOOK_TIMEOUT_S
    running: list[_Running] = attrs.Factory(list)
    """Each chain under way; parallel calls have several."""
    cut: tuple[str, str] | None = None
    """The hook that the watchdog stopped, until the loop has dealt with it."""

    def overdue(self) -> tuple[str, str] | None:
        """Plugin and hook that ran out of time."""
        if self.running:
            now = self.clock()
            for hooks in self.running:
                if hooks.since is None:
                    hooks.since = now
                elif now - hooks.since > self.timeout_s:
                    return hooks.plugin, hooks.hook
        return None


def _same(value: V) -> V:
    return value


async def waterfall(
    chain: Sequence[Implementation],
    hook: str,
    name: str,
    value: V,
    allowed: tuple[type, ...],
    arguments: dict[str, Any],
    watch: HookWatch,
    core: Callable[[V], Any] = _same,
) -> tuple[Any, list[HookChange]]:
    """Run a waterfall hook over `value`, which implementations take as argument `name`.

    Returns what came out and the changes in the order to apply them. `allowed` are the types that may be returned;
    only values of `value`'s own type may be passed on. Raises `PluginFailed` or `HookMisused`, naming the plugin.
    """
    run = _Waterfall(chain, hook, name, allowed, arguments, core)
    watch.running.append(run)
    try:
        return await _level(run, 0, value), run.changes
    finally:
        watch.running.remove(run)


class _Waterfall:
    """One run of a chain, in plain fields: chains run at every step and call, and most only pass on.

    Level i is implementation i; below the last one is the core.
    """

    __slots__ = (
        "allowed",
        "arguments",
        "back",
        "back_from",
        "chain",
        "changes",
        "core",
        "entered",
        "hook",
        "name",
        "plugin",
        "since",
    )

    def __init__(
        self,
        chain: Sequence[Implementation],
        hook: str,
        name: str,
        allowed: tuple[type, ...],
        arguments: Mapping[str, Any],
        core: Callable[[Any], Any],
    ) -> None:
        self.chain, self.hook, self.name = chain, hook, name
        self.allowed, self.arguments, self.core = allowed, arguments, core
        self.changes: list[HookChange] = []
        self.entered = 0
        """The level that was entered last: each one goes on to the next once."""
        self.back_from = -1
        self.back: Any = None
        """The level that returned last, and what it gave back."""
        self.plugin = ""
        self.since: float | None = None


async def _level(run: _Waterfall, position: int, given: Any) -> Any:
    implementation = run.chain[position]
    around, noted = run.plugin, len(run.changes)

    def call_next(passed: Any) -> Awaitable[Any]:
        if run.entered != position or passed is not given:
            _check_passed(run, position, given, passed)
        run.entered = below = position + 1
        return _level(run, below, passed) if below < len(run.chain) else _innermost(run, below, passed)

    run.plugin, run.since = implementation.plugin, None
    try:
        if implementation.is_short:
            result = await implementation.function(given, call_next)
        else:
            known = {**run.arguments, run.name: given, "call_next": call_next}
            result = await implementation.function(*[known[name] for name in implementation.arguments])
    except PluginFailed:
        raise
    except (Exception, SystemExit) as exc:
        raise blame(exc, implementation.plugin, run.hook) from exc
    finally:
        run.plugin, run.since = around, None  # the one around it goes on with fresh time
    if type(result) not in run.allowed:
        _check_type(result, run.allowed, implementation.plugin, run.hook, "returned")
    came_back = run.back_from == position + 1
    base = run.back if came_back else given
    if not came_back and len(run.changes) > noted:  # what it passed on failed, and it went on without: nothing of it
        del run.changes[noted:]
    if result is not base:
        run.changes.append(HookChange(implementation.plugin, "after" if came_back else "before", base, result))
    run.back_from, run.back = position, result
    return result


async def _innermost(run: _Waterfall, position: int, given: Any) -> Any:
    result = run.core(given)
    run.back_from, run.back = position, result
    return result


def _check_passed(run: _Waterfall, position: int, given: Any, passed: Any) -> None:
    plugin = run.chain[position].plugin
    if run.entered != position:
        raise HookMisused(f"plugin {plugin} called call_next twice in {run.hook}", plugin=plugin, hook=run.hook)
    _check_type(passed, (type(given),), plugin, run.hook, "passed on")
    run.changes.append(HookChange(plugin, "before", given, passed))


def _check_type(value: Any, allowed: tuple[type, ...], plugin: str, hook: str, verb: str) -> None:
    if isinstance(value, allowed):
        return
    wanted = " or ".join(kind.__name__ for kind in allowed)
    found = "None (forgot return?)" if value is None else type(value).__name__
    raise HookMisused(f"plugin {plugin} {verb} {found} in {hook}; wanted {wanted}", plugin=plugin, hook=hook)


async def observe(
    chain: Sequence[Implementation],
    hook: str,
    arguments: Mapping[str, Any],
    watch: HookWatch,
    failed: Callable[[PluginFailed], None],
) -> list[tuple[str, Any]]:
    """Ask each observer in turn; one that raises is reported to `failed` and the rest go on.

    Returns what they returned, each with its plugin's name.
    """
    answers: list[tuple[str, Any]] = []
    run = _Observing(hook)
    watch.running.append(run)
    try:
        for implementation in chain:
            run.plugin, run.since = implementation.plugin, None
            try:
                answer = await implementation.function(*[arguments[name] for name in implementation.arguments])
            except (Exception, SystemExit) as exc:
                failed(blame(exc, implementation.plugin, hook))
            else:
                answers.append((implementation.plugin, answer))
    finally:
        watch.running.remove(run)
    return answers


@attrs.define(eq=False)
class _Observing:
    """Observers at work, for the watchdog."""

    hook: str
    plugin: str = ""
    since: float | None = None
