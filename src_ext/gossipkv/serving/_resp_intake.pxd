"""Commands of RESP that have arrived.  The idea stands in `_resp_intake.pyx`."""

from libc.stdint cimport uint8_t

from gossipkv.serving._connections cimport Connection
from gossipkv.serving._core cimport Core


cdef Py_ssize_t take_commands(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil
