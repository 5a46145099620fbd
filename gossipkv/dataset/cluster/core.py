"""One database in the cluster: what it is told, what it asks for, and its verdicts.

    tell_member, isolate   to the `Membership` that all databases share; then `step` of each
    hear                   what a member says of this database, whenever that changes in the tree
    tell_copy, drop_copy   what is here of a version; `opened` when all that lay on the disk was told
    activate, hold, remember   which version is active (synced), which is pinned, who held what in the last run
    answered, lost         what came of an `Ask`; a connection has ended; `look_again`: an owner has gone on without us
    answer                 another member asks the direct question
    step                   after each of these, and at `wakes_at_ms`: returns the effects
    verdicts               what the life of a version asks (`dataset/lifecycle.py`), as of a moment

Nothing here waits, tells the time or draws a number.  A member's change costs some operations on whole bitmaps for each
version and member, and nothing for each partition.

The order that keeps promises: a copy is withdrawn before it is dropped (`is_withdrawn`, `may_retire`), clients get
nothing before its gate (`passed`), and a gate counts answers, never what was only published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.dataset.cluster.contents import choose, to_follow
from gossipkv.dataset.cluster.effects import Ask, BuildAnew, Decide, KeepOwners, KeepRefuted, Look, PublishDatabase
from gossipkv.dataset.cluster.gate import Gate
from gossipkv.dataset.cluster.members import SILENT_EPOCH
from gossipkv.dataset.cluster.others import Statements
from gossipkv.dataset.cluster.publication import DatabasePublication, Publication
from gossipkv.dataset.cluster.question import Answer
from gossipkv.dataset.cluster.refutations import Refutations
from gossipkv.dataset.cluster.retiring import Retiring, clinging
from gossipkv.dataset.cluster.routes import Routes
from gossipkv.dataset.cluster.shares import Shares
from gossipkv.dataset.cluster.survey import Survey
from gossipkv.placement.statement import DatabaseStatement, Named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gossipkv.dataset.cluster.convergence import Convergence
    from gossipkv.dataset.cluster.effects import Effect, Outward, Publish, Withdraw
    from gossipkv.dataset.cluster.gate import Dispute
    from gossipkv.dataset.cluster.members import Membership
    from gossipkv.dataset.cluster.others import Holding
    from gossipkv.dataset.cluster.own_copy import OwnCopy
    from gossipkv.dataset.cluster.retiring import Stance
    from gossipkv.dataset.cluster.survey import Standing
    from gossipkv.dataset.cluster.terms import Terms
    from gossipkv.placement.holders import Holders
    from gossipkv.placement.identity import Identity
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.placement.statement import Statement

OLD_ASK_MS: Final = 60_000  # How often the owners of a version that is not to be switched to are asked about it.
KEEP_MS: Final = 5_000  # How often ACTIVE is written anew as owners change: it is synced.


class Cluster(NamedTuple):
    """What all databases of a node share of the cluster."""

    membership: Membership
    convergence: Convergence
    terms: Terms
    perform: Callable[[DatabaseCore, Sequence[Outward]], None]  # What a database asks of other nodes.


class Conflict(NamedTuple):
    """Several identities that go by one version's name, and who holds them."""

    version: str
    owners: dict[Identity, list[str]]


@final
class DatabaseCore:
    """What the cluster says of one database, and what it is told."""

    def __init__(
        self,
        name: str,
        membership: Membership,
        convergence: Convergence,
        terms: Terms,
        *,
        refuted: Mapping[str, tuple[str, ...]],
    ) -> None:
        """`refuted`: what was kept of the last run."""
        self.name = name
        self.terms = terms
        self._membership = membership
        self._convergence = convergence
        self._copies: dict[str, OwnCopy] = {}
        self._statements = Statements()
        self._refutations = Refutations(refuted)
        self._shares = Shares(membership, convergence, terms)
        self._publication = Publication()
        self._database_publication = DatabasePublication()
        self._retiring = Retiring(retire_after_ms=terms.retire_after_ms, grace_ms=terms.grace_ms)
        self._routes = Routes(membership, self._statements, self._refutations)
        self._gates: dict[Identity, Gate] = {}
        self._passed: dict[str, Identity] = {}  # What clients may have; that stays, unless it is refuted.
        self._survey = Survey(membership, self._statements, self._refutations, {}, terms.min_replication)
        self._standings: dict[str, Standing] = {}  # By version.
        self._active: Named | None = None
        self._hold: str | None = None
        self._opened = False
        self._looked = ""  # The newest version for which a look was asked.
        self._kept: KeepOwners | None = None
        self._kept_ms = 0
        self._verdicts: object = None  # As they were at the last `Decide`.
        self._effects: list[Effect] = []
        self._times: list[int | None] = []

    # What is told

    def remember(self, identity: Identity, holdings: Iterable[Holding]) -> None:
        """Take in what ACTIVE had: this version is active, without a gate, and these nodes held it."""
        own = self._membership.own
        others = [each for each in holdings if each.owner.name != own.name]
        self._statements.remember(identity, others)
        self.activate(identity)
        self._routes.changed(each.owner.name for each in others)

    def opened(self) -> None:
        """Take in that all copies that lay on the disk at the start were told."""
        self._opened = True

    def tell_copy(self, copy: OwnCopy) -> None:
        """Take in what is here of a version now."""
        before = self._copies.get(copy.version)
        self._copies[copy.version] = copy
        if copy.asked_ms is None:
            self._retiring.keep(copy.version)
        if copy.identity is not None and (before is None or before.seals != copy.seals):
            gate = self._gates.get(copy.identity)
            if gate is not None:
                gate.compare_own(copy.seals)

    def drop_copy(self, version: str) -> None:
        """Take in that nothing is here of a version any more, and that the source does not show it."""
        self._copies.pop(version, None)
        self._retiring.keep(version)
        self._shares.drop(version)

    def let_go(self, version: str) -> None:
        """Take in that clients get a version here no more, and that nothing of it is here."""
        self.drop_copy(version)
        self._passed.pop(version, None)

    def activate(self, identity: Identity) -> None:
        """Take in that this version is active here from now on, which is written down and synced."""
        self._active = Named(identity.version, identity.wire_id)
        self._passed[identity.version] = identity

    def hold(self, version: str | None) -> None:
        """Take in which version an operator has pinned here."""
        self._hold = version

    def found_stray(self, digest: str, function: str) -> None:
        """Take in that a key contradicts this function."""
        self._learn(digest, (function,))

    def hear(
        self,
        name: str,
        uuid: bytes,
        epoch: int,
        versions: Mapping[str, Statement],
        database: DatabaseStatement | None,
    ) -> None:
        """Take in all that another member says of this database, as the tree shows it in this epoch of its."""
        assert name != self._membership.own.name
        if self._statements.hear(name, uuid, epoch, versions, database):
            self.lost(name)
        if database is not None:
            for digest, functions in database.refuted.items():
                self._learn(digest, functions)
        self._routes.changed((name,))

    def forget(self, name: str) -> None:
        """Take in that a member is known no longer, or that another node has its name now."""
        self._statements.forget(name)
        self.lost(name)
        self._routes.changed((name,))

    def answered(self, name: str, epoch: int, wire_id: bytes, answer: Answer | None) -> None:
        """Take in what came of an `Ask`, and in which epoch the member answered, as its `hello` said; None: nothing."""
        gate = next((gate for identity, gate in self._gates.items() if identity.wire_id == wire_id), None)
        member = self._membership.get(name)
        if gate is None:
            return
        copy = self._copies.get(gate.identity.version)
        seals = copy.seals if copy is not None and copy.identity == gate.identity else {}
        is_counted = member is not None and epoch != SILENT_EPOCH
        gate.hear(name, b"" if member is None else member.uuid, epoch, answer if is_counted else None, seals)

    def lost(self, name: str) -> None:
        """Take in that the connection to a member has ended: what it answered on it counts no more."""
        for gate in self._gates.values():
            gate.void(name)

    def look_again(self) -> None:
        """Take in that an owner does not serve what it was asked for, since another version is active there.

        What may be switched to here is looked at again at once.
        """
        for gate in self._gates.values():
            if self._may_be_next(gate.identity):
                gate.hurry()

    def answer(self, name: str, wire_id: bytes, *, now_ms: int) -> Answer | None:
        """Return the answer to another member's direct question; None: nothing of that identity is here."""
        for version, copy in self._copies.items():
            identity = copy.identity
            if identity is None or identity.wire_id != wire_id or self._refutations.refutes(identity):
                continue
            stance = self._survey.stance(name)
            if stance.active is None or stance.active < version or stance.hold is not None:
                self._retiring.note(version, now_ms=now_ms)  # It may switch to it by this answer.
            return Answer(copy.serves(identity), copy.seals, self._retiring.is_leaving(version))
        return None

    def refused(self, version: str, *, now_ms: int) -> list[Publish | Withdraw]:
        """Take in that the tree has no room for what was to be published; returns what makes room for it."""
        return self._publication.refused(version, self._priority(), now_ms=now_ms)

    def refused_database(self, said: DatabaseStatement, *, now_ms: int) -> list[Withdraw | PublishDatabase]:
        """Take in that there is no room for what this node says of the database; returns what makes room for it."""
        made = self._publication.make_room(self._priority(), now_ms=now_ms)
        if not made:
            self._database_publication.refused(now_ms=now_ms)
        return [*made, PublishDatabase(said)] if made else []

    # What is asked

    @property
    def wakes_at_ms(self) -> int | None:
        """When to call `step`, besides after everything that is told."""
        return min((at for at in self._times if at is not None), default=None)

    @property
    def is_known_elsewhere(self) -> bool:
        """Whether any other member has said anything of this database."""
        return any(said.versions or said.former or said.database for _, said in self._statements)

    @property
    def versions(self) -> list[str]:
        """Versions that anybody publishes, or that have passed here, sorted."""
        return sorted(self._standings)

    @property
    def active(self) -> Named | None:
        """The version that is active here."""
        return self._active

    @property
    def membership(self) -> Membership:
        """The members of the cluster, as all databases of this node share them."""
        return self._membership

    @property
    def has_ring(self) -> bool:
        """Whether shares can be computed: the list of members has been still, and this node is heard."""
        return self._convergence.ids is not None

    def stance(self, name: str) -> Stance:
        """Return which versions another member clings to, as it says itself."""
        return self._survey.stance(name)

    @property
    def left_out(self) -> list[str]:
        """Versions whose statement the tree has no room for."""
        return self._publication.left_out

    @property
    def disputes(self) -> dict[str, list[Dispute]]:
        """Owners, by version, whose files for the same partitions differ."""
        return {gate.identity.version: gate.disputes for gate in self._gates.values() if gate.disputes}

    @property
    def conflicts(self) -> list[Conflict]:
        """Versions by whose name more than one content goes: other files, another N, another function."""
        return [
            Conflict(version, {identity: sorted(statements) for identity, statements in published.items()})
            for version, published in sorted(self._survey.published.items())
            if len(published) > 1
        ]

    def identity(self, version: str) -> Identity | None:
        """Return the identity that clients get by a version's name; None: none is known yet, or it is refuted."""
        passed = self._passed.get(version)
        if passed is not None:
            return None if self._refutations.refutes(passed) else passed
        standing = self._standings.get(version)
        return None if standing is None else standing.identity

    def heard(self) -> dict[str, Identity]:
        """Return what other members have published, by version: the identity that clients get or are to get."""
        own = self._membership.own.name
        others = (
            version
            for version, published in self._survey.published.items()
            if any(statements.keys() - {own} for statements in published.values())
        )
        return {version: identity for version in others if (identity := self.identity(version)) is not None}

    def to_follow(self, version: str) -> Identity | None:
        """Return the identity that a build of what the source shows is to come to; None: it finds out for itself."""
        copy = self._copies.get(version)
        if copy is None or copy.digest is None:
            return None
        passed = self._passed.get(version)
        if passed is not None and passed.digest == copy.digest and not self._refutations.refutes(passed):
            return passed
        return to_follow(self._survey.known(version), copy.digest)

    def holders(self, version: str) -> Holders | None:
        """Return who holds what of a version, for `status`; None: nobody has said anything of it."""
        standing = self._standings.get(version)
        return None if standing is None else standing.holders

    def source_ms(self, identity: Identity) -> int | None:
        """Return when the files were last touched that it was made from, as its owners say; None: nobody does."""
        return self._survey.source_ms(identity)

    def owners(self, identity: Identity) -> tuple[Holding, ...]:
        """Return who may be asked for an identity: the `Route`s that `step` has returned."""
        return self._routes.of(identity)

    def active_elsewhere(self, version: str) -> Identity | None:
        """Return what a member has active by that name, if each partition has an owner that is ALIVE.

        A member's word that it is active may be here before the word of those who have it.
        """
        active = (known.identity for known in self._survey.known(version) if known.is_active)
        return next((identity for identity in active if self._survey.has_all(identity)), None)

    def is_withdrawn(self, version: str, partitions: PartitionSet) -> bool:
        """Whether nothing of these partitions is published any more, so that they may be dropped."""
        shown = self._publication.shown(version)
        return shown is None or shown.ready.partitions != partitions.partitions or not shown.ready & partitions

    def verdicts(self, now_ms: int) -> Verdicts:
        """Return the verdicts as of a moment; `step` has been called at that moment."""
        return Verdicts(self, now_ms)

    def clinging(self, version: str, *, now_ms: int) -> list[str]:
        """Return the members that keep an old version from going, for `status`."""
        return clinging(version, self._survey.stances(now_ms))

    # A step

    def step(self, *, now_ms: int) -> list[Effect]:
        """Look at everything that was told, and at the time; returns what is to be done, in order."""
        self._convergence.step(now_ms)
        self._times = [self._convergence.wakes_at_ms, self._membership.wakes_at_ms(now_ms)]
        self._look_around()
        self._retire(now_ms)
        self._times.append(self._shares.step(self._awaited(), now_ms=now_ms))
        for version, standing in self._standings.items():
            self._see_to_gate(version, standing, now_ms)
        self._publish(now_ms)
        self._keep_owners(now_ms)
        self._look_for_newer()
        self._effects += self._routes.step()
        verdicts = self._all_verdicts(now_ms)
        if verdicts != self._verdicts:
            self._verdicts = verdicts
            self._effects.append(Decide())
        assert self.wakes_at_ms is None or self.wakes_at_ms > now_ms, (self.wakes_at_ms, now_ms)  # Else it would spin.
        effects, self._effects = self._effects, []
        return effects

    def _look_around(self) -> None:
        own = {}
        for version, copy in self._copies.items():
            expected = self.to_follow(version) if copy.identity is None else None
            said = copy.statement(self._membership.own.uuid, expected)
            if said is not None and not self._retiring.is_leaving(version):
                own[version] = said
        least = self.terms.min_replication
        self._survey = survey = Survey(self._membership, self._statements, self._refutations, own, least)
        self._standings = {}
        self._passed = {version: each for version, each in self._passed.items() if self._is_to_be_had(each)}
        for version in {**survey.published, **self._passed}:
            identity = self._passed.get(version) or choose(survey.known(version))
            if identity is not None:
                self._standings[version] = survey.standing(identity)
        identities = {standing.identity for standing in self._standings.values()}
        self._gates = {identity: gate for identity, gate in self._gates.items() if identity in identities}

    def _is_to_be_had(self, identity: Identity) -> bool:
        """Whether it is active here, or anybody has it who may be asked, or this node."""
        version = identity.version
        is_active = self._active is not None and self._active.version == version
        return is_active or version in self._copies or version in self._survey.published or self._routes.has(identity)

    def _retire(self, now_ms: int) -> None:
        stances = self._survey.stances(now_ms)
        waits = self._membership.waits_to_be_heard(now_ms)
        for version, copy in self._copies.items():
            if copy.asked_ms is None:
                continue
            is_needed = waits or bool(clinging(version, stances))
            was_leaving = self._retiring.is_leaving(version)
            self._retiring.step(version, asked_ms=copy.asked_ms, is_needed=is_needed, now_ms=now_ms)
            due_ms = self._retiring.wakes_at_ms(version, asked_ms=copy.asked_ms, is_needed=is_needed)
            self._times.append(due_ms if due_ms is not None and due_ms > now_ms else None)
            if self._retiring.is_leaving(version) != was_leaving:
                self._look_around()  # It is withdrawn, or published again.

    # Gates

    def _may_be_next(self, identity: Identity) -> bool:
        """Whether this node may come to switch to it."""
        active, version = self._active, identity.version
        if active is not None and version == active.version:
            return identity.wire_id != active.wire_id  # What was active was refuted: it is to be so again, mended.
        if self._hold is not None:
            return version == self._hold
        return active is None or version > active.version

    def _next(self) -> Named | None:
        """Version that this node would switch to next: one whose gate may pass soon goes before a newer one."""
        found = [
            (standing.is_covered, version, standing.identity.wire_id)
            for version, standing in self._standings.items()
            if self._may_be_next(standing.identity)
        ]
        return Named(*max(found)[1:]) if found else None

    def _awaited(self) -> list[Standing]:
        """Versions that are active, or that a gate is to let through: nothing of them may be left to nobody."""
        named = {self._active, self._next()}
        versions = {self._hold, *(each.version for each in named if each is not None)}
        return [standing for version, standing in self._standings.items() if version in versions]

    def _see_to_gate(self, version: str, standing: Standing, now_ms: int) -> None:
        """Ask the owners of what may be switched to, or has never passed; note whether it passes."""
        may_be_next = self._may_be_next(standing.identity)
        if not standing.is_covered or (version in self._passed and not may_be_next):
            return
        own = self._membership.own
        gate = self._gates.get(standing.identity)
        if gate is None:
            gate = Gate(standing.identity, own=own.name, uuid=own.uuid, max_age_ms=self.terms.probe_interval_ms)
            self._gates[standing.identity] = gate
        often_ms = self.terms.probe_interval_ms // 2
        every_ms = often_ms if may_be_next else OLD_ASK_MS
        if any(gate.is_due(member, every_ms=every_ms, now_ms=now_ms) for member in standing.alive):
            for member in standing.alive:  # All of them: their answers have to be fresh together.
                if gate.is_due(member, every_ms=often_ms, now_ms=now_ms):
                    gate.begin(member, now_ms=now_ms)
                    self._effects.append(Ask(member.name, standing.identity))
        self._times += [gate.due_ms(member, every_ms=every_ms) for member in standing.alive]
        if self._holds(gate, standing, now_ms):
            self._passed[version] = standing.identity
        anew = gate.take_anew()
        if anew:
            self._effects.append(BuildAnew(version, anew))

    def _holds(self, gate: Gate, standing: Standing, now_ms: int) -> bool:
        copy = self._copies.get(standing.identity.version)
        is_here = copy is not None and not self._retiring.is_leaving(copy.version)
        mine = copy.serves(standing.identity) if copy is not None and is_here else gate.nothing
        return gate.holds(standing.alive, mine, least=self.terms.min_replication, now_ms=now_ms)

    # What is said and kept

    def _own_statements(self) -> dict[str, Statement]:
        own = self._membership.own.name
        return {
            version: statements[own]
            for version, published in self._survey.published.items()
            for statements in published.values()
            if own in statements
        }

    def _priority(self) -> list[str]:
        """Versions of which this node has something to say, what matters most first."""
        next_ = self._next()
        rank = {named.version: rank for rank, named in ((1, next_), (2, self._active)) if named is not None}
        return sorted(self._own_statements(), key=lambda version: (rank.get(version, 0), version), reverse=True)

    def _publish(self, now_ms: int) -> None:
        own = self._own_statements()
        self._effects += self._publication.step(own, self._priority(), now_ms=now_ms)
        told = self._opened and all(self._publication.shown(version) is not None for version in own)
        said = DatabaseStatement(
            self._active, self._next(), max(self._copies, default=None), self._hold, self._refutations.all(), told
        )
        self._effects += self._database_publication.step(said, now_ms=now_ms)
        self._times += [self._publication.wakes_at_ms, self._database_publication.wakes_at_ms]

    def _keep_owners(self, now_ms: int) -> None:
        active = None if self._active is None else self._passed.get(self._active.version)
        if active is None:
            return
        before, kept = self._kept, KeepOwners(active, self._routes.of(active))
        if before is not None and before.identity == active and before != kept:
            due_ms = self._kept_ms + KEEP_MS
            if due_ms > now_ms:
                self._times.append(due_ms)
                return
        if before != kept:
            self._kept, self._kept_ms = kept, now_ms
            self._effects.append(kept)

    def _look_for_newer(self) -> None:
        """Have the source looked at, once for each version that others know and this node does not."""
        newest = self._survey.newest
        if newest is not None and newest > max((*self._copies, self._looked)):
            self._looked = newest
            self._effects.append(Look(newest))

    def _learn(self, digest: str, functions: Iterable[str]) -> None:
        in_use = {copy.digest for copy in self._copies.values() if copy.digest is not None}
        in_use |= {identity.digest for published in self._survey.published.values() for identity in published}
        if self._refutations.learn(digest, functions, in_use):
            self._effects.append(KeepRefuted(digest, self._refutations.of(digest)))
            passed = self._passed.items()
            self._passed = {version: each for version, each in passed if not self._refutations.refutes(each)}
            self._routes.refuted()

    # Verdicts

    def share(self, version: str) -> PartitionSet | None:
        """Return the partitions of a version that are to be here; None: it is not known yet, or not of this node."""
        copy = self._copies.get(version)
        return None if copy is None else self._shares.of(copy)

    def passed(self, version: str) -> bool:
        """Whether clients may have a version, also by its name: its gate has passed here."""
        return version in self._passed

    def may_switch(self, version: str, *, now_ms: int) -> bool:
        """Whether the gate of a version holds now."""
        standing = self._standings.get(version)
        gate = None if standing is None else self._gates.get(standing.identity)
        if standing is None or gate is None or not self._may_be_next(standing.identity):
            return False
        return self._holds(gate, standing, now_ms)

    def may_retire(self, version: str, *, now_ms: int) -> bool:
        """Whether an old version may go: nobody needs it, it is withdrawn, and was answered for a while after that."""
        return self._retiring.is_free(version, now_ms=now_ms)

    def refuted(self, digest: str) -> tuple[str, ...]:
        """Return the functions that are refuted for a digest."""
        return self._refutations.of(digest)

    def _all_verdicts(self, now_ms: int) -> object:
        verdicts = [
            (
                version,
                self.share(version),
                self._passed.get(version),
                self.may_switch(version, now_ms=now_ms),
                self.may_retire(version, now_ms=now_ms),
                self.to_follow(version),
            )
            for version in sorted({*self._copies, *self._standings})
        ]
        return verdicts, self._refutations.all()


@final
class Verdicts:
    """The verdicts of a database's core as of one moment: what `decide` asks."""

    def __init__(self, core: DatabaseCore, now_ms: int) -> None:
        self._core = core
        self._now_ms = now_ms

    def share(self, version: str) -> PartitionSet | None:
        """Return the partitions that are to be here; None: it is not known yet, and nothing is built."""
        return self._core.share(version)

    def passed(self, version: str) -> bool:
        """Whether clients may have it."""
        return self._core.passed(version)

    def may_switch(self, version: str) -> bool:
        """Whether its gate holds now."""
        return self._core.may_switch(version, now_ms=self._now_ms)

    def may_retire(self, version: str) -> bool:
        """Whether it may go, once it is quiet here."""
        return self._core.may_retire(version, now_ms=self._now_ms)

    def refuted(self, digest: str) -> tuple[str, ...]:
        """Return the functions that no build of these files may rely on."""
        return self._core.refuted(digest)
