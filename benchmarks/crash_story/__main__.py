"""`python -m benchmarks.crash_story NAME=PYTHON …`: tell the story with each runtime's own interpreter.

NAME is ours, openai_agents or langgraph. Prints a line for each: how often was paid, and what the model was told.
"""

import importlib.metadata
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = {"ours": "agent-spine", "openai_agents": "openai-agents", "langgraph": "langgraph"}


def tell(name: str, python: str) -> str:
    """Two processes: the first is killed in the tool, the second goes on."""
    with tempfile.TemporaryDirectory(prefix="spine-story-") as folder:
        command = [python, str(HERE / f"story_{name}.py"), folder]
        first = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        second = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        payments = Path(folder, "payments")
        paid = len(payments.read_text().splitlines()) if payments.exists() else 0
    said = [line.partition(": ")[2] for line in second.stdout.splitlines() if line.startswith("the model is told: ")]
    told = said[-1] if said else f"nothing (it ended with {_last(second.stderr)})"
    if first.returncode != -9:
        told = f"the first process was not killed: {_last(first.stderr)}"
    return f"{f'{PACKAGES[name]} {version(name, python)}':<24} paid {paid} x   the model is told: {told}"


def version(name: str, python: str) -> str:
    """The version that an interpreter has installed."""
    if python == sys.executable:
        return importlib.metadata.version(PACKAGES[name])
    code = f"import importlib.metadata as m; print(m.version({PACKAGES[name]!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else "no error"


def main() -> None:
    """Tell it with each interpreter given."""
    for given in sys.argv[1:] or [f"ours={sys.executable}"]:
        name, _, python = given.partition("=")
        print(tell(name, python or sys.executable), flush=True)


if __name__ == "__main__":
    main()
