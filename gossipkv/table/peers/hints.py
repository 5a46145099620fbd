"""Hints in the gossip tree about newer maps; a hint decides nothing, it causes a read of the register.

`tables/<register>` is published by each server of a map:

    [generation, sequence, root, [[uuid, store id], …]]      empty: its node may found the catalogue

A node that sees an unknown version reads the register, once for each hint; a poll covers missed hints. If there is no
room for all tables, the tables that changed last are published: older hints are likely known everywhere.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack

from gossipkv.errors import ProtocolError, TooLarge
from gossipkv.gossip.member import REACHABLE
from gossipkv.register.configuration import Acceptors, members_of
from gossipkv.register.metadata.pages import config_id, generation_of, sequence_of

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.metadata.known import KnownMap
    from gossipkv.register.metadata.tables import NamedTable
    from gossipkv.table.ports import ClusterView

TABLES: Final = "tables"  # The path in the tree.
BACKUPS: Final = "backups"  # `backups/<backup>`: its node writes that backup.
RESTORES: Final = "restores"  # `restores/<table>`: its node restores a backup into that hidden table.
ROOM_PART: Final = 4  # Hints may take 1 / ROOM_PART of this node's branch; the rest is for its datasets.
PATH_BYTES: Final = 64  # The approximate size of an entry without its value.


class MapHint(NamedTuple):
    """A node's hint about a map: its config id and its acceptors."""

    config: int
    acceptors: Acceptors

    def is_news_to(self, known_map: KnownMap | None) -> bool:
        """Return True if the map may be newer than `known_map`: new acceptors alone do not raise the config id."""
        if known_map is None or self.config > known_map.config:
            return True
        return self.config == known_map.config and self.acceptors.new != known_map.acceptors.new


