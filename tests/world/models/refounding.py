"""A model of ranges that begin anew since all their hosts are gone, at a node of people's choice.

A number makes a run: divisions, moves, hosts that are lost and come back, or are taken out by force, so that copies are
set aside; then people ask whether a host answers and what a node has set aside, and some steps later have a range go on
with a copy of that, or with nothing.  `python -m tests.world.models.refounding FIRST COUNT [PLANTED...]` counts
verdicts, with those rules broken.  Simplified: what is written is synced, a copy takes all that another has at once,
and what a range is to go on with is not dropped before it does.

Code came first here.  What the model has changed of it:

* *A copy has what its clock says, and of whom that is silent all up to its end* (`ended_forgotten`): the clock names
  nobody any more who was forced out and settled, and the range began anew with an end of 0 there.  Who read what that
  had written was told at the next request that it is lost, again and again.
* *The map names the copy that is kept* (`kept_by_its_ends`): it was found by what it had.  Of who has ended unforced
  nothing tells: a range that was to begin with nothing went on with a copy to which nobody had written since.
* *Where a forced assignment is settled is its end* (`settled_below_its_end`): its end was what had been kept, and who
  alone had that was forced out as well; once it was settled, sessions that had seen it were shown what was before.

    lost        what was acknowledged since a range began anew, or was kept, is not there in the end
    unequal     copies of one clock have other records
    session     who has seen something is shown what was before, and not told that it is lost
    told lost   who was shown something by a copy is told by that very copy that it is lost
    shadowed    what was just written is not what stands there
    merged      in a range that began anew there is what somebody wrote before, and what was kept does not have
    stuck       in the end copies of a range differ, or do not answer a session
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from random import Random
from typing import NamedTuple, final

from tests.world.models.copies import Broken
from tests.world.models.counting import count_verdicts

PLANTED = {  # A rule that is broken: a seed that shows it, and by what.
    "while_one_answers": (1, "lost"),
    "not_looked_at_again": (6, "lost"),
    "old_copy_merged": (0, "merged"),
    "old_copy_taken_up": (12, "merged"),
    "replaced_are_former": (36, "merged"),
    "ends_of_the_map": (0, "session"),
    "part_kept": (233, "session"),
    "unwhole_kept": (712, "told lost"),
    "kept_without_time": (13, "shadowed"),
    "ended_forgotten": (9, "told lost"),
    "kept_by_its_ends": (176, "merged"),
    "settled_below_its_end": (1008, "session"),
}
STEPS, NODES, MOST_NODES, MOST_PARTS, KEYS, SLOTS, SESSIONS, SKEW = 1500, 5, 20, 3, 6, 3, 3, 800
Clock = dict[int, int]  # By assignment.


class Record(NamedTuple):
    """What stands under a key: of two the greater stays."""

    time: int
    origin: int
    counter: int


@dataclass(frozen=True)
class Part:
    """A range, by a map: its hosts by node, each with its assignment, and whether that is AVAILABLE."""

    id: int
    first: int
    end: int
    hosts: dict[int, tuple[int, bool]]
    former: frozenset[int] = frozenset()
    ends: Clock = field(default_factory=dict)
    kept: int = 0  # The assignment of the copy that it goes on with, since it began anew.

    @property
    def named(self) -> frozenset[int]:
        return self.former | {one for one, _ in self.hosts.values()}

    def available(self, node: int) -> bool:
        return self.hosts.get(node, (0, False))[1]


@dataclass
class Copy:
    """What a node has of a range, under an assignment, by the record of it that it has adopted last."""

    part: Part
    assignment: int
    first: int
    end: int
    is_whole: bool
    clock: Clock = field(default_factory=dict)
    time: int = 0
    records: dict[int, Record] = field(default_factory=dict)

    def adopts(self, part: Part) -> None:
        self.part, self.clock = part, {one: self.clock.get(one, 0) for one in part.named}

    def clipped(self, first: int, end: int) -> Copy:
        records = {key: one for key, one in self.records.items() if first <= key < end}
        return replace(self, first=first, end=end, clock=dict(self.clock), records=records)

    def covers(self, part: Part) -> bool:
        return self.first <= part.first and part.end <= self.end

    def has(self, planted: frozenset[str]) -> Clock:
        """Of each assignment up to where it has all."""
        return self.clock if "ended_forgotten" in planted else {**self.part.ends, **self.clock}

    def puts(self, key: int, record: Record) -> None:
        if self.first <= key < self.end:
            self.records[key] = max(record, self.records.get(key, record))
        self.time = max(self.time, record.time)

    def says(self, token: Clock) -> str:
        """Whether it is ready for a session."""
        lacks = {one: count for one, count in token.items() if count > self.clock.get(one, 0)}
        if any(count > self.part.ends.get(one, count) for one, count in lacks.items()):
            return "lost"
        return "not ready" if lacks.keys() & self.clock.keys() else "ready"


@dataclass
class Node:
    """A node, and the map that it knows."""

    number: int
    skew: int
    known: int = 0
    is_up: bool = True
    is_lost: bool = False
    copies: dict[int, Copy] = field(default_factory=dict)  # By range.
    aside: list[Copy] = field(default_factory=list)


@dataclass
class Session:
    """What a client has seen, and of which map at least."""

    token: Clock = field(default_factory=dict)
    known: int = 0
    seen: dict[int, Record] = field(default_factory=dict)


class Question(NamedTuple):
    """What people were told of a range: what a node would keep; and whether a host could have answered."""

    part: Part
    node: Node
    kept: Copy | None
    answers: bool


@final
class Run:
    """Nodes, maps, sessions, people."""

    def __init__(self, seed: int, planted: frozenset[str] = frozenset()) -> None:
        self.chance = Random(seed)
        self.planted = planted
        self.counts: Counter[str] = Counter()
        self.now = self.last_id = 0
        self.nodes: list[Node] = []
        self.written: dict[tuple[int, int], tuple[int, Record]] = {}
        self.acked: list[tuple[int, int, Record]] = []  # The range that has it, key, record.
        self.roots: dict[int, int] = {}  # Of each assignment and range that which began anew last.
        self.kept: dict[int, Copy | None] = {}  # What each of those was to go on with.
        self.maps: list[dict[int, Part]] = [{}]
        self.sessions = [Session() for _ in range(SESSIONS)]
        self.question: Question | None = None
        self._decide([Part(self._id(), 0, KEYS, {node: (self._id(), True) for node in range(SLOTS)})], root=1)
        for _ in range(NODES):
            self._comes()

    def _id(self) -> int:
        self.last_id += 1
        return self.last_id

    def _comes(self) -> None:
        node = Node(len(self.nodes), self.chance.randint(-SKEW, SKEW))
        self.nodes.append(node)
        self._hears(node, len(self.maps) - 1)

    def verdict(self) -> str:
        """Run it."""
        try:
            for self.now in range(SKEW, SKEW + STEPS):
                self.chance.choices(STEP, WEIGHTS)[0](self)
                self._check()
            self._heal()
        except Broken as broken:
            return str(broken)
        return "right"

    # -- what is decided ---------------------------------------------------------------------------------------------

    def _decide(self, parts: list[Part], gone: Part | None = None, root: int = 0) -> None:
        self.maps.append({id_: one for id_, one in self.maps[-1].items() if one is not gone})
        for part in parts:
            self.maps[-1][part.id] = part
            for one in (part.id, *part.named - part.former):
                self.roots.setdefault(one, root or self.roots[(gone or part).id])

    def _part(self) -> Part:
        return self.chance.choice([*self.maps[-1].values()])

    def _hosts(self, part: Part) -> list[Copy | None]:
        """The copies of those that are AVAILABLE, up or not."""
        return [self.nodes[one].copies.get(part.id) for one in part.hosts if part.available(one)]

    def _divide(self) -> None:
        part = self._part()
        if part.end - part.first < 2 or len(self.maps[-1]) >= MOST_PARTS or not all(map(part.available, part.hosts)):
            return
        cut = self.chance.randrange(part.first + 1, part.end)
        children = [
            replace(part, id=self._id(), first=first, end=end, hosts=self._anew(part), former=part.named)
            for first, end in ((part.first, cut), (cut, part.end))
        ]
        self._decide(children, gone=part)
        low, high = (one.id for one in children)
        self.acked = [(id_ if id_ != part.id else low if key < cut else high, key, one) for id_, key, one in self.acked]

    def _anew(self, part: Part) -> dict[int, tuple[int, bool]]:
        return {node: (self._id(), True) for node in part.hosts}

    def _join(self) -> None:
        part, node = self._part(), self.chance.choice(self.nodes)
        if node.is_up and node.number not in part.hosts and len(part.hosts) < SLOTS:
            self._decide([replace(part, hosts={**part.hosts, node.number: (self._id(), False)})])

    def _load(self) -> None:
        """Who comes has what all hosts have that have heard of it, and is AVAILABLE."""
        part = self._part()
        hosts = self._hosts(part)
        for node in [self.nodes[one] for one in part.hosts if not part.available(one)]:
            copy, up = node.copies.get(part.id), all(self.nodes[one].is_up for one in part.hosts)
            if copy is None or not up or any(one is None or one.part != copy.part for one in hosts):
                continue
            copy.records = {}  # What it has merged ahead others may not have any more.
            for host in filter(None, hosts):
                copy.clock = {one: max(count, host.clock[one]) for one, count in copy.clock.items()}
                for key, record in host.records.items():
                    copy.puts(key, record)
                copy.time = max(copy.time, host.time)
            copy.is_whole = True
            self._decide([replace(part, hosts={**part.hosts, node.number: (copy.assignment, True)})])
            self.counts["moved"] += 1
            return

    def _force(self) -> None:
        """A host that is down is taken out; the others have heard, and say what is kept."""
        part = self._part()
        down = [one for one in part.hosts if not self.nodes[one].is_up]
        left = [self.nodes[one] for one in part.hosts if one not in down and part.available(one)]
        if not down or not left:
            return
        gone = self.chance.choice(down)
        hosts = {one: held for one, held in part.hosts.items() if one != gone}
        assignment, was_available = part.hosts[gone]
        for node in left:
            self._hears(node, len(self.maps) - 1)
        copies = [node.copies[part.id] for node in left]
        forced = (*part.former, assignment) if was_available else ()
        ends = {one: max(copy.clock[one] for copy in copies) for one in forced if one not in part.ends}
        former = part.former | {assignment} if was_available else part.former
        self._decide([replace(part, hosts=hosts, former=former, ends={**part.ends, **ends})])
        for node in left:
            self._hears(node, len(self.maps) - 1)
        self.acked = [one for one in self.acked if one[0] != part.id or any(_has(copy, *one[1:]) for copy in copies)]
        self.counts["forced"] += 1

    def _settle(self) -> None:
        part = self._part()
        copies = [self.nodes[one].copies.get(part.id) for one in part.hosts]
        there = [one for one in copies if one is not None and one.is_whole]
        if len(there) < len(copies):
            return
        counts = {one: {copy.clock[one] if one in copy.part.former else None for copy in there} for one in part.former}
        settled = {one: some.pop() or 0 for one, some in counts.items() if len(some) == 1 and None not in some}
        ends = part.ends | {one: count for one, count in settled.items() if self._ends_at(part, one, count)}
        if settled:
            self._decide([replace(part, former=part.former - settled.keys(), ends=ends)])
            self.counts["settled"] += 1

    def _ends_at(self, part: Part, one: int, count: int) -> bool:
        """Whether the end of what was settled is there."""
        return one in part.ends and ("settled_below_its_end" not in self.planted or count > part.ends[one])

    # -- people ------------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        part, node = self._part(), self.chance.choice(self.nodes)
        if self.chance.random() < 0.8:  # Mostly where something is set aside.
            node = self.chance.choice([one for one in self.nodes if one.aside] or self.nodes)
        answer = [self.nodes[one].is_up for one in part.hosts if part.available(one)]
        answers = all(answer) if "while_one_answers" in self.planted else any(answer)
        if answers or not node.is_up:
            return
        usable: list[Copy | None] = [one for one in node.aside if self._may_be_kept(one, part)]
        self.question = Question(part, node, self.chance.choice([*usable[:2], None]), any(answer))

    def _may_be_kept(self, one: Copy, part: Part) -> bool:
        if "part_kept" in self.planted:
            return one.is_whole and one.first < part.end and part.first < one.end
        return (one.is_whole or "unwhole_kept" in self.planted) and one.covers(part)

    def _refound(self) -> None:
        """What people were told stands, if the range has not changed since."""
        if self.question is None:
            return
        (was, node, kept, answers), self.question = self.question, None
        part = self.maps[-1].get(was.id)
        if part is None or (part != was and "not_looked_at_again" not in self.planted):
            self.counts["refused"] += 1
            return
        ends = dict.fromkeys((*part.named, *part.ends), 0) | (kept.has(self.planted) if kept is not None else {})
        if "ends_of_the_map" in self.planted:
            ends = {one: max((dot[1] for dot in self.written if dot[0] == one), default=0) for one in ends}
        former = part.named if "replaced_are_former" in self.planted else frozenset[int]()
        new = Part(
            self._id(),
            part.first,
            part.end,
            {node.number: (self._id(), True)},
            former,
            ends,
            0 if kept is None else kept.assignment,
        )
        self._decide([new], gone=part, root=new.id)
        self.kept[new.id] = kept
        is_fair = part == was and not answers  # Else nothing may be lost.
        self.acked = [
            (new.id if one[0] == part.id else one[0], *one[1:])
            for one in self.acked
            if one[0] != part.id or not is_fair or (kept is not None and _has(kept, *one[1:]))
        ]
        self.counts["kept" if kept is not None else "begun empty"] += 1
        self.counts["begun anew again"] += self.roots[part.id] != 1

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        node = self.chance.choice(self.nodes)
        if node.is_up:
            self._hears(node, self.chance.randint(node.known, len(self.maps) - 1))

    def _hears(self, node: Node, version: int) -> None:
        """Hold what a map says."""
        node.known, parts = version, self.maps[version]
        for copy in [*node.copies.values()]:
            part = parts.get(copy.part.id)
            if part is None:
                self._divided(node, copy, parts)
            elif part.hosts.get(node.number, (0,))[0] == copy.assignment:
                copy.adopts(part)
            else:
                self._leaves(node, copy, [part])
        for part in parts.values():
            if node.number in part.hosts and part.id not in node.copies:
                node.copies[part.id] = self._begin(node, part)

    def _leaves(self, node: Node, copy: Copy, parts: list[Part]) -> None:
        del node.copies[copy.part.id]
        if copy.part.available(node.number) or any(copy.assignment in part.ends for part in parts):
            node.aside.append(copy)
            self.counts["set aside"] += 1

    def _divided(self, node: Node, copy: Copy, parts: dict[int, Part]) -> None:
        """Its range is not there any more: what stands in its place goes on with it, or others do."""
        there = [one for one in parts.values() if one.first < copy.end and copy.first < one.end]
        heirs = [
            part
            for part in there
            if part.available(node.number) and copy.covers(part) and part.id not in node.copies
            and (copy.assignment in part.former or "old_copy_taken_up" in self.planted)
        ]  # fmt: skip
        if not heirs:
            self._leaves(node, copy, there)
            return
        del node.copies[copy.part.id]
        for part in there:
            if part in heirs:
                heir = copy.clipped(part.first, part.end)
                heir.assignment = part.hosts[node.number][0]
                heir.adopts(part)
                node.copies[part.id] = heir
            else:
                node.aside.append(copy.clipped(part.first, part.end))

    def _begin(self, node: Node, part: Part) -> Copy:
        new = Copy(part, part.hosts[node.number][0], part.first, part.end, part.available(node.number))
        new.adopts(part)
        if new.is_whole and part.ends:
            for one in node.aside:
                if self._may_be_kept(one, part) and self._is_kept(one, part):
                    self._keep(node, one, new)
                    break
        return new

    def _is_kept(self, one: Copy, part: Part) -> bool:
        if "old_copy_merged" in self.planted:
            return True
        if "kept_by_its_ends" in self.planted:
            return one.has(self.planted).items() <= part.ends.items()
        return one.assignment == part.kept

    def _keep(self, node: Node, one: Copy, new: Copy) -> None:
        node.aside.remove(one)
        rest = ((one.first, new.first), (new.end, one.end))
        node.aside += [one.clipped(first, end) for first, end in rest if first < end]
        new.records = one.clipped(new.first, new.end).records
        new.time = 0 if "kept_without_time" in self.planted else one.time
        if new.part.former:
            new.clock |= {origin: count for origin, count in one.clock.items() if origin in new.clock}

    def _feed(self, one: Node | None = None, other: Node | None = None) -> None:
        if one is None or other is None:
            one, other = self.chance.sample(self.nodes, 2)
        for id_ in one.copies.keys() & other.copies.keys() if one.is_up and other.is_up else ():
            self._take(one, one.copies[id_], other, other.copies[id_])

    def _take(self, source: Node, has: Copy, node: Node, copy: Copy) -> bool:
        """A copy takes what another has, of a host that its map names and that names it; whether it did."""
        named = copy.part.hosts.get(source.number, (0,))[0], has.part.hosts.get(node.number, (0,))[0]
        if named != (has.assignment, copy.assignment) or not has.is_whole:
            return False
        for origin in copy.clock.keys() & has.clock.keys():
            first = copy.clock[origin] if copy.is_whole else max(0, has.clock[origin] - 1)  # Ahead of its clock.
            for count in range(first + 1, has.clock[origin] + 1):
                copy.puts(*self.written[origin, count])
            if copy.is_whole:
                copy.clock[origin] = max(copy.clock[origin], has.clock[origin])
        return copy.is_whole

    def _undo(self) -> None:
        """A map was forced back to before a division and a move: what a child's new host had is set aside."""
        part, node = self._part(), self.chance.choice(self.nodes)
        copy, cut = self.chance.choice(self._hosts(part)), self.chance.randint(part.first + 1, part.end)
        if copy is not None and node.number not in part.hosts and not node.is_lost:
            one = copy.clipped(part.first, cut)
            one.assignment = self._id()
            self.roots[one.assignment] = self.roots[part.id]
            one.clock[one.assignment] = 0
            node.aside.append(one)

    def _strike(self) -> None:
        """Nodes go and come; all hosts of a range go; one is lost for good, and another node comes."""
        chance = self.chance
        match chance.randrange(8):
            case 0:
                chance.choice(self.nodes).is_up = False
            case 1 if chance.random() < 0.3:
                for number in self._part().hosts:
                    self.nodes[number].is_up = False
            case 2 if len(self.nodes) < MOST_NODES:
                node = chance.choice(self.nodes)
                node.is_up, node.is_lost = False, True
                self._comes()
            case _:
                node = chance.choice(self.nodes)
                node.is_up = not node.is_lost

    # -- clients -----------------------------------------------------------------------------------------------------

    def _use(self) -> None:
        chance = self.chance
        node, session, key = chance.choice(self.nodes), chance.choice(self.sessions), chance.randrange(KEYS)
        here = [one for one in node.copies.values() if one.first <= key < one.end and one.part.available(node.number)]
        if not here or not node.is_up or node.known < session.known:
            return
        told = here[0].says(session.token)
        if told == "ready":
            (self._write if chance.random() < 0.5 else self._read)(node, here[0], session, key)
        elif told == "lost":
            session.token, session.seen = {}, {}
            self.counts["told that it is lost"] += 1

    def _read(self, node: Node, copy: Copy, session: Session, key: int) -> None:
        record = copy.records.get(key, Record(0, 0, 0))
        seen = session.seen.get(key, record)
        is_here = self.roots.get(seen.origin) == self.roots[copy.part.id] or seen.origin in copy.part.ends
        if record < seen and is_here:  # Of who had ended before, unforced, all had what he wrote: nobody is told.
            raise Broken("session")
        self._sees(node, session, key, record)
        if copy.says({record.origin: record.counter}) == "lost":
            raise Broken("told lost")

    def _sees(self, node: Node, session: Session, key: int, record: Record) -> None:
        session.token[record.origin] = max(record.counter, session.token.get(record.origin, 0))
        session.seen[key], session.known = record, max(session.known, node.known)

    def _write(self, node: Node, copy: Copy, session: Session, key: int) -> None:
        copy.time = max(copy.time + 1, self.now + node.skew)
        copy.clock[copy.assignment] += 1
        record = Record(copy.time, copy.assignment, copy.clock[copy.assignment])
        self.written[record[1:]] = key, record
        copy.puts(key, record)
        if copy.records[key] != record:
            raise Broken("shadowed")
        self._sees(node, session, key, record)
        if self.chance.random() < 0.5:  # Else at one: of that the same is demanded while its host is there.
            for other in self.nodes:
                self._feed(node, other)
        for part in self.maps[-1].values():
            is_here = part.first <= key < part.end and self.roots[part.id] == self.roots[copy.part.id]
            if is_here and copy.assignment not in part.ends:  # Who was taken out, and has not heard, writes in vain.
                self.acked.append((part.id, key, record))

    # -- what is promised --------------------------------------------------------------------------------------------

    def _check(self) -> None:
        copies = [one for node in self.nodes for one in node.copies.values() if one.is_whole]
        for one, other in combinations(copies, 2):
            if one.part.id == other.part.id and one.clock == other.clock and one.records != other.records:
                raise Broken("unequal")
        for copy in copies:
            root = self.roots[copy.part.id]
            kept = self.kept.get(root)
            there = {} if kept is None else kept.records
            if any(self.roots[one.origin] != root and there.get(key) != one for key, one in copy.records.items()):
                raise Broken("merged")

    def _heal(self) -> None:
        """Whose hosts are all lost begins anew; all others come; what is acknowledged is there, and all answer."""
        for node in self.nodes:
            node.is_up = not node.is_lost
        for _ in range(100):
            for node in self.nodes:
                self._hears(node, len(self.maps) - 1 if node.is_up else node.known)
            for part in self.maps[-1].values():
                for one, other in permutations(part.hosts, 2):
                    self._feed(self.nodes[one], self.nodes[other])
            for do in (self._ask, self._refound, self._force, self._load, self._settle):
                do()
        for part in self.maps[-1].values():
            self._check_final([self.nodes[one].copies.get(part.id) for one in part.hosts])

    def _check_final(self, copies: list[Copy | None]) -> None:
        one = copies[0]
        if one is None or any(
            other is None or (one.clock, one.records) != (other.clock, other.records) for other in copies
        ):
            raise Broken("stuck")
        if any(one.says(session.token) == "not ready" for session in self.sessions):
            raise Broken("stuck")
        if not all(_has(one, key, record) for id_, key, record in self.acked if id_ == one.part.id):
            raise Broken("lost")


def _has(copy: Copy, key: int, record: Record) -> bool:
    return copy.records.get(key, (0,)) >= record


STEP, WEIGHTS = zip(
    (Run._use, 30), (Run._feed, 20), (Run._hear, 12), (Run._strike, 6), (Run._join, 4), (Run._load, 8), (Run._force, 3),
    (Run._settle, 4), (Run._divide, 1), (Run._ask, 8), (Run._refound, 4), (Run._undo, 1),
    strict=True,
)  # fmt: skip


def main(arguments: list[str]) -> None:
    """Count the verdicts of some seeds."""
    count_verdicts(Run, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
