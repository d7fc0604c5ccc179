"""The crash sweep over canonical turns: every turn, every failpoint, every way to end, and again during recovery.

python crash.py [--count 100000] [--store postgres] [--where FOLDER] [--durability full] [--turns pay] [--loops trio]

A trial is a process that begins a turn and is killed, or hangs and is then killed, or meets an exception or a cancel,
at one failpoint; further processes finish the turn; one more judges. In a double trial the process that recovers is
killed as well. Single trials are exhaustive and come first; double ones follow until COUNT processes were killed.
Prints one line of figures; exit status 1 when anything was lost, doubled, untrue or not resumed.
"""

import argparse
import gc
import itertools
import math
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import anyio
from anyio.lowlevel import current_token
from children import Server, in_child, in_workers
from conditions import conditions, count
from crash_folder import Folder
from crash_process import acknowledged, judge, judge_next, live
from crash_turns import TURNS
from postgres_server import Missing, postgres_server

from spine.errors import StoreUnavailable
from spine.testing.failpoints import Failpoint, Failpoints

KILLS = ("kill", "hang")
WAYS = (*KILLS, "raise", "cancel")
GROUP = "calls._run_group"
"""Waits for a group of tasks: only the tasks in it can fail; trio takes an exception from its own wait for a bug."""
HANG_S = 0.01
TRIES = 3
MAX_TOLD = 20


class Scene(NamedTuple):
    """A canonical turn on an event loop."""

    turn: str
    loop: str


class Trial(NamedTuple):
    """Where and how a first process ends, and where the recovering one is killed (None: nowhere)."""

    scene: Scene
    at: Failpoint
    way: str
    again: Failpoint | None = None

    def __str__(self) -> str:
        again = f", then killed at {self.again}" if self.again else ""
        return f"{self.scene.turn} on {self.scene.loop}: {self.way} at {self.at}{again}"


class Injected(Exception):
    """Raised at a failpoint outside the store."""


# ------------------------------------------------------------------------------------------------------- processes


def be_process(scene: Scene, folder: Folder, durability: str, failpoints: Failpoints, *, is_next: bool = True) -> Any:
    """Be a process to its end; its status and history."""

    async def main() -> Any:
        return await live(scene.turn, folder, failpoints, durability=durability, is_next=is_next)

    return anyio.run(main, backend=scene.loop)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_later() -> None:
    timer = threading.Timer(HANG_S, kill)
    timer.daemon = True
    timer.start()


def dying(at: Failpoint, way: str) -> Failpoints:
    """Failpoints at which the process is killed: at once, or after it hung for a while."""
    return Failpoints(at, kill) if way == "kill" else Failpoints(at, kill_later, hangs=True)


def suffer(scene: Scene, folder: Folder, durability: str, at: Failpoint, way: str) -> bool:
    """Be a process that meets an exception or a cancel at `at`, and lives on; whether it did."""
    held: dict[str, Any] = {}

    def fail() -> None:
        raise StoreUnavailable("injected") if at.name.startswith("store.") else Injected("injected")

    def cancel() -> None:
        if threading.current_thread() is threading.main_thread():
            held["scope"].cancel()
        else:
            anyio.from_thread.run_sync(held["scope"].cancel, token=held["token"])

    failpoints = Failpoints(at, fail if way == "raise" else cancel)

    async def main() -> None:
        held["token"] = current_token()
        with anyio.CancelScope() as held["scope"]:
            await live(scene.turn, folder, failpoints, durability=durability, is_next=False)

    with suppress(StoreUnavailable, Injected):
        anyio.run(main, backend=scene.loop)
    return failpoints.has_struck


# ---------------------------------------------------------------------------------------------------------- trials


