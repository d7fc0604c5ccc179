"""What the pytest fixtures are made of (floor 14); knows nothing of pytest, so it serves other test runners too."""

from typing import Any

from spine.config import Settings
from spine.runtime import Runtime
from spine.testing.clock import FakeClock, FakeRandom
from spine.testing.script import ScriptItem
from spine.testing.scripted import ScriptedAdapter

__all__ = ["FakeClock", "Script", "offline_runtime"]


class Script:
    """The script of a test: called with entries, it adds them; `adapter` is the model that plays them."""

    def __init__(self, clock: FakeClock) -> None:
        self.adapter = ScriptedAdapter(clock=clock)

    def __call__(self, *entries: ScriptItem) -> ScriptedAdapter:
        """Add entries at the script's end; returns the model, whose `requests` may be looked at."""
        self.adapter.add(*entries)
        return self.adapter

    def check_used(self) -> None:
        """Raise `ScriptMismatch` when entries are left over."""
        self.adapter.check_used()


def offline_runtime(model: ScriptedAdapter, clock: FakeClock, **options: Any) -> Runtime:
    """A runtime in memory that depends on nothing outside the test: no files, no environment, no installed plugins.

    `options` go to `Runtime.open`.
    """
    settings = Settings(installed_plugins=False)
    given: dict[str, Any] = {"store": "memory:", "random": FakeRandom(), "settings": settings, **options}
    return Runtime.open(model=model, clock=clock, **given)
