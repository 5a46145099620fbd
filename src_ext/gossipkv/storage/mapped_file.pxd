from cpython.buffer cimport Py_buffer
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from posix.types cimport off_t


cdef extern from "gossipkv/storage/residency.h" nogil:
    void file_read_ahead "gkv_read_ahead"(int descriptor, off_t offset, off_t size)

cdef enum:
    LAST_BYTE = 10  # The last byte of every complete file: the line feed that ends its footer's magic.


cdef enum Fault:
    FAULT_PAGE = 1
    FAULT_CHUNK
    FAULT_RECORD
    FAULT_BLOCK
    FAULT_CHAIN
    FAULT_ANCHOR
    FAULT_PLACE
    FAULT_TABLE
    FAULT_MEMORY
    FAULT_COLD      # No damage: `fault_size` bytes are not in memory, and the reader does not wait.


cdef class MappedFile:
    # Constant after opening.
    cdef Py_buffer buffer
    cdef bint holds_buffer
    cdef Map* map               # NULL: the bytes are not in a file's map.
    cdef int descriptor         # The mapped file's; -1: there is none.
    cdef bint may_look          # True if the kernel tells which pages are in memory.
    cdef uint8_t* pretended     # Simulated residency, a bit for each page; NULL: the kernel is asked.
    cdef uint64_t asked_last
    cdef uint64_t drawn         # State of the generator that evicts simulated pages.
    cdef readonly str name
    cdef const uint8_t* base
    cdef const uint8_t* last_byte
    cdef uint64_t size, body_size, page_count, chunk_count
    cdef const uint8_t* page_checksums
    cdef const uint8_t* chunk_checksums
    cdef uint64_t record_count, position_end, records_end
    cdef const uint8_t* index
    cdef uint64_t bucket_count, home_count, seed
    cdef const uint8_t* anchor_words
    cdef const uint8_t* anchor_positions
    cdef uint64_t anchor_count
    cdef const uint8_t* blocks
    cdef uint64_t block_count
    cdef int compression
    cdef uint8_t common_prefix[64]
    cdef Py_ssize_t common_size
    cdef uint64_t metadata_offset, metadata_size, key_bytes, value_bytes, duplicates

    # Pages checked since opening, or since the checks were forgotten: a bit for each page, and for each page of page
    # checksums. Everything else that is read after opening lies in the body, or was copied.
    cdef uint8_t* checked_pages
    cdef uint8_t* checked_chunks
    cdef bint distrusted        # No bit is set any more.

    cdef Py_ssize_t pins

    # Another thread reads the file through a twin, which shares the bytes; all fields from here on are its own.
    cdef MappedFile origin      # The file whose twin this is; None: it is no twin.
    cdef bint is_twin           # True if the origin owns the map and the descriptor.
    cdef list twins             # Weak references to twins in use; a twin keeps its origin alive, not the reverse.
    cdef object __weakref__
    cdef object guard           # Held while another thread changes a twin's fields.

    # Residency: `paged` if the file is read by single pages; `asks` if its current reader does not wait for the disk,
    # so that it checks a page's residency before touching it.
    cdef readonly bint paged
    cdef bint asks
    cdef uint8_t* there         # A bit for each page found in memory in this epoch; NULL: it never was paged.
    cdef uint64_t epoch

    # The first damage found by a nogil function; `damage()` turns it into an exception.
    cdef uint64_t fault_offset, fault_size
    cdef int fault_reason
    cdef uint32_t fault_expected, fault_got

    cdef bint is_in_memory(self, uint64_t offset, uint64_t size) noexcept nogil
    cdef void note_read(self, uint64_t offset, uint64_t size) noexcept nogil
    cdef int check_page(self, uint64_t page) noexcept nogil
    cdef object damage(self)
    cdef bint lose(self) noexcept nogil
    cdef object loss(self)
    cdef int let_go(self) except -1
    cdef int follow(self) except -1
    cdef list live_twins(self)
    cdef int make_room_for_pages(self) except -1
    cdef int tell_twins(self) except -1
    cdef int ensure_open(self) except -1
    cdef int refuse(self, uint64_t offset, str reason, object expected=*, object got=*) except -1


cdef void begin_epoch(uint64_t epoch) noexcept nogil


cdef inline int fault(MappedFile file, int reason, uint64_t offset) noexcept nogil:
    """Record damage, and return the -1 that every caller passes on."""
    file.fault_reason = reason
    file.fault_offset = offset
    return -1


cdef inline bint is_whole(MappedFile file) noexcept nogil:
    """Return True if everything read from the file so far was really there; once False, it stays False.

    Call this after copying an answer, and before it leaves. If a file is cut short, its last byte is gone, wherever the
    cut is. If its disk fails, everything is zeros from then on (`sigbus.h`).
    """
    return load8_after(file.last_byte) == LAST_BYTE or file.lose()


cdef inline int check_range(MappedFile file, uint64_t offset, uint64_t size) noexcept nogil:
    """Check the pages of `size` > 0 bytes at `offset`, which the caller knows to lie within the body."""
    cdef uint64_t page = offset // PAGE_SIZE, last = (offset + size - 1) // PAGE_SIZE
    if file.asks and not file.is_in_memory(offset, size):
        return -1
    while page <= last:
        if not bit(file.checked_pages, page):
            if file.check_page(page) < 0:
                return -1
        page += 1
    return 0
