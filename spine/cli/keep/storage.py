"""`check` and `migrate` (floor 15): the storage and every session in it, examined, mended or written anew elsewhere."""

import contextlib
from typing import Final

import click

from spine.cli.acting import now, this_owner
from spine.cli.ending import FAILS, HOLDS
from spine.cli.options import options
from spine.cli.reading import Reading, load_plugins, reading
from spine.cli.screen import note, out, out_json
from spine.config import load_settings, make_store_folder
from spine.errors import LogBroken, SessionOwned, SessionShared, UsageError
from spine.migrating import migrate as migrate_session
from spine.opening import open_store
from spine.projectors.phrases import counted
from spine.proof.repair import in_words, repair_tail
from spine.proof.verify import report, verify
from spine.store import SessionInfo, Store
from spine.stored import StoredLog
from spine.values import SessionId

__all__ = ["COMMANDS"]


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
            told = in_words(session, repair_tail(reader, owner=this_owner(), now=now()))
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
    done = migrate_session(source, target, owner=this_owner(), now=now(), base=info.base)
    found = verify(StoredLog(target, opened.codec, info.id))
    heads = [f"{seq}:{hash.hex()[:12]}" for seq, hash in (done.old_head, done.new_head)]
    if as_json:
        out_json({"session": info.id, "upcast": done.upcast, "heads": heads, "verdict": found.verdict})
        return found.verdict
    chain = "the same head" if heads[0] == heads[1] else f"head {heads[0]}, now {heads[1]}"
    news = f"{counted(done.events, 'event')}, {done.upcast:,} in a newer version"
    out(f"{info.id}  {found.verdict} · {news} · projections equal · {chain}")
    return found.verdict


COMMANDS: Final = {"check": check, "migrate": migrate}
