"""What is asked of a target that does not take it: left out and listed, by every protocol."""

import json

import pytest

from spine.llm.catalogue import Traits
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
