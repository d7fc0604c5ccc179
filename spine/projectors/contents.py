"""What the log says a request was made of: route, sections, tools (floor 6).

Requests are stored by reference; this reads the frame and the patches of a `model.requested` just far enough for
views, without rebuilding the request. Contents that lie beside the log are not looked up: what depends on them is None
or empty.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import attrs

from spine.errors import ValueRefused
from spine.events import ContentAdded, FieldChange, ModelRequested
from spine.frozen import define
from spine.values import decode


@define
class Contents:
    """JSON contents seen so far, by the seq that added them and by digest; only ever grows."""

    by_seq: dict[int, ContentAdded] = attrs.Factory(dict)
    by_digest: dict[str, ContentAdded] = attrs.Factory(dict)
    _orders: dict[int, Mapping[str, tuple[str, ...]]] = attrs.Factory(dict)
    """What `parameter_order` said of frames that no plugin patched: most steps of a session share one."""

    def add(self, seq: int, content: ContentAdded) -> None:
        """Remember a content, if it is JSON."""
        if content.media_type.endswith("json"):
            self.by_seq[seq] = self.by_digest[content.digest] = content
            self._orders.clear()

    def fields(self, requested: ModelRequested) -> Mapping[str, Any]:
        """The fields of the effective request as JSON, patches applied; tools by digest or as they are.

        Empty when the frame lies beside the log.
        """
        frame = self._json(requested.frame)
        request = frame.get("request") if isinstance(frame, dict) else None
        if not isinstance(request, dict):
            return {}
        if not requested.patches:
            return request
        fields = dict(request)
        for patch in requested.patches:
            for change in patch.changes:
                if type(change) is FieldChange:
                    fields[change.field] = change.value if change.content is None else self._json(change.content)
        return fields

    def route(self, requested: ModelRequested) -> str | None:
        """`provider:model` the request went to; None when the frame lies beside the log."""
        route = self.fields(requested).get("route")
        return route if isinstance(route, str) else None

    def parameter_order(self, requested: ModelRequested) -> Mapping[str, tuple[str, ...]]:
        """For each tool of the request, its required parameters in the order of their declaration."""
        order = None if requested.patches else self._orders.get(requested.frame)
        if order is None:
            tools = self.fields(requested).get("tools") or ()
            order = dict(filter(None, map(self._tool_order, tools)))
            if not requested.patches:
                self._orders[requested.frame] = order
        return order

    def _tool_order(self, tool: Any) -> tuple[str, tuple[str, ...]] | None:
        if isinstance(tool, str):
            content = self.by_digest.get(tool)
            tool = None if content is None or content.text is None else _read(content.text)
        if not isinstance(tool, dict):
            return None
        parameters = tool.get("parameters")
        required = parameters.get("required") if isinstance(parameters, dict) else None
        return tool.get("name", ""), tuple(required) if isinstance(required, list | tuple) else ()

    def _json(self, seq: int) -> Any:
        content = self.by_seq.get(seq)
        return None if content is None or content.text is None else _read(content.text)


@lru_cache(maxsize=128)
def _read(text: str) -> Any:
    # Frames and tool definitions are shared by most steps of a session, so few texts are read more than once.
    try:
        return decode(text.encode())
    except ValueRefused:
        return None
