"""The conformance kit for adapters: what is tried, how it went, and the report card (floor 14).

An author says what the adapter is and how its protocol writes an answer (`Conformance`); everything else is here. With
pytest: `pytest --spine-conformance module:factory`. For another runner: `cases`, `run_case`, `report_card`.
"""

import importlib
import importlib.metadata
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from importlib.util import find_spec
from typing import Any, Final

import anyio
import attrs

from spine.errors import UsageError
from spine.llm.catalogue import Traits
from spine.llm.errors import ProviderError
from spine.llm.protocols import Adapter, ProviderSettings, WireProtocol
from spine.llm.request import ModelRequest, Route
from spine.messages import user_message
from spine.testing.adapters.decoding import DECODINGS, MIXES, Decoding, Outcome, try_decoding, try_prefixes
from spine.testing.adapters.trial import LATER, Wire, try_fault
from spine.testing.chaos.endings import ending_faults
from spine.testing.chaos.networks import network_faults
from spine.testing.chaos.refusals import server_faults
from spine.testing.chaos.render import RENDERS, Render, Rendered
from spine.testing.chaos.server import Fault, Peer, chaos_server
from spine.testing.chaos.words import protocol_faults
from spine.testing.script import Entry
from spine.tools import ToolDefinition
from spine.values import Secret, StepId
from spine.wire import HttpAdapter
from spine.wire.limits import Deadlines

__all__ = ["Conformance", "ConformanceCase", "ConformanceResult", "cases", "load_subject", "report_card", "run_case"]

BACKENDS: Final = ("asyncio", "trio") if find_spec("trio") else ("asyncio",)
GROUPS: Final = {
    "decoding": "every cut, CRLF, BOM, comments, usage tail",
    "endings": "missing, twice, after the end, error inside",
    "faults": "stalls, drips, cancel at each chunk, bombs",
}
"""Groups of cases, and what each is about, in the order of the card."""
NEEDED: Final = {
    "error": "the protocol has no error inside a stream",
    "ping": "the protocol has no ping",
    "whole": "the protocol has no answer that is not streamed",
    "is_event_stream": "its answers are no event stream",
}
"""Why a case does not apply, by the member of a `Rendered` that it is made of."""
RETRYING: Final = "with retry"
_NAME_WIDTH: Final = 58


@attrs.frozen(kw_only=True)
class Conformance:
    """What an author hands in: a wire `protocol`, or an `adapter` made of the `Wire` of a trial, or both.

    `render` writes a script's entry in the protocol's words; for the three protocols of the runtime it is known. It
    raises `NotImplementedError("why")` for what the protocol cannot say: the case is then not applicable. `faults`
    are tried beside the kit's own. `excused` are cases that cannot hold, by name, each with the reason.
    """

    name: str
    version: str = "?"
    protocol: WireProtocol | None = None
    adapter: Callable[[Wire], Adapter] | None = None
    protocol_name: str = attrs.field()
    render: Render = attrs.field()
    faults: tuple[Fault, ...] = ()
    excused: Mapping[str, str] = attrs.field(factory=dict)

    @protocol_name.default
    def _named(self) -> str:
        if self.protocol is None and self.adapter is None:
            raise UsageError(f'the conformance of "{self.name}" has neither a protocol nor an adapter')
        return "" if self.protocol is None else self.protocol.name

    @render.default
    def _known(self) -> Render:
        if self.protocol_name not in RENDERS:
            known = ", ".join(RENDERS)
            found = f'no render, and none is known for protocol "{self.protocol_name}"; there is one for {known}'
            raise UsageError(f'the conformance of "{self.name}" has {found}')
        return RENDERS[self.protocol_name]

    def make(self, wire: Wire) -> Adapter:
        """A fresh adapter that calls this server."""
        if self.adapter is not None:
            return self.adapter(wire)
        assert self.protocol is not None
        settings = ProviderSettings(
            provider="chaos",
            protocol=self.protocol_name,
            base_url=wire.base_url,
            secret=wire.secret,
            traits=self._traits,
        )
        return HttpAdapter(self.protocol, settings, deadlines=wire.deadlines, limits=wire.limits)

    def _traits(self, model: str) -> Traits:
        return Traits(provider="chaos", protocol=self.protocol_name, model=model)

    async def read(self, pieces: tuple[bytes, ...]) -> Outcome:
        """What is made of a body that comes in these pieces."""
        if self.protocol is None:
            return await _read_over_network(self, pieces)
        decoder = self.protocol.decoder(self._traits("model"), {})
        try:
            for piece in (*pieces, b""):
                decoder.feed(piece)
            return decoder.finish()
        except ProviderError as error:
            return error


