"""The node's part in gossip: the core with its agent, the node's place in the ring, and the answers built from them."""

from __future__ import annotations

import contextlib
import ipaddress
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.dataset.cluster import members as dataset
from gossipkv.errors import ConfigError, NotReady, TooLarge, Unavailable
from gossipkv.gossip.core import DUPLICATES, NAMES, Gossip, GossipLimits, Me
from gossipkv.gossip.member import REACHABLE, MemberState, member_id
from gossipkv.gossip.membership.timers import NEVER
from gossipkv.gossip.packets.envelope import Envelope, Seal
from gossipkv.gossip.packets.key_ring import KEY_BYTES, SESSION_BYTES
from gossipkv.gossip.packets.prefix import NO_CLUSTER, version_of
from gossipkv.gossip.profile import PROFILES
from gossipkv.gossip.shell import key_file
from gossipkv.gossip.shell.agent import Agent
from gossipkv.gossip.tree.limits import MAX_BRANCH_BYTES, TreeLimits
from gossipkv.node.peers.dialling import Dialling
from gossipkv.node.peers.hello import Hello
from gossipkv.node.peers.proof import Prover
from gossipkv.node.publications import Publications
from gossipkv.placement.shard_claim import NODES, Firmness, NodeEntry, ShardClaim
from gossipkv.protocol import OURS
from gossipkv.settings.quantity import SIZE, show

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.address import Address
    from gossipkv.environment.seam import Datagrams, Environment
    from gossipkv.errors import Detail
    from gossipkv.gossip.member import Member
    from gossipkv.gossip.packets.key_ring import Key as RingKey
    from gossipkv.gossip.packets.sealing import Sealing
    from gossipkv.gossip.tree.tree import GossipTree, TreeEntry
    from gossipkv.gossip.tree.watch import TreeWatch
    from gossipkv.node.directory import DataDirectory
    from gossipkv.settings.config import Config
    from gossipkv.settings.gossip import GossipSettings

    Key = tuple[str, bytes]  # A name, and the id of one owner.

PORTION: Final = 250  # Entries listed in one turn of the task, which is a few milliseconds.

# A leaving node tells a few members at once and repeats the news for this many rounds; the members spread the news.
LEAVE_ROUNDS: Final = 3
LEAVE_MAX_MS: Final = 1000

# A node that joins others claims no place before it hears of their claims, or before this time is over: else it would
# claim places that are taken. While it hears from nobody, it checks again at this period, since its claim counts
# only once others could object.
LOOK_MS: Final = 1000


