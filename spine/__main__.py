"""`python -m spine`, and the console script (floor 15)."""

import gc
import signal
import sys

from spine.cli import cli
from spine.cli.ending import INTERRUPTED

GC_THRESHOLD = 50_000
"""Objects between two looks of the garbage collector; Python's own 700 costs a short command a tenth of its time."""


def main() -> None:
    """Run the command line and exit with its status."""
    gc.set_threshold(GC_THRESHOLD)
    try:
        cli()
    except KeyboardInterrupt:  # while the commands were still being imported
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left that would want to be told of Ctrl-C
        gc.freeze()  # all that is left goes with the process: looking through it once more would take 30 ms


if __name__ == "__main__":
    main()
