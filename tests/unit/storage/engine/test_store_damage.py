"""Damage to a store is refused with file and offset, or harmless: all answers are right.

`CRASH_STRIDE` sets the tried bytes: 1 tries each, 25 every twenty-fifth and the most important ones.
"""

from __future__ import annotations

import os
import random
import re
import struct
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from gossipkv.errors import Corrupt, LimitExceeded, StorageError, UnsupportedFormat
from gossipkv.storage.checksum import crc32c
from gossipkv.storage.document import encode
from gossipkv.storage.engine._engine import HEADER_BYTES
from gossipkv.storage.engine.manifest import KIND, SortedRun, read_manifest, segment_path, write_manifest
from gossipkv.storage.engine.reading import BelowFloor
from tests.conformance.store import FIRST, begun, filled, rest
from tests.oracle.store import VALUE
from tests.unit.storage.engine.crashing import survivor
from tests.unit.storage.engine.damage import LOG, MANIFEST, REFUSED, RIGHT, RUNS, Made, contents, get, made
from tests.unit.storage.engine.places import DIRECTORY, TINY, SimulatedPlace
from tests.world.blocking_store import Store
from tests.world.simulated_files import SimulatedFiles

SECTOR = 512

the_store = cache(made)


def flipped(store, path, at, content):
    return store.overwritten(path, at, bytes([content[at] ^ 1 << at % 8]))


def test_doubled_tails():
    """The end of a file is repeated after it, by sectors and by pages."""
    store = the_store()
    seen = Counter()
    for path in (*store.of(LOG), *store.of(RUNS), MANIFEST):
        content = store.contents[path]
        for size in (1, 8, SECTOR, 4096):
            seen[store.outcome(store.changed({path: content + content[-size:]}))] += 1
    assert seen[REFUSED]


def test_frames_doubled_in_place():
    """The last frames are repeated in the unwritten part."""
    store = the_store()
    for path in store.of(LOG):
        content = store.contents[path]
        end = len(content.rstrip(b"\0")) + 7 & ~7
        for size in (32, 64, 512, 4096):
            for behind in (0, 8, 64):
                disk = store.overwritten(path, end + behind, content[max(4096, end - size) : end])
                assert store.outcome(disk) in (RIGHT, REFUSED)


def test_swapped_and_copied_segments():
    """One segment replaces another, or the two are swapped."""
    store = the_store()
    paths, seen, kept = store.of(LOG), Counter(), {*store.kept}
    for one in paths:
        for other in paths:
            if one < other:
                swapped = {one: store.contents[other], other: store.contents[one]}
                assert store.outcome(store.changed(swapped)) == (RIGHT if {one, other} <= kept else REFUSED)
            if one != other:
                seen[store.outcome(store.changed({one: store.contents[other]}))] += 1
    assert seen[REFUSED]


def test_files_that_are_missing_or_empty():
    """Missing files are noticed if manifest or log name them; unneeded ones are not."""
    store = the_store()
    for path in store.contents:
        if path.endswith(("LOCK", "RESERVE")):
            continue
        for content in (None, b"", bytes(len(store.contents[path]))):
            if path == MANIFEST and content is None:
                continue  # No store; a test of expected lives covers this case.
            expected = RIGHT if path in store.kept else REFUSED
            assert store.outcome(store.changed({path: content})) == expected, path


def follow_from(store, position):
    """Return a follower's position after it has read all; the damage; or None if the log begins later."""
    cursor, before = store.follow({FIRST}, position), -1
    try:
        while before != cursor.position:
            before = cursor.position
            store.read_next(cursor)
    except BelowFloor:
        return None
    except Corrupt as damage:
        return str(damage)
    return cursor.position


