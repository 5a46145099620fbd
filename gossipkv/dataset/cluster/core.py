"""One database in the cluster: its inputs, and the effects that it requests.

    hear                        a member's statements about this database, after each change in the tree
    tell_copy, drop_copy        the local copy of a version; `opened` when all copies on the disk were reported
    activate, hold, remember    the active version (synced), the held version, the owners of the last run
    answered, lost, look_again  the result of an `AskMember`; a lost connection; an owner that has switched
    answer                      the reply to another member's direct question
    step                        after each of these, after each change of the `Membership` that all databases share, and
                                at `wakes_at_ms`: returns the effects

The core does no I/O and knows no clock or chance.  A change costs a few bitmap operations per version and member.
Promises depend on the order: a copy is withdrawn before it is dropped (`is_withdrawn`, `may_retire`), and clients get
nothing before its gate (`passed`).  A gate counts answers, never mere statements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.dataset.cluster.effects import (
    BuildAnew,
    Decide,
    KeepActive,
    KeepOrders,
    KeepRefuted,
    KeepRing,
    PublishDatabase,
    ReadContents,
)
from gossipkv.dataset.cluster.publication import DatabasePublication
from gossipkv.dataset.cluster.question import MemberAnswer
from gossipkv.dataset.cluster.retiring import needed_by
from gossipkv.dataset.cluster.survey import VersionSurvey
from gossipkv.dataset.cluster.view import DatabaseView
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.statement import DatabaseStatement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gossipkv.dataset.cluster.convergence import Convergence
    from gossipkv.dataset.cluster.effects import Effect, Outward, Publish, Withdraw
    from gossipkv.dataset.cluster.members import Membership
    from gossipkv.dataset.cluster.own_copy import OwnCopy
    from gossipkv.dataset.cluster.terms import Terms
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.orders import Orders
    from gossipkv.placement.ownership import Ownership
    from gossipkv.placement.seals import Sealed
    from gossipkv.placement.statement import Statement
    from gossipkv.settings.databases import MinimumSettings

KEEP_MS: Final = 5_000  # Rewrite ACTIVE this often as owners change: each write is synced.


class DatasetCluster(NamedTuple):
    """The cluster objects that all databases of a node share."""

    membership: Membership
    convergence: Convergence
    terms: Terms
    # The callback carries out a database's requests to other nodes.
    perform: Callable[[DatabaseCore, Sequence[Outward]], None]


class DatabaseCore(DatabaseView):
    """The view of one database, with the methods that change it."""

    def __init__(self, name: str, membership: Membership, convergence: Convergence, terms: Terms) -> None:
        super().__init__(name, membership, convergence, terms)
        self._database_publication = DatabasePublication()
        self._opened = False
        self._looked = ""  # The newest version for which a look was requested.
        self._kept: KeepActive | None = None
        self._kept_ms = 0
        self._withdrawn_ms: dict[str, int] = {}  # When each version's partitions to build anew were withdrawn.
        self._verdicts: object = None  # The verdicts at the last `Decide`.
        self._effects: list[Effect] = []
        self._times: list[int | None] = []

    # Inputs

    def remember(
        self,
        identity: VersionIdentity,
        ownerships: Iterable[Ownership],
        sealed: Iterable[Sealed],
        records: int | None = None,
    ) -> None:
        """Restore the content of ACTIVE: the version is active without a gate, and these nodes owned it."""
        own = self.membership.own
        by_others = [ownership for ownership in ownerships if ownership.owner.name != own.name]
        self._statements.remember(identity, by_others)
        self._gates.remember(identity, sealed, by_others, records)
        self.activate(identity)
        self._routes.changed(ownership.owner.name for ownership in by_others)

    def recall_refuted(self, kept: Mapping[str, Iterable[str]]) -> None:
        """Restore the functions refuted in the last run, by digest; they are kept already."""
        for digest, functions in kept.items():
            self._refutations.learn(digest, functions, ())

    def opened(self) -> None:
        """Note that all copies on the disk at the start were reported."""
        self._opened = True

    def tell_copy(self, copy: OwnCopy) -> None:
        """Note the present state of the local copy of a version."""
        before = self._copies.get(copy.version)
        self._copies[copy.version] = copy
        if copy.asked_ms is None:
            self._retiring.keep(copy.version)
        if before is None or (before.seals, before.records) != (copy.seals, copy.records):
            self._gates.compare_own(copy)

    def drop_copy(self, version: str) -> None:
        """Note that there is no local copy of a version, and that the source does not show the version."""
        self._copies.pop(version, None)
        self._retiring.keep(version)
        self._shares.drop(version)

    def let_go(self, version: str) -> None:
        """Note that clients no longer get a version here, and that its local copy is gone."""
        self.drop_copy(version)
        self._gates.passed.pop(version, None)

    def activate(self, identity: VersionIdentity) -> None:
        """Note that this version is active here from now on; the switch is durable."""
        self._gates.activate(identity)

    def hold(self, version: str | None) -> None:
        self._gates.hold = version

    def order(self, orders: Orders) -> None:
        """Note the orders that were written down, after one was given here."""
        cluster_order = self.orders.cluster
        self.orders = orders if cluster_order is None else orders.heard(cluster_order, wall_ms=cluster_order.stamp)
        if self.orders != orders:
            self._effects.append(KeepOrders())

    def require(self, minimum: MinimumSettings) -> None:
        """Set the minimum number of records for a new version."""
        self._gates.minimum = minimum

    def found_stray(self, digest: str, function: str) -> None:
        """Note that a key contradicts this function."""
        self._learn(digest, (function,))

    def hear(
        self,
        name: str,
        uuid: bytes,
        epoch: int,
        versions: Mapping[str, Statement],
        database: DatabaseStatement | None,
        *,
        wall_ms: int,
    ) -> None:
        """Note all statements of another member about this database, as the tree shows them in this epoch."""
        assert name != self.membership.own.name
        if self._statements.hear(name, uuid, epoch, versions, database):
            self.lost(name)
        self._gates.confine(name, uuid, self._statements.held_by(name))
        if database is not None:
            for digest, functions in database.refuted.items():
                self._learn(digest, functions)
            before = self.orders
            self.orders = before if database.order is None else before.heard(database.order, wall_ms=wall_ms)
            if self.orders != before:
                self._effects.append(KeepOrders())
        self._routes.changed((name,))

    def forget(self, name: str) -> None:
        """Note that a member is no longer known, or that another node has its name now."""
        self._statements.forget(name)
        self._gates.forget(name)
        self.lost(name)
        self._routes.changed((name,))

    def answered(self, name: str, epoch: int, wire_id: bytes, answer: MemberAnswer | None) -> None:
        """Note the result of an `Ask`, with the epoch from the member's `hello`; None: no answer."""
        self._gates.answered(name, epoch, wire_id, answer)

    def lost(self, name: str) -> None:
        """Note a lost connection to a member: its answers on the connection no longer count."""
        self._gates.lost(name)

    def look_again(self) -> None:
        """Note that an owner does not serve the requested version, since another one is active there.

        The owners of versions that may become active here are asked again at once.
        """
        self._gates.hurry()

    def answer(self, name: str, wire_id: bytes, *, now_ms: int) -> MemberAnswer | None:
        """Answer another member's direct question; None: this node has nothing of the identity."""
        for version, copy in self._copies.items():
            identity = copy.identity
            if identity is None or identity.wire_id != wire_id or self._refutations.refutes(identity):
                continue
            needs = self._survey.needs_of(name)
            if needs.active is None or needs.active < version or needs.hold is not None:
                self._retiring.note(version, now_ms=now_ms)  # The member may switch to the version by this answer.
                self._statements.note(name, version)  # The member may die before its switch is heard.
            is_going = self._retiring.is_leaving(version) or self.membership.leaving_since_ms is not None
            ready = self._gates.confined(copy).serves(identity)
            return MemberAnswer(ready, copy.seals, is_going, self._gates.seals(identity), copy.records)
        for identity in self._gates.passed.values():
            if identity.wire_id == wire_id:
                return MemberAnswer(PartitionSet.empty(identity.partitions), {}, fixed=self._gates.seals(identity))
        return None

    def refused(self, version: str, *, now_ms: int) -> list[Publish | Withdraw]:
        """Note that the tree has no room for a statement; return the effects that make room."""
        return self._publication.refused(version, self._gates.ranked(self._survey.own), now_ms=now_ms)

    def refused_database(self, statement: DatabaseStatement, *, now_ms: int) -> list[Withdraw | PublishDatabase]:
        """Note that the tree has no room for the database's statement; return the effects that make room."""
        made = self._publication.make_room(self._gates.ranked(self._survey.own), now_ms=now_ms)
        if not made:
            self._database_publication.refused(now_ms=now_ms)
        return [*made, PublishDatabase(statement)] if made else []

    # A step

    @property
    def wakes_at_ms(self) -> int | None:
        """Return when to call `step`, besides after each input."""
        return min((at for at in self._times if at is not None), default=None)

    def step(self, *, now_ms: int) -> list[Effect]:
        """Process all inputs and the time; return the effects, in order."""
        self._now_ms = now_ms
        self._convergence.step(now_ms)
        if self._convergence.take_changed():
            self._effects.append(KeepRing())
        self._times = [self._convergence.wakes_at_ms, self.membership.wakes_at_ms(now_ms)]
        self._look_around()
        self._retire(now_ms)
        self._times.append(self._shares.step(self._gates.awaited, now_ms=now_ms))
        effects, times = self._gates.step(now_ms=now_ms)
        self._effects += effects
        self._times += times
        self._publish(now_ms)
        self._build_anew(now_ms)
        self._routes.changed(self._gates.take_rerouted())
        self._effects += self._routes.step()
        self._keep_owners(now_ms)
        self._look_for_newer()
        verdicts = self._all_verdicts()
        if verdicts != self._verdicts:
            self._verdicts = verdicts
            self._effects.append(Decide())
        # Otherwise the caller would spin.
        assert self.wakes_at_ms is None or self.wakes_at_ms > now_ms, (self.wakes_at_ms, now_ms)
        done, self._effects = self._effects, []
        return done

    def _look_around(self) -> None:
        own = {}
        for version, copy in self._copies.items():
            expected = self.to_follow(version) if copy.identity is None else None
            statement = self._gates.confined(copy).statement(self.membership.own.uuid, expected)
            if statement is not None and not self._retiring.is_leaving(version):
                own[version] = statement
        least = self.terms.min_replication
        self._survey = survey = VersionSurvey(self.membership, self._statements, self._refutations, own, least)
        passed = {version: identity for version, identity in self._gates.passed.items() if self._is_to_be_had(identity)}
        self._gates.look(survey, passed)

    def _is_to_be_had(self, identity: VersionIdentity) -> bool:
        """True if the version is active here, or if a node that may be asked has the identity."""
        version = identity.version
        is_active = self.active is not None and self.active.version == version
        return is_active or version in self._copies or version in self._survey.published or self._routes.has(identity)

    def _retire(self, now_ms: int) -> None:
        needs = self._survey.needs(now_ms)
        waits = self.membership.waits_to_be_heard(now_ms)
        for version, copy in self._copies.items():
            if copy.asked_ms is None:
                continue
            is_needed = waits or bool(needed_by(version, needs))
            was_leaving = self._retiring.is_leaving(version)
            self._retiring.step(version, asked_ms=copy.asked_ms, is_needed=is_needed, now_ms=now_ms)
            due_ms = self._retiring.wakes_at_ms(version, asked_ms=copy.asked_ms, is_needed=is_needed)
            self._times.append(due_ms if due_ms is not None and due_ms > now_ms else None)
            if self._retiring.is_leaving(version) != was_leaving:
                self._look_around()  # The statement was withdrawn, or published again.

    # Statements and kept documents

    def _publish(self, now_ms: int) -> None:
        own = self._survey.own
        self._effects += self._publication.step(own, self._gates.ranked(own), now_ms=now_ms)
        complete = self._opened and all(self._publication.shown(version) is not None for version in own)
        next_, newest, refuted = self._gates.next, max(self._copies, default=None), self._refutations.all()
        statement = DatabaseStatement(
            self.active, next_, newest, self._gates.hold, refuted, complete, self.orders.cluster
        )
        self._effects += self._database_publication.step(statement, now_ms=now_ms)
        self._times += [self._publication.wakes_at_ms, self._database_publication.wakes_at_ms]

    def _build_anew(self, now_ms: int) -> None:
        """Drop the partitions to build anew, once other nodes have heard that this node does not serve them."""
        for version, partitions in list(self._gates.anew.items()):
            if version not in self._copies:
                del self._gates.anew[version]
            elif not self.is_withdrawn(version, partitions):
                self._withdrawn_ms.pop(version, None)
            else:
                due_ms = self._withdrawn_ms.setdefault(version, now_ms) + self.terms.grace_ms
                if due_ms > now_ms:
                    self._times.append(due_ms)
                    continue
                self._effects.append(BuildAnew(version, partitions))
                del self._gates.anew[version]
        self._withdrawn_ms = {version: at for version, at in self._withdrawn_ms.items() if version in self._gates.anew}

    def _keep_owners(self, now_ms: int) -> None:
        active = None if self.active is None else self._gates.passed.get(self.active.version)
        if active is None:
            return
        before, kept = self._kept, KeepActive(active, self._routes.of(active), self.sealed())
        due_ms = self._kept_ms + KEEP_MS
        if before == kept:
            return
        # Only the owners have changed, which may wait.
        if before is not None and before[::2] == kept[::2] and due_ms > now_ms:
            self._times.append(due_ms)
        else:
            self._kept, self._kept_ms = kept, now_ms
            self._effects.append(kept)

    def _look_for_newer(self) -> None:
        """Request a look at the source, once for each newer version that others know."""
        newest = self._survey.newest
        if newest is not None and newest > max((*self._copies, self._looked)):
            self._looked = newest
            self._effects.append(ReadContents(newest))

    def _learn(self, digest: str, functions: Iterable[str]) -> None:
        in_use = {copy.digest for copy in self._copies.values() if copy.digest is not None}
        in_use |= {identity.digest for published in self._survey.published.values() for identity in published}
        if self._refutations.learn(digest, functions, in_use):
            self._effects.append(KeepRefuted(digest, self._refutations.of(digest)))
            left = [identity for identity in self._gates.passed.values() if not self._refutations.refutes(identity)]
            self._gates.passed = {identity.version: identity for identity in left}
            self._routes.refuted()

    def _all_verdicts(self) -> object:
        verdicts = [
            (
                version,
                self.share(version),
                self._gates.passed.get(version),
                self.may_switch(version),
                self._retiring.is_free(version, now_ms=self._now_ms),
                self.to_follow(version),
            )
            for version in sorted({*self._copies, *self._gates.available})
        ]
        return verdicts, self._refutations.all()
