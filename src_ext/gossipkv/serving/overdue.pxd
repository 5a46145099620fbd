"""Whose time is up.  The idea stands in `overdue.pyx`."""


cdef void expire_one(Connections connections, Connection* connection) noexcept nogil
