"""Requests in words (floor 13): one request whole, two compared, and what each plugin changed.

As in a transcript, prose stands further to the right than facts, so that nothing written by anybody passes for one.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from spine.llm.request import ModelRequest
from spine.messages import Message, SystemBlock, ToolCallBlock
from spine.projectors.json import plain
from spine.projectors.lines import Line, content_lines
from spine.projectors.phrases import call_text, counted, listed, name_text
from spine.projectors.text import text_lines
from spine.projectors.visible import one_line, visible
from spine.proof.differences import PARAMETERS, parameter_text, request_differences
from spine.proof.request_view import PatchView, RequestView, head_json, kept_messages
from spine.tools import ServerTool, ToolDefinition
from spine.values import short

__all__ = [
    "diff_json",
    "diff_text",
    "patch_phrases",
    "patches_json",
    "patches_text",
    "request_text",
    "required_parameters",
]

_PROSE = "      "


# ------------------------------------------------------------------------------------------------------ one request


def request_text(view: RequestView) -> str:
    """A request from its parameters to its last message, without a newline at the end."""
    request = view.request
    lines = [f"{view.step} · {one_line(str(request.route))} · {_proof(view)}"]
    lines.extend(f"  {name} {value}" for name, value in _parameters(request))
    if view.data.trimmed:
        lines.append(f"  left out to fit the window: {', '.join(map(one_line, view.data.trimmed))}")
    for block in request.system:
        lines.append(_section_heading(block))
        lines.extend(_prose(block.text))
    for tool in request.tools:
        lines.append(f"tool {_tool_heading(tool)}")
        lines.extend(_prose(tool.description) if isinstance(tool, ToolDefinition) and tool.description else ())
    order = _orders(request.tools)
    for message, seq in zip(request.messages, view.seqs, strict=True):
        lines.append(_message_heading(message, seq))
        lines.extend(_message_lines(message, order))
    return "\n".join(lines)


def _proof(view: RequestView) -> str:
    if view.is_equal:
        return f"rebuilt from the log, digest {short(view.digest)} equal to the one sent"
    if view.erased:
        lost = f"rests on erased data ({listed(view.erased)})"
        return f"{lost}, so it cannot be compared with the one sent ({short(view.recorded)})"
    return f"rebuilt from the log, digest {short(view.digest)} is NOT the one sent ({short(view.recorded)})"


def _parameters(request: ModelRequest) -> Iterator[tuple[str, str]]:
    for field in PARAMETERS:
        value = getattr(request, field.name)
        if value != field.default:
            yield field.name, parameter_text(value)


def _section_heading(block: SystemBlock) -> str:
    parts = [f"section {name_text(block.name)}", f"order {block.order}", one_line(block.source)]
    parts += ["dynamic"] if block.dynamic else []
    parts += [] if block.token_count is None else [f"about {counted(block.token_count, 'token')}"]
    return " · ".join(part for part in parts if part)


def _tool_heading(tool: ToolDefinition | ServerTool) -> str:
    if isinstance(tool, ServerTool):
        return f"{name_text(tool.name)} (run by the provider)"
    properties = tool.parameters.get("properties")
    required = required_parameters(tool)
    names = [*required, *sorted(set(properties or ()) - set(required))]
    return f"{name_text(tool.name)}({', '.join(n if n in required else f'{n}?' for n in map(name_text, names))})"


def required_parameters(tool: ToolDefinition | ServerTool) -> tuple[str, ...]:
    """A tool's required parameters, in the order of their declaration; none for a tool of the provider's."""
    if isinstance(tool, ServerTool):
        return ()
    required = tool.parameters.get("required")
    return tuple(map(str, required)) if isinstance(required, tuple | list) else ()


def _orders(tools: Iterable[ToolDefinition | ServerTool]) -> dict[str, tuple[str, ...]]:
    """For each tool, its required parameters in the order of their declaration."""
    return {tool.name: required_parameters(tool) for tool in tools}


def _message_heading(message: Message, seq: int | None) -> str:
    kind = "" if message.kind in (None, "user") else f", {one_line(message.kind or '')}"
    return f"{message.role} ({'written by a plugin' if seq is None else f'seq {seq}'}{kind})"


def _message_lines(message: Message, order: dict[str, tuple[str, ...]]) -> Iterator[str]:
    for line in _in_order(message, order):
        if line.mark or line.label:
            yield from text_lines(line)
        else:
            yield from _prose(line.text)


def _in_order(message: Message, order: dict[str, tuple[str, ...]]) -> Iterator[Line]:
    written: list[Any] = []
    for block in message.content:
        if isinstance(block, ToolCallBlock):
            yield from content_lines(written)
            written = []
            yield Line(">", call_text(block.name, block.arguments, block.arguments_text, order.get(block.name, ())))
        else:
            written.append(block)
    yield from content_lines(written)


def _prose(text: str) -> Iterator[str]:
    for row in visible(text).split("\n"):
        yield f"{_PROSE}{row}".rstrip()


# ----------------------------------------------------------------------------------------------------- two compared


def diff_text(view: RequestView, earlier: RequestView | None) -> str:
    """What is new in a request against the one before it; the whole of it when it is the first."""
    if earlier is None:
        return f"{request_text(view)}\n(the first request: there is none to compare it with)"
    changes = request_differences(earlier.request, view.request)
    table = [*_unchanged(earlier.request, view.request), *((change.what, change.text) for change in changes)]
    kept = kept_messages(earlier.request.messages, view.request.messages)
    table.append(("messages", _message_counts(len(earlier.request.messages), len(view.request.messages), kept)))
    width = max(len(name) for name, _ in table)
    lines = [f"{view.step} compared with {earlier.step} · {_proof(view)}"]
    lines.extend(f"  {name.ljust(width)}   {what}" for name, what in table)
    lines.extend(_section_changes(earlier.request.system, view.request.system))
    orders = (_orders(earlier.request.tools), _orders(view.request.tools))
    for mark, side, order in (("-", earlier, orders[0]), ("+", view, orders[1])):
        for message, seq in list(zip(side.request.messages, side.seqs, strict=True))[kept:]:
            lines.append(f"{mark} {_message_heading(message, seq)}")
            lines.extend(_message_lines(message, order))
    return "\n".join(lines)


def _unchanged(old: ModelRequest, new: ModelRequest) -> Iterator[tuple[str, str]]:
    same = []
    if old.route == new.route:
        same.append("route")
    if list(_parameters(old)) == list(_parameters(new)):
        same.append("parameters")
    if old.system == new.system:
        same.append(counted(len(new.system), "section"))
    if old.tools == new.tools:
        same.append(counted(len(new.tools), "tool"))
    if same:
        yield ", ".join(same), "unchanged"


def _section_changes(old: Sequence[SystemBlock], new: Sequence[SystemBlock]) -> Iterator[str]:
    before, after = ({block.name: visible(block.text).split("\n") for block in blocks} for blocks in (old, new))
    for name in dict.fromkeys([*before, *after]):
        rows = difflib.unified_diff(before.get(name, []), after.get(name, []), n=0, lineterm="")
        for row in list(rows)[2:]:
            if row[0] in "+-":
                yield f"{row[0]} section {name_text(name)}"
                yield f"{_PROSE}{row[1:]}"


def _message_counts(old: int, new: int, kept: int) -> str:
    parts = [f"{kept} kept"]
    parts += [f"{old - kept} gone"] if old > kept else []
    parts += [f"{new - kept} added"] if new > kept else []
    share = 100 * kept // old if old else 100
    return f"{', '.join(parts)} (prefix kept {share} %)"


# ---------------------------------------------------------------------------------------------------------- patches


def patches_text(view: RequestView, patches: Iterable[PatchView]) -> str:
    """What each plugin changed of a request, in the order in which they changed it."""
    lines = [f"{view.step} · {_proof(view)}"]
    for number, each in enumerate(patches, 1):
        lines.append(
            f"{number} {one_line(each.patch.plugin)}{' (on the way out)' if each.patch.phase == 'after' else ''}"
        )
        lines.extend(f"  {what}" for what in patch_phrases(each))
        lines.extend(_section_changes(each.before.system, each.after.system))
    if len(lines) == 1:
        lines.append("no plugin changed this request")
    return "\n".join(lines)


def patch_phrases(patch: PatchView) -> Iterator[str]:
    """`max_output_tokens 1024 → 512`, one phrase for each change."""
    for change in request_differences(patch.before, patch.after):
        yield f"{change.what} {change.text}"
    old, new = patch.before.messages, patch.after.messages
    kept = kept_messages(old, new)
    tail = kept_messages(old[kept:][::-1], new[kept:][::-1])
    gone, added = len(old) - kept - tail, len(new) - kept - tail
    if gone or added:
        at = f"message {kept + 1}" if gone <= 1 else f"messages {kept + 1}-{kept + gone}"
        yield f"{at}: {gone} gone, {added} added"


# ------------------------------------------------------------------------------------------------------ for programs


def diff_json(view: RequestView, earlier: RequestView | None) -> dict[str, Any]:
    """What `diff_text` tells; `compared_with` is None for the first request."""
    old = () if earlier is None else earlier.request.messages
    kept = kept_messages(old, view.request.messages)
    changes = () if earlier is None else request_differences(earlier.request, view.request)
    added = list(zip(view.request.messages, view.seqs, strict=True))[kept:]
    return {
        **head_json(view),
        "compared_with": None if earlier is None else earlier.step,
        "differences": [attrs.asdict(change) for change in changes],
        "messages": {
            "kept": kept,
            "gone": [plain(message) | {"role": message.role} for message in old[kept:]],
            "added": [plain(message) | {"role": message.role, "seq": seq} for message, seq in added],
        },
    }


def patches_json(view: RequestView, patches: Iterable[PatchView]) -> dict[str, Any]:
    """What `patches_text` tells."""
    found = [
        {
            "plugin": each.patch.plugin,
            "phase": each.patch.phase,
            "differences": [attrs.asdict(change) for change in request_differences(each.before, each.after)],
            "phrases": list(patch_phrases(each)),
        }
        for each in patches
    ]
    return {**head_json(view), "patches": found}
