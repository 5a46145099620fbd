"""A store on a small file system that something else fills: `python -m tests.unit.storage.small_disk DIR HOW`.

The file system is mounted in a namespace, so no privilege is needed where users may make namespaces, and it ends with
the process. The results are printed line by line, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from gossipkv.environment.trio_world import real
from gossipkv.errors import Overloaded
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.shell import Batch, EngineShell, open_store

MIB = 1 << 20
UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")
MOUNT = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift && exec "$0" -m tests.unit.storage.small_disk "$@"'
OPTIONS = EngineOptions(segment_bytes=MIB, table_log=0, file_bytes=MIB)
VALUE = 50_000
KEPT, GONE = 1, 2
ENOUGH = 20


def missing(path: Path) -> str | None:
    """Return why no own file system can be mounted; None if one can."""
    command = [*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", path]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return said.stderr.strip() or None if said.returncode else None


def told(path: Path, size: str, how: str) -> dict[str, object]:
    """Return the program's result on a file system of that size; skip the test if none can be mounted."""
    if (why := missing(path)) is not None:
        pytest.skip(f"needs the right to mount a tmpfs: {why}")
    command = [*UNSHARE, "sh", "-c", MOUNT, sys.executable, size, str(path), how]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    found: dict[str, object] = json.loads(said.stdout.splitlines()[-1])
    return found


def batch(*operations: tuple[str, *tuple[object, ...]]) -> Batch:
    made = Batch()
    for name, *arguments in operations:
        getattr(made, name)(*arguments)
    return made


def fill(path: Path) -> None:
    with path.open("ab", buffering=0) as hog:
        for size in (MIB, 4096):
            try:
                while hog.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


async def filled(store: EngineShell) -> int:
    """Write to both spaces until free space is too low; return the number of records in each."""
    for space in (KEPT, GONE):
        assert store.reserve_space() == space
        await store.write(batch(("new_space", space)))
    count, reason = 0, ""
    while "too little free space" not in reason:
        try:
            for space in (KEPT, GONE):
                await store.put(space, b"%06d" % count, os.urandom(VALUE))
            count += 1
        except Overloaded as refusal:
            reason = str(refusal)
    return count


async def relieve(directory: Path, how: str) -> dict[str, object]:
    """Fill the disk from both sides, drop or delete a space, and write again."""
    async with open_store(directory / "store", real(), OPTIONS) as store:
        count = await filled(store)
        fill(directory / "hog")
        refused = 0
        with trio.move_on_after(2):
            while True:
                try:
                    await store.put(KEPT, b"more", b"")
                except Overloaded:
                    refused += 1
                fill(directory / "hog")
        fill(directory / "hog")  # The store may have removed a file since.
        free = os.statvfs(directory).f_bavail
        if how == "drop":
            await store.write(batch(("drop_space", GONE)))
        else:
            for number in range(count):
                await store.write(batch(("delete", GONE, b"%06d" % number)))
        written = 0
        with trio.move_on_after(60):
            while written < ENOUGH:
                try:
                    await store.put(KEPT, b"after%d" % written, bytes(VALUE))
                    written += 1
                except Overloaded:
                    pass
        kept = all(len(store.get(KEPT, b"%06d" % number) or b"") == VALUE for number in range(count))
        return {"count": count, "refused": refused, "free": free, "written": written, "kept": kept}


async def overwrite(directory: Path, count: int) -> dict[str, object]:
    """Write so many values of 1 MiB to a store with files and segments of the usual size, then overwrite some."""
    async with open_store(directory / "store", real(), EngineOptions(table_log=0)) as store:
        space = store.reserve_space()
        await store.write(batch(("new_space", space)))
        for turn, some in enumerate((count, count // 8)):
            for number in range(some):
                value = bytes([turn]) * 8 + os.urandom(MIB - 8)
                while True:
                    try:
                        await store.put(space, b"%06d" % (number * 7919 % count), value)
                        break
                    except Overloaded:
                        pass  # The test's time limit ends this loop.
        again = {number * 7919 % count for number in range(count // 8)}
        right = all(
            (store.get(space, b"%06d" % number) or b"")[:8] == bytes([number in again]) * 8 for number in range(count)
        )
        return {"right": right, "merged": store.describe()["merged_bytes"]}


if __name__ == "__main__":
    path, how = Path(sys.argv[1]), sys.argv[2]
    done = trio.run(overwrite, path, int(how)) if how.isdigit() else trio.run(relieve, path, how)
    sys.stdout.write(json.dumps(done) + "\n")
