"""The event-stream grammar on bytes, sans-IO (side room `wire`).

Follows the HTML standard, "Interpreting an event stream" (read 2026-11-30), with two differences that serve model
traffic: an event without its final blank line is handed out by `finish`, because recorded servers end that way, and
sizes are bounded. Lines are split on LF, CR and CRLF in bytes only: U+2028 and U+0085 may stand raw inside JSON.
Each byte is looked at a bounded number of times, however the stream is cut.
"""

from spine.llm.errors import ProviderError, provider_error
from spine.wire.limits import WireLimits

__all__ = ["EventStream", "ServerEvent"]

_BOM = b"\xef\xbb\xbf"


ServerEvent = tuple[str, bytes]
"""One dispatched event: its type (`message` when none was named) and its data lines, joined with LF."""


class EventStream:
    """Takes a body in pieces and gives its events; the same events for every way of cutting it.

    `last_id` and `retry_ms` are what the stream named last. `ignored` counts lines that are no field of the grammar:
    with no event at all, it tells a body that is no event stream.
    """

    def __init__(self, limits: WireLimits | None = None) -> None:
        limits = limits or WireLimits()
        self.last_id = ""
        self.retry_ms: int | None = None
        self.ignored = 0
        self._max_line = limits.line_bytes
        self._max_event = limits.event_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._after_cr = False
        self._at_start = True
        self._name = ""
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._most = min(self._max_line, self._max_event)

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Take the next piece. Raises `protocol_error` when a line or an event is over its limit."""
        if not data:
            return []
        if self._after_cr or b"\r" in data:
            data = self._unify(data)
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines and self._pending:
            self._pending.append(lines[0])
            lines[0] = b"".join(self._pending)
            self._pending.clear()
            self._pending_bytes = 0
        if rest:
            self._hold(rest)
        return self._lines(lines) if lines else []

    def finish(self) -> list[ServerEvent]:
        """The body ended: what an unfinished last line and event amount to, at most one event."""
        lines = [b"".join(self._pending)] if self._pending else []
        self._pending.clear()
        return self._lines([*lines, b""])

    def _unify(self, data: bytes) -> bytes:
        """Write each CR and CRLF as LF; an LF whose CR came in the piece before is dropped."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _hold(self, rest: bytes) -> None:
        self._pending.append(rest)
        self._pending_bytes += len(rest)
        if self._pending_bytes > self._max_line:
            raise _over("line", self._max_line)

    def _lines(self, lines: list[bytes]) -> list[ServerEvent]:
        if self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        events: list[ServerEvent] = []
        held, most = self._data, self._most
        for line in lines:
            if line.startswith(b"data: ") and len(line) <= most and not held:  # nearly every line of real traffic
                held.append(line[6:])
            elif line:
                self._field(line)
            elif held:
                events.append((self._name or "message", held[0] if len(held) == 1 else b"\n".join(held)))
                held.clear()
                self._name = ""
            else:
                self._name = ""
        return events

    def _add_data(self, value: bytes) -> None:
        held = self._data
        if len(held) < 2:  # lines that stand alone, nearly all, are not counted
            self._data_bytes = sum(map(len, held))
        held.append(value)
        self._data_bytes += len(value) + 1
        if self._data_bytes > self._max_event:
            raise _over("event", self._max_event)

    def _field(self, line: bytes) -> None:
        if len(line) > self._max_line:
            raise _over("line", self._max_line)
        name, colon, value = line.partition(b":")
        if colon and not name:
            return  # a comment
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add_data(value)
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" not in value:
                self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry":
            if value.isdigit() and len(value) < 16:
                self.retry_ms = int(value)
        else:
            self.ignored += 1


def _over(what: str, limit: int) -> ProviderError:
    return provider_error("protocol_error", f"a {what} of the event stream is longer than {limit} bytes")
