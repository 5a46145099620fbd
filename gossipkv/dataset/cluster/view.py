"""What is known of one database in the cluster, for whoever only asks: `status`, `decide`, the serving loop.

All of it is as of the last step of the database's core, which is such a view and alone changes what it shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.dataset.cluster.contents import to_follow
from gossipkv.dataset.cluster.gates import Gates
from gossipkv.dataset.cluster.others import Others
from gossipkv.dataset.cluster.publication import COALESCED_MS, Publication
from gossipkv.dataset.cluster.refutations import Refutations
from gossipkv.dataset.cluster.retiring import Retiring, needed_by
from gossipkv.dataset.cluster.routes import Routes
from gossipkv.dataset.cluster.shares import Shares
from gossipkv.dataset.cluster.survey import Survey
from gossipkv.placement.orders import Orders

if TYPE_CHECKING:
    from gossipkv.dataset.cluster.convergence import Convergence
    from gossipkv.dataset.cluster.gate import Dispute
    from gossipkv.dataset.cluster.members import Membership
    from gossipkv.dataset.cluster.own_copy import OwnCopy
    from gossipkv.dataset.cluster.retiring import Needs
    from gossipkv.dataset.cluster.terms import Terms
    from gossipkv.placement.holders import Holders
    from gossipkv.placement.identity import Identity
    from gossipkv.placement.ownership import Ownership
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.placement.seals import Sealed, Seals
    from gossipkv.placement.statement import Named

PROBE_INTERVALS: Final = 2  # In which others hear that this node leaves, and this node what they say to that.


class Conflict(NamedTuple):
    """Several identities that go by one version's name, and who holds them."""

    version: str
    owners: dict[Identity, list[str]]


