"""What is done to sessions at rest (floor 15): `fork`, `erase`, `delete`, `check`, `migrate`; no model is asked."""

import contextlib
import sys
import time
from typing import Final

import click

from spine.appending import claimed
from spine.cli.ending import FAILS, HOLDS
from spine.cli.options import options, session_argument
from spine.cli.reading import Reading, load_plugins, reading
from spine.cli.screen import is_terminal, note, out, out_json
from spine.cli.turns import new_session_id, this_user
from spine.config import load_settings, make_store_folder
from spine.erasing import erase as erase_data
from spine.errors import LogBroken, SessionOwned, SessionShared, UsageError
from spine.forking import fork as fork_session
from spine.migrating import migrate as migrate_session
from spine.opening import open_store
from spine.owning import this_process
from spine.projectors.phrases import counted
from spine.proof.repair import in_words, repair_tail
from spine.proof.verify import report, verify
from spine.store import Owner, SessionInfo, Store
from spine.stored import StoredLog
from spine.values import Digest, SessionId, session_id

__all__ = ["COMMANDS"]


def _now() -> int:
    return time.time_ns() // 1000


def _owner() -> Owner:
    return this_process(_now(), 0)


@click.command()
@session_argument
@click.option("--at", "seq", metavar="SEQ", type=int, help="The last event to share; by default the last one.")
@click.option("--as", "child", metavar="ID", help="The fork's id; by default a new one.")
@options("store", "json")
def fork(session: str | None, seq: int | None, child: str | None, store: str | None, as_json: bool) -> int:
    """Make another session that goes on from an event of this one, and print its id."""
    with reading(store) as opened:
        source = opened.reader(session)
        # Results that no model has seen may still wait for a plugin that checks them.
        withholds = bool(load_plugins(opened.settings, opened.codec).hooks.chain("spine_post_execute"))
        child = session_id(child or new_session_id())
        done = fork_session(source, child, seq, owner=_owner(), now=_now(), withholds=withholds)
    if as_json:
        fact = {"session": done.session, "parent": done.parent, "shared": done.shared, "seq": done.seq}
        out_json({**fact, "closed": list(done.closed)})
        return HOLDS
    out(done.session)
    note(f"{done.session} shares {counted(done.shared, 'event')} with {done.parent}")
    if done.closed:
        note(f"closed in it: {', '.join(done.closed)}")
    return HOLDS