@final
class Gossiping:
    """The part of one node in the cluster's gossip."""

    def __init__(
        self,
        settings: GossipSettings,
        environment: Environment,
        directory: DataDirectory,
        *,
        datagrams: Datagrams,
        address: Address,
        sealing: Sealing | None,
    ) -> None:
        record = directory.record
        uuid = bytes.fromhex(record.uuid)
        cluster_id = bytes.fromhex(record.cluster_id) or NO_CLUSTER
        self.address = address
        self.dialling = Dialling(environment.sockets)
        self._profile = replace(PROFILES[settings.profile], converge_ms=settings.time_to_converge)
        self._directory = directory
        self._sealing = sealing
        self._key_ring = settings.key_ring
        self.on_keys: Callable[[], object] = lambda: None  # Called when the key ring was read again.
        self.prover = None if sealing is None else _prover(sealing, settings, environment)
        # Numbers of the last reading of the key ring that began, and of the one whose keys are in use.
        self._readings = self._newest_reading = 0
        self._core = Gossip(
            Me(
                *(record.node, uuid, record.epoch, address, settings.cluster, cluster_id, record.pinned),
                is_first=not record.cluster_id,
            ),
            self._profile,
            environment.random,
            limits=GossipLimits(
                max_members=settings.max_members,
                tree=TreeLimits(
                    max_entry_bytes=settings.max_entry,
                    max_branch_bytes=settings.max_branch,
                ),
            ),
            envelope=Envelope(settings.cluster, cluster_id, sealing, Seal(settings.seal)),
            silent=directory.silence is not None,
        )
        self._tree = self._core.tree
        self._publications = Publications(self._tree)
        self._claim = ShardClaim(
            ClaimsInTree(self._tree, self._publications),
            name=record.node,
            uuid=uuid,
            address=address,
            configured=str(settings.shard_id) if settings.shard_id else None,
            remembered=str(record.shard_id) if record.shard_id else None,
            settle_ms=settings.time_to_converge,
            expected=settings.expected_members,
        )
        self._place = ShardIdTimer(self._core, self._claim, waits=bool(settings.join))
        self.agent = Agent(
            self._core, datagrams, environment, directory, settings.join, place=self._place, dial=self.dialling.connect
        )

    def say_leaving(self) -> None:
        """Tell the other members that this node is about to leave, and answers until then."""
        self._place.leave()
        self.agent.act()

    async def leave(self) -> None:
        """Tell the other members that this node has left; waits for a second at most."""
        wait_ms = min(LEAVE_MAX_MS, LEAVE_ROUNDS * self._profile.gossip_interval_ms)
        await self.agent.leave(wait_ms / 1000)

    async def pin(self) -> bytes:
        """Never let this node take another cluster id, and return the final one.

        The pin is durable on return; while the disk refuses, it is retried. A caller that expects a certain cluster id
        must compare it with the returned one: this node may have gone over to another cluster meanwhile.

        Raises:
            NotReady: the node has no cluster id yet; nothing was changed.
        """
        if not self._directory.record.cluster_id:
            raise NotReady("this node is not in a cluster yet: no address of `join` has answered")
        await self.agent.pin()
        record = self._directory.record
        assert record.pinned, record
        return bytes.fromhex(record.cluster_id)

    def speak(self) -> None:
        """Let other members hear of this node: the epoch of this start is kept now."""
        now_ms = self.agent.now_ms()
        self._core.speak(now_ms=now_ms)
        self._place.start(now_ms=now_ms)
        self.agent.act()

    async def read_keys(self, environment: Environment) -> None:
        """Seal packets with the keys that the key ring has now.

        Raises:
            ConfigError: it cannot be read; the keys stay as they were.
        """
        if self._sealing is None or self._key_ring is None:
            return
        self._readings += 1
        reading = self._readings
        keys = await environment.threads.run(key_file.read, self._key_ring, abandon_on_cancel=True)
        if reading > self._newest_reading:  # Otherwise a later reading was faster, and this one is old.
            self._newest_reading = reading
            self._sealing.use(keys)
            self.on_keys()

    def ring(self) -> Sequence[RingKey]:
        """Return the keys in use, of which the first seals; none: the node has no key ring."""
        return () if self._sealing is None else self._sealing.keys

    @property
    def probe_interval_ms(self) -> int:
        """The period at which one member is probed."""
        return self._profile.probe_interval_ms

    # Statements of this node

    def publish(self, path: str, value: bytes = b"") -> None:
        """Publish a key under this node's name.

        Raises:
            BadRequest: the path is not valid.
            TooLarge: over a limit of this node; the value published before stays, and `publish_error` says so.
        """
        self._publications.publish(path, value)
        self.agent.act()

    def publish_name(self, name: str | None) -> None:
        """Publish the advertised name, `host:port`, by which clients reach this node; None if it has none."""
        if name is not None:
            with contextlib.suppress(TooLarge):  # It is logged, and clients get the numeric address.
                self._publications.publish(f"{NAMES}/{name}")

    def withdraw(self, path: str) -> bool:
        """Withdraw a key; return False if there was none."""
        was_there = self._publications.withdraw(path)
        self.agent.act()
        return was_there

    def news(self) -> bytes | None:
        """Return what this node published since the last call, as a request of `gossip`; None if nothing."""
        return self._core.news()

    def watch(self, path: str, wake: Callable[[], None]) -> TreeWatch:
        """Return a watcher of changes at and below a path; `wake` is called when there are new ones."""
        return self._tree.watch(path, wake)

    def suspect_hint(self, name: str) -> None:
        """Probe a member soon, since a request to it failed. Only failing probes make it suspect."""
        self._core.suspect_hint(member_id(name), now_ms=self.agent.now_ms())
        self.agent.act()

    def own_member(self) -> dataset.DatasetMember:
        """Return this node as the databases know it at the start, with its last place in the ring."""
        own, record = self._core.members.own, self._directory.record
        return dataset.DatasetMember(
            own.name, own.uuid, own.epoch, own.address, shard_id=str(record.shard_id) if record.shard_id else None
        )

    def members_known(self) -> Sequence[Member]:
        """Return all members, including this node, as gossip knows them: the same object until one changes."""
        return self._core.members.list()

    def names_of(self, uuid: bytes) -> list[str]:
        """Return the names of the members with that uuid; several if a data directory was copied."""
        return [member.name for member in self._core.members.list() if member.uuid == uuid]

    def names(self, path: str) -> list[str]:
        """Return the names directly below a path that any member has published, including suspect and dead ones."""
        return self._tree.children(path, all=True)

    def below(self, path: str) -> list[TreeEntry]:
        """Return the entries directly below a path of any member, including suspect and dead ones."""
        return self._tree.entries(path, now_ms=0, all=True)

    # Queries by other parts

    @property
    def epoch(self) -> int:
        """Epoch of this start; higher than all before."""
        return self._directory.record.epoch

    @property
    def shard_id(self) -> str | None:
        """The node's place in the ring; None before it has claimed one."""
        return self._claim.shard_id

    def publish_error(self) -> str | None:
        """The reason why this node's keys are not all published; None if they are."""
        return self._publications.error

    @property
    def silence(self) -> str | None:
        """The reason why no member may hear of this node; None if all may."""
        silence = self._directory.silence
        return silence.message if self._core.silent and silence is not None else None

    @property
    def hello(self) -> Hello:
        """The hello that this node sends first on a connection to another."""
        record = self._directory.record
        epoch = 0 if self._core.silent else record.epoch
        cluster_id, uuid = bytes.fromhex(record.cluster_id), bytes.fromhex(record.uuid)
        return Hello(OURS.newest, cluster_id, uuid, epoch, record.store, record.life, min=OURS.oldest, max=OURS.newest)

    @property
    def protocol(self) -> int:
        """The newest protocol version that all members announce, in which this node writes."""
        return self._core.protocol

    def misfits(self) -> dict[str, str]:
        """Return the nodes that share no protocol version with this node, and why, by name or else by address."""
        names = {member.address: member.name for member in self._core.members.list()}
        return {names.get(to, str(to)): why for to, why in self.agent.misfits.items()}

    def isolated(self) -> bool:
        """Return True if this node has heard from no member for so long that its knowledge of them is stale."""
        return self._core.isolated(now_ms=self.agent.now_ms())

    @property
    def is_cut_off(self) -> bool:
        """True if requests must not wait for other members, whatever gossip calls them: this node hears none."""
        return self._core.is_cut_off

    def unheard(self) -> dict[str, str]:
        """Return members that seem to live and whose packets do not reach this node, with a reason."""
        return dict.fromkeys(self._core.unheard(now_ms=self.agent.now_ms()), "gossip packets do not arrive")

    def claimed_twice(self) -> list[str]:
        """Return the names that two nodes claim, as published by either of the two."""
        entries = self._tree.entries(DUPLICATES, now_ms=0, all=True)
        return sorted({entry.owner for entry in entries if entry.state in REACHABLE})

    def counters(self) -> dict[str, int]:
        """Return counts by name."""
        counted = {**self._tree.counters, **self._claim.counters}
        return self.agent.counters() | {f"gossip_{name}": count for name, count in counted.items()}

    def reply(self, request: bytes) -> bytes:
        """Answer another node.

        Raises:
            Unavailable: this node does not answer the request; the reason is counted.
        """
        reply = self.agent.reply(request)
        if reply is None:
            if self._core.silent:
                raise Unavailable("this node is silent: its data directory is not writable; the node joins when it is")
            if (version := version_of(request)) is not None and version not in OURS:
                raise Unavailable(
                    f"this node speaks {OURS}, and the request has version {version}", {"protocol": [*OURS]}
                )
            raise Unavailable(
                "the node does not answer this request: it is from another cluster, sealed with other keys, or damaged"
            )
        return reply

    def members(self) -> list[Detail]:
        """Return the known members, by name."""
        twice, names = self.claimed_twice(), {entry.owner: entry.name for entry in self.below(NAMES)}
        misfits = self.misfits()
        known: list[Detail] = [
            {
                "node": member.name,
                "address": names.get(member.name, str(member.address)),
                "state": self._state(member),
                "epoch": member.epoch,
                "incarnation": member.incarnation,
                "claimed_twice": member.name in twice,
                "protocol": [*member.versions],
                "misfit": misfits.pop(member.name, None),
            }
            for member in self._core.members.list()
        ]
        return known + [
            {"node": address, "address": address, "state": "misfit", "misfit": why} for address, why in misfits.items()
        ]

    def members_by_state(self) -> dict[str, int]:
        """Return the number of members in each state, including zeros."""
        none = dict.fromkeys((state.name.lower() for state in MemberState), 0)
        return {**none, **Counter(self._state(member) for member in self._core.members.list())}

    def _state(self, member: Member) -> str:
        """Return a member's state in one word; only this node itself can be `silent`, since no other can know."""
        return "silent" if self._core.silent and member is self._core.members.own else member.state.name.lower()

    def children(self, path: str, *, everything: bool) -> list[Detail]:
        """Return the names directly below a path."""
        return [*self._tree.children(path, all=everything)]

    def keys(self, path: str, *, everything: bool) -> list[Key]:
        """Return the keys directly below a path, for `entries`."""
        return self._tree.keys(path, everything=everything)

    def entries(self, path: str, keys: Sequence[Key], *, everything: bool) -> list[Detail]:
        """Return those of these keys that still exist; without `everything`, only those of live owners."""
        now_ms = self.agent.now_ms()
        found = (self._tree.entry(path, name, owner, now_ms=now_ms) for name, owner in keys)
        return [
            {
                "name": entry.name,
                "owner": entry.owner,
                "value": entry.value,
                "age_s": round(entry.age_ms / 1000, 3),
                "state": entry.state.name.lower(),
            }
            for entry in found
            if entry is not None and (everything or entry.state is MemberState.ALIVE)
        ]

    async def many_entries(self, path: str, keys: Sequence[Key], *, everything: bool) -> list[Detail]:
        """Return the same as `entries`, in several turns of the task."""
        found: list[Detail] = []
        for begin in range(0, len(keys), PORTION):
            found += self.entries(path, keys[begin : begin + PORTION], everything=everything)
            await trio.lowlevel.checkpoint()
        return found


