"""Writes the golden sorted files of format 1, by the oracle alone: `python -m tests.golden.make_golden` from the root.

They hold the reader to files of yesterday, so they are written anew only when the format has a new number, or, before
the first release, when the format itself changed; no test writes them.  lz4 chooses its own bytes: files with
compressed blocks are made once and kept.

`manifest-2-*.document` were written by the program when format 2 was its newest; nothing writes that any more.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.oracle import sorted_file as oracle

HERE = Path(__file__).parent
SUMS = HERE / "golden.sha256"

Record = tuple[bytes, bytes]


def noise(name: str, size: int) -> bytes:
    """Bytes that nothing compresses, the same everywhere and for ever."""
    return b"".join(hashlib.sha256(f"{name} {turn}".encode()).digest() for turn in range(size // 32 + 1))[:size]


def several() -> list[Record]:
    """A few hundred records of every kind, in no order, some of them given twice."""
    records = [(f"user:{number:06d}".encode(), f"name {number % 7} of {number}".encode()) for number in range(250)]
    records += [(b"prefix" * length, b"prefixes of each other") for length in range(1, 12)]
    records += [(b"", b"the empty key"), (b"the empty value", b""), (b"\0", b"zero"), (b"\0\0", b"two zeros")]
    records += [(b"zeros" + bytes(length), bytes(length)) for length in range(9)]
    records += [("Größe".encode(), "Maß".encode()), ("日本語".encode(), "日本".encode()), ("𝄞".encode(), b"clef")]
    records += [(b"\xff" * 20, b"\xff not UTF-8"), (b"k" * 300, b"a key of 300 bytes")]
    records += [(b"long, even", b"repeat " * 2000), (b"long, noise", noise("long", 9000))]
    records += [(b"noise", noise("short", 700))]
    records += [(f"noise {number}".encode(), noise(str(number), 4000 + 48 * number)) for number in range(3)]
    records.sort(key=lambda record: hashlib.sha256(record[0]).digest())
    return [*records[100:], *records[:120]]


def crowded() -> list[Record]:
    """Forty keys at home in the first of four buckets, under a fixed seed."""
    keys = (f"monkey:{number}".encode() for number in range(10_000))
    at_home = [key for key in keys if oracle.home(oracle.hash64(key, 1), 4) == 0]
    return [(key, key[::-1]) for key in at_home[:40]]


# name: (records in the order of adding, metadata, the seed where it is not the records' own)
GOLDEN: dict[str, tuple[list[Record], bytes, int | None]] = {
    "empty": ([], b"", None),
    "one": ([(b"key", b"value")], b"metadata", None),
    "several": (several(), b"golden\n" * 3, None),
    "crowded": (crowded(), b"", 1),
}
COMPRESSIONS = {"none": oracle.NONE, "lz4": oracle.LZ4}


def image(name: str, compression: str) -> bytes:
    """The file of that name by the oracle."""
    records, metadata, seed = GOLDEN[name]
    return oracle.write(records, compression=COMPRESSIONS[compression], metadata=metadata, seed=seed)


def main() -> None:
    """Write all files and their sums."""
    sums = [line for line in SUMS.read_text().splitlines(keepends=True) if line.endswith(".document\n")]
    for name in GOLDEN:
        for compression in COMPRESSIONS:
            path = HERE / f"{name}-{compression}.gkv"
            path.write_bytes(image(name, compression))
            sums.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    SUMS.write_text("".join(sums))


if __name__ == "__main__":
    main()
