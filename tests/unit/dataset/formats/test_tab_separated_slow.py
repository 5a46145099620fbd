"""Many short lines; the fast tests are in `test_tab_separated.py`."""

from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.formats.tab_separated import batches
from tests.unit.dataset.formats.cut_reader import CutReader, everything


def records(data, sizes=(1 << 18,), name="x", **options):
    """Return all records, and assert their offsets."""
    found, offsets = everything(batches(CutReader(data, sizes, name), FileReading(**options)))
    for (key, value), offset in zip(found, offsets, strict=True):
        assert data[offset : offset + len(key) + 1] == key + b"\t"
        assert offset == 0 or data[offset - 1 : offset] == b"\n"
        assert data[offset + len(key) + 1 :].startswith(value)
    return found


def test_many_short_lines_fill_batch_after_batch():
    """A chunk has more records than a batch, and a cut line meets a full batch: no record is lost or repeated."""
    data = b"".join(b"%d\t\n" % number for number in range(50_000))
    for sizes in ([1 << 18], [100_003, 1], [len(data)], [7]):
        assert records(data, sizes) == [(b"%d" % number, b"") for number in range(50_000)]
