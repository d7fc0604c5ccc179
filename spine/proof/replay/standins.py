"""Stand-ins for plugins that are not installed any more (floor 13): they do again what the log says they did.

A stand-in has the hooks, sections and tools that the log names, with the recorded version. What a plugin changed is
applied as its patches say; what it decided is decided again. Events that a plugin declared itself cannot be made
without it.
"""

import types
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import attrs

from spine.events import (
    ApprovalRequested,
    FieldChange,
    HistoryCompacted,
    HookFailed,
    ModelRequested,
    Patch,
    RecordedEvent,
    ToolCompleted,
    ToolRevised,
    ToolStarted,
    TurnFailed,
)
from spine.hooks import Ask, Compact, Deny, NextStep, Stop, hookimpl
from spine.llm.request import Route
from spine.messages import TextBlock
from spine.proof.replay.log import Recording
from spine.proof.replay.world import World, recreated
from spine.requests import apply
from spine.sections import Section
from spine.tools import Tool, ToolDefinition, ToolOutcome
from spine.values import Digest, decode, freeze_object
from spine.wording import say

__all__ = ["stand_in"]

_DECIDED: Final = (ToolStarted, ApprovalRequested, ToolCompleted)


def stand_in(name: str, recording: Recording, world: World, present: Collection[str]) -> types.ModuleType:
    """The plugin `name` as far as the log knows it; in a hook it is asked after those of `present` that were before it.

    Between two plugins that are there nothing can be put: it is asked last then.
    """
    owner = next(each for each in recording.owners if each.partition("@")[0] == name)
    past = _Past(owner, recording, world)
    module = types.ModuleType(f"spine_{name}")
    module.__dict__["__version__"] = owner.partition("@")[2]

    async def pre_step(request: Any, context: Any, call_next: Any) -> Any:
        return await past.pre_step(request, context.step, call_next)

    async def pre_execute(call: Any, call_next: Any) -> Any:
        return await past.pre_execute(call, call_next)

    async def post_execute(call: Any, outcome: Any, call_next: Any) -> Any:
        return past.revised(call.id, await call_next(outcome))

    async def step_failed(error: Any, call_next: Any) -> Any:
        return past.follows() or await call_next(error)

    async def post_step(response: Any) -> None:
        past.fail("spine_post_step")

    def prompts(registrar: Any) -> None:
        for section in past.sections():
            registrar.add(section)

    def tools(registrar: Any) -> None:
        for tool in past.tools():
            registrar.add(tool)

    asked: dict[str, Callable[..., Any]] = {
        "spine_pre_step": pre_step,
        "spine_pre_execute": pre_execute,
        "spine_post_execute": post_execute,
        "spine_step_failed": step_failed,
        "spine_post_step": post_step,
    }
    for hook, function in asked.items():
        chain = recording.chain(hook)
        if owner in chain:
            before = {each.partition("@")[0] for each in chain[: chain.index(owner)]}
            setattr(module, hook, hookimpl(specname=hook, trylast=not before.isdisjoint(present))(function))
    for hook, offer in {"spine_register_prompts": prompts, "spine_register_tools": tools}.items():
        setattr(module, hook, hookimpl(specname=hook)(offer))
    return module


