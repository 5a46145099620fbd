"""Random histories of one map on four nodes, compared with plain dictionaries after each step.

Rounds are those of Paxos, one at a time: a proposer finds the highest value that a quorum has accepted, and some nodes
accept the next. So undecided transactions are replaced by others, and nodes lag. A force goes on with the value of one
survivor. Each batch of a node may be its last one before a crash.
"""

from __future__ import annotations

from itertools import takewhile
from random import Random

from gossipkv.register import state
from gossipkv.register.ballot import Ballot
from gossipkv.register.configuration import AcceptorId, Acceptors
from gossipkv.register.edits import MapValue, decode_value, digest_of
from gossipkv.register.snapshot import SnapshotReader, page_of
from gossipkv.register.state import Base, RegisterMap, read_map

NODES, ACCEPTORS = range(4), Acceptors.of([AcceptorId(b"n" * 16, 1)])
CREATED = Ballot(0, 0, 0, 0), MapValue()


class Plain:
    """The map after a transaction, and the way to it."""

    def __init__(self, before=None, edits=()):
        self.before, self.edits = before, edits
        self.sequence = 0 if before is None else before.sequence + 1
        entries = {} if before is None else {**before.entries, **dict(edits)}
        self.entries = {key: record for key, record in entries.items() if record is not None}

    def way(self):
        """Yield this map and those before it, down to the empty one."""
        plain = self
        while plain is not None:
            yield plain
            plain = plain.before

    def at(self, sequence):
        """Return the entries at a sequence on the way to this map; None if it is beyond."""
        return next((one.entries for one in self.way() if one.sequence == sequence), None)

    def has(self, base):
        """Return True if a base is on the way to this map, or is this map."""
        return dict(base.entries.scan()) == self.at(base.sequence)


def size_of(edits):
    return sum(len(key) + len(record or b"") for key, record in edits)


class Node:
    def __init__(self):
        self.map, self.accepted = RegisterMap(), CREATED
        self.disk = {}
        self.batches = []  # Not synced yet: records, the base and the accepted value after them.
        self.synced = None, CREATED
        self.history_begins = 0  # The sequence of the first base whose successors are all in the history.

    def lead(self):
        """Return by how many transactions the base is beyond the accepted value."""
        return 0 if self.map.base is None else self.map.base.sequence - self.accepted[1].sequence

    def append(self, *batches):
        """Append batches, the last with the accepted value and the base."""
        before = self.batches[-1][1:] if self.batches else self.synced
        self.batches += [(batch, *before) for batch in batches[:-1]]
        self.batches.append((batches[-1], self.map.base, self.accepted))

    def after_crash(self, count):
        """Return the records, base and accepted value that a crash after some batches leaves."""
        disk = {**self.disk}
        for records, *_ in self.batches[:count]:
            disk |= records
        disk = {key: record for key, record in disk.items() if record is not None}
        return disk, *(self.batches[count - 1][1:] if count else self.synced)

    def sync(self, count=None):
        count = len(self.batches) if count is None else count
        self.disk, *self.synced = self.after_crash(count)
        del self.batches[:count]


