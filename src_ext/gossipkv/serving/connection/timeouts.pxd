"""Time-outs of connections, and evictions for new ones; `timeouts.pyx` explains the design."""


cdef void expire_one(Connections connections, Connection* connection) noexcept nogil
cdef void make_way(Connections connections, const Connection* newcomer) noexcept nogil
