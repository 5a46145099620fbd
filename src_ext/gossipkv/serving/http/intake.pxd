"""Received requests of HTTP/1.1; `request/intake.pyx` explains the design."""

from libc.stdint cimport uint8_t


cdef Py_ssize_t take_plain(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil
