"""Checked documents read back as written, or an error names the file."""

import errno
import os
import re
import zlib
from pathlib import Path

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage import document
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

BODY = {"cluster": "gossipkv", "numbers": [0, -1, 2.5, True, None], "name": "ü\udcff"}
NAME = "NODE"


def write(path, body=None, kind="NODE", files=None, **options):
    document.write_document(files or RealFiles(), path, kind, BODY if body is None else body, **options)


def read(path, kind="NODE", files=None):
    return document.read_document(files or RealFiles(), path, kind)


def test_a_document_reads_back_as_written(tmp_path):
    """The body has every kind of JSON value, and a surrogate from a file name that is not UTF-8."""
    write(tmp_path / NAME)
    assert read(tmp_path / NAME) == BODY
    assert os.listdir(tmp_path) == [NAME]


def test_the_bytes_are_those_of_the_specification(tmp_path):
    """docs/development/directory-format.md shows this layout, which no later version may change."""
    write(tmp_path / NAME, {"b": 1, "a": "x"})
    assert (tmp_path / NAME).read_bytes() == b'GossipKV 15cb1158 NODE 1\n{"a":"x","b":1}\n'


def test_the_checksum_is_one_that_a_person_can_compute(tmp_path):
    """The checksum is zlib's CRC-32 of everything after it."""
    write(tmp_path / NAME)
    data = (tmp_path / NAME).read_bytes()
    assert int(data[9:17], 16) == zlib.crc32(data[17:])


def test_every_damaged_byte_is_noticed():
    """Damage: each bit flipped, each byte zeroed, each truncation, doubled and foreign tails."""
    whole = document.encode("NODE", BODY)
    damaged = []
    for at in range(len(whole)):
        damaged += [whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for bit in range(8)]
        damaged += [whole[:at] + b"\0" + whole[at + 1 :], whole[:at]]
        damaged += [whole + whole[at:]]
    damaged += [whole + b"\n", whole + b"\0", whole + b" "]
    noticed = {Corrupt: 0, UnsupportedFormat: 0}
    for data in damaged:
        with pytest.raises((Corrupt, UnsupportedFormat)) as caught:
            document.decode(data, "the/file", "NODE")
        assert "the/file" in str(caught.value)
        noticed[caught.type] += 1
    assert sum(noticed.values()) == len(damaged) == 11 * len(whole) + 3
    # Only damage to the nine bytes of the magic makes a document foreign.
    assert noticed[UnsupportedFormat] == 9 * 9


def test_damage_names_the_file_and_the_byte(tmp_path):
    write(tmp_path / NAME)
    data = bytearray((tmp_path / NAME).read_bytes())
    data[-3] ^= 1
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(Corrupt) as caught:
        read(tmp_path / NAME)
    assert caught.value.file == str(tmp_path / NAME)
    assert caught.value.offset == 9
    assert set(caught.value.details) >= {"expected", "got", "reason"}


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"", Corrupt, "empty"),
        (b"Gossip", Corrupt, "cut short"),
        (b"\x7fELF and more", UnsupportedFormat, "not a GossipKV document"),
        (document.encode("ACTIVE", {}), UnsupportedFormat, "of kind ACTIVE, not NODE"),
        (document.encode("NODE", {}, format_number=2), UnsupportedFormat, "newer GossipKV"),
    ],
)
def test_what_is_no_document_of_ours_is_named(tmp_path, data, error, words):
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(error, match=words):
        read(tmp_path / NAME)


@pytest.mark.parametrize("body", [b"[]", b"{", b"1", b"[" * 100_000, b'{"a":1}}'])
def test_a_body_that_is_no_object_is_damage_though_the_checksum_holds(body):
    """Only a faulty program can have written such a body."""
    covered = b" NODE 1\n" + body + b"\n"
    with pytest.raises(Corrupt):
        document.decode(b"GossipKV %08x" % zlib.crc32(covered) + covered, "x", "NODE")


def test_a_missing_document_is_missing(tmp_path):
    """The caller decides about a missing document, so it is no damage."""
    with pytest.raises(FileNotFoundError):
        read(tmp_path / NAME)


def test_a_huge_file_is_refused_unread():
    files = SimulatedFiles()
    descriptor = files.open("/NODE", os.O_WRONLY | os.O_CREAT)
    files.pwrite(descriptor, b"GossipKV ", document.MAX_DOCUMENT_BYTES)
    with pytest.raises(Corrupt, match="the limit is"):
        read("/NODE", files=files)


