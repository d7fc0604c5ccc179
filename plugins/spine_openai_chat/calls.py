"""Tool calls put together from deltas that need not say much.

What real servers do: no index, no id, the id again or another one in later deltas, the name again in each delta, in
pieces, or after the first arguments; one index for all parallel calls; arguments null, empty, or an object. Rules, in
order: the index tells the call; the same index with another id and a name begins a new one; without index a known id
continues its call and a new id begins one; with neither, another name begins one and anything else continues the call
opened last. Without index, the same name again after whole arguments is a second call of the same tool.
"""

from typing import Any

import attrs

from spine.llm.assemble import parse_arguments
from spine.wire import to_json


@attrs.define
class Call:
    """One call under construction. `pieces` are its arguments as far as they came with anything unusual, of which
    `sent` have been passed on; `size` counts all of them, in characters."""

    index: int
    name: str = ""
    vendor_id: str | None = None
    started: bool = False
    pieces: list[str] = attrs.Factory(list)
    sent: int = 0
    size: int = 0
    extra: dict[str, Any] = attrs.Factory(dict)


class CallTable:
    """Finds the call a delta belongs to; `calls` holds them in order of appearance."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._by_index: dict[int, Call] = {}
        self._by_id: dict[str, Call] = {}

    def __bool__(self) -> bool:
        return bool(self.calls)

    def started(self, index: Any) -> Call | None:
        """The call at `index`, if it has been passed on already."""
        call = self._by_index.get(index) if type(index) is int else None
        return call if call is not None and call.started else None

    def find(self, item: dict[str, Any], name: str, vendor_id: str | None) -> Call | None:
        """The open call that `item` continues; None when it begins a new one."""
        index = item.get("index")
        if type(index) is int:
            call = self._by_index.get(index)
            is_other = call is not None and bool(name and vendor_id and call.vendor_id) and call.vendor_id != vendor_id
            return None if is_other else call
        call = self._by_id.get(vendor_id) if vendor_id else self.calls[-1] if self.calls else None
        is_other = (
            call is not None
            and bool(name and call.name)
            and (_is_whole(call) or (vendor_id is None and name != call.name))
        )
        return None if is_other else call

    def open(self, item: dict[str, Any], call: Call) -> None:
        """Add a new call."""
        index = item.get("index")
        if type(index) is int:
            self._by_index[index] = call
        self.calls.append(call)

    def named(self, call: Call, vendor_id: str) -> None:
        """`call` is known by `vendor_id` from now on; of two calls with one id, it means the later."""
        call.vendor_id = vendor_id
        self._by_id[vendor_id] = call


def _is_whole(call: Call) -> bool:
    text = "".join(call.pieces)
    return bool(text) and parse_arguments(text) is not None


def arguments_text(value: Any) -> str:
    """Arguments as text; some servers send the object itself."""
    if value is None:
        return ""
    return value if isinstance(value, str) else to_json(value).decode()
