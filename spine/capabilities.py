"""What a step may use (floor 9): one frozen snapshot of sections and tools, taken before the request.

The snapshot is by reference: it is made anew only when something in the scope's chain moved, and what a running step
holds never changes under it.
"""

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from spine.agent import Agent
from spine.errors import HookMisused, PluginFailed, SpineError, ToolUnknown
from spine.estimates import TokenCounter, estimate_tokens
from spine.frozen import frozen
from spine.llm.request import Route
from spine.messages import SystemBlock
from spine.scope import Contribution, Registries, Scope
from spine.sections import DynamicContext, Section, SectionContext, StaticContext
from spine.tools import Approval, ServerTool, Tool, ToolDefinition
from spine.values import clean_text


@frozen(eq=False)
class Capabilities:
    """Tools by name and sections in order, each with its owner and layer."""

    tools: Mapping[str, Contribution[Tool | ServerTool]]
    definitions: tuple[ToolDefinition | ServerTool, ...]
    sections: tuple[Contribution[Section], ...]
    policies: Mapping[str, Contribution[Approval]] = MappingProxyType({})
    """Approval policies of plugins and scopes, by tool name."""
    counters: Mapping[str, TokenCounter] = MappingProxyType({})
    """Token counters, by provider id."""
    hidden_tools: tuple[Contribution[Tool | ServerTool], ...] = ()
    hidden_sections: tuple[Contribution[Section], ...] = ()

    def counter(self, provider: str) -> TokenCounter:
        """The token counter for a provider: a plugin's, or the default."""
        return self.counters.get(provider, estimate_tokens)


def _counted(entry: Contribution[TokenCounter], text: str) -> int:
    """What a plugin's counter says, blamed on it when that is no number of tokens."""
    try:
        count = entry.value(text)
    except Exception as exc:
        found = f"raised {type(exc).__name__}: {exc}"
        raise PluginFailed(
            f"the token counter of {entry.owner} {found}", plugin=entry.owner, hook="token counter"
        ) from exc
    if type(count) is not int or count < 0:
        found = f"returned {count!r:.80}; wanted a whole number"
        raise HookMisused(f"the token counter of {entry.owner} {found}", plugin=entry.owner, hook="token counter")
    return count


def snapshot(registries: Registries, scope: Scope, agent: Agent) -> Capabilities:
    """What `agent` may use in `scope` now. Raises `ToolUnknown` for a name the agent selects and nobody offers.

    Tools of the session's own scope and those that code added to a scope need no naming; what plugins offer is taken
    only when the agent names it.
    """
    resolved = registries.tools.resolve(scope)
    chosen: dict[str, Contribution[Tool | ServerTool]] = {}
    for name, entry in resolved.entries.items():
        is_given = entry.layer == scope.id or not is_plugin(entry.owner)
        if is_given or any(fnmatch.fnmatchcase(name, pattern) for pattern in agent.selected):
            chosen[name] = entry
    for pattern in agent.selected:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in resolved.entries):
            offered = ", ".join(resolved.entries) or "none"
            raise ToolUnknown(
                f'agent "{agent.name}" names the tool "{pattern}", which nobody offers; there are: {offered}'
            )
    sections, counters = registries.sections.resolve(scope), registries.counters.resolve(scope)
    ordered = sorted(sections.entries.values(), key=lambda entry: (entry.value.order, entry.name))
    return Capabilities(
        tools=MappingProxyType(chosen),
        definitions=tuple(_definition(chosen[name].value) for name in sorted(chosen)),
        sections=tuple(ordered),
        policies=registries.policies.resolve(scope).entries,
        counters=MappingProxyType({entry.name: partial(_counted, entry) for entry in counters}),
        hidden_tools=tuple(resolved.hidden),
        hidden_sections=tuple(sections.hidden),
    )


def is_plugin(owner: str) -> bool:
    """Whether an owner is a plugin, `name@version`, and not the application's own code."""
    return "@" in owner


def _definition(tool: Tool | ServerTool) -> ToolDefinition | ServerTool:
    return tool.definition if isinstance(tool, Tool) else tool


# ------------------------------------------------------------------------------------------------------ sections


class SectionRenderer:
    """Renders the sections of one session: static ones once per snapshot and route, dynamic ones each step."""

    def __init__(self, mask: Callable[[str], str] = str) -> None:
        """`mask` takes out of rendered texts what no model may see."""
        self._mask = mask
        self._count: TokenCounter = estimate_tokens
        self._of: tuple[Capabilities, Route] | None = None
        self._static: dict[str, SystemBlock] = {}
        self._has_dynamic = False
        self._last: tuple[SystemBlock, ...] = ()

    def render(
        self,
        capabilities: Capabilities,
        route: Route,
        static: Callable[[], StaticContext],
        dynamic: Callable[[], DynamicContext],
    ) -> tuple[SystemBlock, ...]:
        """The blocks in order; empty ones are left out. The same tuple is returned while nothing changed."""
        sections = capabilities.sections
        if self._of != (capabilities, route):
            self._count = capabilities.counter(route.provider)
            fixed = [entry for entry in sections if not entry.value.dynamic]
            context = static() if fixed else None
            self._static = {entry.name: self._block(entry, context) for entry in fixed}
            self._has_dynamic = len(fixed) < len(sections)
            self._of = (capabilities, route)
        elif not self._has_dynamic:
            return self._last
        moving = dynamic() if self._has_dynamic else None
        blocks = (self._block(e, moving) if e.value.dynamic else self._static[e.name] for e in sections)
        rendered = tuple(block for block in blocks if block.text)
        if rendered != self._last:
            self._last = rendered
        return self._last

    def _block(self, entry: Contribution[Section], context: SectionContext | None) -> SystemBlock:
        section = entry.value
        text = self._mask(section.render if isinstance(section.render, str) else _rendered(entry, context))
        return SystemBlock(
            name=section.name,
            source=section.source or entry.owner,
            text=clean_text(text),
            order=section.order,
            priority=section.priority,
            dynamic=section.dynamic,
            token_count=self._count(text),
            metadata=section.metadata,
        )


def _rendered(entry: Contribution[Section], context: SectionContext | None) -> str:
    render, owner = entry.value.render, entry.owner
    assert callable(render)
    try:
        text = render(context)
    except Exception as exc:
        cause = exc.message if isinstance(exc, SpineError) else f"{type(exc).__name__}: {exc}"
        raise PluginFailed(
            f'section "{entry.name}" of {owner} failed to render: {cause}', plugin=owner, hook="render"
        ) from exc
    if not isinstance(text, str):
        raise HookMisused(
            f'section "{entry.name}" of {owner} rendered {type(text).__name__}; wanted text',
            plugin=owner,
            hook="render",
        )
    return text


def trim(
    blocks: Sequence[SystemBlock], budget: int | None, used: int
) -> tuple[tuple[SystemBlock, ...], tuple[str, ...]]:
    """Leave dynamic sections out, lowest priority first, until `used` and the rest fit `budget` tokens.

    Static sections always stay. Returns the blocks kept and the names left out; with no budget nothing is weighed.
    """
    if budget is None:
        return tuple(blocks), ()
    total = used + sum(block.token_count or 0 for block in blocks)
    dropped: set[str] = set()
    for block in sorted((b for b in blocks if b.dynamic), key=lambda b: (b.priority, -b.order, b.name)):
        if total <= budget:
            break
        dropped.add(block.name)
        total -= block.token_count or 0
    kept = tuple(block for block in blocks if block.name not in dropped)
    return (tuple(blocks), ()) if not dropped else (kept, tuple(b.name for b in blocks if b.name in dropped))
