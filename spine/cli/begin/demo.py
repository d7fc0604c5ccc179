"""`demo` (floor 15): the first two minutes, without a key and without a network."""

from typing import Final

import click

from spine.cli.options import options
from spine.cli.screen import note, out, out_json, paint
from spine.config import make_store_folder, store_url
from spine.testing.demo import run_demo

__all__ = ["COMMANDS"]

STORE: Final = "sqlite:demo.db"
MEMORY: Final = "memory:"
_TRY: Final = (
    ("spine request --step t1s3 --diff", "what the model saw, and what was new"),
    ("spine verify", "proof that nothing was changed"),
    ("spine replay", "the same session again, from its log"),
    ("spine explain t1s2c1", "who asked for the refund, and who allowed it"),
)


@click.command()
@options("store", "json")
def demo(store: str | None, as_json: bool) -> None:
    """Play a session with a scripted model: a rate limit, two tools, an approval. It is written to demo.db."""
    url = STORE if store is None else store_url(store)
    make_store_folder(url)
    played = run_demo(url)
    if as_json:
        out_json({"session": played.session, "store": played.store, "events": played.events})
        return
    if url == MEMORY:
        out(paint(str(played)))
        note(f"It was kept in memory: its {played.events} events are gone. Try: spine demo")
        return
    path = url.removeprefix("sqlite:")
    commands = [(f"{command} --store {path}", why) for command, why in _TRY]
    width = max(len(command) for command, _ in commands)
    out(paint(str(played)))
    out(f"\nAll of it is in {path}: {played.events} events. Try:")
    for command, why in commands:
        out(f"  {command.ljust(width)}  {why}")


COMMANDS: Final = {"demo": demo}
