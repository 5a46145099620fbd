"""Documents that are overwritten in place: the same one in two slots of a file, so that a full disk takes the next one.

    offset size field
    0      4096 slot 0: a document, then line feeds to the end of the slot
    4096   4096 slot 1: likewise

The first slot that is whole counts.  A write goes to one slot and then to the other, each synced, and first to one that
is not whole: so at any moment, across crashes too, a slot holds the old document or the new one whole, and what a
disk damages later in one of them is in the other, and in both after the next write.

The file takes its room when it is made, by a rename; a file system that writes elsewhere whatever is overwritten
(btrfs, ZFS) may still refuse for want of room.
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


def decode_slots(data: bytes, name: str, kind: str, *, newest_format: int = 1, every: bool = False) -> Body:
    """The body that counts.

    Raises:
        Corrupt: the file has another size; or no slot is whole; or one is not, where `every` one is to be.
        UnsupportedFormat: likewise, or the one that counts is too new.
    """
    if len(data) != FILE_BYTES:
        raise Corrupt(name, min(len(data), FILE_BYTES), "another size", expected=FILE_BYTES, got=len(data))
    bodies: list[Body] = []
    troubles: list[Corrupt | UnsupportedFormat] = []
    for slot in range(SLOTS):
        found = _slot(data, slot, name, kind, newest_format)
        if isinstance(found, dict):
            bodies.append(found)
        else:
            troubles.append(found)
            if not bodies and "newest" in found.details:
                raise found
    if troubles and (every or not bodies):
        raise troubles[0]
    return bodies[0]


def read_slots(files: Files, path: AnyPath, kind: str, *, newest_format: int = 1) -> Body:
    """Return the body that counts.

    Raises:
        FileNotFoundError: there is no such file.
        Corrupt, UnsupportedFormat: see `decode_slots`.
        OSError: the system refused.
    """
    return decode_slots(read_file(files, path), os.fspath(path), kind, newest_format=newest_format)


def write_slots(files: Files, path: AnyPath, kind: str, body: Body, *, format_number: int = 1) -> None:
    """Have this body count from now on; returns when it is durable.

    Raises:
        OSError: the system refused; what counted before still does, or the new one.
    """
    document = encode(kind, body, format_number=format_number)
    assert len(document) <= SLOT_BYTES, (kind, len(document))
    data = document.ljust(SLOT_BYTES, b"\n")
    whole = _whole_slots(files, path, kind, format_number)
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


def _whole_slots(files: Files, path: AnyPath, kind: str, newest_format: int) -> list[int]:
    """The slots that are whole; none, if there is no such file, or it is of another size."""
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return []
    if len(data) != FILE_BYTES:
        return []
    return [slot for slot in range(SLOTS) if isinstance(_slot(data, slot, "", kind, newest_format), dict)]


def _slot(data: bytes, slot: int, name: str, kind: str, newest_format: int) -> Body | Corrupt | UnsupportedFormat:
    """What is in a slot, or what is wrong with it."""
    padded = data[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES]
    try:
        return decode(padded.rstrip(b"\n") + b"\n", name, kind, newest_format=newest_format)
    except (Corrupt, UnsupportedFormat) as error:
        return error
