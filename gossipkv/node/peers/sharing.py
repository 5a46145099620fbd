"""How the databases of this node take part in the cluster: what others say reaches them, and what they ask for is done.

`dataset.cluster` decides, and knows no gossip; here stands who translates.  In: the members as gossip knows them, their
places in the ring, what they publish below `partitions/` and `databases/`, the answers of those who were asked.  Out:
this node's own statements, direct questions, and whom the serving loop may ask for what.

One task looks when something has changed, at most every `PAUSE_S`, and then wakes the databases that it concerns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import trio

from gossipkv.dataset.cluster import question
from gossipkv.dataset.cluster.effects import AskMember, OpenRoute, Publish, PublishDatabase, Withdraw
from gossipkv.dataset.cluster.members import DatasetMember, MemberStanding
from gossipkv.dataset.cluster.terms import Terms
from gossipkv.errors import TooLarge, UnknownDatabase
from gossipkv.gossip.profile import PROFILES
from gossipkv.node.peers.connections import NodePeer
from gossipkv.placement.holders import HolderState
from gossipkv.placement.shard_claim import NODES, ClaimPlace, place_of
from gossipkv.placement.statement import MAX_PIECES, decode, decode_database, encode, encode_database
from gossipkv.serving.scan_elsewhere import ScanSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gossipkv.address import Address
    from gossipkv.dataset.cluster.core import DatabaseCore
    from gossipkv.dataset.cluster.effects import Outward
    from gossipkv.dataset.cluster.members import Membership
    from gossipkv.dataset.library import Library
    from gossipkv.gossip import member as gossip
    from gossipkv.gossip.tree.tree import TreeEntry
    from gossipkv.gossip.tree.watch import TreeWatch
    from gossipkv.node.peers.connections import NodePeers
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.ownership import Owner
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.placement.statement import DatabaseStatement
    from gossipkv.serving.pumps import Pumps
    from gossipkv.settings.config import Config
    from gossipkv.wire.rpc import Value

PARTITIONS: Final = "partitions"
DATABASES: Final = "databases"

# Changes come in bursts, and each look lists what is below a database.
PAUSE_S: Final = 0.02
# In so many probe intervals everybody has heard of what a node takes back.
GRACE_INTERVALS = 5
# So often it is looked whether this node hears the others, which nobody tells.
TICK_S: Final = 0.5


def terms_of(config: Config) -> Terms:
    """What databases go by in the cluster.

    What is withdrawn is answered for as long as everybody takes to hear of it, by far, and one forwarded read more.
    """
    probe_interval_ms = PROFILES[config.profile].probe_interval_ms
    return Terms(
        replication=config.replication,
        min_replication=config.min_replication,
        reassign_after_ms=config.reassign_after,
        retire_after_ms=config.retire_after,
        probe_interval_ms=probe_interval_ms,
        grace_ms=GRACE_INTERVALS * probe_interval_ms + config.proxy_timeout,
        switch_patience_ms=config.switch_patience,
    )


class ClusterTree(Protocol):
    """The tree and the members, as gossip has them."""

    def members_known(self) -> Iterable[gossip.Member]: ...
    def isolated(self) -> bool: ...
    def names(self, path: str) -> list[str]: ...  # Of all owners, also of those that are hidden.
    def below(self, path: str) -> list[TreeEntry]: ...  # Likewise.
    def publish(self, path: str, value: bytes) -> None: ...  # Raises TooLarge.
    def withdraw(self, path: str) -> bool: ...
    def watch(self, path: str, wake: Callable[[], None]) -> TreeWatch: ...
    def news(self) -> bytes | None: ...  # What was published since the last call, for the method `gossip`.


class SharedBytes(NamedTuple):
    """The bytes that a member has published of one database in an epoch."""

    epoch: int
    versions: dict[str, list[bytes]]  # The pieces of each.
    database: bytes | None = None


@final
class Sharing:
    """One node's databases among those of others."""

    def __init__(
        self,
        tree: ClusterTree,
        library: Library,
        membership: Membership,
        peers: NodePeers,
        routes: Pumps,
        *,
        address: Address,
        ask_timeout_ms: int,
    ) -> None:
        self._tree = tree
        self._library = library
        self._membership = membership
        self._peers = peers
        self._routes = routes
        self._address = str(address)
        self._ask_timeout_ms = ask_timeout_ms
        self._wake = trio.Event()
        self._watches: dict[str, tuple[TreeWatch, ...]] = {}  # By database.
        self._places = tree.watch(NODES, self.wake)
        self._names = tree.watch(DATABASES, self.wake)
        self._known: list[gossip.Member] = []  # The members, and the names of databases, at the last look.
        self._named: list[str] = []
        self._heard: dict[tuple[str, str], SharedBytes] = {}  # By database and member.
        self._owners: dict[str, Owner] = {}  # Those of the last run that nobody has heard of in this one.
        self._published: dict[tuple[str, str], int] = {}  # Pieces, by database and version.
        self._unread: set[tuple[str, str]] = set()  # Members and databases of which something cannot be read.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look whenever something has changed, until cancelled."""
        self.look()
        task_status.started()
        while True:
            with trio.move_on_after(TICK_S) as tick:
                await self._wake.wait()
            self._wake = trio.Event()
            self.look()
            if not tick.cancelled_caught:
                await trio.sleep(PAUSE_S)

    def wake(self) -> None:
        """Have it look soon."""
        self._wake.set()

    def look(self) -> None:
        """Tell the databases what has changed among the members, and in what they say."""
        revision = self._membership.revision
        known = [*self._tree.members_known()]
        if self._places.changed or known != self._known:  # Each look has a price for each member, and most are idle.
            self._places.look()
            self._known = known
            self._look_at_members()
        self._membership.isolate(isolated=self._tree.isolated(), now_ms=_now_ms())
        if self._names.changed:
            self._names.look()
            self._named = self._tree.names(DATABASES)
        self._library.hear_of(self._named)
        moved = self._membership.revision != revision
        for core in self._library.cores():
            if self._hear(core) or moved:
                self._library.wake(core.name)

    # What comes in: the members

    def _look_at_members(self) -> None:
        now_ms = _now_ms()
        places = self._claimed()
        known = {self._membership.own.name}
        for member in self._known:
            place = places.get(member.name, ClaimPlace())
            known.add(member.name)
            told = DatasetMember(
                member.name, member.uuid, member.epoch, member.address, MemberStanding(member.state), *place
            )
            self._membership.tell(told, now_ms=now_ms)
        for name in [member.name for member in self._membership.others if member.name not in known]:
            self._membership.forget(name)
            for core in self._library.cores():
                core.forget(name)
        self._tell_peers()

    def _claimed(self) -> dict[str, ClaimPlace]:
        """What each owner says of its place in the ring."""
        found = ((entry.owner, place_of(entry.name, entry.value)) for entry in self._tree.below(NODES))
        return {owner: place for owner, place in found if place is not None}

    def _tell_peers(self) -> None:
        members = self._membership.others
        peers = {each.name: NodePeer(each.name, each.uuid, each.address, each.standing, each.epoch) for each in members}
        remembered = {name: NodePeer(*owner, HolderState.DEAD, 0) for name, owner in self._owners.items()}
        self._peers.tell((remembered | peers).values())

    # What comes in: what they say

    def _hear(self, core: DatabaseCore) -> bool:
        """Whether others say something else of a database than when it was last looked."""
        name = core.name
        if name in self._watches:
            if not any(watch.changed for watch in self._watches[name]):
                return False
        else:
            paths = (f"{PARTITIONS}/{name}", f"{DATABASES}/{name}")
            self._watches[name] = tuple(self._tree.watch(path, self.wake) for path in paths)
        for watch in self._watches[name]:
            watch.look()
        found = self._read(name)
        silent = {member: None for database, member in self._heard if database == name and member not in found}
        changed = [self._take(core, member, heard) for member, heard in {**found, **silent}.items()]
        return any(changed)

    def _read(self, database: str) -> dict[str, SharedBytes]:
        """What others have published of a database, by member; of those that are suspected or dead, too."""
        found: dict[str, SharedBytes] = {}

        def of(owner: str) -> SharedBytes | None:
            member = self._membership.get(owner)
            if member is None or owner == self._membership.own.name:
                return None
            return found.setdefault(owner, SharedBytes(member.epoch, {}))

        for entry in self._tree.below(f"{DATABASES}/{database}"):
            heard = of(entry.owner)
            if heard is not None:
                found[entry.owner] = heard._replace(database=entry.value)
        for version in self._tree.names(f"{PARTITIONS}/{database}"):
            for entry in self._tree.below(f"{PARTITIONS}/{database}/{version}"):
                heard = of(entry.owner)
                if heard is not None:
                    heard.versions.setdefault(version, []).append(entry.value)
        return found

    def _take(self, core: DatabaseCore, name: str, heard: SharedBytes | None) -> bool:
        """Whether a member says something else than before."""
        before = self._heard.get((core.name, name))
        member = self._membership.get(name)
        if heard == before:
            return False
        if heard is None or member is None:
            del self._heard[core.name, name]
            self._unread.discard((name, core.name))
            if member is not None:
                core.hear(name, member.uuid, member.epoch, {}, None, wall_ms=self._library.wall_ms())
            return True
        self._heard[core.name, name] = heard
        versions = {}
        for version, pieces in heard.versions.items():
            said = decode(pieces)
            if said is not None and (said.identity.database, said.identity.version) == (core.name, version):
                versions[version] = said
        database = None if heard.database is None else decode_database(heard.database)
        if len(versions) < len(heard.versions) or (database is None and heard.database is not None):
            self._unread.add((name, core.name))
        else:
            self._unread.discard((name, core.name))
        core.hear(name, member.uuid, heard.epoch, versions, database, wall_ms=self._library.wall_ms())
        return True

    @property
    def unreadable(self) -> list[str]:
        """The names of members that say what this program cannot read, since they run a later one, or lie."""
        return sorted({member for member, _ in self._unread})

    def lost(self, name: str, _uuid: bytes) -> None:
        """Take in that the connection to a member has ended."""
        for core in self._library.cores():
            core.lost(name)
            self._library.wake(core.name)

    def look_again(self) -> None:
        """Have all databases look at their gates: what a member was asked for it does not serve any more."""
        self.wake()
        for core in self._library.cores():
            core.look_again()
            self._library.wake(core.name)

    def answer(self, database: str, wire_id: bytes, asker: str) -> Value:
        """The answer to another member's direct question.

        Raises:
            UnknownDatabase: there is none of that name here.
        """
        core = self._library.core(database)
        if core is None:
            raise UnknownDatabase(f"no database {database} here", {"database": database})
        answer = core.answer(asker, wire_id, now_ms=_now_ms())
        self._library.wake(database)
        return question.NOTHING if answer is None else question.encode(answer)

    def sources(self, database: str, version: str, wire_id: bytes) -> dict[str, ScanSource]:
        """Return which members may be asked for a content, by name, as the serving loop knows it, too."""
        core = self._library.core(database)
        identity = None if core is None else core.identity(version)
        if core is None or identity is None or identity.wire_id != wire_id:
            return {}
        found = {}
        for owner, partitions in core.owners(identity):
            member = self._membership.get(owner.name)
            found[owner.name] = ScanSource(HolderState.DEAD if member is None else member.standing, partitions)
        return found

    # What goes out

    def perform(self, core: DatabaseCore, effects: Sequence[Outward]) -> None:
        """Do what a database asks for."""
        for effect in effects:
            match effect:
                case Publish():
                    self._publish(core, effect)
                case Withdraw(version):
                    self._withdraw(core.name, version, 0)
                case PublishDatabase(statement):
                    self._publish_database(core, statement)
                case AskMember(member, identity):
                    self._ask(core, member, identity)
                case OpenRoute(identity, owner, partitions):
                    self._route(owner, identity, partitions)
        self._tell_news()

    def _tell_news(self) -> None:
        """Tell what was published on connections to members, too: a read may wait for what gossip takes time for."""
        news = self._tree.news()
        for member in self._membership.others if news is not None else ():
            self._peers.ask_unread(member.name, "gossip", [news], self._ask_timeout_ms, _pass_over)

    def _publish(self, core: DatabaseCore, effect: Publish) -> None:
        pieces = encode(effect.statement)
        path = self._path(core.name, effect.version)
        try:
            for number, piece in enumerate(pieces):
                self._tree.publish(f"{path}+{number}" if number else path, piece)
        except TooLarge:
            self._make_room(core, core.refused(effect.version, now_ms=_now_ms()))
        else:
            self._withdraw(core.name, effect.version, len(pieces))
            self._published[core.name, effect.version] = len(pieces)

    def _publish_database(self, core: DatabaseCore, statement: DatabaseStatement) -> None:
        try:
            self._tree.publish(f"{DATABASES}/{core.name}/{self._address}", encode_database(statement))
        except TooLarge:
            self._make_room(core, core.refused_database(statement, now_ms=_now_ms()))

    def _make_room(self, core: DatabaseCore, effects: Sequence[Outward]) -> None:
        """What has no room is tried again: the database looks when that is due."""
        self._library.wake(core.name)
        self.perform(core, effects)

    def _withdraw(self, database: str, version: str, first: int) -> None:
        """Take back the pieces of a statement from the first-th on."""
        path = self._path(database, version)
        for number in range(first, self._published.pop((database, version), MAX_PIECES)):
            self._tree.withdraw(f"{path}+{number}" if number else path)

    def _path(self, database: str, version: str) -> str:
        return f"{PARTITIONS}/{database}/{version}/{self._address}"

    def _ask(self, core: DatabaseCore, member: str, identity: VersionIdentity) -> None:
        def hear(result: Value, epoch: int | None) -> None:
            answer = None if epoch is None else question.decode(result, identity.partitions)
            core.answered(member, epoch or 0, identity.wire_id, answer)
            self._library.wake(core.name)

        params: list[Value] = [identity.database, identity.wire_id, self._membership.own.name]
        self._peers.ask(member, question.METHOD, params, self._ask_timeout_ms, hear)

    def _route(self, owner: Owner, identity: VersionIdentity, partitions: PartitionSet) -> None:
        if self._membership.get(owner.name) is None and partitions:
            self._owners[owner.name] = owner
            self._tell_peers()
        column = self._peers.column(owner.name)
        if column is not None:  # Else it is forgotten, with all that it held.
            self._routes.set_holder(identity.wire_id, identity.partitions, column, partitions.to_bytes())


def _pass_over(result: bytes | None, error: bytes | None, epoch: int | None) -> None:
    """Who has not heard it hears it from gossip."""


def _now_ms() -> int:
    return int(trio.current_time() * 1000)
