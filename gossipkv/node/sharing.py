"""The datasets' part in the cluster: the datasets get members' statements, and their effects are carried out.

`dataset.cluster` decides, and knows no gossip; this module translates. In come the members as gossip knows them, their
places in the ring, their keys below `partitions/` and `databases/`, and answers to questions. Out go this node's own
statements, direct questions, and routes for the serving loop.

One task looks at changes, at most once in `PAUSE_S`, and then wakes the datasets concerned.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack
import trio

from gossipkv.dataset.cluster import question
from gossipkv.dataset.cluster.effects import AskMember, OpenRoute, Publish, PublishDatabase, Withdraw
from gossipkv.dataset.cluster.members import DatasetMember, MemberStanding
from gossipkv.dataset.cluster.terms import Terms
from gossipkv.environment.ticks import rest
from gossipkv.errors import GossipKVError, TooLarge, UnknownDatabase
from gossipkv.gossip.profile import PROFILES
from gossipkv.node.peers.connections import NodePeer
from gossipkv.placement.holders import HolderState
from gossipkv.placement.shard_claim import NODES, ClaimPlace, place_of
from gossipkv.placement.statement import MAX_PIECES, decode, decode_database, encode, encode_database
from gossipkv.serving.scan_elsewhere import ScanSource
from gossipkv.wire.results import NodeAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.address import Address
    from gossipkv.dataset.cluster.core import DatabaseCore
    from gossipkv.dataset.cluster.effects import Outward
    from gossipkv.dataset.cluster.members import Membership
    from gossipkv.dataset.library import Library
    from gossipkv.gossip import member as gossip
    from gossipkv.gossip.tree.watch import TreeWatch
    from gossipkv.node.gossip import Gossiping
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

PAUSE_S: Final = 0.02  # Changes come in bursts, and each look lists all keys below a database.
GRACE_INTERVALS = 5  # Within this many probe intervals every member has heard of a withdrawal.
LOOK_S: Final = 0.5  # Period of the check for changes that raise no event, such as isolation.


def terms_of(config: Config) -> Terms:
    """Return the terms of datasets in the cluster, by the settings.

    A node answers for a withdrawn partition until every member has surely heard of the withdrawal, and then for the
    time of one forwarded read.
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
        repair_after_ms=config.repair_after,
    )


class SharedBytes(NamedTuple):
    """The encoded statements that a member has published about one dataset in an epoch."""

    epoch: int
    versions: dict[str, list[bytes]]  # Pieces by version.
    database: bytes | None = None


