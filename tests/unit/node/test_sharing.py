"""Databases share statements through the tree, within its room, and unreadable ones are reported."""

from types import SimpleNamespace

import trio

from gossipkv.address import Address
from gossipkv.dataset.cluster.effects import PublishDatabase, Withdraw
from gossipkv.dataset.cluster.members import DatasetMember, Membership, MemberStanding
from gossipkv.errors import TooLarge
from gossipkv.gossip import member as gossip
from gossipkv.gossip.tree.watch import TreeWatch
from gossipkv.node.sharing import SharedBytes, Sharing
from gossipkv.placement.holders import HolderState
from gossipkv.placement.statement import DatabaseStatement, encode_database
from gossipkv.wire.results import NotReached


class Tree:
    """A branch that has room for the database once its old version is gone."""

    def __init__(self):
        self.paths = {"partitions/db/v1/h:1": b"old"}
        self.told = {*self.paths}

    def watch(self, path, wake):
        """Ignore the watch: no changes arrive."""

    def news(self):
        news, self.told = self.paths.keys() - self.told, {*self.paths}
        return b" ".join(sorted(map(str.encode, news))) or None

    def publish(self, path, value):
        """Accept the path if it is the only one."""
        if self.paths.keys() - {path}:
            raise TooLarge("no room")
        self.paths[path] = value

    def withdraw(self, path):
        return self.paths.pop(path, None) is not None


class Core:
    """A core with a version to withdraw."""

    name = "db"

    def hear(self, *told, wall_ms):
        """Ignore the statement."""

    def refused_database(self, statement, *, now_ms):
        assert now_ms >= 0
        return [Withdraw("v1"), PublishDatabase(statement)]


class Library:
    """A library that records wake-ups."""

    def __init__(self):
        self.woken = []

    def wake(self, name):
        self.woken.append(name)

    def wall_ms(self):
        return 0


class Peers:
    """Members that record requests."""

    def __init__(self):
        self.others = [DatasetMember(name, bytes(16), 1, Address(name, 1)) for name in "ab"]
        self.asked = []

    def ask(self, name, method, params, timeout_ms, complete):
        assert timeout_ms == 1
        self.asked.append((name, method, params))
        complete(NotReached("nobody is"))


async def test_room_is_made_for_what_is_said_of_a_database():
    """The database wakes to retry what had no room, and all members hear of it once."""
    tree, library = Tree(), Library()
    peers = Peers()
    sharing = Sharing(tree, library, peers, peers, None, address=Address("h", 1), ask_timeout_ms=1)
    said = DatabaseStatement(is_complete=True)
    sharing.perform(Core(), [PublishDatabase(said)])
    assert tree.paths == {"databases/db/h:1": encode_database(said)}
    assert library.woken == ["db"]
    assert peers.asked == [(name, "gossip", [b"databases/db/h:1"]) for name in "ab"]
    sharing.perform(Core(), [PublishDatabase(said)])
    assert len(peers.asked) == 2


class Gossiped:
    """A tree that counts its listings."""

    def __init__(self):
        self.watches = {}
        self.members = [at_rest("a"), at_rest("b")]
        self.listed = []

    def watch(self, path, wake):
        return self.watches.setdefault(path, TreeWatch(path, wake))

    def members_known(self):
        return self.members

    is_cut_off = False

    def isolated(self):
        return False

    def names(self, path):
        self.listed.append(path)
        return []

    below = names


class Many(Peers):
    """Peers of a library without databases."""

    def tell(self, peers):
        self.states = {peer.name: peer.state for peer in peers}
        self.told = [*self.states]

    def hear_of(self, names):
        assert list(names) == []

    def cores(self):
        return []


def at_rest(name, state=gossip.MemberState.ALIVE):
    return gossip.Member(gossip.member_id(name), name, bytes(16), Address(name, 1), 1, 0, state)


