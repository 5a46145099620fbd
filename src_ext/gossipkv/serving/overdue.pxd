"""Whose time is up, and who makes way.  The idea stands in `overdue.pyx`."""


cdef void expire_one(Connections connections, Connection* connection) noexcept nogil
cdef void make_way(Connections connections, const Connection* newcomer) noexcept nogil
