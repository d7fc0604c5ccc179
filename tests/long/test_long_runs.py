"""The long runs in short form: the same programs that the make targets start, with small counts."""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SHORT = {
    "crash": ("crash.py", "--count", "60", "--turns", "pay,slow hook,parallel", "--share", "29", "--workers", "1"),
    "crash postgres": ("crash.py", "--store", "postgres", "--count", "36", "--turns", "pay", "--share", "9"),
    "damage": ("damage.py", "--count", "150", "--events", "60", "--workers", "1"),
    "inbox": ("inbox.py", "--count", "24"),
    "power": ("power.py", "--count", "400", "--batches", "12", "--workers", "1"),
    "prefix-law": ("prefix_law.py", "--count", "1200", "--stride", "7"),
    "soak": ("soak.py", "--count", "200", "--seconds", "4"),
    "values": ("values.py", "--count", "4000", "--workers", "1"),
    "diskfull": ("diskfull.py", "--turns", "text", "--step", "150000", "--share", "4"),
}
NEEDS_APSW = {"power", "diskfull"}


@pytest.mark.parametrize("name", SHORT)
def test_nothing_is_lost_in_a_short_run(name: str) -> None:
    """Exit status 0, and one line of figures that says so."""
    if name in NEEDS_APSW and importlib.util.find_spec("apsw") is None:
        pytest.skip("apsw is not installed: no disk of our own under SQLite")
    program, *arguments = SHORT[name]
    where = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
    command = [sys.executable, str(HERE / program), *arguments, "--where", str(where)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    line = done.stdout.splitlines()[-1]
    if "left out" in line:
        pytest.skip(line)
    assert line.startswith(f"{name.split()[0]}: ")
    assert "commit " in line
    assert any(f"{word} 0" in line for word in ("lost", "missed")), line