class Sweep:
    """One worker's trials and what came of them."""

    def __init__(self, where: Path, durability: str, server: str | None = None) -> None:
        self.where, self.durability, self.server = where, durability, server
        self.counts: Counter[str] = Counter()
        self.struck: set[tuple[str, str]] = set()
        self.known: set[tuple[str, str]] = set()
        self.told: list[str] = []
        self._ends: dict[Scene, tuple[list[Failpoint], Any]] = {}
        self._finisher = Server(lambda request: request[0](*request[1:]))

    def close(self) -> None:
        """Let the process end that finishes what the dead began."""
        self._finisher.close()

    @property
    def killed(self) -> int:
        """Processes killed so far."""
        return self.counts["kill"] + self.counts["hang"] + self.counts["again"]

    def uninterrupted(self, scene: Scene) -> tuple[list[Failpoint], Any]:
        """All failpoints of a turn that nobody interrupts, and how it ends."""
        if scene not in self._ends:
            with self._folder() as folder:
                self._ends[scene] = self._finisher.ask((watched, scene, folder, self.durability, False))
            self.known |= {(scene.turn, at.name) for at in self._ends[scene][0]}
        return self._ends[scene]

    def single(self, trial: Trial) -> None:
        """One process ends at a failpoint, the next one finishes."""
        for _ in range(TRIES):
            with self._folder() as folder:
                if trial.way in KILLS and not self._dies(trial.scene, folder, trial.at, trial.way, is_next=False):
                    continue
                found = self._finish(trial, folder, then=True)
                if found["struck"]:
                    self.struck.add((trial.scene.turn, trial.at.name))
                    self._note(trial, found)
                    return
        self.counts["missed"] += 1

    def doubles(self, trial: Trial, limit: Callable[[], bool]) -> None:
        """One process is killed, and the one that recovers is killed at each of its own failpoints in turn."""
        with self._folder() as first:
            if not self._dies(trial.scene, first, trial.at, "kill", is_next=False):
                return
            self.counts["kill"] += 1
            with self._folder() as folder:
                first.copy_to(folder)
                hits = self._finish(trial, folder)["hits"]
            for at in itertools.takewhile(lambda _: not limit(), hits):
                again = trial._replace(again=at)
                with self._folder() as folder:
                    first.copy_to(folder)
                    if self._dies(trial.scene, folder, at, "kill", is_next=True):
                        self._note(again, self._finish(again, folder))
                    else:
                        self.counts["missed"] += 1

    def _dies(self, scene: Scene, folder: Folder, at: Failpoint | None, way: str, *, is_next: bool) -> bool:
        def work() -> Any:
            return be_process(scene, folder, self.durability, dying(at, way), is_next=is_next)

        return in_child(work).was_killed

    def _finish(self, trial: Trial, folder: Folder, *, then: bool = False) -> Any:
        """What a process finds that finishes the turn and judges it; `then` it goes on with another turn."""
        _, whole = self.uninterrupted(trial.scene)
        try:
            return self._finisher.ask((finish, trial, folder, self.durability, whole, then))
        except RuntimeError as error:  # it could not go on at all
            text = str(error).strip().splitlines()[-1]
            return {"status": None, "hits": [], "struck": True, "problems": [text], "acknowledged": 0}

    def _note(self, trial: Trial, found: Any) -> None:
        self.counts["again" if trial.again else trial.way] += 1
        self.counts["acknowledged"] += found["acknowledged"]
        self.counts["judged"] += 1
        self.counts["resumed"] += found["status"] is not None
        for problem in found["problems"]:
            self.counts[f"problem {problem.split()[0]}"] += 1
            if len(self.told) < MAX_TOLD:
                self.told.append(f"{trial}: {problem}")

    def _folder(self) -> "_TrialFolder":
        return _TrialFolder(self.where, self.server)


def watched(scene: Scene, folder: Folder, durability: str, is_next: bool) -> tuple[list[Failpoint], Any]:
    """Be a process to its end; the failpoints it passed, and its status and history."""
    failpoints = Failpoints()
    end = be_process(scene, folder, durability, failpoints, is_next=is_next)
    return failpoints.hits, end


def finish(trial: Trial, folder: Folder, durability: str, whole: Any, then: bool) -> Any:
    """Be the process that finishes a trial's turn (for raises and cancels: the one that suffered it), and judge."""
    scene, hits, struck = trial.scene, [], True
    if trial.way in KILLS:
        hits, end = watched(scene, folder, durability, True)
    else:
        struck = suffer(scene, folder, durability, trial.at, trial.way)
        end = be_process(scene, folder, durability, Failpoints())
    problems = judge(scene.turn, folder, end, whole, same_end=trial.way in KILLS)
    if end["status"] not in _allowed(trial, whole):
        problems.append(f"the turn ended {end['status']}")
    if then:
        problems += anyio.run(judge_next, scene.turn, folder, backend=scene.loop)
    last = acknowledged(folder)[-1:]
    return {
        "status": end["status"],
        "hits": hits,
        "struck": struck,
        "problems": problems,
        "acknowledged": last[0][0] if last else 0,
    }


class _TrialFolder:
    """A folder for the time of a trial."""

    def __init__(self, where: Path, server: str | None) -> None:
        self._where, self._server = where, server

    def __enter__(self) -> Folder:
        self._folder = Folder(Path(tempfile.mkdtemp(prefix="spine-crash-", dir=self._where)), self._server)
        return self._folder

    def __exit__(self, *error: object) -> None:
        self._folder.remove()


def _allowed(trial: Trial, whole: Any) -> set[str]:
    """The statuses that a turn may end with."""
    if trial.way == "raise":
        return {"completed", "failed", "cancelled"}
    if trial.way == "cancel" or TURNS[trial.scene.turn].is_stopped:
        return {"completed", "cancelled"}
    return {whole["status"]}


# ------------------------------------------------------------------------------------------------------------ main


