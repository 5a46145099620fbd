"""A process that reads one version of a source, and writes its records in key order.

It is told on standard input, as a line of JSON, where the version is and which file to write, and says on standard
output `{"records": n}`, or `{"error": "..."}`.  A record in the file is two numbers of 32 bits, the sizes, then the key
and the value.  Only processes on this machine, of this program, read it.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from gossipkv.errors import GossipKVError
from gossipkv.loadtest.truth import read_version
from gossipkv.processes import leash, niceness

if TYPE_CHECKING:
    from collections.abc import Mapping

SIZES: Final = struct.Struct("=II")


def write_records(records: Mapping[bytes, bytes], file: BinaryIO) -> None:
    """Write records in the form above."""
    for key in sorted(records):
        value = records[key]
        file.write(SIZES.pack(len(key), len(value)) + key + value)


def main() -> None:
    """Do what standard input says."""
    order = json.loads(sys.stdin.buffer.readline())
    leash.wear(order["worn"])
    niceness.give_way(os.getpid())  # The load comes first.
    said: dict[str, str | int]
    try:
        records = read_version(order["place"], order["database"], order["version"])
        with Path(order["file"]).open("xb") as file:
            write_records(records, file)
    except (GossipKVError, OSError) as error:
        said = {"error": str(error)}
    else:
        said = {"records": len(records)}
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
