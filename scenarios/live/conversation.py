"""What is done with the real model, and what must hold of it.

No answer's wording is demanded, only that the machinery around it tells the truth: a conversation of several streamed
turns, an answer that fits a type, a turn that is stopped in the middle, a session that changes its protocol with every
turn, and then verification and transcript of all.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import attrs

from scenarios.live.project import PROVIDERS, Project

__all__ = ["Figures", "hold_conversation"]

MODEL: Final = ("-m", "local:smollm2")
TURNS: Final = (
    "My name is Ada. Greet me in one short sentence.",
    "Which city is the capital of France?",
    "What is my name?",
)
LONG: Final = "Tell me a very long story about the sea."
_REBUILT: Final = re.compile(r"(\d+) requests? rebuilt, (\d+) digests? equal")


@attrs.frozen(kw_only=True)
class Figures:
    """What all sessions amount to; `seconds` is the time in which answers arrived."""

    sessions: int
    events: int
    rebuilt: int
    tokens: int
    seconds: float

    def __str__(self) -> str:
        rate = self.tokens / self.seconds if self.seconds else 0.0
        return (
            f"live: {self.sessions} sessions, {self.events} events, {self.rebuilt} requests rebuilt, "
            f"{self.tokens} tokens at {rate:.1f} tokens/s"
        )


def hold_conversation(project: Project) -> Figures:
    """Do all of it. Raises `AssertionError` at the first thing that does not hold."""
    talk(project)
    answer_in_form(project)
    stop_in_the_middle(project)
    switch_protocols(project)
    return _sum([_checked(project, session) for session in ("talk", "form", "stopped", "switched")])


def talk(project: Project) -> None:
    """Several turns of one session, each in a process of its own, streamed and with all earlier ones in view."""
    for number, text in enumerate(TURNS):
        words = ("--session", "talk") if number == 0 else ("-c",)
        done = project.spine("run", *MODEL, *words, text)
        assert done.out.strip(), "an empty answer"
        assert done.pieces > 1, f"the answer came in one piece: {done.out!r}"
    counts = [usage["input_tokens"] for usage in _usages(project, "talk")]
    assert len(counts) == len(TURNS), counts
    assert counts == sorted(set(counts)), f"the history did not grow: {counts} tokens in"


def answer_in_form(project: Project) -> None:
    """An answer that the server holds to a schema parses to the agent's type."""
    agent = ("--agent", "scenarios.live.agents:capital")
    done = project.spine("run", *agent, "--session", "form", "The capital of Italy?")
    answer = json.loads(done.out)
    assert sorted(answer) == ["country", "name"], answer


def stop_in_the_middle(project: Project) -> None:
    """Ctrl-C during an answer ends the turn as cancelled and keeps the text that had arrived; the server goes on."""
    done = project.spine("run", *MODEL, "--session", "stopped", LONG, status=130, interrupt=True)
    events = project.events("stopped")
    assert _count(events, "turn.cancelled") == 1
    interrupted = next(event for event in events if event["type"] == "message.interrupted")
    assert interrupted["data"]["message"] is not None
    assert done.out.strip()[:8] in project.spine("transcript", "stopped").out
    project.spine("run", *MODEL, "--session", "stopped", "Say yes.")


def switch_protocols(project: Project) -> None:
    """One session whose every turn speaks another protocol, and whose last one speaks the first again."""
    for provider in (*PROVIDERS, "local"):
        done = project.spine("run", "-m", f"{provider}:smollm2", "--session", "switched", "Name one more colour.")
        assert done.out.strip(), "an empty answer"
    answers = [event["data"] for event in project.events("switched") if event["type"] == "message.committed"]
    spoken = [answer["message"]["origin"]["protocol"] for answer in answers]
    assert spoken == [*PROVIDERS.values(), "openai_chat"], spoken
    counts = [usage["input_tokens"] for usage in _usages(project, "switched")]
    assert counts == sorted(set(counts)), f"the history did not grow: {counts} tokens in"


# ---------------------------------------------------------------------------------------------------------- checking


def _checked(project: Project, session: str) -> Figures:
    """Verify a session, look at its transcript, run it again without the server, and count."""
    events = project.events(session)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    transcript = project.spine("transcript", session).out
    assert transcript.count("USER") == _count(events, "turn.started"), transcript
    found = _REBUILT.search(project.spine("verify", session).out)
    assert found is not None
    rebuilt, equal = map(int, found.groups())
    assert rebuilt == equal == _count(events, "model.requested")
    replayed = project.spine("replay", session).out
    assert replayed.startswith(f"equal: {len(events)} events byte for byte"), replayed
    assert ", 0 connections, " in replayed, replayed
    tokens = sum(usage["output_tokens"] for usage in _usages(project, session))
    seconds = sum(event["data"]["metadata"]["latency_s"] for event in events if event["type"] == "message.committed")
    return Figures(sessions=1, events=len(events), rebuilt=rebuilt, tokens=tokens, seconds=seconds)


def _usages(project: Project, session: str) -> list[dict[str, int]]:
    """The token counts of each completed turn."""
    entries = json.loads(project.spine("transcript", session, "--json").out)["entries"]
    return [entry["figures"]["usage"] for entry in entries if entry["type"] == "turn.completed"]


def _count(events: Sequence[dict[str, Any]], kind: str) -> int:
    return sum(event["type"] == kind for event in events)


def _sum(parts: Sequence[Figures]) -> Figures:
    names = [field.name for field in attrs.fields(Figures)]
    return Figures(**{name: sum(getattr(part, name) for part in parts) for name in names})
