"""What does a database tell its core in the cluster, and what becomes of what that asks for?

The core decides and touches nothing (`cluster/`).  Before each decision it is told what is here of every version; what
it then asks of this node's files is done here, what it asks of other nodes is passed on.  A node that knows no other
has a core as well: it is the only owner, and its own answer is enough for a gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.dataset.cluster.core import DatabaseCore
from gossipkv.dataset.cluster.effects import BuildAnew, Decide, KeepOwners, KeepRefuted, Look
from gossipkv.dataset.cluster.others import Holding, Owner
from gossipkv.dataset.cluster.own_copy import OwnCopy
from gossipkv.dataset.lifecycle.copy_states import CopyState
from gossipkv.dataset.lifecycle.version_states import Life, VersionState
from gossipkv.dataset.local.active import Holder
from gossipkv.storage.label import FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.dataset.cluster.core import Cluster
    from gossipkv.dataset.cluster.effects import Outward
    from gossipkv.dataset.cluster.question import Seals
    from gossipkv.dataset.lifecycle.copies import Copies
    from gossipkv.dataset.lifecycle.switching import Switching
    from gossipkv.dataset.local.version import Version
    from gossipkv.dataset.refutations import Refutations
    from gossipkv.dataset.source.listing import SourceVersion
    from gossipkv.placement.identity import Identity
    from gossipkv.placement.partition_set import PartitionSet


class PartInCluster:
    """One database's part, and its verdicts (`lifecycle.verdicts`) as of the last step."""

    def __init__(self, database: str, lives: dict[str, Life], copies: Copies, cluster: Cluster) -> None:
        self.core = DatabaseCore(database, cluster.membership, cluster.convergence, cluster.terms, refuted={})
        self._now_ms = 0  # Of the last step.
        self._newer: str | None = None  # A version that was heard of, to be looked for at the source.
        self._lives = lives
        self._copies = copies
        self._membership = cluster.membership
        self._perform = cluster.perform
        self._listed: dict[str, tuple[SourceVersion, str, int]] = {}  # By version: its digest, and its newest time.
        self._seals: dict[str, tuple[Version, Seals]] = {}
        self._going: dict[str, PartitionSet] = {}  # To be built anew, once nothing of it is published any more.
        self._offered: dict[str, Identity] = {}  # As it was when what is offered was last told.
        self._activated: Identity | None = None
        self._switching: Switching | None = None
        self._refutations: Refutations | None = None

    def begin(self, switching: Switching, refutations: Refutations, hold: str | None, *, now_ms: int) -> None:
        """Go on from what was found on the disk: which version was active and who held it, and what was refuted."""
        self._now_ms = now_ms
        self._switching, self._refutations = switching, refutations
        for digest, functions in refutations.known.items():
            for function in functions:
                self.core.found_stray(digest, function)
        self._tell(hold)
        remembered = switching.remembered
        version = self._copies.versions.get(switching.active or "")
        if remembered is not None and remembered.identity is not None:
            holdings = [
                Holding(Owner(each.name, each.uuid, each.address), each.partitions) for each in remembered.holders
            ]
            self.core.remember(remembered.identity, holdings)
            self._activated = remembered.identity
        elif version is not None:
            self._activate(version.identity)
        self.core.opened()

    def step(self, active: str | None, hold: str | None, *, now_ms: int) -> bool:
        """Tell the core what is here, and do what it asks for; whether what clients may have has changed."""
        self._now_ms = now_ms
        self._tell(hold)
        outward: list[Outward] = []
        for effect in self.core.step(now_ms=self._now_ms):
            match effect:
                case BuildAnew(version, partitions):
                    going = self._going.get(version, partitions)
                    self._going[version] = going | partitions
                case Look(version):
                    self._newer = version
                case KeepOwners(identity, holdings):
                    self._keep_owners(identity, holdings)
                case KeepRefuted(digest, functions):
                    assert self._refutations is not None, "what asks for it begins after `begin`"
                    self._refutations.add(digest, functions)
                case Decide():
                    pass
                case _:
                    outward.append(effect)
        self._perform(self.core, outward)
        self._let_go()
        self._hear(active, hold)
        offered = {
            version: found
            for version in self._lives
            if (found := self.identity(version) if self.passed(version) else self.active_elsewhere(version))
        }
        changed, self._offered = offered != self._offered, offered
        return changed

    def switched(self, version: str) -> None:
        """Tell that a version is active here from now on, durably."""
        identity = self.identity(version)
        assert identity is not None, version
        self._activate(identity)

    def is_mended(self, active: str | None) -> bool:
        """Whether the active version, of which a stray has refuted what was active, may be answered as it should be."""
        if active is None or self._activated is None:
            return False
        identity = self.identity(active)
        return identity is not None and identity != self._activated and self.may_switch(active)

    def _activate(self, identity: Identity) -> None:
        self._activated = identity
        self.core.activate(identity)

    def take_newer(self) -> str | None:
        """Return a version that others have heard of, to be looked for at the source; each is returned once."""
        newer, self._newer = self._newer, None
        return newer

    def let_go(self, version: str) -> None:
        """Tell that a version is forgotten here."""
        self.core.let_go(version)
        self._going.pop(version, None)
        for known in (self._listed, self._seals):
            known.pop(version, None)

    @property
    def wakes_at_ms(self) -> int | None:
        """When to step again, beside after each change."""
        return self.core.wakes_at_ms

    @property
    def waits_to_be_heard(self) -> bool:
        """Whether this node hears nobody, and has not done so for long enough to go on alone."""
        return self._membership.waits_to_be_heard(self._now_ms)

    # The verdicts

    def share(self, version: str) -> PartitionSet | None:
        """Partitions of it that are to be here; None: not known yet."""
        return self.core.share(version)

    def passed(self, version: str) -> bool:
        """Whether clients may have it."""
        return self.core.passed(version)

    def identity(self, version: str) -> Identity | None:
        """Return what clients get by that name, or are to get; None: nobody has said what that is."""
        return self.core.identity(version)

    def active_elsewhere(self, version: str) -> Identity | None:
        """Return what a member that lives has active by that name; None: none has."""
        return self.core.active_elsewhere(version)

    def source_ms(self, identity: Identity) -> int | None:
        """Return when the files were last touched that it was made from, as its owners say; None: nobody does."""
        return self.core.source_ms(identity)

    def heard(self) -> Mapping[str, Identity]:
        """Return what other nodes have, by version."""
        return self.core.heard()

    def may_switch(self, version: str) -> bool:
        """Whether its gate holds now."""
        return self.core.may_switch(version, now_ms=self._now_ms)

    def may_retire(self, version: str) -> bool:
        """Whether nobody needs it any more; what is not here is in nobody's way."""
        return self._lives[version].copy is None or self.core.may_retire(version, now_ms=self._now_ms)

    def to_follow(self, version: str) -> Identity | None:
        """What others have made of the files that the source shows, and a build is to come to; None: nothing yet."""
        return self.core.to_follow(version)

    def refuted(self, digest: str) -> tuple[str, ...]:
        """Functions that did not make the files of this digest."""
        return self.core.refuted(digest)

    # What is told

    def _tell(self, hold: str | None) -> None:
        self.core.hold(hold)
        for life in self._lives.values():
            if life.copy is None:
                self.core.drop_copy(life.name)
            else:
                self.core.tell_copy(self._own_copy(life))
                built = self._copies.versions.get(life.name)
                if built is not None:
                    for function in built.manifest.refuted:
                        self.core.found_stray(built.identity.digest, function)

    def _own_copy(self, life: Life) -> OwnCopy:
        copy, version = life.copy, self._copies.versions.get(life.name)
        assert copy is not None, life
        digest, listed_ms = self._of_source(life)
        built_ms = 0 if version is None else version.manifest.source_ms
        partitions = None if life.source is None or not life.source.files else len(life.source.files)
        if copy.here is not None:
            partitions = copy.here.partitions
        is_retiring = life.state is VersionState.RETIRING
        return OwnCopy(
            version=life.name,
            digest=digest,
            partitions=partitions,
            identity=copy.identity,
            source_ms=built_ms or listed_ms,  # Who has what is here gets it with the time that it was built from.
            progress=self._progress(life),
            share=copy.share if copy.open else None,  # Else the source may have come to have another N.
            ready=copy.here,
            building=copy.lacks if self._is_coming(life) else None,
            going=self._going_of(life),
            seals={} if version is None else self._seals_of(version),
            asked_ms=life.asked_ms if is_retiring else None,
        )

    def _of_source(self, life: Life) -> tuple[str | None, int]:
        """The digest of what the source shows, and the newest time among its files."""
        source = life.source
        if source is None or not source.files:
            return None, 0
        known = self._listed.get(life.name)
        if known is None or known[0] is not source:
            known = self._listed[life.name] = (source, source.digest, source.newest_ms)
        return known[1], known[2]

    def _progress(self, life: Life) -> int:
        progress = self._copies.builder.progress
        return int(100 * progress.done) if life.is_building and progress is not None else 0

    def _is_coming(self, life: Life) -> bool:
        """Whether what it lacks is being built, or waits for its turn and nothing else."""
        if life.is_building:
            return True
        return life.copy is not None and life.copy.state is CopyState.WANTED and life.buildable(self._now_ms)

    def _going_of(self, life: Life) -> PartitionSet | None:
        """What is here and does not count: it is to be built anew; all of a damaged copy that was never answered."""
        copy = life.copy
        if copy is not None and copy.damaged and life.state is VersionState.KNOWN:
            return copy.here
        return self._going.get(life.name)

    def _seals_of(self, version: Version) -> Seals:
        known = self._seals.get(version.name)
        if known is None or known[0] is not version:
            manifest = version.manifest
            of_kind = {at: file.seal for at, file in enumerate(manifest.files) if file is not None}
            known = self._seals[version.name] = (version, {f"{FORMAT}/{manifest.compression}": of_kind})
        return known[1]

    # What comes of it

    def _keep_owners(self, identity: Identity, holdings: Iterable[Holding]) -> None:
        assert self._switching is not None, "what asks for it begins after `begin`"
        holders = tuple(
            Holder(each.owner.uuid, each.owner.name, each.owner.address, each.partitions) for each in holdings
        )
        self._switching.note_holders(identity.version, holders)

    def _let_go(self) -> None:
        """Have those partitions built anew of which others have been told that they go."""
        for version, partitions in list(self._going.items()):
            if self.core.is_withdrawn(version, partitions):
                del self._going[version]
                self._copies.drop_partitions(version, partitions)

    def _hear(self, active: str | None, hold: str | None) -> None:
        """Have a life for each version that others hold and clients may come to get here."""
        heard = self.heard()
        for version in heard.keys() - self._lives.keys():
            may_come = active is None or version > active or version == hold
            if may_come or self.passed(version):  # Older ones are answered while others answer them.
                self._lives[version] = Life(version)
        for life in self._lives.values():
            if life.state is not VersionState.ACTIVE or life.name in heard:  # What was active is remembered.
                life.heard = heard.get(life.name)