@pytest.mark.parametrize("field", ["missing", "wrong"])
def test_fields_are_checked_when_they_are_taken(field):
    """A whole document may still lack a field that its reader needs."""
    with pytest.raises(Corrupt, match=field):
        document.whole({"wrong": "1"}, field, "x")
    with pytest.raises(Corrupt, match=field):
        document.text({"wrong": 1}, field, "x")


def test_a_true_is_no_number_and_a_number_below_zero_is_none():
    """Python's booleans are integers; ours are not."""
    for value in (True, -1):
        with pytest.raises(Corrupt):
            document.whole({"n": value}, "n", "x")
    assert document.whole({"n": 0}, "n", "x") == 0
    assert document.text({"n": ""}, "n", "x") == ""


OLD, NEW = {"value": "old"}, {"value": "new" * 300}


def changing_operations():
    """Count the operations of one replacement that change the disk."""
    files = SimulatedFiles()
    write("/NODE", OLD, files=files)
    calm = FaultyFiles(files)
    write("/NODE", NEW, files=calm)
    return sum(calm.counts[kind] for kind in CHANGING)


def value(files):
    """Return the value in the document; None if it is missing or damaged."""
    try:
        return read("/NODE", files=files)["value"]
    except (FileNotFoundError, Corrupt, UnsupportedFormat):
        return None


@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER])
@pytest.mark.parametrize("at", range(6))
def test_a_crash_and_a_power_loss_leave_the_old_or_the_new_document(at, action):
    """The crash strikes each operation of a replacement, followed by any loss of unsynced data."""
    assert changing_operations() == 6  # unlink, create, write, sync, rename, sync the directory
    found = set()
    for seed in range(60):
        files = SimulatedFiles()
        write("/NODE", OLD, files=files)
        faulty = FaultyFiles(files, Fault(at, action, kinds=CHANGING))
        with pytest.raises(Crash):
            write("/NODE", NEW, files=faulty)
        assert faulty.struck
        restarted = files.power_loss(seed)
        found.add(value(restarted))
        write("/NODE", {"value": "again"}, files=restarted)
        assert read("/NODE", files=restarted) == {"value": "again"}
    last = action is Action.CRASH_AFTER and at == 5
    assert found == ({NEW["value"]} if last else found & {"old", NEW["value"]})
    if at < 4 or (at == 4 and action is not Action.CRASH_AFTER):
        assert found == {"old"}


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("at", range(1, 7))
def test_an_operation_that_fails_leaves_the_old_or_the_new_document(at, error):
    """Half of the write may have been done; the next attempt succeeds."""
    files = SimulatedFiles()
    write("/NODE", OLD, files=files)
    faulty = FaultyFiles(files, Fault(at, Action.FAIL_HALFWAY, error=error, kinds=CHANGING | {"close"}))
    with pytest.raises(OSError, match=os.strerror(error)):
        write("/NODE", NEW, files=faulty)
    assert faulty.struck
    assert read("/NODE", files=files) in (OLD, NEW)
    write("/NODE", NEW, files=files)
    assert read("/NODE", files=files.power_loss(1)) == NEW


def test_a_writer_that_forgets_to_sync_is_caught():
    """A writer without syncs loses documents, so the tests above would notice it."""

    class Forgetful(FaultyFiles):
        def sync(self, descriptor):
            """Do nothing."""

    bad = 0
    for seed in range(60):
        files = SimulatedFiles()
        write("/NODE", OLD, files=files)
        write("/NODE", NEW, files=Forgetful(files))
        try:
            bad += read("/NODE", files=files.power_loss(seed)) != NEW
        except (Corrupt, UnsupportedFormat):  # Zeros in place of the first sector look foreign.
            bad += 1
    assert bad > 0


def test_the_documentation_shows_the_module_s_layout_and_a_real_document():
    """The layout is the same in both places, and the example can be read."""
    text = (Path(__file__).parents[3] / "docs" / "development" / "directory-format.md").read_text()
    layout = re.search(r"offset size field\n.*?the last byte of the file\n", text, re.DOTALL)[0]
    assert layout in document.__doc__.replace("\n    ", "\n")
    example = re.search(r"^GossipKV [0-9a-f]{8} NODE 1\n.*?\n", text, re.MULTILINE | re.DOTALL)[0]
    assert document.decode(example.encode(), "docs", "NODE") == {"a": "x", "b": 1}
    for kind in ("NODE", "PEERS", "ACTIVE", "REFUTED", "MANIFEST", "SCRUBBED", "STORE"):
        assert f"\n- `{kind}`: " in text
