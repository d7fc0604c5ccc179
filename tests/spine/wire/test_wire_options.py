"""What is asked of a target that does not take it: left out and listed, by every protocol."""

import json

import attrs
import pytest

from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError
from spine.llm.request import ModelRequest, Route
from spine.messages import user_message
from spine_anthropic.protocol import AnthropicMessages
from spine_openai_chat.protocol import OpenAIChat
from spine_openai_responses.protocol import OpenAIResponses

REQUEST = ModelRequest(
    route=Route("lab", "m"),
    step="t1s1",  # type: ignore[arg-type]
    messages=(user_message("Hi"),),
    temperature=0.0,
    top_p=0.5,
)


@pytest.mark.parametrize("protocol", [AnthropicMessages(), OpenAIChat(), OpenAIResponses()], ids=lambda p: p.name)
@pytest.mark.parametrize("taken", [True, False])
def test_a_model_that_takes_no_temperature_gets_none_and_that_is_said(protocol, taken: bool) -> None:
    traits = Traits(provider="lab", protocol=protocol.name, model="m", sampling=taken)
    protocol.check(REQUEST, traits)
    body = protocol.encode(REQUEST, traits)
    sent = {key: value for key, value in json.loads(body.content).items() if key in ("temperature", "top_p")}
    assert sent == ({"temperature": 0.0, "top_p": 0.5} if taken else {})
    left_out = ("temperature was left out: the model takes none", "top_p was left out: the model takes none")
    assert body.losses == (() if taken else left_out)


@pytest.mark.parametrize("protocol", [AnthropicMessages(), OpenAIChat(), OpenAIResponses()], ids=lambda p: p.name)
def test_an_extra_body_says_nothing_that_the_request_says_otherwise(protocol) -> None:
    """What the log says was asked is what was asked; what the request leaves open is the caller's to say."""
    traits = Traits(provider="lab", protocol=protocol.name, model="m")
    for extra in ({"temperature": 2}, {"top_p": 1, "other": 1}):
        options = {protocol.name: {"extra_body": extra}}
        with pytest.raises(ProviderError, match=f"extra_body may not set {next(iter(extra))}"):
            protocol.check(attrs.evolve(REQUEST, provider_options=options), traits)
        open_request = attrs.evolve(REQUEST, provider_options=options, temperature=None, top_p=None)
        protocol.check(open_request, traits)
        assert extra.items() <= json.loads(protocol.encode(open_request, traits).content).items()
