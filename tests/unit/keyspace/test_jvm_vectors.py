"""The JVM's own hashes, compared with our code and the oracle.

`tests/vectors/make_jvm_vectors.py` lists the sources.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from gossipkv.keyspace import partitioner
from tests.oracle import hashing as oracle

VECTORS = Path(__file__).parents[2] / "vectors"
JVM = json.loads(VECTORS.joinpath("jvm_hashes.json").read_text(encoding="ascii"))
COLUMN = {"sequins": "sequins", "text": "text", "string": "string", "spark": "string", "cascading": "cascading"}


def test_files_are_the_ones_that_were_made() -> None:
    listed = dict(reversed(line.split()) for line in VECTORS.joinpath("vectors.sha256").read_text().splitlines())
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VECTORS.glob("*.json")}
    assert found == listed


@pytest.mark.parametrize("name", partitioner.FUNCTIONS)
def test_jvm_hash_and_partitions(name: str) -> None:
    refused = 0
    for row in JVM["rows"]:
        key = bytes.fromhex(row["key"])
        if row[COLUMN[name]] is None:
            refused += 1
            with pytest.raises(ValueError, match="not UTF-8"):
                partitioner.hash_function(name)(key)
            with pytest.raises(UnicodeDecodeError):
                oracle.HASHES[name](key)
            continue
        assert partitioner.hash_function(name)(key) == oracle.HASHES[name](key) == row[COLUMN[name]], key
        ours = [partitioner.partition(name, key, count) for count in JVM["counts"]]
        assert ours == row["partitions"][name], key
        assert [oracle.partition(name, key, count) for count in JVM["counts"]] == ours, key
    assert refused == (0 if name in {"sequins", "text"} else sum(row["string"] is None for row in JVM["rows"]))


def test_jvm_murmur3() -> None:
    """Guava, Scala and mmh3 agree on these answers."""
    for row in JVM["rows"]:
        key = bytes.fromhex(row["key"])
        assert [partitioner.murmur3_32(key, seed) for seed in JVM["seeds"]] == row["murmur3"], key
        assert [oracle.murmur3_32(key, seed) for seed in JVM["seeds"]] == row["murmur3"], key


def test_jvm_sha1() -> None:
    for row in JVM["rows"]:
        key = bytes.fromhex(row["key"])
        assert partitioner.sha1(key).hex() == row["sha1"], key
