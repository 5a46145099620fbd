"""CRC-32C, the checksum of every page: fast where the processor has the instruction, the same everywhere."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t


cdef extern from "gossipkv/storage/crc32c.h" nogil:
    ctypedef uint32_t (*gkv_crc32c_function)(uint32_t crc, const uint8_t* data, size_t size) noexcept nogil
    void gkv_crc32c_make_table()
    void gkv_crc32c_make_lanes()
    uint32_t gkv_crc32c_scalar(uint32_t crc, const uint8_t* data, size_t size)
    uint32_t gkv_crc32c_hardware(uint32_t crc, const uint8_t* data, size_t size)
    int gkv_crc32c_has_hardware()


# Set once, while the module loads; read-only ever after.
cdef gkv_crc32c_function chosen = gkv_crc32c_scalar
gkv_crc32c_make_table()
gkv_crc32c_make_lanes()
if gkv_crc32c_has_hardware():
    chosen = gkv_crc32c_hardware
HARDWARE = bool(gkv_crc32c_has_hardware())


cdef uint32_t crc32c_of(const uint8_t* data, Py_ssize_t size, uint32_t seed) noexcept nogil:
    """CRC-32C of `data`, continued from `seed` (0 to begin), as in `crc32c(b, crc32c(a)) == crc32c(a + b)`."""
    return ~chosen(~seed, data, <size_t> size)


def crc32c(data, uint32_t seed=0):
    """CRC-32C of a buffer, continued from `seed`."""
    return crc32c_by(chosen, data, seed)


def crc32c_scalar(data, uint32_t seed=0):
    """The table-driven form that processors without the instruction use; the same numbers."""
    return crc32c_by(gkv_crc32c_scalar, data, seed)


cdef object crc32c_by(gkv_crc32c_function function, object data, uint32_t seed):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return <uint32_t> ~function(~seed, <const uint8_t*> view.buf, <size_t> view.len)
    finally:
        PyBuffer_Release(&view)
