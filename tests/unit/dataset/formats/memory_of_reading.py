"""SequenceFiles read in a process of its own, which prints the memory used.

    python -m tests.unit.dataset.formats.memory_of_reading MAX_VALUE_BYTES MAX_BLOCK_BYTES PATH...

prints the peak of the resident memory before and after, in bytes, the number of records, and for each file the reason
of its refusal, or null.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from gossipkv.dataset.formats.reading import FileReading
from gossipkv.dataset.formats.sequence_file import batches
from gossipkv.errors import SourceError


def peak_bytes() -> int:
    """Return the peak of the resident memory so far (VmHWM)."""
    (kibibytes,) = re.findall(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kibibytes) * 1024


class DescriptorReader:
    """A file that is read from its descriptor, without a buffer."""

    def __init__(self, path: str) -> None:
        self.name = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self.size_bytes = os.fstat(self._descriptor).st_size

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        found = os.pread(self._descriptor, size_bytes, offset)
        assert len(found) == size_bytes
        return found

    def chunks(self, start: int = 0) -> None:
        raise NotImplementedError


def main(options: FileReading, paths: list[str]) -> None:
    before = peak_bytes()
    records = 0
    reasons = []
    for path in paths:
        try:
            for batch in batches(DescriptorReader(path), options):
                records += len(batch)
        except SourceError as error:
            reasons.append(error.details["reason"])
        else:
            reasons.append(None)
    told = {"before": before, "after": peak_bytes(), "records": records, "reasons": reasons}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(FileReading(max_value_bytes=int(sys.argv[1]), max_block_bytes=int(sys.argv[2])), sys.argv[3:])
