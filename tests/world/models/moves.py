"""A model of moves of one partition of a table, and of the forced replacement of what is lost.

It came before the code, to find the rules and the runs that each prevents.  A number makes a run: a storm of commands,
crashes, cuts one way, lost disks, some of which come back, late adoption, trimmed logs, and sessions that hop; then all
heals, what is wanted is reached, and it is quiet.  `python -m tests.world.models.moves FIRST COUNT [PLANTED...]` counts
verdicts, with those rules broken; `python -m tests.world.models.aimed [PLANTED...]` runs the schedules for rules that
storms strike too seldom.  The rules are in `host.py`; here are METADATA, the wire, the faults and the checkers.
Simplified: time is steps, METADATA is a list of configs, each feed sends all that its target lacks, a message may come
twice and after any later one, and who is loaded and below a log takes all of another copy at once.

Where the first text of the rules was wrong or unclear, the run that showed it (a planted bug's) and what mends it:

* *What a target merged stays when it loads anew* (`merged_stays`, seed 2): it then has records beyond its clock that
  nobody else has, once their source is gone for good: equal clocks, unequal records.  It begins from nothing.  What it
  had confirmed is not lost, for reporters are asked after the load, and each majority of them has it.  Until it is
  loaded it tells no clock, so none falls, and nothing is collected or settled by it.  Pages are kept apart until the
  last is in, so a torn load leaves nothing.
* *A slot confirms with all its hosts that are not LEAVING* (`lone_target_counts`, aimed): where the source was taken by
  force that is the target alone; a write that it and one more host confirmed is lost with that one.  A slot without an
  AVAILABLE host confirms nothing.  So a target may be unassigned at any time, and nobody needs to cover what it merged.
* *And with a target from the first* (found beside real nodes): what was written before its feed began waits until it
  has loaded, and of two replicas each write needs its slot.  One that is PROPOSED is not awaited: what a majority has
  confirmed under the config in which it is, it covers before it is AVAILABLE.
* *Forced ends are what a majority of slots reports when `unassign 2` is written* (`forced_end_not_fenced`, aimed): who
  reported may confirm under the old config afterwards, and what a majority has is answered WRITE_LOST.  As with
  reporters (hazard 34), they must have adopted: `unassign 2` leaves the ends unknown, and a later operation, `end`,
  writes what AVAILABLE hosts of a majority of slots tell under that version.  Until then a session waits.
* *`settle` takes assignments*: it needs their counters, to raise a forced end.  It may be applied to a later version.
* *A host takes entries from nodes that its config names* (`taken_of_a_newer_config`, aimed): from one of a newer
  config it may get a write, but not what that depends on, of an origin that it does not know yet; a session then steps
  back.  Nothing is taken of a newer config than one's own, neither entries nor pages; it is adopted first.
* *LEAVING answers reads until it drops* (`frozen_copy_judged_by_newest`, seed 1265): a copy that is not assigned any
  more stays as it is, so it is judged by the last config that named it.  Sessions of a newer one go elsewhere.
* *A copy that METADATA never knew is set aside*: what was settled leaves no trace there, so a copy is dropped only if
  the last config that named it says that it was LEAVING, or not AVAILABLE yet; it is set aside if it was AVAILABLE.

Rules whose breach loses nothing, and what it costs: INITIALIZING before a majority has adopted, loading in vain; the
source left out, its writes at level one if it is lost soon; LEAVING awaited for a level, or two slots moving, writes
that wait for nodes that are down; dropping before all have adopted, reads that find nobody there.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import final

from tests.world.models.copies import Assignment, Broken, Config, Copy, Dot, Pending, Record, State
from tests.world.models.counting import count_verdicts
from tests.world.models.host import Node

Message = tuple[str, int, int, tuple[object, ...]]  # Its kind, from, to: -1 is METADATA.
PLANTED = {  # A rule that is broken: a seed that shows it, and by what.  Others are in `aimed.py`.
    "available_confirms_merged": (1, "ahead"),
    "available_while_a_span_is_open": (2, "ahead"),
    "dropped_on_a_cached_map": (1, "dropped"),
    "dropped_without_confirmations": (1, "unserved"),
    "fed_from_the_old_log": (4, "unequal"),
    "feeds_while_it_loads": (4, "unequal"),
    "former_dropped_by_opinion": (12, "stuck"),
    "frozen_copy_judged_by_newest": (1265, "stale"),
    "leaving_counted_in_place": (31, "thin"),
    "merged_stays": (2, "ahead"),
    "set_aside_copy_served": (2, "served aside"),
    "target_not_needed": (334, "thin"),
}
HEAL_ROUNDS = 300
QUIET_ROUNDS = 4


@dataclass(slots=True)
class Session:
    """What a client has seen: its token, and what it must not see anything older of."""

    run: Run
    token: dict[int, int] = field(default_factory=dict)
    config: int = 0
    must: dict[int, Record] = field(default_factory=dict)

    def sees(self, record: Record | None, key: int, config: int) -> None:
        want = self.must.get(key)
        if want is not None and max(filter(None, (record, self.run.collected.get(key))), default=(0,)) < want:
            raise Broken("stale")
        if want is not None and record is not None and record < want:
            raise Broken("stale")
        self.config = max(self.config, config)
        if record is not None:
            self.knows(record)

    def knows(self, record: Record) -> None:
        self.token[record.origin] = max(record.counter, self.token.get(record.origin, 0))
        for key, must in self.run.must[record.dot].items():
            self.must[key] = max(must, self.must.get(key, must))

    def is_told_lost(self, ends: dict[int, int | None]) -> None:
        """What it has seen is lost, it was told: it begins anew."""
        lost = [(o, n) for o, n in self.token.items() if (end := ends.get(o)) is not None and n > end]
        if any(dot in self.run.acked for dot in lost):
            raise Broken("called lost")
        self.run.counts["told lost"] += 1
        self.token, self.must = {}, {}


@final
class Run:
    """METADATA, a few nodes, the wire, what strikes them, and what is promised."""

    def __init__(self, seed: int, planted: frozenset[str] = frozenset(), replication: int = 0) -> None:
        self.chance = chance = Random(seed)
        self.planted = planted
        self.replication = replication = replication or chance.choice((2, 3, 3, 3, 5))
        self.now, self.last_number, self.last_id = 0, 0, replication
        first = tuple(Assignment(i + 1, i, i, State.AVAILABLE) for i in range(replication))
        self.configs = [Config(0, replication, first)]
        self.wanted = list(range(replication))
        self.counts: Counter[str] = Counter()
        self.must: dict[Dot, dict[int, Record]] = {}
        self.acked: dict[Dot, Record] = {}  # At majority or all.
        self.acked_one: dict[Dot, Record] = {}
        self.collected: dict[int, Record] = {}
        self.settled: dict[int, int] = {}
        self.node_of = {one.id: one.node for one in first}
        self.lost: set[int] = set()
        self.returned: set[int] = set()
        self.cuts: set[tuple[int, int]] = set()
        self.net: list[Message] = []
        self.nodes = [Node(self, i, chance.choice((0, 0, 40, -40))) for i in range(replication + 4)]
        self.sessions = [Session(self) for _ in range(3)]
        self.keys = chance.choice((2, 6, 30))
        self.log_entries = chance.choice((1, 3, 8, 99))
        lag = chance.choice((0.01, 0.1, 0.5))
        self.ears = [chance.choice((lag, lag, 1.0)) for _ in self.nodes]
        self.most_lost = chance.choice((0, 1, 2))
        self.most_cuts = chance.choice((0, 2, 8))
        self.pace = chance.choice((3, 8))

    # What nodes ask of it.

    def number(self) -> int:
        self.last_number += 1
        return self.last_number

    def send(self, kind: str, source: Node, target: int, content: tuple[object, ...]) -> None:
        if (source.index, target) not in self.cuts and source.index != target:
            self.net.append((kind, source.index, target, content))

    def submit(self, source: Node, operation: str, *arguments: object) -> None:
        message = ("submit", source.index, -1, (operation, *arguments))
        if message not in self.net:
            self.net.append(message)

    def hears(self, node: Node, version: int) -> None:
        if version > node.disk.config and self.chance.random() < self.ears[node.index]:
            node.adopt(version if self.chance.random() < 0.7 else self.chance.randint(node.disk.config + 1, version))

    def later_tells(self, node: Node, host: Assignment) -> None:
        if self.chance.random() < 0.7:
            node.sync()
        node.tell(host)

    def acknowledged(self, one: Pending, version: int) -> None:
        record = one.record
        self.counts["acked " + one.level] += 1
        (self.acked_one if one.level == "one" else self.acked)[record.dot] = record
        one.session.knows(record)
        one.session.config = max(one.session.config, version)

    def dropped(self, node: Node, id_: int) -> None:
        self.counts["dropped"] += 1
        if id_ in self.configs[-1].assigned:
            raise Broken("dropped")
        hosts = [self.nodes[one.node] for one in self.configs[-1].available]
        if any(id_ in host.config(host.synced).assigned for host in hosts):
            raise Broken("unserved")  # They send readers there.

    # METADATA.

    def apply(self, operation: str, *arguments: object) -> None:
        """What an operation makes of the last config; it refuses what has no place in that."""
        last = self.configs[-1]
        changed: Config | None = getattr(self, "_" + operation)(last, *arguments)
        if changed is not None:
            self.counts[operation] += 1
            self.configs.append(replace(changed, version=last.version + 1))
            self._check_config(self.configs[-1])
            self.check_survival()

    @staticmethod
    def _advance(last: Config, id_: int, state: State) -> Config | None:
        if last.state(id_) != state - 1:
            return None
        slot, assignments = last.assigned[id_].slot, []
        for one in last.assignments:
            is_left = one.id != id_ and one.slot == slot and state == State.AVAILABLE
            to = State.LEAVING if is_left else state if one.id == id_ else one.state
            assignments.append(one._replace(state=to))
        return replace(last, assignments=tuple(assignments))

    def _unassign(self, last: Config, id_: int) -> Config | None:
        return self._without(last, id_) if last.state(id_) not in (None, State.AVAILABLE) else None

    def _force(self, last: Config, id_: int) -> Config | None:
        """`unassign 2`: the ends of whom it takes, and of the former, are to be found by who has adopted that."""
        if id_ not in last.assigned or all(one.id == id_ for one in last.available):
            return None
        ends = {origin: dict(last.ends).get(origin) for origin in {id_, *last.former}}
        if "forced_end_not_fenced" in self.planted:
            ends = {origin: self._reported(last, origin, id_) for origin in ends}
        return replace(self._without(last, id_), ends=tuple({**dict(last.ends), **ends}.items()))

    @staticmethod
    def _end(last: Config, found: tuple[Dot, ...]) -> Config | None:
        ends = dict(last.ends)
        new = {origin: count for origin, count in found if origin in ends and ends[origin] is None}
        return replace(last, ends=tuple({**ends, **new}.items())) if new else None

    def _settle(self, last: Config, found: tuple[Dot, ...]) -> Config | None:
        ends, new = dict(last.ends), {origin: count for origin, count in found if origin in last.former}
        self.settled |= new
        raised = {origin: max(count, ends[origin] or 0) for origin, count in new.items() if origin in ends}
        changed = replace(last, former=last.former - new.keys(), ends=tuple({**ends, **raised}.items()))
        return changed if new else None

    def _reported(self, last: Config, origin: int, taken: int) -> int:
        hosts = [self.nodes[one.node].mine(self.nodes[one.node].synced) for one in last.available if one.id != taken]
        return max((copy.clock.get(origin, 0) for copy in hosts if copy), default=0)

    def _assign(self, last: Config, id_: int, node: int, slot: int) -> Config | None:
        moving = {one.slot for one in last.assignments if one.state != State.AVAILABLE}
        if "two_slots_move" in self.planted:
            moving &= {slot}
        if moving or node in {one.node for one in last.assignments} or id_ in last.assigned:
            return None
        self.node_of[id_] = node
        return replace(last, assignments=(*last.assignments, Assignment(id_, node, slot, State.PROPOSED)))

    @staticmethod
    def _without(last: Config, id_: int) -> Config:
        left = tuple(one for one in last.assignments if one.id != id_)
        return replace(last, assignments=left, former=last.former | {id_})

    def _check_config(self, config: Config) -> None:
        states = [[one.state for one in hosts] for hosts in config.slots.values()]
        assert all(len(held) <= 2 and held.count(State.AVAILABLE) <= 1 for held in states)
        assert config.available
        if "two_slots_move" not in self.planted:
            assert sum(held != [State.AVAILABLE] for held in states) <= 1

    # The mover and the operator.

    def move(self, _node: Node) -> None:
        """Turn the difference between wanted and now into the next operation."""
        last = self.configs[-1]
        lost = [one for one in last.assignments if one.node in self.lost]
        targets = [one for one in last.assignments if one.state < State.AVAILABLE]
        if lost:
            one = self.chance.choice(lost)
            self.submit(self.nodes[one.node], "force" if one.state >= State.AVAILABLE else "unassign", one.id)
        elif targets and not self.is_healing and self.chance.random() < 0.03:
            self.submit(self.nodes[0], "unassign", targets[0].id)  # It has stalled, it seems.
        elif not targets or "two_slots_move" in self.planted:
            self._assign_wanted(last)

    def _assign_wanted(self, last: Config) -> None:
        for slot, node in enumerate(self.wanted):
            if node in self.lost or node in {one.node for one in last.assignments if one.slot != slot}:
                self.want(slot)
                continue
            hosts = last.slots.get(slot, [])
            if node not in {one.node for one in last.assignments} and len(hosts) < 2:
                self.last_id += 1
                self.submit(self.nodes[node], "assign", self.last_id, node, slot)
                return

    def want(self, slot: int) -> None:
        """A command: the slot is to be on another node."""
        used = {*self.wanted, *(one.node for one in self.configs[-1].assignments if one.slot != slot)}
        free = [node.index for node in self.nodes if node.index not in self.lost | used]
        if free:
            self.wanted[slot] = self.chance.choice(free)

    # What strikes.

    def lose(self, node: Node) -> None:
        """A node is lost for good, disk included, if only a minority of slots is by that."""
        lost = self.lost | {node.index}
        last = self.configs[-1]
        left = {one.slot for one in last.available if one.node not in lost}
        spare = len(self.nodes) - len(lost)
        if self.replication - len(left) > self.replication // 2 or not left or spare < self.replication:
            return
        is_few = len(lost) > self.most_lost or sum(one.is_up for one in self.nodes) <= 2
        if node.index in self.lost or (is_few and not self.is_over):
            return
        self.counts["lost"] += 1
        self.lost = lost
        node.is_up = False
        node.crash()

    def step(self) -> None:
        """Something happens to one of those that are up."""
        self.now += 1
        up = [node for node in self.nodes if node.is_up]
        node = self.chance.choice([one for one in up if one.disk.copies] or up)
        self.chance.choices(STEPS, WEIGHTS)[0](self, node)

    def _other(self, node: Node) -> Assignment | None:
        others = [one for one in node.says().assignments if one.node != node.index]
        return self.chance.choice(others) if others and node.mine(node.synced) else None

    def _push(self, node: Node) -> None:
        other = self._other(node)
        if other:
            node.push(other, self.chance.choice((1, 2, 9)))

    def _tell(self, node: Node) -> None:
        other = self._other(node)
        if other:
            node.tell(other)

    def _deliver(self, _node: Node) -> None:
        for _ in range(self.pace):
            if self.net:
                self.deliver(self.chance.randrange(len(self.net)), repeats=0.1)

    def _decide(self, _node: Node) -> None:
        for node in self.nodes:
            if node.is_up:
                node.look_for_loads()
                node.look()

    def _refresh(self, node: Node) -> None:
        self.hears(node, self.configs[-1].version)

    def _command(self, _node: Node) -> None:
        self.want(self.chance.randrange(self.replication))

    def _new_session(self, _node: Node) -> None:
        self.sessions[self.chance.randrange(len(self.sessions))] = Session(self)

    def _write(self, node: Node) -> None:
        session = self.chance.choice(self.sessions)
        self.hears(node, session.config)
        level = self.chance.choice(("one", "majority", "majority", "all"))
        node.write(self.chance.randrange(self.keys), session, level, is_tombstone=self.chance.random() < 0.35)

    def _read(self, node: Node) -> None:
        session = self.chance.choice(self.sessions)
        self.hears(node, session.config)
        self.counts[f"read {node.read(self.chance.randrange(self.keys), session)}"] += 1

    def trim(self, node: Node) -> None:
        copy = node.mine(node.disk)
        while copy and len(copy.log) > self.log_entries:
            entry = copy.log.pop(0)
            copy.base += 1
            copy.floor = entry.after

    def _cut(self, _node: Node) -> None:
        way = self.chance.randrange(len(self.nodes)), self.chance.randrange(len(self.nodes))
        if way in self.cuts or len(self.cuts) < self.most_cuts:
            self.cuts ^= {way}

    def _strike(self, node: Node) -> None:
        down = [one for one in self.nodes if not one.is_up and (one.index not in self.lost or self._returns(one))]
        drawn = self.chance.random()
        if down and drawn < 0.5:
            self.chance.choice(down).is_up = True
        elif drawn < 0.65 and sum(one.is_up for one in self.nodes) > 2:
            node.crash()
            node.is_up = False
        elif drawn < 0.7:
            self.lose(node)
        else:
            node.crash()

    def _returns(self, node: Node) -> bool:
        """Of those that are lost, some come back with their disk."""
        return node.index % 2 == 1

    def deliver(self, at: int, *, repeats: float = 0.0) -> None:
        kind, source, target, content = self.net[at]
        if self.chance.random() >= repeats:
            self.net[at] = self.net[-1]
            self.net.pop()
        if kind == "submit":
            self.apply(str(content[0]), *content[1:])
            if self.nodes[source].is_up and self.chance.random() < 0.5:
                self.nodes[source].adopt(self.configs[-1].version)
        elif self.nodes[target].is_up:
            getattr(self.nodes[target], "on_" + kind)(source, *content)

    # What is promised.

    def check_survival(self) -> None:
        """No minority of slots, with what is lost already, has all of anything acknowledged at a majority."""
        last = self.configs[-1]
        hosts = [one for one in last.available if one.node not in self.lost]
        clocks = [copy.clock for one in hosts if (copy := self.nodes[one.node].synced.copies.get(one.id))]
        spare = len(hosts) - self.replication + self.replication // 2
        for origin, count in self.acked:
            if origin in last.named and sum(clock.get(origin, 0) >= count for clock in clocks) <= spare:
                raise Broken("thin")

    def check(self) -> None:
        """Of those that are loaded: nothing is ahead of its clock, and equal clocks have equal live records."""
        self.check_survival()
        shown: dict[object, dict[int, Record]] = {}
        for node in self.nodes:
            copy = node.mine(node.synced)
            if copy is None or not copy.is_loaded:
                continue
            named = self.configs[copy.config].named
            dots = (one.dot for one in copy.records.values() if one.origin in named)
            if any(count > copy.clock.get(origin, 0) for origin, count in dots):
                raise Broken("ahead")
            live = {key: record for key, record in copy.records.items() if not record.is_tombstone}
            if shown.setdefault(tuple(sorted(copy.clock.items())), live) != live:
                raise Broken("unequal")

    is_healing = is_over = False

    def heal(self) -> None:
        """Nothing strikes any more: until all is as wanted, and then quiet."""
        self.is_healing = True
        self.cuts.clear()
        self.ears = [1.0] * len(self.nodes)
        for node in self.nodes:
            node.is_up |= node.index not in self.lost or self._returns(node)
        quiet, before = 0, None
        for _ in range(HEAL_ROUNDS):
            self._round()
            now = self.configs[-1].version, [n.synced for n in self.nodes]
            quiet = quiet + 1 if now == before and self._is_as_wanted() else 0
            before = now
            if quiet == QUIET_ROUNDS:
                return
        raise Broken("stuck")

    def _is_as_wanted(self) -> bool:
        last = self.configs[-1]
        is_there = [(one.slot, one.node, one.state) for one in sorted(last.assignments, key=lambda one: one.slot)]
        is_done = is_there == [(slot, node, State.AVAILABLE) for slot, node in enumerate(self.wanted)]
        return is_done and not last.former

    def _round(self) -> None:
        self.now += 10
        self.move(self.nodes[0])
        up = [node for node in self.nodes if node.is_up]
        for node in up:
            node.adopt(self.configs[-1].version)
            node.sync()
            node.look_for_loads()
            node.look()
            node.look_at_register()
            for one in node.config(node.synced).assignments:
                if one.node != node.index:
                    node.tell(one)
                    node.push(one, 99)
            self.trim(node)
            if self.chance.random() < 0.3:
                node.collect()
        while self.net:
            self.deliver(0)
        for node in up:
            node.sync()
        self.check()

    def verdict(self) -> str:
        """Run, and say what was broken, or `right`."""
        try:
            for step in range(self.chance.choice((500, 1000, 2500))):
                self.step()
                if len(self.net) > 80:
                    del self.net[: len(self.net) - 60]
                if step % 8 == 0:
                    self.check()
            self.is_over = True
            for node in self.chance.sample(self.nodes, self.chance.choice((0, 3, 8)) and len(self.nodes)):
                self.lose(node)
            self.heal()
            self.check_final()
        except Broken as broken:
            return str(broken)
        return "right"

    def check_final(self) -> None:
        """What is left is what was acknowledged, and all say so."""
        copies = [self.nodes[one.node].mine(self.nodes[one.node].synced) for one in self.configs[-1].assignments]
        final = copies[0]
        assert final is not None
        serving = [node.serving() for node in self.nodes if node.is_up]
        self._check_kept(final)
        broken = {
            "stuck": any(copy is None or copy.clock != final.clock for copy in copies),
            "served aside": any(copy is not None and copy.clock != final.clock for copy in serving),
            "waits": any(node.pending for node in self.nodes if node.is_up),
            "not ready": any(self._is_refused(session) for session in self.sessions),
        }
        for name, is_broken in broken.items():
            if is_broken:
                raise Broken(name)

    def _check_kept(self, final: Copy) -> None:
        for name, acked in (("lost", self.acked), ("lost one", self.acked_one)):
            for (origin, count), record in acked.items():
                if name == "lost one" and self.node_of[origin] in self.lost:
                    continue
                left = max(filter(None, (final.records.get(record.key), self.collected.get(record.key))), default=(0,))
                if left < record or final.clock.get(origin, self.settled.get(origin, count)) < count:
                    raise Broken(name)
        for key, record in final.records.items():
            if not record.is_tombstone and record < self.collected.get(key, record):
                raise Broken("undead")

    def _is_refused(self, session: Session) -> bool:
        hosts = [self.nodes[one.node] for one in self.configs[-1].assignments]
        return any(host.read(key, session) == "NOT_READY" for host in hosts for key in range(self.keys))


STEPS, WEIGHTS = zip(
    (Run._write, 14), (Run._read, 8), (Run._push, 14), (Run._tell, 6), (Run._deliver, 32), (lambda _, n: n.sync(), 6),
    (Run._decide, 6), (Run.trim, 2), (lambda _, n: n.collect(), 2), (Run._refresh, 2), (Run.move, 3),
    (lambda _, n: n.look_at_register(), 1), (Run._command, 1), (Run._cut, 1), (Run._strike, 1), (Run._new_session, 1),
    strict=True,
)  # fmt: skip


def main(arguments: list[str]) -> None:
    """Count the verdicts of some seeds, and name the first of each that is not right."""
    count_verdicts(Run, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
