"""What a provider answered instead of an answer (floor 3).

`Failure` is the fact, as events hold it; `ProviderError` is the exception that carries it. Neither ever quotes a
prompt, a header or an endpoint; `raw` is bounded and scrubbed.
"""

from types import NoneType
from typing import Any, Literal

import attrs

from spine.errors import SpineError
from spine.frozen import frozen
from spine.values import EMPTY_OBJECT, JsonObject, as_optional_text, as_text, freeze_object

__all__ = ["CATEGORIES", "RETRYABLE", "Category", "Failure", "ProviderError", "lossy", "provider_error", "unsupported"]

Category = Literal[
    "auth",
    "permission",
    "not_found",
    "invalid_request",
    "request_too_large",
    "context_overflow",
    "content_filter",
    "unsupported_capability",
    "billing",
    "rate_limit",
    "overloaded",
    "server_error",
    "timeout",
    "connection",
    "conflict",
    "stream_truncated",
    "protocol_error",
    "hook_failed",
    "limit",
    "internal",
]
"""The last three are ours: a plugin's hook, a limit of the turn, a bug; no provider gives them."""
CATEGORIES: tuple[str, ...] = Category.__args__  # type: ignore[attr-defined]
"""Every `Category`."""
RETRYABLE = frozenset(
    ("rate_limit", "overloaded", "server_error", "timeout", "connection", "conflict", "stream_truncated")
)
"""Categories in which the same request may succeed a little later."""


@frozen(kw_only=True)
class Failure:
    """Why a request, a step or a turn failed. `retry_after_s` is what the server asked for, before any cap."""

    category: Category = attrs.field()
    message: str = attrs.field(converter=as_text)
    code: str | None = attrs.field(default=None, converter=as_optional_text)
    """The vendor's own code or type."""
    retryable: bool = attrs.field(default=False, converter=bool)
    retry_after_s: float | None = attrs.field(default=None)
    status: int | None = attrs.field(default=None)
    """HTTP status; None when there was none or it was 200."""
    request_id: str | None = attrs.field(default=None, converter=as_optional_text)
    details: JsonObject = attrs.field(default=EMPTY_OBJECT, converter=freeze_object)
    """For `unsupported_capability`: provider, model, capability, request_feature. For limits: `limit`,
    `allowed`, `used`; cost in millionths of `currency`."""
    raw: str | None = attrs.field(default=None, converter=as_optional_text)
    """The body, bounded and scrubbed."""

    @category.validator
    def _check_category(self, field: object, value: object) -> None:
        if value not in CATEGORIES:
            raise TypeError(f"category {value!r:.80} is none of {', '.join(CATEGORIES)}")

    @status.validator
    @retry_after_s.validator
    def _check_number(self, field: "attrs.Attribute[object]", value: object) -> None:
        allowed = (int, NoneType) if field.name == "status" else (int, float, NoneType)
        if type(value) not in allowed:
            raise TypeError(f"{field.name} is {value!r:.80}; wanted a number or None")


class ProviderError(SpineError):
    """A failed model request; `failure` is the fact, its fields are readable here too."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure

    @property
    def code(self) -> str:  # type: ignore[override]
        """The category: the heading under which the error is documented."""
        return self.failure.category

    @property
    def category(self) -> Category:
        """Which of `CATEGORIES` it is."""
        return self.failure.category

    @property
    def retryable(self) -> bool:
        """Whether an identical new request may succeed."""
        return self.failure.retryable

    @property
    def retry_after_s(self) -> float | None:
        """The delay the server asked for, in seconds; None when it named none."""
        return self.failure.retry_after_s

    @property
    def status(self) -> int | None:
        """The HTTP status, if that was the failure."""
        return self.failure.status


def provider_error(category: Category, message: str, **fields: Any) -> ProviderError:
    """A `ProviderError`; `retryable` follows from the category unless given."""
    fields.setdefault("retryable", category in RETRYABLE)
    return ProviderError(Failure(category=category, message=message, **fields))


def unsupported(request_feature: str, *, provider: str, model: str, capability: str | None = None) -> ProviderError:
    """The error of a request that asks what its target cannot do; raised by `check`, before anything is sent."""
    return provider_error(
        "unsupported_capability",
        f'model "{provider}:{model}" does not support {request_feature}',
        details={
            "provider": provider,
            "model": model,
            "capability": capability or request_feature,
            "request_feature": request_feature,
        },
    )


def lossy(losses: tuple[str, ...], *, provider: str, model: str) -> ProviderError:
    """The error, in strict mode, of a request whose target could not be told everything; `losses` has all of it."""
    return provider_error(
        "unsupported_capability",
        f'model "{provider}:{model}" cannot be told everything (strict mode): {"; ".join(losses)}',
        details={
            "provider": provider,
            "model": model,
            "capability": "everything",
            "request_feature": losses[0],
            "losses": losses,
        },
    )
