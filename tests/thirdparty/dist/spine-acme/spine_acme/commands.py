"""The command `spine acme-echo`."""

import click

__all__ = ["echo"]


@click.command()
@click.argument("words", nargs=-1)
def echo(words: tuple[str, ...]) -> None:
    """Print the words back."""
    click.echo(f"acme says: {' '.join(words)}")
