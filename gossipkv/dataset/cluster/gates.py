"""The gates of one database's versions: whom they ask, what has passed, and what may be switched to.

A gate is opened for a version whose partitions all have owners, as they say, while this node may come to switch to it,
or as long as it has never passed.  What has passed clients may have from then on, also while its gate does not hold
any more.

Then a switch waits, for `switch_patience` at most, until there are `replication` copies, or as many as members that
have not left; but not the first one, since clients get nothing meanwhile, nor what an operator wants, or what mends.

A node on which nothing is active yet begins with nothing older than what an ALIVE member has active, as long as that
may pass here: every partition has owners, as they say, and they have not been asked in vain for longer than a grace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.cluster.contents import choose
from gossipkv.dataset.cluster.effects import Ask, BuildAnew
from gossipkv.dataset.cluster.gate import Gate
from gossipkv.dataset.cluster.members import SILENT_EPOCH
from gossipkv.placement.statement import Named

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.dataset.cluster.gate import Dispute
    from gossipkv.dataset.cluster.members import Membership
    from gossipkv.dataset.cluster.own_copy import OwnCopy
    from gossipkv.dataset.cluster.question import Answer
    from gossipkv.dataset.cluster.retiring import Retiring
    from gossipkv.dataset.cluster.survey import Availability, Survey
    from gossipkv.dataset.cluster.terms import Terms
    from gossipkv.placement.identity import Identity

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
        self._newest_active: str | None = None  # At a member that is ALIVE; looked at while nothing is active here.

    # What is told

    def look(self, survey: Survey, passed: dict[str, Identity]) -> None:
        """Take in what is published now, and what clients may have of that; a gate goes with what it is about."""
        self.passed = passed
        chosen = {name: passed.get(name) or choose(survey.known(name)) for name in {**survey.published, **passed}}
        self.available = {name: survey.availability(each) for name, each in chosen.items() if each is not None}
        identities = {each.identity for each in self.available.values()}
        self._gates = {identity: gate for identity, gate in self._gates.items() if identity in identities}
        self._newest_active = survey.newest_active if self.active is None else None

    def compare_own(self, copy: OwnCopy) -> None:
        """Take in that this node has other files of a version than before."""
        gate = None if copy.identity is None else self._gates.get(copy.identity)
        if gate is not None:
            gate.compare_own(copy.seals)

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

    def hurry(self) -> None:
        """Have the owners of what may be switched to asked again at once."""
        for gate in self._gates.values():
            if self._may_be_next(gate.identity):
                gate.hurry()

    # What is asked

    @property
    def disputes(self) -> dict[str, list[Dispute]]:
        """Owners, by version, whose files for the same partitions differ."""
        return {gate.identity.version: gate.disputes for gate in self._gates.values() if gate.disputes}

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
        return (waits_until_ms is None or now_ms >= waits_until_ms) and self._holds(gate, available, now_ms)

    def _waits_until_ms(self, gate: Gate, available: Availability, now_ms: int) -> int | None:
        """Until when at most a version is not switched to although its gate holds; None: it may be at once."""
        if self.hold is not None:
            return None
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
        newest = self._newest_active
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

    def step(self, *, now_ms: int) -> tuple[list[Ask | BuildAnew], list[int | None]]:
        """Ask whom it is time to ask, and note which gates pass; returns also when to look again, as time alone has it.

        Those of a version that is not to be switched to, and has never passed, are asked more seldom.
        """
        effects: list[Ask | BuildAnew] = []
        times: list[int | None] = []
        often_ms = self._terms.probe_interval_ms // 2
        for version, available in self.available.items():
            may_be_next = self._may_be_next(available.identity)
            if not available.is_covered or (version in self.passed and not may_be_next):
                continue
            gate = self._gate(available.identity)
            every_ms = often_ms if may_be_next else OLD_ASK_MS
            if any(gate.is_due(member, every_ms=every_ms, now_ms=now_ms) for member in available.alive):
                for member in available.alive:  # All of them: their answers have to be fresh together.
                    if gate.is_due(member, every_ms=often_ms, now_ms=now_ms):
                        gate.begin(member, now_ms=now_ms)
                        effects.append(Ask(member.name, available.identity))
            times += [gate.due_ms(member, every_ms=every_ms) for member in available.alive]
            if self._holds(gate, available, now_ms):
                self.passed[version] = available.identity
                gate.held_since_ms = now_ms if gate.held_since_ms is None else gate.held_since_ms
                waits_until_ms = self._waits_until_ms(gate, available, now_ms)
                times.append(waits_until_ms if waits_until_ms is not None and waits_until_ms > now_ms else None)
            anew = gate.take_anew()
            if anew:
                effects.append(BuildAnew(version, anew))
        return effects, times

    def _gate(self, identity: Identity) -> Gate:
        gate = self._gates.get(identity)
        if gate is None:
            own = self._membership.own
            gate = Gate(identity, own=own.name, uuid=own.uuid, max_age_ms=self._terms.probe_interval_ms)
            self._gates[identity] = gate
        return gate

    def _holds(self, gate: Gate, available: Availability, now_ms: int, least: int | None = None) -> bool:
        """Whether each partition has so many owners that count; `min_replication`, unless told."""
        copy = self._copies.get(available.identity.version)
        stays = self._membership.leaving_since_ms is None
        is_here = copy is not None and stays and not self._retiring.is_leaving(copy.version)
        mine = copy.serves(available.identity) if copy is not None and is_here else gate.nothing
        return gate.holds(available.alive, mine, least=least or self._terms.min_replication, now_ms=now_ms)
