"""Writes the golden files, by the oracle alone: `python -m tests.golden.make_golden` from the root.

They hold the reader to files of yesterday, so they are written anew only when the format has a new number, or, before
the first release, when the format itself changed; no test writes them.  lz4 chooses its own bytes: files with
compressed blocks are made once and kept.

`manifest-2-*.document` and `manifest-3-*.document` were written by the program when these formats were its newest;
nothing writes them any more.  Those of format 4 are written here, from what docs/operators/data-directory.md says.
"""

from __future__ import annotations

import hashlib
import json
import zlib
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


DIGEST = hashlib.sha256(b"a source").hexdigest()
WHOLE: dict[str, object] = {
    "alike": ["sequins", "string"], "compression": "lz4", "database": "geo", "digest": DIGEST,
    "files": [[10, 1, 5000, 7], [20, 2, 6000, 8]], "first_stray": None, "format": "sequence", "function": "sequins",
    "partitions": 2, "refuted": [], "regrouped": False, "share": None, "source_bytes": 3000, "source_files": 2,
    "source_ms": 1_767_225_600_123, "strays": 0, "version": "2026-01", "voided": None,
}  # fmt: skip
MANIFESTS = {
    "whole": WHOLE,
    "shared": {
        **WHOLE, "files": [None, [20, 2, 6000, 8], None], "partitions": 3, "regrouped": True, "refuted": ["cascading"],
        "share": "06", "voided": "cascading", "strays": 3, "first_stray": ["6bff", "/source/geo/2026-01/part-1", 77],
        "source_ms": 0,
    },
}  # fmt: skip


def document(kind: str, number: int, body: dict[str, object]) -> bytes:
    """A document by the rules on paper: what it is, a checksum, one line of JSON."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    covered = f" {kind} {number}\n{text}\n".encode()
    return b"GossipKV " + format(zlib.crc32(covered), "08x").encode() + covered


def main() -> None:
    """Write all files and their sums."""
    kept = [path for path in HERE.glob("*.document") if not path.name.startswith("manifest-4-")]
    images = {path.name: path.read_bytes() for path in sorted(kept)}
    images |= {f"manifest-4-{name}.document": document("MANIFEST", 4, body) for name, body in MANIFESTS.items()}
    sums = []
    for name, data in images.items():
        (HERE / name).write_bytes(data)
        sums.append(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
    for name in GOLDEN:
        for compression in COMPRESSIONS:
            path = HERE / f"{name}-{compression}.gkv"
            path.write_bytes(image(name, compression))
            sums.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    SUMS.write_text("".join(sums))


if __name__ == "__main__":
    main()
