"""`python -m tests.bench`: GossipKV beside its peers, in one run on one machine.

Prints a table for each part. `--figures docs/development/figures` writes the figures that `make reference` puts
on a page. `--quick` is the same with little data: it shows that the benchmark works, and its ratios mean nothing.
"""

from __future__ import annotations

import argparse
import inspect
import tempfile
from pathlib import Path

from tests.bench import figures, machine, report
from tests.bench.measurement import Bench
from tests.bench.parts import PARTS

SIZES = ("keys", "records", "rounds", "queries")  # The command line may change these.


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little data: a test of the benchmark, not of the store")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; may be given again")
    for size in SIZES:
        parser.add_argument(f"--{size}", type=int, help=f"how many {size}, of parts that have such a size")
    parser.add_argument("--peers", help="comma-separated names; default: all that are installed")
    parser.add_argument("--core", type=int, help="the core to run on; default: the last")
    parser.add_argument("--directory", type=Path, help="where files go meanwhile; default: a temporary directory")
    parser.add_argument("--json", type=Path, help="write every figure of every round here")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="write the figures of each part to DIR/PART.json")
    return parser.parse_args()


def run(name: str, options: argparse.Namespace) -> Bench:
    machine.say(f"{name}:")
    part = PARTS[name]
    sizes = dict(part.quick) if options.quick else {}
    for size in SIZES:
        if getattr(options, size) is not None and size in inspect.signature(part.measure).parameters:
            sizes[size] = getattr(options, size)
    peers = None if options.peers is None else frozenset(options.peers.split(","))
    with tempfile.TemporaryDirectory(prefix="gossipkv-bench-", dir=options.directory) as directory:
        bench = Bench(Path(directory), peers, options.core)
        if bench.takes_part(name, part.missing()):
            part.measure(bench, **sizes)
    return bench


def main() -> None:
    options = arguments()
    measured = []
    for name in options.only or PARTS:
        bench = run(name, options)
        found = bench.measurements()
        measured += found
        print(report.text(name, found, bench.notes))
        if options.figures is not None and found:
            figures.write(options.figures / f"{name}.json", figures.record(name, found, bench.notes))
    if options.json is not None:
        report.write_json(options.json, measured)


if __name__ == "__main__":
    main()
