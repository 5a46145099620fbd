"""Branches survive many lives of their owners."""

from __future__ import annotations

import pytest

from gossipkv.gossip.member import MemberState
from tests.oracle.branches import History
from tests.unit.gossip.tree.linked import Link, Node, equal, member, recount

KEYS = 8


class Lives:
    """Nodes that publish, die, are thought dead, come back, and forget."""

    def __init__(self, seed: int) -> None:
        self.link = Link(seed)
        self.random = self.link.random
        self.histories: dict[tuple[str, int], History] = {}
        self.names = [f"n{number}" for number in range(self.random.randint(2, 5))]
        self.seen: dict[tuple[Node, str], tuple[int, int]] = {}
        self.nodes: list[Node] = []
        for name in self.names:
            self.start(name, 1)
        for node in self.nodes:
            node.knows(*(other for other in self.nodes if other is not node))
        self.link.loss, self.link.doubled = self.random.random() * 0.4, self.random.random() * 0.4
        self.link.shuffled = True

    def start(self, name: str, epoch: int) -> Node:
        self.nodes = [node for node in self.nodes if node.me.name != name]
        node = self.link.node(name, epoch=epoch)
        self.nodes.append(node)
        self.histories[name, epoch] = History()
        return node

    def step(self) -> None:
        node = self.random.choice(self.nodes)
        draw = self.random.random()
        if draw < 0.35:
            self._write(node)
        elif draw < 0.38:
            self.random.choice(list(node.tree._branches.values())).collect(1 << 40)
        elif draw < 0.41:
            other = self.random.choice(self.nodes)
            fresh = self.start(other.me.name, other.me.epoch + 1)
            fresh.knows(self.random.choice([one for one in self.nodes if one is not fresh]))
        elif draw < 0.45:
            self._doubt(node)
        elif draw < 0.7:
            node.tell(self._other(node))
        else:
            node.ping(self._other(node))
        for _ in range(self.random.choice([0, 1, 5])):
            if self.link.waiting:
                self.link.deliver_one()
                self.check()
        self.link.pass_time(self.random.choice([10, 300, 3000]))
        self.check()

    def _other(self, node: Node) -> Node:
        return self.random.choice([one for one in self.nodes if one is not node])

    def _write(self, node: Node) -> None:
        history = self.histories[node.me.name, node.me.epoch]
        for _ in range(self.random.choice([1, 1, 2, 30])):
            path = f"k/{self.random.randrange(KEYS)}"
            if self.random.random() < 0.5:
                value = bytes(self.random.choice([0, 1, 300]))
                node.tree.publish(path, value)
                history.publish(path, value)
            else:
                node.tree.withdraw(path)
                history.withdraw(path)

    def _doubt(self, node: Node) -> None:
        """Let one node suspect another or find it dead; the other perhaps hears of it and refutes."""
        other = self._other(node)
        state = self.random.choice([MemberState.SUSPECT, MemberState.DEAD])
        node.hear_record(other.me._replace(state=state), now_ms=self.link.now_ms)
        if self.random.random() < 0.7:
            other.me = other.members.own = other.me._replace(incarnation=other.me.incarnation + 1)
            other.exchange.touch(other.id, now_ms=self.link.now_ms)
            node.hear_record(other.me, now_ms=self.link.now_ms)

    def check(self) -> None:
        """Check that each reader shows a true state of each owner, in the newest known epoch, never an older one."""
        for reader in self.nodes:
            recount(reader)
            everything = reader.tree.entries("k", now_ms=0, all=True)
            visible = reader.tree.entries("k", now_ms=0)
            for name in self.names:
                known = reader.members.get(member(name).id)
                if known is None or reader.me.name == name:
                    continue
                mine = {f"k/{entry.name}": entry.value for entry in everything if entry.owner == name}
                shown = {f"k/{entry.name}": entry.value for entry in visible if entry.owner == name}
                head = reader.tree.head(known.id)
                assert head.epoch >= known.epoch
                if head.epoch > known.epoch:
                    assert mine == {}
                    continue
                before = self.seen.get((reader, name), (0, 0))
                assert (head.epoch, head.version) >= before, "an epoch or a version fell"
                self.seen[reader, name] = (head.epoch, head.version)
                wrong = self.histories[name, head.epoch].wrong(head.version, mine)
                assert wrong is None, wrong
                assert shown == (mine if known.state is MemberState.ALIVE else {})

    def heal(self) -> None:
        self.link.loss = 0.0
        self.link.run()
        self.check()
        for node in self.nodes:  # Do the part of membership: live nodes refute, and all hear of it.
            node.me = node.members.own = node.me._replace(incarnation=1000)
            node.tree.on_member(node.me)
            node.exchange.touch(node.id, now_ms=self.link.now_ms)
        for node in self.nodes:
            node.knows(*(other for other in self.nodes if other is not node))
        self.link.settle(self.nodes, rounds=80)
        self.check()
        assert equal(self.nodes)
        truth = {node.me.name: self.histories[node.me.name, node.me.epoch].states[-1] for node in self.nodes}
        expected = sorted((path, name, value) for name, keys in truth.items() for path, value in keys.items())
        for node in self.nodes:
            assert node.view() == expected


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_nothing_dead_or_withdrawn_comes_back(first: int) -> None:
    """Restarts, wrong verdicts, refutations, late packets of past lives and collected tombstones bring nothing back."""
    for seed in range(first, first + 20):
        lives = Lives(seed)
        for _ in range(120):
            lives.step()
        lives.heal()
