"""The story on openai-agents, with its own SQLite session."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agents import Agent, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled  # type: ignore
from agents.models.interface import Model  # type: ignore
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

FOLDER = Path(sys.argv[1])
PAYMENTS = FOLDER / "payments"


@function_tool  # type: ignore[untyped-decorator]
def pay(amount_cents: int) -> str:
    """Pay an amount."""
    with PAYMENTS.open("a") as file:
        file.write(f"{amount_cents}\n")
    if not (FOLDER / "again").exists():
        (FOLDER / "again").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


class Answering(Model):  # type: ignore[misc]
    async def get_response(self, system_instructions: Any, input: Any, *given: Any, **more: Any) -> ModelResponse:
        items = [] if isinstance(input, str) else input
        results = [item for item in items if item.get("type") == "function_call_output"]
        output: Any = ResponseFunctionToolCall(
            type="function_call", call_id="c1", name="pay", arguments='{"amount_cents": 1290}'
        )
        if results:
            print("the model is told:", results[-1]["output"])
            text = ResponseOutputText(type="output_text", text="So it is.", annotations=[])
            output = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **more: Any) -> Any:
        raise NotImplementedError


async def main() -> None:
    set_tracing_disabled(True)
    session = SQLiteSession("story", FOLDER / "story.db")
    text = "Please go on." if (FOLDER / "again").exists() else "Pay the 12.90 EUR."
    await Runner.run(Agent(name="story", tools=[pay], model=Answering()), text, session=session)


asyncio.run(main())
