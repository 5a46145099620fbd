"""`python -m tests.bench`: GossipKV beside its peers, in one run on one machine.

Prints the table of `docs/development/performance.md`.  `--quick` is the same with little data: it shows that the
benchmark works, and its ratios mean nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import building, data, engines, goals, machine, reading, report, serving
from tests.bench.clients import parts as clients
from tests.bench.cluster import parts as cluster
from tests.bench.datasets import queued_builds, restart, scrub, sequence_files, switching, two_lanes
from tests.bench.gossip import parts as gossip
from tests.bench.http import parts as http
from tests.bench.memory import parts as memory
from tests.bench.network import parts as network
from tests.bench.network import pings
from tests.bench.register import parts as register
from tests.bench.store import parts as store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.measurement import Measurement
    from tests.bench.peers.base import Engine

MIB = 1 << 20


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    keys: int = 1_000_000
    rounds: int = 15
    queries: int = reading.QUERIES
    build_rounds: int = 5
    budget_bytes: int = 96 * MIB  # Little: the child itself takes 25, and a line may be 16.
    sorted_bytes: int = 960 * MIB
    serving: serving.Load = field(default_factory=serving.Load)
    sequence: sequence_files.Load = field(default_factory=sequence_files.Load)
    lanes: two_lanes.Load = field(default_factory=two_lanes.Load)
    queue: queued_builds.Load = field(default_factory=queued_builds.Load)
    restart: restart.Load = field(default_factory=restart.Load)
    switching: switching.Load = field(default_factory=switching.Load)
    scrub: scrub.Load = field(default_factory=scrub.Load)
    network: network.Load = field(default_factory=network.Load)
    clients: clients.Load = field(default_factory=clients.Load)
    gossip: gossip.Load = field(default_factory=gossip.Load)
    cluster: cluster.Load = field(default_factory=cluster.Load)
    http: http.Load = field(default_factory=http.Load)
    store: store.Load = field(default_factory=store.Load)
    register: register.Load = field(default_factory=register.Load)
    memory: memory.Load = field(default_factory=memory.Load)


QUICK = Sizes(
    keys=20_000,
    rounds=2,
    build_rounds=1,
    sorted_bytes=16 * MIB,
    serving=serving.Load(served_records=2_000, built_bytes=4 * MIB, small_builds=2, idle_s=0.3, rounds=1),
    sequence=sequence_files.Load(short=20_000, long=10_000, rounds=1),
    lanes=two_lanes.Load(records=400_000, loop=2_000_000, rounds=1),  # Enough for lanes to be started at all.
    queue=queued_builds.Load(builds=2, rounds=1),
    restart=restart.Load(databases=2, total_bytes=8 * MIB, rounds=1),
    switching=switching.Load(keys=1_000, warming_s=0.1, before_s=0.3, rounds=1),
    scrub=scrub.Load(total_bytes=16 * MIB, run_s=0.3, rounds=1, records=2_000, short_rounds=1),
    clients=clients.Load(keys=1_000, gets=200, batches=20, concurrent_gets=640, rounds=1),
    gossip=gossip.QUICK,
    cluster=cluster.QUICK,
    http=http.QUICK,
    store=store.QUICK,
    register=register.QUICK,
    memory=memory.QUICK,
    network=network.Load(
        keys=1_000,
        cold_keys=2_000,
        connections=(20, 30, 40),
        chunks=2,
        chunk_requests=20,
        run_s=0.05,
        idle_s=1.2,
        rounds=1,
        pings=pings.Load(batches=(4, 100), gets=(4, 20), scans=(2, 2)),
    ),
)
LARGE_BUILD_ROUNDS = 3  # Each engine writes a gigabyte a round.


@dataclass(frozen=True)
class Run:
    """What every part of a run is given."""

    sizes: Sizes
    entrants: engines.Field
    directory: Path
    # What the rows of a group have to say beside their figures.
    notes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def place(self, name: str) -> Path:
        """A new directory of its own for one part."""
        path = self.directory / name
        path.mkdir()
        return path

    def read(
        self, name: str, who: tuple[type[Engine], ...], what: tuple[reading.Reading, ...], records: data.Data
    ) -> Iterator[Measurement]:
        """The rows of one set of engines that are open together."""
        place = self.place(name)
        with engines.opened(self.entrants.of(who), records, place) as ready:
            for each in what:
                machine.say(f"  {each.row}")
                yield reading.measure(each, ready, records, rounds=self.sizes.rounds, queries=self.sizes.queries)
        building.remove(place)

    def size(self, records: data.Data) -> Measurement:
        """The row about the size of files."""
        place = self.place("size")
        files = {engine.name: place / f"{number}.gkv" for number, engine in enumerate(self.entrants.of(engines.BUILD))}
        for engine in self.entrants.of(engines.BUILD):
            engine.build(files[engine.name], records.records)
        measurement = building.measure_size(files, records)
        building.remove(place)
        return measurement

    def small(self) -> Iterator[Measurement]:
        """Values of 100 bytes: reads, builds, sizes."""
        records = data.make(self.sizes.keys, data.SMALL_VALUE_BYTES)
        yield from self.read("small", engines.READ_SMALL, reading.SMALL, records)
        yield from self.read("compressed", engines.READ_COMPRESSED, reading.COMPRESSED, records)
        machine.say(f"  {goals.BUILD_SMALL}")
        who = self.entrants.of(engines.BUILD)
        yield building.measure_time(goals.BUILD_SMALL, who, records, self.directory, rounds=self.sizes.build_rounds)
        yield self.size(records)

    def large(self) -> Iterator[Measurement]:
        """Values of a kibibyte: reads and builds."""
        records = data.make(self.sizes.keys, data.LARGE_VALUE_BYTES)
        yield from self.read("large", engines.READ_LARGE, reading.LARGE, records)
        machine.say(f"  {goals.BUILD_LARGE}")
        who = self.entrants.of(engines.BUILD)
        rounds = min(LARGE_BUILD_ROUNDS, self.sizes.build_rounds)
        yield building.measure_time(goals.BUILD_LARGE, who, records, self.directory, rounds=rounds)

    def build_memory(self) -> Iterator[Measurement]:
        """What a build takes of memory when it may not take much."""
        machine.say(f"  {goals.BUILD_MEMORY}")
        yield building.measure_memory(
            self.place("memory"),
            budget_bytes=self.sizes.budget_bytes,
            data_bytes=self.sizes.sorted_bytes,
            value_bytes=data.SMALL_VALUE_BYTES,
        )

    def serving(self) -> Iterator[Measurement]:
        """A node, beside itself at rest and beside redis-server."""
        machine.say(f"  {goals.SERVING}")
        yield from serving.measure(self.place("serving"), self.sizes.serving)

    def sequence(self) -> Iterator[Measurement]:
        """SequenceFiles: a build against reading alone."""
        yield from self._apart(
            "sequence", lambda place: sequence_files.measure(place, self.sizes.sequence, self.notes[report.DATASETS])
        )

    def lanes(self) -> Iterator[Measurement]:
        """A large build on two cores and on one."""
        yield from self._apart(
            "lanes", lambda place: two_lanes.measure(place, self.sizes.lanes, self.notes[report.DATASETS])
        )

    def queue(self) -> Iterator[Measurement]:
        """Small builds, one after the other."""
        yield from self._apart(
            "queue", lambda place: queued_builds.measure(place, self.sizes.queue, self.notes[report.DATASETS])
        )

    def restart(self) -> Iterator[Measurement]:
        """A node that serves much, killed and started again."""
        yield from self._apart(
            "restart", lambda place: restart.measure(place, self.sizes.restart, self.notes[report.DATASETS])
        )

    def switching(self) -> Iterator[Measurement]:
        """Ten databases under load, each of which gets a new version."""
        yield from self._apart(
            "switching", lambda place: switching.measure(place, self.sizes.switching, self.notes[report.DATASETS])
        )

    def scrub(self) -> Iterator[Measurement]:
        """Reads beside a scrub."""
        yield from self._apart(
            "scrub", lambda place: scrub.measure(place, self.sizes.scrub, self.notes[report.DATASETS])
        )

    def network(self, part: str) -> Iterator[Measurement]:
        """One part of the rows about a server on one core."""
        notes = self.notes[report.NETWORK]
        yield from self._apart(part, lambda place: network.measure(part, place, self.sizes.network, notes))

    def clients(self) -> Iterator[Measurement]:
        """Clients beside the peers' clients."""
        yield from self._apart(
            "clients", lambda place: clients.measure(place, self.sizes.clients, self.notes[report.CLIENTS])
        )

    def gossip(self, part: str) -> Iterator[Measurement]:
        """One part of the rows about gossip."""
        yield from gossip.measure(part, self.sizes.gossip, self.notes[report.GOSSIP])

    def cluster(self, part: str) -> Iterator[Measurement]:
        """One part of the rows about nodes that share datasets."""
        notes = self.notes[report.CLUSTER]
        yield from self._apart(part, lambda place: cluster.measure(part, place, self.sizes.cluster, notes))

    def http(self, part: str) -> Iterator[Measurement]:
        """One part of the rows about HTTP and the load generator."""
        notes = self.notes[report.HTTP]
        yield from self._apart(part, lambda place: http.measure(part, place, self.sizes.http, notes))

    def store(self, part: str) -> Iterator[Measurement]:
        """One part of the rows about the store under the tables."""
        notes = self.notes[report.STORE]
        yield from self._apart(part, lambda place: store.measure(part, place, self.sizes.store, notes))

    def register(self, part: str) -> Iterator[Measurement]:
        """One part of the rows about what is decided."""
        notes = self.notes[report.REGISTER]
        yield from self._apart(part, lambda place: register.measure(part, place, self.sizes.register, notes))

    def larger(self, part: str) -> Iterator[Measurement]:
        """One part of the rows about data that does not fit into memory."""
        notes = self.notes[report.LARGER]
        yield from self._apart(part, lambda place: memory.measure(part, place, self.sizes.memory, notes))

    def _apart(self, name: str, measure: Callable[[Path], Iterator[Measurement]]) -> Iterator[Measurement]:
        """In a directory of its own, of which nothing is left."""
        place = self.place(name)
        yield from measure(place)
        building.remove(place)


