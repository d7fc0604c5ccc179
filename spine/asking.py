"""What a step asks the model (floor 10): the base request, what hooks make of it, and the record of both.

Between two steps mostly nothing moves but step and history. All else that a request is made of is kept in a `Base`,
which is made anew when registries, hooks, route, sections or overrides are others than they were.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spine.attempts import check_request
from spine.budgets import check_price, limits_of
from spine.capabilities import Capabilities, snapshot, trim
from spine.drafts import changer, maker
from spine.errors import HookMisused
from spine.events import Change, ModelRequested, Patch
from spine.hooks import PRE_STEP, PRE_STEP_AGAIN, Compact
from spine.llm.request import ModelRequest, ResponseFormat, Route
from spine.messages import SystemBlock
from spine.projectors.status import TurnState
from spine.requests import Frame, content_of, diff, frame_of, problem_of, request_digest, selection_json
from spine.run import Base, Run, compact, patches, stop_if_cancelled
from spine.runners import HookChange, waterfall
from spine.sections import DynamicContext, StaticContext
from spine.values import StepId, encode, utc

__all__ = ["ask_pre_step", "base_of", "record_request", "take_snapshot"]


def take_snapshot(run: Run) -> Capabilities:
    """The step's capabilities; made anew only when a registry moved."""
    if run.capabilities is None or run.moves_seen != run.registries.moves:
        version = run.registries.version(run.scope)
        if run.capabilities is None or run.capabilities_version != version:
            run.capabilities = snapshot(run.registries, run.scope, run.agent)
            run.capabilities_version = version
        run.moves_seen = run.registries.moves
    return run.capabilities


def base_of(run: Run, turn: TurnState, step: StepId) -> tuple[Base, ModelRequest]:
    """What the step's request is made of besides step and history, and the request before any hook."""
    capabilities, chains = take_snapshot(run), run.hooks.chains
    base, run.chains = run.base, chains
    if base is None or not (
        base.is_still
        and base.capabilities is capabilities
        and base.chains is chains
        and base.overrides == turn.started.overrides
        and run.next_route is None
    ):
        base = run.base = _made_base(run, turn, step, capabilities, base)
    run.request = request = _next_request(base.request, step, run.log.history)
    return base, request


_next_request = changer(ModelRequest, "step", "messages")


def _made_base(run: Run, turn: TurnState, step: StepId, capabilities: Capabilities, kept: Base | None) -> Base:
    """The kept base, when it was made from the same parts, or a new one; weighed against the window either way."""
    agent, overrides, chosen = run.agent, turn.started.overrides, run.next_route
    run.next_route = None
    route = chosen or (Route.parse(overrides["model"]) if "model" in overrides else run.route)
    target = run.routes.resolve(route, run.scope)
    blocks = _render(run, turn, step, capabilities, route)
    window = target.traits.window
    used = None if window is None else run.estimate.of(run.log.history, capabilities.counter(route.provider))
    budget = None if window is None else window - (agent.max_output_tokens or 0)
    system, trimmed = trim(blocks, budget, used or 0)
    base = kept
    if base is None or not (
        base.capabilities is capabilities
        and base.chains is run.chains
        and base.overrides == overrides
        and base.request.route == route
        and base.request.system == system
    ):
        request = ModelRequest(
            route=route,
            step=step,
            system=system,
            tools=capabilities.definitions,
            max_output_tokens=agent.max_output_tokens,
            temperature=agent.temperature,
            thinking=agent.thinking,
            response_format=_response_format(overrides),
            provider_options=agent.provider_options,
        )
        base = Base(capabilities, run.hooks.chains, overrides, request, target)
    base.is_still = chosen is None and window is None and not any(e.value.dynamic for e in capabilities.sections)
    base.trimmed = trimmed
    base.estimate = None if used is None else used + sum(block.token_count or 0 for block in system)
    return base


