"""T18, T19: two parts that run at every call: validation of arguments, and a waterfall of hooks."""

from typing import Any

import anyio
import jsonschema_rs

from benchmarks import quiet_hooks
from benchmarks.figures import Figure
from benchmarks.floors import bare_waterfall
from benchmarks.timing import cpu_per_await, cpu_per_call
from benchmarks.workload import Sizes, look
from spine.execution import validate
from spine.functions import as_tool
from spine.hooks import Hooks, Waterfall
from spine.runners import HookWatch, waterfall
from spine.values import freeze_object, thaw

__all__ = ["measure_validation", "measure_waterfall"]

_PLUGINS = 3


def measure_validation(sizes: Sizes) -> list[Figure]:
    """T18: whether arguments fit their tool's schema."""
    subject = as_tool(look)
    arguments = freeze_object({"word": "spine"})
    assert validate(subject, arguments) is None
    assert validate(subject, freeze_object({"word": 3})) is not None
    floor = jsonschema_rs.validator_for(thaw(subject.definition.parameters))
    plain = {"word": "spine"}
    return [
        Figure(
            "T18",
            cpu_per_call(lambda: validate(subject, arguments), calls=sizes.calls) * 1e6,
            cpu_per_call(lambda: floor.is_valid(plain), calls=sizes.calls) * 1e6,
        )
    ]


async def _pass_on(value: Any, call_next: Any) -> Any:
    return await call_next(value)


async def _waterfalls(calls: int) -> tuple[float, float]:
    hooks = Hooks()
    for number in range(_PLUGINS):
        hooks.register(_Copy(), f"quiet{number}@1")
    chain, watch = hooks.chain("spine_pre_execute"), HookWatch()
    assert len(chain) == _PLUGINS
    value, kind = "a call", Waterfall("spine_pre_execute", "call", (str,))

    async def ours() -> None:
        result, changes = await waterfall(chain, kind, value, dict, watch)
        assert result is value
        assert not changes

    bare = bare_waterfall([_pass_on] * _PLUGINS)
    assert await bare(value) is value
    floor = await cpu_per_await(lambda: bare(value), calls=calls)
    return await cpu_per_await(ours, calls=calls) * 1e6, floor * 1e6


class _Copy:
    """The quiet hooks as an object, so that several of them can be plugins."""

    spine_pre_execute = staticmethod(quiet_hooks.spine_pre_execute)


def measure_waterfall(sizes: Sizes) -> list[Figure]:
    """T19: one waterfall through three plugins that pass on."""
    return [Figure("T19", *anyio.run(_waterfalls, sizes.calls))]
