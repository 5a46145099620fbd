"""Disk space: reservations, and the estimate after a refusal."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset.build.disk_space import NoSpace, Reservation, Reservations, after_refusal, is_full
from gossipkv.dataset.build.job import BuildProgress

FULL = {"errno": errno.ENOSPC, "file": "/x"}


def progress(read=0, written=0):
    """Return the progress on a source of 100 bytes with one record a byte."""
    return BuildProgress(read, 100, read, written)


def test_what_one_build_has_claimed_is_not_there_for_another():
    """A reservation shrinks as the build writes, and ends with the build."""
    claims = Reservations()
    with claims.reserve(60, free_bytes=100) as first:
        with pytest.raises(NoSpace) as caught, claims.reserve(60, free_bytes=100):
            pass
        assert (caught.value.shortage.needed_bytes, caught.value.shortage.free_bytes) == (60, 40)
        with claims.reserve(40, free_bytes=100):
            assert claims.outstanding_bytes == 100
        first.progress = progress(read=100)  # Half of it is on the disk now: 70 are free there.
        assert claims.outstanding_bytes == 30
        with claims.reserve(40, free_bytes=70):
            pass
        first.progress = progress(read=100, written=100)
        assert claims.outstanding_bytes == 0
    assert claims.outstanding_bytes == 0


def test_a_claim_ends_with_an_error_too():
    """Otherwise a failed build would reserve the space for ever."""
    claims = Reservations()
    with pytest.raises(OSError, match="x"), claims.reserve(60, free_bytes=100):
        raise OSError("x")
    assert claims.outstanding_bytes == 0


def test_room_is_never_less_than_nothing():
    """Other programs may have taken more than was free."""
    claims = Reservations()
    with claims.reserve(60, free_bytes=100), pytest.raises(NoSpace) as caught, claims.reserve(1, free_bytes=10):
        pass
    assert caught.value.shortage.free_bytes == 0


@pytest.mark.parametrize(("how_far", "taken", "needed"), [
    (progress(read=50), 100, 400),  # Half of the runs, and the files to come.
    (progress(read=100), 200, 400),
    (progress(read=100, written=50), 300, 400),
    (progress(read=100, written=100), 50, 150),  # Not below the estimate: another program took the space.
    (progress(read=1), 1000, 600),  # Not far above it: so early a refusal says too little.
    (None, 1000, 600),
])  # fmt: skip
def test_a_refusal_teaches_what_the_whole_needs(how_far, taken, needed):
    """The estimate extrapolates from the space taken at the progress so far."""
    shortage = after_refusal(FULL, Reservation(150, how_far), taken)
    assert (shortage.needed_bytes, shortage.free_bytes, shortage.reason) == (needed, taken, "No space left on device")


def test_a_build_that_finds_less_than_its_node_says_so():
    """The build looks at the disk a moment after its node."""
    shortage = after_refusal({"needed_bytes": 200, "free_bytes": 30, "file": "/x"}, Reservation(150), 1000)
    assert (shortage.needed_bytes, shortage.free_bytes) == (200, 30)
    assert shortage.reason is not None


def test_what_is_a_full_disk_and_what_is_not():
    """A quota counts as a full disk; a memory limit and a broken disk do not."""
    assert is_full(FULL)
    assert is_full({"errno": errno.EDQUOT})
    assert is_full({"needed_bytes": 2, "free_bytes": 1})
    assert not is_full({"errno": errno.EIO})
    assert not is_full({"limit": 1, "needed_bytes": 2})
    assert not is_full({})


@given(st.integers(1, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 100), st.integers(0, 100))
def test_each_refusal_raises_the_bar_or_leaves_it(estimate, free, read, written):
    """No build starts again and again for less than its first estimate."""
    shortage = after_refusal(FULL, Reservation(estimate, progress(read, min(read, written))), free)
    assert estimate <= shortage.needed_bytes <= 4 * estimate
