"""A golden store of an older program is recovered, read and checked today, and written again."""

from __future__ import annotations

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.storage.engine._engine import BATCH, BEGIN, MARK, NEXT, Batch, operations
from gossipkv.storage.engine.manifest import LifeEnd, SegmentName, describe_store, read_manifest, segment_path
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.recovery import recover
from gossipkv.storage.engine.segments import SegmentReader
from gossipkv.storage.engine.verify import verify_store
from gossipkv.storage.engine.works import MakeSegment
from tests.conformance.store import whole_log
from tests.golden import make_golden
from tests.golden.make_golden import BATCHES, BEGAN, LAST_BEFORE_CRASH, SALTS, SEGMENT_BYTES, STORE_ID
from tests.oracle import log as oracle
from tests.world.blocking_store import Store

FILES = RealFiles()
GOLDEN = {path.name: path.read_bytes() for path in make_golden.HERE.glob("store-*")}
STRIDE = 31  # One in so many bytes that are not 0 is flipped.
OPTIONS = EngineOptions(segment_bytes=SEGMENT_BYTES)
FIRST, THIRD = SegmentName(1, SALTS[1]), SegmentName(3, SALTS[3])


def files_of(place):
    """Return the files of a store by their golden names."""
    kept = {f"store-{path.name}": path.read_bytes() for path in (place / "log").iterdir()}
    return {"store-manifest.document": (place / "MANIFEST").read_bytes(), **kept}


@pytest.fixture
def place(tmp_path):
    for name in ("log", "runs"):
        (tmp_path / name).mkdir()
    (tmp_path / "MANIFEST").write_bytes(GOLDEN["store-manifest.document"])
    for number in (1, 3):
        path = segment_path(tmp_path, number)
        path.write_bytes(GOLDEN[f"store-{path.name}"])
    assert files_of(tmp_path) == GOLDEN
    return tmp_path


def test_the_oracle_still_writes_them():
    """The bytes are the same, and every batch counts."""
    assert make_golden.store() == GOLDEN
    ends = [oracle.LifeEnd(2, LAST_BEFORE_CRASH, THIRD)]
    found = oracle.recover(make_golden.segments(), STORE_ID, FIRST, ends)
    assert found.batches == [(position, oracle.batch(told)) for position, told in BATCHES.items()]
    assert (found.cut, found.position) == (3, BEGAN + 2)


def test_what_they_hold(place):
    manifest = read_manifest(FILES, place)
    assert (manifest.store, manifest.life, manifest.recovery_floor, manifest.log_floor) == (STORE_ID, 2, FIRST, FIRST)
    (end,) = manifest.lives
    assert end == LifeEnd(life=1, number=2, offset=end.offset, position=LAST_BEFORE_CRASH, continued=THIRD)
    for number, life, kinds in ((1, 1, [BEGIN, BATCH, BATCH, MARK, NEXT]), (3, 2, [BATCH, BATCH, BATCH, BEGIN, MARK])):
        with SegmentReader(FILES, segment_path(place, number)) as reader:
            assert (reader.header.number, reader.header.life) == (number, life)
            assert sorted(frame.kind for frame in reader.frames()) == sorted(kinds)
    batches = []
    found = recover(FILES, place, manifest, lambda segment, at, data: batches.append((segment, at, operations(data))))
    assert batches == [
        (FIRST if position < 5 else THIRD, position, operations) for position, operations in BATCHES.items()
    ]
    assert (found.cut.name, found.position, found.synced_position, found.torn) == (THIRD, BEGAN + 2, BEGAN + 1, None)
    assert describe_store(FILES, place)["log_bytes"] == 2 * SEGMENT_BYTES


def test_they_are_whole(place):
    """Each file is whole, and a flipped bit is reported with the file's name, but in a last frame that may be torn."""
    assert {one.path.name: one.trouble for one in verify_store(FILES, place, lambda _: None)} == {
        "MANIFEST": None, "0000000000000001.log": None, "0000000000000003.log": None
    }  # fmt: skip
    for path in (place / "MANIFEST", segment_path(place, 1), segment_path(place, 3)):
        whole, reported = path.read_bytes(), []
        for at in [at for at, byte in enumerate(whole) if byte][::STRIDE]:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            found = [one.path.name for one in verify_store(FILES, place, lambda _: None) if one.trouble]
            assert found in ([path.name], [])
            reported.append(bool(found))
        assert reported == sorted(reported, reverse=True)
        assert all(reported) or (path == segment_path(place, 3) and reported.count(False) < len(reported) / 4)
        path.write_bytes(whole)


def test_a_store_opens_on_them(place):
    """Reads and the log have the batches, from the earlier life on."""
    with Store.open(place, options=OPTIONS, expected=(STORE_ID, 2), create=False) as store:
        assert store.manifest.life == 3
        assert (store.removed, store.torn) == ((), None)
        empty = BATCHES[3][1][3]
        assert store.scan(1) == ([(b"", empty), (b"b", b""), (b"c", b"see"), (b"\xff", b"last")], None)
        assert store.get(1, b"a") is None
        with pytest.raises(ValueError, match="2"):
            store.get(2, b"k\0")
        assert whole_log(store, {1, 2}, 0) == [(position, told) for position, told in BATCHES.items()]
        assert store.reserve_space() == 3


class Drawn:
    """Repeats the random draws of the golden files."""

    def __init__(self):
        self.numbers = iter((SALTS[1], STORE_ID, SALTS[2], SALTS[3]))

    def getrandbits(self, bits):
        assert bits == 64
        return next(self.numbers)


def write(store, position):
    batch = Batch()
    for kind, space, key, value in BATCHES[position]:
        match kind:
            case oracle.NEW_SPACE:
                assert space == store.reserve_space()
                batch.new_space(space)
            case oracle.DROPPED_SPACE:
                batch.drop_space(space)
            case oracle.TOMBSTONE:
                batch.delete(space, key)
            case oracle.VALUE:
                batch.put(space, key, value)
    assert store.write(batch) == position


def have_next_segment(store):
    """Make the next segment, and do no other work."""
    work = store.engine.next_work()
    assert isinstance(work, MakeSegment)
    store.perform(work)


def test_the_engine_writes_them_again(tmp_path):
    """The same writes, crash and draws give the same bytes in every file."""
    drawn = Drawn()

    def opened():
        return Store.open(tmp_path / "store", random=drawn, options=OPTIONS, maintains=False)

    store = opened()
    have_next_segment(store)
    write(store, 2)
    write(store, 3)
    store.mark()
    write(store, 6)
    write(store, 7)
    store._let_go()  # This stands for a kill: the synced position is not recorded.
    with opened() as store:
        write(store, BEGAN + 1)
    assert files_of(tmp_path / "store") == GOLDEN


def test_every_kind_of_frame_is_there():
    """The golden files use every kind of frame and operation."""
    kinds = {
        frame.kind for number, data in make_golden.segments().items() for frame in oracle.frames(data, SALTS[number])
    }
    assert kinds == {BATCH, MARK, NEXT, BEGIN}
    assert {one[0] for told in BATCHES.values() for one in told} == {1, 2, 3, 4}
