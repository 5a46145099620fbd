"""Large SequenceFiles of numbers; the fast tests are in `test_sequence_file_numbers.py`."""

from __future__ import annotations

import pytest

from gossipkv.dataset.formats import sequence_file
from gossipkv.dataset.formats.reading import FileReading
from tests.oracle import sequence_file as oracle
from tests.unit.dataset.formats.readers import MemoryReader

COMPRESSIONS = (oracle.NONE, oracle.RECORD, oracle.BLOCK)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_more_numbers_than_a_batch_holds(compression):
    """Each batch keeps its own texts while the next is filled."""
    records = [(b"%d" % -number, b"%d" % (number << 40)) for number in range(40_000)]
    kind = oracle.Kind(
        key_class=oracle.VINT_WRITABLE,
        value_class=oracle.LONG_WRITABLE,
        compression=compression,
        codec=oracle.CODECS + "SnappyCodec",
        block_records=39_000,
    )
    reader = MemoryReader(oracle.write(records, kind))
    assert [record for batch in sequence_file.batches(reader, FileReading()) for record in batch] == records
