"""What has arrived.  The idea stands in `_intake.pyx`."""

from libc.stdint cimport uint8_t

from gossipkv.serving._connections cimport Connection
from gossipkv.serving._core cimport Core


cdef void receive_requests(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil
cdef void resume_requests(Core core, Connection* connection) noexcept nogil