class World:
    def __init__(self, seed):
        self.random = Random(seed)
        self.nodes = [Node() for _ in NODES]
        self.members = {0, 1, 2}
        self.ballot = CREATED[0]
        self.decided = {0: Plain()}  # The last decided map, by generation.
        self.plain = {MapValue(): self.decided[0]}  # By value; the latest come last.

    def run(self, steps=60):
        actions = [self.propose] * 10 + [self.fetch] * 3 + [self.crash, self.sync, self.move, self.move, self.force]
        for _ in range(steps):
            places = [node.map.base and node.map.base.place for node in self.nodes]
            crashed = self.random.choice(actions)()
            for number, (node, place) in enumerate(zip(self.nodes, places, strict=True)):
                is_below = place is not None and (node.map.base is None or node.map.base.place < place)
                assert not is_below or number == crashed, "the base fell"
                self.check(node)

    # -- actions -------------------------------------------------------------------------------------------------------

    def found(self):
        """Return the highest accepted value of a quorum, with its ballot."""
        return self.highest(self.random.sample(sorted(self.members), len(self.members) // 2 + 1))

    def highest(self, numbers):
        for number in numbers:
            self.nodes[number].sync()  # An answer waits for it.
        return max((self.nodes[number].accepted for number in numbers), key=lambda accepted: accepted[0])

    def propose(self):
        """Write the next value at some members; the proposer may learn that it is decided."""
        node, (_, found) = self.nodes[self.random.choice(NODES)], self.found()
        base = node.map.state_of(found)
        assert (base is not None) == self.holds(node, found), "the proposer's map"
        if base is None:
            return
        value = found
        if not node.map.is_full(found):
            keys = self.random.sample([b"", b"a", b"b", b"c", b"d"], self.random.choice([1, 1, 1, 2, 3]))
            edits = [(key, self.random.choice([None, self.random.randbytes(9)])) for key in sorted(keys)]
            edits.append((b"t%d" % base.sequence, self.random.randbytes(4)))  # Otherwise two ways might meet again.
            value = decode_value(node.map.next_value(found, base, edits).encode())
            self.plain[value] = Plain(self.plain[found], edits)
            tail_bytes = sum(size_of(transaction.edits) for transaction in value.tail[:-1])
            assert tail_bytes <= state.MAX_TAIL_BYTES, "the tail is too long"
        share = self.random.choice([0.3, 0.7, 0.9])
        if self.write(value, [number for number in sorted(self.members) if self.random.random() < share], self.members):
            self.decide(node, value, value.sequence)

    def write(self, value, numbers, *sets, is_force=False):
        """Write a value at nodes; return True if it is decided, by majorities of all sets."""
        plain, generation = self.plain[value], self.ballot.generation
        assert digest_of(plain.entries.items()) == value.digest, "the value's digest"
        known = next(one for one in plain.way() if one.sequence == value.decided)
        assert known in self.decided.get(generation, plain).way(), "an undecided sequence is told as decided"
        self.ballot, accepted = self.ballot.next(), set()
        for number in numbers:
            node = self.nodes[number]
            if node.map.holds(value):
                node.accepted = self.ballot, value
                self.decide(node, value, value.decided)
                node.append(node.map.records())
                if is_force or self.random.random() < 0.8:
                    node.sync()
                    accepted.add(number)
        is_decided = all(2 * len(accepted & members) > len(members) for members in sets)
        if is_decided:
            self.decided[generation] = plain
        return is_decided

    def decide(self, node, value, upto):
        place = node.map.base.place if node.map.base is not None else (0, 0)
        decided = self.ballot.generation, upto
        expected = decided < place or (self.holds(node, value) and upto >= place[1])
        shown = (ACCEPTORS, self.ballot) if upto == value.sequence else ()
        assert node.map.decide(value, *decided, *shown) == expected, "decided"

    def fetch(self, to=None, source=None):
        """Read the transactions that another node has, or a snapshot."""
        sample = self.random.sample(NODES, 2)
        node, other = (self.nodes[sample[0] if to is None else to], self.nodes[sample[1] if source is None else source])
        base, theirs = node.map.base, other.map.base
        if theirs is None or (base is not None and base.place >= theirs.place):
            return
        steps = None if base is None else other.map.since(*base.place)
        if steps is not None and (steps or theirs.digest == base.digest):
            is_next = node.map.follow(theirs.generation, steps, theirs.acceptors, theirs.shown)
            assert is_next == self.decided[theirs.generation].has(base), "following"
            if is_next:
                node.append(node.map.records())
                return
        reader = SnapshotReader(1 << 20)
        while reader.start is not None:
            reader.take(page_of(theirs, reader.start))
        written, gone = node.map.replace(reader.finish([], theirs.digest))
        node.append(*written, node.map.records())
        for batch in gone:
            node.append(batch)
        node.history_begins = theirs.sequence

    def crash(self):
        """Restart a node from a prefix of its batches; delete the keys that belong to nothing."""
        number = self.random.choice(NODES)
        node = self.nodes[number]
        node.sync(self.random.randint(0, len(node.batches)))
        node.batches = []
        node.map, strange = read_map(sorted(node.disk.items()))
        node.accepted = node.synced[1]
        node.append(dict.fromkeys(strange))
        node.history_begins = node.map.base.sequence if node.map.base is not None else 0
        return number

    def sync(self):
        node = self.random.choice(self.nodes)
        node.sync(self.random.randint(0, len(node.batches)))

    def move(self):
        """Change the members; new ones must hold the value."""
        members = set(self.random.sample(NODES, self.random.choice([2, 3, 4, 4])))
        value = self.found()[1]
        is_held = all(self.nodes[number].map.holds(value) for number in members - self.members)
        if is_held and self.write(value, sorted(self.members | members), self.members, members):
            self.members = members

    def force(self):
        """Go on with one or two members alone; the one that forces may know a decided map beyond their values."""
        if len(self.members) < 3:
            return
        members = self.random.sample(sorted(self.members), len(self.members))
        if self.random.random() < 0.5:  # Mostly, no base is beyond all values.
            members.sort(key=lambda number: self.nodes[number].lead(), reverse=True)
        survivors = members[: self.random.choice([1, 1, 2])]
        ballot, accepted = self.highest(survivors)
        base = self.nodes[survivors[0]].map.base
        value = self.nodes[survivors[0]].map.highest(ballot, accepted)
        plain = self.plain[accepted]
        if base is not None and base.generation >= ballot.generation:
            is_on = base.generation == ballot.generation and plain.has(base)
            is_older = base.generation == ballot.generation and base.sequence < accepted.decided
            if not is_on and not is_older:
                plain = next(one for one in self.decided[base.generation].way() if one.sequence == base.sequence)
        assert (value.sequence, value.digest) == (plain.sequence, digest_of(plain.entries.items())), "a lost decision"
        self.plain[value] = plain
        for number in survivors[1:]:
            self.fetch(number, survivors[0])
        if all(self.nodes[number].map.holds(value) for number in survivors):  # Otherwise they repeat it later.
            self.ballot = Ballot(self.ballot.generation + 1, 7, self.ballot.counter, 0)
            self.members = {*survivors}
            assert self.write(value, survivors, self.members, is_force=True), "a force"

    # -- checks --------------------------------------------------------------------------------------------------------

    def holds(self, node, value):
        """Return True if the node's decided base and the value's tail are one chain."""
        base = node.map.base if node.map.base is not None else Base()
        first = value.tail[0].sequence if value.tail else value.sequence + 1
        return first <= base.sequence + 1 and self.plain[value].has(base)

    def check(self, node):
        base = node.map.base
        for value in [*self.plain][-6:]:
            assert node.map.holds(value) == self.holds(node, value), "holds"
        if base is not None:
            way = [one for one in self.decided[base.generation].way() if one.sequence <= base.sequence]
            assert dict(base.entries.scan()) == way[0].entries, "the base is not decided"
            assert base.sequence == way[0].sequence, "the base is not decided"
            assert base.size_bytes == size_of(base.entries.scan())
            assert base.digest == digest_of(base.entries.scan())
            self.check_history(node, way)
        for count in range(len(node.batches) + 1):
            disk, expected, accepted = node.after_crash(count)
            found, strange = read_map(sorted(disk.items()))
            assert (found.base is None) == (expected is None), "the stored base"
            if expected is not None:
                assert [*found.base.entries.scan()] == [*expected.entries.scan()], "the stored base"
                assert found.base._replace(entries=expected.entries) == expected
                assert not {b"", *(found.base.entries.scan())} & {*strange}
            assert found.check(), "the stored base"
            kept = sum(key not in strange for key in disk)
            assert kept == (0 if expected is None else 1 + len(expected.entries)), "strange keys"
            base = found.base if found.base is not None else Base()
            if accepted[0].generation >= base.generation and self.plain[accepted[1]].has(base):
                assert found.holds(accepted[1]), "an accepted value is lost in a crash"

    def check_history(self, node, way):
        """Check the transactions for older bases, and that no more and no fewer of them are kept than fit."""
        sizes = [size_of(one.edits) for one in way[: way[0].sequence - node.history_begins][: state.MAX_HISTORY]]
        fits = [*takewhile(lambda count: sum(sizes[:count]) <= state.MAX_HISTORY_BYTES, range(len(sizes) + 1))]
        for count, one in enumerate(way):
            steps = node.map.since(node.map.base.generation, one.sequence)
            assert (steps is not None) == (count in fits), "the history"
            expected = [(later.sequence, later.edits) for later in reversed(way[:count])]
            assert steps is None or [(step.sequence, [*step.edits]) for step in steps] == expected, "the history"
