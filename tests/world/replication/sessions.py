"""A checker of session guarantees that knows nothing of tokens.

Every value is written once.  A write comes after all earlier writes and reads of its session, and after all writes that
those came after.  A read must not show anything *older* than a write of its key that its session has written or read,
or that precedes one of these; of two writes without an order either may be shown.  These rules are all four guarantees:
read your writes, monotonic reads, writes follow reads, monotonic writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence


WRITES, READS = True, False


class Did(NamedTuple):
    """A session's action, in the order of its answers."""

    session: Hashable
    is_write: bool
    key: Hashable  # Includes the table.
    value: bytes | None  # None: the write deletes, or the read found nothing.
    is_known: bool = True  # The session knows that its write was applied.


@final
class Guarantees:
    """Judges the actions of sessions, one after the other."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._past: dict[Hashable, int] = {}  # By session: the preceding writes, a bit each.
        self._before: list[int] = []  # By write: the preceding writes.
        self._of_value: dict[tuple[Hashable, bytes], int] = {}
        self._deletes: dict[Hashable, list[int]] = {}
        self._of_key: dict[Hashable, int] = {}  # All writes of a key, a bit each.
        # Deletes that may not have been applied, as far as their sessions know.
        self._open: dict[tuple[Hashable, Hashable], int] = {}

    def judge(self, answers: Iterable[Sequence[Did]]) -> list[str]:
        """Return the faults of a history; one answer with several values is no snapshot."""
        for answer in answers:
            before = dict(self._past)
            for did in answer:
                if did.is_write:
                    self._write(did)
                else:
                    self._read(did, before.get(did.session, 0))
        return self.faults

    def _write(self, did: Did) -> None:
        """Take in a write; an unknown delete may come again once it is known to be applied."""
        if did.value is None and did.is_known and (did.session, did.key) in self._open:
            known = self._open.pop((did.session, did.key))
            self._past[did.session] = self._past.get(did.session, 0) | 1 << known
            return
        number, past = len(self._before), self._past.get(did.session, 0)
        self._before.append(past)
        if did.value is None:
            self._deletes.setdefault(did.key, []).append(number)
            if not did.is_known:
                self._open[did.session, did.key] = number
        else:
            self._of_value[did.key, did.value] = number
        self._of_key[did.key] = self._of_key.get(did.key, 0) | 1 << number
        if did.is_known:
            self._past[did.session] = past | 1 << number

    def _read(self, did: Did, past: int) -> None:
        known = past & self._of_key.get(did.key, 0)
        if did.value is None:
            if known and not any(self._may_show(number, known) for number in self._deletes.get(did.key, ())):
                self.faults.append(f"nothing was found, where there was something: {did}")
            return
        number = self._of_value.get((did.key, did.value), -1)
        if number < 0:
            self.faults.append(f"from nowhere: {did}")
        elif not self._may_show(number, known):
            self.faults.append(f"older than what its session knew: {did}")
        else:
            self._past[did.session] = self._past.get(did.session, 0) | self._before[number] | 1 << number

    def _may_show(self, number: int, known: int) -> bool:
        """Return True if none of the known writes came after this one."""
        while known:
            last = known.bit_length() - 1
            if self._before[last] >> number & 1:
                return False
            known -= 1 << last
        return True