async def test_a_look_at_what_has_not_changed_lists_nothing():
    """Members and claims are read only after a change."""
    tree, many = Gossiped(), Many()
    own = DatasetMember("a", bytes(16), 1, Address("a", 1))
    membership = Membership(own, expects_others=False, retire_max_ms=1, now_ms=0)
    sharing = Sharing(tree, many, membership, many, None, address=Address("a", 1), ask_timeout_ms=1)
    sharing.look()
    assert (tree.listed, many.told) == (["nodes"], ["b"])
    sharing.look()
    assert tree.listed == ["nodes"]
    tree.members = [at_rest("a"), at_rest("b", gossip.MemberState.SUSPECT)]
    sharing.look()
    assert (tree.listed, membership.get("b").state) == (["nodes"] * 2, MemberStanding.SUSPECT)
    tree.members = [*tree.members, at_rest("c")]
    sharing.look()
    assert many.told == ["b", "c"]
    for path in ("nodes", "databases"):
        tree.watches[path].revision += 1
        sharing.look()
        sharing.look()
        assert tree.listed.pop() == path
    assert tree.listed == ["nodes"] * 3


async def test_all_members_count_as_dead_while_this_node_is_cut_off():
    """Their answers are not awaited then, while gossip goes on to suspect them."""
    tree, many = Gossiped(), Many()
    own = DatasetMember("a", bytes(16), 1, Address("a", 1))
    membership = Membership(own, expects_others=False, retire_max_ms=1, now_ms=0)
    sharing = Sharing(tree, many, membership, many, None, address=Address("a", 1), ask_timeout_ms=1)
    tree.members = [at_rest("a"), at_rest("b"), at_rest("c", gossip.MemberState.SUSPECT)]
    told = []
    for tree.is_cut_off in (False, True, False):
        sharing.look()
        told.append((many.states, membership.get("b").state))
    calm = {"b": HolderState.ALIVE, "c": HolderState.SUSPECT}, MemberStanding.ALIVE
    assert told == [calm, (dict.fromkeys("bc", HolderState.DEAD), MemberStanding.ALIVE), calm]


async def test_news_that_come_as_the_time_ends_are_not_lost(monkeypatch, autojump_clock):
    """A rest that ends by time sets its event before its task runs: news may be told in between."""
    tree, many = Gossiped(), Many()
    own = DatasetMember("a", bytes(16), 1, Address("a", 1))
    membership = Membership(own, expects_others=False, retire_max_ms=1, now_ms=0)
    sharing = Sharing(tree, many, membership, many, None, address=Address("a", 1), ask_timeout_ms=1)
    rests = []

    async def rest(_, news):
        rests.append(news)
        if len(rests) > 1:
            await trio.sleep_forever()
        news.set()
        tree.watches["databases"].revision += 1
        sharing.wake()
        return False

    monkeypatch.setattr("gossipkv.node.sharing.rest", rest)
    async with trio.open_nursery() as nursery:
        await nursery.start(sharing.run)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert tree.listed == ["nodes", "databases"]


def test_who_says_what_cannot_be_read_is_named_until_it_can():
    """`status` names a member with a later format until it can be read."""
    members = SimpleNamespace(get=lambda _: SimpleNamespace(uuid=bytes(16), epoch=1))
    sharing = Sharing(Tree(), Library(), members, None, None, address=Address("h", 1), ask_timeout_ms=1)
    later = encode_database(DatabaseStatement()).replace(b"\xa6format\x01", b"\xa6format\x09")
    for heard in (SharedBytes(1, {}, later), SharedBytes(1, {"v1": [b"\x80"]}, None)):
        assert sharing._take(Core(), "n2", heard)
        assert sharing.unreadable == ["n2"]
        assert sharing._take(Core(), "n2", SharedBytes(1, {}, encode_database(DatabaseStatement(is_complete=True))))
        assert sharing.unreadable == []
    sharing._take(Core(), "n2", SharedBytes(1, {}, later))
    sharing._take(Core(), "n2", None)
    assert sharing.unreadable == []
