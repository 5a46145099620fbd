"""Hints: what nodes tell each other of registers in the tree, which decides nothing, and causes looks.

`tables/<register>` is published by each server of a map:

    [generation, sequence, root, [[uuid, store id], …]]      empty: of the catalogue, by who may found it

Whoever finds there what it does not know looks at the register, once for each thing said; a poll covers what it missed.
A hint is worth something as long as somebody does not know it: of more tables than have room, those that changed last
are told.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack

from gossipkv.errors import ProtocolError, TooLarge
from gossipkv.register.configuration import Acceptors, members_of
from gossipkv.register.metadata.pages import config_id, generation_of, sequence_of

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.metadata.known import KnownMap
    from gossipkv.register.metadata.tables import NamedTable
    from gossipkv.table.ports import OwnTree

TABLES: Final = "tables"  # In the tree.
ROOM_PART: Final = 4  # Of this node's branch hints take one in so many; the rest is for what it serves.
PATH_BYTES: Final = 64  # About what an entry takes beside its value.


class MapHint(NamedTuple):
    """What somebody says of a map."""

    config: int
    acceptors: Acceptors

    def is_news_to(self, known: KnownMap | None) -> bool:
        """Whether it may be newer than what is known: other acceptors alone do not raise the config id."""
        if known is None or self.config > known.config:
            return True
        return self.config == known.config and self.acceptors.new != known.acceptors.new


@final
class HintBoard:
    """What this node says, and what it hears."""

    def __init__(self, tree: OwnTree, own: str, *, branch_bytes: int) -> None:
        """`own`: this node's name; `branch_bytes`: the room that it has in the tree."""
        self._tree = tree
        self._own = own
        self._room_bytes = branch_bytes // ROOM_PART
        self._said: dict[bytes, bytes] = {}  # By register, the one that changed last at the end.
        self._encoded: dict[bytes, tuple[KnownMap, bytes]] = {}  # By register, what may be said of it.
        self._silent: set[bytes] = set()  # Of those, without room in the tree until they change.
        self._heeded: dict[tuple[bytes, str], bytes] = {}  # What was said of a register, by whom: it was looked at.

    def say(
        self,
        known: Mapping[bytes, KnownMap],
        me: AcceptorId | None,
        founds: bytes | None,
        heard: Mapping[bytes, Mapping[str, bytes]],
        *,
        open_: Container[bytes] = (),
    ) -> bool:
        """Tell of the maps that this node is a server of; and that it may found that catalogue, if it may.

        `heard`: what others say, which nobody says after them; `open_`: registers that are read just now, since others
        seem to know more.  Returns whether there was anything to tell.
        """
        before, self._encoded = self._encoded, {}
        for register, each in known.items():
            if not each.head.ended and me in each.acceptors.new:
                made = before.get(register)
                self._encoded[register] = made if made and made[0] is each else (each, encode_hint(each))
        wanted = {register: value for register, (_, value) in self._encoded.items()}
        if founds is not None and founds not in known:
            wanted[founds] = b""
        for register in [register for register in self._said if register not in wanted]:
            self._withdraw(register)
        is_new = False
        for register, value in wanted.items():
            is_said = value and value in heard.get(register, {}).values()
            if self._said.get(register) != value and not is_said and register not in open_:
                self._said.pop(register, None)
                self._said[register] = value
                is_new = True
                self._silent.discard(register)
                with contextlib.suppress(TooLarge):  # It is told in `status`; others find it by their poll.
                    self._tree.publish(f"{TABLES}/{register.hex()}", value)
        self._make_room()
        return is_new

    def _make_room(self) -> None:
        told = [
            (register, PATH_BYTES + len(value))
            for register, value in self._said.items()
            if register not in self._silent
        ]
        size_bytes = sum(size for _, size in told)
        for register, size in told:
            if size_bytes <= self._room_bytes:
                return
            size_bytes -= size
            self._silent.add(register)
            self._tree.withdraw(f"{TABLES}/{register.hex()}")

    def _withdraw(self, register: bytes) -> None:
        del self._said[register]
        self._silent.discard(register)
        self._tree.withdraw(f"{TABLES}/{register.hex()}")

    def heard(self) -> dict[bytes, dict[str, bytes]]:
        """What others say of registers: by register, by who says it."""
        heard: dict[bytes, dict[str, bytes]] = {}
        for entry in self._tree.below(TABLES):
            with contextlib.suppress(ValueError):
                if entry.owner != self._own:
                    heard.setdefault(bytes.fromhex(entry.name), {})[entry.owner] = entry.value
        return heard

    def news(self, register: bytes, said: Mapping[str, bytes], known: KnownMap | None) -> Sequence[MapHint]:
        """What is said of a register that is not known here, and was not looked at before."""
        found = []
        for owner, value in said.items():
            if value and self._heeded.get((register, owner)) != value:
                self._heeded[register, owner] = value
                with contextlib.suppress(ProtocolError):
                    hint = decode_hint(value)
                    if hint.is_news_to(known):
                        found.append(hint)
        return found

    def forget(self) -> None:
        """Look again at all that is said: what could not be read may be read by now."""
        self._heeded.clear()


def encode_hint(known: KnownMap) -> bytes:
    """What is said of a map."""
    config = known.config
    packed: bytes = msgpack.packb((generation_of(config), sequence_of(config), known.head.root, known.acceptors.new))
    return packed


def encode_named(table: NamedTable) -> bytes:
    """What the catalogue says of a table's map."""
    packed: bytes = msgpack.packb((generation_of(table.config), sequence_of(table.config), b"", table.acceptors))
    return packed


def decode_hint(value: bytes) -> MapHint:
    """Read what somebody says of a map.

    Raises:
        ProtocolError: it is none.
    """
    try:
        row = msgpack.unpackb(value)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError("what is said of a map should be MessagePack") from error
    match row:
        case [int(generation), int(sequence), bytes(), list(servers)] if (
            0 <= generation < 1 << 16 and 0 <= sequence < 1 << 48
        ):
            return MapHint(config_id(generation, sequence), Acceptors.of(members_of(servers)))
    raise ProtocolError("of a map is said [generation, sequence, root, servers]", {"got": repr(value)[:80]})


def is_hint(value: bytes) -> bool:
    """Whether something is said of a map."""
    try:
        decode_hint(value)
    except ProtocolError:
        return False
    return True
