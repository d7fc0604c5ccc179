"""`python -m scenarios.live`: hold the conversation, print the transcript of its first session and the figures."""

import sys
import tempfile
from pathlib import Path

from scenarios.live.conversation import hold_conversation
from scenarios.live.host import served_model
from scenarios.live.project import write_project
from scenarios.live.weights import missing


def main() -> int:
    """Exit status 0 when everything holds, 2 when the model cannot run here."""
    absent = missing()
    if absent is not None:
        print(absent, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, served_model() as address:
        project = write_project(Path(folder), address)
        figures = hold_conversation(project)
        print(project.spine("transcript", "talk").out)
    print(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
