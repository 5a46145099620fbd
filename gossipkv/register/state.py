"""The map of one register on one node: its decided base, the accepted transactions over it, and the last ones below.

    base      the map as of a decided transaction, in memory and, an entry a record, in the store
    states    the maps after accepted transactions over the base, in memory
    history   the last transactions up to the base's, for nodes whose base is older

The acceptor's value is durable by its record. The base is written in the batch of an acceptance, which says what was
decided before, so it costs no sync of its own. In the store it may be older than in memory, never newer than decided.

Rules (the numbers are those of `docs/development/metadata.md`):

* A value is *held* if its transactions continue the base and give its digest (rule 7).
* The base has decided transactions only, and never falls, by generation and sequence (rule 9).
* A base of a lost generation is off the chain: its digest does not fit, and a snapshot replaces it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.register.ballot import BELOW, Ballot, ballot_of
from gossipkv.register.configuration import Acceptors, acceptors_of
from gossipkv.register.edits import (
    DIGEST_BYTES,
    EMPTY,
    MAX_TAIL_BYTES,
    MapValue,
    Transaction,
    digest_after,
    digest_of,
)
from gossipkv.register.entries import EntryMap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gossipkv.register.edits import Edit

    Batches = list[dict[bytes, bytes | None]]

FORMAT: Final = 1
HEADER: Final = b""  # The key of the header in the store, behind the register's prefix.
MAX_HISTORY: Final = 4096  # Transactions.
MAX_HISTORY_BYTES: Final = 1 << 20
BATCH_BYTES: Final = 128 << 10
MAX_STATES: Final = 4  # A value has one new transaction; a round that failed leaves another.


class Base(NamedTuple):
    """The map of a register after one transaction; it never changes."""

    generation: int = 0  # The generation of the ballot that decided it.
    sequence: int = 0
    digest: bytes = EMPTY
    size_bytes: int = 0  # The size of all keys and records.
    ended: bool = False
    entries: EntryMap = EntryMap()
    acceptors: Acceptors | None = None  # The last known ones: a hint, since the register names its own.
    shown: Ballot = BELOW  # The ballot of the value that had these acceptors.

    @property
    def place(self) -> tuple[int, int]:
        """The position of this map among all maps of the register."""
        return self.generation, self.sequence

    def with_acceptors(self, acceptors: Acceptors | None, shown: Ballot) -> Base:
        """Return the map with the acceptors of this ballot, unless those of a later one are known."""
        if acceptors is None or shown < self.shown:
            return self
        return self._replace(acceptors=acceptors, shown=shown)

    def after(self, edits: Sequence[Edit]) -> Base:
        """Return the map after the next transaction."""
        entries, size_bytes = self.entries, self.size_bytes
        before = {key: entries.get(key) for key, _ in edits}
        for key, record in edits:
            was = before[key]
            size_bytes += 0 if record is None else len(key) + len(record)
            size_bytes -= 0 if was is None else len(key) + len(was)
        digest = digest_after(self.digest, edits, before)
        edited = entries.edited(edits) if edits else entries
        return self._replace(sequence=self.sequence + 1, digest=digest, size_bytes=size_bytes, entries=edited)


@final
class RegisterMap:
    """The map of one register on this node."""

    def __init__(self, base: Base | None = None, slot: int = 0) -> None:
        """`base`: as read from the store, from the records of `slot`; None: nothing of the map is here."""
        self.base = base
        self.is_damaged = False  # The base was found not to have its digest: it is no base of anything.
        self._slot = slot
        self._least = 0, 0  # The place that was decided by what was accepted here.
        self._history: deque[Transaction] = deque()
        self._history_bytes = 0
        # Maps over the base, by the digest before a transaction and the transaction; the latest come last.
        self._states: dict[tuple[bytes, Transaction], Base] = {}
        self._records: dict[bytes, bytes | None] = {}  # Records of the base that were not taken yet.

    # -- acceptance ----------------------------------------------------------------------------------------------------

    def holds(self, value: MapValue) -> bool:
        """Return True if this node may accept a value, or promise to be a newcomer to it (rule 7)."""
        return bool(value.ended) or self.state_of(value) is not None

    def state_of(self, value: MapValue) -> Base | None:
        """Return the map after a value's transactions; None if they do not continue the base to its digest."""
        base = self.base if self.base is not None else Base()
        if self.is_damaged or value.sequence < base.sequence or not _fits(base, value.tail):
            return None
        for transaction in value.tail:
            if transaction.sequence > base.sequence:
                state = self._after(base, transaction)
                if state is None:
                    return None
                base = state
        return base if (base.sequence, base.digest) == (value.sequence, value.digest) else None

    def _after(self, base: Base, transaction: Transaction) -> Base | None:
        """Return the map after a transaction; None if it does not follow this map, or has another digest.

        The map is kept, since its value is probably accepted now, and decided soon. Each map that is kept continues
        another one by its transaction, so the node can make it again from its base and the accepted value.
        """
        if transaction.sequence != base.sequence + 1:
            return None
        state = self._states.get((base.digest, transaction))
        if state is None:
            state = base.after(transaction.edits)
            if state.digest != transaction.digest:
                return None
            self._keep(base, transaction, state)
        return state

    def _keep(self, before: Base, transaction: Transaction, state: Base) -> None:
        self._states[before.digest, transaction] = state
        if len(self._states) > MAX_STATES:
            del self._states[next(iter(self._states))]

    # -- proposals -----------------------------------------------------------------------------------------------------

    def is_full(self, found: MapValue) -> bool:
        """Return True if a found value must be decided as it is before another transaction joins its tail (rule 8)."""
        decided = self._decided(found)
        tail_bytes = sum(_size_of(transaction) for transaction in found.tail if transaction.sequence > decided)
        return tail_bytes > MAX_TAIL_BYTES

    def next_value(self, found: MapValue, state: Base, edits: Sequence[Edit]) -> MapValue:
        """Return the value that continues a found one, whose map is `state`, by a transaction of these edits."""
        after, decided = state.after(edits), self._decided(found)
        last = Transaction(after.sequence, tuple(edits), after.digest)
        self._keep(state, last, after)
        # From the transactions that were decided since, acceptors learn the decision, also those that missed the last
        # value. Without them, an acceptor of the found value would lack a part of the way from its base.
        first = min(found.decided + 1, decided)
        tail = [transaction for transaction in found.tail if transaction.sequence >= first]
        if sum(map(_size_of, tail)) > MAX_TAIL_BYTES:
            tail = [transaction for transaction in found.tail if transaction.sequence > decided]
        return MapValue(after.sequence, after.digest, decided, (*tail, last))

    def _decided(self, found: MapValue) -> int:
        """Return the last sequence of a held value that is known to be decided (rule 9)."""
        return found.decided if self.base is None else max(found.decided, min(self.base.sequence, found.sequence))

    def highest(self, accepted: Ballot, value: MapValue) -> MapValue:
        """Return the value that a force goes on with: the base, if it is decided and beyond what survivors accepted."""
        base = self.base
        if base is None or self.is_damaged or base.generation < accepted.generation:
            return value
        # Survivors may have accepted more transactions than were decided, of another line: then the sequence is higher.
        is_behind = base.sequence < value.decided or (base.sequence <= value.sequence and self.holds(value))
        if base.generation == accepted.generation and is_behind:
            return value
        return MapValue(base.sequence, base.digest, base.sequence, (), b"ended" if base.ended else b"")

    # -- decisions -----------------------------------------------------------------------------------------------------

    def decide(
        self, value: MapValue, generation: int, upto: int, acceptors: Acceptors | None = None, shown: Ballot = BELOW
    ) -> bool:
        """Take the transactions of a value up to a decided sequence into the base.

        `acceptors`, `shown`: the value's acceptors and its ballot, if all of it is decided.

        Return False if the base does not lead there: it is older, or of a lost generation.
        """
        base = self.base if self.base is not None else Base()
        # A majority that has not heard of a force may show more than was accepted here.
        least, self._least = self._least, max(self._least, (generation, upto))
        if (generation, upto) < max(base.place, least):
            return True
        if value.ended and upto == value.sequence:  # An ended map has no readers, so it need not be here.
            return self.end(generation, upto, acceptors, shown)
        steps = [transaction for transaction in value.tail if base.sequence < transaction.sequence <= upto]
        if self.is_damaged or base.sequence + len(steps) != upto:
            return False
        if not steps and upto == value.sequence and base.digest != value.digest:
            return False
        if generation > base.generation and self.state_of(value) is None:
            return False
        return self.follow(generation, steps, acceptors, shown)

    def follow(
        self,
        generation: int,
        transactions: Sequence[Transaction],
        acceptors: Acceptors | None = None,
        shown: Ballot = BELOW,
    ) -> bool:
        """Take decided transactions into the base; return False, and take none, if they do not continue it.

        The first transactions may be in the base already. Requires: if there are none, the base has the decided digest.
        """
        base = before = self.base if self.base is not None else Base()
        if self.is_damaged or not _fits(base, transactions):
            return False
        # A base beyond decided transactions of a newer generation is of a lost line.
        if generation > base.generation and transactions and transactions[-1].sequence < base.sequence:
            return False
        steps = [transaction for transaction in transactions if transaction.sequence > base.sequence]
        for transaction in steps:
            state = self._after(base, transaction)
            if state is None:
                return False
            base = state
        # A kept map may have been made before the acceptors were known.
        base = base._replace(
            generation=max(generation, before.generation), acceptors=before.acceptors, shown=before.shown
        ).with_acceptors(acceptors, shown)
        if self.base is not None and base == before:
            return True
        for transaction in steps:
            self._records |= {self._key(key): record for key, record in transaction.edits}
            self._remember(transaction)
        self._states = {of: state for of, state in self._states.items() if state.sequence > base.sequence}
        self._set(base)
        return True

    def _remember(self, transaction: Transaction) -> None:
        self._history.append(transaction)
        self._history_bytes += _size_of(transaction)
        while len(self._history) > MAX_HISTORY or self._history_bytes > MAX_HISTORY_BYTES:
            self._history_bytes -= _size_of(self._history.popleft())

    def takes(self, place: tuple[int, int]) -> bool:
        """Return True if a decided map of this place may replace the base (rule 9).

        A base of an earlier generation may have more than a map of a newer one, and an accepted value continue it.
        """
        return place >= self._least and (self.base is None or self.is_damaged or place >= self.base.place)

    def replace(self, base: Base) -> tuple[Batches, Batches]:
        """Replace the base by a decided one that was read from another node.

        Return the batches that write its entries, beside those of the base before, and the batches that delete these.
        The header, among `records`, is written between them, so a crash leaves one of the two bases whole. Requires:
        the new one is not below the base, unless that is damaged.
        """
        assert self.takes(base.place), (self.base, base)
        gone = self._stored_keys()
        self._slot = 1 - self._slot
        self._records, self._states, self.is_damaged = {}, {}, False
        self._history.clear()
        self._history_bytes = 0
        self._set(base)
        return _batched((self._key(key), record) for key, record in base.entries.scan()), _batched(gone.items())

    def end(self, generation: int, sequence: int, acceptors: Acceptors | None, shown: Ballot) -> bool:
        """Take the end of the map, for good; its entries are deleted when it is forgotten."""
        base = self.base if self.base is not None else Base()
        if (generation, sequence) >= base.place and not base.ended:
            last = base._replace(generation=generation, sequence=sequence, ended=True)
            self._set(last.with_acceptors(acceptors, shown))
        return True

    def gone(self, *, but_end: bool) -> Batches:
        """Return the batches that delete all records of the map; `but_end`: all but its end.

        The header is the first. After a crash, entries that it does not describe are deleted at the start.
        """
        base = self.base
        header = encode_header(base, 1 - self._slot) if base is not None and but_end else None
        return [{HEADER: header}, *_batched(self._stored_keys().items())]

    def _stored_keys(self) -> dict[bytes, None]:
        """Return the keys of entries that may be in the store, also of those whose deletion was not written yet."""
        entries = () if self.base is None else self.base.entries.scan()
        keys = dict.fromkeys([self._key(key) for key, _ in entries]) | dict.fromkeys(self._records)
        keys.pop(HEADER, None)
        return keys

    def _set(self, base: Base) -> None:
        self.base = base
        self._records[HEADER] = encode_header(base, self._slot)

    # -- other nodes ---------------------------------------------------------------------------------------------------

    def since(self, generation: int, sequence: int) -> Sequence[Transaction] | None:
        """Return the transactions after a base of another node; None if the history does not reach back so far."""
        base = self.base
        if base is None or self.is_damaged or generation > base.generation or sequence > base.sequence:
            return None
        if base.ended:  # The transactions before the end may not be here.
            return None
        count = base.sequence - sequence
        if count > len(self._history):
            return None
        return [*self._history][len(self._history) - count :]

    # -- the store -----------------------------------------------------------------------------------------------------

    def records(self) -> dict[bytes, bytes | None]:
        """Return the records of the base that have changed since the last call, for the batch that is appended now."""
        records, self._records = self._records, {}
        return records

    @property
    def has_records(self) -> bool:
        """True if the base has changed since the last call of `records`."""
        return bool(self._records)

    def check(self) -> bool:
        """Compare the base, as it was read from the store, with its digest; return False if it is damaged."""
        base = self.base  # The entries of an ended map may be deleted.
        return base is None or base.ended or digest_of(base.entries.scan()) == base.digest

    def _key(self, key: bytes) -> bytes:
        return bytes((self._slot,)) + key


