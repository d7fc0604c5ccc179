"""Opaque state and messages go back to the model that they came from, over the protocol that they came over."""

import pytest

from spine.messages import Origin, ProviderState
from spine.wire import is_by, own_state

GIVEN = {"protocol": "chat", "provider": "lab", "model": "one"}


def test_state_goes_back_to_its_own_model() -> None:
    assert own_state(ProviderState(**GIVEN, data={"a": 1}), "chat", "lab:one") == {"a": 1}


@pytest.mark.parametrize("other", [{"protocol": "messages"}, {"provider": "mill"}, {"model": "two"}])
def test_state_goes_to_no_other_model(other: dict[str, str]) -> None:
    assert own_state(ProviderState(**{**GIVEN, **other}, data={"a": 1}), "chat", "lab:one") is None


def test_state_that_is_not_there_or_no_object_is_none() -> None:
    assert own_state(None, "chat", "lab:one") is None
    assert own_state(ProviderState(**GIVEN, data=["a"]), "chat", "lab:one") is None


@pytest.mark.parametrize(
    ("origin", "is_own"),
    [
        (Origin(protocol="chat", route="lab:one"), True),
        (Origin(protocol="messages", route="lab:one"), False),
        (Origin(protocol="chat", route="lab:two"), False),
        (None, False),
    ],
)
def test_a_message_is_by_the_model_of_its_route(origin: Origin | None, is_own: bool) -> None:
    assert is_by(origin, "chat", "lab:one") is is_own
