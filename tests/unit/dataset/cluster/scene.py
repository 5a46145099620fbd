"""Members, identities and statements under short names, and the core of one node among them."""

from __future__ import annotations

from gossipkv.address import Address
from gossipkv.dataset.cluster.convergence import Convergence
from gossipkv.dataset.cluster.core import DatabaseCore
from gossipkv.dataset.cluster.effects import AskMember, Publish, PublishDatabase, Withdraw
from gossipkv.dataset.cluster.members import DatasetMember, Membership, MemberStanding
from gossipkv.dataset.cluster.own_copy import OwnCopy
from gossipkv.dataset.cluster.question import MemberAnswer
from gossipkv.dataset.cluster.terms import Terms
from gossipkv.placement.identity import VersionIdentity
from gossipkv.placement.ownership import Owner, Ownership
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.statement import DatabaseStatement, Named, Statement

SETTLE_MS = 10_000
HOUR_MS = 3_600_000
TERMS = Terms(
    replication=1,
    min_replication=1,
    reassign_after_ms=60_000,
    retire_after_ms=600_000,
    probe_interval_ms=1_000,
    grace_ms=5_000,
)
DIGEST = "ab" * 32


def uuid_of(name):
    return name.encode().rjust(16, b"\0")


def member(name, shard_id=None, *, state=MemberStanding.ALIVE, epoch=1, firm=True):
    """Return a member, whose place in the ring is its name unless another is given."""
    address = Address(f"{name}.example", 7070)
    return DatasetMember(name, uuid_of(name), epoch, address, state, shard_id or name, firm)


def identity(version="1", *, digest=DIGEST, partitions=4, function="sequins", regrouped=False):
    return VersionIdentity("d", version, digest, partitions, function, regrouped)


def some(*partitions, of=4):
    return PartitionSet.of(of, partitions)


def statement(name, ready=(), building=(), of=None):
    of = of or identity()
    count = of.partitions
    return Statement(of, 0, 100, some(*ready, of=count), some(*building, of=count), uuid_of(name))


def active(of=None, **more):
    """Return the statement of a member that has this version active."""
    of = of or identity()
    return DatabaseStatement(Named(of.version, of.wire_id), is_complete=True, **more)


def answer(*ready, dropping=False, seals=None, records=None):
    """Return the answer of a member that serves these partitions; `records` is the count of each."""
    counts = {} if records is None else dict.fromkeys(ready, records)
    return MemberAnswer(some(*ready), seals or {"1/none": dict.fromkeys(ready, 7)}, dropping, records=counts)


def held(name, *partitions):
    return Ownership(Owner(name, uuid_of(name), member(name).address), some(*partitions))


class Node:
    """The core of `d` on a node `a` among other members."""

    def __init__(self, *others, terms=TERMS, expects_others=True, epoch=1, firm=True, refuted=None):
        self.now_ms = 1_000_000
        own = member("a", epoch=epoch, firm=firm)
        self.membership = Membership(
            own, expects_others=expects_others, retire_max_ms=HOUR_MS, now_ms=self.now_ms
        )  # fmt: skip
        for other in others:
            self.tell(member(other))
        self.convergence = Convergence(self.membership, settle_ms=SETTLE_MS, now_ms=self.now_ms)
        self.core = DatabaseCore("d", self.membership, self.convergence, terms)
        self.core.recall_refuted(refuted or {})
        self.effects = []
        self.asked = []
        self.published = {}
        self.database = None

    def tell(self, told):
        self.membership.tell(told, now_ms=self.now_ms)

    def state(self, name, state, *, epoch=1):
        self.tell(member(name, state=state, epoch=epoch))

    def step(self, ms=0):
        """Let time pass, step the core and record its effects."""
        self.now_ms += ms
        found = self.core.step(now_ms=self.now_ms)
        self.effects += found
        for effect in found:
            match effect:
                case AskMember(name, of):
                    self.asked.append((name, of))
                case Publish(version, said):
                    self.published[version] = said
                case Withdraw(version):
                    del self.published[version]
                case PublishDatabase(said):
                    self.database = said
        return found

    def settle(self):
        self.step()
        self.step(SETTLE_MS)

    def hear(self, name, *said, database=None, epoch=1):
        said = {each.identity.version: each for each in said}
        self.core.hear(name, uuid_of(name), epoch, said, database, wall_ms=0)
        self.step()

    def copy(self, version="1", **more):
        self.core.tell_copy(OwnCopy(version=version, **more))

    def has(self, *ready, of=None, **more):
        of = of or identity()
        seals = {"1/none": dict.fromkeys(ready, 7)}
        more = {"seals": seals, "digest": of.digest, "partitions": of.partitions} | more
        self.copy(of.version, identity=of, ready=some(*ready, of=of.partitions), **more)
        self.step()

    def answered(self, name, told, of=None, *, epoch=1):
        self.core.answered(name, epoch, (of or identity()).wire_id, told)
        self.step()

    def passes(self, version="1"):
        return self.core.may_switch(version)
