"""The checker of scans reports each kind of wrong scan, and nothing in a correct one."""

import pytest

from tests.world.replication.scans import Asked, faults_of

THERE, GONE = {b"a", b"c", b"e"}, {b"b"}
RIGHT = [b"a", b"c", b"d", b"e"]  # `d` came and went during the scan: the result may hold it or not.


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("found", "words"),
    [
        (RIGHT, []),
        ([b"a", b"c", b"e"], []),
        ([b"c", b"d", b"e"], ["1 left out, such as b'a'"]),
        ([b"a", b"c"], ["1 left out, such as b'e'"]),
        ([], ["3 left out, such as b'a'"]),
        ([b"a", b"c", b"c", b"e"], ["1 again or not in order, such as b'c'"]),
        ([b"a", b"c", b"e", b"a"], ["1 again or not in order, such as b'a'"]),
        ([b"a", b"e", b"c"], ["1 again or not in order, such as b'c'"]),
        ([b"a", b"b", b"c", b"e"], ["1 not there, such as b'b'"]),
    ],
)
def test_each_fault_is_seen(found, words, reverse):
    asked = Asked(reverse=reverse)
    shown = found[::-1] if reverse else found
    assert [fault.partition(": ")[2] for fault in faults_of(shown, asked, THERE, GONE)] == words


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([b"c", b"d"], []),
        ([b"d"], ["1 left out, such as b'c'"]),
        ([b"c", b"e"], ["1 outside, such as b'e'"]),
        ([b"a", b"c"], ["1 outside, such as b'a'"]),
    ],
)
def test_a_part_is_what_was_asked_for(found, words):
    assert [fault.partition(": ")[2] for fault in faults_of(found, Asked(b"b", b"e"), THERE)] == words
