"""The identity of a version."""

import hashlib

from gossipkv.placement.identity import digest


def test_the_digest_is_the_one_of_the_specification():
    """Names sorted as bytes, sizes in decimal: any program can compute it."""
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
