"""A disk that fills up during a build."""

from __future__ import annotations

import pytest
import trio

from gossipkv.environment.real_files import RealFiles
from tests.unit.dataset.build import test_full_disk_slow as usual
from tests.unit.dataset.build.test_full_disk_slow import node, records, told
from tests.unit.dataset.world import active, get, lift_the_throttle, until
from tests.world.logs import capture_logs

small_disk = usual.small_disk


def fill(path, disk, leave_bytes):
    """Fill the disk with a foreign file, up to `leave_bytes`."""
    with path.open("wb") as file:
        while (free_bytes := RealFiles().free_bytes(disk)) > leave_bytes:
            file.write(bytes(min(1 << 20, free_bytes - leave_bytes)))
            file.flush()


@pytest.mark.parametrize("count", [16_000, 40_000], ids=["one lane", "lanes"])
async def test_a_disk_that_somebody_fills_up_in_the_middle_is_waited_for(put, tmp_path, small_disk, monkeypatch, count):
    """The files of the build are removed, and it starts again only when there is space."""
    disk, grow = small_disk
    grow(f"{count // 250}m")
    monkeypatch.setattr("gossipkv.dataset.lifecycle.copies.POLL_MS", 20)
    put("v1", [records(100, 1000)])
    hog = disk / "hog"
    with capture_logs() as logs:
        async with node(tmp_path, disk, throttle_loads=count << 7) as library:
            await active(library, "v1")
            put("v2", [records(count // 2, 1000), records(count // 2 + 1, 1000)])
            await library.rescan()
            await until(lambda: told(library, "v2").get("progress", {}).get("read_bytes"))
            fill(hog, disk, leave_bytes=1 << 20)
            lift_the_throttle(library)
            await until(lambda: told(library, "v2")["state"] == "SEEN")
            version = told(library, "v2")
            assert "No space left on device" in version["waiting_for"]
            assert version["needed_bytes"] > version["free_bytes"]
            assert list((disk / "data/building/db").iterdir()) == []
            assert get(library, b"7") is not None
            await trio.sleep(0.2)
            assert told(library, "v2")["state"] == "SEEN"
            hog.unlink()
            await active(library, "v2")
            assert library.active("db").records == count // 2 + 1
    assert [line["version"] for line in logs if line["event"] == "building"] == ["v1", "v2", "v2"]
