"""A model of insert smearing: nodes that keep puts for a while, and hosts that originate them under the time of then.

It came before the code, to find the rules.  A number makes a run of four hours: two nodes that smear and three hosts,
whose clocks are half a minute apart at most; crashes, answers that are lost, hosts that nobody reaches for an hour.
`python -m tests.world.models.smearing FIRST COUNT [PLANTED...]` counts verdicts, with those rules broken.  Simplified:
one partition, a host takes all that another has at once, and hosts lose nothing.

    lost        what was accepted is not there in the end, nor anything later
    backwards   a host that has shown a record of a key shows an earlier one: a put that came late won over a later one
    unequal     hosts that have the same writes have other records
    session     who wrote with a token reads what was before
"""

from __future__ import annotations

import sys
from collections import Counter
from random import Random
from typing import NamedTuple, final

from tests.world.models.copies import Broken
from tests.world.models.counting import count_verdicts
from tests.world.scheduler import HOUR, SECOND, Scheduler

PLANTED = {  # A rule that is broken: a seed that shows it, and by what.
    "smeared_before_sync": (3, "lost"),
    "forgotten_before_answer": (0, "lost"),
    "replayed_under_new_time": (0, "backwards"),
    "smeared_with_token": (0, "session"),
    "loser_written": (0, "backwards"),
    "tombstones_not_kept": (0, "backwards"),
    "late_under_accepted_time": (0, "backwards"),
    "accepted_not_merged": (2, "backwards"),
}
WRITES_US = 4 * HOUR
QUIET_US = 2 * HOUR
LATEST_US = HOUR // 2  # What was accepted longer ago is originated under the host's own time.
KEEPS_US = HOUR  # Tombstones stay so long.
KEYS = 40
SMEARERS = 2
HOSTS = 3


class Record(NamedTuple):
    """What stands under a key: of two the greater stays."""

    time: int
    origin: int
    counter: int
    value: int | None  # None: a tombstone.
    order: int  # When it was written or accepted; of what was forwarded late, when that was.


class Put(NamedTuple):
    """What waits at a node."""

    key: int
    value: int
    accepted: int  # Its time.


@final
class Smearer:
    """A node that is no host: what waits in its store, and what of that is synced."""

    def __init__(self, skew_us: int) -> None:
        self.skew_us = skew_us
        self.last = 0
        self.life = 0
        self.appended: dict[int, Put] = {}
        self.synced: dict[int, Put] = {}

    def crashes(self) -> None:
        """What is not synced is gone; the rest is forwarded anew."""
        self.life += 1
        self.appended = dict(self.synced)


@final
class Host:
    """A copy: records by key, clock, and the greatest order that was shown of each key."""

    def __init__(self, number: int, skew_us: int) -> None:
        self.number = number
        self.skew_us = skew_us
        self.last = 0
        self.clock = [0] * HOSTS
        self.records: dict[int, Record] = {}
        self.shown: dict[int, Record] = {}
        self.told: list[list[int]] = [[0] * HOSTS for _ in range(HOSTS)]  # What each has confirmed.

    def take(self, key: int, record: Record) -> None:
        """Merge a record."""
        standing = self.records.get(key)
        if standing is None or standing[:3] < record[:3]:
            self.write(key, record)

    def write(self, key: int, record: Record) -> None:
        """Have it stand there; what has an earlier time than what was shown is no news."""
        before = self.shown.get(key)
        if before is not None and record.order < before.order and record.value != before.value:
            raise Broken("backwards")
        self.records[key] = self.shown[key] = record


