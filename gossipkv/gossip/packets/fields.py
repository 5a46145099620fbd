"""Reading and writing of the fields of a packet.

Whole numbers of variable width are LEB128: seven bits a byte, least significant first, the top bit set on all but the
last. Reading never goes beyond the end: bytes from a peer raise `Malformed`.
"""

from __future__ import annotations

import ipaddress
from typing import final

from gossipkv.address import Address

MAX_VARINT_BYTES = 9  # 63 bits.
_FOLLOWED = 0x80  # Another byte of this number follows.

_FAMILY_BYTES = {4: 4, 6: 16}


class Malformed(Exception):  # Counters use this name.
    """Bytes of a peer break the protocol."""


def varint(number: int) -> bytes:
    """Return the encoding of a whole number of at most 63 bits."""
    if number < _FOLLOWED:
        return bytes((number,))
    out = bytearray()
    while number >= _FOLLOWED:
        out.append((number & 0x7F) | _FOLLOWED)
        number >>= 7
    out.append(number)
    return bytes(out)


def text(value: bytes) -> bytes:
    """Return bytes with their length before them."""
    return varint(len(value)) + value


def address(value: Address) -> bytes:
    """Return one byte family (4 or 6), the IP address, and two bytes port."""
    ip = ipaddress.ip_address(value.host)
    return bytes((ip.version,)) + ip.packed + value.port.to_bytes(2, "big")


@final
class FieldReader:
    """Takes fields from the front of bytes."""

    __slots__ = ("_at", "_data", "_end")

    def __init__(self, data: bytes, begin: int = 0, end: int | None = None) -> None:
        self._data = data
        self._at = begin
        self._end = len(data) if end is None else end

    @property
    def left(self) -> int:
        """Number of bytes left."""
        return self._end - self._at

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        begin, end = self._at, self._at + size
        if end > self._end:
            raise Malformed(f"a field at byte {begin} needs {size} bytes, and {self._end - begin} are left")
        self._at = end
        return self._data[begin:end]

    def byte(self) -> int:
        """Return the next byte."""
        return self.take(1)[0]

    def number(self, size: int) -> int:
        """Return an unsigned number of a fixed width, most significant byte first."""
        return int.from_bytes(self.take(size), "big")

    def varint(self) -> int:
        """Return a number of variable width."""
        number = shift = 0
        for _ in range(MAX_VARINT_BYTES):
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            if byte < _FOLLOWED:
                return number
            shift += 7
        raise Malformed("a number has more than 63 bits")

    def text(self, most: int) -> bytes:
        """Return bytes behind their length, which is at most `most`."""
        size = self.varint()
        if size > most:
            raise Malformed(f"a field has {size} bytes, at most {most} are allowed")
        return self.take(size)

    def address(self) -> Address:
        """Return an IP address with its port."""
        family = self.byte()
        if family not in _FAMILY_BYTES:
            raise Malformed(f"unknown address family {family}")
        host = str(ipaddress.ip_address(self.take(_FAMILY_BYTES[family])))
        return Address(host, self.number(2))
