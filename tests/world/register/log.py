"""The content of a simulated register: a log of its changes, each of which names its predecessor.

An entry has the number of an operation, an item, a flag that the item replaced all others, and the name of the entry
before; its own name is a hash of that.  So a payload contains its whole past, and two payloads with a common parent are
recognized.  Item 0 with the flag leaves an empty state.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.register.changes import Applied, ChangeRefused, read
from tests.world.register.linearizable import Append, Read, Swap

if TYPE_CHECKING:
    from gossipkv.register.changes import RegisterChange
    from gossipkv.register.configuration import Value
    from tests.world.register.linearizable import Call, State

_ENTRY: Final = Struct("<IH?8s")

CREATED: Final = b"\0" * 8  # The name of an empty log.


class Log(NamedTuple):
    """A decoded payload."""

    name: bytes
    parent: bytes | None  # The name before the last entry; None: there is none.
    operation: int  # The last entry's.
    state: State
    done: dict[int, State]  # The state after each operation.
    is_linked: bool  # True if each entry names the one before it.


EMPTY: Final = Log(CREATED, None, 0, (), {}, is_linked=True)


def encode_state(state: State) -> bytes:
    return b"".join(item.to_bytes(2, "little") for item in state)


def decode_state(data: bytes) -> State:
    return tuple(int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2))


@final
class Logs:
    """All logs of a run, each decoded once."""

    def __init__(self) -> None:
        self._read: dict[bytes, Log] = {b"": EMPTY}

    def __getitem__(self, payload: bytes) -> Log:
        log = self._read.get(payload)
        if log is None:
            before = self[payload[: -_ENTRY.size]]
            entry = payload[-_ENTRY.size :]
            operation, item, is_swap, parent = _ENTRY.unpack(entry)
            kept = () if is_swap else before.state
            state = kept if is_swap and not item else (*kept, item)
            is_linked = before.is_linked and parent == before.name and operation not in before.done
            name = blake2b(entry, digest_size=8).digest()
            log = Log(name, parent, operation, state, {**before.done, operation: state}, is_linked)
            self._read[payload] = log
        return log

    def all(self) -> list[Log]:
        return list(self._read.values())

    def change_of(self, call: Call, operation: int) -> RegisterChange:
        """Return the change of a register that a client asks for."""
        return read if isinstance(call, Read) else lambda value, _: self._applied(call, operation, value)

    def _applied(self, call: Append | Swap, operation: int, value: Value) -> Applied | ChangeRefused:
        log = self[value.payload]
        match call:
            case Append(item):
                return self._added(value.payload, operation, item, is_swap=False)
            case Swap(expected, wanted):
                if log.state != expected and operation not in log.done:
                    return ChangeRefused("CONFLICT", encode_state(log.state).hex())
                return self._added(value.payload, operation, *wanted or (0,), is_swap=True)

    def _added(self, payload: bytes, operation: int, item: int, *, is_swap: bool) -> Applied:
        log = self[payload]
        if operation not in log.done:
            payload += _ENTRY.pack(operation, item, is_swap, log.name)
        return Applied(payload, encode_state(self[payload].done[operation]))
