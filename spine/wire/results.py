"""Tool results as wire bytes (side room `wire`): written once, for the id that their call has on the wire."""

from collections.abc import Mapping, Sequence

import attrs

from spine.wire.bodies import to_json
from spine.wire.names import wire_name

__all__ = ["WrittenResult", "in_call_order"]


@attrs.define
class WrittenResult:
    """One result: the bytes `before` and `after` the id of its call. `call_id` is ours."""

    call_id: str
    before: bytes
    after: bytes
    _wire_id: str | None = None
    _data: bytes = b""

    def written(self, wire_id: str) -> bytes:
        """The bytes for `wire_id`, which hardly ever changes."""
        if wire_id != self._wire_id:
            self._wire_id = wire_id
            self._data = self.before + to_json(wire_id) + self.after
        return self._data


def in_call_order(results: Sequence[WrittenResult], ids: Mapping[str, str], pattern: str) -> list[bytes]:
    """The results of one assistant message in the order of its calls, whatever the order of completion.

    `ids` are the wire ids of its calls by ours, in that order; results of other calls keep their place after them.
    """
    if len(results) > 1:
        order = {call_id: place for place, call_id in enumerate(ids)}
        results = sorted(results, key=lambda result: order.get(result.call_id, len(order)))
    return [result.written(ids.get(result.call_id) or wire_name(result.call_id, pattern)) for result in results]
