"""`python -m benchmarks [--json] [--strict] [T1 T5 …]`: take figures and judge them.

Exit status 1 with --strict when a bound is missed.
"""

import argparse
import sys

from benchmarks.calibration import measure_blocks
from benchmarks.figures import Figure
from benchmarks.ideas import run_ideas, wanted_ideas
from benchmarks.report import to_json, to_table
from benchmarks.workload import FULL


def main(arguments: list[str] | None = None) -> int:
    """Measure what was asked for; the table on stdout, progress on stderr."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the runtime against floors.")
    parser.add_argument("--json", action="store_true", help="print facts instead of a table")
    parser.add_argument("--strict", action="store_true", help="end with status 1 when a bound is missed")
    parser.add_argument("numbers", nargs="*", metavar="T1", help="targets to measure; all of them when left out")
    given = parser.parse_args(arguments)
    try:
        ideas = wanted_ideas([number.upper() for number in given.numbers])
    except ValueError as error:
        parser.error(str(error))
    rows = []
    for row in run_ideas(ideas, FULL):
        rows.append(row)
        print(row[0].key, end=" ", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    blocks = measure_blocks(FULL.calls)
    print((to_json if given.json else to_table)(rows, blocks))
    missed = any(figure.judge(factor).word == "MISSED" for figure, factor in rows if isinstance(figure, Figure))
    return 1 if missed and given.strict else 0


sys.exit(main())
