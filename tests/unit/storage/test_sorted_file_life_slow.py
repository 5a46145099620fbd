"""Tests over real processes, sockets, threads or time; `test_sorted_file_life.py` has the others."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from tests.oracle import sorted_file as oracle

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [(b"%03d" % number, b"v" * number) for number in range(300)]
IMAGE = oracle.write(RECORDS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "f.gkv"
    found.write_bytes(IMAGE)
    return found


def test_a_cache_of_any_size() -> None:
    """A cache beyond all memory is refused, and one block is the least; in a process that the refusal might end."""
    script = f"""
        from gossipkv.storage.sorted_file import SortedFile
        image = {oracle.write(RECORDS[:9], compression=oracle.LZ4)!r}
        for size in (0, 1, 4095, 4096, 2**43, 2**44, 2**44 + 4096, 2**63, 2**64 - 1):
            try:
                assert SortedFile(image, cache_bytes=size).get(b"007") == b"vvvvvvv"
            except MemoryError:
                assert size >= 2**43, size
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


ENDS = {
    "everything open": "",
    "scan first": "del scan",
    "file first": "del file",
    "closed scan": "scan.close()",
    "in a cycle": "cycle = [file, scan, building]; cycle.append(cycle); del file, scan, building",
    "in a module": "import sys; sys.modules['zz'] = scan; sys.held = file",
    "exit in the middle": "import os; sys = __import__('sys'); sys.exit(0)",
    "unfinished thread": (
        "import threading, time\n"
        "threading.Thread(target=lambda: [next(scan), time.sleep(0.05), next(scan)], daemon=True).start()"
    ),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_process_ends_without_noise(path: Path, tmp_path: Path, end: str) -> None:
    """Open objects, ended in any order, leave exit status 0 and nothing on either stream."""
    (tmp_path / "out").mkdir()
    script = f"""
        import pathlib
        from gossipkv.storage.builder import SortedFileBuilder
        from gossipkv.storage.sorted_file import SortedFile
        file = SortedFile({os.fspath(path)!r})
        scan = file.scan(reverse=True)
        next(scan)
        other = SortedFile(bytearray(pathlib.Path({os.fspath(path)!r}).read_bytes()))
        file.pin()
        building = SortedFileBuilder({os.fspath(tmp_path / "out")!r}, ["a.gkv"], memory_bytes=8 << 20)
        building.add_all((b"%d" % number, b"v" * 100) for number in range(30_000))
    """
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(script) + end], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