def first_value(edits: Sequence[Edit]) -> MapValue:
    """Return the value that begins a map with these edits, as its first transaction."""
    after = Base().after(edits)
    return MapValue(1, after.digest, 0, (Transaction(1, tuple(edits), after.digest),))


def _batched(records: Iterable[tuple[bytes, bytes | None]]) -> Batches:
    """Return records in batches of a size that a store writes at once."""
    batches: Batches = []
    left_bytes = 0
    for key, record in records:
        left_bytes -= len(key) + len(record or b"")
        if left_bytes < 0:
            batches.append({})
            left_bytes = BATCH_BYTES
        batches[-1][key] = record
    return batches


def _fits(base: Base, transactions: Iterable[Transaction]) -> bool:
    """Return False if there is another transaction of the base's sequence."""
    for transaction in transactions:  # Each accept asks this: a generator would cost more than the comparison.
        if transaction.sequence == base.sequence and transaction.digest != base.digest:
            return False
    return True


def _size_of(transaction: Transaction) -> int:
    return sum([len(key) + len(record or b"") for key, record in transaction.edits])


def encode_header(base: Base, slot: int) -> bytes:
    """Return the record that describes a base."""
    acceptors = () if base.acceptors is None else base.acceptors
    shown = None if base.acceptors is None else base.shown
    packed: bytes = msgpack.packb((FORMAT, slot, *base[:5], acceptors, shown))
    return packed


