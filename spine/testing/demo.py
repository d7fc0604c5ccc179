"""The demonstration (floor 14): one session from an input to its proof, without a key, a network or a wait.

`spine demo` runs it. The agent is an ordinary one; its model is a script, so it shows a rate limit, a retry, a tool,
an approval and a cache in a few milliseconds, and the same ones every time.
"""

from collections.abc import Mapping
from typing import Any, Final

import anyio
import attrs

from spine.agent import Agent, Limits
from spine.config import Settings
from spine.execution import ToolContext
from spine.functions import tool
from spine.projectors import Transcript, to_text
from spine.runtime import Runtime
from spine.store import Store
from spine.testing.clock import FakeClock, FakeRandom
from spine.testing.script import Entry, call, fail, say, usage
from spine.testing.scripted import ScriptedAdapter
from spine.turn import Turn

__all__ = ["AGENT", "INPUT", "Demo", "Shop", "demo_script", "play_demo", "run_demo"]

INPUT: Final = "My mug from order 1017 arrived broken. Please refund it."
BY: Final = "demo"
_FIRST: Final = 1017


@attrs.define
class Shop:
    """What the tools work on: orders by number, and the refunds paid so far by their idempotency key."""

    orders: Mapping[str, Mapping[str, str | int]] = attrs.field(
        factory=lambda: {"1017": {"item": "mug", "paid_cents": 1290, "state": "delivered"}}
    )
    paid: dict[str, str] = attrs.field(factory=dict)

    def refund(self, order_id: str, amount_cents: int, key: str) -> str:
        """Pay once for each key, however often it is asked."""
        euros = f"{amount_cents // 100}.{amount_cents % 100:02d} EUR"
        return self.paid.setdefault(key, f"refunded {euros}, reference R-{88 + len(self.paid)}")


@tool(effect="read_only")
async def lookup_order(order_id: str, context: ToolContext[Shop]) -> dict[str, str | int]:
    """Find an order by the number printed on its invoice."""
    order = context.deps.orders.get(order_id)
    return dict(order) if order is not None else {"error": f"no order {order_id}"}


@tool(effect="idempotent", approval="ask", approval_reason="refunds need a person", timeout_s=20)
async def refund(order_id: str, amount_cents: int, context: ToolContext[Shop]) -> str:
    """Pay an order back."""
    return context.deps.refund(order_id, amount_cents, context.idempotency_key)


AGENT: Final = Agent(
    "scripted:demo",
    name="refunds",
    instructions="You handle refunds for a shop. Be brief.",
    tools=(lookup_order, refund),
    limits=Limits(steps=20),
    max_output_tokens=1024,
)


def demo_script() -> tuple[Entry, ...]:
    """What the model answers, attempt by attempt."""
    return (
        fail("rate_limit", status=429, retry_after_s=2, message="too many requests"),
        call("lookup_order", order_id="1017") + usage(input_tokens=1512, cache_write_tokens=1408, output_tokens=24),
        say("The policy covers this, so I will refund it.")
        + call("refund", order_id="1017", amount_cents=1290)
        + usage(input_tokens=1571, cache_read_tokens=1408, output_tokens=31),
        say("Done. 12.90 EUR are on their way, reference R-88.")
        + usage(input_tokens=1634, cache_read_tokens=1408, output_tokens=27),
    )


@attrs.frozen(kw_only=True)
class Demo:
    """The session that was played. `str()` is its transcript, headed by session, model and store."""

    session: str
    store: str
    """The store's URL."""
    turn: Turn
    transcript: Transcript
    events: int
    """How many the log has."""

    def __str__(self) -> str:
        return to_text(self.transcript, source=self.store)


def run_demo(store: str | Store = "sqlite:demo.db") -> Demo:
    """Play the demonstration as a new session of `store`: `refund-1017`, or the next number that is free."""
    return anyio.run(play_demo, store)


async def play_demo(store: str | Store = "sqlite:demo.db") -> Demo:
    """`run_demo` in an event loop that runs already."""
    clock = FakeClock()
    with ScriptedAdapter(*demo_script(), clock=clock) as model:
        settings = Settings(installed_plugins=False)
        async with Runtime.open(store, model=model, clock=clock, random=FakeRandom(), settings=settings) as runtime:
            options: dict[str, Any] = {"metadata": {"customer": "c-77"}, "reference": "spine.testing.demo:AGENT"}
            session = await runtime.session(_free(runtime), AGENT, deps=Shop(), **options)
            turn = await session.run(INPUT)
            for approval in turn.approvals:
                turn = await session.approve(approval.id, by=BY)
            return Demo(
                session=session.id,
                store=runtime.store.url,
                turn=turn,
                transcript=session.transcript(),
                events=session.log.head[0],
            )


def _free(runtime: Any) -> str:
    number = _FIRST
    taken = {session.id for session in runtime.sessions()}
    while f"refund-{number}" in taken:
        number += 1
    return f"refund-{number}"
