"""Large text of an event, which lies beside the log by its digest (floor 2).

The data then begins with the key `$contents`, which maps the JSON pointer of each such text to the digest.
"""

from collections.abc import Callable
from typing import Any, Final

from spine.errors import ValueTooLarge
from spine.store import INLINE_CONTENT_BYTES, MAX_CONTENT_BYTES, Content
from spine.values import Digest, decode, digest, encode

__all__ = ["MARK", "bring_in", "move_beside"]

MARK: Final = "$contents"


def move_beside(data: bytes) -> tuple[bytes, tuple[Content, ...]]:
    """An event's data without its large texts, and these as contents; raises `ValueTooLarge` for one over the limit."""
    contents: list[Content] = []
    pointers: dict[str, Digest] = {}

    def walk(value: Any, pointer: str) -> Any:
        if isinstance(value, str) and len(value) > INLINE_CONTENT_BYTES // 4:
            raw = value.encode()
            if len(raw) > MAX_CONTENT_BYTES:
                raise ValueTooLarge(f"a text of {len(raw):,} bytes is over the limit of {MAX_CONTENT_BYTES:,}")
            if len(raw) > INLINE_CONTENT_BYTES:
                content = Content(digest(raw), "text/plain", raw)
                contents.append(content)
                pointers[pointer] = content.digest
                return ""
        elif isinstance(value, dict):
            return {k: walk(v, f"{pointer}/{k.replace('~', '~0').replace('/', '~1')}") for k, v in value.items()}
        elif isinstance(value, list):
            return [walk(v, f"{pointer}/{i}") for i, v in enumerate(value)]
        return value

    moved = walk(decode(data), "")
    if pointers:
        moved[MARK] = pointers
    return encode(moved), tuple(contents)


def bring_in(data: dict[str, Any], contents: Callable[[Digest], bytes]) -> dict[str, Any]:
    """The decoded data with the large texts back in their places; it is changed."""
    for pointer, wanted in data.pop(MARK).items():
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
        holder: Any = data
        for part in parents:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        holder[int(last) if isinstance(holder, list) else last] = contents(wanted).decode()
    return data
