"""The testing kit: fakes that keep the real contracts, and the contracts, for anyone's plugins (floor 14).

A test says what the model answers with `say`, `call`, `think`, `fail` and their like, joined with `+`, and gives that
to a `ScriptedAdapter`; the fixtures of the pytest plugin do the rest. A name is imported from its home when it is first
asked for.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from spine.late import offered as _offered

if TYPE_CHECKING:
    from spine.proof.replay.run import Given, Replayed, replay
    from spine.testing.adapters.conformance import Conformance, report_card, run_case
    from spine.testing.adapters.contract import AdapterContract
    from spine.testing.adapters.trial import Wire
    from spine.testing.chaos.render import Rendered
    from spine.testing.chaos.server import Fault, Peer
    from spine.testing.clock import FakeClock, FakeIds, FakeRandom
    from spine.testing.crashes import CrashingStore, ProcessDied
    from spine.testing.failpoints import Failpoint, Failpoints
    from spine.testing.fixtures import offline_runtime
    from spine.testing.scenarios.file import read_scenario
    from spine.testing.scenarios.recording import record_scenario
    from spine.testing.scenarios.run import ScenarioResult, find_scenarios, run_scenario, run_scenarios
    from spine.testing.scenarios.sweep import SweepResult, sweep_scenario
    from spine.testing.script import (
        Call,
        Entry,
        Refuse,
        Say,
        Think,
        call,
        call_text,
        cut,
        expect,
        fail,
        refuse,
        say,
        stall,
        stop,
        think,
        usage,
    )
    from spine.testing.scripted import ScriptedAdapter
    from spine.testing.stores.contract import StoreContract

__all__ = [
    "AdapterContract",
    "Call",
    "Conformance",
    "CrashingStore",
    "Entry",
    "Failpoint",
    "Failpoints",
    "FakeClock",
    "FakeIds",
    "FakeRandom",
    "Fault",
    "Given",
    "Peer",
    "ProcessDied",
    "Refuse",
    "Rendered",
    "Replayed",
    "Say",
    "ScenarioResult",
    "ScriptedAdapter",
    "StoreContract",
    "SweepResult",
    "Think",
    "Wire",
    "call",
    "call_text",
    "cut",
    "expect",
    "fail",
    "find_scenarios",
    "offline_runtime",
    "read_scenario",
    "record_scenario",
    "refuse",
    "replay",
    "report_card",
    "run_case",
    "run_scenario",
    "run_scenarios",
    "say",
    "stall",
    "stop",
    "sweep_scenario",
    "think",
    "usage",
]

_SCRIPT: Final = (
    "Call",
    "Entry",
    "Refuse",
    "Say",
    "Think",
    "call",
    "call_text",
    "cut",
    "expect",
    "fail",
    "refuse",
    "say",
    "stall",
    "stop",
    "think",
    "usage",
)
_HOMES: Final[Mapping[str, str]] = {
    "AdapterContract": "spine.testing.adapters.contract",
    "Conformance": "spine.testing.adapters.conformance",
    "CrashingStore": "spine.testing.crashes",
    "Failpoint": "spine.testing.failpoints",
    "Failpoints": "spine.testing.failpoints",
    "FakeClock": "spine.testing.clock",
    "FakeIds": "spine.testing.clock",
    "FakeRandom": "spine.testing.clock",
    "Fault": "spine.testing.chaos.server",
    "Given": "spine.proof.replay.run",
    "Peer": "spine.testing.chaos.server",
    "ProcessDied": "spine.testing.crashes",
    "Rendered": "spine.testing.chaos.render",
    "Replayed": "spine.proof.replay.run",
    "ScenarioResult": "spine.testing.scenarios.run",
    "ScriptedAdapter": "spine.testing.scripted",
    "StoreContract": "spine.testing.stores.contract",
    "SweepResult": "spine.testing.scenarios.sweep",
    "Wire": "spine.testing.adapters.trial",
    "find_scenarios": "spine.testing.scenarios.run",
    "offline_runtime": "spine.testing.fixtures",
    "read_scenario": "spine.testing.scenarios.file",
    "record_scenario": "spine.testing.scenarios.recording",
    "replay": "spine.proof.replay.run",
    "report_card": "spine.testing.adapters.conformance",
    "run_case": "spine.testing.adapters.conformance",
    "run_scenario": "spine.testing.scenarios.run",
    "run_scenarios": "spine.testing.scenarios.run",
    "sweep_scenario": "spine.testing.scenarios.sweep",
    **dict.fromkeys(_SCRIPT, "spine.testing.script"),
}


if not TYPE_CHECKING:  # a type checker should see the names above and no others
    __getattr__, __dir__ = _offered(globals(), _HOMES)
