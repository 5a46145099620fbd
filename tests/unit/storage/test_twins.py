"""Twins of a sorted file: another thread reads the same bytes, and settings of the file apply to all twins."""

from __future__ import annotations

import gc
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from gossipkv.errors import Corrupt
from gossipkv.storage.sorted_file import SortedFile
from tests.world.sorted_files import build

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = {b"%06d" % number: b"value %d " % number * 8 for number in range(5000)}


class Guard:
    def __init__(self) -> None:
        self.entered = 0

    def __enter__(self) -> None:
        self.entered += 1

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(params=["none", "lz4"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    build(tmp_path / "one.gkv", RECORDS.items(), compression=request.param)
    return tmp_path / "one.gkv"


def test_a_twin_has_the_same(path: Path) -> None:
    """The twin also works while the file is read, and a guard always gets the same twin."""
    guard = nullcontext()
    with SortedFile(path) as file:
        twin = file.twin_for(guard)
        assert file.twin_for(guard) is twin
        assert file.twin_for(Guard()) is not twin
        assert dict(twin.scan()) == dict(file.scan()) == RECORDS
        assert twin.get_many([*RECORDS]) == [*RECORDS.values()]
        assert twin.size_bytes == file.size_bytes


def test_twins_are_read_at_once(path: Path) -> None:
    with SortedFile(path) as file:
        twins = [file.twin_for(Guard()) for _ in range(4)]
        wrong: list[bytes] = []

        def read(twin: SortedFile) -> None:
            wrong.extend(key for _ in range(3) for key, value in RECORDS.items() if twin.get(key) != value)

        threads = [threading.Thread(target=read, args=(twin,)) for twin in twins]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_a_file_is_closed_with_its_twins(path: Path) -> None:
    """A pinned twin keeps the file open."""
    file = SortedFile(path)
    twin = file.twin_for(Guard())
    twin.pin()
    assert not closes(file)
    assert twin.get(b"000001") == RECORDS[b"000001"]
    twin.unpin()
    assert closes(file)
    assert not is_open(twin)
    with pytest.raises(ValueError, match="is closed"):
        file.twin_for(Guard())


def closes(file: SortedFile) -> bool:
    try:
        file.close()
    except BufferError:
        return False
    return True


def is_open(file: SortedFile) -> bool:
    try:
        return file.get(b"000001") is not None
    except ValueError:
        return False


def test_a_twin_holds_its_file_and_not_the_other_way(path: Path) -> None:
    """An unreferenced twin is freed, and a twin outlives the owner of its file."""
    guard = Guard()
    file = SortedFile(path)
    twin = file.twin_for(guard)
    assert dict(twin.scan()) == RECORDS
    assert file.twin_for(guard).is_checked(0)
    del twin
    gc.collect()
    assert not file.twin_for(guard).is_checked(0)
    twin = file.twin_for(guard)
    del file
    gc.collect()
    assert twin.get(b"000007") == RECORDS[b"000007"]


def test_what_is_said_of_a_file_is_said_of_its_twins(path: Path) -> None:
    """Within the twins' guards, pages are checked again, distrusted, or read one by one."""
    guard = Guard()
    with SortedFile(path) as file:
        twin = file.twin_for(guard)
        assert dict(twin.scan()) == RECORDS
        assert twin.is_checked(0)
        file.forget_checks()
        assert not twin.is_checked(0)
        file.set_paged(True)
        assert twin.paged
        assert twin.get(b"000003") == RECORDS[b"000003"]
        file.set_paged(False)
        assert not twin.paged
        assert guard.entered == 3
        file.distrust()
        assert dict(twin.scan()) == RECORDS
        assert not twin.is_checked(0)
        late = file.twin_for(Guard())
        assert dict(late.scan()) == RECORDS
        assert not late.is_checked(0)


def test_damage_is_met_by_each(path: Path) -> None:
    """Damage is found by a twin even if the file has checked the page."""
    with SortedFile(path) as file:
        twin = file.twin_for(Guard())
        assert file.get(b"000001") == RECORDS[b"000001"]
        with path.open("r+b") as raw:
            raw.seek(4096 + 100)
            raw.write(b"\xff" * 64)
        with pytest.raises(Corrupt):
            twin.verify()
