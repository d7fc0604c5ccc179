"""Writes a stored session down as a scenario (floor 14): what came from outside becomes script, answers and decisions.

The scenario is meant to be read and changed: it holds what a person would have written, in the order of the log. What
it cannot hold (images, signatures, a plugin's code) is said in a note, never left out in silence.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from spine.errors import UsageError
from spine.events import RecordedEvent, ToolCompleted
from spine.llm.errors import Failure
from spine.llm.request import ModelRequest
from spine.masking import masked_json
from spine.messages import JsonBlock, Message, TextBlock, text_of
from spine.proof.request_view import request_views
from spine.stored import StoredLog
from spine.testing.scenarios.check import turns_of
from spine.testing.scenarios.script_writing import FOREVER_S, entries_of
from spine.values import Secret, freeze, thaw

__all__ = ["WrittenScenario", "scenario_of"]

_COUNTS: Final = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")


@attrs.frozen
class WrittenScenario:
    """`content` is the scenario as plain JSON, in the order to write it; `notes` say what it does not hold."""

    content: Mapping[str, Any]
    notes: tuple[str, ...]


def scenario_of(
    reader: StoredLog, *, agent: str | None = None, plugins: Sequence[str] = (), secrets: Iterable[Secret] = ()
) -> WrittenScenario:
    """The scenario of a stored session; `agent` is `module:attribute` when the recorded one is not meant.

    Without any such reference the agent is written out. `plugins` are the modules that had a part in the session.
    Texts are masked of `secrets`. Raises `UsageError` for a session without a turn.
    """
    events = tuple(reader.read())
    if not any(event.type == "turn.started" for event in events):
        raise UsageError(f"{reader.session} has no turn yet, so there is no scenario in it", hint="spine sessions")
    writing = _Writing(events, {view.seq: view.request for view in request_views(reader)})
    content = writing.content(agent, list(plugins))
    masked: Any = masked_json(freeze(content), tuple(secrets))
    return WrittenScenario(thaw(masked), tuple(dict.fromkeys(writing.notes)))


class _Writing:
    """One pass over the log. Notes are collected as things are met that a scenario cannot hold."""

    def __init__(self, events: tuple[RecordedEvent, ...], requests: Mapping[int, ModelRequest]) -> None:
        self.notes: list[str] = []
        self._events = events
        self._requests = requests
        self._started = {e.data.call: e.data for e in events if e.type == "tool.started"}
        self._approvals = {e.data.id: e.data for e in events if e.type == "approval.requested"}
        self._accepted = {e.seq: e.data for e in events if e.type == "input.accepted"}

    def content(self, agent: str | None, plugins: list[str]) -> dict[str, Any]:
        """All of the scenario, empty parts left out."""
        created = self._events[0].data
        reference = agent or created.agent.reference
        if not plugins:
            self._note_plugins()
        content: dict[str, Any] = {
            "scenario": f"session {self._events[0].session}, as it was recorded",
            "session": self._events[0].session,
            "agent": reference or self._agent(after=0),
            "plugins": plugins,
            "scope": created.scope,
            "metadata": created.metadata,
            "sections": [] if reference else self._sections(plugins),
            "inputs": self._inputs(),
            "model": entries_of(self._events, self._requests, self.notes.append),
            "tools": self._answers(is_written=reference is None),
            "approvals": self._decisions(),
            "faults": self._faults(reference is None),
            "expect": self._expected(),
        }
        return {key: value for key, value in content.items() if value}

    def _of(self, *kinds: str) -> list[RecordedEvent]:
        return [event for event in self._events if event.type in kinds]

    def _note_plugins(self) -> None:
        changed = {patch.plugin for event in self._events for patch in getattr(event.data, "patches", ())}
        for plugin in sorted(changed):
            self.notes.append(f"plugin {plugin} changed what was sent or shown; name its module under plugins")
        if self._of("history.compacted"):
            self.notes.append("a plugin compacted the history; name its module under plugins")

    # ------------------------------------------------------------------------------------------------------ agent

    def _agent(self, after: int) -> dict[str, Any]:
        """The agent of the first request after seq `after`, written out; of the last one when none follows."""
        later = [request for seq, request in self._requests.items() if seq > after]
        request = next(iter([*later, *reversed([*self._requests.values()])]), None)
        if request is None:
            return {"model": "unknown:unknown"}
        instructions = next((block.text for block in request.system if block.name == "instructions"), None)
        agent: dict[str, Any] = {
            "model": str(request.route),
            "name": self._events[0].data.agent.name,
            "instructions": instructions,
            "tools": [{tool.name: self._tool(tool, after)} for tool in request.tools],
            **self._limits(),
            "max_output_tokens": request.max_output_tokens,
            "temperature": request.temperature,
        }
        return {key: value for key, value in agent.items() if value not in (None, [])}

    def _limits(self) -> dict[str, Any]:
        """The limits that ended turns; steps stand in for one on cost, because no log has prices."""
        limits: dict[str, Any] = {}
        for event in self._of("turn.failed"):
            failure: Failure = event.data.failure
            name = failure.details.get("limit") if failure.category == "limit" else None
            if name == "cost":
                self.notes.append(f"turn {event.turn} was ended by its limit on cost; a limit on steps stands for it")
                limits.setdefault("steps", sum(e.turn == event.turn for e in self._of("model.requested")))
            elif name is not None:
                limits.setdefault(str(name), failure.details["allowed"])
        return limits

    def _tool(self, definition: Any, after: int) -> dict[str, Any]:
        """What a tool was offered as, and what its calls after seq `after` tell of it beside."""
        name = definition.name
        started = next((data for data in self._started.values() if data.name == name), None)
        questions = [e for e in self._of("approval.requested") if e.data.name == name]
        asked = next((e.data for e in questions if e.seq > after), questions[0].data if questions else None)
        timed_out = any(e.data.status == "timeout" and e.data.result.name == name for e in self._of("tool.completed"))
        tool = {
            "description": definition.description,
            "schema": definition.parameters,
            "effect": started.effect if started is not None and started.effect != "irreversible" else None,
            "parallel": True if name in self._overlapping() else None,
            "approval": None if asked is None else "ask",
            "approval_reason": None if asked is None else asked.reason,
            "timeout_s": self._timeout(name) if timed_out else None,
        }
        if started is not None and started.effect == "reconcilable":
            self.notes.append(f"tool {name} can be asked what became of a call; a scenario's tool cannot")
            tool["effect"] = None
        return {key: value for key, value in tool.items() if value not in (None, "")}

    def _timeout(self, name: str) -> float:
        took = [e.data.duration_s or 0 for e in self._of("tool.completed") if e.data.result.name == name]
        return float(max(took)) or 1.0

    def _overlapping(self) -> set[str]:
        """Names of tools whose calls ran at the same time as another."""
        found, running = set(), set[str]()
        for event in self._of("tool.started", "tool.completed"):
            if event.type == "tool.completed":
                running.discard(event.data.call)
                continue
            if running:
                found |= {event.data.name, *(self._started[call].name for call in running)}
            running.add(event.data.call)
        return found

    def _sections(self, plugins: list[str]) -> list[dict[str, Any]]:
        """Prompt sections beside the agent's own and those that `plugins` bring, as they were in the first request."""
        request = next(iter(self._requests.values()), None)
        named = {plugin.rpartition(".")[2].removeprefix("spine_") for plugin in plugins}
        return [
            {"name": block.name, "text": block.text, "order": block.order}
            | ({"priority": block.priority} if block.priority else {})
            | ({"dynamic": True} if block.dynamic else {})
            for block in (() if request is None else request.system)
            if block.name != "instructions" and block.source.partition("@")[0] not in named
        ]

    # ----------------------------------------------------------------------------------------------------- inputs

    def _inputs(self) -> list[dict[str, Any]]:
        inputs: list[dict[str, Any]] = []
        counts: Counter[str] = Counter()
        is_open, sent, before = False, set[int](), self._events[0]
        for event in self._events:
            match event.type:
                case "turn.started":
                    counts.clear()
                    is_open = True
                    inputs.extend(self._opening(event, sent))
                case "turn.completed" | "turn.failed" | "turn.cancelled":
                    is_open = False
                case "input.accepted" if is_open:
                    sent.add(event.seq)
                    text = self._text(event.data.message)
                    inputs.append({event.data.delivery: text, **_moment(before, counts)})
                case "cancel.requested" if before.type != "input.accepted" and event.data.failure is None:
                    inputs.append({"cancel": event.data.cause, **_moment(before, counts)})
            counts[event.type] += 1
            before = event
        return inputs

    def _opening(self, started: RecordedEvent, sent: set[int]) -> Iterable[dict[str, Any]]:
        data = started.data
        if data.repeats is not None:
            return [{"retry": "keep_partial" if data.repeats.keep_partial else "plain"}]
        if data.overrides:
            self.notes.append(f"turn {started.place or ''} was run with {', '.join(data.overrides)} of its own".strip())
        texts = [self._text(self._accepted[seq].message) for seq in data.inputs if seq not in sent]
        return [{"user": "\n\n".join(texts)}] if texts else []

    def _text(self, message: Message) -> str:
        strange = [type(block).__name__ for block in message.content if not isinstance(block, TextBlock)]
        if strange:
            self.notes.append(f"an input held {', '.join(strange)}; inputs of scenarios are text")
        if message.kind not in ("user", "steering"):
            self.notes.append(f"an input was {message.kind}; it is written as the user's")
        text: str = text_of(message.content)
        return text

    # ------------------------------------------------------------------------------------------- tools and people

    def _answers(self, *, is_written: bool) -> dict[str, Any]:
        """What each tool's handler gave, run by run; tools that are written out need an answer even if none ran."""
        given: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for request in self._requests.values() if is_written else ():
            given |= {tool.name: given[tool.name] for tool in request.tools}
        ends = {event.data.call: (place, event) for place, event in enumerate(self._of("tool.completed"))}
        for call, started in self._started.items():
            place, event = ends.get(call, (0, None))
            answers = given[started.name]
            if event is None or event.data.status == "interrupted":
                is_dead = event is None or self._was_dead(call)
                answers.extend([] if is_dead else [{"returns": None, "delay_s": FOREVER_S}])
            else:
                delay = {"delay_s": place + 1} if started.name in self._overlapping() else {}
                answers.append(self._answer(event.data) | delay)
        return {name: _shortest(answers) for name, answers in given.items()}

    def _was_dead(self, call: str) -> bool:
        """Whether the call's process died before the handler could run in the scenario's."""
        return any(event.data.call == call for event in self._of("tool.resolved"))

    def _answer(self, completed: ToolCompleted) -> dict[str, Any]:
        error = completed.error
        if completed.status == "timeout":
            return {"returns": None, "delay_s": FOREVER_S}
        if error is not None and error.kind == "exception":
            return {"raises": {error.type or "RuntimeError": error.message}}
        if completed.truncated:
            self.notes.append(f"the result of {completed.result.name} was cut; its beginning is written")
        match completed.result.content:
            case (JsonBlock(value=value),):
                return {"returns": thaw(value)}
            case (TextBlock(text=text),):
                return {"returns": text}
            case content:
                if any(not isinstance(block, TextBlock) for block in content):
                    self.notes.append(
                        f"a result of {completed.result.name} was no text; what there was of it is written"
                    )
                return {"returns": text_of(content)}

    def _decisions(self) -> list[dict[str, Any]]:
        return [
            {
                "call": self._approvals[event.data.id].name,
                "decide": "approve" if event.data.decision == "approved" else "deny",
                "by": event.data.by,
                **({"reason": event.data.reason} if event.data.reason else {}),
            }
            for event in self._of("approval.decided")
        ]

    def _faults(self, writes_agent: bool) -> list[dict[str, Any]]:
        """Where another process went on: its last event before that, counted since the fault before."""
        faults: list[dict[str, Any]] = []
        counts: Counter[str] = Counter()
        before = self._events[0]
        for event in self._events:
            if event.type == "session.resumed":
                is_calm = before.type in ("turn.suspended", "approval.decided", "turn.completed")
                fault = {**_moment(before, counts), "do": "restart" if is_calm else "crash"}
                has_changed = any("contract" in change for change in event.data.changes)
                faults.append(fault | ({"agent": self._agent(event.seq)} if writes_agent and has_changed else {}))
                counts.clear()
            counts[event.type] += 1
            before = event
        return faults

    def _expected(self) -> dict[str, Any]:
        turns = [
            {"status": turn.status, "steps": turn.steps, "retries": turn.retries, "tool_calls": len(turn.tool_calls)}
            | ({} if turn.error is None else {"error": turn.error.category})
            for turn in turns_of(self._events)
        ]
        started = [event.data.name for event in self._of("tool.started")]
        return {"turns": turns, "calls": started} if started else {"turns": turns}


# --------------------------------------------------------------------------------------------------------- in small


def _moment(before: RecordedEvent, counts: Counter[str]) -> dict[str, Any]:
    nth = counts[before.type]
    return {"at": before.type, "nth": nth} if nth > 1 else {"at": before.type}


def _shortest(answers: list[dict[str, Any]]) -> Any:
    """One answer for all runs where they were the same; none at all for a tool whose handler never ran."""
    if not answers:
        return {"returns": None, "times": 0}
    return answers[0] if all(answer == answers[0] for answer in answers) else answers
