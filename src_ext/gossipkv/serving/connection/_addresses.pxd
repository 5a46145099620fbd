"""Connection counts per peer address, for the limit per address.

The unit of counting is an address space that one party can have many connections from at no cost:

* An IPv6 network of 64 bits: the smallest assignment of a host or customer, which contains 2**64 addresses.
* An IPv4 address: it is scarce, and clients behind it (NAT, proxy) cannot be told apart.
* An IPv4 address inside IPv6 (`::ffff:a.b.c.d` of a dual-stack socket, `64:ff9b::a.b.c.d` of a translator, RFC 6052)
  counts as IPv4; otherwise all of IPv4 would be one network, and be refused as one.

The 64-bit numbers never collide: IPv4 addresses are below 2**32, and the IPv6 networks there (`::/96`) contain only
`::1`, which shares its number with the unused 0.0.0.0. The table uses linear probing as `id_set.pxd`; a count of 0 is
an empty entry. Colliding addresses gain an attacker little: there are at most as many entries as connections.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

cdef enum:
    MIN_ADDRESSES = 16

cdef struct AddressCount:
    uint64_t address
    uint32_t count

cdef struct AddressCounts:
    AddressCount* entries
    uint32_t mask
    uint32_t used


cdef inline uint64_t address_number(const uint8_t* data, int size) noexcept nogil:
    """Return the number of an address of 4 or 16 bytes in network order."""
    cdef const char* mapped = b"\0\0\0\0\0\0\0\0\0\0\xff\xff"
    cdef const char* translated = b"\0\x64\xff\x9b\0\0\0\0\0\0\0\0"
    cdef uint64_t number = 0
    cdef int i
    if size == 16 and (memcmp(data, mapped, 12) == 0 or memcmp(data, translated, 12) == 0):
        return address_number(data + 12, 4)
    for i in range(min(size, 8)):
        number = (number << 8) | data[i]
    return number


cdef inline uint32_t addresses_home(const AddressCounts* counts, uint64_t address) noexcept nogil:
    cdef uint64_t mixed = (address ^ (address >> 32)) * 0x9E3779B97F4A7C15ULL
    return <uint32_t>(mixed >> 32) & counts.mask


cdef inline uint32_t addresses_find(const AddressCounts* counts, uint64_t address) noexcept nogil:
    """Return the entry of the address, or the empty entry for it."""
    cdef uint32_t at = addresses_home(counts, address)
    while counts.entries[at].count > 0 and counts.entries[at].address != address:
        at = (at + 1) & counts.mask
    return at


cdef inline uint32_t addresses_count(const AddressCounts* counts, uint64_t address) noexcept nogil:
    return counts.entries[addresses_find(counts, address)].count if counts.used > 0 else 0


cdef inline int addresses_grow(AddressCounts* counts) noexcept nogil:
    cdef uint32_t capacity = 2 * (counts.mask + 1) if counts.entries != NULL else MIN_ADDRESSES
    cdef AddressCounts larger
    cdef uint32_t i
    larger.entries = <AddressCount*>calloc(capacity, sizeof(AddressCount))
    if larger.entries == NULL:
        return -1
    larger.mask = capacity - 1
    larger.used = counts.used
    if counts.entries != NULL:
        for i in range(counts.mask + 1):
            if counts.entries[i].count > 0:
                larger.entries[addresses_find(&larger, counts.entries[i].address)] = counts.entries[i]
    free(counts.entries)
    counts[0] = larger
    return 0


cdef inline int addresses_add(AddressCounts* counts, uint64_t address) noexcept nogil:
    """Count one more connection of that address; -1 if out of memory."""
    cdef AddressCount* entry
    if (counts.entries == NULL or 2 * counts.used > counts.mask) and addresses_grow(counts) < 0:
        return -1
    entry = &counts.entries[addresses_find(counts, address)]
    if entry.count == 0:
        entry.address = address
        counts.used += 1
    entry.count += 1
    return 0


cdef inline void addresses_remove(AddressCounts* counts, uint64_t address) noexcept nogil:
    """Count one connection less. Requires: it was added."""
    cdef uint32_t hole = addresses_find(counts, address)
    cdef uint32_t at = hole
    cdef uint32_t home
    counts.entries[hole].count -= 1
    if counts.entries[hole].count > 0:
        return
    counts.used -= 1
    while True:
        at = (at + 1) & counts.mask
        if counts.entries[at].count == 0:
            return
        home = addresses_home(counts, counts.entries[at].address)
        # The entry may move into the hole unless its home lies between the hole and its place.
        if ((at - home) & counts.mask) >= ((at - hole) & counts.mask):
            counts.entries[hole] = counts.entries[at]
            counts.entries[at].count = 0
            hole = at
