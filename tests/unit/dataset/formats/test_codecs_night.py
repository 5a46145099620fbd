"""Codecs at their limits."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest

from gossipkv.dataset.formats.codecs import decompressor
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.formats.sequence_file import memory_bytes
from tests.oracle import sequence_file as oracle
from tests.unit.dataset.formats import memory_of_reading
from tests.unit.dataset.formats.sequence_files import CODECS, short
from tests.unit.dataset.formats.test_codecs import CHUNKS, MIB, STREAMS
from tests.unit.dataset.formats.test_codecs_slow import AS_A_BUILD

ZSTANDARD = "org.apache.hadoop.io.compress.ZStandardCodec"


@pytest.mark.parametrize("codec", STREAMS, ids=short)
def test_output_and_input_longer_than_a_step(codec):
    """The inputs are noise, which stays long when compressed, and text, in several streams."""
    noise = random.Random(7).randbytes(3 * MIB // 2)
    for data in (noise, b"some text " * 300_000, noise + bytes(3 * MIB) + noise[::-1]):
        for pieces in (1, 3):
            assert decompressor(codec)(oracle.COMPRESS[codec](data, pieces), len(data)) == data


LARGE_VALUE_BYTES = 8 * MIB

LARGE_BLOCK_BYTES = 16 * MIB


def frame_with_a_long_window(data):
    """Return a zstd frame in stored blocks, whose reader has to keep the last 128 MiB."""
    written = bytes.fromhex("28b52ffd 00 88")  # Magic; no size, no checksum; a window of 2**27.
    last = max(0, len(data) - 1) >> 17
    for number in range(last + 1):
        block = data[number << 17 : (number + 1) << 17]
        written += (len(block) << 3 | (number == last)).to_bytes(3, "little") + block
    return written


@pytest.mark.parametrize("compression", [oracle.NONE, oracle.RECORD, oracle.BLOCK])
@pytest.mark.parametrize("codec", [CODECS[0], ZSTANDARD, *CHUNKS], ids=short)
def test_the_largest_that_is_allowed_is_read_in_the_memory_it_is_said_to_take(
    compression, codec, tmp_path, monkeypatch
):
    """Two blocks or values of noise are at their limits, and the file is longer than the memory."""
    monkeypatch.setitem(oracle.COMPRESS, ZSTANDARD, lambda data, _: frame_with_a_long_window(data))
    draw = random.Random(3)
    in_blocks = compression == oracle.BLOCK
    sizes = [MIB - 100] * 16 if in_blocks else [LARGE_VALUE_BYTES] * 6
    records = [(b"k%d" % number, draw.randbytes(size)) for number, size in enumerate(sizes)] + [(b"k", b"v")] * 20
    kind = oracle.Kind(compression=compression, codec=codec, block_records=len(records))
    records *= 2 if in_blocks else 1
    path = tmp_path / "part-00000"
    path.write_bytes(oracle.write(records, kind))
    module = [sys.executable, "-m", memory_of_reading.__name__]
    limits = [str(LARGE_VALUE_BYTES), str(LARGE_BLOCK_BYTES)]
    done = subprocess.run([*module, *limits, str(path)], capture_output=True, text=True, check=True, env=AS_A_BUILD)
    told = json.loads(done.stdout)
    assert (told["records"], told["reasons"]) == (len(records), [None])
    allowed = memory_bytes(FileReading(max_value_bytes=LARGE_VALUE_BYTES, max_block_bytes=LARGE_BLOCK_BYTES))
    assert told["after"] - told["before"] < allowed
