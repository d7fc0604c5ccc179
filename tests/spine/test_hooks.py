"""The hooks that plugins implement: found, ordered and checked by pluggy, refused early when they do not fit."""

import inspect
from typing import Any

import pytest

from spine import hooks as module
from spine.errors import HookUnknown, PluginFailed, UsageError
from spine.hooks import HOOKS, Ask, Compact, Deny, Hooks, NextStep, Stop, hookimpl

ASYNC = {
    "spine_pre_step", "spine_post_step", "spine_pre_execute", "spine_post_execute", "spine_step_failed",
    "spine_event_recorded",
}  # fmt: skip
SYNC = {
    "spine_register_protocols", "spine_register_adapters", "spine_register_tools", "spine_register_prompts",
    "spine_register_policies", "spine_register_counters", "spine_register_events", "spine_register_stores",
    "spine_session_opened", "spine_close",
}  # fmt: skip


class Plain:
    """A plugin without hooks."""


def plugin_of(**functions: Any) -> Any:
    plugin = Plain()
    for name, function in functions.items():
        setattr(plugin, name, hookimpl(specname=name)(function))
    return plugin


def test_the_hooks_are_these_and_documented() -> None:
    """Names are for ever; each says what it is for, and what waits is async."""
    assert set(HOOKS) == ASYNC | SYNC
    for name, spec in HOOKS.items():
        assert inspect.iscoroutinefunction(spec) is (name in ASYNC)
        assert inspect.getdoc(spec), f"{name} has no docstring"


@pytest.mark.parametrize("hook", sorted(ASYNC))
def test_sync_where_async_is_wanted_is_refused(hook: str) -> None:
    """Naming plugin, hook, what is wanted, and the place."""
    said = rf'plugin "p@1": {hook} must be written with async def \(test_hooks.py:\d+\)'
    with pytest.raises(HookUnknown, match=said):
        Hooks().register(plugin_of(**{hook: lambda: None}), "p@1")


@pytest.mark.parametrize("hook", sorted(SYNC))
def test_async_where_sync_is_wanted_is_refused(hook: str) -> None:
    """The reverse, too."""

    async def function() -> None: ...

    with pytest.raises(HookUnknown, match=rf"{hook} must be written with def"):
        Hooks().register(plugin_of(**{hook: function}), "p@1")


NEAR = {
    "spine_prestep": "spine_pre_step",
    "spine_register_tool": "spine_register_tools",
    "spine_post_exec": "spine_post_execute",
    "spine_closed": "spine_close",
    "nothing_like_it": "",
}


@pytest.mark.parametrize(("written", "meant"), NEAR.items())
def test_a_misspelt_hook_is_refused_with_the_nearest_name(written: str, meant: str) -> None:
    """And nothing of the plugin is registered."""
    hooks = Hooks()
    with pytest.raises(HookUnknown, match=f'no hook is called "{written}"; nearest is "{meant}'):
        hooks.register(plugin_of(**{written: lambda: None, "spine_close": lambda: None}), "p@1")
    assert hooks.order("spine_close") == ()


async def takes_ctx(request: Any, contxt: Any, call_next: Any) -> Any: ...


async def takes_keywords(request: Any, call_next: Any, *, context: Any) -> Any: ...


WRONG_ARGUMENTS: dict[str, tuple[str, Any, str]] = {
    "misspelt": ("spine_pre_step", takes_ctx, 'spine_pre_step has no argument "contxt"; nearest is "context"'),
    "too many": ("spine_close", lambda runtime: None, 'spine_close takes no arguments, found "runtime"'),
    "keyword-only": ("spine_pre_step", takes_keywords, 'argument "context" of spine_pre_step is keyword-only'),
}


@pytest.mark.parametrize(("hook", "function", "message"), WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS)
def test_an_argument_that_a_hook_does_not_have_is_refused(hook: str, function: Any, message: str) -> None:
    """In one sentence with the place; nothing is registered."""
    hooks = Hooks()
    with pytest.raises(HookUnknown, match=rf'^plugin "p@1": {message} \(test_hooks.py:\d+\)$'):
        hooks.register(plugin_of(**{hook: function}), "p@1")
    assert hooks.order(hook) == ()


def test_chains_are_replaced_and_never_changed() -> None:
    """Who holds the chains of a step keeps them, whoever comes or goes."""
    hooks = Hooks()
    first = hooks.chains
    hooks.register(plugin_of(spine_close=lambda: None), "a@1")
    second = hooks.chains
    hooks.register(plugin_of(spine_close=lambda: None), "b@1")
    assert [i.plugin for i in hooks.chain("spine_close")] == ["b@1", "a@1"]
    hooks.unregister("b@1")
    assert hooks.order("spine_close") == ("a@1",)
    assert (first["spine_close"], [i.plugin for i in second["spine_close"]]) == ((), ["a@1"])
    with pytest.raises(TypeError):
        second["spine_close"] = ()  # type: ignore[index]


def test_the_hooks_of_a_plugin_are_listed() -> None:
    """In the order of the catalogue."""
    hooks = Hooks()

    async def pre(call_next: Any) -> Any: ...

    hooks.register(plugin_of(spine_close=lambda: None, spine_pre_step=pre), "a@1")
    assert hooks.offered_by("a@1") == ("spine_pre_step", "spine_close")
    assert hooks.offered_by("b@1") == ()


def test_one_plugins_hook_is_called_and_blamed() -> None:
    """Only that plugin's; its own typed errors pass, others are wrapped with plugin and hook."""
    called: list[str] = []

    def fails(registrar: Any) -> None:
        called.append(registrar)
        raise ZeroDivisionError("oops")

    def refuses(registrar: Any) -> None:
        raise UsageError("not like that")

    hooks = Hooks()
    hooks.register(plugin_of(spine_register_tools=fails), "a@1")
    hooks.register(plugin_of(spine_register_tools=refuses), "b@1")
    said = "plugin a@1 failed in spine_register_tools: ZeroDivisionError: oops"
    with pytest.raises(PluginFailed, match=said) as failed:
        hooks.call("spine_register_tools", "a@1", registrar="r")
    assert (failed.value.plugin, failed.value.hook) == ("a@1", "spine_register_tools")
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert any("a@1" in note for note in failed.value.__cause__.__notes__)
    with pytest.raises(UsageError, match="not like that"):
        hooks.call("spine_register_tools", "b@1", registrar="r")
    hooks.call("spine_register_tools", "c@1", registrar="r")
    assert called == ["r"]


def test_the_room_for_plugins_names_what_hooks_return() -> None:
    """Verdicts and answers are public."""
    for kind in (Ask, Compact, Deny, NextStep, Stop):
        assert kind.__name__ in module.__all__
    assert "hookimpl" in module.__all__
