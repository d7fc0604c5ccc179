"""What installed plugins bring to reading (floor 15): their event types and kinds of stores.

Loaded only when a log or a URL asks for it, because most logs are the core's own and hooks cost time to load.
"""

from spine.codec import Codec
from spine.config import Settings
from spine.hooks import Hooks
from spine.llm.providers import CATALOGUE
from spine.plugins import Plugins
from spine.scope import Registries

__all__ = ["load_plugins"]


def load_plugins(settings: Settings, codec: Codec) -> Plugins:
    """Load what is installed and allowed; event types go into `codec`. Broken plugins are kept by name."""
    loaded = Plugins(Hooks(), Registries.new(), codec, CATALOGUE)
    if settings.installed_plugins:
        loaded.discover(settings.blocks)
    return loaded