@click.command()
@session_argument
@click.option("--seq", "seqs", metavar="N", type=int, multiple=True, help="An event whose data is erased; repeatable.")
@click.option("--content", "contents", metavar="DIGEST", multiple=True, help="A content that is erased; repeatable.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; the log keeps it.")
@click.option("--by", metavar="NAME", help="Who asked for it; by default you.")
@options("store", "json")
def erase(
    session: str | None,
    seqs: tuple[int, ...],
    contents: tuple[str, ...],
    reason: str,
    by: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Erase private data for good; its digest stays, so that the log still verifies."""
    if not seqs and not contents:
        raise UsageError("nothing to erase was named", hint="spine erase ID --seq N, or --content DIGEST")
    if session is None:
        raise UsageError("erasing wants the session's id", hint="spine sessions")
    with reading(store) as opened:
        source = opened.reader(session)
        digests = tuple(map(Digest, contents))
        done = erase_data(source, seqs, digests, reason=reason, by=by or this_user(), owner=_owner(), now=_now())
    if as_json:
        parts = {"events": list(done.events), "contents": list(done.contents), "beside": list(done.beside)}
        out_json({"session": source.session, **parts, "sessions": list(done.sessions)})
        return HOLDS
    what = [f"seq {', '.join(map(str, done.events))}"] if done.events else []
    out(f"{source.session}: erased {', '.join([*what, *done.contents])}")
    if len(done.sessions) > 1:
        note(f"also in {', '.join(done.sessions[1:])}")
    for digest in done.beside:
        note(f"an erased event referred to {digest}, which is still there")
    return HOLDS


@click.command()
@click.argument("session")
@click.option("--detach", is_flag=True, help="Copy what forks share with it into them first.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options("store")
def delete(session: str, detach: bool, yes: bool, store: str | None) -> int:
    """Delete a session for good, with the contents that only it refers to."""
    with reading(store) as opened:
        source = opened.reader(session)
        seq = source.head[0]
        if not yes and not _agreed(f"Delete {source.session} with {counted(seq, 'event')}?"):
            raise UsageError(f"{source.session} was not deleted: nobody agreed", hint=f"spine delete {session} --yes")
        with claimed(opened.store, source.session, _owner(), _now()) as claim:
            if detach:
                _detach_forks(opened, source.session)
            opened.store.delete(source.session, claim.token)
    out(f"{source.session}: deleted, {counted(seq, 'event')}")
    return HOLDS


def _agreed(question: str) -> bool:
    return is_terminal(sys.stdin) and click.confirm(question, err=True)


def _detach_forks(opened: Reading, session: SessionId) -> None:
    for info in opened.store.sessions():
        if info.base == session:
            with claimed(opened.store, info.id, _owner(), _now()) as claim:
                copied = opened.store.detach(info.id, claim.token)
            note(f"{info.id}: {counted(copied, 'event')} copied into it")


@click.command()
@click.option("--repair", is_flag=True, help="Write the storage anew, and cut damaged ends of logs.")
@options("store", "json")
def check(repair: bool, store: str | None, as_json: bool) -> int:
    """Check the storage itself, and every session in it; exit status 1 when something does not hold."""
    with reading(store) as opened:
        problems = opened.store.check(repair=repair)
        infos = opened.store.sessions()
        failed = [info.id for info in infos if not _holds(opened, info.id, repair=repair, is_silent=as_json)]
        url = opened.store.url
    if as_json:
        out_json({"store": url, "problems": problems, "sessions": len(infos), "broken": failed})
    else:
        for problem in problems:
            out(f"{url}: {problem}")
        storage = "storage sound" if not problems else counted(len(problems), "problem")
        out(f"{url}  {storage} · {counted(len(infos), 'session')}, {len(infos) - len(failed):,} verified")
    return FAILS if problems or failed else HOLDS


def _holds(opened: Reading, session: SessionId, *, repair: bool, is_silent: bool) -> bool:
    found = verify(StoredLog(opened.store, opened.codec, session))
    if found.verdict == "broken" and repair:
        reader = StoredLog(opened.store, opened.codec, session)
        try:
            told = in_words(session, repair_tail(reader, owner=_owner(), now=_now()))
        except (LogBroken, UsageError, SessionOwned, SessionShared) as error:
            told = f"not repaired: {error.message}"
        note(told)
        found = verify(StoredLog(opened.store, opened.codec, session))
    if found.verdict == "broken" and not is_silent:
        out(report(found))
    return found.verdict != "broken"


@click.command()
@click.argument("target")
@options("store", "json")
def migrate(target: str, store: str | None, as_json: bool) -> int:
    """Write every session anew into the store TARGET, and prove that each comes out equal."""
    settings = load_settings(arguments={"store": target})
    with reading(store) as opened:
        plugins, url = load_plugins(opened.settings, opened.codec), settings.store or ""
        make_store_folder(url)
        with contextlib.closing(open_store(url, plugins.registries)) as written:
            verdicts = [_migrated(opened, written, info, as_json=as_json) for info in _parents_first(opened)]
    return FAILS if "broken" in verdicts else HOLDS


def _parents_first(opened: Reading) -> list[SessionInfo]:
    waiting = {info.id: info for info in opened.store.sessions()}
    ordered: dict[SessionId, SessionInfo] = {}
    while waiting:
        ready = [info for info in waiting.values() if info.base not in waiting]
        ordered.update({info.id: info for info in ready})
        for info in ready:
            del waiting[info.id]
    return list(ordered.values())


def _migrated(opened: Reading, target: Store, info: SessionInfo, *, as_json: bool) -> str:
    source = StoredLog(opened.store, opened.codec, info.id)
    done = migrate_session(source, target, owner=_owner(), now=_now(), base=info.base)
    found = verify(StoredLog(target, opened.codec, info.id))
    heads = [f"{seq}:{hash.hex()[:12]}" for seq, hash in (done.old_head, done.new_head)]
    if as_json:
        out_json({"session": info.id, "upcast": done.upcast, "heads": heads, "verdict": found.verdict})
        return found.verdict
    chain = "the same head" if heads[0] == heads[1] else f"head {heads[0]}, now {heads[1]}"
    news = f"{counted(done.events, 'event')}, {done.upcast:,} in a newer version"
    out(f"{info.id}  {found.verdict} · {news} · projections equal · {chain}")
    return found.verdict


COMMANDS: Final = {"fork": fork, "erase": erase, "delete": delete, "check": check, "migrate": migrate}
