"""The story on langgraph, with its own SQLite checkpoints, written before each step goes on."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel  # type: ignore
from langchain_core.messages import AIMessage, ToolMessage  # type: ignore
from langchain_core.outputs import ChatGeneration, ChatResult  # type: ignore
from langchain_core.tools import tool  # type: ignore
from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore
from langgraph.graph import START, MessagesState, StateGraph  # type: ignore
from langgraph.prebuilt import ToolNode, tools_condition  # type: ignore

FOLDER = Path(sys.argv[1])
PAYMENTS = FOLDER / "payments"


@tool  # type: ignore[untyped-decorator]
def pay(amount_cents: int) -> str:
    """Pay an amount."""
    with PAYMENTS.open("a") as file:
        file.write(f"{amount_cents}\n")
    if not (FOLDER / "again").exists():
        (FOLDER / "again").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


class Answering(BaseChatModel):  # type: ignore[misc]
    @property
    def _llm_type(self) -> str:
        return "story"

    def _generate(self, messages: Any, *given: Any, **more: Any) -> ChatResult:
        results = [message for message in messages if isinstance(message, ToolMessage)]
        message = AIMessage("", tool_calls=[{"name": "pay", "args": {"amount_cents": 1290}, "id": "c1"}])
        if results:
            print("the model is told:", results[-1].content)
            message = AIMessage("So it is.")
        return ChatResult(generations=[ChatGeneration(message=message)])


def model(state: MessagesState) -> Any:
    return {"messages": [Answering().invoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("model", model)
graph.add_node("tools", ToolNode([pay]))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
with SqliteSaver.from_conn_string(str(FOLDER / "story.db")) as saver:
    app = graph.compile(checkpointer=saver)
    first = None if (FOLDER / "again").exists() else {"messages": [("user", "Pay the 12.90 EUR.")]}
    app.invoke(first, {"configurable": {"thread_id": "story"}}, durability="sync")
