"""The next step for the versions of a database, as a pure function over the states of each.

* One version of a database is built at a time.  The active one comes first while wanted partitions have too few owners,
  then the newest complete one.  A build continues when a newer version appears: otherwise a source faster than the
  builds would never be served.  While the newest is in ERROR, an older one above the active one may be built.
* A held version is switched to as soon as possible; no other version is built or switched to.  After the hold these
  rules apply again, from the active version on: a version left behind is switched to, or built, again.
* A version that can be answered retires, and goes when no request has asked for it for `retire_after`.  A version that
  cannot be answered is forgotten at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gossipkv.dataset.lifecycle.copy_states import CopyState
from gossipkv.dataset.lifecycle.version_states import VersionState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.dataset.lifecycle.copy_states import VersionCopy
    from gossipkv.dataset.lifecycle.version_states import Life
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.ownership import Ownership
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.placement.seals import Sealed


class VersionDecisions(Protocol):
    """Answers that a node cannot derive from its own copies; they change without notice but for a wake.

    In a cluster the members' statements decide them (`cluster/`), on a single node its own.
    """

    def share(self, version: str) -> PartitionSet | None:
        """Return the partitions that should be here in addition to the kept share; None: not known yet."""
        ...

    def passed(self, version: str) -> bool:
        """True if clients may get the version, also by its name."""
        ...

    def may_switch(self, version: str) -> bool:
        """True if the version may become active: its gate holds now."""
        ...

    def owners(self, identity: VersionIdentity) -> tuple[Ownership, ...]:
        """Return the other nodes that may be asked for an identity now."""
        ...

    def sealed(self) -> tuple[Sealed, ...]:
        """Return the versions that clients may get, each with the checksums of its files."""
        ...

    def records(self, identity: VersionIdentity) -> int | None:
        """Return the number of records, as the owners report; None: not all have reported."""
        ...

    def is_short(self, version: str) -> bool:
        """True if wanted partitions of the version have fewer live owners than `replication`."""
        ...

    def may_retire(self, version: str) -> bool:
        """True if no other node needs the version any more."""
        ...

    def refuted(self, digest: str) -> tuple[str, ...]:
        """Return the functions that a stray refuted for the files of this digest."""
        ...


@dataclass(frozen=True, slots=True)
class Decision:
    """The next steps of a database; if all fields are empty, there are none."""

    want: tuple[tuple[str, PartitionSet], ...] = ()  # Shares that are newly known, or have grown.
    refute: tuple[str, ...] = ()  # A refuted function groups these copies.
    skip: tuple[str, ...] = ()
    supersede: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    switch: str | None = None
    build: str | None = None
    stop: str | None = None  # A build to stop.
    look_again_ms: int | None = None  # When time alone may change the decision.

    def __post_init__(self) -> None:
        """Assert that no two steps concern one version, and that at most one version is built."""
        gone = self.skip + self.supersede + self.remove
        assert len(set(gone)) == len(gone), self
        assert self.switch not in gone, self
        assert self.build not in gone, self
        assert self.build is None or self.stop is None, self


def decide(
    lives: Iterable[Life],
    verdicts: VersionDecisions,
    *,
    active: str | None,
    hold: str | None,
    now_ms: int,
    retire_after_ms: int,
) -> Decision:
    """Decide the next steps for a database's versions.

    `active` is the version that was made active last, served or not; `hold` is the held version, known or not.
    """
    ordered = sorted(lives, key=lambda life: life.name)
    shares = [(life, verdicts.share(life.name)) for life in ordered]
    want = tuple((life.name, share) for life, decided in shares if (share := _grown(life.copy, decided)) is not None)
    refute = tuple(life.name for life in ordered if _is_refuted(life.copy, verdicts))
    switchable = (life.name for life in reversed(ordered) if life.switchable(active, hold))
    switch = next((name for name in switchable if verdicts.may_switch(name)), None)
    floor = switch if switch is not None else active
    left = [life for life in ordered if life.superseded(floor, hold)]
    supersede = tuple(life.name for life in left if life.open or verdicts.passed(life.name))
    skip = tuple(life.name for life in ordered if life.name not in supersede and _is_skipped(life, floor, hold))
    retiring = [
        life
        for life in ordered
        if life.state is VersionState.RETIRING and not life.is_building and life.name != switch
    ]  # fmt: skip
    quiet = [life.name for life in retiring if life.asked_ms + retire_after_ms <= now_ms]
    # Every owner has lost these versions.
    lost = [life.name for life in retiring if not life.open and not verdicts.passed(life.name)]
    remove = tuple(dict.fromkeys((*lost, *(name for name in quiet if verdicts.may_retire(name)))))
    waits = [life.asked_ms + retire_after_ms for life in retiring if life.name not in (*quiet, *lost)]
    build = stop = None
    candidates = [
        life
        for life in ordered
        if life.name not in refute + skip + supersede + remove
        and (life.state is not VersionState.RETIRING or life.name in {switch, hold})
        and hold in {None, life.name}
    ]  # fmt: skip
    building = next((life.name for life in ordered if life.is_building), None)
    if building is None:
        ready = [life.name for life in candidates if life.buildable(now_ms)]
        is_urgent = active in ready and verdicts.is_short(active)
        build = active if is_urgent else ready[-1] if ready else None
        later = [(life, life.copy.ready_ms) for life in candidates if life.copy is not None]
        waits += [ready_ms for life, ready_ms in later if now_ms < ready_ms and life.buildable(ready_ms)]
    elif hold not in {None, building} or (hold is None and floor is not None and building < floor):
        stop = building
    return Decision(want, refute, skip, supersede, remove, switch, build, stop, min(waits, default=None))


def _grown(copy: VersionCopy | None, decided: PartitionSet | None) -> PartitionSet | None:
    """Return the share of a copy if it changed; a share of another source waits until the copy is built anew."""
    if copy is None or decided is None or copy.state is CopyState.BUILDING:
        return None
    if copy.here is not None and not copy.damaged and copy.here.partitions != decided.partitions:
        return None
    is_first = copy.share is None or copy.share.partitions != decided.partitions
    share = decided if copy.share is None or is_first else copy.share | decided
    return share if share != copy.share else None


def _is_refuted(copy: VersionCopy | None, verdicts: VersionDecisions) -> bool:
    """True if the copy was grouped by relying on a function that a stray has refuted."""
    if copy is None or copy.identity is None or copy.identity.regrouped or copy.state is CopyState.BUILDING:
        return False
    return copy.identity.function in verdicts.refuted(copy.identity.digest)


def _is_skipped(life: Life, floor: str | None, hold: str | None) -> bool:
    """True if a closed version is outdated or has vanished; a lost active version stays, to be built again."""
    if life.open or life.is_building or life.state is not VersionState.KNOWN:
        return False
    if floor is not None and life.name < floor and life.name != hold:
        return True
    return life.source is None and life.heard is None and life.name != floor


def check(lives: Iterable[Life], verdicts: VersionDecisions, active: str | None, *, switching: bool) -> None:
    """Assert the invariants that hold whenever nothing is left to do at once.

    The last version made active is ACTIVE, and at most one is built.  Every other built version that may be switched to
    retires, unless a switch is pending because the system refused to write it down.
    """
    lives = tuple(lives)
    states = [(life.name, life.state, None if life.copy is None else life.copy.state) for life in lives]
    named = [life.name for life in lives if life.state is VersionState.ACTIVE]
    assert named == ([] if active is None else [active]), (active, states)
    assert sum(life.is_building for life in lives) <= 1, states
    for life in lives:
        assert life.state is not VersionState.GONE, states
        is_left = life.state is VersionState.KNOWN and life.is_ready and verdicts.may_switch(life.name)
        assert switching or not is_left, states
        assert life.open or not life.is_ready, life
        is_had = life.open or life.is_building or verdicts.passed(life.name)
        assert life.state is not VersionState.RETIRING or is_had, life
        copy = life.copy
        assert copy is None or copy.state is not CopyState.GONE, states
        assert copy is None or copy.state is not CopyState.ERROR or copy.trouble is not None, life
