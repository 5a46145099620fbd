"""The gates of one database's versions: their questions, their outcomes, and the version that may become active.

This node asks the owners of a version once all its partitions have owners, by their statements.  It asks only if it may
switch to the version, or if the gate has never passed.  Once a gate has passed, clients may have the version even if
the gate no longer holds, and the checksums of its files are fixed: a later owner must first show that its files match.
A version active at other members is offered here as well.

A switch waits up to `switch_patience` for `replication` copies, or one per remaining member.  A first switch, a hold
and a repair do not wait.  A version below `MinimumSettings` is not switched to, unless it is held, or an ALIVE member
has it active without a hold.  The version is compared with the newest older one active here or at such a member.

A node without an active version waits a grace for the newest version that is active at an ALIVE member.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.cluster.contents import choose
from gossipkv.dataset.cluster.effects import AskMember
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
    from gossipkv.dataset.cluster.question import MemberAnswer
    from gossipkv.dataset.cluster.retiring import Retiring
    from gossipkv.dataset.cluster.survey import Availability, VersionSurvey
    from gossipkv.dataset.cluster.terms import Terms
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.ownership import Owner
    from gossipkv.placement.seals import Seals

MAX_UNKNOWN: Final = 8  # Keep the fixed checksums of this many versions that no node knows now.
OLD_ASK_MS: Final = 60_000  # Ask the owners of a version that will not become active this often.


@final
class Gates:
    """The gates of one database."""

    def __init__(self, membership: Membership, terms: Terms, copies: Mapping[str, OwnCopy], retiring: Retiring) -> None:
        """Create them; `copies` are the local copies by version, as told to the core."""
        self.active: Named | None = None  # The version that is active here.
        self.hold: str | None = None  # The version that is held here.
        # Versions that clients may have; an entry stays unless it is refuted.
        self.passed: dict[str, VersionIdentity] = {}
        # The owners of the identity that clients get, or will get, of each version.
        self.available: dict[str, Availability] = {}
        self._membership = membership
        self._terms = terms
        self._copies = copies
        self._retiring = retiring
        self._gates: dict[VersionIdentity, Gate] = {}
        self.minimum = MinimumSettings()
        self.counted: dict[VersionIdentity, int] = {}  # The records of identities for which all owners have reported.
        # Versions active at ALIVE members; True if each of them is only held there.
        self._elsewhere: dict[str, bool] = {}
        self._fixed: dict[str, FixedSeals] = {}  # The fixed checksums of each version that clients may have.
        self.anew: dict[str, PartitionSet] = {}  # The partitions of each version to rebuild here.
        self._rerouted: set[str] = set()
        # The partitions, by member, whose files there differ from those that the member's clients get.
        self._differing: dict[VersionIdentity, dict[str, PartitionSet]] = {}
        # Members that have the identity active while nothing of it is fixed here.
        self._active_at: dict[VersionIdentity, frozenset[str]] = {}

    # Inputs

    def activate(self, identity: VersionIdentity) -> None:
        """Note that a version is active here from now on, without asking its gate."""
        self.active = Named(identity.version, identity.wire_id)
        self.passed[identity.version] = identity
        if self._fixed_of(identity) is None:
            self._fix(identity, {})

    def remember(
        self,
        active: VersionIdentity,
        sealed: Iterable[Sealed],
        owners: Iterable[tuple[Owner, PartitionSet]],
        records: int | None = None,
    ) -> None:
        """Restore the fixed checksums of the last run, and the owners found right for the active version."""
        if records is not None:
            self.counted[active] = records
        for identity, seals in sealed:
            self._fix(identity, seals)
        fixed = self._fixed_of(active) or self._fix(active, {})
        for owner, partitions in owners:
            fixed.trust(owner.name, owner.uuid, partitions)

    def confine(self, name: str, uuid: bytes, held: Mapping[VersionIdentity, PartitionSet]) -> None:
        """Note all partitions that a member claims."""
        for fixed in self._fixed.values():
            nothing = PartitionSet.empty(fixed.identity.partitions)
            fixed.confine(name, uuid, held.get(fixed.identity, nothing))

    def forget(self, name: str) -> None:
        for fixed in self._fixed.values():
            fixed.forget(name)

    def look(self, survey: VersionSurvey, passed: dict[str, VersionIdentity]) -> None:
        """Note the published identities and those that clients may have; gates of others are removed."""
        self.passed = passed
        chosen = [passed.get(name) or choose(survey.known(name)) for name in {**survey.published, **passed}]
        self.available = {
            identity.version: survey.availability(identity) for identity in chosen if identity is not None
        }
        identities = {available.identity for available in self.available.values()}
        self._gates = {identity: gate for identity, gate in self._gates.items() if identity in identities}
        self._elsewhere = survey.active_elsewhere
        in_use = identities | set(passed.values())
        self.counted = {identity: records for identity, records in self.counted.items() if identity in in_use}
        unknown = sorted(version for version, fixed in self._fixed.items() if fixed.identity not in in_use)
        for version in unknown[:-MAX_UNKNOWN]:
            del self._fixed[version]
        self._differing = survey.differing
        before, self._active_at = self._active_at, {}
        for available in self.available.values():
            if self._fixed_of(available.identity) is None:
                there = frozenset(member.name for member in available.alive if member.is_active)
                self._active_at[available.identity] = there
                if available.identity in self._gates:  # These members have not yet reported their clients' files.
                    self._gates[available.identity].hurry(there - before.get(available.identity, frozenset()))

    def compare_own(self, copy: OwnCopy) -> None:
        if copy.identity is None:
            return
        fixed, gate = self._fixed_of(copy.identity), self._gates.get(copy.identity)
        if fixed is not None and copy.ready is not None:
            fixed.extend(copy.seals, copy.ready - fixed.contradicting(copy.seals))
        if gate is not None:
            gate.compare_own(copy.seals)
        self._count(copy.identity)

    def answered(self, name: str, epoch: int, wire_id: bytes, answer: MemberAnswer | None) -> None:
        """Note the result of an `AskMember`, with the epoch from the member's `hello`; None: no answer."""
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
            fixed = self._fix(identity, answer.fixed or {})  # The member had answered before its switch.
        if fixed is not None:
            before = fixed.seals
            fixed.judge(name, member.uuid, epoch, answer.ready, answer.seals)
            self._rerouted.add(name)
            if fixed.seals is not before:
                gate.require(fixed.seals, seals)

    def lost(self, name: str) -> None:
        """Note a lost connection to a member: its answers on the connection no longer count."""
        for gate in self._gates.values():
            gate.void(name)

    def hurry(self) -> None:
        """Ask the owners of versions that may become active again at once."""
        for gate in self._gates.values():
            if self._may_be_next(gate.identity):
                gate.hurry()

    def _count(self, identity: VersionIdentity) -> None:
        """Count the records of an identity anew if all its partitions were reported."""
        copy, gate = self._copies.get(identity.version), self._gates.get(identity)
        answers = [] if gate is None else gate.answers()
        counts = {at: count for *_, answer in answers for at, count in answer.records.items()}
        if copy is not None and copy.identity == identity:
            counts |= copy.records
        if len(counts) == identity.partitions:
            self.counted[identity] = sum(counts.values())

    # Questions and verdicts

    def withheld(self, version: str) -> str | None:
        """Return why this node does not switch by itself to a version with too few records; None: it may."""
        available = self.available.get(version)
        if available is None or not self._may_be_next(available.identity):
            return None
        is_accepted = self._elsewhere.get(version) is False
        # A repair of the active version is not withheld.
        is_active = self.active is not None and version == self.active.version
        records = self.counted.get(available.identity)
        if version == self.hold or is_accepted or is_active or records is None:
            return None
        before = self._before(version)
        return self.minimum.shortage(
            records, *(None, None) if before is None else (before.version, self.counted.get(before))
        )

    def _before(self, version: str) -> VersionIdentity | None:
        """Return the version to compare with; None: no version is active."""
        active = [*self._elsewhere] if self.active is None else [self.active.version, *self._elsewhere]
        before = max((older for older in active if older < version), default="")
        available = self.available.get(before)
        return self.passed.get(before) or (available.identity if available and available.is_covered else None)

    @property
    def disputes(self) -> dict[str, list[Dispute]]:
        """Return the owners, by version, whose files differ; once checksums are fixed, the right owner first."""
        found = {
            gate.identity.version: gate.disputes
            for gate in self._gates.values()
            if gate.disputes and self._fixed_of(gate.identity) is None
        }
        own = self._membership.own.name
        for version, fixed in self._fixed.items():
            reported = self._differing.get(fixed.identity, {})
            wrong = sorted((dict(fixed.wrong()) | reported | {own: self.wrong_here(fixed.identity)}).items())
            if disputes := [Dispute(fixed.keeper(parts) or own, name, parts) for name, parts in wrong if parts]:
                found[version] = disputes
        return found

    def is_fixed(self, identity: VersionIdentity) -> bool:
        return self._fixed_of(identity) is not None

    @property
    def sealed(self) -> tuple[Sealed, ...]:
        return tuple(Sealed(fixed.identity, fixed.seals) for _, fixed in sorted(self._fixed.items()))

    def seals(self, identity: VersionIdentity) -> Seals | None:
        """Return the checksums on which clients have an identity here; None: clients may not have it yet."""
        fixed = self._fixed_of(identity)
        return None if fixed is None or identity not in self.passed.values() else fixed.seals

    def right(self, identity: VersionIdentity, owner: Owner, held: PartitionSet) -> PartitionSet:
        """Return the partitions, of those that an owner holds, for which it may be asked."""
        fixed = self._fixed_of(identity)
        return held if fixed is None else held & fixed.right(owner.name, owner.uuid)

    def contradicting(self, identity: VersionIdentity, seals: Seals) -> PartitionSet:
        """Return the partitions whose files, by these checksums, differ from those that clients have."""
        fixed = self._fixed_of(identity)
        return PartitionSet.empty(identity.partitions) if fixed is None else fixed.contradicting(seals)

    def wrong_here(self, identity: VersionIdentity) -> PartitionSet:
        """Return the partitions whose local files differ from those that clients have."""
        return self.contradicting(identity, self._own_seals(identity))

    def confined(self, copy: OwnCopy) -> OwnCopy:
        """Return the copy without the partitions that differ from the clients' files, or will be rebuilt."""
        wrong = None if copy.identity is None else self.contradicting(copy.identity, copy.seals)
        anew = self.anew.get(copy.version)
        if not wrong and anew is None:
            return copy
        return replace(copy, differing=wrong, going=copy.going if anew is None else anew | (copy.going or anew))

    def take_rerouted(self) -> set[str]:
        """Return, each once, the members whose routes have changed."""
        names, self._rerouted = self._rerouted, set()
        return names

    def _fixed_of(self, identity: VersionIdentity) -> FixedSeals | None:
        fixed = self._fixed.get(identity.version)
        return fixed if fixed is not None and fixed.identity == identity else None

    def _own_seals(self, identity: VersionIdentity) -> Seals:
        copy = self._copies.get(identity.version)
        return copy.seals if copy is not None and copy.identity == identity else {}

    def _fix(self, identity: VersionIdentity, seals: Seals) -> FixedSeals:
        """Fix these checksums for an identity from now on."""
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
        """Return the version that this node would switch to next; one with enough owners precedes a newer one."""
        found = [
            (available.is_covered, version, available.identity.wire_id)
            for version, available in self.available.items()
            if self._may_be_next(available.identity)
        ]
        return Named(*max(found)[1:]) if found else None

    @property
    def awaited(self) -> list[Availability]:
        """Return the versions that are active, held or next; none of their partitions may lack an owner."""
        named = {self.active, self.next}
        versions = {self.hold, *(chosen.version for chosen in named if chosen is not None)}
        return [available for version, available in self.available.items() if version in versions]

    def ranked(self, versions: Iterable[str]) -> list[str]:
        """Return versions by importance: the active one, the next one, then newer before older."""
        rank = {named.version: rank for rank, named in ((1, self.next), (2, self.active)) if named is not None}
        return sorted(versions, key=lambda version: (rank.get(version, 0), version), reverse=True)

    def may_switch(self, version: str, *, now_ms: int) -> bool:
        """True if the gate of a version holds now, and this node may switch to the version."""
        available = self.available.get(version)
        gate = None if available is None else self._gates.get(available.identity)
        if available is None or gate is None or not self._may_be_next(available.identity):
            return False
        waits_until_ms = self._waits_until_ms(gate, available, now_ms)
        is_time = waits_until_ms is None or now_ms >= waits_until_ms
        return is_time and self._holds(gate, available, now_ms) and self.withheld(version) is None

    def _waits_until_ms(self, gate: Gate, available: Availability, now_ms: int) -> int | None:
        """Return the latest time until which a switch waits though the gate holds; None: no wait."""
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
        """Return the latest time until which a first switch waits for a newer version; None: no wait."""
        newest = max(self._elsewhere, default=None)
        available = None if newest is None or version >= newest else self.available.get(newest)
        if available is None or not available.is_covered:
            return None
        gate = self._gates.get(available.identity)
        return (now_ms if gate is None or gate.since_ms is None else gate.since_ms) + self._terms.grace_ms

    def _may_be_next(self, identity: VersionIdentity) -> bool:
        """True if this node may later switch to the identity."""
        active, version = self.active, identity.version
        if active is not None and version == active.version:
            # The active identity was refuted, and its repaired version becomes active.
            return identity.wire_id != active.wire_id
        if self.hold is not None:
            return version == self.hold
        return active is None or version > active.version

    # A step

    def step(self, *, now_ms: int) -> tuple[list[AskMember], list[int | None]]:
        """Ask the members that are due, and note the gates that pass; return also when time alone requires a step.

        Versions that will not become active, and have never passed, are asked about less often.
        """
        effects: list[AskMember] = []
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
                for member in members:  # Ask all of them, as their answers must be fresh together.
                    if gate.is_due(member, every_ms=often_ms, now_ms=now_ms):
                        gate.begin(member, now_ms=now_ms)
                        effects.append(AskMember(member.name, identity))
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

    def _gate(self, identity: VersionIdentity) -> Gate:
        gate = self._gates.get(identity)
        if gate is None:
            own, fixed = self._membership.own, self._fixed_of(identity)
            gate = Gate(identity, own=own.name, uuid=own.uuid, max_age_ms=self._terms.probe_interval_ms)
            gate.require({} if fixed is None else fixed.seals, self._own_seals(identity))
            self._gates[identity] = gate
        return gate

    def _unheard(self, available: Availability) -> tuple[Alive, ...]:
        """Return the members that must still report their files, or the fixed checksums of their clients."""
        fixed = self._fixed_of(available.identity)
        if fixed is None:
            return tuple(member for member in available.alive if member.is_active)
        return tuple(member for member in available.alive if not fixed.has_judged(*member[:4]))

    def _pass(self, gate: Gate) -> None:
        """Let clients have an identity, from owners with matching files."""
        self.passed[gate.identity.version] = gate.identity
        if self._fixed_of(gate.identity) is None:
            self._fix(gate.identity, {})

    def _holds(self, gate: Gate, available: Availability, now_ms: int, least: int | None = None) -> bool:
        """True if each partition has at least `least` owners that count; by default `min_replication`."""
        copy = self._copies.get(available.identity.version)
        stays = self._membership.leaving_since_ms is None
        is_here = copy is not None and stays and not self._retiring.is_leaving(copy.version)
        mine = self.confined(copy).serves(available.identity) if copy is not None and is_here else gate.nothing
        return gate.holds(available.alive, mine, least=least or self._terms.min_replication, now_ms=now_ms)
