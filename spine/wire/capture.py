"""What went over the wire in one attempt (side room `wire`): both sides, bounded, without the key; for people only.

An adapter that was asked to capture hands it on as a `ProviderEvent` of kind `WIRE`, the last thing before it ends.
Nothing is ever rebuilt from it.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final

from spine.llm.chunks import WIRE, ProviderEvent
from spine.llm.protocols import Body
from spine.masking import masked
from spine.values import Secret

__all__ = ["MAX_CAPTURED_BYTES", "Capture", "response_record"]

MAX_CAPTURED_BYTES: Final = 4 * 1024 * 1024
"""Of each body, as much as this is kept."""
_MARGIN: Final = 1024
_DROPPED: Final = frozenset(("set-cookie", "cookie", "authorization", "proxy-authorization"))


class Capture:
    """Collects one attempt; `secret` is replaced wherever it stands."""

    def __init__(
        self, protocol: str, vendor: str, headers: Mapping[str, str], body: Body, secret: Secret | None
    ) -> None:
        self._secrets = () if secret is None else (secret,)
        self._spoken = {"protocol": protocol, "vendor": vendor}
        self._request: dict[str, Any] = {**self._spoken, "path": body.path, "headers": self._headers(headers)}
        self._request |= self._body(body.content)
        self._status: int | None = None
        self._response_headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._left = MAX_CAPTURED_BYTES + _MARGIN

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The response began."""
        self._status, self._response_headers = status, self._headers(headers)

    def add(self, piece: bytes) -> None:
        """A piece of the response's body."""
        if self._left > 0:
            self._pieces.append(piece[: self._left])
            self._left -= len(piece)

    def event(self) -> ProviderEvent:
        """`{request: {path, headers, body}, response: {status, headers, body} | None}`, each with `protocol vendor`.

        A body that is no UTF-8 stands as `body_base64`; one that was cut has `truncated: true`.
        """
        response = None
        if self._status is not None:
            body = self._body(b"".join(self._pieces))
            response = {**self._spoken, "status": self._status, "headers": self._response_headers, **body}
        return ProviderEvent(WIRE, {"request": self._request, "response": response})

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        kept = {name.lower(): value for name, value in headers.items() if name.lower() not in _DROPPED}
        return {name: masked(value, self._secrets) for name, value in kept.items()}

    def _body(self, content: bytes) -> dict[str, Any]:
        kept: dict[str, Any] = {"truncated": True} if len(content) > MAX_CAPTURED_BYTES else {}
        content = content[: MAX_CAPTURED_BYTES + _MARGIN]  # so that a key across the end is masked before it is cut
        try:
            return {"body": masked(_whole(content).decode(), self._secrets)[:MAX_CAPTURED_BYTES], **kept}
        except UnicodeDecodeError:
            text = masked(content.decode("latin-1"), self._secrets)[:MAX_CAPTURED_BYTES]
            return {"body_base64": base64.b64encode(text.encode("latin-1")).decode(), **kept}


def _whole(content: bytes) -> bytes:
    """`content` without the beginning of a character that was cut at the margin."""
    return content if len(content) < MAX_CAPTURED_BYTES + _MARGIN else content.decode(errors="ignore").encode()


def response_record(response: Mapping[str, Any]) -> dict[str, Any]:
    """A captured response as `decode_captured` reads it, its body as text or bytes."""
    encoded = response.get("body_base64")
    body = response.get("body") if encoded is None else base64.b64decode(encoded)
    return {**response, "body": body}
