"""Mutated documents: the reader returns the written content or an error, never other content."""

import random

import pytest

from gossipkv.dataset.local import manifest
from gossipkv.dataset.source import listing
from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.placement.identity import VersionIdentity
from gossipkv.storage import document

ROUNDS = 100_000


def mutated(rng, data):
    """Apply one to three flips, cuts, copies or insertions."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at, to = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
        match rng.randrange(6):
            case 0 if data:
                data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
            case 1:
                del data[at:to]
            case 2:
                data[at:at] = data[at:to]
            case 3:
                data[at:at] = rng.randbytes(rng.randrange(9))
            case 4:
                del data[to:]
            case _:
                data[at:to] = bytes(to - at)
    return bytes(data)


def test_no_mutation_of_a_document_is_read_as_another():
    rng = random.Random(20)
    files = tuple(manifest.PartitionFile(f"{n:05d}.gkv", n, 0, 4096 + n, n * 7919) for n in range(3))
    body = manifest.to_body(
        manifest.VersionManifest(
            VersionIdentity("db", "v1", "d" * 64, 3, "sequins", regrouped=True), 3, 9, "none", files
        )
    )
    whole = document.encode("MANIFEST", body)
    refused = same = 0
    for _ in range(ROUNDS):
        data = mutated(rng, whole)
        try:
            found = document.decode(data, "file", "MANIFEST")
        except (Corrupt, UnsupportedFormat):
            refused += 1
        else:
            assert found == body
            assert data == whole
            same += 1
    assert refused + same == ROUNDS
    assert refused > 0.95 * ROUNDS


def test_no_body_breaks_the_reader_of_manifests():
    """The checksum holds: a defective program wrote the body."""
    rng = random.Random(21)
    values = [
        None,
        True,
        -1,
        0,
        1,
        10**30,
        1.5,
        "",
        "x",
        [],
        [[]],
        [[1, 2, 3, 4]],
        [None],
        ["00", "f", 1],
        {},
        {"a": []},
    ]
    good = {"database": "d", "version": "v", "digest": "x", "partitions": 1, "function": "sequins", "source_files": 1,
            "source_bytes": 1, "compression": "none", "files": [[1, 2, 3, 4]], "format": "tsv", "alike": ["sequins"],
            "voided": None, "strays": 0, "first_stray": None, "regrouped": False, "refuted": [],
            "share": None, "source_ms": 1}  # fmt: skip
    read = 0
    for _ in range(20_000):
        body = {key: (rng.choice(values) if rng.random() < 0.2 else value) for key, value in good.items()}
        try:
            found = manifest.from_body(body, "file")
        except Corrupt:
            continue
        assert len(found.files) == found.identity.partitions
        assert 0 <= found.source_ms <= 1 << 53
        read += 1
    assert 0 < read < 20_000


@pytest.mark.parametrize("seed", range(3))
def test_no_name_leads_out_of_a_directory(seed):
    """An accepted name is a single path component within the limits of file systems."""
    rng = random.Random(seed)
    accepted = 0
    for _ in range(10_000):
        name = "".join(rng.choice("aZ0-_./\\\0 \n~é") for _ in range(rng.randrange(5)))
        if listing.is_name(name):
            accepted += 1
            assert name
            assert not set(name) & set("./\\\0 \n~é")
    assert accepted > 0
