"""One owner and several readers exchange deltas that are cut, lost, doubled and shuffled."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import BranchChange, Delta
from gossipkv.gossip.tree.branch import Branch, DeltaOutcome, chunks, joined
from gossipkv.gossip.tree.limits import MAX_BRANCH_BYTES, item_bytes
from tests.oracle.branches import History

if TYPE_CHECKING:
    from collections.abc import Iterable

OWNER = b"the-ownr"
MOST = MAX_BRANCH_BYTES
LATEST = 8


def deltas(parts: Iterable[bytes]) -> list[Delta]:
    found = [part for sent in parts for part in messages.read_parts(sent, 0)]
    assert all(isinstance(part, Delta) for part in found)
    return [part for part in found if isinstance(part, Delta)]


def whole(parts: Iterable[bytes]) -> list[Delta]:
    """Return the joined deltas of one message, ready to apply."""
    return list(joined(deltas(parts)))


def shown(branch: Branch) -> dict[str, bytes]:
    return {path: item.value for path, item in branch.live.items()}


def recounted_bytes(branch: Branch) -> int:
    """Return the cost of a branch's keys and tombstones, counted one by one."""
    live = sum(item_bytes(path, item.value) for path, item in branch.live.items())
    return live + sum(item_bytes(path, None) for path in branch.gone)


def any_delta(random: Random, owner: bytes, epoch: int = 1) -> Delta:
    """Return a random delta, true or false; most can be read."""
    since, reach, target = sorted(random.randint(0, LATEST) for _ in range(3))
    since, target = random.choice((0, since)), random.choice((LATEST, target))
    reach = random.choice((reach, target))
    changes = tuple(
        BranchChange(version, random.choice("abcdefgh"), random.choice((None, None, b"x")))
        for version in range(since + 1, reach + 1)
        if random.random() < 0.5
    )
    floor = random.choice((0, random.randint(0, LATEST)))
    return Delta(owner, epoch, floor, since, reach, target, random.random() < 0.5, changes)


class Transfers:
    """The owner, readers and deltas of one branch."""

    def __init__(self, seed: int, readers: int = 4, keys: int = 6) -> None:
        self.random = Random(seed)
        self.keys = [f"a/{n}" for n in range(keys)]
        self.history = History()
        self.owner = Branch(1)
        self.readers = [Branch(1) for _ in range(readers)]
        self.on_the_way: list[tuple[int, Delta]] = []

    def check(self, reader: Branch, before: tuple[int, int]) -> None:
        wrong = self.history.wrong(reader.version, shown(reader))
        assert wrong is None, wrong
        assert (reader.version, reader.floor) >= before, "a version or a floor fell"
        assert reader.version >= before[0]
        assert reader.floor <= reader.version
        versions = [item.version for item in reader.live.values()]
        assert versions == sorted(versions)
        assert list(reader.gone.values()) == sorted(reader.gone.values())
        assert not set(reader.gone) & set(reader.live)
        assert reader.size_bytes == recounted_bytes(reader)

    def step(self) -> None:
        draw = self.random.random()
        if draw < 0.25:
            self._publish_or_withdraw()
        elif draw < 0.30:
            # Correctness must not depend on acknowledgements: collect anything, anywhere.
            self.random.choice([self.owner, *self.readers]).collect(self.random.randint(0, self.owner.version))
        elif draw < 0.6:
            self._send()
        else:
            self._deliver()

    def _publish_or_withdraw(self) -> None:
        path = self.random.choice(self.keys)
        if self.random.random() < 0.5:
            value = bytes([self.random.randrange(3)])
            if self.history.states[-1].get(path) != value:
                self.owner.put(path, value)
            self.history.publish(path, value)
        elif self.history.withdraw(path):
            self.owner.withdraw(path)

    def _send(self) -> None:
        sender = self.random.choice([self.owner, *self.readers])
        to = self.random.randrange(len(self.readers))
        # The sender's belief about the reader's version is often wrong.
        known = self.random.choice([0, self.readers[to].version, self.random.randint(0, self.owner.version)])
        size = self.random.choice([70, 80, 100, 1400])
        pieces = deltas(chunks(OWNER, sender, known, size))
        if self.random.random() < 0.5:  # The pieces are cut anywhere, or some are lost.
            pieces = [delta for delta in pieces if self.random.random() < 0.9]
        self.on_the_way += [(to, delta) for delta in joined(pieces)]

    def _deliver(self) -> None:
        if not self.on_the_way:
            return
        at = self.random.randrange(len(self.on_the_way)) if self.random.random() < 0.4 else 0
        to, delta = self.on_the_way[at]
        if self.random.random() < 0.85:
            del self.on_the_way[at]
        reader = self.readers[to]
        before = reader.version, reader.floor
        outcome, _ = reader.apply(delta, MOST)
        assert (reader.version > before[0]) is (outcome is DeltaOutcome.ADVANCED)
        self.check(reader, before)

    def heal(self) -> None:
        """Check that one whole transfer to each reader makes all equal."""
        for reader in self.readers:
            for delta in whole(chunks(OWNER, self.owner, reader.version, 100)):
                before = reader.version, reader.floor
                reader.apply(delta, MOST)
                self.check(reader, before)
            assert reader.version == self.history.version
