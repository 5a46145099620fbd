"""A small set of message ids: the unanswered hand-offs of one connection.

The table uses linear probing; an entry is the id plus one, so 0 is empty. A removal moves the entries behind it back,
so there are no tombstones, and a long-lived connection never slows down. Empty sets hold no memory.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free

cdef enum:
    MIN_IDS = 16

cdef struct IdSet:
    uint64_t* slots
    uint32_t mask
    uint32_t count


cdef inline void ids_release(IdSet* ids) noexcept nogil:
    free(ids.slots)
    ids.slots = NULL
    ids.mask = 0
    ids.count = 0


cdef inline uint32_t ids_home(const IdSet* ids, uint64_t entry) noexcept nogil:
    return <uint32_t>((entry * 0x9E3779B97F4A7C15ULL) >> 32) & ids.mask


cdef inline bint ids_find(const IdSet* ids, uint32_t msgid, uint32_t* slot) noexcept nogil:
    """Find the slot of the id, or the empty slot for it. Return True if the id is in the set."""
    cdef uint64_t entry = <uint64_t>msgid + 1
    cdef uint32_t at = ids_home(ids, entry)
    while ids.slots[at] != 0:
        if ids.slots[at] == entry:
            slot[0] = at
            return True
        at = (at + 1) & ids.mask
    slot[0] = at
    return False


cdef inline bint ids_contain(const IdSet* ids, uint32_t msgid) noexcept nogil:
    cdef uint32_t slot
    return ids.count > 0 and ids_find(ids, msgid, &slot)


cdef inline int ids_grow(IdSet* ids) noexcept nogil:
    cdef uint32_t capacity = 2 * (ids.mask + 1) if ids.slots != NULL else MIN_IDS
    cdef uint32_t slot
    cdef uint32_t i
    cdef IdSet larger
    larger.slots = <uint64_t*>calloc(capacity, sizeof(uint64_t))
    if larger.slots == NULL:
        return -1
    larger.mask = capacity - 1
    larger.count = ids.count
    if ids.slots != NULL:
        for i in range(ids.mask + 1):
            if ids.slots[i] != 0:
                ids_find(&larger, <uint32_t>(ids.slots[i] - 1), &slot)
                larger.slots[slot] = ids.slots[i]
    free(ids.slots)
    ids[0] = larger
    return 0


cdef inline int ids_add(IdSet* ids, uint32_t msgid) noexcept nogil:
    """Add an id; -1 if out of memory. Requires: the id is not in the set."""
    cdef uint32_t slot
    if (ids.slots == NULL or 2 * ids.count > ids.mask) and ids_grow(ids) < 0:
        return -1
    ids_find(ids, msgid, &slot)
    ids.slots[slot] = <uint64_t>msgid + 1
    ids.count += 1
    return 0


cdef inline bint ids_remove(IdSet* ids, uint32_t msgid) noexcept nogil:
    cdef uint32_t hole
    cdef uint32_t at
    cdef uint32_t home
    if ids.count == 0 or not ids_find(ids, msgid, &hole):
        return False
    ids.count -= 1
    at = hole
    while True:
        at = (at + 1) & ids.mask
        if ids.slots[at] == 0:
            break
        home = ids_home(ids, ids.slots[at])
        # The entry may move into the hole unless its home lies between the hole and its place.
        if ((at - home) & ids.mask) >= ((at - hole) & ids.mask):
            ids.slots[hole] = ids.slots[at]
            hole = at
    ids.slots[hole] = 0
    if ids.count == 0:
        ids_release(ids)
    return True
