"""CRC-32C, the checksum of every page; uses the processor's instruction if there is one."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport malloc

cdef enum:
    STRIDE = 1024                   # Bytes between two stored registers of a buffer.


cdef extern from "gossipkv/storage/crc32c.h" nogil:
    ctypedef uint32_t (*gkv_crc32c_function)(uint32_t crc, const uint8_t* data, size_t size) noexcept nogil
    void gkv_crc32c_make_table()
    void gkv_crc32c_make_lanes()
    uint32_t gkv_crc32c_scalar(uint32_t crc, const uint8_t* data, size_t size)
    uint32_t gkv_crc32c_hardware(uint32_t crc, const uint8_t* data, size_t size)
    int gkv_crc32c_has_hardware()


# Set once, while the module loads; read-only afterwards.
cdef gkv_crc32c_function chosen = gkv_crc32c_scalar
gkv_crc32c_make_table()
gkv_crc32c_make_lanes()
if gkv_crc32c_has_hardware():
    chosen = gkv_crc32c_hardware
HARDWARE = bool(gkv_crc32c_has_hardware())


cdef uint32_t crc32c_of(const uint8_t* data, Py_ssize_t size, uint32_t seed) noexcept nogil:
    """Return the CRC-32C of `data`, continued from `seed` (0 to begin): `crc32c(b, crc32c(a)) == crc32c(a + b)`."""
    return ~chosen(~seed, data, <size_t> size)


def crc32c(data, uint32_t seed=0):
    """Return the CRC-32C of a buffer, continued from `seed`."""
    return crc32c_by(chosen, data, seed)


def crc32c_scalar(data, uint32_t seed=0):
    """Return the same as `crc32c`, by the tables that processors without the instruction use."""
    return crc32c_by(gkv_crc32c_scalar, data, seed)


cdef object crc32c_by(gkv_crc32c_function function, object data, uint32_t seed):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return <uint32_t> ~function(~seed, <const uint8_t*> view.buf, <size_t> view.len)
    finally:
        PyBuffer_Release(&view)


# Checksums of any stretch of a buffer, without reading it again. A CRC's register is a polynomial over GF(2). Data of n
# bytes multiply it by x^(8n) before their own polynomial is added. So the registers at the begin and the end of a
# stretch determine its own. Bits are reflected: the highest, 0x80000000, is the coefficient of x^0, and 0x82F63B78 is
# the polynomial that reduces products.

cdef uint32_t[32] powers            # x^(8 * 2^i). Set once, while the module loads; read-only afterwards.


cdef uint32_t product(uint32_t a, uint32_t b) noexcept nogil:
    cdef uint32_t total = 0
    while a:
        if a & 0x80000000U:
            total ^= b
        a <<= 1
        b = (b >> 1) ^ (0x82F63B78U if b & 1 else 0)
    return total


cdef void make_powers() noexcept:
    cdef int i
    powers[0] = 0x80000000U >> 8
    for i in range(1, 32):
        powers[i] = product(powers[i - 1], powers[i - 1])


make_powers()


cdef inline uint32_t carried(uint32_t register, const uint8_t* data, uint64_t size) noexcept nogil:
    return ~crc32c_of(data, <Py_ssize_t> size, ~register)


cdef uint32_t* checksums(const uint8_t* data, uint64_t size) noexcept nogil:
    """Return the register at each `STRIDE` bytes, started from 0; NULL if there is no memory."""
    cdef uint64_t i
    cdef uint32_t* stretches = <uint32_t*> malloc((size // STRIDE + 1) * sizeof(uint32_t))
    if stretches != NULL:
        stretches[0] = 0
        for i in range(size // STRIDE):
            stretches[i + 1] = carried(stretches[i], data + i * STRIDE, STRIDE)
    return stretches


cdef inline uint32_t register_at(const uint8_t* data, const uint32_t* stretches, uint64_t at) noexcept nogil:
    return carried(stretches[at // STRIDE], data + at // STRIDE * STRIDE, at % STRIDE)


cdef uint32_t checksum_between(
    const uint8_t* data, const uint32_t* stretches, uint64_t start, uint64_t end, uint32_t seed
) noexcept nogil:
    """Return the CRC-32C of a stretch, continued from `seed`."""
    cdef uint64_t size = end - start
    cdef uint32_t register = register_at(data, stretches, start) ^ ~seed
    cdef int i = 0
    while size:
        if size & 1:
            register = product(powers[i], register)
        size >>= 1
        i += 1
    return ~(register ^ register_at(data, stretches, end))
