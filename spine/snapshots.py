"""A session's folded state as bytes (floor 7): a cache, so that a long log need not be folded anew when it is opened.

Taken between turns only. It names the event that it was taken at by seq and hash, and the code that it was made by;
whatever does not fit is passed over, and the log is folded from its first event. Deleting it changes nothing but time.
"""

import zlib
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from typing import Any, Final

import attrs

from spine import codec as codecs
from spine import events, late, messages
from spine.codec import Codec
from spine.events import InputAccepted
from spine.messages import Message, ToolResultBlock
from spine.projectors import model_history, status
from spine.projectors.model_history import HistoryState
from spine.projectors.status import SessionStatus
from spine.values import CallId, Digest, TurnId, decode, digest, encode

__all__ = ["EVERY", "read_snapshot", "write_snapshot"]

EVERY: Final = 5_000
"""How many events a log must have grown by for another snapshot to be worth its while."""
_MAKERS: Final[tuple[Any, ...]] = (model_history, status, events, messages, codecs)
State = tuple[HistoryState, SessionStatus, dict[Digest, int]]


@cache
def _code() -> str:
    """What tells states of this code from those of another: the text of the folds, and of what they keep."""
    texts = [module.__loader__.get_data(module.__file__) for module in _MAKERS]
    return digest(b"\0".join(texts))


@cache
def _packing() -> tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]:
    """How bytes are packed and unpacked; what was packed the other way is a snapshot that cannot be read.

    Steps repeat each other over longer distances than zlib looks back: lzma leaves a quarter of what zlib does.
    """
    try:
        lzma = late.load("lzma")
    except ImportError:  # a Python that was built without it
        return partial(zlib.compress, level=9), zlib.decompress
    return partial(lzma.compress, preset=0), lzma.decompress


def write_snapshot(codec: Codec, state: State, required: Collection[tuple[str, int]] = ()) -> bytes:
    """The bytes of a state in which no turn is open; `required` are types and versions that its log demands to know."""
    history, now, contents = state
    track, write = history.track, codec.to_json
    form = {
        "code": _code(),
        "messages": [[seq, write(message)] for seq, message in zip(track.seqs, track.messages, strict=True)],
        "hashed": [track.hashed, track.hash.hex()],
        "inputs": [[seq, write(message)] for seq, message in history.inputs.items()],
        "results": [[id, found and [found[0], write(found[1])]] for id, found in history.waiting.items()],
        "settled_at": history.settled_at,
        "turn_began": history.turn_began,
        "partial": history.partial and [history.partial[0], write(history.partial[1])],
        "status": write(attrs.evolve(now, waiting={})),
        "waiting": [[seq, write(data)] for seq, data in now.waiting.items()],
        "contents": contents,
        "required": sorted(required),
    }
    pack, _ = _packing()
    return pack(encode(form))


def read_snapshot(codec: Codec, data: bytes) -> State | None:
    """The state that was written; None when other code wrote it, or it is damaged."""
    try:
        _, unpack = _packing()
        form = decode(unpack(data))
        if form["code"] != _code() or not all(_knows(codec, *kind) for kind in form["required"]):
            return None
        return _read(codec, form)
    except Exception:  # it is only a cache
        return None


def _knows(codec: Codec, name: str, version: int) -> bool:
    kind = codec.event_type(name)
    return kind is not None and version <= kind.version


def _read(codec: Codec, form: Mapping[str, Any]) -> State:
    read = codec.from_json
    hashed, hash = form["hashed"]
    track = model_history._Track(
        [read(message, Message) for _, message in form["messages"]],
        [seq for seq, _ in form["messages"]],
        hashed,
        bytes.fromhex(hash),
    )
    partial = form["partial"]
    history = HistoryState(
        track=track,
        inputs={seq: read(message, Message) for seq, message in form["inputs"]},
        waiting={CallId(id): found and (found[0], read(found[1], ToolResultBlock)) for id, found in form["results"]},
        settled_at=form["settled_at"],
        turn_began={TurnId(turn): seq for turn, seq in form["turn_began"].items()},
        partial=partial and (partial[0], read(partial[1], Message)),
    )
    now = read(form["status"], SessionStatus)
    now.waiting = {seq: read(data, InputAccepted) for seq, data in form["waiting"]}
    return history, now, {Digest(found): seq for found, seq in form["contents"].items()}
