"""lz4 blocks without the GIL, through the lz4 package's own compiled code.

The package ships no headers and a fresh machine has no liblz4. But its extension module contains the functions, whose
addresses `gossipkv.storage.compression` passes in. Without them the package's Python functions do the same work under
the GIL: slower, with the same results (compressed bytes may differ between versions of lz4).
"""

from libc.stdint cimport uint8_t, uintptr_t
from libc.string cimport memcpy

ctypedef int (*CompressFunction)(const char* source, char* target, int size, int capacity) noexcept nogil
ctypedef int (*PartialFunction)(const char* source, char* target, int size, int wanted, int capacity) noexcept nogil

# Set once by `install_compression`, before any file is opened.
cdef CompressFunction compress_function = NULL
cdef PartialFunction partial_function = NULL
cdef object python_compress = None
cdef object python_decompress = None


def install_compression(uintptr_t compress_address, uintptr_t partial_address, compress, decompress):
    """Set the functions to use: addresses (0 for none), and Python functions to use without them."""
    global compress_function, partial_function, python_compress, python_decompress
    compress_function = <CompressFunction> <void*> compress_address
    partial_function = <PartialFunction> <void*> partial_address
    python_compress = compress
    python_decompress = decompress


cdef int lz4_bound(int size) noexcept nogil:
    """Return the maximum compressed size of `size` bytes."""
    return size + size // 255 + 16


cdef int lz4_compress(const uint8_t* source, int size, uint8_t* target, int capacity) noexcept nogil:
    """Return the compressed size, or 0 if it exceeds `capacity`."""
    if compress_function != NULL:
        return compress_function(<const char*> source, <char*> target, size, capacity)
    with gil:
        return compress_with_python(source, size, target, capacity)


cdef int lz4_decompress(const uint8_t* source, int size, uint8_t* target, int wanted, int capacity) noexcept nogil:
    """Decompress at least `wanted` bytes (fewer only at the end); returns how many, negative if damaged."""
    if partial_function != NULL:
        return partial_function(<const char*> source, <char*> target, size, wanted, capacity)
    with gil:
        return decompress_with_python(source, size, target, capacity)


cdef int compress_with_python(const uint8_t* source, int size, uint8_t* target, int capacity) noexcept:
    cdef bytes done
    try:
        done = python_compress((<const char*> source)[:size])
    except Exception:  # noexcept: the caller stores the block uncompressed.
        return 0
    if len(done) > capacity:
        return 0
    memcpy(target, <const char*> done, <size_t> len(done))
    return <int> len(done)


cdef int decompress_with_python(const uint8_t* source, int size, uint8_t* target, int capacity) noexcept:
    cdef bytes done
    try:
        done = python_decompress((<const char*> source)[:size], capacity)
    except Exception:  # noexcept: the caller reports the block as damaged.
        return -1
    if len(done) > capacity:
        return -1
    memcpy(target, <const char*> done, <size_t> len(done))
    return <int> len(done)
