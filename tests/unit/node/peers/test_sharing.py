"""What databases ask of the tree, where it has no room; what of it cannot be read."""

from types import SimpleNamespace

from gossipkv.address import Address
from gossipkv.dataset.cluster.effects import PublishDatabase, Withdraw
from gossipkv.errors import TooLarge
from gossipkv.node.peers.sharing import Heard, Sharing
from gossipkv.placement.statement import DatabaseStatement, encode_database


class Tree:
    """A branch that has room for the database once its old version is gone."""

    def __init__(self):
        self.paths = {"partitions/db/v1/h:1": b"old"}

    def watch(self, path, wake):
        """Nothing comes in."""

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

    def hear(self, *told):
        """Whatever it is."""

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


async def test_room_is_made_for_what_is_said_of_a_database():
    """And the database looks again, so that it knows when to try what had no room."""
    tree, library = Tree(), Library()
    sharing = Sharing(tree, library, None, None, None, address=Address("h", 1), ask_timeout_ms=1)
    said = DatabaseStatement(told=True)
    sharing.perform(Core(), [PublishDatabase(said)])
    assert tree.paths == {"databases/db/h:1": encode_database(said)}
    assert library.woken == ["db"]


def test_who_says_what_cannot_be_read_is_named_until_it_can():
    """A later format: `status` names the member, not each try to read it."""
    members = SimpleNamespace(get=lambda _: SimpleNamespace(uuid=bytes(16), epoch=1))
    sharing = Sharing(Tree(), Library(), members, None, None, address=Address("h", 1), ask_timeout_ms=1)
    later = encode_database(DatabaseStatement()).replace(b"\xa6format\x01", b"\xa6format\x09")
    for heard in (Heard(1, {}, later), Heard(1, {"v1": [b"\x80"]}, None)):
        assert sharing._take(Core(), "n2", heard)
        assert sharing.unreadable == ["n2"]
        assert sharing._take(Core(), "n2", Heard(1, {}, encode_database(DatabaseStatement(told=True))))
        assert sharing.unreadable == []
    sharing._take(Core(), "n2", Heard(1, {}, later))
    sharing._take(Core(), "n2", None)
    assert sharing.unreadable == []