async def _read_over_network(subject: Conformance, pieces: tuple[bytes, ...]) -> Outcome:
    async def play(peer: Peer) -> None:
        await peer.answer(*pieces)

    fault = Fault(name="decoding", play=play, expect=frozenset(("answer",)))
    nothing = Rendered(frames=(), ends_at=0)
    request = ModelRequest(
        route=Route("chaos", "model"),
        step=StepId("t1s1"),
        messages=(user_message("What is the weather?"),),
        tools=tuple(ToolDefinition(name=name, description="") for name in ("look", "hear")),
    )
    async with chaos_server(fault, nothing, nothing) as server:
        wire = Wire(base_url=server.url, secret=Secret("key-of-nobody"), deadlines=Deadlines())
        adapter = subject.make(wire)
        try:
            async with aclosing(adapter.stream(request)) as stream:  # type: ignore[type-var]
                items: list[Any] = [item async for item in stream]
        except ProviderError as error:
            return error
        finally:
            await adapter.aclose()
        return items[-1]  # type: ignore[no-any-return]


# ----------------------------------------------------------------------------------------------------------- cases


Trial = Callable[[], Awaitable[list[str]]]


@attrs.frozen
class ConformanceCase:
    """One thing that is tried; `name` begins with its group, as `endings/clean-eof-without-end`."""

    name: str
    trials: Mapping[str, Trial] = attrs.field(factory=dict, repr=False)
    """In which ways it is tried: plainly, and `with retry` where that may change something."""
    why_not: str | None = None
    """Why it does not apply to this adapter; None: it does."""

    def once(self, backend: str, how: str = "") -> list[str]:
        """What does not hold on one event loop in one way (the first, if there is no such way)."""
        trial = self.trials.get(how) or next(iter(self.trials.values()))
        where = f"[{backend}, {how}]" if how else f"[{backend}]"
        try:
            problems = anyio.run(trial, backend=backend)
        except Exception as exc:
            problems = [f"{type(exc).__name__} came out: {str(exc)[:200]}"]
        return [f"{problem} {where}" for problem in problems]


@attrs.frozen
class ConformanceResult:
    """How a case went: no `problems` and no `why_not` is passed."""

    name: str
    problems: tuple[str, ...] = ()
    why_not: str | None = None


def cases(subject: Conformance) -> tuple[ConformanceCase, ...]:
    """Everything that is tried, in the order of the card."""
    faults = (*network_faults(), *server_faults(), *protocol_faults(subject.protocol_name), *subject.faults)
    return tuple(
        attrs.evolve(case, why_not=subject.excused.get(case.name, case.why_not))
        for case in (
            *(_decoding_case(subject, decoding) for decoding in DECODINGS),
            ConformanceCase("decoding/every-prefix", {"": lambda: _try_prefixes(subject)}),
            *(_fault_case(subject, fault) for fault in (*ending_faults(subject.render), *faults)),
        )
    )


def _decoding_case(subject: Conformance, decoding: Decoding) -> ConformanceCase:
    name = f"decoding/{decoding.name}"
    entry = decoding.entry or _mix(subject)
    rendered, why_not = _rendered(subject, entry, decoding.needs)
    if rendered is None:
        return ConformanceCase(name, why_not=why_not)
    return ConformanceCase(name, {"": lambda: try_decoding(subject.read, decoding.vary, entry, rendered)})


