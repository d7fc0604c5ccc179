"""The JSON body of a recorded request as a protocol writes it (floor 15): nothing is sent, no key is looked for."""

import json

from spine.cli.protocols import wire_protocol
from spine.cli.reading import load_plugins
from spine.cli.screen import note, out_document
from spine.codec import Codec
from spine.config import Settings
from spine.llm.catalogue import Traits
from spine.proof.request_view import RequestView

__all__ = ["print_body"]


def print_body(settings: Settings, name: str, view: RequestView) -> None:
    """Print the body of `view` in protocol `name`; what the target could not be told goes to stderr."""
    plugins = load_plugins(settings, Codec())
    protocol = wire_protocol(plugins, name)
    route = view.request.route
    catalogue = settings.extend(plugins.catalogue)
    known = catalogue.providers.get(route.provider)
    fits = known is not None and known.protocol == name
    traits = catalogue.traits(route.provider, route.model) if fits else Traits(provider=route.provider, protocol=name)
    protocol.check(view.request, traits)
    body = protocol.encode(view.request, traits)
    out_document(json.dumps(json.loads(body.content), ensure_ascii=False, indent=2))
    for loss in body.losses:
        note(loss)
