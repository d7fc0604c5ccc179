"""A runtime whose three providers answer from a script, each in its own protocol, without a network."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import httpx
from made_answers import BODIES, PROTOCOLS, Part
from sdk_types import check_type
from wire_properties import check_body

import spine_anthropic
import spine_openai_chat
import spine_openai_responses
from spine import Runtime, Secret, tool
from spine.config import Settings
from spine.llm.protocols import Body
from spine.llm.providers import CATALOGUE
from spine.messages import ImageBlock, TextBlock
from spine.wire import wire_name

PLUGINS = (spine_anthropic, spine_openai_chat, spine_openai_responses)
CLAUDE, GPT, CHAT = "anthropic:claude-sonnet-4-5", "openai:gpt-5-mini", "openai_chat:gpt-4.1"
PICTURE = ImageBlock(data="iVBORw0KGgo=")


@tool(name="shop.look", effect="read_only")
def look(at: str) -> list[Any]:
    """Look at something."""
    return [TextBlock(text=f"This is {at}."), PICTURE]


class Providers:
    """Answers requests of all providers in the order of `script`; every request is checked before it is answered."""

    def __init__(self, *script: Sequence[Part]) -> None:
        self._script: Iterator[tuple[int, Sequence[Part]]] = iter(enumerate(script, 1))
        self.requests: list[tuple[str, dict[str, Any]]] = []
        """Provider and body of each request."""

    def client(self, provider: str) -> httpx.AsyncClient:
        """What the runtime talks to instead of the provider's server."""
        return httpx.AsyncClient(transport=httpx.MockTransport(lambda request: self._answer(provider, request)))

    def _answer(self, provider: str, request: httpx.Request) -> httpx.Response:
        traits = CATALOGUE.traits(provider, json.loads(request.content)["model"])
        data = check_body(Body(path=request.url.path, content=request.content), traits)
        check_type(data, traits)
        self.requests.append((provider, data))
        step, parts = next(self._script)
        named = [attrs.evolve(p, name=p.name and wire_name(p.name, traits.tool_name_pattern)) for p in parts]
        return httpx.Response(200, json=BODIES[traits.protocol](traits.model, str(step), named))

    def open(self, **options: Any) -> Runtime:
        """A runtime whose providers these are."""
        return Runtime.open(
            "memory:",
            plugins=PLUGINS,
            settings=Settings(installed_plugins=False),
            secrets={name: Secret("key-of-nobody") for name in ("anthropic", "openai", "openai_chat")},
            clients={name: self.client(name) for name in ("anthropic", "openai", "openai_chat")},
            **options,
        )


def protocol_of(route: str) -> str:
    """The protocol that a route's provider speaks."""
    found = CATALOGUE.providers[route.partition(":")[0]].protocol
    assert found in PROTOCOLS
    return found