def _mix(subject: Conformance) -> Entry:
    return next((entry for entry in MIXES if _rendered(subject, entry, None)[0] is not None), MIXES[-1])


async def _try_prefixes(subject: Conformance) -> list[str]:
    return await try_prefixes(subject.read, subject.render(_mix(subject)))


def _fault_case(subject: Conformance, fault: Fault) -> ConformanceCase:
    rendered, why_not = _rendered(subject, fault.entry, fault.needs)
    if rendered is None:
        return ConformanceCase(fault.name, why_not=why_not)
    trials: dict[str, Trial] = {
        "": lambda: try_fault(subject, fault),
        RETRYING: lambda: try_fault(subject, fault, retry=True),
    }
    return ConformanceCase(fault.name, trials)


def _rendered(subject: Conformance, entry: Entry, needs: str | None) -> tuple[Rendered | None, str]:
    """The entry as the protocol writes it, or None and why that cannot be."""
    try:
        rendered = subject.render(entry)
        subject.render(LATER)
    except NotImplementedError as exc:
        return None, f"the protocol cannot say it: {exc}"
    if needs is not None and not getattr(rendered, needs):
        return None, NEEDED[needs]
    return rendered, ""


def run_case(case: ConformanceCase) -> ConformanceResult:
    """Try one case on asyncio and, where it is installed, on trio; faults with and without retries."""
    if case.why_not is not None:
        return ConformanceResult(case.name, (), case.why_not)
    ways = ((backend, how) for backend in BACKENDS for how in case.trials)
    return ConformanceResult(case.name, tuple(problem for way in ways for problem in case.once(*way)))


# ------------------------------------------------------------------------------------------------------------ card


def report_card(subject: Conformance, results: Iterable[ConformanceResult]) -> str:
    """What a person reads: a line for each group with its counts, then a line for each case that failed."""
    results = tuple(results)
    head = f"{subject.name} {subject.version} · protocol {subject.protocol_name or 'its own'}"
    width = max(_NAME_WIDTH, len(head) + 2)
    lines = [f"{head:<{width}}passed  failed  not applicable"]
    for group, about in GROUPS.items():
        found = [result for result in results if result.name.startswith(f"{group}/")]
        failed = sum(bool(result.problems) for result in found)
        apart = sum(result.why_not is not None for result in found)
        what = f"{group:<12} {about}"
        lines.append(f"{what:<{width}}{len(found) - failed - apart:>6}{failed:>8}{apart:>16}")
    lines += [failed_line(result) for result in results if result.problems]
    return "\n".join(lines)


def failed_line(result: ConformanceResult) -> str:
    """What failed, why, and how to try it alone."""
    return f"FAILED {result.name}: {result.problems[0]}. Again: add -k {result.name.rpartition('/')[2]}"


def load_subject(reference: str) -> Conformance:
    """The subject that `module:factory` gives: a `Conformance`, or a `WireProtocol` of one of the known names.

    Raises `UsageError` for anything else.
    """
    module_name, colon, factory_name = reference.partition(":")
    if not colon:
        raise UsageError(f'"{reference}" names no factory; it must be module:factory')
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, AttributeError) as exc:
        raise UsageError(f'"{reference}" cannot be loaded: {exc}') from exc
    made = factory()
    if isinstance(made, Conformance):
        return made
    if not isinstance(getattr(made, "name", None), str) or not callable(getattr(made, "decoder", None)):
        raise UsageError(f'"{reference}" gave {made!r:.80}; it must give a Conformance or a wire protocol')
    return Conformance(name=f"{made.name} adapter", version=_version_of(module_name), protocol=made)


def _version_of(module: str) -> str:
    """The version of the distribution whose entry point a module belongs to."""
    top = module.partition(".")[0]
    points = importlib.metadata.entry_points(group="spine")
    return next((p.dist.version for p in points if p.dist and p.value.partition(".")[0] == top), "?")
