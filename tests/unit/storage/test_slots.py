"""Two slots of one file: after a crash, a full disk or a bad sector during a write, the old or the new value counts."""

import errno
import random
import re
from pathlib import Path

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage import slots
from gossipkv.storage.slots import FILE_BYTES, SLOT_BYTES, decode_slots, read_slots, write_slots
from tests.world.faulty_files import Action, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

PATH = "/NODE"
FILES = RealFiles()


def write(files, number, path=PATH):
    write_slots(files, path, "NODE", {"number": number})


def read(files, path=PATH):
    return read_slots(files, path, "NODE")["number"]


def on_disk(files):
    return files.pread(files.open(PATH), FILE_BYTES, 0)


def test_the_last_that_was_written_counts(tmp_path):
    """The file is made once and then overwritten, so its size and its inode stay."""
    path = tmp_path / "NODE"
    write(FILES, 1, path)
    made = path.stat()
    for number in range(2, 6):
        write(FILES, number, path)
        assert read(FILES, path) == number
    assert (path.stat().st_ino, path.stat().st_size) == (made.st_ino, FILE_BYTES)
    assert path.read_bytes()[:SLOT_BYTES] == path.read_bytes()[SLOT_BYTES:]


def test_every_prefix_of_a_write():
    """A slot half written, at each byte, leaves the old or the new value."""
    before, after = SimulatedFiles(), SimulatedFiles()
    write(before, 1)
    write(after, 2)
    old, new = on_disk(before), on_disk(after)
    for begin in (0, SLOT_BYTES):
        for size in [*range(80), 511, 512, SLOT_BYTES - 1]:
            torn = old[:begin] + new[begin : begin + size] + old[begin + size :]
            assert decode_slots(torn, PATH, "NODE")["number"] in {1, 2}


def test_a_full_disk_takes_it():
    """The write needs no more room; a disk that refuses even that keeps the old value."""
    disk = SimulatedFiles(capacity_bytes=FILE_BYTES)
    write(disk, 1)
    assert disk.free_bytes("/") == 0
    write(disk, 2)
    assert read(disk) == 2
    refusing = FaultyFiles(disk, Fault(0, Action.FAIL_HALFWAY, kinds={"pwrite"}, error=errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        write(refusing, 3)
    assert read(disk) in {2, 3}
    write(disk, 4)
    assert read(disk) == 4


def test_the_documentation_shows_the_layout():
    text = (Path(__file__).parents[3] / "docs" / "development" / "directory-format.md").read_text()
    layout = re.search(r"offset size field\n0      4096 .*?\n4096 .*?\n", text, re.DOTALL)[0]
    assert layout in slots.__doc__.replace("\n    ", "\n")


def test_damage_in_both_is_damage():
    """The error names the file, and no value is guessed."""
    disk = SimulatedFiles()
    write(disk, 1)
    whole = on_disk(disk)
    chance = random.Random(1)
    for _ in range(200):
        damaged = bytearray(whole)
        for slot in range(2):
            damaged[slot * SLOT_BYTES + chance.randrange(SLOT_BYTES)] ^= 1 << chance.randrange(8)
        with pytest.raises((Corrupt, UnsupportedFormat), match=PATH):
            decode_slots(bytes(damaged), PATH, "NODE")


def test_a_newer_format_is_said_in_either_slot():
    """An older program's value in the other slot must not be used."""
    disk = SimulatedFiles()
    write_slots(disk, PATH, "NODE", {}, format_number=2)
    with pytest.raises(UnsupportedFormat, match="format 2"):
        read(disk)


def test_a_file_of_another_size_is_damage(tmp_path):
    path = tmp_path / "NODE"
    write(FILES, 1, path)
    whole = path.read_bytes()
    for data in (b"", whole[:SLOT_BYTES], whole[:-1], whole + b"\n"):
        path.write_bytes(data)
        with pytest.raises(Corrupt, match="NODE: damaged"):
            read(FILES, path)
