"""The main job, end to end, on real data: a cluster serves a dataset, and changes to its next version under load.

The data is the Unicode character database that ships inside Python, in the two versions that it has: 3.2.0 (kept for
internationalised host names) and the current one.  Key: a character's name; value: the character and what the version
says of it.  Both are written as tab-separated files below a source root in a temporary directory, which three nodes
share, each a process of its own.  A pipelined reader asks one of them without a pause while the second version appears
at the source, is built, and is switched to; on the way another node is killed, and stays down.

Every answer is compared with what the version that it names says.  Then the second act, of a table (`demo_tables`), and
the third, of a time series (`demo_series`).
What must hold stands in `REQUIRED`; the outcome is a success only if all of it does.  However this ends, the nodes are
stopped and the directory removed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import tempfile
import time
import unicodedata
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from gossipkv import demo_series, demo_tables
from gossipkv.errors import GossipKVError, Unavailable
from gossipkv.keyspace.partitioner import partition
from gossipkv.launcher import Cluster, NodeFailed
from gossipkv.wire.latency import LatencyHistogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from types import ModuleType

    from gossipkv.client import blocking
    from gossipkv.launcher import NodeStatus

DATABASE: Final = "unicode"
FILES: Final = 8  # A version's files, and so its partitions.
NODES: Final = 3
REPLICATION: Final = 2  # Any one node may be lost.
SETTINGS: Final = {
    "refresh_period": "200ms",
    "time_to_converge": "1s",
    "log_level": "warning",
    # Who waits for a processor of a busy machine has failed no read: others are asked as well as soon as usual, but all
    # of them for longer than the usual 100 ms.
    "proxy_timeout": "10s",
    "proxy_stage_timeout": "30ms",
    "split_rows": str(demo_series.SPLIT_ROWS),
}
IN_FLIGHT: Final = 256  # Requests the reader keeps open; the pipeline refills at half of it.
READS_BEFORE: Final = 20_000  # Answers before the second version appears: enough for a p99.
READS_AFTER: Final = 20_000  # Answers after it was switched to and a node was killed.
SAMPLE: Final = 1_459  # Characters read besides those that the versions describe differently: 2,000 in all.
MANY_FAILURES: Final = 100  # No use in going on.
TOLD_FAILURES: Final = 3  # Enough to see what it is about.
TOLD_LINES: Final = 3  # Of the log of a node that failed.
# No more than a bound, on a machine that is busy with all else: what cannot go on is told by its state, and sooner.
PATIENCE_S: Final = 900.0
PATIENCE_MS: Final = int(1000 * PATIENCE_S)
COPIES_POLL_S: Final = 0.05
LOOK_PERIOD_S: Final = 5.0  # Between two looks at how the second version fares.

SHOWN: Final = ("PLUS SIGN", "GREEK SMALL LETTER ALPHA", "GEORGIAN LETTER ZEN", "CHEROKEE LETTER NU", "PILE OF POO")

# What must hold: name in the outcome, least, most, and the words for people.
REQUIRED: Final = (
    ("reads", 10_000, None, "reads"),
    ("reads_after_kill", 10_000, None, "reads after a node was killed"),
    ("in_flight", 100, None, "in flight across the switch"),
    ("changed", 500, None, "reads whose answer changed"),
    ("failures", 0, 0, "failures"),
    ("steps_back", 0, 0, "steps back"),
    ("writes", 2_000, None, "writes acknowledged to a table"),
    ("writes_after_kill", 1_000, None, "after a node was killed"),
    ("read_back", 2_000, None, "read at once elsewhere"),
    ("read_again", 10_000, None, "values read again, by each node"),
    ("moved", 24, None, "replicas moved to other nodes"),
    ("asked", 200, None, "asked by a session meanwhile"),
    ("lost", 0, 0, "acknowledged and lost"),
    ("ranges", 9, None, "ranges of a time series"),
    ("spread", 3, None, "nodes that hold some"),
    ("scanned", 17_280, 17_280, "readings scanned in order"),
    ("scanned_after_kill", 10_000, None, "after a node was killed"),
)

BEFORE, DURING, AFTER = PHASES = ("before", "during", "after")
TOLD_PHASES: Final = {
    BEFORE: "before the second version",
    DURING: "until the switch and the kill",
    AFTER: "after both",
}

Records = dict[bytes, bytes]


@final
@dataclass(frozen=True, slots=True)
class Edition:
    """One version of the dataset: the truth that answers are compared with."""

    unicode_version: str
    records: Records

    @property
    def version(self) -> str:
        """Its name as a version; versions are ordered as strings, hence the two digits."""
        major, minor, patch = self.unicode_version.split(".")
        return f"{int(major):02}-{minor}-{patch}"

    def write(self, directory: Path) -> None:
        """Write the source files, spread over them as the job of an existing engine would."""
        directory.mkdir(parents=True)
        lines: list[list[bytes]] = [[] for _ in range(FILES)]
        for key, value in self.records.items():
            assert not {b"\t", b"\n"} & {key[index : index + 1] for index in range(len(key))}, key
            assert b"\n" not in value, value
            lines[partition("sequins", key, FILES)].append(b"%b\t%b\n" % (key, value))
        for number, part in enumerate(lines):
            (directory / f"part-{number:05}.tsv").write_bytes(b"".join(part))


def editions() -> tuple[Edition, Edition]:
    """The two versions that are inside this Python."""
    old = unicodedata.ucd_3_2_0
    return (
        Edition(old.unidata_version, _records(old)),
        Edition(unicodedata.unidata_version, _records(unicodedata)),
    )


def _records(database: unicodedata.UCD | ModuleType) -> Records:
    """Name: character, category, bidirectional class, mirrored, width; separated by tabs."""
    named = ((database.name(character, ""), character) for character in map(chr, range(sys.maxunicode + 1)))
    return {
        name.encode(): "\t".join(
            (
                character,
                database.category(character),
                database.bidirectional(character),
                str(database.mirrored(character)),
                database.east_asian_width(character),
            )
        ).encode()
        for name, character in named
        if name
    }


@final
@dataclass(slots=True)
class Outcome:
    """The numbers of a run."""

    versions: list[str] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    reads: int = 0
    reads_after_kill: int = 0
    in_flight: int = 0
    changed: int = 0
    failures: int = 0
    steps_back: int = 0
    reads_per_s: int = 0
    latency: dict[str, dict[str, float]] = field(default_factory=dict)  # By phase, as the histogram tells it.
    writes: int = 0
    writes_after_kill: int = 0
    unknown: int = 0
    read_back: int = 0
    read_again: int = 0
    lost: int = 0
    moved: int = 0
    asked: int = 0
    ranges: int = 0
    spread: int = 0
    scanned: int = 0
    scanned_after_kill: int = 0
    seconds: float = 0.0
    trouble: list[str] = field(default_factory=list)  # The first failures, in words.

    def holds(self, name: str) -> bool:
        """Whether one of the required numbers is what it must be."""
        least, most = next((least, most) for required, least, most, _ in REQUIRED if required == name)
        value: int = getattr(self, name)
        return value >= least and (most is None or value <= most)

    @property
    def is_success(self) -> bool:
        """Whether all of them are."""
        return all(self.holds(name) for name, *_ in REQUIRED)


@final
class Reader:
    """Asks for the same keys round and round, has the upgrade and the kill happen on the way, and judges every answer.

    `say` is given a line for people when something has happened.
    """

    def __init__(self, old: Edition, new: Edition, outcome: Outcome, say: Callable[[str], None]) -> None:
        differ = [key for key, value in old.records.items() if new.records.get(key) != value]
        same = [key for key, value in old.records.items() if new.records.get(key) == value]
        step = max(1, len(same) // SAMPLE)
        self.keys = differ + same[::step][:SAMPLE]
        self._truth = {old.version: old.records, new.version: new.records}
        self._new = new.version
        self._outcome = outcome
        self._say = say
        self._begin_s = self._looked_s = 0.0
        self._gives_up = False
        self._last: dict[bytes, bytes | None] = {}
        self._sent_ns: deque[int] = deque()  # When each request in flight was sent, the oldest first.
        self._asked = 0  # In this round, as is the next one.
        self._answered = 0
        self._phase = BEFORE
        self._latency = {phase: LatencyHistogram() for phase in PHASES}
        self._unread = set(self.keys)  # Which the second version has not answered yet.
        self._asked_before_switch: int | None = None  # Of this round: these may be answered by either version.
        self._kill: Future[NodeStatus] | None = None
        self._is_killed = False

    def read(
        self, client: blocking.Client, publish: Callable[[], object], kill: Callable[[], Future[NodeStatus]]
    ) -> None:
        """Read until the second version, published on the way, has answered every key, and a node was killed."""
        self._begin_s = self._looked_s = time.monotonic()
        while not self._is_done():
            try:
                self._read_round(client, publish, kill)
            except GossipKVError as error:
                _fail(self._outcome, str(error))  # And on with the next round: what was in flight is lost.
        self._outcome.reads_per_s = round(self._outcome.reads / (time.monotonic() - self._begin_s))
        self._outcome.latency = {phase: histogram.to_map() for phase, histogram in self._latency.items()}

    def _read_round(
        self, client: blocking.Client, publish: Callable[[], object], kill: Callable[[], Future[NodeStatus]]
    ) -> None:
        """Read until it is done, or a request fails.  At first nothing is in flight."""
        self._asked = self._answered = 0
        self._sent_ns.clear()
        if self._asked_before_switch is not None:
            self._asked_before_switch = 0
        for key, value, version in client.dataset(DATABASE).iter_get(self._endless_keys(), IN_FLIGHT):
            now_ns = time.monotonic_ns()
            self._latency[self._phase].record(now_ns - self._sent_ns.popleft())
            self._judge(key, value, version)
            self._advance(publish, kill)
            if now_ns / 1e9 > self._looked_s + LOOK_PERIOD_S:
                self._look(client, now_ns / 1e9)
            if self._is_done():
                return

    def _advance(self, publish: Callable[[], object], kill: Callable[[], Future[NodeStatus]]) -> None:
        """Have happen what is due."""
        has_switched = self._asked_before_switch is not None
        if self._phase == BEFORE and self._outcome.reads >= READS_BEFORE:
            publish()
            self._tell(f"version {self._new} appears at the source")
            # At once: a version is switched to when each partition has a live copy, and whoever has the only one that
            # is known of takes it along.
            self._phase, self._kill = DURING, kill()
        elif self._phase == DURING:
            assert self._kill is not None, "it is begun with the upgrade"
            if not self._is_killed and self._kill.done():
                node = self._kill.result()
                self._tell(f"{node.name} is killed, and stays down")
                self._is_killed = True
            elif self._is_killed and has_switched:
                self._phase = AFTER

    def _look(self, client: blocking.Client, now_s: float) -> None:
        """Give up where the second version will not serve; else say what it waits for, since nothing else happens."""
        self._looked_s = now_s
        why = None
        match client.status(DATABASE):
            case {"unicode": {"versions": {self._new: {"error": {"message": str(message)}}}}}:
                why = message
            case {"unicode": {"versions": {self._new: {"state": str(state)}}}} if self._asked_before_switch is None:
                self._tell(f"version {self._new} is {state}")
        if why is not None or now_s > self._begin_s + PATIENCE_S:
            _fail(self._outcome, f"no switch within {now_s - self._begin_s:.0f} s: {why or 'no trouble is told'}")
            self._gives_up = True

    def _is_done(self) -> bool:
        """Whether all has happened and every key was read again after the switch, or too much has failed."""
        if self._gives_up or self._outcome.failures >= MANY_FAILURES:
            return True
        return self._phase == AFTER and not self._unread and self._latency[AFTER].count >= READS_AFTER

    def _endless_keys(self) -> Iterator[bytes]:
        """What to ask, counted and timed as it is sent."""
        for key in itertools.cycle(self.keys):
            self._asked += 1
            self._sent_ns.append(time.monotonic_ns())
            yield key

    def _judge(self, key: bytes, value: bytes | None, version: str) -> None:
        """Count one answer.

        A step back is an answer older than one that was received before its request was sent.
        """
        outcome = self._outcome
        outcome.reads += 1
        outcome.reads_after_kill += self._is_killed
        self._answered += 1
        if version == self._new:
            if self._asked_before_switch is None:
                self._asked_before_switch = self._asked
                outcome.in_flight = self._asked - self._answered + 1  # This one was on its way as well.
                self._tell(f"the first answer from version {version}")
            self._unread.discard(key)
        elif self._asked_before_switch is not None and self._answered > self._asked_before_switch:
            outcome.steps_back += 1
        truth = self._truth.get(version)
        if truth is None or truth.get(key) != value:
            _fail(self._outcome, f"{key.decode()}: {value!r} is not what version {version} says")
        outcome.changed += key in self._last and self._last[key] != value
        self._last[key] = value

    def _tell(self, line: str) -> None:
        """Say that something has happened, and when."""
        self._say(f"{time.monotonic() - self._begin_s:7.1f} s  {line}")


def _fail(outcome: Outcome, why: str) -> None:
    """Count a failure, and remember the first ones."""
    outcome.failures += 1
    if len(outcome.trouble) < TOLD_FAILURES:
        outcome.trouble.append(why)


def run(say: Callable[[str], None]) -> Outcome:
    """Run the demo; `say` is given lines for people as things happen.

    Raises:
        GossipKVError: it could not be run to its end.
    """
    begin_s = time.monotonic()
    outcome = Outcome()
    with _signals_as_interrupts(), tempfile.TemporaryDirectory(prefix="gossipkv-demo-") as place:
        root = Path(place)
        source = root / "source" / DATABASE
        old, new = editions()
        outcome.versions = [old.version, new.version]
        outcome.records = [len(old.records), len(new.records)]
        old.write(source / old.version)
        staged = source / f"_{new.version}"  # Names that begin with _ are no versions.
        new.write(staged)
        say(f"source   {len(old.records):,} characters of Unicode {old.unicode_version}, in {FILES} files")
        say(f"cluster  {NODES} nodes start, each with a directory of its own; replication {REPLICATION}")
        with _cluster(root) as cluster:
            nodes = cluster.status()
            say(f"ready    {', '.join(f'{node.name} at {node.address}' for node in nodes)}")
            _await_all(cluster, nodes)
            say(f"serves   {DATABASE}, version {old.version}: any of them answers any key")
            with cluster.connect(timeout_ms=PATIENCE_MS) as client, ThreadPoolExecutor(1) as aside:
                dataset = client.dataset(DATABASE)
                say("")
                _show(dataset, say)
                asked, doomed = _roles(nodes, str(client.address))
                say("")
                say(f"upgrade  to {len(new.records):,} characters of Unicode {new.unicode_version},")
                say(f"         while a reader goes on through {asked.name}, {IN_FLIGHT} requests at a time")
                say("")
                Reader(old, new, outcome, say).read(
                    client,
                    publish=lambda: staged.rename(source / new.version),
                    kill=lambda: aside.submit(cluster.kill, doomed.index),  # Which waits, and the reader does not.
                )
                say("")
                _show(dataset, say)
            say("")
            cluster.start(doomed.index)
            cluster.wait_ready(doomed.index)
            _note(outcome, demo_tables.play(cluster, new.records, say))
            say("")
            _note_series(outcome, demo_series.play(cluster, say))
            _stop(cluster, outcome)
    outcome.seconds = round(time.monotonic() - begin_s, 1)
    return outcome


@contextlib.contextmanager
def _cluster(root: Path) -> Iterator[Cluster]:
    """The nodes, all ready, as long as the block lasts.

    Raises:
        Unavailable: one did not start; with the end of what it logged.
    """
    cluster = Cluster(
        root / "cluster",
        nodes=NODES,
        source=root / "source",
        replication=REPLICATION,
        settings=SETTINGS,
        environ={name: value for name, value in os.environ.items() if not name.startswith("GOSSIPKV_")},
    )
    try:
        try:
            cluster.up()
        except NodeFailed as failed:
            raise Unavailable(f"the node did not start: {_last_words(failed)}") from failed
        yield cluster
    finally:
        cluster.down()


def _await_all(cluster: Cluster, nodes: Iterable[NodeStatus]) -> None:
    """Return when each of them answers, and knows of as many copies as there are to be: then one may be killed.

    Raises:
        Unavailable: the copies were not there in time.
    """
    for node in nodes:
        with cluster.connect(node.index, timeout_ms=PATIENCE_MS) as client:
            client.dataset(DATABASE).get(SHOWN[0])  # Waits until that can be answered.
            give_up_s = time.monotonic() + PATIENCE_MS / 1000
            while (short_of_copies := _short_of_copies(client)) != 0:
                if time.monotonic() > give_up_s:
                    raise Unavailable(
                        f"{short_of_copies} partitions have fewer than {REPLICATION} copies, as {node.name} knows"
                    )
                time.sleep(COPIES_POLL_S)


def _short_of_copies(client: blocking.Client) -> int:
    """Return how many partitions have too few copies, as a node knows."""
    told = client.info()["by_database"]
    assert isinstance(told, dict), told
    entry = told[DATABASE]
    assert isinstance(entry, dict), entry
    short_of_copies = entry.get("under_replicated_partitions", FILES)
    assert isinstance(short_of_copies, int), entry
    return short_of_copies


def _roles(nodes: list[NodeStatus], address: str) -> tuple[NodeStatus, NodeStatus]:
    """The node that the reader asks, and the one that is killed: the last of the others."""
    asked = next(node for node in nodes if node.address == address)
    return asked, next(node for node in reversed(nodes) if node is not asked)


def _note(outcome: Outcome, kept: demo_tables.Kept) -> None:
    """Take in the numbers of the second act."""
    outcome.writes, outcome.writes_after_kill, outcome.unknown = kept.writes, kept.writes_after_kill, kept.unknown
    outcome.read_back, outcome.read_again, outcome.lost = kept.read_back, kept.read_again, kept.lost
    outcome.moved, outcome.asked = kept.moved, kept.asked
    outcome.steps_back += kept.steps_back
    for line in kept.trouble:
        _fail(outcome, line)


def _note_series(outcome: Outcome, series: demo_series.Series) -> None:
    """Take in the numbers of the third act."""
    outcome.ranges, outcome.spread = series.ranges, series.spread
    outcome.scanned, outcome.scanned_after_kill = series.scanned, series.scanned_after_kill
    for line in series.trouble:
        _fail(outcome, line)


def _stop(cluster: Cluster, outcome: Outcome) -> None:
    """End the nodes that are left, politely; it is a failure if one does not end well, or has ended before."""
    left = [node for node in cluster.status() if node.state != "ended" or node.failed]
    for node in left:
        cluster.send(node.index, signal.SIGTERM)
    for node in left:
        ended = cluster.wait_ended(node.index)
        if ended.failed or ended.exit_status != 0:
            _fail(outcome, f"{ended.name} {ended.end()}: {_last_words(NodeFailed.of(ended))}")


def _last_words(failed: NodeFailed) -> str:
    """The end of the node's log, in one line."""
    match failed.details:
        case {"said": [*said]}:
            return " / ".join(str(line).strip() for line in said[-TOLD_LINES:])
    raise AssertionError(failed.details)


