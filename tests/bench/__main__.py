"""`python -m tests.bench`: GossipKV beside its peers, in one run on one machine.

Prints the table of `docs/development/performance.md`.  `--quick` is the same with little data: it shows that the
benchmark works, and its ratios mean nothing.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import machine, report
from tests.bench.measurement import Bench
from tests.bench.parts import GROUPS, PARTS

if TYPE_CHECKING:
    from tests.bench.measurement import Measurement

PLACES = {"engines": "figures"}  # Marked so in the page; the other groups by their own names.
SIZED = ("engines", "larger-than-memory")  # The groups whose sizes the command line may change.


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little data: a test of the benchmark, not of the store")
    parser.add_argument("--keys", type=int, help="records in each file")
    parser.add_argument("--records", type=int, help="records of the rows about data larger than memory")
    parser.add_argument("--rounds", type=int, help="rounds of each reading row, after one that does not count")
    parser.add_argument("--queries", type=int, help="keys asked of each engine in a round of a reading row")
    parser.add_argument(
        "--only",
        choices=[*dict.fromkeys([*GROUPS, *PARTS])],
        action="append",
        help="this part or group of parts; may be given again",
    )
    parser.add_argument("--peers", help="comma-separated names; default: all that are installed")
    parser.add_argument("--core", type=int, help="the core to run on; default: the last")
    parser.add_argument("--directory", type=Path, help="where the files go; default: a temporary directory")
    parser.add_argument("--json", type=Path, help="write every figure of every round here")
    parser.add_argument("--document", type=Path, help="put the table between the marks of this Markdown file")
    return parser.parse_args()


def run(name: str, options: argparse.Namespace, *, sized: bool) -> Bench:
    """One part, in a directory of its own, of which nothing is left."""
    machine.say(f"{name}:")
    part = PARTS[name]
    sizes = dict(part.quick) if options.quick else {}
    for size in inspect.signature(part.measure).parameters if sized else ():
        if getattr(options, size, None) is not None:
            sizes[size] = getattr(options, size)
    peers = None if options.peers is None else frozenset(options.peers.split(","))
    with tempfile.TemporaryDirectory(prefix="gossipkv-bench-", dir=options.directory) as directory:
        bench = Bench(Path(directory), peers, options.core)
        if bench.takes_part(name, part.missing()):
            part.measure(bench, **sizes)
    return bench


def main() -> None:
    """Measure what was asked for, then print the tables."""
    options = arguments()
    measured: list[Measurement] = []
    texts = {}
    for group, parts in GROUPS.items():
        names = [name for name in parts if not options.only or {name, group} & {*options.only}]
        benches = [run(name, options, sized=group in SIZED) for name in names]
        found = [measurement for bench in benches for measurement in bench.measurements()]
        if benches:
            texts[PLACES.get(group, group)] = report.text(found, [note for bench in benches for note in bench.notes])
        measured += found
    print("\n\n".join(texts.values()))
    if options.document is not None:
        for place, text in texts.items():
            report.write_into(options.document, text, place)
    if options.json is not None:
        report.write_json(options.json, {"texts": texts, "quick": options.quick, "arguments": sys.argv[1:]}, measured)


if __name__ == "__main__":
    main()