@final
class Run:
    """Nodes, what strikes them, and what is promised."""

    def __init__(self, seed: int, planted: frozenset[str] = frozenset()) -> None:
        self.chance = chance = Random(seed)
        self.planted = planted
        self.scheduler = Scheduler()
        self.counts: Counter[str] = Counter()
        self.smearers = [Smearer(chance.randint(-30, 30) * SECOND) for _ in range(SMEARERS)]
        self.hosts = [Host(number, chance.randint(-30, 30) * SECOND) for number in range(HOSTS)]
        self.away_until = 0  # Nobody reaches a host for forwarding.
        self.cut: tuple[int, int] | None = None  # From one host to another nothing goes.
        self.log: list[list[tuple[int, Record]]] = [[] for _ in self.hosts]  # Each host's own, in order.
        self.accepted: list[Put] = []  # Answered.
        self.written: list[tuple[int, Record]] = []

    def verdict(self) -> str:
        """Run it."""
        chance, at = self.chance, 0
        while at < WRITES_US:
            at += chance.randrange(60 * SECOND)
            self.scheduler.at(at, self._write)
        for at in range(0, WRITES_US + QUIET_US, 20 * SECOND):
            self.scheduler.at(at, self._feed)
        for at in range(0, WRITES_US, 15 * 60 * SECOND):
            self.scheduler.at(at + chance.randrange(600) * SECOND, self._strike)
        try:
            self.scheduler.run(WRITES_US)
            self.cut, self.away_until = None, 0
            self.scheduler.run(WRITES_US + QUIET_US)
            self._check()
        except Broken as broken:
            return str(broken)
        return "right"

    def _now(self, node: Smearer | Host) -> int:
        return HOUR + self.scheduler.now_us + node.skew_us

    def _strike(self) -> None:
        """Crash a node, have hosts be away, cut a link, or mend it."""
        chance, now_us = self.chance, self.scheduler.now_us
        self.cut = None
        match chance.randrange(4):
            case 0 | 1:
                self._crash(chance.choice(self.smearers))
            case 2:
                self.away_until = now_us + chance.choice((2, 20, 100)) * 60 * SECOND
            case 3:
                one, other = chance.sample(range(HOSTS), 2)
                self.cut = one, other

    def _crash(self, smearer: Smearer) -> None:
        smearer.crashes()
        for number in smearer.synced:
            self._due(smearer, number, self.chance.randrange(5 * SECOND))

    # -- writes ------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        chance, key = self.chance, self.chance.randrange(KEYS)
        value = self.counts["writes"] = self.counts["writes"] + 1
        kind = chance.randrange(10)
        has_token = kind == 9
        if kind < 6 or (has_token and "smeared_with_token" in self.planted):
            put = self._accept(chance.choice(self.smearers), key, value)
            record = None if has_token is False else Record(put.accepted, 0, 0, value, put.accepted)
        else:
            record = self._originate(chance.choice(self.hosts), key, None if kind < 8 else value, 0)
        if has_token and record is not None:
            # A host is ready once its clock covers the token; of what was smeared no clock says anything.
            host = chance.choice(self.hosts)
            if "smeared_with_token" in self.planted or host.clock[record.origin] >= record.counter:
                standing = host.records.get(key)
                if standing is None or standing[:3] < record[:3]:
                    raise Broken("session")

    def _accept(self, smearer: Smearer, key: int, value: int) -> Put:
        smearer.last = max(smearer.last + 1, self._now(smearer))
        put, number, life = Put(key, value, smearer.last), value, smearer.life
        smearer.appended[number] = put

        def synced() -> None:
            if smearer.life == life:
                smearer.synced[number] = put
                if "smeared_before_sync" not in self.planted:
                    self.accepted.append(put)

        if "smeared_before_sync" in self.planted:
            self.accepted.append(put)
            if self.chance.random() < 0.02:
                self._crash(smearer)
        self.scheduler.after(self.chance.randrange(SECOND // 10), synced)
        self._due(smearer, number, self.chance.randrange(SECOND, 120 * SECOND))
        return put

    def _due(self, smearer: Smearer, number: int, after_us: int) -> None:
        life = smearer.life
        self.scheduler.after(after_us, lambda: self._forward(smearer, number, life))

    def _forward(self, smearer: Smearer, number: int, life: int) -> None:
        put = smearer.synced.get(number)
        if put is None or smearer.life != life:
            return
        if "forgotten_before_answer" in self.planted:
            del smearer.synced[number]
        if self.scheduler.now_us < self.away_until:
            self._due(smearer, number, self.chance.randrange(30 * SECOND))
            return
        time = 0 if "replayed_under_new_time" in self.planted else put.accepted
        self._originate(self.chance.choice(self.hosts), put.key, put.value, time, accepted=put.accepted)
        if self.chance.random() < 0.3:  # The answer is lost.
            self.counts["replayed"] += 1
            self._due(smearer, number, self.chance.choice((5, 5, 600)) * SECOND)
            return
        smearer.appended.pop(number, None)

        def synced() -> None:
            if smearer.life == life:
                smearer.synced.pop(number, None)

        self.scheduler.after(self.chance.randrange(SECOND // 10), synced)

    def _originate(self, host: Host, key: int, value: int | None, time: int, accepted: int = 0) -> Record:
        """Write at a host, as the origin; `time`: under which it was accepted, 0: under its own."""
        now = self._now(host)
        if accepted and now - accepted > LATEST_US and "late_under_accepted_time" not in self.planted:
            self.counts["late"] += 1
            time = accepted = 0
        if not time:
            time = host.last = max(host.last + 1, now)
        if "accepted_not_merged" not in self.planted:
            host.last = max(host.last, time)
        record = Record(time, host.number, host.clock[host.number] + 1, value, accepted or time)
        standing = host.records.get(key)
        if accepted and standing is not None and standing.time >= time and "loser_written" not in self.planted:
            self.counts["lost to what stood"] += 1
            return standing
        host.clock[host.number] += 1
        host.write(key, record)
        self.log[host.number].append((key, record))
        self.written.append((key, record))
        return record

    # -- hosts -------------------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        """Each host takes what another has written, and collects tombstones."""
        one, other = self.chance.sample(self.hosts, 2)
        if (one.number, other.number) != self.cut:
            for origin, rows in enumerate(self.log):
                for key, record in rows[other.clock[origin] : one.clock[origin]]:
                    other.last = max(other.last, record.time)
                    other.take(key, record)
                other.clock[origin] = max(other.clock[origin], one.clock[origin])
            other.told[one.number] = list(one.clock)
            one.told[other.number] = list(other.clock)
        self._collect(other)

    def _collect(self, host: Host) -> None:
        told = [host.clock if number == host.number else theirs for number, theirs in enumerate(host.told)]
        if any(mine < max(each) for mine, each in zip(host.clock, zip(*told, strict=True), strict=True)):
            return
        for key, record in [*host.records.items()]:
            is_settled = all(theirs[record.origin] >= record.counter for theirs in told)
            is_old = "tombstones_not_kept" in self.planted or self._now(host) - record.time >= KEEPS_US
            if record.value is None and is_settled and is_old:
                del host.records[key]
                self.counts["collected"] += 1

    def _check(self) -> None:
        """All that was accepted is there, or something later; nothing waits."""
        if any(smearer.synced for smearer in self.smearers):
            raise Broken("waits")
        shown = [{key: record for key, record in host.records.items() if record.value} for host in self.hosts]
        if any(one != shown[0] for one in shown):
            raise Broken("unequal")
        for put in self.accepted:
            if not any(key == put.key and record.time >= put.accepted for key, record in self.written):
                raise Broken("lost")


def main(arguments: list[str]) -> None:
    """Count the verdicts of some seeds."""
    count_verdicts(Run, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
