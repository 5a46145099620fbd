"""Shard ids without a coordinator: each node claims the smallest free number, in the tree that all nodes read.

A claim is the key `nodes/<shard id>@<host:port>` of its owner. A claim is *provisional* until it has stood for the
convergence time, or until all expected members claim different ids; then it is *confirmed*, since no node is left to
object. If two nodes claim one number, all nodes see both claims and agree: confirmed beats provisional, then the
smaller (count, uuid, name) wins, where count is the number of the owner's picks. The loser picks again at once, and
keeps its other keys. An id from the settings is *configured*: several nodes may share it, it is never given up, and
automatic claims avoid it. A node that is about to leave adds that to its claim, which stands until the node has left.

Invariant: the key of this node below `nodes` is the claim of `shard_id`; there is none if `shard_id` is None.
"""

from __future__ import annotations

import enum
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import msgpack

from gossipkv.errors import TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.address import Address

NODES: Final = "nodes"


class Firmness(enum.StrEnum):
    """Firmness of a claim; the firmer of two is kept."""

    CONFIGURED = "configured"
    CONFIRMED = "confirmed"
    PROVISIONAL = "provisional"


PICKS_IN_SETTLING: Final = 8  # Picks of a node in one convergence time, beside the first two.

_RANK: Final[dict[str, int]] = {firmness: at for at, firmness in enumerate(Firmness)}


class Claimant(NamedTuple):
    """One claim; of two claims for one id the smaller is kept."""

    rank: int
    picks: int
    uuid: bytes
    owner: str  # The name of the owner: a copied and renamed data directory has the same uuid.


class ClaimPlace(NamedTuple):
    """Content of a claim."""

    shard_id: str | None = None
    is_firm: bool = False
    is_leaving: bool = False


class NodeEntry(NamedTuple):
    """Another node's key below `nodes`: its claim."""

    name: str
    owner: str
    value: bytes
    is_reachable: bool  # False if the owner is dead or has left, and is not forgotten yet.


class Claims(Protocol):
    """The claims of all nodes; in a node, gossip's tree below `nodes`."""

    def of_others(self) -> Iterable[NodeEntry]: ...
    def publish(self, path: str, value: bytes) -> None: ...  # May raise `TooLarge`; nothing has changed then.
    def withdraw(self, path: str) -> bool: ...  # Returns False if there was none.


