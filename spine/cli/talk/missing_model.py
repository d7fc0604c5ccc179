"""What to say when a provider does not know a model (floor 15); loaded when that happens."""

from difflib import get_close_matches

from spine.config import load_settings
from spine.llm.errors import Failure
from spine.llm.providers import CATALOGUE
from spine.proof.request_view import find_request
from spine.stored import StoredLog

__all__ = ["not_found"]


def not_found(reader: StoredLog, failure: Failure) -> str:
    """What was asked for, the answer's request id, and the nearest model of the catalogue."""
    route = find_request(reader)[0].request.route
    asked = "" if failure.request_id is None else f" (request {failure.request_id})"
    known = load_settings().extend(CATALOGUE).providers.get(route.provider)
    near = get_close_matches(route.model, known.models if known else (), 1)
    rest = f'; nearest in the catalogue is "{near[0]}"' if near and near[0] != route.model else f": {failure.message}"
    return f'provider "{route.provider}" answered {failure.status} for model "{route.model}"{asked}{rest}'