@final
class HintBoard:
    """Publishes this node's hints, and reads those of other nodes."""

    def __init__(self, tree: ClusterView, own: str, *, branch_bytes: int) -> None:
        """`own`: this node's name; `branch_bytes`: the size limit of its branch in the tree."""
        self._tree = tree
        self._own = own
        self._room_bytes = branch_bytes // ROOM_PART
        self._published: dict[bytes, bytes] = {}  # The current hints by register, the newest last.
        self._encoded: dict[bytes, tuple[KnownMap, bytes]] = {}  # By register: the map and its hint.
        self._unpublished: set[bytes] = set()  # Hints in `_published` without room in the tree.
        self._seen: dict[tuple[bytes, str], bytes] = {}  # By register and owner: the last hint seen.

    def publish(
        self,
        maps: Mapping[bytes, KnownMap],
        me: AcceptorId | None,
        founds: bytes | None,
        heard: Mapping[bytes, Mapping[str, bytes]],
        *,
        open_: Container[bytes] = (),
    ) -> bool:
        """Publish hints about the maps that this node serves, and that it may found the catalogue `founds`.

        `heard`: hints of other nodes, which this node does not repeat; `open_`: registers that are being read because
        of a hint, and are skipped. Return True if a hint is new.
        """
        before, self._encoded = self._encoded, {}
        for register, known_map in maps.items():
            if not known_map.head.ended and me in known_map.acceptors.new:
                made = before.get(register)
                self._encoded[register] = made if made and made[0] is known_map else (known_map, encode_hint(known_map))
        wanted = {register: value for register, (_, value) in self._encoded.items()}
        if founds is not None and founds not in maps:
            wanted[founds] = b""
        for register in [register for register in self._published if register not in wanted]:
            self._withdraw(register)
        is_new = False
        for register, value in wanted.items():
            is_published = value and value in heard.get(register, {}).values()
            if self._published.get(register) != value and not is_published and register not in open_:
                self._published.pop(register, None)
                self._published[register] = value
                is_new = True
                self._unpublished.discard(register)
                with contextlib.suppress(TooLarge):  # Other nodes poll the register.
                    self._tree.publish(f"{TABLES}/{register.hex()}", value)
        self._make_room()
        return is_new

    def _make_room(self) -> None:
        sizes = [
            (register, PATH_BYTES + len(value))
            for register, value in self._published.items()
            if register not in self._unpublished
        ]
        size_bytes = sum(size for _, size in sizes)
        for register, size in sizes:
            if size_bytes <= self._room_bytes:
                return
            size_bytes -= size
            self._unpublished.add(register)
            self._tree.withdraw(f"{TABLES}/{register.hex()}")

    def _withdraw(self, register: bytes) -> None:
        del self._published[register]
        self._unpublished.discard(register)
        self._tree.withdraw(f"{TABLES}/{register.hex()}")

    def heard(self) -> dict[bytes, dict[str, bytes]]:
        """Return the hints of other nodes, by register and by the node's name."""
        heard: dict[bytes, dict[str, bytes]] = {}
        for entry in self._tree.below(TABLES):
            with contextlib.suppress(ValueError):
                if entry.owner != self._own:
                    heard.setdefault(bytes.fromhex(entry.name), {})[entry.owner] = entry.value
        return heard

    def begin_restore(self, table: bytes) -> None:
        """Tell all nodes that this node restores a backup into a hidden table. Raises TooLarge."""
        self._tree.publish(f"{RESTORES}/{table.hex()}")

    def end_restore(self, table: bytes) -> None:
        """Withdraw what `begin_restore` told."""
        self._tree.withdraw(f"{RESTORES}/{table.hex()}")

    def begin_backup(self, name: str) -> None:
        """Tell all nodes that this node writes a backup. Raises TooLarge."""
        self._tree.publish(f"{BACKUPS}/{name}")

    def end_backup(self, name: str) -> None:
        """Withdraw what `begin_backup` told."""
        self._tree.withdraw(f"{BACKUPS}/{name}")

    def restored(self) -> set[bytes]:
        """Return the ids of the tables into which nodes that may be alive restore a backup."""
        found: set[bytes] = set()
        for entry in self._tree.below(RESTORES):
            with contextlib.suppress(ValueError):
                if entry.state in REACHABLE:
                    found.add(bytes.fromhex(entry.name))
        return found

    def has_map(self, register: bytes) -> bool:
        """Return True if another node hints at a map of the register."""
        return any(map(is_hint, self.heard().get(register, {}).values()))

    def news(self, register: bytes, hints: Mapping[str, bytes], known_map: KnownMap | None) -> Sequence[MapHint]:
        """Return the hints about a register that are newer than `known_map` and were not returned before."""
        found = []
        for owner, value in hints.items():
            if value and self._seen.get((register, owner)) != value:
                self._seen[register, owner] = value
                with contextlib.suppress(ProtocolError):
                    hint = decode_hint(value)
                    if hint.is_news_to(known_map):
                        found.append(hint)
        return found

    def forget(self) -> None:
        """Treat all hints as new: a register that could not be read may be readable by now."""
        self._seen.clear()


def encode_hint(known_map: KnownMap) -> bytes:
    """Encode a hint about a map."""
    config = known_map.config
    packed: bytes = msgpack.packb(
        (generation_of(config), sequence_of(config), known_map.head.root, known_map.acceptors.new)
    )
    return packed


def encode_named(table: NamedTable) -> bytes:
    """Encode a hint about a table's map from its entry in the catalogue."""
    packed: bytes = msgpack.packb((generation_of(table.config), sequence_of(table.config), b"", table.acceptors))
    return packed


def decode_hint(value: bytes) -> MapHint:
    """Decode a hint.

    Raises:
        ProtocolError: the bytes are no hint.
    """
    try:
        row = msgpack.unpackb(value)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError("a hint about a map must be MessagePack") from error
    match row:
        case [int(generation), int(sequence), bytes(), list(servers)] if (
            0 <= generation < 1 << 16 and 0 <= sequence < 1 << 48
        ):
            return MapHint(config_id(generation, sequence), Acceptors.of(members_of(servers)))
    raise ProtocolError("a hint about a map must be [generation, sequence, root, servers]", {"got": repr(value)[:80]})


def is_hint(value: bytes) -> bool:
    """Return True if the bytes are a hint about a map; an empty value is none."""
    try:
        decode_hint(value)
    except ProtocolError:
        return False
    return True
