"""Whose time is up.  The idea stands in `_overdue.pyx`."""

from gossipkv.serving._connections cimport Connection, Connections


cdef void expire_one(Connections connections, Connection* connection) noexcept nogil
