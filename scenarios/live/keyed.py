"""Five small tasks with a model that needs a key: `make live-keyed ROUTE=provider:model MAX_COST=0.05`.

Prints the route, the price list and the cap, and asks before anything is sent. Each task has a store of its own, which
is verified; whatever the run has written is looked through for the key; what is reported never holds it.
"""

import argparse
import base64
import json
import logging
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import anyio
import attrs

from spine import Agent, Runtime, tool
from spine.config import Settings, find_key, load_settings
from spine.errors import RouteUnknown, SpineError
from spine.llm.catalogue import Prices
from spine.llm.request import Route
from spine.proof.verify import verify
from spine.session import Session
from spine.turn import Turn
from spine.values import Secret

__all__ = ["TASKS", "Result", "run_tasks"]

MAX_OUTPUT: Final = 256
WORST_INPUT: Final = 2_000
"""Tokens that no task's requests come near, for what a task may cost at worst."""
WORST_REQUESTS: Final = 3


@attrs.frozen(kw_only=True)
class Result:
    """How one task ended; `micros` is what it cost in millionths, None when the price is unknown."""

    task: str
    status: str
    verdict: str
    micros: int | None
    detail: str = ""

    @property
    def holds(self) -> bool:
        """Whether it did what it should, and its log verifies."""
        return self.status == "ok" and self.verdict == "ok"


# ------------------------------------------------------------------------------------------------------------ tasks


@tool(effect="read_only")
def stock(item: str) -> str:
    """How many of an item are in stock."""
    return "seventeen"


@attrs.frozen
class City:
    """A city."""

    name: str
    country: str


async def _plain(session: Session) -> str:
    turn = await session.run("Answer with one word: which colour has snow?")
    return _expect(turn, bool(turn.text.strip()), "an empty answer")


async def _with_tool(session: Session) -> str:
    turn = await session.run("How many mugs are in stock? Use the tool, then answer in one short sentence.")
    called = [call.name for call in turn.tool_calls]
    return _expect(turn, called == ["stock"] and bool(turn.text.strip()), f"calls {called}, text {turn.text!r}")


async def _in_form(session: Session) -> str:
    turn = await session.run("The capital of Italy.", output=City)
    return _expect(turn, isinstance(turn.output, City), f"no City: {turn.text!r}")


async def _stopped(session: Session) -> str:
    async with session.stream("Count slowly from one to two hundred, in words.") as stream:
        async for _ in stream.text():
            break
    turn = session.turn
    found = "no turn" if turn is None else turn.status
    return "ok" if found == "cancelled" else f"expected a cancelled turn, found {found}"


async def _remembering(session: Session) -> str:
    await session.run("My name is Ada. Say hello.")
    turn = await session.run("What is my name? One word.")
    return _expect(turn, "ada" in turn.text.lower(), f"it forgot: {turn.text!r}")


def _expect(turn: Turn, holds: bool, found: str) -> str:
    return "ok" if turn.status == "completed" and holds else f"{turn.status}: {found}"[:300]


TASKS: Final[Mapping[str, Callable[[Session], Awaitable[str]]]] = {
    "plain": _plain,
    "tool": _with_tool,
    "form": _in_form,
    "stopped": _stopped,
    "remembering": _remembering,
}


# -------------------------------------------------------------------------------------------------------------- run


def worst_micros(prices: Prices) -> int:
    """What one task may cost at worst, in millionths."""
    tokens = WORST_INPUT * prices.input + MAX_OUTPUT * prices.output
    return -(-WORST_REQUESTS * tokens // 1_000_000)


async def run_tasks(route: str, settings: Settings, folder: Path, prices: Prices | None, cap: int) -> list[Result]:
    """Run the tasks one after the other, each on a store of its own in `folder`, none that could go over `cap`."""
    results: list[Result] = []
    for name, work in TASKS.items():
        worst = 0 if prices is None else worst_micros(prices)
        spent = sum(worst if result.micros is None else result.micros for result in results)
        if spent + worst > cap and prices is not None:
            results.append(Result(task=name, status="not started: it could go over the cap", verdict="-", micros=0))
            continue
        results.append(await _run_task(name, work, route, settings, folder / f"{name}.db"))
    return results


async def _run_task(
    name: str, work: Callable[[Session], Awaitable[str]], route: str, settings: Settings, store: Path
) -> Result:
    agent = Agent(route, instructions="Be brief.", tools=[stock], max_output_tokens=MAX_OUTPUT)
    async with Runtime.open(f"sqlite:{store}", settings=settings) as runtime:
        session = await runtime.session(name, agent)
        try:
            status = await work(session)
        except SpineError as error:
            status = f"{error.code}: {error.message}"[:300]
        found = verify(runtime.reader(name))
        costs = [event.data.cost for event in session.log.read(types=("message.committed",))]
        micros = None if any(cost is None for cost in costs) else sum(cost.micros for cost in costs)
        return Result(task=name, status=status, verdict=found.verdict, micros=micros)


# -------------------------------------------------------------------------------------------------------------- key


def forms_of(key: Secret) -> Iterator[bytes]:
    """The key as it could lie in a file: plain, escaped for JSON and for a URL, in Base64 at each of its offsets."""
    plain = key.reveal()
    yield from {plain.encode(), json.dumps(plain)[1:-1].encode(), quote(plain, safe="").encode()}
    for offset in range(3):
        encoded = base64.b64encode(b"x" * offset + plain.encode())
        yield encoded[4 if offset else 0 : -4]


def places_of(key: Secret, folder: Path) -> list[str]:
    """The files below `folder` that hold the key in any of its forms."""
    forms = list(forms_of(key))
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path.name for path in files if any(form in path.read_bytes() for form in forms)]


