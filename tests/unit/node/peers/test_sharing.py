"""What databases ask of the tree, where it has no room."""

from gossipkv.address import Address
from gossipkv.dataset.cluster.effects import PublishDatabase, Withdraw
from gossipkv.dataset.cluster.members import Member
from gossipkv.errors import TooLarge
from gossipkv.node.peers.sharing import Sharing
from gossipkv.placement.statement import DatabaseStatement, encode_database


class Tree:
    """A branch that has room for the database once its old version is gone."""

    def __init__(self):
        self.paths = {"partitions/db/v1/h:1": b"old"}
        self.told = {*self.paths}

    def watch(self, path, wake):
        """Nothing comes in."""

    def news(self):
        """What is there, once."""
        news, self.told = self.paths.keys() - self.told, {*self.paths}
        return b" ".join(sorted(map(str.encode, news))) or None

    def publish(self, path, value):
        """It fits, if it is the only one."""
        if self.paths.keys() - {path}:
            raise TooLarge("no room")
        self.paths[path] = value

    def withdraw(self, path):
        """It goes."""
        return self.paths.pop(path, None) is not None


class Core:
    """It has something to withdraw."""

    name = "db"

    def refused_database(self, statement, *, now_ms):
        """The old version makes way."""
        assert now_ms >= 0
        return [Withdraw("v1"), PublishDatabase(statement)]


class Library:
    """Its databases are woken."""

    def __init__(self):
        self.woken = []

    def wake(self, name):
        """One of them."""
        self.woken.append(name)


class Peers:
    """The members, who are told."""

    def __init__(self):
        self.others = [Member(name, bytes(16), 1, Address(name, 1)) for name in "ab"]
        self.asked = []

    def ask_unread(self, name, method, params, timeout_ms, on_answer):
        """One of them."""
        assert timeout_ms == 1
        self.asked.append((name, method, params))
        on_answer(None, None, None)


async def test_room_is_made_for_what_is_said_of_a_database():
    """And the database looks again, so that it knows when to try what had no room; all members are told, once."""
    tree, library = Tree(), Library()
    peers = Peers()
    sharing = Sharing(tree, library, peers, peers, None, address=Address("h", 1), ask_timeout_ms=1)
    said = DatabaseStatement(told=True)
    sharing.perform(Core(), [PublishDatabase(said)])
    assert tree.paths == {"databases/db/h:1": encode_database(said)}
    assert library.woken == ["db"]
    assert peers.asked == [(name, "gossip", [b"databases/db/h:1"]) for name in "ab"]
    sharing.perform(Core(), [PublishDatabase(said)])
    assert len(peers.asked) == 2