@final
class Sharing:
    """The datasets of one node among those of other nodes."""

    def __init__(
        self,
        tree: Gossiping,
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
        self._wake, self._has_news = trio.Event(), False
        self._is_cut_off = False  # At the last look.
        self._watches: dict[str, tuple[TreeWatch, TreeWatch]] = {}  # By database.
        self._places = tree.watch(NODES, self.wake)
        self._names = tree.watch(DATABASES, self.wake)
        self._members: Sequence[gossip.Member] = ()  # Members and names of databases at the last look.
        self._named: list[str] = []
        self._heard: dict[tuple[str, str], SharedBytes] = {}  # By database and member.
        self._owners: dict[str, Owner] = {}  # Owners of the last run that nobody has heard of in this one.
        self._published: dict[tuple[str, str], int] = {}  # Numbers of pieces, by database and version.
        self._unread: set[tuple[str, str]] = set()  # Pairs of a member and a database with an unreadable statement.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look whenever something has changed, until cancelled."""
        self.look()
        task_status.started()
        while True:
            await rest(LOOK_S, self._wake)  # News may come as the time ends.
            self._wake = trio.Event()
            has_changed, self._has_news = self._has_news, False
            if has_changed or self._is_stale():
                self.look()
            if has_changed:
                await trio.sleep(PAUSE_S)

    def _is_stale(self) -> bool:
        """Return True if something has changed that raises no event."""
        is_known = self._tree.members_known() is self._members and len(self._library.cores()) == len(self._watches)
        isolated, was_isolated = self._tree.isolated(), self._membership.isolated  # A node that is cut off is isolated.
        return not is_known or isolated != was_isolated or (isolated and self._tree.is_cut_off != self._is_cut_off)

    def wake(self) -> None:
        """Make the task look soon."""
        self._has_news = True
        self._wake.set()

    def look(self) -> None:
        """Tell the datasets all changes of members and of their statements."""
        revision = self._membership.revision
        members = self._tree.members_known()
        # A look costs time for each member, and most looks find no change.
        if self._places.changed or members is not self._members or self._tree.is_cut_off != self._is_cut_off:
            self._places.look()
            self._members, self._is_cut_off = members, self._tree.is_cut_off
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

    # Input: the members

    def _look_at_members(self) -> None:
        now_ms = _now_ms()
        places = self._claimed()
        names = {self._membership.own.name}
        for member in self._members:
            place = places.get(member.name, ClaimPlace())
            names.add(member.name)
            known_member = DatasetMember(
                member.name, member.uuid, member.epoch, member.address, MemberStanding(member.state), *place
            )
            self._membership.tell(known_member, now_ms=now_ms)
        for name in [member.name for member in self._membership.others if member.name not in names]:
            self._membership.forget(name)
            for core in self._library.cores():
                core.forget(name)
        self._tell_peers()

    def _claimed(self) -> dict[str, ClaimPlace]:
        """Return the place in the ring that each owner claims."""
        found = ((entry.owner, place_of(entry.name, entry.value)) for entry in self._tree.below(NODES))
        return {owner: place for owner, place in found if place is not None}

    def _tell_peers(self) -> None:
        peers = {
            member.name: NodePeer(
                member.name,
                member.uuid,
                member.address,
                HolderState.DEAD if self._is_cut_off else member.standing,
                member.epoch,
            )
            for member in self._membership.others
        }
        remembered = {name: NodePeer(*owner, HolderState.DEAD, 0) for name, owner in self._owners.items()}
        self._peers.tell((remembered | peers).values())

    # Input: their statements

    def _hear(self, core: DatabaseCore) -> bool:
        """Return True if statements about a database have changed since the last look."""
        name = core.name
        if name in self._watches:
            partitions, databases = self._watches[name]
            if not (partitions.changed or databases.changed):
                return False
        else:
            paths = (f"{PARTITIONS}/{name}", f"{DATABASES}/{name}")
            self._watches[name] = self._tree.watch(paths[0], self.wake), self._tree.watch(paths[1], self.wake)
        for watch in self._watches[name]:
            watch.look()
        found = self._read(name)
        silent = {member: None for database, member in self._heard if database == name and member not in found}
        changed = [self._take(core, member, heard) for member, heard in {**found, **silent}.items()]
        return any(changed)

    def _read(self, database: str) -> dict[str, SharedBytes]:
        """Return the statements about a database by member, including suspect and dead ones."""
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
            stated = decode(pieces)
            if stated is not None and (stated.identity.database, stated.identity.version) == (core.name, version):
                versions[version] = stated
        database = None if heard.database is None else decode_database(heard.database)
        if len(versions) < len(heard.versions) or (database is None and heard.database is not None):
            self._unread.add((name, core.name))
        else:
            self._unread.discard((name, core.name))
        core.hear(name, member.uuid, heard.epoch, versions, database, wall_ms=self._library.wall_ms())
        return True

    @property
    def unreadable(self) -> list[str]:
        """Names of members whose statements this program cannot read: they run a later version, or lie."""
        return sorted({member for member, _ in self._unread})

    def lost(self, name: str, _uuid: bytes) -> None:
        """Process the end of the connection to a member."""
        for core in self._library.cores():
            core.lost(name)
            self._library.wake(core.name)

    def look_again(self) -> None:
        """Make all datasets check their gates: a member no longer serves a partition that it was asked for."""
        self.wake()
        for core in self._library.cores():
            core.look_again()
            self._library.wake(core.name)

    def answer(self, database: str, wire_id: bytes, asker: str) -> Value:
        """Return the answer to another member's direct question.

        Raises:
            UnknownDatabase: this node has no database of that name.
        """
        core = self._library.core(database)
        if core is None:
            raise UnknownDatabase(f"this node knows no database {database}", {"database": database})
        answer = core.answer(asker, wire_id, now_ms=_now_ms())
        self._library.wake(database)
        return question.NOTHING if answer is None else question.encode(answer)

    def sources(self, database: str, version: str, wire_id: bytes) -> dict[str, ScanSource]:
        """Return the members that may be asked for a version's content, by name; the serving loop knows the same."""
        core = self._library.core(database)
        identity = None if core is None else core.identity(version)
        if core is None or identity is None or identity.wire_id != wire_id:
            return {}
        found = {}
        for owner, partitions in core.owners(identity):
            member = self._membership.get(owner.name)
            found[owner.name] = ScanSource(HolderState.DEAD if member is None else member.standing, partitions)
        return found

    # Output

    def perform(self, core: DatabaseCore, effects: Sequence[Outward]) -> None:
        """Carry out the effects that a database asks for."""
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
        """Send new keys to members directly as well: a read may be waiting, and gossip takes longer."""
        news = self._tree.news()
        for member in self._membership.others if news is not None else ():
            self._peers.ask(member.name, "gossip", [news], self._ask_timeout_ms, _pass_over)

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
        """Carry out the effects of a refusal; the database tries again when that is due."""
        self._library.wake(core.name)
        self.perform(core, effects)

    def _withdraw(self, database: str, version: str, first: int) -> None:
        """Withdraw the pieces of a statement, beginning with number `first`."""
        path = self._path(database, version)
        for number in range(first, self._published.pop((database, version), MAX_PIECES)):
            self._tree.withdraw(f"{path}+{number}" if number else path)

    def _path(self, database: str, version: str) -> str:
        return f"{PARTITIONS}/{database}/{version}/{self._address}"

    def _ask(self, core: DatabaseCore, member: str, identity: VersionIdentity) -> None:
        def hear(answer: NodeAnswer | GossipKVError) -> None:
            epoch, holds = 0, None
            if isinstance(answer, NodeAnswer):
                with contextlib.suppress(ValueError):
                    holds, epoch = question.decode(msgpack.unpackb(answer.data), identity.partitions), answer.epoch
            core.answered(member, epoch, identity.wire_id, holds)
            self._library.wake(core.name)

        params: list[Value] = [identity.database, identity.wire_id, self._membership.own.name]
        self._peers.ask(member, question.METHOD, params, self._ask_timeout_ms, hear)

    def _route(self, owner: Owner, identity: VersionIdentity, partitions: PartitionSet) -> None:
        if self._membership.get(owner.name) is None and partitions:
            self._owners[owner.name] = owner
            self._tell_peers()
        column = self._peers.column(owner.name)
        if column is not None:  # Otherwise the member is forgotten, with all that it held.
            self._routes.set_holder(identity.wire_id, identity.partitions, column, partitions.to_bytes())


def _pass_over(_answer: NodeAnswer | GossipKVError) -> None:
    """Ignore the answer: a member that missed the message hears of the keys by gossip."""


def _now_ms() -> int:
    return int(trio.current_time() * 1000)