# ------------------------------------------------------------------------------------------------------------- main


def main(words: list[str] | None = None) -> int:
    """Exit status 0 when all tasks hold and the key was found nowhere, 1 when not, 2 when nothing was done."""
    given = _arguments(words)
    settings = load_settings()
    try:
        prices, key = _facts(given.route, settings)
    except SpineError as error:
        print(f"{error.message}  [{error.code}]", file=sys.stderr)
        return 2
    if prices is None and key is not None:
        print(f"the price of {given.route} is unknown, so that no cap can be held; nothing was sent", file=sys.stderr)
        return 2
    print(f"route  {given.route}")
    print(f"prices {prices.id if prices else 'none: the provider wants no key'}")
    cap = round(given.max_cost * 1_000_000)
    print(f"cap    {_money(cap)} {prices.currency if prices else ''}".rstrip())
    if not given.yes and input(f"Run {len(TASKS)} tasks? [y/N] ").strip().lower() != "y":
        print("nothing was sent", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        logging.basicConfig(filename=folder / "debug.log", level=logging.DEBUG)
        results = anyio.run(run_tasks, given.route, settings, folder, prices, cap)
        logging.shutdown()
        leaks = [] if key is None else places_of(key, folder)
    text = report(given.route, results, leaks)
    if key is not None and key.reveal() in text:
        text, leaks = "the report held the key and was not written", [*leaks, "report"]
    print(text)
    given.report.write_text(text + "\n", "utf-8")
    return 0 if all(result.holds for result in results) and not leaks else 1


def _arguments(words: list[str] | None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("route")
    parser.add_argument("--max-cost", type=Fraction, default=Fraction("0.05"), help="in the price list's currency")
    parser.add_argument("--report", type=Path, default=Path("live-keyed.md"))
    parser.add_argument("--yes", action="store_true", help="do not ask")
    return parser.parse_args(words)


def _facts(route: str, settings: Settings) -> tuple[Prices | None, Secret | None]:
    """Price list and key of a route. Raises what a run would: `RouteUnknown`, `KeyMissing`."""
    catalogue = Runtime.open("memory:", settings=settings).routes.catalogue
    found = Route.parse(settings.aliases.get(route, route))
    provider = catalogue.providers.get(found.provider)
    if provider is None:
        raise RouteUnknown(f'unknown provider "{found.provider}" in "{route}"')
    return catalogue.model(found.provider, found.model).prices, find_key(settings, provider)


def report(route: str, results: list[Result], leaks: list[str]) -> str:
    """The outcome as Markdown: no key, no answer's text, no header."""
    rows = [f"| {r.task} | {r.status} | {r.verdict} | {_money(r.micros)} |" for r in results]
    lines = [
        f"# Five tasks with {route}",
        "",
        "| task | outcome | log | cost |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
        f"{sum(r.holds for r in results)} of {len(results)} hold; cost {_money(_total(results))}.",
        f"The key was found in: {', '.join(leaks)}." if leaks else "The key was found nowhere.",
    ]
    return "\n".join(lines)


def _total(results: list[Result]) -> int | None:
    costs = [result.micros for result in results]
    return None if any(cost is None for cost in costs) else sum(cost or 0 for cost in costs)


def _money(micros: int | None) -> str:
    return "unknown" if micros is None else f"{micros / 1_000_000:.6f}"


if __name__ == "__main__":
    sys.exit(main())
