"""The adapter contract finds what it is there to find."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from spine.llm.chunks import TextDelta
from spine.llm.protocols import Adapter
from spine.llm.request import ModelRequest
from spine.llm.response import ModelResponse
from spine.llm.usage import Usage
from spine.messages import Message, TextBlock
from spine.testing.adapters.contract import AdapterContract
from spine.testing.script import say
from spine.testing.scripted import ScriptedAdapter


def response(text: str = "hi", **fields: Any) -> ModelResponse:
    message = Message(role="assistant", content=(TextBlock(text=text),))
    return ModelResponse(message=message, **{"stop_reason": "end_turn", **fields})


class Wrong(ScriptedAdapter):
    """Gives these items at every attempt, whatever they are."""

    def __init__(self, *items: Any) -> None:
        super().__init__()
        self._given = items

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        for item in self._given:
            yield item


class Fussy(ScriptedAdapter):
    """Closes once."""

    async def aclose(self) -> None:
        assert not self.is_closed
        await super().aclose()


class Chatty(ScriptedAdapter):
    """Says something in `check`."""

    def check(self, request: ModelRequest) -> None:
        return "fine"  # type: ignore[return-value]


HI = TextDelta(0, "hi")
CASES: dict[str, tuple[Callable[[], Adapter], str]] = {
    "nothing": (lambda: Wrong(), "test_an_answer_ends_with_its_one_response"),
    "no response": (lambda: Wrong(HI), "test_an_answer_ends_with_its_one_response"),
    "two responses": (lambda: Wrong(HI, response(), response()), "test_an_answer_ends_with_its_one_response"),
    "chunk after the response": (lambda: Wrong(response(""), HI), "test_an_answer_ends_with_its_one_response"),
    "another message": (lambda: Wrong(HI, response("ho")), "test_the_message_is_the_fold_of_its_chunks"),
    "negative usage": (
        lambda: Wrong(HI, response(usage=Usage(input_tokens=-1))),
        "test_a_response_says_how_it_ended",
    ),
    "mixed": (lambda: Wrong(HI, response("hihi")), "test_attempts_do_not_mix"),
    "no session": (lambda: Wrong(HI), "test_a_session_runs_on_it"),
    "closes once": (lambda: Fussy(say("hi")), "test_closing_again_does_nothing"),
    "check answers": (lambda: Chatty(say("hi")), "test_check_lets_a_plain_request_pass"),
}


@pytest.mark.parametrize(("make", "test"), CASES.values(), ids=CASES.keys())
def test_a_broken_adapter_is_found(make: Callable[[], Adapter], test: str) -> None:
    contract = AdapterContract()
    contract.answering = make  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        getattr(contract, test)()


def test_a_failure_that_does_not_fail_is_found() -> None:
    contract = AdapterContract()
    contract.failing = lambda: ScriptedAdapter(say("fine"))  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="nothing was raised"):
        contract.test_a_failure_is_a_provider_error()


def test_a_silence_that_ends_is_found() -> None:
    contract = AdapterContract()
    contract.hanging = lambda: ScriptedAdapter(say("fine"))  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="ended by itself"):
        contract.test_a_cancelled_attempt_ends_at_once()


def test_what_an_adapter_cannot_do_is_not_tried() -> None:
    """Neither a failure nor a silence was given, so nothing is asked of the adapter."""
    AdapterContract().test_a_failure_is_a_provider_error()
    AdapterContract().test_a_cancelled_attempt_ends_at_once()
