"""Writes the golden files, by the oracle alone: `python -m tests.golden.make_golden` from the root.

They hold the reader to files of yesterday, so they are written anew only when the format has a new number, or, before
the first release, when the format itself changed; no test writes them.  lz4 chooses its own bytes: files with
compressed blocks are made once and kept.

`manifest-*.document` are written from what docs/development/directory-format.md says.

`store-*` are a store in its second life, from docs/development/store.md: its manifest, and the segments of its log.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from pathlib import Path

from tests.oracle import log
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


# A store of two spaces, the second of which is dropped in the life after a crash.  The frames of the segment in which
# the first life ended, 2, were written anew to 3; 2 itself is gone.
STORE_ID = 0x0123456789ABCDEF
SALTS = {1: 0xA1A2A3A4A5A6A7A8, 2: 0xB1B2B3B4B5B6B7B8, 3: 0xC1C2C3C4C5C6C7C8}
SEGMENT_BYTES = 12 << 10
LAST_BEFORE_CRASH = 7
BEGAN = LAST_BEFORE_CRASH + (1 << 32)
BATCHES: dict[int, list[log.Operation]] = {
    2: [(log.NEW_SPACE, 1, b"", b""), (log.VALUE, 1, b"a", b"1"), (log.VALUE, 1, b"b", b"")],
    3: [(log.TOMBSTONE, 1, b"a", b""), (log.VALUE, 1, b"", noise("of the empty key", 3500))],
    6: [(log.NEW_SPACE, 2, b"", b""), (log.VALUE, 2, b"k\0", noise("of k", 500))],
    7: [(log.VALUE, 2, "Größe".encode(), noise("of a size", 2000)), (log.VALUE, 1, b"c", b"see")],
    BEGAN + 1: [(log.DROPPED_SPACE, 2, b"", b""), (log.VALUE, 1, b"\xff", b"last")],
}  # fmt: skip


def begin(salt: int, position: int, synced: int, life: int) -> bytes:
    return log.frame(salt, log.BEGIN, position, synced, struct.pack("<Q", life))


def batch(salt: int, position: int, synced: int) -> bytes:
    return log.frame(salt, log.BATCH, position, synced, log.batch(BATCHES[position]))


def segment(number: int, life: int, frames: bytes) -> bytes:
    head = log.header(STORE_ID, number, SALTS[number], life, SEGMENT_BYTES)
    return (head + frames).ljust(SEGMENT_BYTES, b"\0")


def segments() -> dict[int, bytes]:
    """The log, by the numbers of its segments."""
    first, third = SALTS[1], SALTS[3]
    following = struct.pack("<QQ", 2, SALTS[2])
    return {
        1: segment(1, 1, begin(first, 1, 0, 1) + batch(first, 2, 1) + batch(first, 3, 2)
            + log.frame(first, log.MARK, 4, 3, b"") + log.frame(first, log.NEXT, 5, 4, following)),
        3: segment(3, 2, batch(third, 6, 5) + batch(third, 7, 6) + begin(third, BEGAN, LAST_BEFORE_CRASH, 2)
            + batch(third, BEGAN + 1, BEGAN) + log.frame(third, log.MARK, BEGAN + 2, BEGAN + 1, b"")),
    }  # fmt: skip


def store() -> dict[str, bytes]:
    """The files of the store, by their names here."""
    cut = log.HEADER_BYTES + len(batch(SALTS[2], 6, 5)) + len(batch(SALTS[2], 7, 6))
    floor = [1, SALTS[1]]
    body: dict[str, object] = {
        "dropped_bytes": 0, "kept": [], "life": 2, "lives": [[1, 2, cut, LAST_BEFORE_CRASH, 3, SALTS[3]]],
        "log_floor": floor, "next_merge": 1, "next_space": 1, "oldest": [], "recovery_floor": floor, "spaces": [],
        "store": STORE_ID, "young": [],
    }  # fmt: skip
    names = {number: f"store-{number:016d}.log" for number in SALTS}
    return {"store-manifest.document": document("STORE", body)} | {
        names[number]: data for number, data in segments().items()
    }


def document(kind: str, body: dict[str, object]) -> bytes:
    """A document by the rules on paper: what it is, a checksum, one line of JSON."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    covered = f" {kind} 1\n{text}\n".encode()
    return b"GossipKV " + format(zlib.crc32(covered), "08x").encode() + covered


def main() -> None:
    images = {f"manifest-{name}.document": document("MANIFEST", body) for name, body in MANIFESTS.items()}
    images |= store()
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