ENGINES = {"small": Run.small, "large": Run.large, "memory": Run.build_memory, "serving": Run.serving}
DATASETS = {
    "sequence": Run.sequence,
    "lanes": Run.lanes,
    "queue": Run.queue,
    "restart": Run.restart,
    "switching": Run.switching,
    "scrub": Run.scrub,
}
NETWORK = {part: partial(Run.network, part=part) for part in network.PARTS}
CLIENTS = {"clients": Run.clients}
GOSSIP = {part: partial(Run.gossip, part=part) for part in gossip.PARTS}
CLUSTER = {part: partial(Run.cluster, part=part) for part in cluster.PARTS}
HTTP = {part: partial(Run.http, part=part) for part in http.PARTS}
STORE = {part: partial(Run.store, part=part) for part in store.PARTS}
REGISTER = {part: partial(Run.register, part=part) for part in register.PARTS}
LARGER = {part: partial(Run.larger, part=part) for part in memory.PARTS}
GROUPS = {
    "engines": ENGINES, "datasets": DATASETS, "network": NETWORK, "clients": CLIENTS, "gossip": GOSSIP,
    "cluster": CLUSTER, "http": HTTP, "store": STORE, "register": REGISTER, "larger-than-memory": LARGER,
}  # fmt: skip
PARTS = ENGINES | DATASETS | NETWORK | CLIENTS | GOSSIP | CLUSTER | HTTP | STORE | REGISTER | LARGER
PLACES = {part: place for place, parts in zip(report.PLACES, GROUPS.values(), strict=True) for part in parts}
PINNED = ("small", "large")  # The others have processes of their own to spread.


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