@pytest.mark.parametrize("at", [None, 20, HEADER_BYTES + 9, HEADER_BYTES + 9_000])
def test_damage_in_log_that_is_kept_for_readers(at):
    """With a bad bit or a missing segment the log begins later, readers and operators are told, and the store goes on.

    A reader finds a bit after the first frame. Later openings and a compaction find no damage.
    """
    store = the_store()
    assert len(store.kept) > 2
    for number, path in enumerate(store.kept):
        content = store.contents[path]
        disk = store.changed({path: None}) if at is None else flipped(store, path, at, content)
        with opened(disk) as found:
            if at == HEADER_BYTES + 9_000:
                assert found.log_damage is None
                assert follow_from(found, found.engine.log_floor) is None
            assert path in str(found.log_damage)
            left = [str(segment_path(DIRECTORY, segment.name.number)) for segment in found.engine.upkeep.kept]
            assert left == store.kept[number + 1 :]
            assert follow_from(found, found.engine.log_floor - 1) is None
            assert follow_from(found, found.engine.log_floor) == found.engine.synced_position
            if at == HEADER_BYTES + 9_000:
                turn(found)
        assert not {*store.kept[: number + 1]} & contents(disk, str(DIRECTORY)).keys()
        with opened(disk) as found:
            assert found.log_damage is None


def turn(store):
    switches = store.describe()["switches"]
    while store.describe()["switches"] == switches:
        store.put(FIRST, b"turn", bytes(5_000))
        store.maintain()


def test_files_that_nobody_names():
    store = the_store()
    names = [f"{LOG}/{99:016d}.log", f"{RUNS}/99999999-0001.gkv", f"{RUNS}/00000001-0001.gkv.tmp", f"{MANIFEST}.tmp"]
    for content in (b"", b"nonsense", store.contents[store.of(LOG)[-1]], store.contents[store.of(RUNS)[0]]):
        disk = store.changed(dict.fromkeys(names, content))
        assert store.outcome(disk) == RIGHT


def opened(disk, **options):
    """Open the store on a disk on which nothing is open."""
    disk.close_all()
    return Store.open(DIRECTORY, files=disk, random=random.Random(0), options=TINY, maintains=False, **options)


def test_a_directory_of_another_kind():
    """The document's kind or format is refused, and the directory is unchanged."""
    for content in (
        encode("NODE", {}),
        encode(KIND, {}, format_number=2),
        b"something else",
    ):
        store = the_store()
        disk = store.changed({MANIFEST: content})
        with pytest.raises(UnsupportedFormat, match=re.escape(MANIFEST)):
            opened(disk)
        assert contents_without_lock(disk) == {**contents_without_lock(store.disk), MANIFEST: content}


def contents_without_lock(disk):
    return {path: held for path, held in contents(disk, str(DIRECTORY)).items() if not path.endswith("LOCK")}


def test_a_segment_of_a_newer_format():
    store = the_store()
    for path in store.of(LOG):
        header = bytearray(store.contents[path][:60])
        header[8] += 1
        disk = store.overwritten(path, 0, bytes(header) + crc32c(bytes(header)).to_bytes(4, "little"))
        with pytest.raises(UnsupportedFormat, match=re.escape(path)):
            opened(disk)


def test_a_directory_that_has_lost_its_manifest():
    """Files of a store without a manifest are refused and kept."""
    store = the_store()
    for keep in (store.of(LOG), store.of(RUNS), [*store.of(LOG), *store.of(RUNS)]):
        disk = store.changed({path: None for path in store.contents if path not in keep})
        with pytest.raises(Corrupt):
            opened(disk)
        assert {*keep} <= contents_without_lock(disk).keys(), "nothing of it is removed"


def put_manifest(disk, **changes):
    write_manifest(disk, DIRECTORY, replace(read_manifest(disk, DIRECTORY), **changes))


