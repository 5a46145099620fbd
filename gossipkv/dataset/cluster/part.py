"""The part of a database that tells its core in the cluster about local copies, and carries out the core's effects.

The core decides and does no I/O (`cluster/`).  Before each decision it is told the local state of every version.
Effects on this node's files are carried out here, and requests to other nodes are passed on.  A node alone has a core
as well: it is the only owner, and its own answer suffices for a gate.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gossipkv.dataset.cluster.core import DatabaseCore
from gossipkv.dataset.cluster.effects import (
    BuildAnew,
    Decide,
    KeepActive,
    KeepOrders,
    KeepRefuted,
    KeepRing,
    ReadContents,
)
from gossipkv.dataset.cluster.own_copy import OwnCopy
from gossipkv.dataset.lifecycle.copy_states import CopyState
from gossipkv.dataset.lifecycle.version_states import Life, VersionState
from gossipkv.dataset.rewriting import Rewriting
from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage.sorted_file import FORMAT

if TYPE_CHECKING:
    from gossipkv.dataset.cluster.effects import Outward
    from gossipkv.dataset.cluster.gate import Dispute
    from gossipkv.dataset.lifecycle.copies import Copies
    from gossipkv.dataset.lifecycle.switching import Switching
    from gossipkv.dataset.local.version import Version
    from gossipkv.dataset.shared_resources import SharedResources
    from gossipkv.dataset.source.listing import SourceVersion
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.placement.seals import Seals


class PartInCluster:
    """One database's part in the cluster."""

    def __init__(self, database: str, lives: dict[str, Life], copies: Copies, shared: SharedResources) -> None:
        cluster = shared.cluster
        self.core = DatabaseCore(database, cluster.membership, cluster.convergence, cluster.terms)
        self._now_ms = 0  # The time of the last step.
        self._newer: str | None = None  # A version that was heard of, to be looked for at the source.
        self._lives = lives
        self._copies = copies
        self._shared = shared
        self._log = shared.log.bind(database=database)
        # The listing of each version, its digest, and its newest time.
        self._listed: dict[str, tuple[SourceVersion, str, int]] = {}
        # The open files of each version, their checksums, and the records of each partition.
        self._seals: dict[str, tuple[Version, Seals, dict[int, int]]] = {}
        self._offered: dict[str, VersionIdentity] = {}  # The offered identities at the last step.
        self._wrong: dict[str, PartitionSet] = {}  # The local partitions that answered no read at the last step.
        self._disputes: set[tuple[str, Dispute]] = set()  # The disputes at the last step.
        self._activated: VersionIdentity | None = None
        self._switching: Switching | None = None
        self.refuted_document = Rewriting(self._write_refuted, shared.may_write, self._log)
        self.orders_document = Rewriting(self._write_orders, shared.may_write, self._log)

    async def read_refuted(self) -> None:
        """Restore the refuted functions; if damaged, they are found or heard again.

        Raises:
            StorageError: the system refused.
        """
        try:
            kept = await self._shared.threads.run(self._shared.store.refuted, self.core.name)
        except (Corrupt, UnsupportedFormat) as error:
            self._log.error("refuted_damaged", error=error.message)
        else:
            self.core.recall_refuted(kept)

    async def read_orders(self) -> None:
        """Restore the orders; if damaged, they are heard again.

        Raises:
            StorageError: the system refused.
        """
        try:
            self.core.orders = await self._shared.threads.run(self._shared.store.orders, self.core.name)
        except (Corrupt, UnsupportedFormat) as error:
            self._log.error("orders_damaged", error=error.message)

    async def order(self, version: str | None, *, here: bool, wall_ms: int) -> None:
        """Order the cluster, or this node alone, to hold a version or none; the order is durable on return.

        Raises:
            StorageError: the system refused; nothing has changed.
        """

        async def write() -> None:
            orders = self.core.orders.given(version, here=here, wall_ms=wall_ms)
            await self._shared.threads.run(self._shared.store.set_orders, self.core.name, orders)
            self.core.order(orders)

        await self.orders_document.alone(write)

    async def _write_orders(self) -> None:
        await self._shared.threads.run(self._shared.store.set_orders, self.core.name, self.core.orders)

    async def _write_refuted(self) -> None:
        write = partial(self._shared.store.set_refuted, self.core.name, self.core.all_refuted())
        await self._shared.threads.run(write)

    def begin(self, switching: Switching, hold: str | None, *, now_ms: int) -> None:
        """Continue from the disk: the version that was active, and its owners."""
        self._now_ms = now_ms
        self._switching = switching
        self._tell_core(hold)
        remembered = switching.remembered
        version = self._copies.versions.get(switching.active or "")
        if remembered is not None and remembered.identity is not None:
            self.core.remember(remembered.identity, remembered.owners, remembered.sealed, remembered.records)
            self._activated = remembered.identity
        elif version is not None:
            self._activate(version.identity)
        self.core.opened()

    def step(self, active: str | None, hold: str | None, *, now_ms: int) -> bool:
        """Tell the core about local copies and carry out its effects; True if the offered versions have changed."""
        self._now_ms = now_ms
        self._tell_core(hold)
        outward: list[Outward] = []
        for effect in self.core.step(now_ms=self._now_ms):
            match effect:
                case BuildAnew(version, partitions):
                    self._copies.drop_partitions(version, partitions)
                case ReadContents(version):
                    self._newer = version
                case KeepActive(identity, owners):
                    assert self._switching is not None, "what asks for it begins after `begin`"
                    self._switching.note_owners(identity.version, owners)
                case KeepRefuted():
                    self.refuted_document.note()
                case KeepOrders():
                    self.orders_document.note()
                case KeepRing():
                    self._shared.note_ring()
                case Decide():
                    pass
                case _:
                    outward.append(effect)
        self._shared.cluster.perform(self.core, outward)
        self._update_lives(active, hold)
        self._log_disputes()
        offered = {version: found for version in self._lives if (found := self.core.offered(version)) is not None}
        opened = self._copies.versions
        wrong = {name: differing for name, version in opened.items() if (differing := self.contradicting(version))}
        changed = (offered, wrong) != (self._offered, self._wrong)
        self._offered, self._wrong = offered, wrong
        return changed

    def _log_disputes(self) -> None:
        """Log the nodes whose files differ, after each change, and when they agree again."""
        found = {(version, dispute) for version, disputes in self.core.disputes.items() for dispute in disputes}
        for version, dispute in sorted(found - self._disputes):
            nodes, partitions = [dispute.first, dispute.second], dispute.partitions.in_words(8)
            self._log.error("contents_differ", version=version, nodes=nodes, partitions=partitions)
        for version in sorted({version for version, _ in self._disputes} - {version for version, _ in found}):
            self._log.info("contents_agree", version=version)
        self._disputes = found

    def contradicting(self, version: Version) -> PartitionSet:
        """Return the local partitions whose files differ from those that clients get."""
        return self.core.contradicting(version.identity, self._seals_of(version)[0])

    def switched(self, version: str) -> None:
        """Tell the core that a version is active here from now on, durably."""
        identity = self.core.identity(version)
        assert identity is not None, version
        self._activate(identity)

    def is_mended(self, active: str | None) -> bool:
        """True if the active version was refuted and its repaired identity may be switched to."""
        if active is None or self._activated is None:
            return False
        identity = self.core.identity(active)
        return identity is not None and identity != self._activated and self.core.may_switch(active)

    def _activate(self, identity: VersionIdentity) -> None:
        self._activated = identity
        self.core.activate(identity)

    def take_newer(self) -> str | None:
        """Return a version to look for at the source, since other nodes have heard of it; each is returned once."""
        newer, self._newer = self._newer, None
        return newer

    def let_go(self, version: str) -> None:
        """Tell the core that a version is forgotten here."""
        self.core.let_go(version)
        for cache in (self._listed, self._seals):
            cache.pop(version, None)

    # Inputs of the core

    def _tell_core(self, hold: str | None) -> None:
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
        partitions = None if life.source is None else life.source.partitions or None
        if copy.here is not None:
            partitions = copy.here.partitions
        is_retiring = life.state is VersionState.RETIRING
        return OwnCopy(
            version=life.name,
            digest=digest,
            partitions=partitions,
            identity=copy.identity,
            # The files' identity comes with the time of the source that they were built from.
            source_ms=built_ms or listed_ms,
            progress=self._progress(life),
            # Without open files the source may have changed its number of partitions.
            share=copy.share if copy.open else None,
            ready=copy.here,
            building=copy.lacks if self._is_coming(life) else None,
            going=self._going_of(life),
            seals={} if version is None else self._seals_of(version)[0],
            records={} if version is None else self._seals_of(version)[1],
            asked_ms=life.asked_ms if is_retiring else None,
        )

    def _of_source(self, life: Life) -> tuple[str | None, int]:
        """Return the digest of the source's files, and the newest time among them."""
        source = life.source
        if source is None or not source.partitions:
            return None, 0
        cached = self._listed.get(life.name)
        if cached is None or cached[0] is not source:
            cached = self._listed[life.name] = (source, source.digest, source.newest_ms)
        return cached[1], cached[2]

    def _progress(self, life: Life) -> int:
        progress = self._copies.builder.progress
        return int(100 * progress.done) if life.is_building and progress is not None else 0

    def _is_coming(self, life: Life) -> bool:
        """True if the lacking partitions are being built, or wait only for their turn."""
        if life.is_building:
            return True
        return life.copy is not None and life.copy.state is CopyState.WANTED and life.buildable(self._now_ms)

    def _going_of(self, life: Life) -> PartitionSet | None:
        """Return the local partitions that do not count: all of a damaged copy that was never answered."""
        copy = life.copy
        if copy is not None and copy.damaged and life.state is VersionState.KNOWN:
            return copy.here
        return None

    def _seals_of(self, version: Version) -> tuple[Seals, dict[int, int]]:
        """Return the checksums of the version's files, and the records of each partition."""
        cached = self._seals.get(version.name)
        if cached is None or cached[0] is not version:
            manifest = version.manifest
            files = {at: file for at, file in enumerate(manifest.files) if file is not None}
            seals = {f"{FORMAT}/{manifest.compression}": {at: file.seal for at, file in files.items()}}
            cached = (version, seals, {at: file.records for at, file in files.items()})
            self._seals[version.name] = cached
        return cached[1:]

    # Results of the core

    def _update_lives(self, active: str | None, hold: str | None) -> None:
        """Create a life for each version of other nodes that clients may come to get here."""
        heard = self.core.heard()
        for version in heard.keys() - self._lives.keys():
            may_come = active is None or version > active or version == hold
            if may_come or self.core.passed(version):  # Older versions are answered as long as other nodes answer them.
                self._lives[version] = Life(version)
        for life in self._lives.values():
            # The identity of the active version is remembered.
            if life.state is not VersionState.ACTIVE or life.name in heard:
                life.heard = heard.get(life.name)
