"""The head of a map: the payload of its register, and the change functions from one head to the next.

    [format, config id, transaction, root, [[config id, transaction, root], ...], ended]    the last heads, newest first

A transaction has a random id of 16 bytes, so a repeated swap finds that it is done, even if others came after it. The
config id of a head has the generation of the ballot that swapped it in. `drop` ends a map for good.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import starmap
from operator import attrgetter
from typing import Final, NamedTuple

from gossipkv.errors import ProtocolError
from gossipkv.register.changes import READING, Applied, ChangeRefused, RegisterChange
from gossipkv.register.metadata.pages import NAME_BYTES, generation_of, is_whole, pack, sequence_of, unpack

FORMAT: Final = 1
TRANSACTION_BYTES: Final = 16
LAST_HEADS: Final = 8  # A reader of a changing map has the time of this many transactions.
MAX_HEAD_BYTES: Final = 4 << 10


class Past(NamedTuple):
    """An earlier head."""

    config: int
    transaction: bytes
    root: bytes


_transaction = attrgetter("transaction")


class MapHead(NamedTuple):
    """The head of a map after one transaction."""

    config: int
    transaction: bytes
    root: bytes  # The name of its page.
    last: tuple[Past, ...] = ()
    ended: bool = False

    @property
    def roots(self) -> frozenset[bytes]:
        """The roots that are kept for readers."""
        return frozenset({self.root, *(past.root for past in self.last)})

    def encode(self) -> bytes:
        """Return the payload."""
        return pack((FORMAT, *self))

    def followed_by(self, config: int, transaction: bytes, root: bytes) -> MapHead:
        """Return the head of the next transaction."""
        last = (Past(self.config, self.transaction, self.root), *self.last)
        return MapHead(config, transaction, root, last[:LAST_HEADS])


@lru_cache(maxsize=64)  # A head is decoded before and after each of its steps.
def decode_head(payload: bytes) -> MapHead:
    """Read a payload.

    Raises:
        ProtocolError: the payload is no head in this format.
    """
    match unpack(payload, MAX_HEAD_BYTES):
        case (format_, config, transaction, root, tuple(last), bool(ended)) if format_ == FORMAT:
            is_of_rows = len(last) <= LAST_HEADS and {*map(type, last)} <= {tuple} and {*map(len, last)} <= {3}
            if is_of_rows:
                return MapHead(*_past_of(config, transaction, root), tuple(starmap(_past_of, last)), ended)
    form = "[1, config id, transaction, root, last heads, ended]"
    raise ProtocolError(f"a head must be {form}", {"got": repr(payload)[:80]})


def swap(expected: bytes, config: int, transaction: bytes, root: bytes) -> RegisterChange:
    """Return the change from one transaction's head to the next."""
    return RegisterChange("swap", 1, pack((expected, config, transaction, root)))


def drop(operation: bytes) -> RegisterChange:
    """Return the change that ends a map for good; its result tells if another operation had ended it before."""
    return RegisterChange("drop", 1, operation[:TRANSACTION_BYTES])


DROPPED_BEFORE: Final = b"before"


@lru_cache(maxsize=256, typed=True)  # Most rows of a head were in the head before.
def _past_of(config: object, transaction: object, root: object) -> Past:
    if (
        is_whole(config)
        and isinstance(transaction, bytes) and len(transaction) == TRANSACTION_BYTES
        and isinstance(root, bytes) and len(root) == NAME_BYTES
    ):  # fmt: skip
        return Past(config, transaction, root)
    row = config, transaction, root
    raise ProtocolError("an earlier head must be [config id, transaction, root]", {"got": repr(row)[:80]})


def _swap(payload: bytes, argument: bytes, generation: int) -> Applied | ChangeRefused:
    match unpack(argument, MAX_HEAD_BYTES):
        case (bytes(expected), int(config), bytes(transaction), bytes(root)):
            head = decode_head(payload)
        case _:
            return ChangeRefused("BAD_REQUEST", "swap takes [expected transaction, config id, transaction, root]")
    if transaction in [head.transaction, *map(_transaction, head.last)]:
        return Applied(payload)
    if head.ended:
        return ChangeRefused("UNKNOWN_DATABASE", "the table was dropped")
    if head.transaction != expected or sequence_of(config) != sequence_of(head.config) + 1:
        return ChangeRefused("CONFLICT", "another transaction was applied first")
    if generation_of(config) != generation:
        return ChangeRefused("CONFLICT", f"the register is in generation {generation} now")
    return Applied(head.followed_by(config, transaction, root).encode())


def _drop(payload: bytes, argument: bytes, generation: int) -> Applied | ChangeRefused:
    del generation
    head = decode_head(payload)
    if not head.ended:
        head = head.followed_by(head.config, argument, head.root)._replace(ended=True)
    return Applied(head.encode(), b"" if head.transaction == argument else DROPPED_BEFORE)


FUNCTIONS: Final = READING | {("swap", 1): _swap, ("drop", 1): _drop}