@final
class ClaimsInTree:
    """The claims of shard ids below `nodes` in the tree, as `shard_claim.Claims` asks for them."""

    def __init__(self, tree: GossipTree, publisher: Publications | None = None) -> None:
        """Begin; `publisher` publishes claims in place of the tree."""
        self._tree = tree
        self._publisher: Publications | GossipTree = publisher or tree
        self._refused: str | None = None

    def of_others(self) -> list[NodeEntry]:
        """Return the claims of other members, including the dead and gone until they are forgotten."""
        own = self._tree.own_name
        return [
            NodeEntry(entry.name, entry.owner, entry.value, entry.state in REACHABLE)
            for entry in self._tree.entries(NODES, now_ms=0, all=True)
            if entry.owner != own
        ]

    def publish(self, path: str, value: bytes) -> None:
        """Publish a claim under this node's name.

        Raises:
            TooLarge: this node's branch has no room; nothing has changed.
        """
        if self._refused is not None and self._refused != path:
            self._publisher.withdraw(self._refused)  # The claim that the tree refused is obsolete.
        self._refused = path
        self._publisher.publish(path, value)
        self._refused = None

    def withdraw(self, path: str) -> bool:
        """Withdraw a claim; return False if there was none."""
        return self._publisher.withdraw(path)


