"""`prefix` (floor 15): exit status 1 when a step kept less of the request before it than `--min` wants."""

from typing import Final

import click

from spine.cli.ending import FAILS
from spine.cli.options import options, session_argument
from spine.cli.reading import reading_session, up_to_unknown
from spine.cli.screen import out, out_json
from spine.config import load_settings
from spine.llm.catalogue import Prices
from spine.llm.providers import CATALOGUE
from spine.llm.request import Route
from spine.proof.course import course_of
from spine.proof.prefix import kept_prefixes, least_share, parse_share, prefix_json, prefix_text

__all__ = ["COMMANDS"]


@click.command()
@session_argument
@click.option("--min", "least", metavar="SHARE", help="What every step must keep, as 90%.")
@options("store", "json", "until")
def prefix(session: str | None, least: str | None, store: str | None, as_json: bool, until: int | None) -> int:
    """Tell how much of each request the next one begins with, and what moved the rest."""
    wanted = None if least is None else parse_share(least)
    with reading_session(store, session, check=True) as reader:
        course, status = up_to_unknown(lambda until: course_of(reader, until), until)
        found = list(kept_prefixes(reader, course.steps.values(), _known_prices))
    out_json(prefix_json(found, wanted)) if as_json else out(prefix_text(found, wanted))
    return status if wanted is None or least_share(found) >= wanted else FAILS


def _known_prices(route: Route) -> Prices | None:
    """The prices of a route, by catalogue and configuration; nothing that plugins bring."""
    catalogue = load_settings().extend(CATALOGUE)
    return catalogue.model(route.provider, route.model).prices


COMMANDS: Final = {"prefix": prefix}
