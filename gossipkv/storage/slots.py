"""Documents that are overwritten in place, so that the next one can be written to a full disk.

    offset size field
    0      4096 slot 0: a document, then line feeds to the end of the slot
    4096   4096 slot 1: likewise

The first undamaged slot counts. A write goes to both slots, one after the other, each synced, and starts with a damaged
one. So at any moment, across crashes too, one slot holds the old or the new document undamaged. If a disk later damages
a slot, the other slot still has the document, and the next write repairs both.

The file is allocated when it is created, by a rename. A copy-on-write file system (btrfs, ZFS) may still refuse an
overwrite for want of room.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage.document import decode, encode, read_file, replace_file

if TYPE_CHECKING:
    from gossipkv.environment.seam import Files
    from gossipkv.environment.seam import Path as AnyPath
    from gossipkv.storage.document import Body

SLOT_BYTES: Final = 4096  # The largest sector of a disk: no write of one slot touches a sector of the other.
SLOTS: Final = 2
FILE_BYTES: Final = SLOTS * SLOT_BYTES

_OVERWRITE: Final = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)


def decode_slots(data: bytes, name: str, kind: str, *, every: bool = False) -> Body:
    """Return the body that counts.

    Raises:
        Corrupt: the file has the wrong size; or no slot is undamaged; or, with `every`, any slot is damaged.
        UnsupportedFormat: under the same conditions, or the document that counts has another format.
    """
    if len(data) != FILE_BYTES:
        raise Corrupt(name, min(len(data), FILE_BYTES), "the file has another size", expected=FILE_BYTES, got=len(data))
    bodies: list[Body] = []
    troubles: list[Corrupt | UnsupportedFormat] = []
    for slot in range(SLOTS):
        body = _slot(data, slot, name, kind)
        if isinstance(body, dict):
            bodies.append(body)
        else:
            troubles.append(body)
            if not bodies and "format" in body.details:
                raise body
    if troubles and (every or not bodies):
        raise troubles[0]
    return bodies[0]


def read_slots(files: Files, path: AnyPath, kind: str) -> Body:
    """Return the body that counts.

    Raises:
        FileNotFoundError: there is no such file.
        Corrupt, UnsupportedFormat: see `decode_slots`.
        OSError: the system refused.
    """
    return decode_slots(read_file(files, path), os.fspath(path), kind)


def write_slots(files: Files, path: AnyPath, kind: str, body: Body, *, format_number: int = 1) -> None:
    """Write `body` to both slots; returns when it is durable.

    Raises:
        OSError: the system refused; either the old body or the new one counts.
    """
    document = encode(kind, body, format_number=format_number)
    assert len(document) <= SLOT_BYTES, (kind, len(document))
    data = document.ljust(SLOT_BYTES, b"\n")
    whole = _whole_slots(files, path, kind)
    if not whole:
        replace_file(files, path, data * SLOTS)
        return
    descriptor = files.open(path, _OVERWRITE)
    try:
        for slot in sorted(range(SLOTS), key=whole.__contains__):
            files.pwrite(descriptor, data, slot * SLOT_BYTES)
            files.sync(descriptor)
    finally:
        files.close(descriptor)


def _whole_slots(files: Files, path: AnyPath, kind: str) -> list[int]:
    """Return the undamaged slots; empty if the file is missing or has the wrong size."""
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return []
    if len(data) != FILE_BYTES:
        return []
    return [slot for slot in range(SLOTS) if isinstance(_slot(data, slot, "", kind), dict)]


def _slot(data: bytes, slot: int, name: str, kind: str) -> Body | Corrupt | UnsupportedFormat:
    """Return the body in a slot, or the error that decoding it raised."""
    padded = data[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES]
    try:
        return decode(padded.rstrip(b"\n") + b"\n", name, kind)
    except (Corrupt, UnsupportedFormat) as error:
        return error
