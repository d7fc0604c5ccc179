"""How commands that talk open a session (floor 15): configuration, agent, model."""

from spine.cli.agents import ChosenAgent, choose_agent, recorded_agent
from spine.cli.reading import is_there
from spine.config import Settings, load_settings, make_store_folder
from spine.errors import UsageError
from spine.runtime import Runtime
from spine.session import Session

__all__ = ["open_session", "override_of", "prepare_store", "settings_of", "utf8"]


def settings_of(store: str | None, model: str | None, agent: str | None) -> Settings:
    """The configuration with a command's options."""
    return load_settings(arguments={"store": store, "model": model, "agent": agent})


async def prepare_store(settings: Settings) -> None:
    """Make the store's folder. Where there is no store yet, what a first run would be refused for is raised before:
    nobody's agent, an unknown model, a missing key. Then nothing is written.
    """
    if not is_there(settings.store or ""):
        chosen = _chosen(settings, None)
        async with Runtime.open("memory:", settings=settings) as trial:
            model = settings.model if _is_explicit(settings) and settings.model else chosen.agent.model
            trial.routes.resolve(trial.resolve_model(model), None)
    make_store_folder(settings.store or "")


async def open_session(runtime: Runtime, name: str) -> Session:
    """Open or begin a session with the agent that is meant. Raises `UsageError` when nobody names one."""
    reader = runtime.reader(name)
    recorded = recorded_agent(reader)
    chosen: ChosenAgent | None = choose_agent(runtime.settings, recorded, reader)
    if chosen is None and recorded is not None:
        raise UsageError(
            f'session "{name}" was recorded with agent "{recorded.agent.name}", which no module is known for',
            hint="--agent module:attribute",
        )
    chosen = _chosen(runtime.settings, chosen)
    scope = None if recorded is None else recorded.scope
    return await runtime.session(name, chosen.agent, reference=chosen.reference, scope=scope)


def _chosen(settings: Settings, chosen: ChosenAgent | None) -> ChosenAgent:
    chosen = chosen or choose_agent(settings, None)
    if chosen is None:
        raise UsageError("no agent and no model is configured", hint='-m provider:name, or model = "…" in spine.toml')
    return chosen


def utf8(given: bytes) -> str:
    """Input that is text. Raises `UsageError` naming the first byte that is none; nothing is guessed or replaced."""
    try:
        return given.decode()
    except UnicodeDecodeError as exc:
        raise UsageError(
            f"the input is no UTF-8: byte {exc.start + 1:,} is 0x{given[exc.start]:02x}", hint="iconv -t utf-8"
        ) from None


def override_of(settings: Settings, session: Session) -> str | None:
    """The model for one turn, when the command line or the environment names another than the agent's."""
    return settings.model if _is_explicit(settings) and settings.model != session.agent.model else None


def _is_explicit(settings: Settings) -> bool:
    return settings.origins.get("model", "").startswith(("--", "SPINE_"))