def work(given: argparse.Namespace, number: int) -> Any:
    """One worker's share: its single trials, then double ones until its part of COUNT is reached."""
    sweep = Sweep(given.where, given.durability, given.server)
    scenes = [Scene(turn, loop) for turn in given.turns for loop in given.loops]
    random.Random(given.seed).shuffle(scenes)
    goal, end = -(-given.count // given.workers), time.monotonic() + given.seconds

    def is_done() -> bool:
        return sweep.killed >= goal or time.monotonic() > end

    for trial in itertools.islice(_singles(sweep, scenes), number * given.share, None, given.workers * given.share):
        sweep.single(trial)
    while not is_done():
        rng = random.Random(given.seed + number + sweep.killed)
        kills = [trial for trial in _singles(sweep, scenes) if trial.way == "kill"]
        rng.shuffle(kills)
        for trial in kills:
            if is_done():
                break
            sweep.doubles(trial, is_done)
    sweep.close()
    return {
        "counts": sweep.counts,
        "told": sweep.told,
        "struck": [*map(list, sweep.struck)],
        "known": [*map(list, sweep.known)],
    }


def _singles(sweep: Sweep, scenes: list[Scene]) -> Iterator[Trial]:
    for scene in scenes:
        for at in sweep.uninterrupted(scene)[0]:
            yield from (Trial(scene, at, way) for way in WAYS if way != "raise" or not at.name.endswith(GROUP))


def main(arguments: list[str] | None = None) -> int:
    """Sweep and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=2000, help="processes to kill at least")
    parser.add_argument("--share", type=int, default=1, help="only each so many-th of the single trials")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no double trial begins after so long")
    parser.add_argument("--store", default="sqlite", choices=("sqlite", "postgres"))
    parser.add_argument("--where", type=Path, default=Path("/dev/shm"), help="folder for the files")
    parser.add_argument("--durability", default="full", choices=("full", "relaxed"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--turns", type=lambda text: text.split(","), default=list(TURNS))
    parser.add_argument("--loops", type=lambda text: text.split(","), default=["asyncio", "trio"])
    given = parser.parse_args(arguments)
    try:
        with postgres_server() if given.store == "postgres" else nullcontext() as given.server:
            return sweep(given)
    except Missing as missing:
        print(f"crash: {given.store} left out: {missing}")
        return 0


def sweep(given: argparse.Namespace) -> int:
    """Let the workers sweep, and print."""
    began = time.monotonic()
    warm_up(given.server)
    gc.freeze()  # children share what is there now, and touch none of it
    results = in_workers([lambda number=number: work(given, number) for number in range(given.workers)])
    return report(given, results, time.monotonic() - began)


def warm_up(server: str | None) -> None:
    """Do here what every process does once and its children then need not: late imports, made code, caches."""
    for loop in ("asyncio", "trio"):
        for turn in ("approval", "parallel", "blob"):
            with _TrialFolder(Path(tempfile.gettempdir()), server) as folder:
                end = be_process(Scene(turn, loop), folder, "full", Failpoints(), is_next=False)
                judge(turn, folder, end, end, same_end=True)
    while threading.active_count() > 1:  # a fork copies no thread
        time.sleep(0.01)


def report(given: argparse.Namespace, results: list[Any], seconds: float) -> int:
    """The line of figures, and what went wrong before it; 1 when something did."""
    counts: Counter[str] = sum((Counter(result["counts"]) for result in results), Counter())
    struck, known = ({tuple(pair) for result in results for pair in result[name]} for name in ("struck", "known"))
    for line in [line for result in results for line in result["told"]][:MAX_TOLD]:
        print(f"  {line}")
    problems = {name.removeprefix("problem "): number for name, number in counts.items() if name.startswith("problem ")}
    crashes = counts["kill"] + counts["hang"] + counts["again"]
    sync = given.durability if given.store == "sqlite" else f"{given.durability}, fsync off"
    others = sum(number for word, number in problems.items() if word not in ("LOST", "HARM", "UNTRUE"))
    print(
        f"crash: {count(crashes)} processes killed ({count(counts['hang'])} after a hang, {count(counts['again'])} in "
        f"recovery), {count(counts['raise'])} raises, {count(counts['cancel'])} cancels · {len(given.turns)} turns, "
        f"{len(struck & known)} of {len(known)} (turn, failpoint) pairs covered, {counts['missed']} missed · "
        f"acknowledged {count(counts['acknowledged'])}, lost {problems.get('LOST', 0)} · ran twice "
        f"{problems.get('HARM', 0)}, untrue {problems.get('UNTRUE', 0)}, other differences {others} · resumed "
        f"{count(counts['resumed'])} of {count(counts['judged'])} · {seconds:.0f} s, {crashes / seconds:.0f}/s · "
        + conditions(given.where, seed=given.seed, sync=sync, loops="+".join(given.loops), store=given.store)
    )
    return 1 if problems or (len(struck & known) < len(known) and given.share == 1) else 0


if __name__ == "__main__":
    sys.exit(main())