class DatabaseView:
    """One database in the cluster, read-only; it answers what `lifecycle.decisions` asks (`Verdicts`)."""

    def __init__(self, name: str, membership: Membership, convergence: Convergence, terms: Terms) -> None:
        self.name = name
        self.terms = terms
        self.membership = membership  # As all databases of this node share it.
        self._convergence = convergence
        self._copies: dict[str, OwnCopy] = {}
        self._others = Others()
        self._refutations = Refutations()
        self._shares = Shares(membership, convergence, terms)
        self._publication = Publication()
        self._retiring = Retiring(retire_after_ms=terms.retire_after_ms, grace_ms=terms.grace_ms)
        self._gates = Gates(membership, terms, self._copies, self._retiring)
        self._routes = Routes(membership, self._others, self._refutations, self._gates.right)
        self._survey = Survey(membership, self._others, self._refutations, {}, terms.min_replication)
        self.orders = Orders()  # To hold a version.
        self._now_ms = 0  # Of the last step.

    # What clients get

    def identity(self, version: str) -> Identity | None:
        """Return the identity that clients get by a version's name; None: none is known yet, or it is refuted."""
        passed = self._gates.passed.get(version)
        if passed is not None:
            return None if self._refutations.refutes(passed) else passed
        available = self._gates.available.get(version)
        return None if available is None else available.identity

    def has_published(self, version: str) -> bool:
        """Whether any member has published anything of a version."""
        return version in self._survey.published

    def heard(self) -> dict[str, Identity]:
        """Return what other members have published, by version: the identity that clients get or are to get."""
        own = self.membership.own.name
        others = (
            version
            for version, published in self._survey.published.items()
            if any(statements.keys() - {own} for statements in published.values())
        )
        return {version: identity for version in others if (identity := self.identity(version)) is not None}

    def offered(self, version: str) -> Identity | None:
        """Return what clients may have by that name: it has passed, or another member has it active; None: nothing."""
        return self.identity(version) if self.passed(version) else self.active_elsewhere(version)

    def active_elsewhere(self, version: str) -> Identity | None:
        """Return what a member has active by that name, if each partition has an owner that is ALIVE.

        A member's word that it is active may be here before the word of those who have it.
        """
        active = (known.identity for known in self._survey.known(version) if known.is_active)
        fixed = (identity for identity in active if self._gates.is_fixed(identity))
        return next((identity for identity in fixed if self._survey.has_all(identity)), None)

    def owners(self, identity: Identity) -> tuple[Ownership, ...]:
        """Return who may be asked for an identity: the `Route`s that the core's steps have returned."""
        return self._routes.of(identity)

    def source_ms(self, identity: Identity) -> int | None:
        """Return when the files were last touched that it was made from, as its owners say; None: nobody does."""
        return self._survey.source_ms(identity)

    def contradicting(self, identity: Identity, seals: Seals) -> PartitionSet:
        """Return the partitions of which these are other files than clients get here; they are not answered from."""
        return self._gates.contradicting(identity, seals)

    # The verdicts

    def sealed(self) -> tuple[Sealed, ...]:
        """Return what clients may have, or had, each with the seals of the files that it is answered from."""
        return self._gates.sealed

    def share(self, version: str) -> PartitionSet | None:
        """Return the partitions of a version that are to be here; None: it is not known yet, or not of this node."""
        copy = self._copies.get(version)
        return None if copy is None else self._shares.of(copy)

    def passed(self, version: str) -> bool:
        """Whether clients may have a version, also by its name: its gate has passed here."""
        return version in self._gates.passed

    def may_switch(self, version: str) -> bool:
        """Whether the gate of a version holds."""
        return self._gates.may_switch(version, now_ms=self._now_ms)

    def withheld(self, version: str) -> str | None:
        """Return why a version is not switched to by itself, though its gate may hold; None: nothing keeps it."""
        return self._gates.withheld(version)

    def records(self, identity: Identity) -> int | None:
        """Return how many records an identity has; None: not all of its owners have told."""
        return self._gates.counted.get(identity)

    def is_short(self, version: str) -> bool:
        """Whether partitions of a version have fewer owners that live than `replication`, and are to be here."""
        holders, share = self.holders(version), self.share(version)
        if holders is None or share is None or share.partitions != holders.identity.partitions:
            return False
        return bool(holders.under_replicated(self.terms.replication) & share)

    def may_retire(self, version: str) -> bool:
        """Whether an old version may go: nobody needs it, it is withdrawn, and was answered for a while after that.

        What is not here is in nobody's way.
        """
        return version not in self._copies or self._retiring.is_free(version, now_ms=self._now_ms)

    def is_missed(self, *, now_ms: int) -> bool:
        """True if this node, which leaves, alone has a part of what is active, and a node that stays may get it.

        A node that is stopped says that it leaves (beside its claim of a place in the ring) and goes on answering.
        From then on it counts in no gate, others ask it after all that stay, and what only it has they build at once
        (`shares`).  It goes when each partition of what is active where members stay has an owner that stays; or when
        nobody who stays builds what is missing, which is known once they have had the time to say so; at once, if
        nobody stays.

        Until then also what is newer than what is active there counts: a gate may have passed by what this node had
        answered, and the word of the switch be on its way.
        """
        survey, membership = self._survey, self.membership
        own, staying, since_ms = membership.own.name, membership.staying, membership.leaving_since_ms
        assert since_ms is not None, "it does not leave"
        active = {survey.needs_of(name).active for name in staying}
        may_be_news = now_ms < since_ms + COALESCED_MS + PROBE_INTERVALS * self.terms.probe_interval_ms
        for version, published in survey.published.items():
            is_newer = any(each is None or version > each for each in active)
            if version not in active and not (may_be_news and is_newer):
                continue
            for identity in published:
                holders = survey.availability(identity).holders
                here_alone = holders.at_least(1, {own}) - holders.at_least(1, staying)
                if here_alone and (may_be_news or here_alone & holders.building_at(staying)):
                    return True
        return False

    def refuted(self, digest: str) -> tuple[str, ...]:
        """Return the functions that no build of these files may rely on."""
        return self._refutations.of(digest)

    def to_follow(self, version: str) -> Identity | None:
        """Return the identity that a build of what the source shows is to come to; None: it finds out for itself."""
        copy = self._copies.get(version)
        if copy is None or copy.digest is None:
            return None
        passed = self._gates.passed.get(version)
        if passed is not None and passed.digest == copy.digest and not self._refutations.refutes(passed):
            return passed
        return to_follow(self._survey.known(version), copy.digest)

    def is_withdrawn(self, version: str, partitions: PartitionSet) -> bool:
        """Whether nothing of these partitions is published any more, so that they may be dropped."""
        shown = self._publication.shown(version)
        return shown is None or shown.ready.partitions != partitions.partitions or not shown.ready & partitions

    def all_refuted(self) -> dict[str, tuple[str, ...]]:
        """Return all functions that are refuted, by digest, the latest last: what is kept over a restart."""
        return self._refutations.all()

    # What people are told

    @property
    def active(self) -> Named | None:
        """The version that is active here."""
        return self._gates.active

    @property
    def is_known_elsewhere(self) -> bool:
        """Whether any other member has said anything of this database."""
        return any(
            said.versions or said.former or (said.database is not None and said.database.names_any)
            for _, said in self._others
        )

    @property
    def has_ring(self) -> bool:
        """Whether shares can be computed: the list of members has been still, and this node is heard."""
        return self._convergence.ids is not None

    @property
    def ring_awaited_s(self) -> int:
        """For how many seconds there has been no ring."""
        return max(0, self._now_ms - self._convergence.waits_since_ms) // 1000

    @property
    def waits_to_be_heard(self) -> bool:
        """Whether this node hears nobody, and has not done so for long enough to go on alone."""
        return self.membership.waits_to_be_heard(self._now_ms)

    @property
    def left_out(self) -> list[str]:
        """Versions whose statement the tree has no room for."""
        return self._publication.left_out

    @property
    def disputes(self) -> dict[str, list[Dispute]]:
        """Owners, by version, whose files for the same partitions differ."""
        return self._gates.disputes

    @property
    def conflicts(self) -> list[Conflict]:
        """Versions by whose name more than one content goes: other files, another N, another function."""
        return [
            Conflict(version, {identity: sorted(statements) for identity, statements in published.items()})
            for version, published in sorted(self._survey.published.items())
            if len(published) > 1
        ]

    def holders(self, version: str) -> Holders | None:
        """Return who holds what of a version; None: nobody has said anything of it."""
        available = self._gates.available.get(version)
        return None if available is None else available.holders

    def needs_of(self, name: str) -> Needs:
        """Return which versions another member needs, as it says itself."""
        return self._survey.needs_of(name)

    def needed_by(self, version: str, *, now_ms: int) -> list[str]:
        """Return the members that keep an old version from going."""
        return needed_by(version, self._survey.needs(now_ms))
