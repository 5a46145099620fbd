"""Which transitions of the table of membership were taken: counted from outside, by a table that counts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Self, final

from gossipkv.gossip.membership import states

if TYPE_CHECKING:
    from types import TracebackType

    from gossipkv.gossip.member import State
    from gossipkv.gossip.membership.states import Said

_Key = tuple["State | None", "Said"]


def name(key: _Key) -> str:
    """A transition in words."""
    state, said = key
    return f"{'UNKNOWN' if state is None else state.name} + {said.name}"


ALL = frozenset(name(key) for key in states.NEXT)


@final
class Transitions:
    """While it is entered, `taken` counts."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._before = states.NEXT
        states.NEXT = _Counting(self._before, self.taken)  # type: ignore[misc]  # Final for everybody else.
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        states.NEXT = self._before  # type: ignore[misc]  # As above.


class _Counting(dict[_Key, "State | None"]):
    def __init__(self, table: object, taken: Counter[str]) -> None:
        super().__init__(table)
        self._taken = taken
