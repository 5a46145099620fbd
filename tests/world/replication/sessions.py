"""What sessions were shown, held against what they may be shown: a checker that knows nothing of tokens.

Every value is written once.  A write comes after all that its session has written and read before, and after all that
those came after.  What a read shows must not be *older* than anything of its key that its session has written or read,
or that this came after: of two writes of which neither came after the other either may be shown.  That is all four:
read your writes, monotonic reads, writes follow reads, monotonic writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence


WRITES, READS = True, False


class Did(NamedTuple):
    """What a session has done, in the order of its answers."""

    session: Hashable
    is_write: bool
    key: Hashable  # With the table.
    value: bytes | None  # None: it deletes, or nothing was found.
    is_known: bool = True  # The session knows that its write was applied.


@final
class Guarantees:
    """Judges what is done, one after the other."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._past: dict[Hashable, int] = {}  # By session: the writes that it comes after, a bit each.
        self._before: list[int] = []  # Of each write those that it comes after.
        self._of_value: dict[tuple[Hashable, bytes], int] = {}
        self._deletes: dict[Hashable, list[int]] = {}
        self._of_key: dict[Hashable, int] = {}  # All of its writes, a bit each.
        self._open: dict[tuple[Hashable, Hashable], int] = {}  # Deletes that their sessions do not know to be applied.

    def judge(self, answers: Iterable[Sequence[Did]]) -> list[str]:
        """All that is wrong with a history; what one answer has shown is no snapshot."""
        for answer in answers:
            before = dict(self._past)
            for did in answer:
                if did.is_write:
                    self._write(did)
                else:
                    self._read(did, before.get(did.session, 0))
        return self.faults

    def _write(self, did: Did) -> None:
        """Take in a write; a delete that was not known to be applied may be told again, when it is."""
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
        """Whether none of the writes that are known came after this one."""
        while known:
            last = known.bit_length() - 1
            if self._before[last] >> number & 1:
                return False
            known -= 1 << last
        return True
