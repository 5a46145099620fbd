"""CRC-32C, the checksum of every page: fast where the processor has the instruction, the same everywhere."""

from libc.stdint cimport uint8_t, uint32_t


cdef extern from "gossipkv/storage/crc32c.h" nogil:
    ctypedef uint32_t (*gkv_crc32c_function)(uint32_t crc, const uint8_t* data, size_t size) noexcept nogil
    void gkv_crc32c_make_table()
    uint32_t gkv_crc32c_scalar(uint32_t crc, const uint8_t* data, size_t size)
    uint32_t gkv_crc32c_hardware(uint32_t crc, const uint8_t* data, size_t size)
    int gkv_crc32c_has_hardware()


# Set once, while the module loads; read-only ever after.
cdef gkv_crc32c_function chosen = gkv_crc32c_scalar
gkv_crc32c_make_table()
if gkv_crc32c_has_hardware():
    chosen = gkv_crc32c_hardware
HARDWARE = bool(gkv_crc32c_has_hardware())


cdef uint32_t crc32c_of(const uint8_t* data, Py_ssize_t size, uint32_t seed) noexcept nogil:
    """CRC-32C of `data`, continued from `seed` (0 to begin), as in `crc32c(b, crc32c(a)) == crc32c(a + b)`."""
    return ~chosen(~seed, data, <size_t> size)


def crc32c(const unsigned char[::1] data not None, uint32_t seed=0):
    """CRC-32C of a buffer, continued from `seed`."""
    return crc32c_of(&data[0] if data.shape[0] else NULL, data.shape[0], seed)


def crc32c_scalar(const unsigned char[::1] data not None, uint32_t seed=0):
    """The table-driven form that processors without the instruction use; the same numbers."""
    return <uint32_t> ~gkv_crc32c_scalar(~seed, &data[0] if data.shape[0] else NULL, <size_t> data.shape[0])
