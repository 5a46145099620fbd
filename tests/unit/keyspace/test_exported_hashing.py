"""The C functions that `hashing.pxd` exports, called with a pointer and a size at any address.

A key lies at the very end of a page before a forbidden one, or at the very start of a page after one: reading one
byte too many ends the process, and Python's faulthandler names the test.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import TYPE_CHECKING

import pytest

from gossipkv.keyspace import _keyspace, partitioner
from tests.oracle import hashing as oracle

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = ctypes.c_ssize_t
KEYS = [bytes(at * 89 % 256 for at in range(size)) for size in range(70)]
TEXTS = [("aé日𝄞" * 20)[at : at + size].encode() for at in range(4) for size in range(20)]
CUT = [text[:-1] for text in TEXTS if text and text[-1] >= 0x80]


def exported(name: str, result: object, *arguments: object) -> ctypes._CFuncPtr:
    """Return the C function of that name from the module's table of exports."""
    capsules = _keyspace.__pyx_capi__
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get_pointer(capsules[name], get_name(capsules[name]))
    return ctypes.CFUNCTYPE(result, *arguments)(address)


sequins_hash = exported("sequins_hash", ctypes.c_int32, ctypes.c_void_p, SIZE)
writable_hash = exported("writable_hash", ctypes.c_int32, ctypes.c_void_p, SIZE)
string_hash = exported("string_hash", SIZE, ctypes.c_void_p, SIZE, ctypes.POINTER(ctypes.c_int32))
murmur3 = exported("murmur3", ctypes.c_uint32, ctypes.c_void_p, SIZE, ctypes.c_uint32)
partition_of = exported("partition_of", SIZE, ctypes.c_int, ctypes.c_void_p, SIZE, SIZE)
sequins_alternate = exported("sequins_alternate", SIZE, ctypes.c_void_p, SIZE, SIZE)


class Fenced:
    """One page of memory between two forbidden pages."""

    def __init__(self) -> None:
        self.page = mmap.PAGESIZE
        self.memory = mmap.mmap(-1, 3 * self.page)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) + self.page
        for fence in (self.start - self.page, self.start + self.page):
            if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(fence), self.page, 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")

    def places(self, key: bytes) -> Iterator[int]:
        """Yield the addresses of copies: against either fence, and at every alignment."""
        for address in (self.start + self.page - len(key), *(self.start + at for at in range(16))):
            ctypes.memmove(address, key, len(key))
            yield address


@pytest.fixture(scope="module")
def fenced() -> Fenced:
    """Return one page for the module: the mapping lasts as long as the process."""
    return Fenced()


def test_hashes_at_any_address(fenced: Fenced) -> None:
    """Exactly the bytes between pointer and size are read, whatever the pointer's alignment."""
    for key in (*KEYS, *TEXTS):
        for address in fenced.places(key):
            assert sequins_hash(address, len(key)) == oracle.sequins(key)
            assert writable_hash(address, len(key)) == oracle.text(key)
            assert murmur3(address, len(key), 7) == oracle.murmur3_32(key, 7)
            assert sequins_alternate(address, len(key), 12) == oracle.sequins_alternate(key, 12)


def test_string_hash_at_any_address(fenced: Fenced) -> None:
    """A character that the end of the key cuts off is refused, and no byte behind the key is read."""
    found = ctypes.c_int32()
    for key in TEXTS:
        for address in fenced.places(key):
            assert string_hash(address, len(key), ctypes.byref(found)) == -1
            assert found.value == oracle.string(key)
    for key in CUT:
        with pytest.raises(UnicodeDecodeError) as refusal:
            key.decode()
        for address in fenced.places(key):
            assert string_hash(address, len(key), ctypes.byref(found)) == refusal.value.start


@pytest.mark.parametrize("name", partitioner.FUNCTIONS)
def test_partition_of_at_any_address(fenced: Fenced, name: str) -> None:
    """The function is chosen by its code, as the serving loop chooses it."""
    function = partitioner.code(name)
    for key in (*TEXTS, b"polygenelubricants"):
        for address in fenced.places(key):
            for count in (1, 5, 4096, 2**31 + 7, sys.maxsize):
                assert partition_of(function, address, len(key), count) == oracle.partition(name, key, count)


def test_partition_of_what_has_none(fenced: Fenced) -> None:
    """An unknown function, a count below 1 and an unhashable key yield -1; nothing is raised."""
    address = next(fenced.places(b"\xff"))
    assert [partition_of(function, address, 1, 7) for function in (0, 1)] == [255 % 7, 30 % 7]
    assert [partition_of(function, address, 1, 7) for function in (2, 3, 4)] == [-1] * 3
    address = next(fenced.places(b"k"))
    assert [partition_of(function, address, 1, 7) for function in (5, -1, 2**31 - 1, -(2**31))] == [-1] * 4
    assert [partition_of(0, address, 1, count) for count in (0, -1, -(2**63))] == [-1] * 3
    assert [sequins_alternate(address, 1, count) for count in (0, -1, -(2**63))] == [-1] * 3


@pytest.mark.parametrize("function", [-1, 5])
def test_partition_by_an_unknown_code(function: int) -> None:
    with pytest.raises(ValueError, match=f"must be from 0 to 4, got {function}"):
        _keyspace.partition(function, b"k", 7)