def read_map(records: Iterable[tuple[bytes, bytes]]) -> tuple[RegisterMap, list[bytes]]:
    """Return the map of a register from its records in the store, in order, and the keys that belong to none.

    Raises:
        ProtocolError: the header is no header.
    """
    rows = iter(records)
    first, header = next(rows, (HEADER, None))
    if header is None:
        return RegisterMap(), []
    if first != HEADER:
        return RegisterMap(), [first, *(key for key, _ in rows)]
    base, slot = decode_header(header)
    entries: list[tuple[bytes, bytes]] = []
    strange: list[bytes] = []
    for key, record in rows:
        if key[0] == slot:
            entries.append((key[1:], record))
        else:
            strange.append(key)
    return RegisterMap(base._replace(entries=EntryMap.of(entries)), slot), strange


def decode_header(data: bytes) -> tuple[Base, int]:
    """Read the record that describes a base: the base without entries, and the slot of its entries.

    Raises:
        ProtocolError: the record does not have that form.
    """
    try:
        row = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError("the header of a map must be MessagePack", {"got": repr(data[:40])}) from error
    match row:
        case [
            int(made),
            int(slot),
            int(generation),
            int(sequence),
            bytes(digest),
            int(size),
            bool(ended),
            of,
            shown,
        ] if made == FORMAT and slot in {0, 1} and len(digest) == DIGEST_BYTES:
            base = Base(generation, sequence, digest, size, ended)
            if shown is not None:
                base = base._replace(acceptors=acceptors_of(of), shown=ballot_of(shown))
            return base, slot
    raise ProtocolError("this is no header of a map", {"got": repr(data[:80])})