def chosen(only: list[str] | None) -> list[str]:
    """The parts to run, in order."""
    wanted = {part for name in only or GROUPS for part in GROUPS.get(name, [name])}
    return [part for part in PARTS if part in wanted]


def engines_text(sizes: Sizes, entrants: engines.Field, measurements: list[Measurement]) -> str:
    """The table of engines, how it was made, and who took part."""
    method = (
        f"{sizes.keys:,} keys of 16 bytes in random order (seed {data.SEED}), one pinned core; {sizes.rounds} "
        f"rounds of {sizes.queries:,} queries, all engines of a group open and interleaved in random order, the first "
        "round discarded; medians of each round's ratio; every engine read and checked in full before"
    )
    settings = report.settings(entrants.present, entrants.notes)
    return f"{machine.describe()}.\n\n{method}.\n\n{report.table(measurements)}\n\n{settings}"


def noted_text(measurements: list[Measurement], notes: list[str]) -> str:
    """A table, and how much of what it is about."""
    told = "\n".join(f"- {note}." if not note.endswith("\n") else f"- {note}" for note in notes)
    return f"{machine.describe()}.\n\n{report.table(measurements)}\n\n{told}"


def main() -> None:
    """Measure what was asked for, then print the tables."""
    options = arguments()
    sizes = QUICK if options.quick else Sizes()
    given = {name: getattr(options, name) for name in ("keys", "rounds", "queries")}
    if options.records is not None:
        sizes = replace(sizes, memory=memory.Load.of(options.records))
    sizes = replace(sizes, **{name: value for name, value in given.items() if value is not None})
    entrants = engines.Field(None if options.peers is None else frozenset(options.peers.split(",")))
    measured: dict[str, list[Measurement]] = {place: [] for place in report.PLACES}
    with tempfile.TemporaryDirectory(prefix="gossipkv-bench-", dir=options.directory) as directory:
        run = Run(sizes, entrants, Path(directory))
        for part in chosen(options.only):
            machine.say(f"{part}:")
            found = measured[PLACES[part]]
            if part in PINNED:
                with machine.pinned(options.core), machine.uncollected():
                    found += PARTS[part](run)
            else:
                found += PARTS[part](run)
    texts = {}
    if measured[report.ENGINES]:
        texts[report.ENGINES] = engines_text(sizes, entrants, measured[report.ENGINES])
    for place in report.PLACES[1:]:
        if measured[place]:
            texts[place] = noted_text(measured[place], run.notes[place])
    print("\n\n".join(texts.values()))
    if options.document is not None:
        for place, text in texts.items():
            report.write_into(options.document, text, place)
    if options.json is not None:
        parameters: dict[str, object] = {"texts": texts, "quick": options.quick, "arguments": sys.argv[1:]}
        found = [measurement for each in measured.values() for measurement in each]
        report.write_json(options.json, machine=machine.describe(), parameters=parameters, measurements=found)


if __name__ == "__main__":
    main()