@final
class ShardIdTimer:
    """This node's claim of a place in the ring, as a timer of the agent: due when others claim, and at set times."""

    def __init__(self, core: Gossip, claim: ShardClaim, *, waits: bool) -> None:
        self._core = core
        self._claim = claim
        self._watch = core.tree.watch(NODES, self._wake)
        self._waits = waits
        self.wakes_at_ms = NEVER  # Time of the next `step`.

    @property
    def shard_id(self) -> str | None:
        """The shard id that this node claims."""
        return self._claim.shard_id

    def start(self, *, now_ms: int) -> None:
        """Claim now, or after a wait for the claims of others."""
        # A silent node's claim begins when it speaks: a claim counts only once others can object.
        if not self._core.silent:
            self.wakes_at_ms = now_ms + LOOK_MS * self._waits

    def leave(self) -> None:
        """Publish that this node is about to leave; skipped if its branch has no room."""
        with contextlib.suppress(TooLarge):
            self._claim.leave()

    def _wake(self) -> None:
        if not self._core.silent:
            self.wakes_at_ms = 0  # Claims of others have arrived, so the wait is over.

    def step(self, *, now_ms: int) -> int | None:
        """Claim, make way or confirm; return a place to be remembered."""
        self._watch.look()
        self.wakes_at_ms = now_ms + LOOK_MS  # For a node that hears from nobody, and in case this step raises.
        shard_id = self._claim.step(now_ms=now_ms, isolated=self._core.isolated(now_ms=now_ms))
        due_ms = self._claim.wakes_at_ms
        if self._watch.changed and self._claim.shard_id is not None:
            self.wakes_at_ms = 0  # The node has just published a claim, and compares it with the others at once.
        elif due_ms is not None:
            self.wakes_at_ms = due_ms
        elif self._claim.firmness is not Firmness.PROVISIONAL:
            self.wakes_at_ms = NEVER
        return None if shard_id is None else int(shard_id)


