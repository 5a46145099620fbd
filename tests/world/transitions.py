"""The transitions of the membership table that a run takes, counted from outside by a table that counts."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

from gossipkv.gossip.member import NEXT, MemberEvidence, MemberState
from gossipkv.gossip.membership import beliefs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Key = tuple[MemberState | None, MemberEvidence]


def name(key: Key) -> str:
    state, said = key
    return f"{'UNKNOWN' if state is None else state.name} + {said.name}"


ALL: Final = frozenset(map(name, NEXT))


@final
class _Counting:
    """The transition table; each entry that is found counts."""

    def __init__(self, table: Mapping[Key, MemberState | None], taken: Counter[str]) -> None:
        self._table = table
        self._taken = taken

    def __contains__(self, key: Key) -> bool:
        if key not in self._table:
            return False
        self._taken[name(key)] += 1
        return True

    def get(self, key: Key) -> MemberState | None:
        return self._table[key] if key in self else None


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count how often each transition is taken until the block ends."""
    taken: Counter[str] = Counter()
    module = vars(beliefs)  # Only this module reads the table; its name is final for all other code.
    table = module["NEXT"]
    module["NEXT"] = _Counting(table, taken)
    try:
        yield taken
    finally:
        module["NEXT"] = table
