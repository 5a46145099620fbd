"""Requests of HTTP/1.1 that have arrived.  The idea stands in `_http_intake.pyx`."""

from libc.stdint cimport uint8_t

from gossipkv.serving._connections cimport Connection
from gossipkv.serving._core cimport Core


cdef Py_ssize_t take_plain(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil
