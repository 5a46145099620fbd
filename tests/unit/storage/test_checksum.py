"""CRC-32C: both forms against published vectors, against the oracle, and at every address."""

from __future__ import annotations

import ctypes
import mmap
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.storage import _storage, checksum
from tests.oracle import sorted_file as oracle

if TYPE_CHECKING:
    from collections.abc import Iterator


class Fenced:
    """Holds `pages` pages between two forbidden ones."""

    def __init__(self, pages: int = 1) -> None:
        self.size = pages * mmap.PAGESIZE
        self.memory = mmap.mmap(-1, self.size + 2 * mmap.PAGESIZE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) + mmap.PAGESIZE
        for fence in (self.start - mmap.PAGESIZE, self.start + self.size):
            if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(fence), mmap.PAGESIZE, 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")

    def at(self, address: int, data: bytes) -> ctypes.Array[ctypes.c_char]:
        """Return a copy of the data at an address, as a buffer."""
        ctypes.memmove(address, data, len(data))
        return (ctypes.c_char * len(data)).from_address(address)

    def at_end(self, data: bytes) -> ctypes.Array[ctypes.c_char]:
        """Return a copy that ends at the last accessible byte."""
        return self.at(self.start + self.size - len(data), data)

    def places(self, data: bytes) -> Iterator[ctypes.Array[ctypes.c_char]]:
        """Yield copies against the fence at the end, and at every alignment after the fence at the start."""
        yield self.at_end(data)
        for alignment in range(16):
            yield self.at(self.start + alignment, data)


FORMS = [_storage.crc32c, _storage.crc32c_scalar]

VECTORS = {  # RFC 3720, appendix B.4, and the check value of the catalogues.
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    bytes.fromhex("01c00000000000000000000000000000140000000000040000000014000000182800000000000000"
                  "0200000000000000"): 0xD9963A56,
    b"123456789": 0xE3069283,
    b"": 0,
}  # fmt: skip


@pytest.mark.parametrize("form", [*FORMS, oracle.crc32c], ids=["fast", "scalar", "oracle"])
def test_published_vectors(form) -> None:
    assert {data: form(data) for data in VECTORS} == VECTORS


@pytest.mark.parametrize("form", FORMS, ids=["fast", "scalar"])
def test_every_length_at_every_alignment(form) -> None:
    """Lengths through several words agree at 16 alignments and against the end of readable memory."""
    fenced = Fenced()
    data = random.Random(1).randbytes(70)
    for size in range(len(data) + 1):
        expected = oracle.crc32c(data[:size], size)
        for buffer in fenced.places(data[:size]):
            assert form(buffer, size) == expected


@pytest.mark.parametrize("form", FORMS, ids=["fast", "scalar"])
@given(data=st.binary(max_size=300), start=st.integers(0, 2**32 - 1), cut=st.integers(0, 300))
def test_continues_from_any_number(form, data: bytes, start: int, cut: int) -> None:
    """Any data from any start agrees with the oracle, and two halves make the whole."""
    expected = oracle.crc32c(data, start)
    assert form(data, start) == expected
    assert form(data[cut:], form(data[:cut], start)) == expected
    assert form(memoryview(bytearray(data)), start) == expected


@pytest.mark.parametrize("size", [*range(1000, 1030), 2015, 2016, 2017, 3023, 3024, 3031])
def test_lanes(size: int) -> None:
    """The sizes are those at which three lanes of 336 bytes begin."""
    data = random.Random(size).randbytes(size)
    for start in (0, 1, 0xFFFFFFFF, 0x80000000):
        assert _storage.crc32c(data, start) == oracle.crc32c(data, start)


def test_a_page_and_a_megabyte() -> None:
    """The scalar form replaces the oracle for the megabyte, where the oracle is slow."""
    page = random.Random(2).randbytes(4096)
    assert _storage.crc32c(page, 7) == _storage.crc32c_scalar(page, 7) == oracle.crc32c(page, 7)
    large = page * 256 + b"odd"
    assert _storage.crc32c(large) == _storage.crc32c_scalar(large)


def test_the_public_module_is_the_fast_form() -> None:
    assert checksum.crc32c is _storage.crc32c
    assert isinstance(checksum.HARDWARE, bool)


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        None,
        5,
        memoryview(b"abcdef")[::2],
    ],
)
def test_refuses_what_is_no_plain_buffer(wrong) -> None:
    for form in FORMS:
        with pytest.raises((TypeError, ValueError, BufferError)):
            form(wrong)
