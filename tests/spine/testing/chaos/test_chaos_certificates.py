"""Certificates made for a test are sound but for the one fault they are made with."""

import ssl

import attrs
import certifi
import pytest

from spine.testing.adapters.conformance import Conformance
from spine.testing.adapters.trial import try_fault
from spine.testing.chaos.certificates import EXPIRED, secured
from spine.testing.chaos.networks import network_faults
from spine.testing.chaos.server import Fault, Peer
from spine_openai_chat.protocol import OpenAIChat

HERE = ("127.0.0.1", "localhost")
SUBJECT = Conformance(name="chat", protocol=OpenAIChat())


def refusal(context: ssl.SSLContext, host: str) -> str | None:
    """Why a client refuses the server's certificate; None when it takes it. No network: two ends in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context(cafile=certifi.where())
    ends = (
        trusting.wrap_bio(to_client, to_server, server_hostname=host),
        context.wrap_bio(to_server, to_client, server_side=True),
    )
    left = list(ends)
    for _ in range(10):
        for end in tuple(left):
            try:
                end.do_handshake()
                left.remove(end)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    assert not left
    return None


@pytest.mark.parametrize(
    ("given", "host", "words"),
    [
        (secured(*HERE), "127.0.0.1", None),
        (secured(*HERE), "localhost", None),
        (secured(*HERE, days=EXPIRED), "127.0.0.1", "expired"),
        (secured("models.example"), "127.0.0.1", "IP address mismatch"),
        (secured("models.example"), "localhost", "Hostname mismatch"),
        (secured(*HERE, is_trusted=False), "localhost", "self-signed certificate"),
    ],
)
def test_a_certificate_is_refused_for_its_own_fault_only(given: object, host: str, words: str | None) -> None:
    trusted = certifi.where()
    with given() as context:  # type: ignore[operator]
        found = refusal(context, host)
    assert (found is None) if words is None else (found is not None and words in found)
    assert certifi.where() == trusted


async def test_a_server_with_a_sound_certificate_is_answered() -> None:
    """The faults of certificates differ from this one in nothing else."""

    async def play(peer: Peer) -> None:
        await peer.read()
        await peer.answer()

    sound = Fault(
        name="faults/sound",
        play=play,
        expect=frozenset(("answer",)),
        address=lambda server: server.url.replace("http:", "https:"),
        reads=False,
        secure=secured(*HERE),
    )
    assert await try_fault(SUBJECT, sound) == []


async def test_the_step_after_a_lost_connection_is_judged_as_well() -> None:
    used_again = next(fault for fault in network_faults() if fault.next_step is not None)
    for retry in (False, True):
        assert await try_fault(SUBJECT, used_again, retry=retry) == []
        problems = await try_fault(SUBJECT, attrs.evolve(used_again, next_step="timeout"), retry=retry)
        assert problems == ["the attempts after the tool's result failed as ['connection'], not as ['timeout']"]
