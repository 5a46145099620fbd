"""Memory of reading compressed files; the fast tests are in `test_codecs.py`."""

from __future__ import annotations

import bz2
import json
import os
import struct
import subprocess
import sys
import zlib

import cramjam
import pytest

from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.formats.sequence_file import memory_bytes
from gossipkv.processes.child import MMAP_THRESHOLD_BYTES
from tests.oracle import sequence_file as oracle
from tests.unit.dataset.formats import memory_of_reading
from tests.unit.dataset.formats.sequence_files import CODECS, short

MIB = 1 << 20

AS_A_BUILD = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD_BYTES)}


def word(number):
    return struct.pack(">I", number)


# -- bombs: 64 MiB of zeros, many times the limits --------------------------------------------------------------------

BOMB_BYTES = 64 * MIB
MAX_VALUE_BYTES = MIB
MAX_BLOCK_BYTES = 4 * MIB


def bomb(codec):
    zeros = bytes(4 * MIB)
    times = BOMB_BYTES // len(zeros)
    match short(codec):
        case "DefaultCodec" | "DeflateCodec" | "GzipCodec":
            stream = zlib.compressobj(1, zlib.DEFLATED, 31 if short(codec) == "GzipCodec" else 15)
            return b"".join(stream.compress(zeros) for _ in range(times)) + stream.flush()
        case "BZip2Codec":
            return bz2.compress(zeros) * times
        case "ZStandardCodec":
            return bytes(cramjam.zstd.compress(bytes(BOMB_BYTES)))
        case "SnappyCodec":
            chunk = oracle.snappy_raw(bytes(BOMB_BYTES))
        case _:
            chunk = oracle.lz4_raw(bytes(BOMB_BYTES))
    return word(BOMB_BYTES) + word(len(chunk)) + chunk


def files(codec):
    """Yield files with a bomb in a value, in each buffer of a block, and where its size is declared."""
    explosive = bomb(codec)
    pack = oracle.COMPRESS[codec]
    kind = oracle.Kind(compression=oracle.RECORD, codec=codec)
    yield oracle.write_header(kind) + struct.pack(">ii", 2 + len(explosive), 2) + b"\1k" + explosive
    kind = oracle.Kind(codec=codec)
    head = oracle.write_header(kind) + struct.pack(">i", -1) + kind.sync
    good = [pack(part, 1) for part in (b"\2", b"\1k", b"\2", b"\1v")]
    for place in range(4):
        buffers = [*good[:place], explosive, *good[place + 1 :]]
        yield head + oracle.vint(1) + b"".join(oracle.vint(len(part)) + part for part in buffers)
    lengths = pack(oracle.vint(BOMB_BYTES), 1)
    yield head + oracle.vint(1) + b"".join(oracle.vint(len(part)) + part for part in (lengths, explosive, *good[2:]))
    lengths = pack(oracle.vint(MAX_BLOCK_BYTES - 10), 1)
    buffers = (*good[:2], lengths, explosive)
    yield head + oracle.vint(1) + b"".join(oracle.vint(len(part)) + part for part in buffers)
    yield head + oracle.vint(2**31 - 1) + b"".join(oracle.vint(len(part)) + part for part in [explosive] * 4)
    yield head + oracle.vint(1_000_000) + b"".join(oracle.vint(len(part)) + part for part in [explosive] * 4)


@pytest.mark.parametrize("codec", CODECS, ids=short)
def test_bombs_take_no_memory(codec, tmp_path):
    """The peak of the process stays within the estimate for reading, and each bomb is refused."""
    limits = [str(MAX_VALUE_BYTES), str(MAX_BLOCK_BYTES)]
    paths = []
    for number, data in enumerate(files(codec)):
        path = tmp_path / f"part-{number:05}"
        path.write_bytes(data)
        paths.append(str(path))
    module = [sys.executable, "-m", memory_of_reading.__name__]
    done = subprocess.run([*module, *limits, *paths], capture_output=True, text=True, check=True, env=AS_A_BUILD)
    told = json.loads(done.stdout)
    assert len(told["reasons"]) == 9
    assert all(told["reasons"])
    allowed = memory_bytes(FileReading(max_value_bytes=MAX_VALUE_BYTES, max_block_bytes=MAX_BLOCK_BYTES))
    assert allowed < BOMB_BYTES // 2
    assert told["after"] - told["before"] < allowed


def test_long_values_do_not_wait_for_a_full_batch(tmp_path):
    """Each value is within its limit, but 16,384 of them would not fit."""
    kind = oracle.Kind(compression=oracle.RECORD)
    path = tmp_path / "part-00000"
    path.write_bytes(oracle.write([(b"key", bytes(MAX_VALUE_BYTES))] * 100, kind))
    module = [sys.executable, "-m", memory_of_reading.__name__]
    limits = [str(MAX_VALUE_BYTES), str(MAX_BLOCK_BYTES)]
    done = subprocess.run([*module, *limits, str(path)], capture_output=True, text=True, check=True, env=AS_A_BUILD)
    told = json.loads(done.stdout)
    assert (told["records"], told["reasons"]) == (100, [None])
    allowed = memory_bytes(FileReading(max_value_bytes=MAX_VALUE_BYTES, max_block_bytes=MAX_BLOCK_BYTES))
    assert told["after"] - told["before"] < allowed
