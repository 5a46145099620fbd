"""Memory of reading compressed text; the fast tests are in `test_text.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.dataset.formats.compressed import COMPRESS, hadoop_lz4, snappy

ROOT = Path(__file__).parents[4]


BOMB = """
import sys
from gossipkv.dataset.formats import text
from gossipkv.dataset.formats.reading import FileReading
from tests.unit.dataset.formats.cut_reader import CutReader

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

reader = CutReader(open(sys.argv[1], "rb").read(), name=sys.argv[1])
list(text.chunks(CutReader(b"", name=sys.argv[1]), FileReading()))
before = peak()
made = sum(map(len, text.chunks(reader, FileReading())))
print(made, peak() - before)
"""


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_bomb_takes_no_memory(suffix, tmp_path):
    """256 MiB of one letter are read in steps, whatever the compression."""
    piece = b"a" * (1 << 25)
    sizes = {"block_bytes": 1 << 20, "chunk_bytes": 1 << 18}
    stored = {".snappy": snappy, ".lz4": hadoop_lz4}[suffix](piece, **sizes) if suffix in {".snappy", ".lz4"} else None
    path = tmp_path / f"bomb{suffix}"
    path.write_bytes((COMPRESS[suffix](piece) if stored is None else stored) * 8)
    child = subprocess.run(
        [sys.executable, "-c", BOMB, str(path)], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    made, grown_kib = map(int, child.stdout.split())
    assert made == 8 * len(piece)
    assert grown_kib < 20 << 10