@attrs.frozen(eq=False)
class _Past:
    """What one plugin did, found from where the replay stands."""

    owner: str
    recording: Recording
    world: World

    def _ahead(self, kind: Any) -> Iterator[RecordedEvent]:
        return self.recording.following(self.world.length + 1, self.world.end, kind)

    def _patches(self, event: RecordedEvent | None, phase: str) -> list[Patch]:
        patches = event.data.patches if event is not None else ()
        return [patch for patch in patches if patch.plugin == self.owner and patch.phase == phase]

    def fail(self, hook: str) -> None:
        """Fail where it failed."""
        event = self.world.next
        if event is not None and isinstance(event.data, HookFailed) and event.data.plugin == self.owner:
            raise recreated(event.data.error.partition(f"failed in {hook}: ")[2])

    # ------------------------------------------------------------------------------------------------------- requests

    async def pre_step(self, request: Any, step: str, call_next: Any) -> Any:
        """Change the request as its patches say; compact where that came next."""
        event = self.world.next
        if event is not None and isinstance(event.data, HistoryCompacted):
            return Compact(event.data.summary, event.data.until)
        requested = next((each for each in self._ahead(ModelRequested) if each.place == step), None)
        result = await call_next(self._applied(request, self._patches(requested, "before")))
        return self._applied(result, self._patches(requested, "after"))

    def _applied(self, request: Any, patches: list[Patch]) -> Any:
        codec = self.recording.reader.codec
        for patch in patches:
            request = apply(codec, request, patch.changes, self.recording.content_at)
        return request

    def follows(self) -> Stop | NextStep | None:
        """What came after a failed step, when that was not the turn's end."""
        event = self.world.next
        if event is None or isinstance(event.data, TurnFailed | HookFailed):
            return None
        compacted = event.data if isinstance(event.data, HistoryCompacted) else None
        seq = next((each.seq for each in self._ahead(ModelRequested)), None)
        route = None if seq is None else Route.parse(self.recording.frames[seq]["request"]["route"])
        return NextStep(route, None if compacted is None else Compact(compacted.summary, compacted.until))

    # ---------------------------------------------------------------------------------------------------------- calls

    async def pre_execute(self, call: Any, call_next: Any) -> Any:
        """Change the arguments, or decide, as its patches say."""
        event = next((each for each in self._ahead(_DECIDED) if each.data.call == call.id), None)
        for patch in self._patches(event, "before"):
            for change in patch.changes:
                if isinstance(change, FieldChange) and change.field == "arguments":
                    call = attrs.evolve(call, arguments=freeze_object(change.value))  # type: ignore[arg-type]
                elif isinstance(change, FieldChange) and event is not None:
                    return self._decision(event, change.value)
        return await call_next(call)

    def _decision(self, event: RecordedEvent, decision: object) -> Any:
        if isinstance(event.data, ApprovalRequested):
            return Ask(event.data.reason or "")
        if decision == "deny":
            return Deny(self._reason(event.data))
        return event.data.outcome

    def _reason(self, data: ToolCompleted) -> str:
        """The reason inside the words that the model was given."""
        first, _, last = say("denied_by_plugin_because", who=f"Plugin {self.owner}", reason="\0").partition("\0")
        text = "".join(block.text for block in data.result.content if isinstance(block, TextBlock))
        return text.removeprefix(first).removesuffix(last) if text.startswith(first) else ""

    def revised(self, call: Any, outcome: ToolOutcome) -> ToolOutcome:
        """What the model saw of an outcome, where this plugin changed it."""
        event = next((each for each in self._ahead(ToolRevised) if each.data.call == call), None)
        for patch in [*self._patches(event, "before"), *self._patches(event, "after")]:
            assert event is not None
            changes = [change for change in patch.changes if isinstance(change, FieldChange)]
            fields = {change.field: change.value for change in changes if change.field in ("status", "truncated")}
            outcome = outcome.evolve(**fields, content=event.data.result.content)
        return outcome

    # -------------------------------------------------------------------------------------------------- contributions

    def sections(self) -> Iterator[Section]:
        """Its sections: each with the text that the step's frame has."""
        for name, block in self.recording.sections_of(self.owner).items():
            source = block.get("source", "")
            yield Section(
                name,
                render=self._text_of(name),
                order=block.get("order", 100),
                priority=block.get("priority", 0),
                dynamic=bool(block.get("dynamic", False)),
                source="" if source == self.owner else source,
                metadata=block.get("metadata", {}),
            )

    def _text_of(self, name: str) -> Callable[[Any], str]:
        def render(context: Any) -> str:
            for seq, frame in self.recording.frames.items():
                blocks = [block for block in frame["request"].get("system", ()) if block["name"] == name]
                if seq > self.world.length and blocks:
                    return self.recording.content(Digest(blocks[0]["text"])).decode()
            return ""

        return render

    def tools(self) -> Iterator[Tool]:
        """Its tools: what the model saw of them, and how they were treated."""
        for name, item in self.recording.tools_of(self.owner).items():
            found = next(
                filter(None, (self._definition(frame, name) for frame in self.recording.frames.values())), None
            )
            if found is not None:
                effect = item.get("effect", "irreversible")
                approval = item.get("approval") if item.get("approval") in ("never", "ask") else "never"
                yield Tool(definition=found, handler=_gone, effect=effect, approval=approval)  # type: ignore[arg-type]

    def _definition(self, frame: Any, name: str) -> ToolDefinition | None:
        for digest in frame["request"].get("tools", ()):
            json = decode(self.recording.content(Digest(digest)))
            if json["name"] == name and json.pop("type") == "function":
                return self.recording.reader.codec.from_json(json, ToolDefinition)
        return None


async def _gone(arguments: Any, context: Any) -> Any:
    raise AssertionError("the plugin of this tool is not here, and no tool runs in a replay")
