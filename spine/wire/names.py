"""Names and ids that a target's grammar refuses (side room `wire`): deterministic, and back again.

A name that fits is sent as it is. Another is written with the refused characters replaced and a few digits of its
digest, so the wire name depends on the name alone: it is the same in every step, and for calls in old history.
"""

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping

import attrs

from spine.llm.catalogue import Traits
from spine.llm.chunks import Chunk, ToolCallStarted
from spine.llm.errors import provider_error
from spine.llm.request import ModelRequest
from spine.messages import Message, ToolCallBlock
from spine.tools import ToolDefinition

__all__ = ["call_ids", "rename_call", "rename_calls", "tool_names", "wire_name", "wire_names"]

_REFUSED = re.compile(r"[^A-Za-z0-9_-]")


@functools.lru_cache(maxsize=8192)
def wire_name(name: str, pattern: str) -> str:
    """`name` as it is written for a target whose names match `pattern` as a whole.

    Raises `invalid_request` for a pattern that none of our forms fits.
    """
    if re.fullmatch(pattern, name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    clean = _REFUSED.sub("_", name)
    forms = (f"{clean[:55]}_{digest[:8]}", f"n_{clean[:50]}_{digest[:8]}", f"n{digest[:31]}", digest[:16], digest[:9])
    for form in forms:
        if re.fullmatch(pattern, form):
            return form
    raise provider_error("invalid_request", f'no name of ours fits the pattern "{pattern}" of the target')


def wire_names(names: Iterable[str], pattern: str) -> dict[str, str]:
    """Wire name to name, for those that differ. Raises `invalid_request` when two of `names` would be written alike."""
    seen: dict[str, str] = {}
    for name in names:
        written = wire_name(name, pattern)
        if seen.setdefault(written, name) != name:
            raise provider_error(
                "invalid_request",
                f'tools "{seen[written]}" and "{name}" would both be called "{written}" on the wire; rename one',
            )
    return {written: name for written, name in seen.items() if written != name}


def tool_names(request: ModelRequest, traits: Traits) -> dict[str, str]:
    """`wire_names` of a request's own tools for its target."""
    return wire_names((tool.name for tool in request.tools if type(tool) is ToolDefinition), traits.tool_name_pattern)


def rename_call(chunk: Chunk, names: Mapping[str, str]) -> Chunk:
    """`chunk` with a call's wire name replaced by the registered one."""
    if type(chunk) is ToolCallStarted and chunk.name in names:
        return attrs.evolve(chunk, name=names[chunk.name])
    return chunk


def rename_calls(message: Message, names: Mapping[str, str]) -> Message:
    """`message` with the wire names of its calls replaced by the registered ones."""
    content = tuple(
        attrs.evolve(block, name=names[block.name]) if type(block) is ToolCallBlock and block.name in names else block
        for block in message.content
    )
    return message.evolve(content=content)


def call_ids(message: Message, traits: Traits, protocol: str, *, use_vendor_ids: bool) -> dict[str, str]:
    """The wire ids of a message's calls by our ids, in the order of the calls.

    A vendor's own ids go back to the provider that gave them, if all of them fit its grammar and differ; else ours are
    written, in the target's grammar.
    """
    calls = message.tool_calls
    pattern = traits.call_id_pattern
    ours: dict[str, str] = {block.id: wire_name(block.id, pattern) for block in calls}
    origin = message.origin
    if not use_vendor_ids or origin is None or (origin.protocol, origin.provider) != (protocol, traits.provider):
        return ours
    theirs: dict[str, str] = {
        block.id: block.vendor_id
        for block in calls
        if block.vendor_id and wire_name(block.vendor_id, pattern) == block.vendor_id
    }
    is_unique = len({*theirs.values()}) == len(theirs) == len(calls)
    return theirs if is_unique else ours
