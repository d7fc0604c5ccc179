"""What a request may ask of a target (side room `wire`): the caller's own fields, and what `check` refuses.

Nothing is dropped here in silence: an option that does not exist, an `extra_body` that would hide what the log says was
asked, a server tool of another protocol are errors before anything is sent.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError, provider_error, unsupported
from spine.llm.request import ModelRequest
from spine.tools import ServerTool
from spine.wire.bodies import clean_text

__all__ = [
    "is_unknown_effort",
    "lose_tool_choice",
    "read_options",
    "refuse_features",
    "refuse_foreign_tools",
    "refuse_unsupported",
    "sampling",
    "stop_words",
]


FORCED = frozenset(("required", "tool"))
"""The modes of a tool choice that leave the model no other."""


def read_options(
    request: ModelRequest, namespace: str, known: frozenset[str], ours: frozenset[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`provider_options[namespace]` as its `known` fields and its `extra_body`.

    Raises `invalid_request` for unknown fields and for an `extra_body` that sets one of `ours`.
    """
    given = request.provider_options.get(namespace)
    if given is None:
        return {}, {}
    if not isinstance(given, Mapping):
        raise provider_error("invalid_request", f'provider_options["{namespace}"] must be an object')
    fields = {key: value for key, value in given.items() if key != "extra_body"}
    unknown = next((key for key in fields if key not in known), None)
    if unknown is not None:
        raise _unknown_option(unknown, namespace, known)
    extra = given.get("extra_body", {})
    if not isinstance(extra, Mapping):
        raise provider_error("invalid_request", f'provider_options["{namespace}"]["extra_body"] must be an object')
    hidden = sorted(ours & extra.keys())
    if hidden:
        raise provider_error("invalid_request", f"extra_body may not set {', '.join(hidden)}; the request itself does")
    return fields, dict(extra)


def _unknown_option(key: str, namespace: str, known: frozenset[str]) -> ProviderError:
    nearest = difflib.get_close_matches(key, known, 1)
    near = f'; nearest is "{nearest[0]}"' if nearest else ""
    return provider_error(
        "invalid_request",
        f'unknown option "{key}" in provider_options["{namespace}"]{near}; other fields go into its "extra_body"',
    )


def refuse_features(request: ModelRequest, traits: Traits, rows: Iterable[tuple[str, str, object]]) -> None:
    """Raise `unsupported_capability` for the first of `rows` (feature, capability, whether it is asked) that is asked
    for: the target cannot do any of them."""
    for feature, capability, is_asked in rows:
        if is_asked:
            raise unsupported(feature, provider=traits.provider, model=request.route.model, capability=capability)


def sampling(request: ModelRequest, traits: Traits, losses: dict[str, None]) -> dict[str, float]:
    """`temperature` and `top_p`, those that are asked for and that the target takes."""
    given = {"temperature": request.temperature, "top_p": request.top_p}
    asked = {key: value for key, value in given.items() if value is not None}
    if traits.sampling:
        return asked
    losses.update(dict.fromkeys(f"{key} was left out: the model takes none" for key in asked))
    return {}


def stop_words(request: ModelRequest, losses: dict[str, None], *, takes_blanks: bool = True) -> list[str] | None:
    """The stop sequences but for an empty one, which servers refuse; some refuse line ends and spaces alone as well."""
    asked = [clean_text(text) for text in request.stop_sequences]
    words = [word for word in asked if (word if takes_blanks else word.strip())]
    if len(words) < len(asked):
        losses["a blank stop sequence was left out"] = None
    return words or None


def lose_tool_choice(request: ModelRequest, losses: dict[str, None]) -> None:
    """List what is asked about calls of tools when the request has none: servers refuse to be told."""
    if not request.tools and (request.tool_choice is not None or request.parallel_tool_calls is not None):
        losses["tool_choice and parallel_tool_calls were left out: the request has no tools"] = None


def refuse_unsupported(request: ModelRequest, traits: Traits, protocol: str) -> None:
    """Raise `unsupported_capability` for tools, response formats, efforts and forced calls that the target is known not
    to have, and for server tools of another protocol; `invalid_request` for the choice of a tool that is not there."""
    rows = (
        ("tools", "tools", request.tools and not traits.tools),
        ("response_format", "structured_output", request.response_format and not traits.structured_output),
        (f"thinking {request.thinking}", "thinking", is_unknown_effort(request, traits)),
    )
    refuse_features(request, traits, rows)
    refuse_foreign_tools(request, traits, protocol)
    _refuse_forced_call(request, traits)


def _refuse_forced_call(request: ModelRequest, traits: Traits) -> None:
    """Without tools the choice is left out, as a loss."""
    choice = request.tool_choice
    if choice is None or choice.mode not in FORCED or not request.tools:
        return
    refuse_features(request, traits, [(f"tool_choice {choice.mode}", "forced_calls", not traits.forced_calls)])
    if choice.mode == "tool" and all(tool.name != choice.name for tool in request.tools):
        raise provider_error("invalid_request", f'tool_choice names "{choice.name}", which is no tool of the request')


def refuse_foreign_tools(request: ModelRequest, traits: Traits, protocol: str) -> None:
    """Raise `unsupported_capability` for a server tool of another protocol."""
    refuse_features(
        request,
        traits,
        (
            (f'the server tool "{tool.name}" of {tool.protocol}', "server_tools", tool.protocol != protocol)
            for tool in request.tools
            if type(tool) is ServerTool
        ),
    )


def is_unknown_effort(request: ModelRequest, traits: Traits) -> bool:
    """Whether an effort is asked for that the model is known not to have; `off` is always possible without any."""
    effort, known = request.thinking, traits.thinking
    return isinstance(effort, str) and known is not None and effort not in known and not (effort == "off" and not known)
