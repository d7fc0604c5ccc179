"""The story on this runtime."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from spine import Agent, tool
from spine.blocking import Runtime
from spine.testing import Entry, ScriptedAdapter, call, say

FOLDER = Path(sys.argv[1])
PAYMENTS = FOLDER / "payments"


@tool
def pay(amount_cents: int) -> str:
    """Pay an amount."""
    with PAYMENTS.open("a") as file:
        file.write(f"{amount_cents}\n")
    if not (FOLDER / "again").exists():
        (FOLDER / "again").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


def answer(request: Any) -> Entry:
    results = [block for message in request.messages if message.role == "tool" for block in message.content]
    if not results:
        return call("pay", amount_cents=1290)
    print("the model is told:", results[-1].content[0].text)
    return say("So it is.")


agent = Agent("story:model", tools=[pay])
with Runtime.open(f"sqlite:{FOLDER}/story.db", model=ScriptedAdapter(*[answer] * 4)) as runtime:
    session = runtime.session("story", agent)
    if session.resume() is None:
        session.run("Pay the 12.90 EUR.")