@final
class ShardClaim:
    """The claim of one node.

    If many nodes start together, all claim 1 and all but one lose. So a loser does not take the next free number, like
    all other losers. Instead, it takes the number that it gets if all known losers pick in order, and it does not pick
    twice before the picks of others can have arrived.
    """

    def __init__(
        self,
        claims: Claims,
        *,
        name: str,
        uuid: bytes,
        address: Address,
        configured: str | None,
        remembered: str | None,
        settle_ms: int,
        expected: int = 0,
    ) -> None:
        """`remembered`: the id of the last run, claimed again; `settle_ms`: the convergence time.

        `expected`: the number of members, including this node; 0 if it is unknown.
        """
        self._claims = claims
        self._name = name
        self._uuid = uuid
        self._address = address
        self._wished = configured or remembered
        self._settle_ms = settle_ms
        self._expected = expected
        self._since_ms = 0  # When this claim began to stand.
        self._picks_at_ms = 0  # The earliest time of the next pick.
        self._lost = False
        self._waits_until_ms: int | None = None  # Set while there is no room to publish.
        self._count = 0
        self._isolated = self._is_leaving = False
        self.counters: Counter[str] = Counter()
        self.shard_id: str | None = None
        self.firmness = Firmness.CONFIGURED if configured else Firmness.PROVISIONAL

    @property
    def wakes_at_ms(self) -> int | None:
        """Time at which to call `step`, besides after each change below `nodes`."""
        if self._waits_until_ms is not None:
            return self._waits_until_ms
        if self._lost:
            return self._picks_at_ms
        if self.shard_id is None or self.firmness is not Firmness.PROVISIONAL or self._isolated:
            return None
        return self._since_ms + self._settle_ms

    def step(self, *, now_ms: int, isolated: bool = False) -> str | None:
        """Claim, yield or confirm; return an id to remember when it has become firm.

        Without room for the claim, the claim waits for room; the rest of the node does not depend on its id.
        """
        if self._waits_until_ms is not None and now_ms < self._waits_until_ms:
            return None
        try:
            firm = self._step(now_ms, isolated=isolated)
        except TooLarge:
            self.counters["claim_refused"] += 1
            self._waits_until_ms = now_ms + self._settle_ms
            return None
        self._waits_until_ms = None
        assert self.shard_id is not None, self.firmness
        return firm

    def leave(self) -> None:
        """Publish that this node is about to leave. Raises `TooLarge`: there is no room."""
        self._is_leaving = True
        if self.shard_id is not None:
            self._publish(self.shard_id, self.firmness)

    def _step(self, now_ms: int, *, isolated: bool) -> str | None:
        if self.firmness is Firmness.CONFIGURED:
            if self.shard_id is None and self._wished is not None:
                self._take(self._wished)
                return self.shard_id
            return None
        claims = self._other_claims()
        self._lost = False
        if self.shard_id is None:
            wished = self._wished
            if wished is None or any(other.rank < self._mine.rank for other in claims.get(wished, [])):
                wished, self._count = _free(set(claims)), 1  # A remembered id has count 0, and wins over these.
            self._pick(wished, now_ms)
        else:
            self._lost = any(other < self._mine for other in claims.get(self.shard_id, []))
            if self._lost and now_ms >= self._picks_at_ms:
                self._picks_at_ms = now_ms + self._settle_ms // PICKS_IN_SETTLING
                shard_id = _share(claims, self.shard_id, self._mine)
                self._count += 1
                self._pick(shard_id, now_ms)
        if isolated or self._isolated:
            self._since_ms = now_ms  # The claim has not stood before nodes that might object.
        self._isolated = isolated
        stands = now_ms - self._since_ms >= self._settle_ms or self._is_beyond_dispute(claims)
        if self.firmness is Firmness.PROVISIONAL and not isolated and stands:
            assert self.shard_id is not None
            self._publish(self.shard_id, Firmness.CONFIRMED)
            self.firmness = Firmness.CONFIRMED
            return self.shard_id
        return None

    def _is_beyond_dispute(self, claims: dict[str, list[Claimant]]) -> bool:
        """Return True if all expected members claim, each an id of its own."""
        counts = [*(len(claimants) for claimants in claims.values()), 1]
        return 0 < self._expected <= sum(counts) and max(counts) == 1 and not claims.get(self.shard_id or "")

    @property
    def _mine(self) -> Claimant:
        return Claimant(_RANK[self.firmness], self._count, self._uuid, self._name)

    def _pick(self, shard_id: str, now_ms: int) -> None:
        self.firmness = Firmness.PROVISIONAL
        self._since_ms = now_ms
        self._lost = False
        self._take(shard_id)

    def _take(self, shard_id: str) -> None:
        """Publish a claim, and then withdraw the one before, so that readers always find this node."""
        before = self.shard_id
        try:
            self._publish(shard_id, self.firmness)
        except TooLarge:
            if before is None:
                raise
            self._withdraw(before)
            self.shard_id = None
            self._publish(shard_id, self.firmness)
        else:
            if before is not None:
                assert before != shard_id, shard_id  # Otherwise the claim itself would be withdrawn.
                self._withdraw(before)
        self.shard_id = shard_id

    def _publish(self, shard_id: str, firmness: Firmness) -> None:
        value = {"claim": firmness.value, "count": self._count, "uuid": self._uuid}
        value |= {"leaving": True} if self._is_leaving else {}
        self._claims.publish(self._path(shard_id), msgpack.packb(value))

    def _withdraw(self, shard_id: str) -> None:
        was_there = self._claims.withdraw(self._path(shard_id))
        assert was_there, shard_id

    def _path(self, shard_id: str) -> str:
        return f"{NODES}/{shard_id}@{self._address}"

    def _other_claims(self) -> dict[str, list[Claimant]]:
        """Return the claims by shard id; claims of dead or gone nodes only block their id, until they are forgotten."""
        found: dict[str, list[Claimant]] = {}
        for entry in self._claims.of_others():
            claimants = found.setdefault(entry.name.rpartition("@")[0], [])
            claimant = _read(entry.value, entry.owner) if entry.is_reachable else None
            if claimant is not None:
                claimants.append(claimant)
        return found


def place_of(name: str, value: bytes) -> ClaimPlace | None:
    """Return the content of an entry below `nodes`; None if this program cannot read the claim."""
    claimant = _read(value, "")
    if claimant is None:
        return None
    is_firm = claimant.rank < _RANK[Firmness.PROVISIONAL]
    match _unpack(value):
        case {"leaving": True}:
            return ClaimPlace(name.rpartition("@")[0], is_firm, is_leaving=True)
    return ClaimPlace(name.rpartition("@")[0], is_firm)


def _free(taken: set[str]) -> str:
    return next(str(number) for number in count(1) if str(number) not in taken)


def _share(claims: dict[str, list[Claimant]], mine: str, me: Claimant) -> str:
    """Return this loser's id if all losers take the smallest free numbers, the firmer and earlier first."""
    losers = [me]
    for shard_id, claimants in claims.items():
        best = min([*claimants, me] if shard_id == mine else claimants, default=None)
        losers += [loser for loser in claimants if loser != best and loser.rank]
    taken = set(claims)
    for loser in sorted(losers):
        shard_id = _free(taken)
        if loser == me:
            break
        taken.add(shard_id)
    return shard_id


def _read(value: bytes, owner: str) -> Claimant | None:
    """Return another node's claim; None if its version is unknown."""
    match _unpack(value):
        case {"claim": str(firmness), "count": int(picks), "uuid": bytes(uuid)} if firmness in _RANK:
            return Claimant(_RANK[firmness], picks, uuid, owner)
    return None


def _unpack(value: bytes) -> object:
    try:
        return msgpack.unpackb(value)
    except (ValueError, msgpack.UnpackException):
        return None
