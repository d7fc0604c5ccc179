"""The story of the killed payment, told with this runtime alone: paid once, and the truth."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_payment_whose_process_was_killed_is_made_once_and_told_truly() -> None:
    command = [sys.executable, "-m", "benchmarks.crash_story", f"ours={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert "paid 1 x" in done.stdout
    assert "the model is told: interrupted: The process ended while this call was running." in done.stdout
