"""Received bytes; `intake.pyx` explains the design."""

from libc.stdint cimport uint8_t


cdef void receive_requests(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil
cdef void resume_requests(Core core, Connection* connection) noexcept nogil
