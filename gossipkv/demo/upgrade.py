"""First act: three nodes change to the next version of a dataset while a reader goes on, and one of them is killed.

Both versions are tab-separated files below a source root.  A pipelined reader asks one node without a pause while the
second version appears at the source, is built, and is switched to; on the way another node is killed.  Every answer is
compared with the version that it names.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, final

from gossipkv.demo.editions import FILES
from gossipkv.demo.outcome import DemoOutcome, Required
from gossipkv.demo.stage import PATIENCE_S
from gossipkv.errors import GossipKVError
from gossipkv.wire.latency import LatencyHistogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from gossipkv.client import blocking
    from gossipkv.demo.editions import Edition
    from gossipkv.demo.stage import Stage
    from gossipkv.launcher import NodeStatus

DATABASE: Final = "unicode"
REPLICATION: Final = 2  # One node may be lost.
IN_FLIGHT: Final = 256  # Requests the reader keeps open; the pipeline refills at half of it.
READS_BEFORE: Final = 5_000  # Answers before the second version appears: enough for a p99.
READS_AFTER: Final = 5_000  # Answers after it was switched to and a node was killed.
SAMPLE: Final = 1_459  # Characters read besides those that the versions describe differently: 2,000 in all.
MAX_FAILURES: Final = 100  # Failures after which the act ends.
LOOK_PERIOD_S: Final = 5.0  # Between two looks at the state of the second version.

SHOWN: Final = ("PLUS SIGN", "GREEK SMALL LETTER ALPHA", "GEORGIAN LETTER ZEN", "CHEROKEE LETTER NU", "PILE OF POO")

REQUIRED: Final = (
    Required("reads", READS_BEFORE + READS_AFTER, None, "reads"),
    Required("reads_after_kill", READS_AFTER, None, "reads after a node was killed"),
    Required("in_flight", 100, None, "requests in flight at the switch"),
    Required("changed", 500, None, "reads with a changed answer"),
    Required("failures", 0, 0, "failures"),
    Required("steps_back", 0, 0, "older answers after newer ones"),
)

BEFORE, DURING, AFTER = PHASES = ("before", "until the switch and the kill", "after both")


def play(stage: Stage) -> None:
    """Play the act.

    Raises:
        GossipKVError: it cannot be played to its end.
    """
    (old, new), cluster, say = stage.editions, stage.cluster, stage.say
    nodes = cluster.status()
    say(f"ready    {', '.join(f'{node.name} at {node.address}' for node in nodes)}")
    _await_copies(stage, nodes)
    say(f"serves   {DATABASE}, version {old.version}: any node answers any key")
    source = stage.root / "source" / DATABASE
    with cluster.connect(timeout_ms=int(1000 * PATIENCE_S)) as client, ThreadPoolExecutor(1) as aside:
        dataset = client.dataset(DATABASE)
        _show(dataset, say)
        asked = next(node for node in nodes if node.address == str(client.address))
        doomed = next(node for node in reversed(nodes) if node is not asked)
        say(f"upgrade  to {len(new.records):,} characters of Unicode {new.unicode_version},")
        say(f"         while a reader reads through {asked.name}, with {IN_FLIGHT} requests in flight")
        UpgradeReader(old, new, stage.outcome, say).read(
            client,
            publish=lambda: (source / f"_{new.version}").rename(source / new.version),
            kill=lambda: aside.submit(cluster.kill, doomed.index),  # The kill waits, and the reader does not.
        )
        _show(dataset, say)
    cluster.start(doomed.index, wait=False)


def write_sources(root: Path, both: tuple[Edition, Edition], outcome: DemoOutcome, say: Callable[[str], None]) -> None:
    """Write both versions below the source root; the second one under a name that no node takes for a version."""
    old, new = both
    outcome.versions = [old.version, new.version]
    outcome.records = [len(old.records), len(new.records)]
    old.write(root / DATABASE / old.version)
    new.write(root / DATABASE / f"_{new.version}")
    say(f"source   {len(old.records):,} characters of Unicode {old.unicode_version}, in {FILES} files")


@final
class UpgradeReader:
    """Asks for the same keys round and round, starts the upgrade and the kill on the way, and judges every answer.

    `say` is given a line for people when something has happened.
    """

    def __init__(self, old: Edition, new: Edition, outcome: DemoOutcome, say: Callable[[str], None]) -> None:
        differ = [key for key, value in old.records.items() if new.records.get(key) != value]
        same = [key for key, value in old.records.items() if new.records.get(key) == value]
        step = max(1, len(same) // SAMPLE)
        self.keys = differ + same[::step][:SAMPLE]
        self._truth = {old.version: old.records, new.version: new.records}
        self._new = new.version
        self._outcome = outcome
        self._counts = outcome.counts
        self._say = say
        self._begin_s = self._looked_s = self._published_s = 0.0
        self._gives_up = False
        self._last: dict[bytes, bytes | None] = {}
        self._sent_ns: deque[int] = deque()  # Time at which each request in flight was sent, the oldest first.
        self._asked = 0  # Keys asked for in this round.
        self._answered = 0
        self._phase = BEFORE
        self._latency = {phase: LatencyHistogram() for phase in PHASES}
        self._unread = set(self.keys)  # Keys that the second version has not answered yet.
        self._asked_before_switch: int | None = None  # In this round; either version may answer these.
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
                self._outcome.fail(str(error))  # The requests in flight are lost; the next round goes on.
        self._outcome.reads_per_s = round(self._counts["reads"] / (time.monotonic() - self._begin_s))
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
        """Publish, kill, and change the phase when each is due."""
        has_switched = self._asked_before_switch is not None
        if self._phase == BEFORE and self._counts["reads"] >= READS_BEFORE:
            publish()
            self._published_s = time.monotonic()
            self._tell(f"version {self._new} appears at the source")
            # The kill comes at once.  The switch waits for a live copy of each partition, so a node killed later might
            # take the only known copy with it.
            self._phase, self._kill = DURING, kill()
        elif self._phase == DURING:
            assert self._kill is not None, "it is begun with the upgrade"
            if not self._is_killed and self._kill.done():
                node = self._kill.result()
                self._tell(f"{node.name} is killed and stays down")
                self._is_killed = True
            elif self._is_killed and has_switched:
                self._phase = AFTER

    def _look(self, client: blocking.Client, now_s: float) -> None:
        """Give up if the second version will not serve; else report its state, since nothing else happens."""
        self._looked_s = now_s
        why = None
        match client.status(DATABASE):
            case {"unicode": {"versions": {self._new: {"error": {"message": str(message)}}}}}:
                why = message
            case {"unicode": {"versions": {self._new: {"state": str(state)}}}} if self._asked_before_switch is None:
                self._tell(f"version {self._new} is {state}")
        is_awaited = self._phase == DURING and self._asked_before_switch is None
        if why is not None or (is_awaited and now_s > self._published_s + PATIENCE_S):
            self._outcome.fail(
                f"no switch happened within {now_s - self._published_s:.0f} s: {why or 'the status names no reason'}"
            )
            self._gives_up = True

    def _is_done(self) -> bool:
        """Return True if every key was read again after the switch and the kill, or too many reads have failed."""
        if self._gives_up or self._counts["failures"] >= MAX_FAILURES:
            return True
        return self._phase == AFTER and not self._unread and self._latency[AFTER].count >= READS_AFTER

    def _endless_keys(self) -> Iterator[bytes]:
        """Yield the keys to ask for; each is counted and timed as it is sent."""
        for key in itertools.cycle(self.keys):
            self._asked += 1
            self._sent_ns.append(time.monotonic_ns())
            yield key

    def _judge(self, key: bytes, value: bytes | None, version: str) -> None:
        """Count one answer.

        A step back is an answer older than one that was received before its request was sent.
        """
        counts = self._counts
        counts["reads"] += 1
        counts["reads_after_kill"] += self._is_killed
        self._answered += 1
        if version == self._new:
            if self._asked_before_switch is None:
                self._asked_before_switch = self._asked
                counts["in_flight"] = self._asked - self._answered + 1  # Includes the request of this answer.
                self._tell(f"the first answer from version {version}")
            self._unread.discard(key)
        elif self._asked_before_switch is not None and self._answered > self._asked_before_switch:
            counts["steps_back"] += 1
        truth = self._truth.get(version)
        if truth is None or truth.get(key) != value:
            self._outcome.fail(f"{key.decode()}: {value!r} differs from version {version}")
        counts["changed"] += key in self._last and self._last[key] != value
        self._last[key] = value

    def _tell(self, line: str) -> None:
        self._say(f"{time.monotonic() - self._begin_s:7.1f} s  {line}")


def _await_copies(stage: Stage, nodes: list[NodeStatus]) -> None:
    """Return when each node answers and knows of enough copies, so that one of the nodes may be killed.

    Raises:
        GossipKVError: the copies were not there in time.
    """
    for node in nodes:
        with stage.cluster.connect(node.index, timeout_ms=int(1000 * PATIENCE_S)) as client:
            client.dataset(DATABASE).get(SHOWN[0])  # The node holds the request until it can be answered.
            condition = f"{node.name} knows {REPLICATION} copies of each partition"
            stage.until(condition, partial(_has_all_copies, client))


def _has_all_copies(client: blocking.Client) -> bool:
    """Return True if no partition has too few copies, as a node knows."""
    match client.info():
        case {"by_database": {"unicode": {"under_replicated_partitions": 0}}}:
            return True
    return False


def _show(dataset: blocking.Dataset, say: Callable[[str], None]) -> None:
    say("")
    values, version = dataset.get_many_with_version(SHOWN)
    for name, value in zip(SHOWN, values, strict=True):
        described = "no record" if value is None else "  ".join(value.decode().split("\t"))
        say(f"  {version}  {name:<26}{described}")
    say("")
