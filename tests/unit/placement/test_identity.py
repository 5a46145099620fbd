"""The identity of a version."""

import hashlib
from dataclasses import replace

from gossipkv.placement.identity import VersionIdentity, digest


def test_the_digest_is_the_one_of_the_specification():
    """Names are sorted as bytes and sizes are decimal, so any program can compute it."""
    expected = hashlib.sha256(b"1:Z7\n6:part-00\n2:\xc3\xa912\n").hexdigest()
    assert digest([("é", 12), ("part-0", 0), ("Z", 7)]) == expected


def test_names_and_numbers_cannot_be_confused():
    """A name that ends in a digit is not another name with a longer size."""
    assert digest([("a", 11)]) != digest([("a1", 1)])
    assert digest([("a", 1), ("b", 2)]) != digest([("a", 2), ("b", 1)])
    assert digest([("a1\n1:b", 2)]) != digest([("a", 1), ("b", 2)])
    assert digest([]) == hashlib.sha256().hexdigest()


def test_a_name_that_is_no_utf_8_has_a_digest():
    """File names are bytes."""
    assert digest([("\udcff", 1)]) == hashlib.sha256(b"1:\xff1\n").hexdigest()


def test_the_wire_id_is_the_one_of_its_specification():
    """The id has sixteen bytes that any program can compute and that every field changes."""
    identity = VersionIdentity("geo", "1é", "d" * 64, 12, "sequins", regrouped=True)
    written = b"3:geo\n3:1\xc3\xa9\n64:" + b"d" * 64 + b"\n2:12\n7:sequins\n9:regrouped\n"
    assert identity.wire_id == hashlib.sha256(written).digest()[:16]
    others = [
        replace(identity, database="ge"),
        replace(identity, version="1"),
        replace(identity, digest="e" * 64),
        replace(identity, partitions=1),
        replace(identity, function="text"),
        replace(identity, regrouped=False),
    ]
    assert len({identity.wire_id, *(other.wire_id for other in others)}) == 7
