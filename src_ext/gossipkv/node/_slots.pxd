"""The slots of connections, and which are free.

A handle is `generation << 32 | slot`: a slot is used again with the next generation, so a handle of a connection that
is gone finds nobody.  A slot stays where it is in memory, and is never given back: there are as many as there were
connections at once.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, realloc
from libc.string cimport memset

from gossipkv.node._state cimport FREE, Connection
from gossipkv.storage._format cimport prefetch

cdef struct Slots:
    Connection** at
    uint32_t count
    uint32_t* free
    uint32_t free_count


cdef inline int slots_grow(Slots* slots) noexcept nogil:
    """One more."""
    cdef uint32_t count = slots.count + 1
    cdef Connection** at = <Connection**>realloc(slots.at, count * sizeof(Connection*))
    cdef uint32_t* free_slots
    if at == NULL:
        return -1
    slots.at = at
    free_slots = <uint32_t*>realloc(slots.free, count * sizeof(uint32_t))
    if free_slots == NULL:
        return -1
    slots.free = free_slots
    at[count - 1] = <Connection*>calloc(1, sizeof(Connection))
    if at[count - 1] == NULL:
        return -1
    at[count - 1].handle = count - 1
    slots.count = count
    slots.free[slots.free_count] = count - 1
    slots.free_count += 1
    return 0


cdef inline Connection* slots_take(Slots* slots) noexcept nogil:
    """A free one, all zero but a handle that nobody has had.  Requires: there is one."""
    cdef Connection* connection
    cdef uint64_t handle
    slots.free_count -= 1
    connection = slots.at[slots.free[slots.free_count]]
    handle = connection.handle
    memset(connection, 0, sizeof(Connection))
    connection.handle = handle + (<uint64_t>1 << 32)
    connection.scanner.handle = connection.handle
    return connection


cdef inline void slots_give_back(Slots* slots, Connection* connection) noexcept nogil:
    connection.state = FREE
    slots.free[slots.free_count] = <uint32_t>connection.handle
    slots.free_count += 1


cdef inline void slots_fetch(const Slots* slots, uint64_t handle) noexcept nogil:
    """Have the connection fetched that is served next: with thousands of them it is in no cache."""
    cdef uint32_t slot = <uint32_t>handle
    cdef const char* connection
    if slot < slots.count:
        connection = <const char*>slots.at[slot]
        prefetch(connection)
        prefetch(connection + 64)
        prefetch(connection + sizeof(Connection) - 64)


cdef inline Connection* slots_find(const Slots* slots, uint64_t handle) noexcept nogil:
    """The connection of that handle, or NULL when it is gone."""
    cdef uint32_t slot = <uint32_t>handle
    if slot >= slots.count or slots.at[slot].handle != handle or slots.at[slot].state == FREE:
        return NULL
    return slots.at[slot]