def report(outcome: Outcome) -> Iterable[str]:
    """The numbers, a line each, with what each must be."""
    for name, least, most, words in REQUIRED:
        wanted = "none" if most == 0 else f"at least {least:,}"
        verdict = "ok" if outcome.holds(name) else "NOT OK"
        yield f"{words:<30}{getattr(outcome, name):>10,}   {wanted:<18}{verdict}"
    yield f"{'reads a second':<30}{outcome.reads_per_s:>10,}   every answer was checked"
    yield ""
    yield f"{'latency of answers':<30}{'p50':>10}{'p99':>12}   with {IN_FLIGHT} in flight"
    for phase, told in outcome.latency.items():
        p50_ms, p99_ms = told["p50_us"] / 1000, told["p99_us"] / 1000
        yield f"{TOLD_PHASES[phase]:<30}{p50_ms:>7.1f} ms{p99_ms:>9.1f} ms   of {told['count']:,.0f}"
    yield from (f"failure: {line}" for line in outcome.trouble)


def _show(dataset: blocking.Dataset, say: Callable[[str], None]) -> None:
    values, version = dataset.get_many_with_version(SHOWN)
    for name, value in zip(SHOWN, values, strict=True):
        described = "not there" if value is None else "  ".join(value.decode().split("\t"))
        say(f"  {version}  {name:<26}{described}")


@contextlib.contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """Clean up on SIGTERM, and when the terminal is closed, as on Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
