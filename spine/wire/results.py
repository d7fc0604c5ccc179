"""Tool results as wire bytes (side room `wire`): written once, for the id that their call has on the wire, and sent
directly after the message with their calls."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from spine.frozen import define
from spine.messages import Message
from spine.wire.bodies import to_json
from spine.wire.memory import MessageMemory
from spine.wire.names import wire_name

__all__ = ["WrittenMessage", "WrittenResult", "in_call_order", "join_messages"]


@define
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


class WrittenMessage(Protocol):
    """A message on the wire: its bytes with a comma before them (none if there is nothing to say), the results in it,
    and the wire ids of its calls."""

    data: bytes
    results: tuple[WrittenResult, ...]
    wire_ids: frozenset[str]
    losses: tuple[str, ...]


M = TypeVar("M", bound=WrittenMessage)


def join_messages(
    memory: MessageMemory[M],
    messages: Sequence[Message],
    losses: dict[str, None],
    answers: Callable[[Sequence[WrittenResult], M | None], list[bytes]],
) -> list[bytes]:
    """The bytes of `messages`, results before what follows them; what got lost is added to `losses`.

    `answers(results, asked)` gives the bytes of results that follow `asked`, the latest message with calls.
    """
    items: list[bytes] = []
    asked: M | None = None
    seen: set[str] = set()
    results: list[WrittenResult] = []
    for message in messages:
        written = memory.written(message, seen)
        if written.losses:
            losses.update(dict.fromkeys(written.losses))
        if written.results:
            results.extend(written.results)
        if not written.data:
            continue
        if results:
            items.extend(answers(results, asked))
            results = []
        if written.wire_ids:
            asked = written
        items.append(written.data)
    items.extend(answers(results, asked))
    return items


def in_call_order(results: Sequence[WrittenResult], ids: Mapping[str, str], pattern: str) -> list[bytes]:
    """The results of one assistant message in the order of its calls, whatever the order of completion.

    `ids` are the wire ids of its calls by ours, in that order; results of other calls keep their place after them.
    """
    if len(results) > 1:
        order = {call_id: place for place, call_id in enumerate(ids)}
        results = sorted(results, key=lambda result: order.get(result.call_id, len(order)))
    return [result.written(ids.get(result.call_id) or wire_name(result.call_id, pattern)) for result in results]
