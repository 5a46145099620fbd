"""SequenceFiles that are cut at every byte."""

from __future__ import annotations

import pytest

from gossipkv.errors import SourceError
from tests.oracle import sequence_file as oracle
from tests.unit.dataset.formats.sequence_files import kinds, read
from tests.unit.dataset.formats.test_sequence_file import RECORDS


def test_truncated_files():
    """A cut gives an error with its place or, at the end of a record, the records before it, as the oracle finds."""
    for kind in kinds(pieces=(2,), block_records=2, sync_every=2):
        if kind.key_class != kind.value_class:
            continue
        records = RECORDS[:5]
        data = oracle.write(records, kind)
        whole = 0
        for size in range(len(data)):
            try:
                found = read(data[:size])
            except SourceError as error:
                assert error.details["file"] == "part-00000"
                assert 0 <= error.details["offset"] <= size
                assert error.details["reason"]
                with pytest.raises(oracle.Malformed):
                    list(oracle.read(data[:size]))
            else:
                whole += 1
                assert found == list(oracle.read(data[:size]))
                assert found == records[: len(found)]
        # Behind the header, and each block but the last; or each record but the last, and each mark.
        assert whole == (3 if kind.compression == oracle.BLOCK else 5 + 2), kind