def _render(
    run: Run, turn: TurnState, step: StepId, capabilities: Capabilities, route: Route
) -> tuple[SystemBlock, ...]:
    common: dict[str, Any] = {
        "scope": run.scope.id,
        "session": run.log.session,
        "agent": run.agent.name,
        "route": route,
        "variables": run.variables,
    }

    def dynamic() -> DynamicContext:
        return DynamicContext(**common, turn=turn.id, step=step, now=utc(turn.at), tools=capabilities.definitions)

    return run.renderer.render(capabilities, route, lambda: StaticContext(**common), dynamic)


def _response_format(overrides: Mapping[str, Any]) -> ResponseFormat | None:
    output = overrides.get("output")
    return None if output is None else ResponseFormat(name=output["name"], schema=output["schema"])


# -------------------------------------------------------------------------------------------------------- hooks


async def ask_pre_step(
    run: Run, turn: TurnState, step: StepId, base: Base, request: Any
) -> tuple[Base, ModelRequest, Sequence[HookChange]]:
    """What the hooks make of a base request, and their changes.

    After a compaction, of which there is one in a step, all begins again with another base.
    """
    kind, changes = PRE_STEP, list[HookChange]()
    while chain := run.chain("spine_pre_step"):
        request, changes = await waterfall(chain, kind, request, run.arguments(turn, step), run.watch)
        await stop_if_cancelled(turn)
        if not isinstance(request, Compact):
            break
        compact(run, turn, request, changes[-1].plugin, "spine_pre_step")
        (base, request), changes, kind = base_of(run, turn, step), [], PRE_STEP_AGAIN
    for change in changes:
        _check_change(run, change, base.capabilities)
    return base, request, changes


def _check_change(run: Run, change: HookChange, capabilities: Capabilities) -> None:
    problem = problem_of(run.log.codec, change.old, change.new)
    if problem is None:
        strangers = [tool.name for tool in change.new.tools if tool.name not in capabilities.tools]
        if strangers:
            problem = f'added the tool "{strangers[0]}", which the step\'s snapshot has not; it may only remove tools'
    if problem is not None:
        hook = "spine_pre_step"
        raise HookMisused(f"plugin {change.plugin} {problem} in {hook}", plugin=change.plugin, hook=hook)


# ----------------------------------------------------------------------------------------------------- recording


def record_request(
    run: Run, step: StepId, base: Base, request: ModelRequest, changes: Sequence[HookChange] = ()
) -> None:
    """Ask the target whether it takes the request, and append `model.requested` with all that it refers to."""
    target, log = base.target, run.log
    if changes and request.route != base.request.route:
        target = run.routes.resolve(request.route, run.scope)
    check_request(target, request, strict=run.strict)
    check_price(limits_of(run.agent, base.overrides), request.route, target.prices)
    frame, frame_seq = base.frame or _record_frame(run, step, base)
    applied: tuple[Patch, ...] = ()
    selection: int | None = None
    if changes:

        def changed(change: HookChange) -> tuple[Change, ...]:
            return diff(log.codec, change.old, change.new, lambda content: log.put(content, step))

        applied = patches(changes, changed)
        if applied:
            frame = frame_of(log.codec, request)
        if target is not base.target:
            selection = log.put(content_of(encode(selection_json(target.selection)), "application/json"), step)
    requested = _make_requested(
        digest=request_digest(log.codec, frame.digest, step, request.messages),
        frame=frame_seq,
        selection=selection,
        patches=applied,
        estimate=base.estimate,
        trimmed=base.trimmed,
    )
    log.append(requested, place=step)
    run.request, run.pending = request, target


_make_requested: Callable[..., ModelRequested] = maker(ModelRequested)


def _record_frame(run: Run, step: StepId, base: Base) -> tuple[Frame, int]:
    """The base request's frame, its parts and the seq of its content; once for each base."""
    selection, snapshot = base.target.selection, (base.capabilities, base.chains, base.request.route)
    known = run.origins[1] if run.origins is not None and run.origins[0] == snapshot else None
    origins = known or run.new_origins(base.request.route, selection.protocol)
    frame, whole = run.frames.of(run.log.codec, base.request, selection, origins)
    for content in frame.contents:
        run.log.put(content, step)
    seq = run.log.put(whole, step)
    if isinstance(origins, dict):
        run.origins = (snapshot, seq)
    base.frame = (frame, seq)
    return base.frame
