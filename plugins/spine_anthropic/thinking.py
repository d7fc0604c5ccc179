"""How much a model may think and say: efforts as budgets of tokens, and the output limit that the API demands.

Sources: Anthropic's pages on extended and adaptive thinking, read 2026-11-30. A budget is at least 1,024 tokens, is
part of `max_tokens`, and leaves room for the answer. `max_tokens` is always sent: the request's own limit, else the
model's from the catalogue, else the budget and 8,192 tokens for the answer.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from spine.llm.catalogue import Traits
from spine.llm.errors import provider_error, unsupported
from spine.llm.request import ModelRequest

LEAST_THINKING = frozenset(("disabled", "between_tools"))
"""The kinds of thinking that stand for none."""
ANSWER_TOKENS = 8192
"""Room for the answer where nobody knows a limit."""
LEAST_BUDGET = 1024
LEAST_ANSWER = 1024
"""What an effort's budget leaves of a tight output limit."""
BUDGETS: Mapping[str, int] = {"minimal": LEAST_BUDGET, "low": 4096, "medium": 10_240, "high": 24_576}
"""Tokens of each effort."""
EFFORTS: Mapping[str, str] = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}
"""Adaptive thinking knows no smaller effort than low."""


@attrs.frozen(kw_only=True)
class Plan:
    """What is sent: `thinking` and `effort` None say nothing of it, `max_tokens` always counts."""

    max_tokens: int
    thinking: Mapping[str, Any] | None = None
    effort: str | None = None

    @property
    def thinks(self) -> bool:
        """Whether the model is asked to think."""
        return self.thinking is not None and self.thinking["type"] not in LEAST_THINKING

    @property
    def has_budget(self) -> bool:
        """Whether it thinks on a budget, for which the API has stricter rules."""
        return self.thinking is not None and self.thinking["type"] == "enabled"


def check_thinking(request: ModelRequest, traits: Traits) -> None:
    """Raise for a wish that cannot be met: an unknown way, a budget out of bounds, a forced call while thinking."""
    wish = request.thinking
    if wish is None or wish == "off":
        return
    choice = request.tool_choice
    if choice is not None and choice.mode in ("required", "tool"):
        raise unsupported(
            f"tool_choice {choice.mode} while it thinks", provider=traits.provider, model=request.route.model
        )
    if type(wish) is int and (traits.thinking == () or not traits.thinking_budgets):
        raise unsupported(
            "a thinking budget in tokens", provider=traits.provider, model=request.route.model, capability="thinking"
        )
    if not traits.thinking_budgets:
        return
    limit = request.max_output_tokens or traits.max_output
    if type(wish) is int and (wish < LEAST_BUDGET or (limit is not None and wish >= limit)):
        most = "" if limit is None else f" and less than the output limit of {limit}"
        raise provider_error(
            "invalid_request", f"a thinking budget of {wish} tokens; it must be at least {LEAST_BUDGET}{most}"
        )
    if limit is not None and limit < LEAST_BUDGET + LEAST_ANSWER and type(wish) is str:
        raise provider_error(
            "invalid_request",
            f"thinking {wish} with an output limit of {limit} tokens; "
            f"thinking counts as output and needs at least {LEAST_BUDGET + LEAST_ANSWER}",
        )


def plan(request: ModelRequest, traits: Traits, losses: dict[str, None]) -> Plan:
    """Thinking and output limit of a request that passed `check_thinking`."""
    wish = request.thinking
    limit = request.max_output_tokens or traits.max_output
    if wish is None or (wish == "off" and traits.thinking == ()):
        return Plan(max_tokens=limit or ANSWER_TOKENS)
    if wish == "off":
        return Plan(max_tokens=limit or ANSWER_TOKENS, thinking={"type": traits.thinking_off})
    if type(wish) is str and not traits.thinking_budgets:
        if EFFORTS[wish] != wish:
            losses[f"thinking {wish} was sent as {EFFORTS[wish]}"] = None
        return Plan(max_tokens=limit or ANSWER_TOKENS, thinking={"type": "adaptive"}, effort=EFFORTS[wish])
    budget = wish if type(wish) is int else BUDGETS[str(wish)]
    if type(wish) is str and limit is not None and budget > limit - LEAST_ANSWER:
        budget = limit - LEAST_ANSWER
        losses[f"thinking {wish} got {budget} tokens, to leave room in the output limit of {limit}"] = None
    return Plan(max_tokens=limit or budget + ANSWER_TOKENS, thinking={"type": "enabled", "budget_tokens": budget})