def test_a_manifest_that_names_what_is_not_there():
    """The manifest has another seal, size or keys of files, or another salt or number of segments."""
    store = the_store()
    manifest = read_manifest(store.disk, DIRECTORY)
    file = next(iter(manifest.run_files))
    floor, log_floor = manifest.recovery_floor, manifest.log_floor
    wrong = [
        {"recovery_floor": floor._replace(salt=floor.salt ^ 1)},
        {"recovery_floor": floor._replace(number=floor.number + 90)},
        {"log_floor": log_floor._replace(salt=log_floor.salt ^ 1)},
        {"store": manifest.store ^ 1},
        *(
            {"young": (), "oldest": SortedRun((one,))}
            for one in (
                file._replace(name="99999999-0001.gkv"),
                file._replace(records=file.records + 1),
                file._replace(size_bytes=file.size_bytes - 1),
                file._replace(seal=file.seal ^ 1),
            )
        ),
    ]
    for changes in wrong:
        disk = store.disk.copied()
        put_manifest(disk, **changes)
        assert store.outcome(disk) == REFUSED, changes


def test_only_the_store_that_is_expected():
    """The id must agree, and the life must be the expected one or the next; an older copy is refused."""
    store = the_store()
    manifest = read_manifest(store.disk, DIRECTORY)
    for id_, life, is_right in (
        (manifest.store, manifest.life, True),
        (manifest.store, manifest.life - 1, True),  # A crash came before the node recorded the life.
        (manifest.store, manifest.life - 2, False),
        (manifest.store, manifest.life + 1, False),
        (manifest.store ^ 1, manifest.life, False),
    ):
        disk = store.disk.copied()
        if is_right:
            opened(disk, expected=(id_, life)).close()
            assert read_manifest(disk, DIRECTORY).life == manifest.life + 1
        else:
            with pytest.raises(UnsupportedFormat, match=re.escape(MANIFEST)):
                opened(disk, expected=(id_, life))
            assert read_manifest(disk, DIRECTORY) == manifest
    empty = SimulatedFiles()
    empty.make_directory(DIRECTORY)
    with pytest.raises(StorageError, match="no store"):
        opened(empty, expected=(manifest.store, manifest.life))


def test_the_longest_batch():
    """A batch that fills a segment is written and recovered; a longer one is refused with the limit."""
    for waits in (False, True):
        witness = begun(SimulatedPlace())
        with pytest.raises(LimitExceeded) as refusal:
            witness.store.append(filled(witness.place.batch(), [(VALUE, FIRST, b"k", bytes(TINY.segment_bytes))]))
        limit = refusal.value.details["limit"]
        longest = next(size for size in range(limit, 0, -1) if fits(witness, size))
        assert longest > limit - 64, "the limit that is told is the limit"
        for turn in range(8):
            witness.append([(VALUE, FIRST, b"%d" % turn, bytes(longest - 50))])
            if not waits:
                witness.commit()
            witness.store.maintain()
        witness.commit()
        witness.crash("lose_power", 0)
        witness.close()


def fits(witness, size):
    """Return True if a batch of one value of that size is accepted."""
    batch = filled(witness.place.batch(), [(VALUE, FIRST, b"k", bytes(size))])
    probe = survivor(witness, witness.place.files.copied(), 7)
    probe.open()
    probe.store.maintain()
    try:
        probe.store.append(batch)
    except LimitExceeded:
        return False
    return True


def test_the_longest_keys_and_values():
    """Records at the limits are written, merged, read and recovered."""
    witness = begun(SimulatedPlace(replace(TINY, segment_bytes=18 << 20, table_log=20 << 20, file_bytes=40 << 20)))
    key, value = b"k" * 65_531, bytes(16 << 20)
    witness.write((VALUE, FIRST, key, b"1"))
    witness.write((VALUE, FIRST, b"long", value))
    rest(witness)
    for turn in range(3):
        witness.write((VALUE, FIRST, key + b"", b"%d" % turn), (VALUE, FIRST, b"l%d" % turn, value[: 8 << 20]))
        rest(witness)
    assert witness.store.get(FIRST, b"long") == value
    witness.crash("kill", 0)
    assert witness.store.get(FIRST, key) == b"2"
    witness.close()


