"""Received commands of RESP; `request/intake.pyx` explains the design."""

from libc.stdint cimport uint8_t


cdef Py_ssize_t take_commands(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil
