"""The gates of one database's versions: whom they ask, what has passed, and what may be switched to.

A gate is opened for a version whose partitions all have owners, as they say, while this node may come to switch to it,
or as long as it has never passed.  What has passed clients may have from then on, also while its gate does not hold
any more; and what other members have active they may have here that ask for it.  From then on its seals are fixed, and
who comes to have some of it later is asked for the seals, and nothing else before they have shown to be the same.

Then a switch waits, for `switch_patience` at most, until there are `replication` copies, or as many as members that
have not left; but not the first one, since clients get nothing meanwhile, nor what an operator wants, or what mends.

What has fewer records than it should (`MinimumSettings`) is not switched to by itself: an operator holds it, or a
member that is ALIVE has it active without a hold, so that it was accepted.  It is compared with the newest version
before it that is active here or at such a member.

A node on which nothing is active yet begins with nothing older than what an ALIVE member has active, as long as that
may pass here: every partition has owners, as they say, and they have not been asked in vain for longer than a grace.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.cluster.contents import choose
from gossipkv.dataset.cluster.effects import Ask
from gossipkv.dataset.cluster.fixed_seals import FixedSeals
from gossipkv.dataset.cluster.gate import Dispute, Gate
from gossipkv.dataset.cluster.members import SILENT_EPOCH
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.seals import Sealed
from gossipkv.placement.statement import Named
from gossipkv.settings.databases import MinimumSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.dataset.cluster.gate import Alive
    from gossipkv.dataset.cluster.members import Membership
    from gossipkv.dataset.cluster.own_copy import OwnCopy
    from gossipkv.dataset.cluster.question import Answer
    from gossipkv.dataset.cluster.retiring import Retiring
    from gossipkv.dataset.cluster.survey import Availability, Survey
    from gossipkv.dataset.cluster.terms import Terms
    from gossipkv.placement.identity import Identity
    from gossipkv.placement.ownership import Owner
    from gossipkv.placement.seals import Seals

MOST_UNKNOWN: Final = 8  # Versions that nobody knows now, of which is kept on which files clients had them.
OLD_ASK_MS: Final = 60_000  # How often the owners of a version that is not to be switched to are asked about it.


@final
class Gates:
    """The gates of one database."""

    def __init__(self, membership: Membership, terms: Terms, copies: Mapping[str, OwnCopy], retiring: Retiring) -> None:
        """`copies`: what is here, by version, as the core is told."""
        self.active: Named | None = None  # The version that is active here.
        self.hold: str | None = None  # The version that an operator has pinned here.
        self.passed: dict[str, Identity] = {}  # What clients may have; that stays, unless it is refuted.
        self.available: dict[str, Availability] = {}  # By version, who has what clients get, or are to get.
        self._membership = membership
        self._terms = terms
        self._copies = copies
        self._retiring = retiring
        self._gates: dict[Identity, Gate] = {}
        self.minimum = MinimumSettings()
        self.counted: dict[Identity, int] = {}  # How many records those have of which all owners have told.
        self._elsewhere: dict[str, bool] = {}  # What members that are ALIVE have active, and whether all hold it.
        self._fixed: dict[str, FixedSeals] = {}  # By version, of what clients may have.
        self.anew: dict[str, PartitionSet] = {}  # By version, what is to be built anew here.
        self._rerouted: set[str] = set()
        self._differing: dict[Identity, dict[str, PartitionSet]] = {}  # As members say of their own files.
        self._active_at: dict[Identity, frozenset[str]] = {}  # Members that have it active, of what they do not.

    # What is told

    def activate(self, identity: Identity) -> None:
        """Take in that a version is active here from now on: no gate of it is asked."""
        self.active = Named(identity.version, identity.wire_id)
        self.passed[identity.version] = identity
        if self._fixed_of(identity) is None:
            self._fix(identity, {})

    def remember(
        self,
        active: Identity,
        sealed: Iterable[Sealed],
        owners: Iterable[tuple[Owner, PartitionSet]],
        records: int | None = None,
    ) -> None:
        """Take in what was fixed when this node ran last, and whose files of what was active were found right."""
        if records is not None:
            self.counted[active] = records
        for identity, seals in sealed:
            self._fix(identity, seals)
        fixed = self._fixed_of(active) or self._fix(active, {})
        for owner, partitions in owners:
            fixed.trust(owner.name, owner.uuid, partitions)

    def confine(self, name: str, uuid: bytes, held: Mapping[Identity, PartitionSet]) -> None:
        """Take in all that a member says that it has."""
        for fixed in self._fixed.values():
            nothing = PartitionSet.empty(fixed.identity.partitions)
            fixed.confine(name, uuid, held.get(fixed.identity, nothing))

    def forget(self, name: str) -> None:
        """Take in that a member is known no longer."""
        for fixed in self._fixed.values():
            fixed.forget(name)

    def look(self, survey: Survey, passed: dict[str, Identity]) -> None:
        """Take in what is published now, and what clients may have of that; a gate goes with what it is about."""
        self.passed = passed
        chosen = {name: passed.get(name) or choose(survey.known(name)) for name in {**survey.published, **passed}}
        self.available = {name: survey.availability(each) for name, each in chosen.items() if each is not None}
        identities = {each.identity for each in self.available.values()}
        self._gates = {identity: gate for identity, gate in self._gates.items() if identity in identities}
        self._elsewhere = survey.active_elsewhere
        known = identities | set(passed.values())
        self.counted = {identity: records for identity, records in self.counted.items() if identity in known}
        unknown = sorted(version for version, fixed in self._fixed.items() if fixed.identity not in known)
        for version in unknown[:-MOST_UNKNOWN]:
            del self._fixed[version]
        self._differing = survey.differing
        before, self._active_at = self._active_at, {}
        for each in self.available.values():
            if self._fixed_of(each.identity) is None:
                there = frozenset(member.name for member in each.alive if member.is_active)
                self._active_at[each.identity] = there
                if each.identity in self._gates:  # They have not said yet what their clients get.
                    self._gates[each.identity].hurry(there - before.get(each.identity, frozenset()))

    def compare_own(self, copy: OwnCopy) -> None:
        """Take in that this node has other files of a version than before."""
        if copy.identity is None:
            return
        fixed, gate = self._fixed_of(copy.identity), self._gates.get(copy.identity)
        if fixed is not None and copy.ready is not None:
            fixed.extend(copy.seals, copy.ready - fixed.contradicting(copy.seals))
        if gate is not None:
            gate.compare_own(copy.seals)
        self._count(copy.identity)

    def answered(self, name: str, epoch: int, wire_id: bytes, answer: Answer | None) -> None:
        """Take in what came of an `Ask`, and in which epoch the member answered, as its `hello` said; None: nothing."""
        gate = next((gate for identity, gate in self._gates.items() if identity.wire_id == wire_id), None)
        member = self._membership.get(name)
        if gate is None:
            return
        identity, seals = gate.identity, self._own_seals(gate.identity)
        is_counted = member is not None and epoch != SILENT_EPOCH
        gate.hear(name, b"" if member is None else member.uuid, epoch, answer if is_counted else None, seals)
        self._count(identity)
        if member is None or answer is None or not is_counted:
            return
        fixed = self._fixed_of(identity)
        if fixed is None and (answer.fixed is not None or name in self._active_at.get(identity, ())):
            fixed = self._fix(identity, answer.fixed or {})  # It had answered before it switched.
        if fixed is not None:
            before = fixed.seals
            fixed.judge(name, member.uuid, epoch, answer.ready, answer.seals)
            self._rerouted.add(name)
            if fixed.seals is not before:
                gate.require(fixed.seals, seals)

    def lost(self, name: str) -> None:
        """Take in that the connection to a member has ended: what it answered on it counts no more."""
        for gate in self._gates.values():
            gate.void(name)

    def hurry(self) -> None:
        """Have the owners of what may be switched to asked again at once."""
        for gate in self._gates.values():
            if self._may_be_next(gate.identity):
                gate.hurry()

    def _count(self, identity: Identity) -> None:
        """Count the records of an identity anew, if all of its partitions are told of."""
        copy, gate = self._copies.get(identity.version), self._gates.get(identity)
        told = {} if gate is None else {at: count for *_, each in gate.answers() for at, count in each.records.items()}
        if copy is not None and copy.identity == identity:
            told |= copy.records
        if len(told) == identity.partitions:
            self.counted[identity] = sum(told.values())

    # What is asked

    def withheld(self, version: str) -> str | None:
        """Return why this node does not switch to a version by itself: it has too few records; None: it has enough."""
        available = self.available.get(version)
        if available is None or not self._may_be_next(available.identity):
            return None
        is_accepted = self._elsewhere.get(version) is False
        is_active = self.active is not None and version == self.active.version  # It is mended.
        records = self.counted.get(available.identity)
        if version == self.hold or is_accepted or is_active or records is None:
            return None
        before = self._before(version)
        return self.minimum.shortage(
            records, *(None, None) if before is None else (before.version, self.counted.get(before))
        )

    def _before(self, version: str) -> Identity | None:
        """Return what a version is compared with; None: nothing is active."""
        active = [*self._elsewhere] if self.active is None else [self.active.version, *self._elsewhere]
        before = max((each for each in active if each < version), default="")
        available = self.available.get(before)
        return self.passed.get(before) or (available.identity if available and available.is_covered else None)

    @property
    def disputes(self) -> dict[str, list[Dispute]]:
        """Owners, by version, whose files for the same partitions differ; of what is fixed, the right one first."""
        found = {
            gate.identity.version: gate.disputes
            for gate in self._gates.values()
            if gate.disputes and self._fixed_of(gate.identity) is None
        }
        own = self._membership.own.name
        for version, fixed in self._fixed.items():
            said = self._differing.get(fixed.identity, {})
            wrong = dict(fixed.wrong()) | said | {own: self.wrong_here(fixed.identity)}
            disputes = [Dispute(fixed.keeper(some) or own, name, some) for name, some in sorted(wrong.items()) if some]
            if disputes:
                found[version] = disputes
        return found

    def is_fixed(self, identity: Identity) -> bool:
        """Whether it is fixed what clients get of an identity."""
        return self._fixed_of(identity) is not None

    @property
    def sealed(self) -> tuple[Sealed, ...]:
        """Return what is fixed, by version."""
        return tuple(Sealed(fixed.identity, fixed.seals) for _, fixed in sorted(self._fixed.items()))

    def seals(self, identity: Identity) -> Seals | None:
        """Return the seals on which clients have an identity here; None: they may not have it yet."""
        fixed = self._fixed_of(identity)
        return None if fixed is None or identity not in self.passed.values() else fixed.seals

    def right(self, identity: Identity, owner: Owner, held: PartitionSet) -> PartitionSet:
        """Return the partitions, of those that an owner holds, for which it may be asked."""
        fixed = self._fixed_of(identity)
        return held if fixed is None else held & fixed.right(owner.name, owner.uuid)

    def contradicting(self, identity: Identity, seals: Seals) -> PartitionSet:
        """Return the partitions of which these are other files than those on which clients have an identity."""
        fixed = self._fixed_of(identity)
        return PartitionSet.empty(identity.partitions) if fixed is None else fixed.contradicting(seals)

    def wrong_here(self, identity: Identity) -> PartitionSet:
        """Return the partitions of which this node has other files than those on which clients have an identity."""
        return self.contradicting(identity, self._own_seals(identity))

    def confined(self, copy: OwnCopy) -> OwnCopy:
        """Return a copy that serves nothing but what clients have, and what stays."""
        wrong = None if copy.identity is None else self.contradicting(copy.identity, copy.seals)
        anew = self.anew.get(copy.version)
        if not wrong and anew is None:
            return copy
        return replace(copy, differing=wrong, going=copy.going if anew is None else anew | (copy.going or anew))

    def take_rerouted(self) -> set[str]:
        """Return the members for whose partitions may be asked otherwise than before; each is returned once."""
        names, self._rerouted = self._rerouted, set()
        return names

    def _fixed_of(self, identity: Identity) -> FixedSeals | None:
        fixed = self._fixed.get(identity.version)
        return fixed if fixed is not None and fixed.identity == identity else None

    def _own_seals(self, identity: Identity) -> Seals:
        copy = self._copies.get(identity.version)
        return copy.seals if copy is not None and copy.identity == identity else {}

    def _fix(self, identity: Identity, seals: Seals) -> FixedSeals:
        """Have clients get an identity as these seals say, from now on."""
        before = self._fixed_of(identity)
        assert before is None, before
        fixed = self._fixed[identity.version] = FixedSeals(identity, seals)
        self._active_at.pop(identity, None)
        self._rerouted.update(member.name for member in self._membership.others)
        copy, gate = self._copies.get(identity.version), self._gates.get(identity)
        if copy is not None:
            self.compare_own(copy)
        if gate is not None:
            for name, uuid, epoch, answer in gate.answers():
                fixed.judge(name, uuid, epoch, answer.ready, answer.seals)
            gate.require(fixed.seals, self._own_seals(identity))
        return fixed

    @property
    def next(self) -> Named | None:
        """The version that this node would switch to next: one whose gate may pass soon goes before a newer one."""
        found = [
            (available.is_covered, version, available.identity.wire_id)
            for version, available in self.available.items()
            if self._may_be_next(available.identity)
        ]
        return Named(*max(found)[1:]) if found else None

    @property
    def awaited(self) -> list[Availability]:
        """The versions that are active, or that a gate is to let through: nothing of them may be left to nobody."""
        named = {self.active, self.next}
        versions = {self.hold, *(each.version for each in named if each is not None)}
        return [available for version, available in self.available.items() if version in versions]

    def ranked(self, versions: Iterable[str]) -> list[str]:
        """Return versions in the order in which they matter: the active one, the next one, then newer before older."""
        rank = {named.version: rank for rank, named in ((1, self.next), (2, self.active)) if named is not None}
        return sorted(versions, key=lambda version: (rank.get(version, 0), version), reverse=True)

    def may_switch(self, version: str, *, now_ms: int) -> bool:
        """Whether the gate of a version holds now, and this node may switch to it."""
        available = self.available.get(version)
        gate = None if available is None else self._gates.get(available.identity)
        if available is None or gate is None or not self._may_be_next(available.identity):
            return False
        waits_until_ms = self._waits_until_ms(gate, available, now_ms)
        is_time = waits_until_ms is None or now_ms >= waits_until_ms
        return is_time and self._holds(gate, available, now_ms) and self.withheld(version) is None

    def _waits_until_ms(self, gate: Gate, available: Availability, now_ms: int) -> int | None:
        """Until when at most a version is not switched to although its gate holds; None: it may be at once."""
        if self.hold is not None:
            return None
        before = self._before(gate.identity.version)
        if before is not None and self.minimum.min_ratio and before not in self.counted:
            return (now_ms if gate.held_since_ms is None else gate.held_since_ms) + self._terms.grace_ms
        if self.active is None:
            return self._waits_for_newer_until_ms(gate.identity.version, now_ms)
        patience_ms = self._terms.switch_patience_ms
        if patience_ms == 0 or gate.identity.version == self.active.version:
            return None
        copies = min(self._terms.replication, 1 + len(self._membership.awaited))
        if self._holds(gate, available, now_ms, copies):
            return None
        return (now_ms if gate.held_since_ms is None else gate.held_since_ms) + patience_ms

    def _waits_for_newer_until_ms(self, version: str, now_ms: int) -> int | None:
        """Until when at most this node does not begin with a version, since a newer one may pass; None: it may."""
        newest = max(self._elsewhere, default=None)
        available = None if newest is None or version >= newest else self.available.get(newest)
        if available is None or not available.is_covered:
            return None
        gate = self._gates.get(available.identity)
        return (now_ms if gate is None or gate.since_ms is None else gate.since_ms) + self._terms.grace_ms

    def _may_be_next(self, identity: Identity) -> bool:
        """Whether this node may come to switch to it."""
        active, version = self.active, identity.version
        if active is not None and version == active.version:
            return identity.wire_id != active.wire_id  # What was active was refuted: it is to be so again, mended.
        if self.hold is not None:
            return version == self.hold
        return active is None or version > active.version

    # A step

    def step(self, *, now_ms: int) -> tuple[list[Ask], list[int | None]]:
        """Ask whom it is time to ask, and note which gates pass; returns also when to look again, as time alone has it.

        Those of a version that is not to be switched to, and has never passed, are asked more seldom.
        """
        effects: list[Ask] = []
        times: list[int | None] = []
        often_ms = self._terms.probe_interval_ms // 2
        for version, available in self.available.items():
            identity = available.identity
            may_be_next = self._may_be_next(identity)
            is_gated = available.is_covered and (may_be_next or version not in self.passed)
            members = available.alive if is_gated else self._unheard(available)
            if not is_gated and not members and not self.wrong_here(identity):
                continue
            gate = self._gate(identity)
            every_ms = often_ms if may_be_next or not is_gated else OLD_ASK_MS
            if any(gate.is_due(member, every_ms=every_ms, now_ms=now_ms) for member in members):
                for member in members:  # All of them: their answers have to be fresh together.
                    if gate.is_due(member, every_ms=often_ms, now_ms=now_ms):
                        gate.begin(member, now_ms=now_ms)
                        effects.append(Ask(member.name, identity))
            times += [gate.due_ms(member, every_ms=every_ms) for member in members]
            if is_gated and self._holds(gate, available, now_ms):
                if self.passed.get(version) != identity:
                    self._pass(gate)
                gate.held_since_ms = now_ms if gate.held_since_ms is None else gate.held_since_ms
                waits_until_ms = self._waits_until_ms(gate, available, now_ms)
                times.append(waits_until_ms if waits_until_ms is not None and waits_until_ms > now_ms else None)
            anew = gate.take_anew()
            if anew:
                self.anew[version] = self.anew.get(version, anew) | anew
        return effects, times

    def _gate(self, identity: Identity) -> Gate:
        gate = self._gates.get(identity)
        if gate is None:
            own, fixed = self._membership.own, self._fixed_of(identity)
            gate = Gate(identity, own=own.name, uuid=own.uuid, max_age_ms=self._terms.probe_interval_ms)
            gate.require({} if fixed is None else fixed.seals, self._own_seals(identity))
            self._gates[identity] = gate
        return gate

    def _unheard(self, available: Availability) -> tuple[Alive, ...]:
        """Return the members that have to show their files, or to say on which ones their clients have it."""
        fixed = self._fixed_of(available.identity)
        if fixed is None:
            return tuple(member for member in available.alive if member.is_active)
        return tuple(member for member in available.alive if not fixed.has_judged(*member[:4]))

    def _pass(self, gate: Gate) -> None:
        """Have clients get an identity, from those whose files are alike."""
        self.passed[gate.identity.version] = gate.identity
        if self._fixed_of(gate.identity) is None:
            self._fix(gate.identity, {})

    def _holds(self, gate: Gate, available: Availability, now_ms: int, least: int | None = None) -> bool:
        """Whether each partition has so many owners that count; `min_replication`, unless told."""
        copy = self._copies.get(available.identity.version)
        stays = self._membership.leaving_since_ms is None
        is_here = copy is not None and stays and not self._retiring.is_leaving(copy.version)
        mine = self.confined(copy).serves(available.identity) if copy is not None and is_here else gate.nothing
        return gate.holds(available.alive, mine, least=least or self._terms.min_replication, now_ms=now_ms)
