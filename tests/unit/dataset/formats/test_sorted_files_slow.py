"""Long and many records; the fast tests are in `test_sorted_files.py`."""

import random
import struct

import pytest

from gossipkv.dataset.formats import sorted_files
from gossipkv.dataset.formats.reading import FileReading
from gossipkv.errors import Corrupt
from tests.oracle import sorted_file as oracle
from tests.unit.dataset.formats.cut_reader import CutReader, everything
from tests.unit.dataset.formats.test_sorted_files import BOTH, read, sealed
from tests.world.sorted_files import build


@BOTH
@pytest.mark.parametrize("sizes", [(8,), (0, 5000, 100), (3 << 20, 5, 1 << 20), (16 << 20, 1), (4096, 8192, 4088)])
def test_records_that_pieces_cut_are_whole(tmp_path, compression, sizes):
    """Values are longer than a piece, or records are too many for a batch."""
    chance = random.Random(7)
    count = 40_000 if max(sizes) < 100 else 600 if max(sizes) < 10_000 else 7
    records = {b"key %06d" % n: chance.randbytes(chance.choice(sizes)) for n in range(count)}
    build(tmp_path / "a.gkv", records.items(), compression=compression)
    reader = CutReader((tmp_path / "a.gkv").read_bytes())
    found, _ = everything(sorted_files.batches(reader, FileReading()))
    assert found == sorted(records.items())
    assert reader.largest_read <= (1 << 20) + max(sizes) + 8192


def test_insane_block_tables_are_refused():
    """Entries go back, leave the records, are empty or too few; blocks are not lz4."""
    values = [(b"k%03d" % n, bytes(random.Random(n).choices(b"ab", k=900))) for n in range(60)]
    values[30] = (b"k030", b"x" * 9000)
    data = oracle.write(values, compression=oracle.LZ4)
    footer = oracle.File(data).footer

    def entry(number, value):
        return lambda body: body.__setitem__(
            slice(footer.block_table + 8 * number, footer.block_table + 8 * number + 8), struct.pack("<Q", value)
        )

    assert read(sealed(data))[0] == values
    for number in range(footer.blocks + 1):
        for value in (0, 63, 65, 2**62, 2**63, 2**64 - 1, footer.records_end + 1):
            with pytest.raises(Corrupt):
                read(sealed(data, entry(number, value)))
    with pytest.raises(Corrupt):
        read(sealed(data, blocks=footer.blocks - 1))
    with pytest.raises(Corrupt, match="damaged at byte 64: "):
        read(sealed(data, lambda body: body.__setitem__(slice(64, 80), b"\xff" * 16)))
