"""Every adapter that comes with the runtime keeps the public contract."""

from spine.llm.protocols import Adapter
from spine.testing.adapters.contract import AdapterContract
from spine.testing.clock import FakeClock
from spine.testing.script import call, cut, fail, say, stall, think, usage
from spine.testing.scripted import ScriptedAdapter

ANSWER = think("Hm.") + say("It is raining.") + usage(input_tokens=3, output_tokens=4)


class TestScriptedAdapter(AdapterContract):
    """A script, played at once."""

    def answering(self) -> Adapter:
        return ScriptedAdapter(ANSWER, ANSWER, ANSWER)

    def failing(self) -> Adapter:
        return ScriptedAdapter(fail("auth", status=401), ANSWER)

    def hanging(self) -> Adapter:
        return ScriptedAdapter(say("It is") + stall(), ANSWER, clock=FakeClock())


class TestScriptedAdapterLive(AdapterContract):
    """A script whose chunks come one by one."""

    def answering(self) -> Adapter:
        return ScriptedAdapter(*[ANSWER] * 3, live=True)

    def failing(self) -> Adapter:
        return ScriptedAdapter(say("It is") + cut(), ANSWER, live=True)

    def hanging(self) -> Adapter:
        return ScriptedAdapter(stall() + say("never"), ANSWER, live=True)


class TestScriptedAdapterCalling(AdapterContract):
    """A script that calls a tool, of which there is none in a session of the contract: the model then answers."""

    def answering(self) -> Adapter:
        return ScriptedAdapter(call("weather", city="Oslo"), ANSWER, ANSWER)
