"""The plugin's tool, section and event, as values."""

import attrs

from spine import Section, tool

__all__ = ["GREETING", "Answered", "shout"]


@tool(name="acme.shout", effect="read_only")
def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


GREETING = Section("acme-greeting", order=40, render="Greet people as Acme does.")


@attrs.frozen(kw_only=True)
class Answered:
    """The model answered."""

    letters: int
