"""Everything a plugin can bring, by hooks alone: a tool, a prompt section, a model, an event, a change of requests."""

from pathlib import Path
from typing import Any

from spine.events import EventType
from spine.hooks import hookimpl
from spine_acme.model import EchoModel
from spine_acme.parts import GREETING, Answered, shout

__all__: list[str] = []


@hookimpl
def spine_register_tools(registrar: Any) -> None:
    """Agents name it `acme.shout`, or `acme.*`."""
    registrar.add(shout)


@hookimpl
def spine_register_prompts(registrar: Any) -> None:
    """How the model should speak."""
    registrar.add(GREETING)


@hookimpl
def spine_register_adapters(registrar: Any) -> None:
    """The provider `acme`."""
    registrar.add(EchoModel, provider="acme")


@hookimpl
def spine_register_events(registrar: Any) -> None:
    """What the plugin has to say about an answer."""
    registrar.add(EventType(name="acme.answered", data=Answered))


@hookimpl
async def spine_pre_step(request: Any, call_next: Any) -> Any:
    """Short answers only; the log shows it as a patch."""
    return await call_next(request.evolve(max_output_tokens=64))


@hookimpl
async def spine_post_step(response: Any) -> list[Answered]:
    """Record how long the answer is."""
    return [Answered(letters=len(response.message.text))]


@hookimpl
def spine_close() -> None:
    """Leave a trace, so that somebody can see that it was called."""
    Path("acme-closed").touch()