def test_the_last_batch_of_a_closed_store():
    """A closed store has recorded its last sync, so damage to the last batch is no torn tail."""
    witness = begun(SimulatedPlace())
    witness.write((VALUE, FIRST, b"last", b"batch"))
    witness.close()
    disk = witness.place.files
    ((path, content),) = ((path, held) for path, held in contents(disk, str(DIRECTORY)).items() if "/log/" in path)
    at = content.rindex(b"batch")
    store = Made(disk, {path: content}, witness)
    for harmed in range(at - 60, at + 5):
        assert store.outcome(flipped(store, path, harmed, content)) == REFUSED, harmed


def test_a_torn_tail_is_no_damage():
    """Unsynced bytes may be cut anywhere: synced batches stay, and the store reports the tail's place."""
    witness = begun(SimulatedPlace())
    witness.write((VALUE, FIRST, b"synced", b"1"))
    witness.mark()
    disk = witness.place.files.copied()
    witness.write((VALUE, FIRST, b"tail", bytes(range(1, 200))))
    ((path, content),) = (
        (path, held)
        for path, held in contents(witness.place.files, str(DIRECTORY)).items()
        if "/log/" in path and held.count(b"synced")
    )
    end = len(get(disk, path).rstrip(b"\0"))
    torn = 0
    for until in range(end - 8, len(content.rstrip(b"\0"))):
        left = disk.copied()
        descriptor = left.open(path, os.O_WRONLY)
        left.pwrite(descriptor, content[end:until], end)
        left.close(descriptor)
        other = survivor(witness, left, 1)
        del other.history.batches[-1], other.history.states[-1]
        other.history.synced -= 1
        other.open()
        torn += other.store.torn is not None
        other.close()
    assert torn > 100


def test_old_frames_that_line_up_with_new_ones():
    """Frames in a recycled segment have the length of new ones, but none counts."""
    witness = begun(SimulatedPlace())
    value, used = bytes(1_000), set()
    for turn in range(200):
        witness.write((VALUE, FIRST, b"same", value))
        witness.store.maintain()
        engine = witness.store.engine
        used.add(get(witness.place.files, str(segment_path(DIRECTORY, engine.log()[-1].name.number))).count(value))
        if turn % 10 == 9:
            witness.append([(VALUE, FIRST, b"same", value)])
            witness.crash("lose_power" if turn % 20 == 9 else "kill", turn)
    assert max(used) > 10, "segments are used again"
    witness.close()


def looks_like_a_frame(position, synced, payload=b"", kind=2):
    """Return a frame made without the salt of the segment."""
    covered = struct.pack("<IQQQ", len(payload), position, synced, kind) + payload
    return struct.pack("<I", crc32c(covered)) + covered


def test_what_is_written_is_never_taken_for_a_frame():
    """A value consists of frames with any position and synced claims, but a torn batch is still a tail."""
    witness = begun(SimulatedPlace())
    witness.mark()
    last, end = witness.store.engine.position, witness.store.engine.log()[-1].end
    frames = [looks_like_a_frame(last + ahead, last + ahead - 1) for ahead in (1, 2, 3, 4, 1_000)]
    value = b"".join(frame + b"\0" for frame in frames * 8)  # One of each begins at a multiple of eight.
    before = survivor(witness, witness.place.files, 1)
    witness.write((VALUE, FIRST, b"a", value))
    (path,) = (path for path, held in contents(witness.place.files, str(DIRECTORY)).items() if value in held)
    disk = witness.place.files.copied()
    descriptor = disk.open(path, os.O_WRONLY)
    disk.pwrite(descriptor, bytes(32), end)  # The start of the frame did not land.
    disk.close(descriptor)
    before.place.files = disk
    before.open()
    before.close()
