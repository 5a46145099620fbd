"""A model of a partition of a range table that is divided where it lies, and of what its hosts then have to keep.

It came before the code, to find the rules and the runs that each prevents.  A number makes a run: a storm of divisions,
maps that are adopted late, in any order and past others, moves, crashes, cuts one way, lost disks, trimmed logs,
collected tombstones, and sessions that hop; then all heals, and it is quiet.  `python -m tests.world.models.division
FIRST COUNT [PLANTED...]` counts verdicts and what happened, with those rules broken; `python -m
tests.world.models.divided_aimed [PLANTED...]` runs the schedules for rules that storms strike too seldom.  The rules
are in `divided_host.py`; here are METADATA, the wire, the faults and the checkers.
Simplified, beyond what `moves.py` is: the mover sees the synced copies of all that are up; who is loaded takes all of
another copy at once, and merges nothing before; what is lost with a disk is called lost once its origin has ended.

What runs without single rules showed, where the text of the rules left it open:

* *An origin that ends in one child goes on in its sibling*, so what has ended, and at which counter, is a matter of the
  partition: a token's entry may be left out only when no partition names it (`settled_for_siblings`, aimed).
* *A level is counted by the map that is synced, and only for what is synced*: by the map before, a child's assignment
  is named nowhere, which looks as if it had ended, and all had confirmed.
* *Confirmations of the parent lose writes where they settle*: an origin that has not heard goes on after it has said
  the counter (`parents_confirmations_kept`).  Counted for levels alone they lost nothing in 2,000 runs.
* *A host that has heard may take the parent's entries into the children*, each as one of its own; it must not put the
  records alone there (`parents_stored_uncounted`), nor may the origin count them (`child_confirms_for_parent`, aimed).
* *What lies where a child is to be is its parent's only if that is former there*: an ended one's has what nobody else
  has (`what_lies_there_inherited`, aimed).  That the child has to be held already, too, no run here has shown to be
  needed; forced ends are not modelled.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import final

from tests.world.models.copies import Assignment, Broken, Dot, Record, State, covers
from tests.world.models.counting import count_verdicts
from tests.world.models.divided_host import KEYS, Host, Map, Partition, Waiting

Message = tuple[str, int, int, tuple[object, ...]]  # Its kind, from, to: -1 is METADATA.
PLANTED = {  # A rule that is broken: a seed that shows it, and by what.  Others are in `divided_aimed.py`.
    "absent_taken_for_covered": (29, "ahead"),
    "clock_empty": (3, "ahead"),
    "entry_of_siblings_skipped": (3, "stuck"),
    "former_dropped_early": (0, "ahead"),
    "newer_config_taken": (8, "unequal"),
    "parents_confirmations_kept": (17, "unequal"),
    "parents_stored_uncounted": (0, "ahead"),
    "settled_by_a_majority": (10, "unequal"),
    "split_key_to_the_left": (0, "stale"),
    "time_not_inherited": (23, "backwards"),
    "token_names_partitions": (2, "stale"),
}
REPLICATION = 3
HOSTS = 6
MOST_LOST = 2
HEAL_ROUNDS = 100
QUIET_ROUNDS = 3


@dataclass(slots=True)
class Session:
    """What a client has seen: its token, and what it must not see anything older of."""

    run: Run
    token: dict[int, int] = field(default_factory=dict)
    version: int = 0
    must: dict[int, Record] = field(default_factory=dict)
    read_at: dict[int, int] = field(default_factory=dict)  # By origin: in which partition; rules do not look at that.

    def writes(self, record: Record, dependencies: dict[int, int]) -> None:
        if self.must.get(record.key, record) > record and not self.run.is_lost(self.must[record.key]):
            raise Broken("backwards")
        self.run.dependencies[record.dot] = dependencies
        self.run.must[record.dot] = {**self.must, record.key: record}

    def sees(self, record: Record | None, key: int, version: int, partition: Partition) -> None:
        want = self.must.get(key)
        if want is not None and not self.run.is_lost(want):
            left = max(filter(None, (record, self.run.collected.get(key))), default=None)
            if left is None or left < want or (record is not None and record < want):
                raise Broken("stale")
        self.version = max(self.version, version)
        if record is not None:
            self.read_at[record.origin] = partition.id
            self.knows(record)

    def knows(self, record: Record) -> None:
        for origin, count in (record.dot, *self.run.dependencies[record.dot].items()):
            self.token[origin] = max(count, self.token.get(origin, 0))
        for key, must in self.run.must[record.dot].items():
            self.must[key] = max(must, self.must.get(key, must))


class Run:
    """METADATA, a few hosts, the wire, what strikes them, and what is promised."""

    def __init__(self, seed: int, planted: frozenset[str] = frozenset()) -> None:
        self.seed, self.planted = seed, planted
        self.chance = chance = Random(seed)
        self.now = self.last_number = self.last_id = 0
        self.counts: Counter[str] = Counter()
        self.node_of: dict[int, int] = {}
        self.parents: dict[int, int] = {}
        first = tuple(self._assignment(node, node, State.AVAILABLE) for node in range(REPLICATION))
        self.maps = [Map(0, (Partition(0, REPLICATION, first, id=self._id()),))]
        self.must: dict[Dot, dict[int, Record]] = {}
        self.dependencies: dict[Dot, dict[int, int]] = {}
        self.acked: dict[Dot, Record] = {}  # At a majority.
        self.acked_one: dict[Dot, Record] = {}
        self.collected: dict[int, Record] = {}
        self.settled: dict[tuple[int, int], int] = {}  # By former assignment and key.
        self.lost: set[int] = set()
        self.cuts: set[tuple[int, int]] = set()
        self.net: list[Message] = []
        self.hosts = [Host(self, node, chance.choice((0, 0, 40, -40))) for node in range(HOSTS)]
        self.sessions = [Session(self) for _ in range(3)]
        lag = chance.choice((0.02, 0.1, 0.5))
        self.ears = [chance.choice((lag, lag, 1.0)) for _ in self.hosts]
        self.divides = chance.choice((0.01, 0.03))
        self.moves = chance.choice((0.0, 0.02, 0.06))
        self.chains = chance.choice((0.0, 0.1))

    # What hosts ask of it.

    def number(self) -> int:
        self.last_number += 1
        return self.last_number

    def send(self, kind: str, source: Host, target: int, content: tuple[object, ...]) -> None:
        if (source.index, target) not in self.cuts and source.index != target:
            self.counts["sent " + kind] += 1
            self.net.append((kind, source.index, target, content))

    def hears(self, host: Host, version: int) -> None:
        if version > host.disk.map.version and self.chance.random() < self.ears[host.index]:
            skips = self.chance.random() < 0.7
            host.adopt(self.maps[version if skips else self.chance.randint(host.disk.map.version + 1, version)])

    def later_tells(self, host: Host, node: int) -> None:
        if self.chance.random() < 0.7:
            host.sync()
        host.tell(node)

    def acknowledged(self, one: Waiting, version: int) -> None:
        self.counts["acked " + one.level] += 1
        (self.acked_one if one.level == "one" else self.acked)[one.record.dot] = one.record
        one.session.knows(one.record)
        one.session.version = max(one.session.version, version)

    def collects(self, record: Record) -> None:
        self.counts["collected"] += 1
        self.collected[record.key] = max(record, self.collected.get(record.key, record))

    def is_lost(self, record: Record) -> bool:
        """Whether it went with a disk, as sessions are told."""
        is_beyond = record.counter > self.settled.get((record.origin, record.key), record.counter)
        return is_beyond and self.node_of[record.origin] in self.lost

    # METADATA.

    def _id(self) -> int:
        self.last_id += 1
        return self.last_id

    def _assignment(self, node: int, slot: int, state: State) -> Assignment:
        one = Assignment(self._id(), node, slot, state)
        self.node_of[one.id] = node
        return one

    def commit(self, old: Partition, *new: Partition) -> None:
        """Put partitions into the place of one."""
        last = self.maps[-1]
        versioned = [replace(one, version=last.version + 1) for one in new]
        partitions = (*(one for one in last.partitions if one.id != old.id), *versioned)
        assert sum(one.high - one.low for one in partitions) == KEYS
        self.maps.append(Map(last.version + 1, partitions))
        self.check_survival()

    def divide(self, parent: Partition, middle: int) -> None:
        """Put children into a partition's place, each on its nodes; they name all that it named as former."""
        hosts = [self.hosts[node] for node in parent.nodes]
        self.counts["divisions"] += 1
        self.counts["divided before all had heard"] += any(parent.id not in one.synced.map.by_id for one in hosts)
        self.counts["divisions of children"] += parent.id in self.parents
        children = []
        for low, high in ((parent.low, middle), (middle, parent.high)):
            assignments = tuple(self._assignment(one.node, one.slot, one.state) for one in parent.assignments)
            children.append(Partition(0, REPLICATION, assignments, parent.named, id=self._id(), low=low, high=high))
            self.parents[children[-1].id] = parent.id
        self.commit(parent, *children)

    def settle(self, id_: int, found: dict[int, int]) -> None:
        """Former assignments end, at these counters."""
        partition = self.maps[-1].by_id.get(id_)
        ended = partition.former & found.keys() if partition is not None else frozenset()
        if partition is not None and ended:
            self.counts["settled"] += 1
            self.commit(partition, replace(partition, former=partition.former - ended))
            keys = range(partition.low, partition.high)
            self.settled |= {(origin, key): found[origin] for origin in ended for key in keys}

    def assign(self, partition: Partition, node: int, slot: int) -> None:
        one = self._assignment(node, slot, State.PROPOSED)
        self.commit(partition, replace(partition, assignments=(*partition.assignments, one)))

    def _advance(self, partition: Partition, states: dict[int, State]) -> None:
        changed = tuple(one._replace(state=states.get(one.id, one.state)) for one in partition.assignments)
        self.commit(partition, replace(partition, assignments=changed))

    def _unassign(self, partition: Partition, gone: Assignment) -> None:
        left = tuple(one for one in partition.assignments if one != gone)
        self.commit(partition, replace(partition, assignments=left, former=partition.former | {gone.id}))

    # The mover.

    def move(self, chance: float) -> None:
        """Take each move a step further, replace what is lost, and begin one where nothing has to be moved."""
        for partition in self.maps[-1].partitions:
            pairs = [hosts for hosts in partition.slots.values() if len(hosts) > 1]
            if pairs:
                self._move_on(partition, *pairs[0])
                continue
            dead = [one.slot for one in partition.assignments if one.node in self.lost]
            free = [host.index for host in self.hosts if host.index not in partition.nodes.keys() | self.lost]
            if dead or self.chance.random() < chance:
                self.assign(partition, self.chance.choice(free), (dead or [self.chance.randrange(REPLICATION)])[0])

    def _move_on(self, partition: Partition, source: Assignment, target: Assignment) -> None:
        able = [self.hosts[one.node] for one in partition.available if self.has_adopted(one, partition)]
        clocks = [host.synced.copies[partition.id].clock for host in able]
        if source.state == State.LEAVING:
            left = [one for one in partition.available if one.node not in self.lost]
            if source.node in self.lost or (self._are_level(partition, source, clocks) and len(able) == len(left)):
                self._unassign(partition, source)
        elif target.node in self.lost:
            self._unassign(partition, target)
        elif len(able) < partition.needed:
            return
        elif target.state == State.PROPOSED:
            self._advance(partition, {target.id: State.INITIALIZING})
        elif self.has_adopted(target, partition):
            waits = self.hosts[source.node].is_up and not self.has_adopted(source, partition)
            copy = self.hosts[target.node].synced.copies[partition.id]
            if copy.is_loaded and not waits and all(covers(copy.clock, clock, copy.clock) for clock in clocks):
                self.counts["moved"] += 1
                self._advance(partition, {source.id: State.LEAVING, target.id: State.AVAILABLE})

    def has_adopted(self, one: Assignment, partition: Partition) -> bool:
        host = self.hosts[one.node]
        return host.is_up and host.synced.map.has(partition)

    def _are_level(self, partition: Partition, source: Assignment, clocks: list[dict[int, int]]) -> bool:
        if not self.has_adopted(source, partition):
            return False
        own = self.hosts[source.node].synced.copies[partition.id].clock
        return all(covers(clock, own, clock) for clock in clocks)

    # What strikes.

    def lose(self, host: Host) -> None:
        """A host is lost for good, disk included, if only a minority of each partition's slots is by that."""
        lost = self.lost | {host.index}
        for partition in self.maps[-1].partitions:
            if sum(one.node not in lost for one in partition.available) <= REPLICATION // 2:
                return
        if len(lost) <= MOST_LOST:
            self.counts["lost"] += 1
            self.lost = lost
            host.is_up = False
            host.crash()

    def step(self) -> None:
        """Something happens to one of those that are up."""
        self.now += 1
        up = [host for host in self.hosts if host.is_up]
        host = self.chance.choice([one for one in up if one.disk.copies] or up)
        self.chance.choices(STEPS, WEIGHTS)[0](self, host)
        if self.chance.random() < self.chains:
            self._chain(host)
        if self.chance.random() < self.divides:
            self._divide_one()
        if self.chance.random() < max(self.moves, 0.15 * bool(self.lost)):
            self.move(0.15 * bool(self.moves))

    def _divide_one(self) -> None:
        wide = [one for one in self.maps[-1].partitions if one.high - one.low > 1 and not one.moves]
        if wide:
            parent = self.chance.choice(wide)
            self.divide(parent, self.chance.randrange(parent.low + 1, parent.high))

    def _chain(self, host: Host) -> None:
        """A session writes two keys; another reads the later one, then the earlier one, elsewhere."""
        writer, reader = self.chance.sample(self.sessions, 2)
        first, then = self.chance.sample(range(KEYS), 2)
        for key in (first, then):
            host.write(key, writer, "one")
            host.sync()
        others = [one for one in self.hosts if one.is_up and one is not host]
        for other in self.chance.sample(others, min(2, len(others))):
            before = len(self.net)
            host.push(other.index, 99)
            while len(self.net) > before:
                self.deliver(len(self.net) - 1)
            other.sync()
        for key in (then, first, first):
            self._read_at(self.chance.choice([host, *others]), key, reader)

    def _write(self, host: Host) -> None:
        session = self.chance.choice(self.sessions)
        level = self.chance.choice(("one", "majority", "majority"))
        host.write(self.chance.randrange(KEYS), session, level, is_tombstone=self.chance.random() < 0.35)

    def _read(self, host: Host) -> None:
        self._read_at(host, self.chance.randrange(KEYS), self.chance.choice(self.sessions))

    def _read_at(self, host: Host, key: int, session: Session) -> None:
        self.hears(host, session.version)
        self.counts["read"] += host.read(key, session)

    def _push(self, host: Host) -> None:
        node = self.chance.randrange(HOSTS)
        host.push(node, self.chance.choice((1, 2, 9)))
        host.tell(node)

    def _deliver(self, _host: Host) -> None:
        for _ in range(4):
            if self.net:
                self.deliver(self.chance.randrange(len(self.net)), repeats=0.1)

    def deliver(self, at: int, *, repeats: float = 0.0) -> None:
        kind, source, target, content = self.net[at]
        if self.chance.random() >= repeats:
            del self.net[at]
        receiver = self if target < 0 else self.hosts[target]
        if isinstance(receiver, Run) or receiver.is_up:
            getattr(receiver, "settle" if target < 0 else "on_" + kind)(*(() if target < 0 else (source,)), *content)

    def _trim(self, host: Host) -> None:
        host.base = self.chance.randint(host.base, host.kept.log_end)

    def _cut(self, _host: Host) -> None:
        way = self.chance.randrange(HOSTS), self.chance.randrange(HOSTS)
        if way in self.cuts or len(self.cuts) < 4:
            self.cuts ^= {way}

    def _strike(self, host: Host) -> None:
        down = [one for one in self.hosts if not one.is_up and one.index not in self.lost]
        drawn = self.chance.random()
        is_spare = sum(one.is_up for one in self.hosts) > 2
        if down and drawn < 0.5:
            self.chance.choice(down).is_up = True
        elif drawn < 0.6 and is_spare:
            host.crash()
            host.is_up = False
        elif drawn < 0.63 and is_spare:
            self.lose(host)
        else:
            host.crash()

    # What is promised.

    def check_survival(self) -> None:
        """No minority of slots, with what is lost already, has all of anything acknowledged at a majority."""
        for (origin, count), record in self.acked.items():
            partition = self.maps[-1].at(record.key)
            if origin not in partition.named:
                continue
            hosts = [self.hosts[one.node] for one in partition.available if one.node not in self.lost]
            copies = [host.synced.copies.get(host.synced.map.at(record.key).id) for host in hosts]
            having = sum(copy is not None and copy.clock.get(origin, count) >= count for copy in copies)
            if having <= len(hosts) - REPLICATION + REPLICATION // 2:
                raise Broken("thin")

    def check(self) -> None:
        """Nothing is ahead of its clock, and equal clocks of a partition have equal live records."""
        self.check_survival()
        shown: dict[object, dict[int, Record]] = {}
        for host in self.hosts:
            host.check()
            for id_, copy in host.synced.copies.items():
                live = {key: record for key, record in copy.records.items() if not record.is_tombstone}
                clock = tuple(sorted(copy.clock.items()))
                if copy.is_loaded and shown.setdefault((id_, clock), live) != live:
                    raise Broken("unequal")

    def heal(self) -> None:
        """Nothing strikes any more: until all is moved and settled, and then quiet."""
        self.cuts.clear()
        self.ears = [1.0] * HOSTS
        for host in self.hosts:
            host.is_up = host.index not in self.lost
        quiet = 0
        for _ in range(HEAL_ROUNDS):
            before = len(self.maps), self.counts["sent entries"], self.counts["sent whole"]
            self._round()
            after = len(self.maps), self.counts["sent entries"], self.counts["sent whole"]
            quiet = quiet + 1 if before == after else 0
            is_done = not any(one.moves or one.former for one in self.maps[-1].partitions)
            if quiet >= QUIET_ROUNDS and is_done:
                return
        raise Broken("stuck")

    def _round(self) -> None:
        self.move(0)
        up = [host for host in self.hosts if host.is_up]
        for host in up:
            host.adopt(self.maps[-1])
            host.sync()
            host.settle()
            if self.chance.random() < 0.3:
                host.collect()
            for node in range(HOSTS):
                host.tell(node)
                host.push(node, 99)
        while self.net:
            self.deliver(0)
        for host in up:
            host.sync()
        self.check()

    def storm(self) -> None:
        for step in range(self.chance.choice((150, 300, 600))):
            self.step()
            if len(self.net) > 60:
                del self.net[:20]
            if step % 8 == 0:
                self.check()

    def verdict(self) -> str:
        """Run, and say what was broken, or `right`."""
        try:
            self.storm()
            self.heal()
            self.check_final()
        except Broken as broken:
            return str(broken)
        return "right"

    def check_final(self) -> None:
        """What is left is what was acknowledged, and all say so."""
        final: dict[int, Record] = {}
        for partition in self.maps[-1].partitions:
            copies = [self.hosts[node].synced.copies[partition.id] for node in partition.nodes]
            final |= copies[0].records
            if any(not copy.is_loaded or copy.clock != copies[0].clock for copy in copies):
                raise Broken("stuck")
        self._check_kept(final)
        hosts = [host for host in self.hosts if host.is_up]
        if any(host.pending for host in hosts):
            raise Broken("waits")
        for session in self.sessions:
            for partition in self.maps[-1].partitions:
                if not all(self.hosts[node].read(partition.low, session) for node in partition.nodes):
                    raise Broken("not ready")

    def _check_kept(self, final: dict[int, Record]) -> None:
        for name, acked in (("lost", self.acked), ("lost one", self.acked_one)):
            for (origin, _), record in acked.items():
                left = max(filter(None, (final.get(record.key), self.collected.get(record.key))), default=(0,))
                if left < record and (name == "lost" or self.node_of[origin] not in self.lost):
                    raise Broken(name)
        for key, record in final.items():
            if not record.is_tombstone and record < self.collected.get(key, record):
                raise Broken("undead")


@final
class Replayed(Run):
    """A run that says how to see it again, if it is not right."""

    def verdict(self) -> str:
        verdict = super().verdict()
        if verdict != "right":
            command = " ".join(("python -m tests.world.models.division", str(self.seed), "1", *sorted(self.planted)))
            sys.stdout.write(f"{verdict}: {command}\n")
        return verdict


STEPS, WEIGHTS = zip(
    (Run._write, 16), (Run._read, 16), (Run._push, 18), (Run._deliver, 24), (lambda _, host: host.sync(), 10),
    (Run._trim, 0.6), (lambda _, host: host.collect(), 3), (lambda _, host: host.settle(), 3), (Run._cut, 2),
    (lambda run, host: run.hears(host, run.maps[-1].version), 2), (Run._strike, 3),
    strict=True,
)  # fmt: skip


def main(arguments: list[str]) -> None:
    """Count the verdicts of some seeds, with what happened, and name the first of each that is not right."""
    count_verdicts(Replayed, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