def _prover(sealing: Sealing, settings: GossipSettings, environment: Environment) -> Prover:
    secret = environment.random.randbytes(KEY_BYTES)
    return Prover(lambda: sealing.keys, secret, is_required=Seal(settings.seal) is Seal.REQUIRE)


def membership_of(config: Config, gossiping: Gossiping, remembered: Sequence[Address]) -> dataset.Membership:
    """Return the membership for a starting node's datasets; `remembered`: addresses of members of the last run."""
    return dataset.Membership(
        gossiping.own_member(),
        expects_others=bool(config.join or remembered or config.expected_members > 1),
        retire_max_ms=config.retire_max,
        now_ms=int(trio.current_time() * 1000),
    )


def check_room(config: Config) -> None:
    """Refuse limits that leave no room for all members, each of which may publish `MAX_BRANCH_BYTES`.

    Raises:
        ConfigError: `max_tree` is too small for `max_members`.
    """
    needed = config.max_members * MAX_BRANCH_BYTES
    if needed > config.max_tree:
        where = config.origin("max_tree" if config.origin("max_members") == "default" else "max_members")
        raise ConfigError(
            f"{where}: max_members = {config.max_members} members may publish 256 KiB each, {show(needed, SIZE)} in "
            f"all, which is above max_tree = {show(config.max_tree, SIZE)}; "
            f"set max_tree = {show(needed, SIZE)}, or max_members = {config.max_tree // MAX_BRANCH_BYTES}",
            {"max_members": config.max_members, "max_tree": config.max_tree, "needed": needed, "where": where},
        )


def refuse_strangers(config: Config, bound: Address) -> None:
    """Refuse to listen at `bound` if strangers could speak for any node, unless the settings allow it explicitly.

    Raises:
        ConfigError: strangers could.
    """
    if config.key_ring is None and not (config.insecure_gossip or ipaddress.ip_address(bound.host).is_loopback):
        where = config.origin("listen")
        raise ConfigError(
            f"{where}: listen = {str(config.listen)!r}: without keys, any sender of a datagram can speak "
            "for any node; make keys (`gossipkv keys new`, key_ring), or permit this with insecure_gossip",
            {"setting": "insecure_gossip", "where": where},
        )


def read_key_ring(config: Config, environment: Environment) -> Sealing | None:
    """Return the sealing by the key ring; None if no key ring is set. Blocks.

    Raises:
        ConfigError: the key ring cannot be read or parsed; or seals were asked for and no key ring is set.
        LocalError: the extra `secure` is not installed.
    """
    if config.key_ring is None:
        where = config.origin("seal")
        if where != "default":  # A node that was told to seal must not send plain packets.
            raise ConfigError(
                f"{where}: seal = {config.seal!r} needs a key ring; set key_ring",
                {"setting": "seal", "where": where},
            )
        return None
    session = environment.random.getrandbits(8 * SESSION_BYTES).to_bytes(SESSION_BYTES, "big")
    return key_file.sealing(key_file.read(config.key_ring), session)
