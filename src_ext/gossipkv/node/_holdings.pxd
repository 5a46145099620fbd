"""Who holds how much: its input, its output, its scans, and what waits in the backlog."""

from libc.stdint cimport uint32_t

from gossipkv.node._backlog cimport Backlog
from gossipkv.node._slots cimport Slots
from gossipkv.node._state cimport FREE, Connection
from gossipkv.wire._buffer cimport buffer_size


cdef inline Py_ssize_t held_by(const Connection* connection, Backlog backlog) noexcept nogil:
    return (
        buffer_size(&connection.input)
        + buffer_size(&connection.output)
        + connection.scanner.held_bytes
        + backlog.bytes_of(connection.handle)
    )


cdef inline Connection* largest_holder(const Slots* slots, Backlog backlog) noexcept nogil:
    """The first of those that hold most; NULL without connections."""
    cdef Connection* largest = NULL
    cdef Py_ssize_t most = -1
    cdef Py_ssize_t held
    cdef uint32_t i
    for i in range(slots.count):
        if slots.at[i].state != FREE:
            held = held_by(slots.at[i], backlog)
            if held > most:
                most = held
                largest = slots.at[i]
    return largest
