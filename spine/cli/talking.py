"""How commands that talk open a session (floor 15): configuration, agent, model."""

from spine.cli.agents import ChosenAgent, choose_agent, recorded_agent
from spine.config import Settings, load_settings, make_store_folder
from spine.errors import UsageError
from spine.runtime import Runtime
from spine.session import Session

__all__ = ["open_session", "override_of", "settings_of", "utf8"]


def settings_of(store: str | None, model: str | None, agent: str | None) -> Settings:
    """The configuration with a command's options, the store's folder made."""
    settings = load_settings(arguments={"store": store, "model": model, "agent": agent})
    make_store_folder(settings.store or "")
    return settings


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
    if chosen is None:
        raise UsageError("no agent and no model is configured", hint='-m provider:name, or model = "…" in spine.toml')
    scope = None if recorded is None else recorded.scope
    return await runtime.session(name, chosen.agent, reference=chosen.reference, scope=scope)


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
    is_explicit = settings.origins.get("model", "").startswith(("--", "SPINE_"))
    return settings.model if is_explicit and settings.model != session.agent.model else None
